"""The real data sets. They may not be redistributed: where they cannot be had, the tests that need them are skipped."""

from pathlib import Path

import pytest

from saros.errors import InputError
from saros.lab.data import fetch, find


def _have(name: str, title: str) -> Path:
    try:
        return find(name) or fetch(name)
    except InputError as error:
        pytest.skip(f"{title} cannot be had here: {error.message}")


@pytest.fixture(scope="session")
def ml_1m() -> Path:
    return _have("ml-1m", "MovieLens-1M")


@pytest.fixture(scope="session")
def ml_100k() -> Path:
    return _have("ml-100k", "MovieLens-100k")
