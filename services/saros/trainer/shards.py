"""Item shards in the store: written about once a second by their owner, as absolute rows under a vector of fences.

Shard s has one writer, the owner of partition s mod P. A write is a compare-and-swap of the whole vector (rule 10).
Rows are a function of the vector: as long as the stored one is that which our changes are counted from, the changed
rows are enough; else the whole shard is written (rule 13). It is written dirty or not: that is how a shard that fell
back is found.
"""

import logging
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from saros.adapters.redis import Store
from saros.adapters.redo import RedoLog
from saros.core.codec_items import item_width, pack_items, unpack_items
from saros.core.fold import SignedBlocks, fold_rows
from saros.core.jit import I32
from saros.errors import RefusedError
from saros.redo.fence import Fence, pack_vector, unpack_vector
from saros.redo.genesis import Genesis
from saros.redo.replica import Replica
from saros.telemetry import FLUSH_SECONDS, MISMATCHES, REPAIRS, log
from saros.trainer.points import reach


def boot(store: Store, redo: RedoLog, replica: Replica) -> list[bytes]:
    """Fill an empty replica from the store and let it begin there; return the vectors that were read (rule 7)."""
    genesis, vectors, stored = replica.genesis, list[list[Fence]](), list[bytes]()
    for number in range(genesis.shards):
        shard = store.read_shard(number)
        stored.append(shard.vector)
        vectors.append(unpack_vector(shard.vector, genesis.partitions) if shard.vector else genesis.starts())
        if len(shard.keys):
            unpack_items(replica.items, shard.keys, shard.values)
        replica.name(shard.names)
    for partition in range(genesis.partitions):
        for number, vector in enumerate(vectors):
            redo.check(partition, vector[partition], f"shard {number} of the store")
    replica.boot(vectors)
    return stored


class ShardWriter:
    """Writes the shards of the partitions that this process owns."""

    def __init__(self, store: Store, replica: Replica, vectors: list[bytes]) -> None:
        self._store, self._replica = store, replica
        # Of each shard: the vector that its changes are counted from, as it stands in the store.
        self._known = vectors
        self._dirty: NDArray[np.bool_] = np.zeros(1024, np.bool_)
        self._names: dict[int, dict[int, bytes]] = {}

    def mark(self, blocks: SignedBlocks, names: dict[int, bytes]) -> None:
        """Note what a record that counts has changed."""
        self._grow()
        self._dirty[blocks.slots[blocks.slots >= 0]] = True
        for key, text in names.items():
            self._names.setdefault(key % self._replica.genesis.shards, {})[key] = text

    def _grow(self) -> None:
        more = self._replica.items.table.capacity - len(self._dirty)
        if more > 0:
            self._dirty = np.concatenate([self._dirty, np.zeros(more, np.bool_)])

    def write(self, partitions: Iterable[int], in_flight: list[SignedBlocks]) -> None:
        """Write the shards of these partitions; blocks in flight are in the table, and no part of what is written."""
        genesis: Genesis = self._replica.genesis
        owned = [shard for shard in range(genesis.shards) if shard % genesis.partitions in set(partitions)]
        arrays = self._replica.items.arrays
        self._grow()
        for blocks in in_flight:
            fold_rows(arrays, blocks, -1)
        try:
            slots = self._replica.items.table.slots()
            shard_of = (self._replica.items.table.keys[slots] % np.uint64(genesis.shards)).astype(np.int64)
            for shard in owned:
                with FLUSH_SECONDS.labels("items").time():
                    self._write_one(shard, slots[shard_of == shard])
        finally:
            for blocks in in_flight:
                fold_rows(arrays, blocks, 1)

    def _write_one(self, shard: int, slots: I32) -> None:
        """Write one shard, only what changed where that is enough."""
        found = self._swap(shard, self._known[shard], slots[self._dirty[slots]], whole=False)
        while found is not None:
            MISMATCHES.labels("items").inc()
            if found and self._is_ahead(found):
                return  # followed later; a vector never goes back (rule 11)
            if self._fell_back(shard, found):
                REPAIRS.labels("items").inc()
                log("shard fell back", logging.WARNING, shard=shard)
            found = self._swap(shard, found, slots, whole=True)
        self._dirty[slots] = False
        self._names.pop(shard, None)
        reach("shard")

    def _is_ahead(self, vector: bytes) -> bool:
        stored = unpack_vector(vector, self._replica.genesis.partitions)
        if stored[0].log_id != self._replica.genesis.log_id:  # rule 38
            raise RefusedError(
                f"an item shard of the store is of another log, {stored[0].log_id:x}",
                "another `saros rebase` may have run: start the trainer again",
            )
        return any(there.offset > here.offset for there, here in zip(stored, self._replica.fences, strict=True))

    def _fell_back(self, shard: int, found: bytes) -> bool:
        """True if the store has lost what we knew it to hold; else another owner has written since."""
        known, partitions = self._known[shard], self._replica.genesis.partitions
        if not known or not found:
            return bool(known)
        vectors = zip(unpack_vector(found, partitions), unpack_vector(known, partitions), strict=True)
        return any(there.offset < here.offset for there, here in vectors)

    def _swap(self, shard: int, expected: bytes, slots: I32, *, whole: bool) -> bytes | None:
        """Write rows if the vector is the expected one; return None, or the vector found."""
        replica, vector = self._replica, pack_vector(self._replica.fences)
        values = (
            pack_items(replica.items, slots)
            if len(slots)
            else np.zeros((0, item_width(replica.items.rules.dim)), np.uint8)
        )
        if whole:
            kept = values.any(axis=1)
            slots, values = slots[kept], values[kept]
        names = self._names.get(shard, {})
        if whole:
            shards = replica.genesis.shards
            names = {key: text for key, text in replica.names.items() if key % shards == shard}
        found = self._store.write_shard(
            shard, expected, vector, replica.items.table.keys[slots], values, names, whole=whole
        )
        if found is None:
            self._known[shard] = vector
        return found
