"""For the test of the document: a model with a trainer that runs."""

from tests.api.conftest import _warm, live, served_from, trained

__all__ = ["_warm", "live", "served_from", "trained"]
