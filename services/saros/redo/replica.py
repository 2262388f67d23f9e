"""The fold of the log: which records count, and the item table they make.

One class for whoever follows the log: trainer, API, audit. It reads each partition in order, judges every record, and
folds the blocks of those that count into the item table, which is integers, so that partitions may interleave as they
like. Rules are those of tests/model.

Where it was booted from a store, shards were read at different times, each with the fences it had been folded to (its
vector). A record is folded into the rows of a shard only if it lies above that shard's vector (rule 7).
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from saros.core.events import DAY_MS
from saros.core.fold import SignedBlocks, fold_buckets, fold_rows
from saros.core.ids import hash_texts
from saros.core.items import Items
from saros.core.jit import I32, I64, U64
from saros.errors import RefusedError
from saros.redo.fence import Fence
from saros.redo.genesis import WRONG_LOG, Genesis
from saros.redo.record import Learned, judged, learned
from saros.wire.item import is_upsert, upserted
from saros.wire.v1 import redo_pb2 as pb


class Replica:
    """The item table of a model, and how far it has followed each partition of the log."""

    def __init__(self, genesis: Genesis, items: Items) -> None:
        self.genesis, self.items = genesis, items
        self.fences = genesis.starts()
        self.names: dict[int, bytes] = {}
        self._named: NDArray[np.bool_] = np.zeros(0, np.bool_)  # by slot
        # Of each shard and partition, the redo offset up to which the rows that were read contain the log.
        self._boot = np.full((genesis.shards, genesis.partitions), -1, np.int64)
        self._vectors = [genesis.starts() for _ in range(genesis.shards)]
        self._high = [-1] * genesis.partitions  # the highest of each partition

    def boot(self, vectors: list[list[Fence]]) -> None:
        """Begin where the shards, whose rows stand in the table, were: each partition at the lowest of its fences."""
        self._vectors = vectors
        self._boot = np.array([[fence.offset for fence in vector] for vector in vectors], np.int64)
        self._high = self._boot.max(axis=0).tolist()
        lowest = self._boot.argmin(axis=0)
        self.fences = [vectors[shard][partition] for partition, shard in enumerate(lowest.tolist())]
        self._check_vectors()

    @property
    def caught_up(self) -> bool:
        """True if every partition has been followed past all that the shards contained (rule 12)."""
        return all(fence.offset >= high for fence, high in zip(self.fences, self._high, strict=True))

    def is_new(self, partition: int, offset: int) -> bool:
        """True if no shard contained this when its rows were read."""
        return offset > self._high[partition]

    def judge(self, partition: int, offset: int, record: pb.Record | None) -> bool:
        """Move the fence of a partition past one message; True if it is a record that counts (rules 1, 2, 4)."""
        counts, self.fences[partition] = judged(self.fences[partition], offset, record)
        self._check_vectors(partition)
        return counts

    def _check_vectors(self, partition: int | None = None) -> None:
        """Refuse a log in which another record counts than in the one that a shard was folded from."""
        for p in range(self.genesis.partitions) if partition is None else [partition]:
            fence = self.fences[p]
            if self.is_new(p, fence.offset):
                continue
            for shard in np.flatnonzero(self._boot[:, p] == fence.offset).tolist():
                if self._vectors[shard][p] != fence:
                    raise RefusedError(
                        f"shard {shard} was folded from another log: at offset {fence.offset} of redo partition {p} it "
                        f"has record {self._vectors[shard][p].nonce:x}, the log has {fence.nonce:x}",
                        WRONG_LOG,
                    )

    def fold(self, partition: int, offset: int, record: pb.Record) -> SignedBlocks:
        """Fold a record that counts; return its blocks, as far as they were new to the table."""
        found = learned([record], self.genesis.rows.dim)
        blocks = self.signed(found, self.above(partition, offset, found.blocks.items))
        fold_rows(self.items.arrays, blocks, 1)
        self.confirm(record, blocks)
        return blocks

    def fold_slices(self, found: Learned, above: I64 | None, size: int) -> Iterator[SignedBlocks]:
        """Fold the blocks of records that count, of `above` only these items; yield them as they are folded.

        So many items at a time, or one block: an item that is new takes longer than all else. What the records tell of
        items is left to whoever calls (`told`, `name`).
        """
        parts, first = found.blocks, 0
        ends = parts.start + parts.negatives + parts.positives
        while first < len(ends):
            begin = int(parts.start[first])
            end = max(first + 1, int(np.searchsorted(ends, begin + size, side="right")))
            kept = None
            if above is not None:
                low, high = np.searchsorted(above, [begin, ends[end - 1]])
                kept = above[low:high] - begin
            blocks = self.signed(found.cut(first, end), kept)
            fold_rows(self.items.arrays, blocks, 1)
            fold_buckets(self.items.arrays, blocks)
            yield blocks
            first = end

    def signed(self, found: Learned, above: I64 | None = None) -> SignedBlocks:
        """Return blocks as a fold takes them, their items in slots; of `above` only these items, if given."""
        parts = found.blocks
        day = (parts.time_ms // DAY_MS).astype(np.int32)
        items, coefs, start = parts.items, parts.coefs, parts.start
        negatives, positives = parts.negatives, parts.positives
        if above is not None:
            # Blocks without the items of the shards that have them already.
            kept = np.zeros(len(items) + 1, np.int64)
            kept[above + 1] = 1
            total = np.cumsum(kept)
            middle, end = start + negatives, start + negatives + positives
            items, coefs = items[above], coefs[above]
            start, negatives, positives = (
                total[start],
                (total[middle] - total[start]).astype(np.int32),
                (total[end] - total[middle]).astype(np.int32),
            )
        slots = self._slots(items, np.repeat(found.sign, negatives + positives))
        return SignedBlocks(found.sign, day, start, negatives, positives, parts.rows, slots, coefs)

    def confirm(self, record: pb.Record, blocks: SignedBlocks) -> None:
        """Fold what belongs to records that count only: the daily buckets, and the texts of items."""
        fold_buckets(self.items.arrays, blocks)
        self.name(self.told(record))

    def told(self, record: pb.Record) -> dict[int, bytes]:
        """Return what a record says of items, by key: texts, and upserts, which hold the text too.

        What upserts say of an item stays, whatever text comes behind it: all of them stand in one partition, so every
        reader ends with the same.
        """
        told: dict[int, bytes] = {}
        for some in self.told_slices(record, max(1, len(record.names.text), len(record.upserts))):
            told |= some
        return told

    def told_slices(self, record: pb.Record, size: int) -> Iterator[dict[int, bytes]]:
        """`told`, so many items at a time, the last of an item being the one that stays."""
        texts, upserts = record.names.text, record.upserts
        keys = np.frombuffer(bytearray(record.names.key), np.uint64).tolist()
        if len(keys) != len(texts):
            raise ValueError("a record has another number of keys than of texts")
        for first in range(0, len(keys), size):
            pairs = zip(keys[first : first + size], texts[first : first + size], strict=True)
            yield {key: text for key, text in pairs if not is_upsert(self.names.get(key, b""))}
        for first in range(0, len(upserts), size):
            some = upserts[first : first + size]
            hashed = hash_texts(self.genesis.key(), [upsert.item_id for upsert in some]).tolist()
            told: dict[int, bytes] = {}
            for key, upsert in zip(hashed, some, strict=True):
                told[key] = upserted(told.get(key) or self.names.get(key, b""), upsert)
            yield told

    def name(self, told: dict[int, bytes]) -> None:
        """Take what is told of items: see `saros.wire.item`."""
        if not told:
            return
        self.names |= told
        slots = self.items.table.find(np.fromiter(told, np.uint64, len(told)))
        self._grow()
        self._named[slots[slots >= 0]] = True

    def nameless(self, slots: I32) -> U64:
        """Return the keys of those among the given slots whose text the log has not said yet, each once."""
        self._grow()
        return self.items.table.keys[np.unique(slots[~self._named[slots]])]

    def _grow(self) -> None:
        more = self.items.table.capacity - len(self._named)
        if more > 0:
            self._named = np.concatenate([self._named, np.zeros(more, np.bool_)])

    def above(self, partition: int, offset: int, items: U64) -> I64 | None:
        """Return which items lie in shards that do not contain this record yet; None: all."""
        if self.is_new(partition, offset):
            return None
        boot = self._boot[:, partition]
        shard = (items % np.uint64(self.genesis.shards)).astype(np.int64)
        return np.flatnonzero(boot[shard] < offset)

    def _slots(self, items: U64, sign: I32) -> I32:
        """Return the slots of items; those of blocks that were not added need none."""
        slots = np.full(len(items), -1, np.int32)
        signed = np.flatnonzero(sign)
        slots[signed] = self.items.intern(items[signed])
        return slots
