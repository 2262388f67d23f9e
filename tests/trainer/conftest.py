"""For tests that start trainers: kernels are compiled before, so that no process has to wait for it."""

import gc
import signal
import subprocess
from collections.abc import Iterator

import pytest

from saros.trainer.start import Stop
from tests.trainer.runs import SAROS


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    subprocess.run([SAROS, "warm"], check=True, capture_output=True)


@pytest.fixture
def quiet_stop() -> Iterator[Stop]:
    """A stop that nobody asks for; signals and the collector are afterwards as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Stop()
    for number, handler in before.items():
        signal.signal(number, handler)
    gc.enable()
