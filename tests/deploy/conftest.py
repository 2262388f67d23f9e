"""For tests that start trainers and APIs: kernels are compiled before, so that no process has to wait."""

import subprocess

import pytest

from tests.trainer.runs import SAROS


@pytest.fixture
def warm() -> None:
    """Compile what is not compiled yet."""
    subprocess.run([SAROS, "warm"], check=True, capture_output=True)
