"""Item shards in the store: written about once a second by their owner, as absolute rows under a vector of fences.

Shard s has one writer, the owner of partition s mod P. A write is a compare-and-swap of the whole vector (rule 10).
Rows are a function of the vector: as long as the stored one is that which our changes are counted from, the changed
rows are enough; else the whole shard is written (rule 13). It is written dirty or not: that is how a shard that fell
back is found.
"""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saros.adapters.redis import Store
from saros.core.codec_items import pack_items
from saros.core.fold import SignedBlocks, fold_rows
from saros.core.jit import I32, U8, U64
from saros.redo.fence import pack_vector, unpack_vector
from saros.redo.replica import Replica
from saros.telemetry import FLUSH_SECONDS, MISMATCHES, REPAIRS, log
from saros.trainer.points import reach
from saros.trainer.stop import awaited


class _Swap(NamedTuple):
    """What is to be written of one shard, if its vector is the expected one."""

    shard: int
    expected: bytes
    slots: I32
    keys: U64
    values: U8
    names: dict[int, bytes]
    whole: bool


class _Write(NamedTuple):
    """Shards that are being written, all up to one vector."""

    answers: Future[list[bytes | None]]  # of each the vector found, if it was not the expected one
    vector: bytes
    swaps: list[_Swap]


class ShardWriter:
    """Writes the shards of the partitions that this process owns, in a thread of its own."""

    def __init__(
        self, store: Store, replica: Replica, vectors: list[bytes], pool: Executor,
        check: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`check` may end what takes long: it raises then, and this is not to be used any more."""
        self._store, self._replica, self._pool, self._check = store, replica, pool, check
        # Of each shard: the vector that its changes are counted from, as it stands in the store.
        self._known = vectors
        self._fallen: dict[int, bytes] = {}  # shards that have to be written whole, and the vector found there
        self._dirty: NDArray[np.bool_] = np.zeros(1024, np.bool_)
        self._names: dict[int, dict[int, bytes]] = {}
        self._writing: _Write | None = None

    def mark(self, blocks: SignedBlocks, told: dict[int, bytes]) -> None:
        """Note what a record that counts has changed, and what it told of items."""
        self._grow()
        self._dirty[blocks.slots[blocks.slots >= 0]] = True
        for key, text in told.items():
            self._names.setdefault(key % self._replica.genesis.shards, {})[key] = text

    def _grow(self) -> None:
        more = self._replica.items.table.capacity - len(self._dirty)
        if more > 0:
            self._dirty = np.concatenate([self._dirty, np.zeros(more, np.bool_)])

    def write(self, partitions: Iterable[int], in_flight: Iterable[SignedBlocks], *, wait: bool = False) -> None:
        """Begin to write the shards of these partitions, unless the last write is still under way.

        Blocks in flight are in the table, and no part of what is written. `wait`: return when the store has it all.
        """
        flying = list(in_flight)  # once: it is gone over again where a shard had fallen back
        while True:
            self._finish(wait=wait)
            if self._writing is not None:
                return
            self._begin(partitions, flying)
            if not wait:
                return
            self._finish(wait=True)
            if not self._fallen:
                return

    def _begin(self, partitions: Iterable[int], in_flight: list[SignedBlocks]) -> None:
        count, own = self._replica.genesis.partitions, set(partitions)
        # What was given away meanwhile is for its new owner to mend: whoever waited for it here would wait for good.
        self._fallen = {shard: found for shard, found in self._fallen.items() if shard % count in own}
        arrays = self._replica.items.arrays
        self._grow()
        for blocks in in_flight:
            fold_rows(arrays, blocks, -1)
        try:
            swaps = self._swaps([s for s in range(self._replica.genesis.shards) if s % count in own])
        finally:
            for blocks in in_flight:
                fold_rows(arrays, blocks, 1)
        vector = pack_vector(self._replica.fences)
        if swaps:
            self._writing = _Write(self._pool.submit(self._swap_all, vector, swaps), vector, swaps)

    def _swaps(self, shards: list[int]) -> list[_Swap]:
        """Return what is to be written of shards, which counts as written from now on: what changed, or all of it."""
        items, count = self._replica.items, self._replica.genesis.shards
        dirty = np.flatnonzero(self._dirty).astype(np.int32)
        swaps = []
        for shard, slots in zip(shards, self._of_shards(dirty, shards), strict=True):
            names, whole, expected = self._names.pop(shard, {}), shard in self._fallen, self._known[shard]
            if whole:
                (slots,), expected = self._of_shards(items.table.slots(), [shard]), self._fallen.pop(shard)
                names = {key: text for key, text in self._replica.names.items() if key % count == shard}
            values = pack_items(items, slots)
            self._dirty[slots] = False
            if whole:
                kept = values.any(axis=1)
                slots, values = slots[kept], values[kept]
            swaps.append(_Swap(shard, expected, slots, items.table.keys[slots], values, names, whole))
        return swaps

    def _of_shards(self, slots: I32, shards: list[int]) -> list[I32]:
        """Return those of the slots that lie in each shard."""
        count = self._replica.genesis.shards
        home = (self._replica.items.table.keys[slots] % np.uint64(count)).astype(np.int64)
        order = np.argsort(home, kind="stable")
        bounds = np.searchsorted(home[order], np.arange(count + 1))
        return [slots[order[bounds[shard] : bounds[shard + 1]]] for shard in shards]

    def _swap_all(self, vector: bytes, swaps: list[_Swap]) -> list[bytes | None]:
        """Write shards, one after the other. It touches nothing of ours: a thread does it."""
        found = []
        for shard, expected, _, keys, values, names, whole in swaps:
            with FLUSH_SECONDS.labels("items").time():
                found.append(self._store.write_shard(shard, expected, vector, keys, values, names, whole=whole))
            if found[-1] is None:
                reach("shard")
        return found

    def _finish(self, *, wait: bool) -> None:
        """Take the answers to a write, if they are there or we are to wait."""
        if self._writing is None or not (wait or self._writing.answers.done()):
            return
        (answers, vector, swaps), self._writing = self._writing, None
        all_found = awaited(answers, self._check)
        for swap, found in zip(swaps, all_found, strict=True):
            if found is None:
                self._known[swap.shard] = vector
                continue
            MISMATCHES.labels("items").inc()
            self._dirty[swap.slots] = True
            self._names[swap.shard] = {**swap.names, **self._names.get(swap.shard, {})}
            if not self._is_ahead(found):  # else it is followed later; a vector never goes back (rule 11)
                if self._fell_back(swap.shard, found):
                    REPAIRS.labels("items").inc()
                    log("shard fell back", logging.WARNING, shard=swap.shard)
                if not found:
                    # It went with all the rest.
                    genesis = self._replica.genesis.packed()
                    awaited(self._pool.submit(self._store.write_meta, swap.shard, genesis), self._check)
                self._fallen[swap.shard] = found

    def _is_ahead(self, vector: bytes) -> bool:
        genesis = self._replica.genesis
        stored = genesis.found(vector, genesis.starts(), "an item shard of the store")  # rule 38
        return any(there.offset > here.offset for there, here in zip(stored, self._replica.fences, strict=True))

    def _fell_back(self, shard: int, found: bytes) -> bool:
        """True if the store has lost what we knew it to hold; else another owner has written since."""
        known, partitions = self._known[shard], self._replica.genesis.partitions
        if not known or not found:
            return bool(known)
        vectors = zip(unpack_vector(found, partitions), unpack_vector(known, partitions), strict=True)
        return any(there.offset < here.offset for there, here in vectors)
