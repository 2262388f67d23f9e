"""The item table: rows, counters and daily buckets of every item, as columns indexed by slot.

All of it is integers, and only `saros.core.fold` changes it. An item's slot is never given to another item.

The limit is for whoever lets new items in (`saros.core.settle`). What others let in is folded whatever it is, and the
table grows beyond the limit for it: two trainers may give away the last places at once, and both records count.
"""

from typing import NamedTuple

import numpy as np

from saros.core.jit import I32, I64, U64, copy_columns, kernel, line_zeros
from saros.core.rows import RowRules, start_item
from saros.core.table import SlotTable, TableArrays, insert

CLICKED, SHOWN, UPDATES = 0, 1, 2  # columns of `counters`; the first two index `totals` too
DAYS = 8
_BEYOND = 64  # one part in so many: a table that grows beyond its limit does so by this much at least


class ItemArrays(NamedTuple):
    """Columns of n item slots."""

    rows: I32  # [n, d] fixed point, 2^24 = 1.0
    counters: I32  # [n, 3]
    bucket_day: I32  # [n, 8]
    bucket_clicked: I32  # [n, 8]
    bucket_shown: I32  # [n, 8]
    totals: I64  # [2] clicked, shown: the sums over all items


class Items:
    """The slot table of the items and the columns behind it."""

    def __init__(self, rules: RowRules, limit: int, ahead: bool = False) -> None:
        """With `ahead` memory for all items is set aside, as in `SlotTable`: nobody waits for columns to be copied."""
        self.rules, self.limit = rules, limit
        self.table = SlotTable(limit, capacity=min(limit, 1024), evict=False, ahead=ahead)
        self._columns = self._allocate(limit if ahead else self.table.capacity, np.zeros(2, np.int64))
        self.arrays = self._in_use()

    @property
    def room(self) -> int:
        """Slots that memory is set aside for."""
        return len(self._columns.rows)

    def _in_use(self) -> ItemArrays:
        """Return the columns at the table's capacity."""
        columns = [column[: self.table.capacity] for column in self._columns[:5]]
        return ItemArrays._make((*columns, self._columns.totals))

    def _allocate(self, n: int, totals: I64) -> ItemArrays:
        """Return empty columns of n slots."""
        return ItemArrays(
            rows=line_zeros((n, self.rules.dim), np.int32),
            counters=np.zeros((n, 3), np.int32),
            bucket_day=np.zeros((n, DAYS), np.int32),
            bucket_clicked=np.zeros((n, DAYS), np.int32),
            bucket_shown=np.zeros((n, DAYS), np.int32),
            totals=totals,
        )

    def reserve(self, count: int) -> None:
        """Make room for so many new items, as far as the limit allows."""
        self.table.reserve(count)
        if self.table.capacity > len(self.arrays.rows):
            if self.table.capacity > self.room:
                old, self._columns = self._columns, self._allocate(self.table.capacity, self._columns.totals)
                copy_columns(self._columns[:5], old[:5])
            self.arrays = self._in_use()

    def intern(self, keys: U64) -> I32:
        """Return a slot for each key, new ones at their start row, also beyond the limit."""
        if self.table.size + len(keys) > self.limit:
            new = len(np.unique(keys[self.table.find(keys) < 0]))
            if self.table.size + new > self.table.capacity:
                self.table.widen(self.table.size + new + self.limit // _BEYOND)
        self.reserve(len(keys))
        slots, fresh = self.table.intern(keys)
        _start(self.arrays, self.table.keys, fresh, self.rules)
        return slots


@kernel
def _start(items: ItemArrays, keys: U64, slots: I32, rules: RowRules) -> None:
    """Set the given slots to their start rows."""
    for k in range(slots.shape[0]):
        start_item(items.rows, slots[k], keys[slots[k]], rules)


@kernel
def intern_item(table: TableArrays, items: ItemArrays, key: np.uint64, rules: RowRules) -> int:
    """Give a new key a slot and its start row; the caller has made sure that there is room."""
    slot = insert(table, key)
    start_item(items.rows, slot, key, rules)
    return slot
