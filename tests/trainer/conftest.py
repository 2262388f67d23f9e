"""For tests that start trainers: kernels are compiled before, so that no process has to wait for it."""

import subprocess

import pytest

from tests.trainer.runs import SAROS


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    subprocess.run([SAROS, "warm"], check=True, capture_output=True)
