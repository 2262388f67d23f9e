"""For tests that serve: kernels are compiled before; a model of its own for each, and a trainer that runs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.runs import Sender
from tests.broker import Broker
from tests.store import StoreServer
from tests.trainer.runs import SAROS, Model, running


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    subprocess.run([SAROS, "warm"], check=True, capture_output=True)


@pytest.fixture
def served_from(request: pytest.FixtureRequest) -> StoreServer:
    """The store of a test's model: one server, unless the test names another fixture."""
    found = request.getfixturevalue(getattr(request, "param", "store_server"))
    assert isinstance(found, StoreServer)
    return found


@pytest.fixture
def trained(real_broker: Broker, served_from: StoreServer, model_name: str, tmp_path: Path) -> Model:
    return Model(model_name, real_broker.address, served_from.url, tmp_path)


@pytest.fixture
def live(trained: Model) -> Iterator[Model]:
    """A model with a trainer that runs."""
    with running([trained.trainer()]):
        yield trained


@pytest.fixture
def sender(trained: Model) -> Sender:
    return Sender(trained)
