"""For tests that start trainers: kernels are compiled before, so that no process has to wait; and stores to break."""

import gc
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from saros.adapters.redis import EmbeddedStore
from saros.trainer.stop import Stop
from tests.broker import Broker
from tests.store import StoreServer, connect, start_cluster
from tests.trainer.faults import SEED
from tests.trainer.runs import SAROS, Model


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    subprocess.run([SAROS, "warm"], check=True, capture_output=True)


@pytest.fixture
def model(real_broker: Broker, store_server: StoreServer, model_name: str, tmp_path: Path) -> Model:
    """A model of its own."""
    return Model(model_name, real_broker.address, store_server.url, tmp_path)


@pytest.fixture
def redis(store_server: StoreServer) -> Any:
    """A client of the store, for what no trainer does."""
    return connect(store_server.url)


@pytest.fixture
def quiet_stop() -> Iterator[Stop]:
    """A stop that nobody asks for; signals and the collector are afterwards as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Stop()
    for number, handler in before.items():
        signal.signal(number, handler)
    gc.enable()


@pytest.fixture(autouse=True)
def _tell_seed() -> None:
    """Whatever fails says how to repeat it."""
    print(f"SAROS_TEST_SEED={SEED}")  # noqa: T201


@pytest.fixture(params=["alone", "cluster"])
def own_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreServer]:
    """A store of its own, for the test to break."""
    with ExitStack() as stack:
        if request.param == "alone":
            node = stack.enter_context(EmbeddedStore(tmp_path / "store"))
            yield StoreServer("embedded", (node.address,), nodes=(node,))
        else:
            yield stack.enter_context(start_cluster(tmp_path / "store"))
