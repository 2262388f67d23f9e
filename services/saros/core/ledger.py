"""The ledger: the blocks a user has waiting or added, in memory, each with the user row it was computed from.

An entry's sign is 0 while it waits and +1 once it was added; taking back ends it. Entries of a user form a list in
block order. Whoever keeps ledgers in a store holds only waiting entries here (`keep_added` off) and loads a user's
others before they are taken back.

Entries are recycled at once, but a block's items and coefficients keep their place in the arena until `compact` runs
between two batches: the step writes there after the gate has gone on.
"""

from typing import NamedTuple

import numpy as np

from saros.core.jit import F32, I32, I64, U8, U16, U64, as_int, copy_columns, kernel, line_zeros

# Columns of `used`.
FREE, ENTRIES, ITEMS, GARBAGE = 0, 1, 2, 3
NIL = -1
_DEAD = 2  # the sign of a free entry
_COMPACT_ITEMS = 4096  # below so much garbage a compaction is not worth it


class LedgerArrays(NamedTuple):
    """Columns of n user slots, e entries and m items."""

    head: I32  # [n] first entry of the user, or -1
    tail: I32  # [n]
    waiting: I32  # [n] entries with sign 0
    following: I32  # [e] next entry of the user, or of the free list
    number: I32  # [e]
    time_ms: I64  # [e]
    sign: I32  # [e]
    moved: U8  # [e] 1: the user's row has already moved by this block, and `rows` holds it as it was before
    start: I64  # [e] into the arena
    negatives: I32  # [e]
    positives: I32  # [e]
    rows: F32  # [e, d]
    items: U64  # [m] keys; negatives first
    weights: U16  # [m]
    coefs: F32  # [m]
    used: I64  # [4]


class Ledger:
    """Growing columns behind `LedgerArrays`."""

    def __init__(self, dim: int, users: int) -> None:
        self.arrays = _allocate(dim, users, 256, 4096, np.array([NIL, 0, 0, 0], np.int64))

    def reserve(self, users: int, entries: int, items: int) -> None:
        """Make room for so many user slots in all, and so many more entries and items."""
        old = self.arrays
        users, rooms, places = max(users, len(old.head)), len(old.number), len(old.items)
        if old.used[ENTRIES] + entries > rooms:
            rooms = max(2 * rooms, int(old.used[ENTRIES]) + entries)
        if old.used[ITEMS] + items > places:
            places = max(2 * places, int(old.used[ITEMS]) + items)
        if (users, rooms, places) != (len(old.head), len(old.number), len(old.items)):
            self.arrays = _allocate(old.rows.shape[1], users, rooms, places, old.used)
            copy_columns(self.arrays, old)

    def compact(self, force: bool = False) -> None:
        """Close the gaps in the arena once they are more than half of it; only between two batches."""
        used = self.arrays.used
        if force or (used[GARBAGE] > _COMPACT_ITEMS and 2 * used[GARBAGE] > used[ITEMS]):
            _compact(self.arrays, np.argsort(self.arrays.start[: used[ENTRIES]]))

    def wipe(self) -> None:
        """Overwrite what was dropped, where nobody looks: it was somebody's who is erased. Only between two batches."""
        self.compact(force=True)
        arrays = self.arrays
        for column in (arrays.items, arrays.weights, arrays.coefs):
            column[arrays.used[ITEMS] :] = 0
        dropped = np.flatnonzero(arrays.sign[: arrays.used[ENTRIES]] == _DEAD)
        for told in (arrays.number, arrays.time_ms, arrays.moved, arrays.start, arrays.negatives, arrays.positives):
            told[dropped] = 0
        arrays.rows[dropped] = 0


def _allocate(dim: int, users: int, entries: int, items: int, used: I64) -> LedgerArrays:
    """Return columns of the given sizes, with all users empty and all entries free."""
    return LedgerArrays(
        head=np.full(users, NIL, np.int32),
        tail=np.full(users, NIL, np.int32),
        waiting=np.zeros(users, np.int32),
        following=np.full(entries, NIL, np.int32),
        number=np.zeros(entries, np.int32),
        time_ms=np.zeros(entries, np.int64),
        sign=np.full(entries, _DEAD, np.int32),
        moved=np.zeros(entries, np.uint8),
        start=np.zeros(entries, np.int64),
        negatives=np.zeros(entries, np.int32),
        positives=np.zeros(entries, np.int32),
        rows=line_zeros((entries, dim), np.float32),
        items=np.zeros(items, np.uint64),
        weights=np.zeros(items, np.uint16),
        coefs=np.zeros(items, np.float32),
        used=used,
    )


@kernel
def _compact(ledger: LedgerArrays, order: I64) -> None:
    """Move the items of live entries to the front of the arena; `order` sorts the entries by where theirs stand."""
    end = 0
    for k in range(order.shape[0]):
        entry = order[k]
        if ledger.sign[entry] == _DEAD:
            continue
        first = ledger.start[entry]
        count = ledger.negatives[entry] + ledger.positives[entry]
        ledger.start[entry] = end
        for i in range(count):
            ledger.items[end + i] = ledger.items[first + i]
            ledger.weights[end + i] = ledger.weights[first + i]
            ledger.coefs[end + i] = ledger.coefs[first + i]
        end += count
    ledger.used[ITEMS], ledger.used[GARBAGE] = end, 0


@kernel
def append(
    ledger: LedgerArrays,
    user: int,
    number: int,
    time_ms: int,
    sign: int,
    moved: bool,
    negatives: int,
    positives: int,
    items: U64,
    weights: U16,
    first: int,
) -> int:
    """Append a block to a user's list and return its entry; there is room, and `number` is the user's highest."""
    entry = ledger.used[FREE]
    if entry != NIL:
        ledger.used[FREE] = ledger.following[entry]
    else:
        entry = ledger.used[ENTRIES]
        ledger.used[ENTRIES] += 1
    at = ledger.used[ITEMS]
    count = negatives + positives
    ledger.used[ITEMS] += count
    for k in range(count):
        ledger.items[at + k] = items[first + k]
        ledger.weights[at + k] = weights[first + k]
    ledger.following[entry] = NIL
    ledger.number[entry], ledger.time_ms[entry] = number, time_ms
    ledger.sign[entry], ledger.moved[entry] = sign, moved
    ledger.start[entry], ledger.negatives[entry], ledger.positives[entry] = at, negatives, positives
    if ledger.head[user] == NIL:
        ledger.head[user] = entry
    else:
        ledger.following[ledger.tail[user]] = entry
    ledger.tail[user] = entry
    ledger.waiting[user] += sign == 0
    return entry


@kernel
def drop(ledger: LedgerArrays, user: int, before: int, entry: int) -> int:
    """Unlink an entry, whose predecessor is `before` (or -1), free it, and return the one that followed it."""
    following = as_int(ledger.following[entry])
    if before == NIL:
        ledger.head[user] = following
    else:
        ledger.following[before] = following
    if following == NIL:
        ledger.tail[user] = before
    ledger.waiting[user] -= ledger.sign[entry] == 0
    ledger.used[GARBAGE] += ledger.negatives[entry] + ledger.positives[entry]
    ledger.sign[entry] = _DEAD
    ledger.following[entry] = ledger.used[FREE]
    ledger.used[FREE] = entry
    return following


@kernel
def forget(ledger: LedgerArrays, users: I32) -> None:
    """Drop every entry of the given users: their slots go to others."""
    for k in range(users.shape[0]):
        user = as_int(users[k])
        entry = as_int(ledger.head[user])
        while entry != NIL:
            entry = drop(ledger, user, NIL, entry)
