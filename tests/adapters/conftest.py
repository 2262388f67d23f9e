"""For tests of the store: each of them with one server, and with a cluster."""

import pytest

from tests.store import StoreServer


@pytest.fixture(params=["standalone", "cluster"])
def server(request: pytest.FixtureRequest) -> StoreServer:
    """A server, or a cluster of three."""
    found = request.getfixturevalue("store_server" if request.param == "standalone" else "store_cluster")
    assert isinstance(found, StoreServer)
    return found
