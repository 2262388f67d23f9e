"""The users of one partition: session state, gate state and rows, as columns indexed by slot.

`head` and `ring` are one cache line each, because every event touches them; the gate's columns are touched when a
block closes. A slot that is given anew is reset here and nowhere else.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saros.core.jit import F32, I32, I64, U16, U32, U64, copy_columns, kernel, line_zeros
from saros.core.rows import RowRules, start_user
from saros.core.table import SlotTable

# Columns of `head`. FREE is the time before which held blocks wait for a user that closes them too fast.
CLOCK, SESSION, FLAGS, NEGATIVES, CARRIED, CLICKED, RING, FREE = 0, 1, 2, 3, 4, 5, 6, 7
NEW = -1  # the clock of a user that has not been seen
# Bits of FLAGS.
OPEN = 1  # has blocks that are held until its deadline
IN_HEAP = 2  # stands in the heap of deadlines
RUN_DONE = 4  # `authors`: the run of negatives was used; the next negative starts a new one
RING_SIZE = 16  # event ids remembered

# Columns of `gate`. MOVED, LOW and HIGH go with the user's row and are the step's: how often it has moved, and how what
# the user passed over and what it clicked have scored of late, less where they start, on a grid of 2^-16.
# TAKEN is `settle`'s: the user's blocks that were taken back, since it was first seen or erased.
DAY, NUMBER, COUNTED, MOVED, REPEAT, LOW, HIGH, TAKEN = 0, 1, 2, 3, 4, 5, 6, 7
LEVEL_ONE, LEVEL_MAX = 1 << 16, 1000 << 16
# The first of 8 daily buckets each: blocks closed, bytes in the ledger, and bytes that would be there but for `shadow`.
BUCKETS, BYTES, WOULD = 8, 16, 24
GATE_WIDTH = 32
REPEAT_SIZE = 128  # clicked items remembered where repeated clicks are ignored
UNDOOMED = np.iinfo(np.int32).max


class UserArrays(NamedTuple):
    """Columns of n user slots."""

    keys: U64  # [n] of the slot table
    pins: I32  # [n] of the slot table
    head: I64  # [n, 8]
    ring: U32  # [n, 16] last event ids
    sets: U64  # [n, negatives + carried + 1 + clicked] pending and clicked items
    weights: U16  # [n, negatives + carried + 1]
    gate: I32  # [n, 32]
    taken: I32  # [n, 8] of TAKEN those in the window, by day; only read where TAKEN is not 0
    repeats: U32  # [n, 128] the last items clicked while repeats were ignored, both halves of the key xor-ed
    doom: I32  # [n] scratch of the gate
    rows: F32  # [n, d]


class Users:
    """The slot table of a partition's users and the columns behind it."""

    def __init__(
        self,
        rows: RowRules,
        *,
        negatives_max: int,
        carried_max: int,
        clicked_max: int,
        limit: int,
        evict: bool,
        ahead: bool = False,
    ) -> None:
        """With `ahead` memory for all users is set aside, as in `SlotTable`: growing copies nothing."""
        self.limit = limit
        self.table = SlotTable(limit, capacity=min(limit, 1024), evict=evict, ahead=ahead)
        self._rows = rows
        self._pending = negatives_max + carried_max + 1  # the click that closes a block needs a place of its own
        self._sets = self._pending + clicked_max
        self._columns = self._allocate(limit if ahead else self.table.capacity)
        self.arrays = self._in_use()

    def _in_use(self) -> UserArrays:
        """Return the columns at the table's capacity."""
        capacity = self.table.capacity
        return UserArrays(self.table.keys, self.table.pins, *(column[:capacity] for column in self._columns))

    def _allocate(self, n: int) -> tuple[NDArray[Any], ...]:
        """Return empty columns of n slots, those behind the table's own."""
        return (
            line_zeros((n, 8), np.int64),
            line_zeros((n, RING_SIZE), np.uint32),
            np.zeros((n, self._sets), np.uint64),
            np.zeros((n, self._pending), np.uint16),
            line_zeros((n, GATE_WIDTH), np.int32),
            np.zeros((n, 8), np.int32),
            np.zeros((n, REPEAT_SIZE), np.uint32),
            np.full(n, UNDOOMED, np.int32),
            line_zeros((n, self._rows.dim), np.float32),
        )

    def intern(self, keys: U64) -> tuple[I32, I32]:
        """Return a slot for each key (-1: no room) and those that were given anew; these are reset."""
        slots, fresh = self.table.intern(keys)
        if self.table.keys is not self.arrays.keys:
            if self.table.capacity > len(self._columns[0]):
                old, self._columns = self._columns, self._allocate(self.table.capacity)
                copy_columns(self._columns, old)
            self.arrays = self._in_use()
        reset(self.arrays, fresh, self._rows)
        return slots, fresh


@kernel
def reset_gate(users: UserArrays, user: int) -> None:
    """Make the gate side of a user new, but for what goes with its row and what `settle` counts: they come later."""
    # No more than there are: where repeats were never ignored, nobody ever writes there, and it takes no memory.
    for k in range(min(users.gate[user, REPEAT], REPEAT_SIZE)):
        users.repeats[user, k] = 0
    for k in range(GATE_WIDTH):
        if k != MOVED and k != LOW and k != HIGH and k != TAKEN:
            users.gate[user, k] = 0


@kernel
def reset_taken(users: UserArrays, user: int) -> None:
    """Forget that blocks of a user were taken back."""
    if users.gate[user, TAKEN] != 0:
        users.gate[user, TAKEN] = 0
        for k in range(users.taken.shape[1]):
            users.taken[user, k] = 0


@kernel
def reset_row(users: UserArrays, user: int, rules: RowRules) -> None:
    """Let a user's row, and what goes with it, start anew."""
    start_user(users.rows, user, users.keys[user], rules)
    users.gate[user, MOVED], users.gate[user, LOW], users.gate[user, HIGH] = 0, 0, 0


@kernel
def reset(users: UserArrays, slots: I32, rules: RowRules) -> None:
    """Make the given slots new users."""
    for k in range(slots.shape[0]):
        user = slots[k]
        users.head[user] = 0
        users.head[user, CLOCK] = NEW
        users.ring[user] = 0
        reset_gate(users, user)
        reset_taken(users, user)
        reset_row(users, user, rules)
