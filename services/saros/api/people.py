"""Users in memory: a bounded cache that the log keeps right.

Every record holds its users as they are afterwards. All of them are taken in, so one that acted a moment ago is here,
and one that is here never has to be asked for again. A user that the store has not got yet, because its partition's
fence lies before the record, is pinned until it has: what is in memory is never given up for something older.

Where there is no room for such a user, or the store falls back behind a fence it had, a read of the store may be older
than the log. Then it is not kept, and the answer says that it is stale.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saros.core.codec import bounds_of
from saros.core.gate import GateRules, gate_state
from saros.core.glance import (
    BLOCKS,
    COUNTED,
    MOVED,
    NOTHING,
    ROW,
    STATE,
    WHOLE,
    GlanceArrays,
    absorb,
    blank,
    glance_arrays,
)
from saros.core.jit import F32, I32, U32, U64, copy_columns
from saros.core.sessions import SessionRules
from saros.core.table import SlotTable
from saros.redo.record import bounds
from saros.wire.operations import read_user
from saros.wire.v1 import redo_pb2 as pb

_SLICE = 512  # users of a record that are taken in at once
_LEAST = 4096  # users in memory: what a few records may touch


class Person(NamedTuple):
    """A user, as an answer needs it."""

    row: F32 | None  # None: it has not moved
    seen: U32  # stamps of the items it clicked
    state: str
    stale: bool = False  # the store's fence lies behind what the log has said


NOBODY = Person(None, np.zeros(0, np.uint32), "cold")


class People:
    """Users of all partitions."""

    def __init__(self, partitions: int, dim: int, rules: SessionRules, gate: GateRules, limit: int) -> None:
        self._table = SlotTable(max(limit, _LEAST), capacity=1024)
        self._dim, self._rules = dim, rules
        self._arrays = glance_arrays(self._table.capacity, dim, rules)
        self._bounds = [tuple(gate_state(gate).bounds.tolist())] * partitions
        self.fences = [-1] * partitions  # the redo offset of the highest fence of the store that was met
        self._overrun = [-1] * partitions  # the last record that had users without room
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

    def absorb(self, partition: int, offset: int, record: pb.Record) -> Iterator[None]:
        """Take in the users of a record that counts, a slice at a time."""
        self.bound(partition, record.partition.state)
        users = record.users
        keys, flags = _column(users.key, np.uint64), _column(users.flags, np.uint8)
        starts, data = bounds(_column(users.length, np.uint32)), _column(users.data, np.uint8)
        rows = _column(users.rows, np.float32).reshape(-1, self._dim)
        has_row = bounds((flags & ROW) // ROW)
        if not len(keys) == len(flags) == len(starts) - 1 or starts[-1] != len(data) or has_row[-1] != len(rows):
            raise ValueError("the columns of a record's users have different lengths")
        for first in range(0, len(keys), _SLICE):
            end = min(first + _SLICE, len(keys))
            slots = self._intern(keys[first:end])
            begin, after = int(starts[first]), int(starts[end])
            absorb(
                self._arrays, slots, flags[first:end], data[begin:after], starts[first : end + 1] - begin,
                rows[has_row[first] : has_row[end]], offset,
            )  # fmt: skip
            held = slots[slots >= 0]
            if len(held) < len(slots):
                self._overrun[partition] = offset
            if offset > self.fences[partition]:
                self._table.pin(held)
                self._pinned[partition].append((offset, held))
            yield

    def _intern(self, keys: U64) -> I32:
        """Return a place for each user, -1 where there is none."""
        slots, fresh = self._table.intern(keys)
        if self._table.capacity > len(self._arrays.known):
            old, self._arrays = self._arrays, glance_arrays(self._table.capacity, self._dim, self._rules)
            copy_columns(self._arrays, old)
        self._arrays.known[fresh], self._arrays.at[fresh] = NOTHING, -1
        return slots

    def find(self, keys: U64, partitions: I32) -> list[Person | None]:
        """Return users that are known as of now; None: the store has to be asked."""
        slots = self._table.find(keys).tolist()
        return [
            self._person(self._arrays, slot, int(partition))
            if slot >= 0 and self._arrays.known[slot] == WHOLE
            else None
            for slot, partition in zip(slots, partitions, strict=True)
        ]

    def nearest(self, keys: U64, partitions: I32) -> list[Person | None]:
        """Return what is known of users while the store does not answer: of some, a state without its row."""
        slots = self._table.find(keys).tolist()
        return [
            self._person(self._arrays, slot, int(partition)) if slot >= 0 and self._arrays.known[slot] else None
            for slot, partition in zip(slots, partitions, strict=True)
        ]

    def _person(self, users: GlanceArrays, slot: int, partition: int, stale: bool = False) -> Person:
        numbers, (low, high) = users.numbers[slot], self._bounds[partition]
        count = int(numbers[COUNTED])
        state = "cold" if not numbers[BLOCKS] else "below" if count < low else "above" if count > high else "in_band"
        row = users.rows[slot].copy() if numbers[MOVED] > 0 and users.known[slot] == WHOLE else None
        return Person(row, users.seen[slot, : users.seen_count[slot]].copy(), state, stale)

    def take(
        self, partition: int, offset: int, expected: int, keys: U64, values: Sequence[bytes | None]
    ) -> dict[int, Person]:
        """Take in users as the store has them under a fence; return them by key. `expected` was met before the read."""
        stale = offset < max(expected, self._overrun[partition])
        # A read that came late may be behind another one, and is as good; but what it holds is not to stay.
        late = stale or offset < self.fences[partition]
        self.meet(partition, offset)
        read = self._read(offset, values)
        found, kept = {}, []
        for k, (key, slot) in enumerate(zip(keys.tolist(), self._table.find(keys).tolist(), strict=True)):
            known = self._arrays.known[slot] if slot >= 0 else NOTHING
            if known != NOTHING and self._arrays.at[slot] > offset:
                if known == STATE and not late:  # no record that the store lacks has moved its row
                    self._arrays.rows[slot], self._arrays.known[slot] = read.rows[k], WHOLE
                found[key] = self._person(self._arrays, slot, partition, late and known == STATE)
            else:
                found[key] = self._person(read, k, partition, stale)
                kept.append(k)
        if not late:
            self._keep(keys[kept], kept, read)
        return found

    def _keep(self, keys: U64, which: list[int], read: GlanceArrays) -> None:
        """Keep users that were read, as far as there is room."""
        slots = self._intern(keys)
        there = np.flatnonzero(slots >= 0)
        taken = np.array(which, np.int64)[there]
        columns: tuple[NDArray[Any], ...] = self._arrays
        sources: tuple[NDArray[Any], ...] = read
        for column, source in zip(columns, sources, strict=True):
            column[slots[there]] = source[taken]

    def _read(self, offset: int, values: Sequence[bytes | None]) -> GlanceArrays:
        """Return users out of the store's values."""
        read = glance_arrays(len(values), self._dim, self._rules)
        there = [k for k, value in enumerate(values) if value is not None]
        stored = [read_user(values[k] or b"") for k in there]
        states = [user.state for user in stored]
        for k, user in zip(there, stored, strict=True):
            if user.row:
                read.rows[k] = np.frombuffer(user.row, np.float32)
        nothing: F32 = np.zeros((0, self._dim), np.float32)
        # Offset -1 is that of a store to which nothing was flushed: then there are no users.
        absorb(
            read, np.array(there, np.int32), np.zeros(len(there), np.uint8), b"".join(states),
            bounds(np.array([len(state) for state in states], np.int64)), nothing, offset,
        )  # fmt: skip
        for k in set(range(len(values))) - set(there):
            blank(read, k, offset)
        read.known[:] = WHOLE
        return read


def _column(data: bytes, dtype: type[np.generic]) -> NDArray[Any]:
    return np.frombuffer(bytearray(data), dtype)
