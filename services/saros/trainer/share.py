"""One partition that this process owns: its learner, what it has in flight, and its users in the store.

A micro-batch is computed on the state that the last record left, in flight or accepted, and names that record as its
parent. Users come from the store when they are first met; those that a record has touched stay in memory until it is
flushed (rule 18).
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saros.adapters.redis import Ledgers
from saros.core.codec import unpack_partition
from saros.core.codec_blocks import unpack_ledger
from saros.core.events import CLICK, ERASE, POSITIVE, Events
from saros.core.fold import SignedBlocks
from saros.core.gate import DAYS
from saros.core.jit import I32, I64, U8, U64
from saros.core.learner import Batch, Learner
from saros.core.users import BYTES, COUNTED
from saros.redo.fence import Fence
from saros.redo.record import Place, lows, pack_record
from saros.telemetry import STEP_SECONDS
from saros.trainer.plan import LoopRules, unheeded
from saros.trainer.users import Asked, Known, UserStore
from saros.wire.operations import StoredUser, read_user
from saros.wire.rare import gate_change, gate_rules, supersedes
from saros.wire.v1 import redo_pb2 as pb
from saros.wire.v1.events_pb2 import GateChange

_EVENT_BYTES = 200.0  # of the log for each event, until it is known better


class Flight(NamedTuple):
    """A record that was sent and has not been read back."""

    record: pb.Record
    blocks: SignedBlocks  # as the table has them
    users: I32  # pinned until it is flushed
    named: frozenset[int]  # keys of items that its upserts name, and nobody did before


class Share:
    """An owned partition."""

    def __init__(self, partition: int, learner: Learner, users: UserStore, fence: Fence, rules: LoopRules) -> None:
        """`fence` is that of the last record that counts; the store has been brought up to it."""
        self.partition, self.learner, self.users, self._rules = partition, learner, users, rules
        self.record_bytes = rules.record_bytes
        self.next, self._parent = fence.next, fence.nonce
        self.taken = fence.next  # behind the last message that was read
        # The log's time of the last message that was learned; before there is one, it is at least as old as this.
        self.newest_ms = int(1000 * time.time())
        self.flights: deque[Flight] = deque()
        self._event_bytes = _EVENT_BYTES
        # The rules in force are the log's: those of our settings begin a partition, and hold until a change comes.
        own, state = gate_change(learner.gate_rules, 0), users.state()
        self.gate = state.gate if state.HasField("gate") else own
        self.unheeded = unheeded(gate_rules(own), gate_rules(self.gate))
        if state.state:
            unpack_partition(state.state, learner.timeline, learner.gate)
        learner.change_gate(gate_rules(self.gate))  # also our own: a message rounds them

    def ask(self, keys: U64) -> Asked[Known] | None:
        """Begin to read those of the users that are not in memory; no micro-batch is learned until they are loaded."""
        missing = keys[self.learner.users.table.find(keys) < 0]
        return self.users.ask(missing) if len(missing) else None

    def load(self, keys: U64, asked: Asked[Known] | None) -> None:
        """Take users into memory, after they were asked for, with the blocks of theirs that wait (rule 31)."""
        known = self.users.answer(asked) if asked else None
        self.learner.intern(keys)
        if asked and known:
            there = [k for k, value in enumerate(known.users.values) if value is not None]
            if there:
                self._restore(asked.keys[there], [read_user(known.users.values[k] or b"") for k in there])
            if known.ledgers is not None:
                slots = self.learner.users.table.find(known.waiting)
                for slot, entries in zip(slots.tolist(), known.ledgers.entries, strict=True):
                    self._fill_ledger(slot, {n: data for n, data in entries.items() if not data[1] & 1})

    def _restore(self, keys: U64, stored: list[StoredUser]) -> None:
        """Fill slots that have just been given."""
        learner, slots = self.learner, self.learner.users.table.find(keys)
        rows = learner.users.arrays.rows[slots].copy()
        for k, user in enumerate(stored):
            if user.row:
                rows[k] = np.frombuffer(user.row, np.float32)
        states = [user.state for user in stored]
        learner.restore(slots, b"".join(states), np.cumsum([0, *map(len, states)]), rows)

    def _fill_ledger(self, slot: int, entries: dict[int, bytes]) -> None:
        blocks = [data for _, data in sorted(entries.items())]
        unpack_ledger(self.learner.ledger, slot, b"".join(blocks), np.cumsum([0, *map(len, blocks)]))

    def leaving(self, user: I32, kind: U8) -> I32:
        """Return the users who may pass B with these events, or are erased, and have a ledger to be taken back."""
        clicks = user[((kind == CLICK) | (kind == POSITIVE)) & (user >= 0)]
        users, count = np.unique(clicks, return_counts=True)
        passing = users[self.learner.users.arrays.gate[users, COUNTED] + count > self.learner.gate.bounds[1]]
        leaving = np.union1d(passing, user[(kind == ERASE) & (user >= 0)])
        return leaving[self.ledger_bytes(leaving) > 0]

    def foresee(self, keys: U64, kind: U8) -> Asked[Ledgers] | None:
        """Begin to read the ledgers of users in memory who may leave with these events, as `ask` does users."""
        leaving = self.leaving(self.learner.users.table.find(keys), kind)
        return self.ask_ledgers(leaving) if len(leaving) else None

    def has_all(self, ledgers: Asked[Ledgers] | None, leaving: I32) -> bool:
        """Return whether the ledgers of all these users were asked for."""
        keys = self.learner.users.arrays.keys[leaving]
        return not len(keys) or (ledgers is not None and bool(np.isin(keys, ledgers.keys).all()))

    def ledger_bytes(self, users: I32) -> I64:
        """Return how many bytes the ledger of each of the users has, records in flight included."""
        return np.asarray(self.learner.users.arrays.gate[users, BYTES : BYTES + DAYS].sum(axis=1, dtype=np.int64))

    def ask_ledgers(self, users: I32) -> Asked[Ledgers]:
        """Begin to read whole ledgers; no micro-batch is learned until they are answered."""
        keys = self.learner.users.arrays.keys[users]
        return self.users.ask_ledgers(keys, [flight.record for flight in self.flights])

    def learn(self, events: Events, asked: Asked[Ledgers] | None) -> tuple[Batch, I32, I32] | None:
        """Learn a micro-batch; None where the partition is another's meanwhile.

        What waits is released once (rule 33), or ends with its ledger (rule 36), of which what was added is negated
        (rule 35): `_release` and `_take_back` of `saros.core.settle`.

        `asked` are the ledgers of those who may leave. Whoever leaves all the same, because B moved within the batch,
        is read here.
        """
        touched = np.unique(events.user[events.user >= 0])
        before, bare = lows(self.learner.users.arrays, touched), touched[self.ledger_bytes(touched) == 0]
        self.learner.users.table.pin(touched)
        clearing = self.learner.open(events)
        if len(clearing):
            keys = self.learner.users.arrays.keys[clearing]
            ledgers = {key: dict[int, bytes]() for key in self.learner.users.arrays.keys[bare].tolist()}
            asked_for = asked.keys.tolist() if asked else []
            others = clearing[[key not in ledgers and key not in asked_for for key in keys.tolist()]]
            for each in (asked, self.ask_ledgers(others) if len(others) else None):
                found = self.users.answer_ledgers(each) if each else {}
                if found is None:
                    return None
                ledgers |= found
            for slot, key in zip(clearing.tolist(), keys.tolist(), strict=True):
                self._fill_ledger(slot, ledgers[key])
        with STEP_SECONDS.time():
            batch = self.learner.close()
        return batch, touched, before

    def change_gate(self, changes: Sequence[GateChange]) -> None:
        """Put other rules in force behind a micro-batch; the highest revision wins."""
        for change in changes:
            if supersedes(change, self.gate):
                self.gate = change
                self.learner.change_gate(gate_rules(change))

    def record(
        self, batch: Batch, touched: I32, before: I32, place: Place, names: dict[int, bytes], stats: pb.Stats,
        named: frozenset[int],
    ) -> pb.Record:  # fmt: skip
        """Return the record of a micro-batch, and count it as in flight; its upserts, which are to follow, name items
        that nobody named."""
        record = pack_record(place, self.learner, batch, touched, before, names, stats)
        record.partition.gate.CopyFrom(self.gate)
        # Copies: the next batch overwrites what these are views of.
        signed = SignedBlocks._make(column.copy() for column in batch.blocks.signed())
        self.flights.append(Flight(record, signed, touched, named))
        self.next, self._parent = place.end, place.nonce
        return record

    def has_room(self, flights_max: int) -> bool:
        """True if another record may be sent, and the users it touches may stay in memory until it is flushed."""
        return (
            len(self.flights) < flights_max
            and self.users.pending_bytes < self._rules.behind_bytes
            and 2 * self._pinned() < self.learner.users.limit
        )

    def _pinned(self) -> int:
        return self.users.pending_users + sum(len(flight.users) for flight in self.flights)

    def batch_events(self) -> int:
        """Return how many events make a record of the size we want, as records have been of late."""
        return max(1, min(self._rules.batch_events, int(self._rules.record_bytes / self._event_bytes)))

    def batch_users(self) -> int:
        """Return how many users a micro-batch may have: two of them are in flight, and half of the memory is room."""
        return max(1, min(self._rules.batch_users, self.learner.users.limit // 4))

    def note_size(self, events: int, size: int) -> None:
        """Note how large a record was."""
        if events:
            self._event_bytes += 0.2 * (size / events - self._event_bytes)

    def place(self, log_id: int, nonce: int, end: int) -> Place:
        """Return where the next record stands."""
        return Place(log_id, nonce, self._parent, self.next, end)

    def accept(self, fence: Fence) -> Flight:
        """The oldest record in flight counts."""
        flight = self.flights.popleft()
        self.users.append(fence, flight.record, flight.users)
        return flight
