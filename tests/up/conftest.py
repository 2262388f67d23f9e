"""Kernels are compiled before: how long that takes is nothing to be waited for in each test."""

from tests.api.conftest import _warm

__all__ = ["_warm"]
