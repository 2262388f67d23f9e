"""The audit: is the store what the logs say?

Twice, and exactly. The redo log is replayed, and each row and name of an item, each user and ledger, and the state of
each partition has to be what the records that count make of it. The events are counted again from the first one on
(see `saros.trainer.recount`), and users, ledgers and the counters of items have to be those.

What can no longer be known is not compared, and the answer says so: a log that a rebase began does not hold what the
store held then, so users and ledgers are compared as far as it speaks of them, and items not at all; events that
retention took away cannot be counted again. Users of whom nothing was said for longer than they live in the store may
be gone from it.

Shards are read once, each with the fences it was folded to, users as of the fence of their partition, and only what
lies below these is counted: so it may run beside trainers.
"""

import time
from typing import NamedTuple

import numpy as np

from saros.adapters.kafka import Reader
from saros.adapters.names import topics_of
from saros.adapters.redis import Store
from saros.adapters.redo import RedoLog
from saros.core.codec_items import pack_items, unpack_items
from saros.core.fold import buckets_at, fold
from saros.core.items import Items
from saros.redo.fence import Fence, unpack_fence
from saros.redo.genesis import Genesis
from saros.redo.record import DELETE, Learned, learned, operations
from saros.redo.replica import Replica
from saros.trainer.plan import Plan
from saros.trainer.recount import Recount, Replayed
from saros.trainer.start import find_log, open_store
from saros.trainer.stored import Ledgers, Stored, apply, read_stored
from saros.wire.operations import StoredUser

_SHOWN_MAX = 20
_REBASED = (
    "this log was begun by `saros rebase`: users and ledgers were compared as far as it speaks of them, "
    "the rest was taken as it is"
)


class Audit(NamedTuple):
    """What was found."""

    differences: int
    users: int
    items: int
    events: int
    records: int
    whole: bool  # all was compared; else `notes` say what was not, and why
    told: list[str]  # the first differences, in words
    notes: list[str]


def audited(plan: Plan) -> Audit:
    """Compare a model's store with its logs."""
    redo, genesis = find_log(plan)
    store, reader = open_store(plan, genesis), Reader(plan.cluster, f"{plan.model}-audit")
    found = Auditor(plan, genesis, store, redo, reader, topics_of(plan.model).events).run()
    for client in (reader, redo, store):
        client.close()
    return found


class Auditor:
    """Compares a store with its logs."""

    def __init__(self, plan: Plan, genesis: Genesis, store: Store, redo: RedoLog, reader: Reader, topic: str) -> None:
        self._genesis, self._store, self._redo, self._items_max = genesis, store, redo, plan.items_max
        self._ttl_s, self._topic = plan.rules.user_ttl_s, topic
        self._recount = Recount(plan, genesis, reader, topic, self._differ)
        self._found = 0
        self._told: list[str] = []
        self._users = self._records = 0

    def _differ(self, what: str) -> None:
        self._found += 1
        if len(self._told) < _SHOWN_MAX:
            self._told.append(what)

    def run(self) -> Audit:
        """Read everything and compare."""
        genesis, recount = self._genesis, self._recount
        items, names, vectors = self._read_shards()
        replica = Replica(genesis, Items(genesis.rows, self._items_max))
        for partition in range(genesis.partitions):
            stored = read_stored(self._store, self._redo, genesis, partition)
            replayed = self._replay(partition, stored, vectors, replica)
            if not genesis.base:
                recount.count(partition, stored, vectors, replayed)
            self._users += len(stored.users)
        if not genesis.base:
            self._compare_items(items, replica.items, "replaying the log gives", rows=True)
            self._compare_names(names, replica.names)
        if not genesis.base and not recount.trimmed:
            self._compare_items(items, recount.items, "counting the events gives", rows=False)
        notes = self._notes()
        return Audit(
            self._found, self._users, items.table.size, recount.events, self._records, not notes, self._told, notes
        )  # fmt: skip

    def _notes(self) -> list[str]:
        """Say what was not compared."""
        notes = [_REBASED] if self._genesis.base else []
        if trimmed := self._recount.trimmed:
            gone = ", ".join(map(str, trimmed))
            notes.append(
                f"{self._topic} no longer has its first events in partition {gone}: users there, and the counters of "
                "all items, were compared with the model's log only"
            )
        return notes

    def _read_shards(self) -> tuple[Items, dict[int, bytes], list[list[Fence]]]:
        items, names, vectors = Items(self._genesis.rows, self._items_max), dict[int, bytes](), []
        for number in range(self._genesis.shards):
            shard = self._store.read_shard(number)
            if len(shard.keys):
                unpack_items(items, shard.keys, shard.values)
            names |= shard.names
            vectors.append(self._genesis.found(shard.vector, self._genesis.starts(), f"shard {number}"))
        return items, names, vectors

    def _replay(self, partition: int, stored: Stored, vectors: list[list[Fence]], replica: Replica) -> Replayed:
        """Fold a partition of the log, into each shard as far as its vector, into users as far as their fence."""
        genesis, fence = self._genesis, stored.fence
        reached = np.array([vector[partition].offset for vector in vectors], np.int64)
        end = max(int(reached.max()), fence.offset) + 1
        users: dict[int, StoredUser] = {}
        ledgers: Ledgers = {}
        if genesis.base:
            # A record says what is and not what changes: done again, all that it says must be so already.
            users, ledgers = dict(stored.users), {key: dict(entries) for key, entries in stored.ledgers.items()}
        spoken: dict[int, int] = {}  # of users, the last record that speaks of them
        ends, let_in, refused = set[int](), set[int](), False
        head_at = unpack_fence(stored.head).offset if stored.head else -1
        head, gate = stored.head if genesis.base else b"", None  # a rebase keeps the state that was there
        for at, record in self._redo.accepted(partition, genesis.start(partition), end):
            self._records += 1
            found = learned([record], genesis.rows.dim)
            shard = (found.blocks.items % np.uint64(genesis.shards)).astype(np.int64)
            blocks = replica.signed(found, np.flatnonzero(reached[shard] >= at.offset))
            fold(replica.items.arrays, blocks)
            # What is told of an item looks at no other, so each shard's are as of its vector.
            told = replica.told(record).items()
            replica.name({key: name for key, name in told if reached[key % genesis.shards] >= at.offset})
            if not ends and record.partition.HasField("gate") and not record.partition.gate.revision:
                gate = record.partition.gate
            if at.offset <= head_at:
                head = at.pack() + record.partition.SerializeToString()
            ends.add(record.end)
            let_in |= _signed_items(found)
            refused = refused or bool((found.flags & DELETE).any())
            if at.offset <= fence.offset:
                spoken |= dict.fromkeys(np.frombuffer(record.users.key, np.uint64).tolist(), at.offset)
                apply(operations(record, genesis.rows.dim), users, ledgers)
        if head != stored.head:
            self._differ(f"state of partition {partition}: replaying the log gives another one")
        expired = self._expired(partition, stored, users, spoken)
        self._compare_users(partition, stored, expired, users, ledgers)
        return Replayed(expired, ends if refused else set(), let_in if refused else None, gate)

    def _expired(
        self, partition: int, stored: Stored, users: dict[int, StoredUser], spoken: dict[int, int]
    ) -> set[int]:
        """Return the users that are not in the store, and whose last record is older than users live there.

        They live there from the writing of that record on, which came after it.
        """
        missing = users.keys() - stored.users.keys()
        if not missing or not self._ttl_s:
            return set()
        since = self._redo.first_since(partition, int(1000 * (time.time() - self._ttl_s)))
        return {key for key in missing if spoken.get(key, since) < since}

    def _compare_users(
        self, partition: int, stored: Stored, expired: set[int], users: dict[int, StoredUser], ledgers: Ledgers
    ) -> None:
        """Compare users and ledgers with what the log makes of them."""
        for key in sorted((stored.users.keys() | users.keys()) - expired):
            if stored.users.get(key) != users.get(key):
                self._differ(f"user {key:016x} of partition {partition}: replaying the log gives another one")
        ledgers = {key: entries for key, entries in ledgers.items() if entries and key not in expired}
        for key in sorted(stored.ledgers.keys() | ledgers.keys()):
            if stored.ledgers.get(key) != ledgers.get(key):
                self._differ(f"ledger of user {key:016x} of partition {partition}: replaying the log gives another one")

    def _compare_names(self, stored: dict[int, bytes], other: dict[int, bytes]) -> None:
        """Compare what the store says of items, texts and upserts, with what the log does."""
        for key in sorted(stored.keys() | other.keys()):
            if stored.get(key) != other.get(key):
                self._differ(f"name of item {key:016x}: replaying the log gives another one")

    def _compare_items(self, stored: Items, other: Items, what: str, *, rows: bool) -> None:
        """Compare counters, and rows and buckets too where they are the same by construction."""
        day = int(max(stored.arrays.bucket_day.max(initial=0), other.arrays.bucket_day.max(initial=0)))
        tables = [_rows_of(items, day, rows=rows) for items in (stored, other)]
        blank = bytes(len(next(iter(tables[0].values()), b"")) or len(next(iter(tables[1].values()), b"")))
        for key in sorted(tables[0].keys() | tables[1].keys()):
            if tables[0].get(key, blank) != tables[1].get(key, blank):
                self._differ(f"item {key:016x}: {what} another one")


def _signed_items(found: Learned) -> set[int]:
    """Return the items of blocks that were added or taken back: these were let into the table."""
    parts = found.blocks
    return set(np.unique(parts.items[np.repeat(found.sign != 0, parts.negatives + parts.positives)]).tolist())


def _rows_of(items: Items, day: int, *, rows: bool) -> dict[int, bytes]:
    """Return each item's numbers as bytes, a row less where it starts."""
    slots = items.table.slots()
    columns = [items.arrays.counters[slots]]
    if rows:
        width = 4 * items.rules.dim
        start = pack_items(items, slots)[:, :width].view(np.int32) if len(slots) else columns[0]
        clicked, shown = buckets_at(items.arrays, day)
        columns += [start, clicked[slots], shown[slots]]
    whole = np.concatenate(columns, axis=1)
    return {key: row.tobytes() for key, row in zip(items.table.keys[slots].tolist(), whole, strict=True)}
