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

    def take(self, party: Party, which: I32, offsets: I64, expected: I64, values: Sequence[bytes | None]) -> None:
        """Let users of a party be as the store has them, who stand at `which`, each under the fence of its partition.

        offsets, expected: of each partition, the redo offset of the fence that was found (-1 where none was), and of
        the one that was met before the read.
        """
        homes, fences = party.homes[which], np.array(self.fences, np.int64)
        doubted = offsets < np.maximum(expected, self._overrun)
        # A read that came late may be behind another one, and is as good; but what it holds is not to stay.
        late = (doubted | (offsets < fences))[homes].astype(np.uint8)
        for partition in np.unique(homes).tolist():
            self.meet(partition, int(offsets[partition]))
        read = glance_arrays(len(which), self._dim, self._rules)
        # Offset -1 is that of a store to which nothing was flushed: then there are no users.
        read_glances(read, values, offsets[homes])
        keys, places, stale = party.keys[which], np.arange(len(which), dtype=np.int32), doubted[homes].astype(np.uint8)
        settle(self._arrays, self._table.find(keys), read, places, late, stale)
        kept = np.flatnonzero(late == 0).astype(np.int32)
        if len(kept):
            slots = self._intern(keys[kept])
            put(self._arrays, slots, read, kept)
        put(party.users, which, read, places)
        party.stale[which] = stale
        self._tell_states(party)


def _column(data: bytes, dtype: type[np.generic]) -> NDArray[Any]:
    return np.frombuffer(bytearray(data), dtype)
