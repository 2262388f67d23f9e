"""Users in memory: a bounded cache that the log keeps right.

Every record holds its users as they are afterwards. All of them are taken in, so one that acted a moment ago is here,
and one that is here never has to be asked for again. A user that the store has not got yet, because its partition's
fence lies before the record, is pinned until it has: what is in memory is never given up for something older.

Where there is no room for such a user, or the store falls back behind a fence it had, a read of the store may be older
than the log. Then it is not kept, and the answer says that it is stale.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saros.core.codec import bounds_of
from saros.core.gate import GateRules, gate_state
from saros.core.glance import (
    COLD,
    MOVED,
    NOTHING,
    ROW,
    STATE,
    WHOLE,
    GlanceArrays,
    absorb,
    glance_arrays,
    pick,
    put,
    settle,
    tell_states,
)
from saros.core.jit import F32, I32, I64, U8, U32, U64, copy_columns
from saros.core.sessions import SessionRules
from saros.core.table import SlotTable
from saros.redo.record import bounds
from saros.wire.operations import read_glances
from saros.wire.v1 import redo_pb2 as pb

_SLICE = 512  # users of a record that are taken in at once
_LEAST = 4096  # users in memory: what a few records may touch
_PINNED_MAX = 1024  # records of a partition whose users are held one by one; more are held together


STATES = ("cold", "below", "in_band", "above")


class Person(NamedTuple):
    """A user, as an answer needs it."""

    row: F32 | None  # None: it has not moved
    seen: U32  # stamps of the items it clicked
    state: str
    stale: bool = False  # the store's fence lies behind what the log has said


NOBODY = Person(None, np.zeros(0, np.uint32), STATES[COLD])


class Party(NamedTuple):
    """Users who ask, as columns; what is known of them is theirs and moves no more."""

    keys: U64  # [n]
    homes: I32  # [n] their partitions
    users: GlanceArrays
    stale: U8  # [n] 1: the store's fence lies behind what the log has said
    states: U8  # [n] places in STATES

    def moved(self) -> list[bool]:
        """True of those who have a row of their own."""
        found: list[bool] = ((self.users.numbers[:, MOVED] > 0) & (self.users.known == WHOLE)).tolist()
        return found

    def person(self, k: int) -> Person:
        """Return one of them."""
        users = self.users
        row = users.rows[k] if users.numbers[k, MOVED] > 0 and users.known[k] == WHOLE else None
        return Person(row, users.seen[k, : users.seen_count[k]], STATES[self.states[k]], bool(self.stale[k]))


class Span(NamedTuple):
    """What records of one partition have told."""

    partition: int
    offset: int  # of the last of them
    first: int  # of their users
    end: int
    state: bytes  # of the partition, behind them; empty: as it was


class Told(NamedTuple):
    """The users of records as they are afterwards, as columns; partition by partition, each in the order of its log."""

    keys: U64  # [n]
    flags: U8  # [n]
    starts: I64  # [n + 1] of the states in `data`
    data: U8
    has_row: I64  # [n + 1] rows before each
    rows: F32  # [m, d]
    at: I64  # [n] the redo offset of its record
    spans: list[Span]


def told_by(records: Sequence[tuple[int, int, pb.Record]], dim: int) -> Told:
    """Return the users of records, each with its partition and offset, those of a partition one behind the other.

    ValueError where one is damaged.
    """
    all_users = [record.users for _, _, record in records]
    keys = _column([users.key for users in all_users], np.uint64)
    flags = _column([users.flags for users in all_users], np.uint8)
    starts = bounds(_column([users.length for users in all_users], np.uint32))
    data = _column([users.data for users in all_users], np.uint8)
    rows = _column([users.rows for users in all_users], np.float32).reshape(-1, dim)
    has_row = bounds((flags & ROW) // ROW)
    counts = [len(users.flags) for users in all_users]
    if (
        any(8 * count != len(users.key) for count, users in zip(counts, all_users, strict=True))
        or not len(keys) == len(starts) - 1
        or starts[-1] != len(data)
        or has_row[-1] != len(rows)
    ):
        raise ValueError("the columns of a record's users have different lengths")
    at = np.repeat(np.array([offset for _, offset, _ in records], np.int64), counts)
    spans, first = list[Span](), 0
    for (partition, offset, record), count in zip(records, counts, strict=True):
        begin, state = first, record.partition.state
        if spans and spans[-1].partition == partition:
            before = spans.pop()
            begin, state = before.first, state or before.state
        first += count
        spans.append(Span(partition, offset, begin, first, state))
    return Told(keys, flags, starts, data, has_row, rows, at, spans)


class People:
    """Users of all partitions."""

    def __init__(self, partitions: int, dim: int, rules: SessionRules, gate: GateRules, limit: int) -> None:
        self._table = SlotTable(max(limit, _LEAST), capacity=1024)
        self._dim, self._rules = dim, rules
        self._arrays = glance_arrays(self._table.capacity, dim, rules)
        self._bounds: I64 = np.tile(gate_state(gate).bounds.astype(np.int64), (partitions, 1))
        self.fences = [-1] * partitions  # the redo offset of the highest fence of the store that was met
        self._overrun: I64 = np.full(partitions, -1, np.int64)  # the last record that had users without room
        self._pinned: list[deque[tuple[int, I32]]] = [deque() for _ in range(partitions)]

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in (*self._arrays, *self._table.arrays()))

    @property
    def size(self) -> int:
        """Users in memory."""
        return self._table.size

    def bound(self, partition: int, state: bytes) -> None:
        """Take the bounds in force of a partition from its state."""
        if state:
            self._bounds[partition] = bounds_of(state)

    def meet(self, partition: int, offset: int) -> None:
        """The store has a partition's users as of this offset: what was held for it is let go."""
        self.fences[partition] = max(self.fences[partition], offset)
        waiting = self._pinned[partition]
        while waiting and waiting[0][0] <= offset:
            self._table.unpin(waiting.popleft()[1])

    def absorb(self, told: Told) -> Iterator[None]:
        """Take in the users of records that count, a slice at a time."""
        for span in told.spans:
            self.bound(span.partition, span.state)
        for first in range(0, len(told.keys), _SLICE):
            end = min(first + _SLICE, len(told.keys))
            slots = self._intern(told.keys[first:end])
            starts = told.starts[first : end + 1]
            data, rows = told.data[starts[0] : starts[-1]], told.rows[told.has_row[first] : told.has_row[end]]
            absorb(self._arrays, slots, told.flags[first:end], data, starts - starts[0], rows, told.at[first:end])
            for span in told.spans:
                self._hold(span, slots[max(0, span.first - first) : max(0, span.end - first)])
            yield

    def _hold(self, span: Span, slots: I32) -> None:
        """Hold users of a partition until the store has them."""
        if len(slots) and slots.min() < 0:
            self._overrun[span.partition] = span.offset
            slots = slots[slots >= 0]
        if len(slots) and span.offset > self.fences[span.partition]:
            self._table.pin(slots)
            waiting = self._pinned[span.partition]
            waiting.append((span.offset, slots))
            if len(waiting) > _PINNED_MAX:
                self._pinned[span.partition] = self._together(waiting)

    def _together(self, waiting: deque[tuple[int, I32]]) -> deque[tuple[int, I32]]:
        """Return what is held with each two records as one, until the later of them is there: longer, if anything.

        A store that we alone cannot reach would have us hold users record by record for ever.
        """
        pairs, found = iter(waiting), deque[tuple[int, I32]]()
        for first, second in zip_longest(pairs, pairs, fillvalue=None):
            assert first is not None
            offset, slots = second or first
            slots, pins = np.unique(np.concatenate((first[1], slots)) if second else slots, return_counts=True)
            self._table.unpin(np.repeat(slots, pins - 1))
            found.append((offset, slots))
        return found

    def _intern(self, keys: U64) -> I32:
        """Return a place for each user, -1 where there is none."""
        slots, fresh = self._table.intern(keys)
        if self._table.capacity > len(self._arrays.known):
            old, self._arrays = self._arrays, glance_arrays(self._table.capacity, self._dim, self._rules)
            copy_columns(self._arrays, old)
        users = self._arrays
        users.known[fresh], users.at[fresh] = NOTHING, -1
        for column in (users.numbers, users.seen, users.seen_count, users.rows):
            column[fresh] = 0  # of whoever had the place before, nothing stays
        return slots

    def find(self, keys: U64, homes: I32) -> tuple[Party, int]:
        """Return users as far as they are known as of now, and of how many the store has to be asked: NOTHING."""
        count = len(keys)
        users = glance_arrays(count, self._dim, self._rules)
        party = Party(keys, homes, users, np.zeros(count, np.uint8), np.zeros(count, np.uint8))
        missing = pick(users, self._arrays, self._table.find(keys), WHOLE)
        self._tell_states(party)
        return party, missing

    def near(self, party: Party) -> None:
        """Tell what is known of users while the store does not answer: of some, a state without its row."""
        pick(party.users, self._arrays, self._table.find(party.keys), STATE)
        self._tell_states(party)

    def _tell_states(self, party: Party) -> None:
        tell_states(party.users, party.homes, self._bounds, party.states)

    def take(self, party: Party, which: I32, offsets: I64, expected: I64, values: Sequence[bytes | None]) -> int:
        """Let users of a party be as the store has them, who stand at `which`, each under the fence of its partition.

        Return of how many the value is damaged: they are unknown, and stale.

        offsets, expected: of each partition, the redo offset of the fence that was found (-1 where none was), and of
        the one that was met before the read.
        """
        users = party.users
        # Offset -1 is that of a store to which nothing was flushed: then there are no users.
        damaged = read_glances(users, which, party.homes, values, offsets)
        party.stale[which[damaged]] = 1
        which = np.delete(which, damaged)
        keys, kept = party.keys[which], np.empty(len(which), np.int32)
        met = np.array(self.fences, np.int64)
        for partition, offset in enumerate(offsets.tolist()):
            self.meet(partition, offset)
        count = settle(
            self._arrays, self._table.find(keys), users, which, party.homes, offsets,
            np.maximum(expected, self._overrun), met, party.stale, kept,
        )  # fmt: skip
        if count:
            slots = self._intern(keys[kept[:count]])
            put(self._arrays, slots, users, which[kept[:count]])
        self._tell_states(party)
        return len(damaged)


def _column(parts: Sequence[bytes], dtype: type[np.generic]) -> NDArray[Any]:
    return np.frombuffer(bytearray().join(parts), dtype)
