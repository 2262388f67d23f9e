"""Redis: the one place that imports its client."""

from saros.adapters.redis.checks import check_server
from saros.adapters.redis.client import Address
from saros.adapters.redis.embedded import EmbeddedStore
from saros.adapters.redis.keys import Keys
from saros.adapters.redis.marks import MarkedStore, Standing, mark_for
from saros.adapters.redis.reads import UserReads
from saros.adapters.redis.store import Ledgers, Shard, Store, Users

__all__ = [
    "Address",
    "EmbeddedStore",
    "Keys",
    "Ledgers",
    "MarkedStore",
    "Shard",
    "Standing",
    "Store",
    "UserReads",
    "Users",
    "check_server",
    "mark_for",
]
