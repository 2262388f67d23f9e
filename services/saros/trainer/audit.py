"""The audit: is the store what the logs say?

Twice, and exactly. The redo log is replayed, and each row, user and ledger of the store has to be what the records that
count make of it. The events are counted again from the first one on, by a learner that has seen nothing else, and
users, ledgers and the counters of items have to be those. Rows are compared with the first only: learning again in
other micro-batches gives other coefficients.

A log that a rebase began does not hold what the store held then. Users and ledgers are compared as far as it speaks of
them; the rest, and all items, are taken as they are, and the answer says so.

Shards are read once, each with the fences it was folded to, and only what lies below them is counted: so it may run
beside trainers.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saros.adapters.intake import decode
from saros.adapters.kafka import Reader
from saros.adapters.names import topics_of
from saros.adapters.redis import Store
from saros.adapters.redo import RedoLog
from saros.core.codec_items import pack_items, unpack_items
from saros.core.codec_users import pack_users
from saros.core.fold import buckets_at, fold
from saros.core.items import Items
from saros.core.learner import Batch, Learner
from saros.core.users import CLOCK, NEW
from saros.redo.fence import FENCE_BYTES, Fence
from saros.redo.genesis import Genesis
from saros.redo.record import learned, operations
from saros.redo.replica import Replica
from saros.trainer.plan import Plan, new_learner
from saros.trainer.start import find_log, open_store
from saros.wire.decode import Decoder
from saros.wire.operations import (
    CLEAR,
    DROP,
    ERASE,
    HAS_WAITING,
    KEEP,
    PUT,
    SET,
    StoredUser,
    read_operations,
    read_user,
)
from saros.wire.rare import gate_rules, supersedes
from saros.wire.v1.events_pb2 import GateChange

_SHOWN_MAX = 20
_CHUNK = 1000
_POLL_S = 0.02
_LEVELS = slice(44, 52)  # of a user's state: how its items have scored, which depends on the rows


class Audit(NamedTuple):
    """What was found."""

    differences: int
    users: int
    items: int
    events: int
    records: int
    whole: bool  # all was compared; else, behind a rebase, only what the log says of users and ledgers
    told: list[str]  # the first differences, in words


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
        self._plan, self._genesis, self._store, self._redo = plan, genesis, store, redo
        self._reader, self._topic = reader, topic
        self._found = 0
        self._told: list[str] = []
        self._users = self._events = self._records = 0

    def _differ(self, what: str) -> None:
        self._found += 1
        if len(self._told) < _SHOWN_MAX:
            self._told.append(what)

    def run(self) -> Audit:
        """Read everything and compare."""
        genesis = self._genesis
        stored, vectors = self._read_shards()
        replayed = Replica(genesis, Items(genesis.rows, self._plan.items_max))
        counted = Items(genesis.rows, self._plan.items_max)
        for partition in range(genesis.partitions):
            head = self._store.read_head(partition)
            (fence,) = genesis.found(head[:FENCE_BYTES], [genesis.start(partition)], f"partition {partition}")
            users, ledgers = self._read_users(partition, fence)
            self._replay(partition, fence, vectors, replayed, users, ledgers)
            if not genesis.base:
                self._recount(partition, fence, vectors, counted, users, ledgers)
            self._users += len(users)
        if not genesis.base:
            self._compare_items(stored, replayed.items, "replaying the log gives", rows=True)
            self._compare_items(stored, counted, "counting the events gives", rows=False)
        return Audit(
            self._found, self._users, stored.table.size, self._events, self._records, not genesis.base, self._told
        )  # fmt: skip

    # --- what is there -----------------------------------------------------------------------------------------------

    def _read_shards(self) -> tuple[Items, list[list[Fence]]]:
        items, vectors = Items(self._genesis.rows, self._plan.items_max), []
        for number in range(self._genesis.shards):
            shard = self._store.read_shard(number)
            if len(shard.keys):
                unpack_items(items, shard.keys, shard.values)
            vectors.append(self._genesis.found(shard.vector, self._genesis.starts(), f"shard {number}"))
        return items, vectors

    def _read_users(self, partition: int, fence: Fence) -> tuple[dict[int, StoredUser], dict[int, dict[int, bytes]]]:
        """Return users and ledgers as of one fence; ValueError where trainers go on too fast for it."""
        users: dict[int, StoredUser] = {}
        ledgers: dict[int, dict[int, bytes]] = {}
        wanted = self._genesis.stored(fence)
        for keys in self._store.users_of(partition):
            found = self._store.read_users(partition, keys)
            self._check_fence(partition, wanted, found.fence)
            for key, value in zip(keys.tolist(), found.values, strict=True):
                if value is not None:
                    users[key] = read_user(value)
        for keys in self._store.ledger_keys(partition):
            read = self._store.read_ledgers(partition, keys)
            self._check_fence(partition, wanted, read.fence)
            ledgers |= {key: entries for key, entries in zip(keys.tolist(), read.entries, strict=True) if entries}
        return users, ledgers

    def _check_fence(self, partition: int, wanted: bytes, found: bytes) -> None:
        if found[:FENCE_BYTES] != wanted:
            self._differ(f"partition {partition} moved while it was read: run the audit again")

    # --- the redo log ------------------------------------------------------------------------------------------------

    def _replay(
        self, partition: int, fence: Fence, vectors: list[list[Fence]], replica: Replica,
        users: dict[int, StoredUser], ledgers: dict[int, dict[int, bytes]],
    ) -> None:  # fmt: skip
        """Fold a partition of the log, into each shard as far as its vector, into users as far as their fence."""
        genesis = self._genesis
        reached = np.array([vector[partition].offset for vector in vectors], np.int64)
        end = max(int(reached.max()), fence.offset) + 1
        made: dict[int, StoredUser] = {}
        books: dict[int, dict[int, bytes]] = {}
        if genesis.base:
            # A record says what is and not what changes: done again, all that it says must be so already.
            made, books = dict(users), {key: dict(entries) for key, entries in ledgers.items()}
        for at, record in self._redo.accepted(partition, genesis.start(partition), end):
            self._records += 1
            found = learned([record], genesis.rows.dim)
            shard = (found.blocks.items % np.uint64(genesis.shards)).astype(np.int64)
            blocks = replica.signed(found, np.flatnonzero(reached[shard] >= at.offset))
            fold(replica.items.arrays, blocks)
            if at.offset <= fence.offset:
                _apply(operations(record, genesis.rows.dim), made, books)
        for key in sorted(users.keys() | made.keys()):
            if users.get(key) != made.get(key):
                self._differ(f"user {key:016x} of partition {partition}: replaying the log gives another one")
        books = {key: entries for key, entries in books.items() if entries}
        for key in sorted(ledgers.keys() | books.keys()):
            if ledgers.get(key) != books.get(key):
                self._differ(f"ledger of user {key:016x} of partition {partition}: replaying the log gives another one")

    # --- the events --------------------------------------------------------------------------------------------------

    def _recount(
        self, partition: int, fence: Fence, vectors: list[list[Fence]], counted: Items,
        users: dict[int, StoredUser], ledgers: dict[int, dict[int, bytes]],
    ) -> None:  # fmt: skip
        """Count the events of a partition again; items as far as each shard's vector, users as far as their fence."""
        reached = np.array([vector[partition].next for vector in vectors], np.int64)
        learner = new_learner(self._plan, Items(self._genesis.rows, self._plan.items_max), whole=True)
        ends = sorted({fence.next, *reached.tolist()})
        if fence.next == self._genesis.first[partition]:
            self._compare_users(partition, learner, users, ledgers)
        for end, batch in self._learn(partition, learner, ends):
            _count(counted, batch, reached >= end)
            if end == fence.next:
                self._compare_users(partition, learner, users, ledgers)

    def _learn(self, partition: int, learner: Learner, ends: list[int]) -> Iterator[tuple[int, Batch]]:
        """Learn the events of a partition; micro-batches end at the given offsets."""
        decoder, at = Decoder(self._genesis.key(), self._genesis.partitions), self._genesis.first[partition]
        gate, ends = GateChange(), [end for end in ends if end > at]
        self._reader.assign(self._topic, [(partition, at)] if ends else [])
        while ends:
            taken = decode(self._reader.poll(_CHUNK, _POLL_S), decoder)
            offsets = np.array([taken.polled.offset(k) for k in range(len(taken.polled.values))], np.int64)
            while ends and len(offsets):
                mine = np.flatnonzero((offsets >= at) & (offsets < ends[0]))
                for run in taken.runs(mine, 1 << 30):
                    rows = taken.rows(run)
                    self._events += len(rows)
                    at = int(offsets[run[-1]]) + 1
                    batch = learner.learn(taken.events(rows, learner))
                    for event in taken.rare_of(run):
                        if event.HasField("gate_change") and supersedes(event.gate_change, gate):
                            gate = event.gate_change
                            learner.change_gate(gate_rules(gate))
                    yield at, batch
                if offsets[-1] + 1 < ends[0]:
                    break
                at = ends.pop(0)

    def _compare_users(
        self, partition: int, learner: Learner, users: dict[int, StoredUser], ledgers: dict[int, dict[int, bytes]]
    ) -> None:
        """Compare states, but for what depends on rows, and which blocks stand in the ledgers."""
        slots = learner.users.table.slots()
        slots = slots[learner.users.arrays.head[slots, CLOCK] != NEW]
        data, starts = pack_users(learner.users.arrays, slots, learner.session_rules)
        states = {
            key: data[first:end].tobytes()
            for key, first, end in zip(learner.users.arrays.keys[slots].tolist(), starts[:-1], starts[1:], strict=True)
        }
        for key in sorted(users.keys() | states.keys()):
            stored = users[key].state if key in users else b""
            if _without_levels(stored) != _without_levels(states.get(key, b"")):
                self._differ(f"user {key:016x} of partition {partition}: counting the events gives another state")
        for key, slot in zip(learner.users.arrays.keys[slots].tolist(), slots.tolist(), strict=True):
            wanted = _entries(learner, slot)
            if {number: entry[1] & 1 for number, entry in ledgers.get(key, {}).items()} != wanted:
                self._differ(f"ledger of user {key:016x} of partition {partition}: counting gives other blocks")

    def _compare_items(self, stored: Items, other: Items, what: str, *, rows: bool) -> None:
        """Compare counters, and rows and buckets too where they are the same by construction."""
        day = int(max(stored.arrays.bucket_day.max(initial=0), other.arrays.bucket_day.max(initial=0)))
        tables = [_rows_of(items, day, rows=rows) for items in (stored, other)]
        blank = bytes(len(next(iter(tables[0].values()), b"")) or len(next(iter(tables[1].values()), b"")))
        for key in sorted(tables[0].keys() | tables[1].keys()):
            if tables[0].get(key, blank) != tables[1].get(key, blank):
                self._differ(f"item {key:016x}: {what} another one")


def _apply(data: bytes, users: dict[int, StoredUser], ledgers: dict[int, dict[int, bytes]]) -> None:
    """Do what a store is asked to."""
    for code, key, number, value in read_operations(data):
        if code == SET:
            users[key] = read_user(value)
        elif code == KEEP:
            row = users[key].row if key in users else b""
            users[key] = StoredUser(bool(value[0] & HAS_WAITING), row, value[1:])
        elif code == PUT:
            ledgers.setdefault(key, {})[number] = value
        elif code == DROP:
            ledgers.get(key, {}).pop(number, None)
        else:
            assert code in (CLEAR, ERASE)
            ledgers.pop(key, None)
            if code == ERASE:
                users.pop(key, None)


def _without_levels(state: bytes) -> bytes:
    return state[: _LEVELS.start] + bytes(8) + state[_LEVELS.stop :] if state else b""


def _entries(learner: Learner, slot: int) -> dict[int, int]:
    """Return the blocks of a user's ledger in memory: their numbers, and whether they were added."""
    ledger, found = learner.ledger.arrays, {}
    entry = int(ledger.head[slot])
    while entry >= 0:
        found[int(ledger.number[entry])] = int(ledger.sign[entry] > 0)
        entry = int(ledger.following[entry])
    return found


def _count(items: Items, batch: Batch, shards: NDArray[np.bool_]) -> None:
    """Add the counters of a batch, for the items of these shards."""
    blocks = batch.blocks
    sizes = blocks.negatives + blocks.positives
    sign = np.repeat(blocks.sign, sizes)
    place = np.arange(len(sign)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    positive = place >= np.repeat(blocks.negatives, sizes)
    kept = (sign != 0) & shards[(blocks.items % np.uint64(len(shards))).astype(np.int64)]
    slots = items.intern(blocks.items[kept])
    np.add.at(items.arrays.counters, (slots, np.where(positive[kept], 0, 1)), sign[kept])
    np.add.at(items.arrays.counters[:, 2], slots, sign[kept])


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
