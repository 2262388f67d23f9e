"""The users of one partition: session state, gate state and rows, as columns indexed by slot.

`head` and `ring` are one cache line each, because every event touches them; the gate's columns are touched when a
block closes. A slot that is given anew is reset here and nowhere else.
"""

from typing import NamedTuple

import numpy as np

from saros.core.jit import F32, I32, I64, U16, U32, U64, kernel
from saros.core.rows import RowRules, start_user
from saros.core.table import SlotTable

# Columns of `head`.
CLOCK, SESSION, FLAGS, NEGATIVES, CARRIED, CLICKED, RING = 0, 1, 2, 3, 4, 5, 6
NEW = -1  # the clock of a user that has not been seen
# Bits of FLAGS.
OPEN = 1  # has blocks that wait for the end of the session
IN_HEAP = 2  # stands in the heap of deadlines
RUN_DONE = 4  # `authors`: the run of negatives was used; the next negative starts a new one
RING_SIZE = 16  # event ids remembered

# Columns of `gate`.
DAY, NUMBER, COUNTED, MOVED, REPEAT = 0, 1, 2, 3, 4
BUCKETS, BYTES = 8, 16  # the first of 8 daily buckets each: blocks closed, ledger bytes
GATE_WIDTH = 24
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
    gate: I32  # [n, 24]
    repeats: U32  # [n, 128 or 0] the last clicked items, upper half of the key
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
        repeats: bool,
        limit: int,
        evict: bool,
    ) -> None:
        self.table = SlotTable(limit, capacity=min(limit, 1024), evict=evict)
        self._rules = rows
        pending = negatives_max + carried_max + 1  # the click that closes a block needs a place of its own
        self._widths = (8, RING_SIZE, pending + clicked_max, pending, GATE_WIDTH, REPEAT_SIZE * repeats, 0, rows.dim)
        self.arrays = self._grown(None)

    def _grown(self, old: UserArrays | None) -> UserArrays:
        """Return the columns at the table's capacity, with the old ones copied in."""
        keys, pins = self.table.keys, self.table.pins
        dtypes = (np.int64, np.uint32, np.uint64, np.uint16, np.int32, np.uint32, np.int32, np.float32)
        columns = []
        for k, (width, dtype) in enumerate(zip(self._widths, dtypes, strict=True)):
            shape = (len(keys),) if k == 6 else (len(keys), width)
            column = np.full(shape, UNDOOMED, np.int32) if k == 6 else np.zeros(shape, dtype)
            if old is not None:
                column[: len(old.keys)] = old[k + 2]
            columns.append(column)
        return UserArrays(keys, pins, *columns)

    def intern(self, keys: U64) -> tuple[I32, I32]:
        """Return a slot for each key (-1: no room) and those that were given anew; these are reset."""
        slots, fresh = self.table.intern(keys)
        if self.table.keys is not self.arrays.keys:
            self.arrays = self._grown(self.arrays)
        reset(self.arrays, fresh, self._rules)
        return slots, fresh


@kernel
def reset_gate(users: UserArrays, user: int) -> None:
    """Make the gate side of a user new."""
    users.gate[user] = 0
    for k in range(users.repeats.shape[1]):
        users.repeats[user, k] = 0


@kernel
def reset(users: UserArrays, slots: I32, rules: RowRules) -> None:
    """Make the given slots new users."""
    for k in range(slots.shape[0]):
        user = slots[k]
        users.head[user] = 0
        users.head[user, CLOCK] = NEW
        users.ring[user] = 0
        reset_gate(users, user)
        start_user(users.rows, user, users.keys[user], rules)
