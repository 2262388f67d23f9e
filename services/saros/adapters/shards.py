"""Item shards: read from the store into a replica, which then goes on with the log."""

from collections.abc import Callable

from saros.adapters.redis import Store
from saros.adapters.redo import RedoLog
from saros.core.codec_items import unpack_items
from saros.redo.fence import Fence
from saros.redo.replica import Replica


def boot(
    store: Store, redo: RedoLog, replica: Replica, told: Callable[[int], None] = lambda shards: None
) -> list[bytes]:
    """Fill an empty replica from the store and let it begin there; return the vectors that were read (7, 40).

    `told` hears how many shards were read, after each.
    """
    genesis, vectors, stored = replica.genesis, list[list[Fence]](), list[bytes]()
    for number in range(genesis.shards):
        shard = store.read_shard(number)
        stored.append(shard.vector)
        vectors.append(genesis.found(shard.vector, genesis.starts(), f"shard {number} of the store"))
        if len(shard.keys):
            unpack_items(replica.items, shard.keys, shard.values)
        replica.name(shard.names)
        told(number + 1)
    for partition in range(genesis.partitions):
        for number, vector in enumerate(vectors):
            redo.check(partition, vector[partition], f"shard {number} of the store")
    replica.boot(vectors)
    return stored
