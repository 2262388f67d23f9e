"""For tests of the client: an API with keys and all it needs, and a server between that misbehaves."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from saros.api.keys import entry_of, new_key
from tests.api.conftest import _warm, served_from, trained
from tests.api.test_end_to_end import Api, started
from tests.broker import Broker
from tests.client.between import Between, standing_between
from tests.store import StoreServer
from tests.trainer.runs import Model, running

__all__ = ["_warm", "served_from", "trained"]

EVENTS_MAX, BODY_MAX = 50, 8192
KEYS = {scope: new_key() for scope in ("ingest", "read", "admin")}


@pytest.fixture(scope="module")
def api(real_broker: Broker, store_server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API that takes small requests only, with a key for each scope."""
    model = Model(f"m{uuid4().hex[:12]}", real_broker.address, store_server.url, tmp_path_factory.mktemp("model"))
    keys = " ".join(entry_of(scope, [scope], key) for scope, key in KEYS.items())
    limits = {"SAROS_API__EVENTS_MAX": str(EVENTS_MAX), "SAROS_API__BODY_MAX_BYTES": str(BODY_MAX)}
    with running([model.trainer()]), started(model, SAROS_API__KEYS=keys, **limits) as api:
        api.await_ready()
        yield api


@pytest.fixture(scope="module")
def url(api: Api) -> str:
    return str(api.client.base_url)


@pytest.fixture
def between(url: str) -> Iterator[Between]:
    with standing_between(url) as running_between:
        yield running_between
