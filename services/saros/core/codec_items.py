"""Item rows to and from bytes, as a shard of the store holds them: n values of one width.

A value is int32[d + 27], little-endian: the row less where it starts, its counters (clicked, shown, updates), and
the eight daily buckets (days, clicked, shown). A row that never changed is all zeros, and need not be stored.
"""

import numpy as np

from saros.core.items import DAYS, ItemArrays, Items
from saros.core.jit import I32, U8, U64, kernel
from saros.core.rows import RowRules, start_item

_COUNTERS = 3


def item_width(dim: int) -> int:
    """Return the bytes of one value."""
    return 4 * (dim + _COUNTERS + 3 * DAYS)


@kernel
def _starts(rows: I32, keys: U64, rules: RowRules) -> None:
    for k in range(keys.shape[0]):
        start_item(rows, k, keys[k], rules)


def _start_rows(keys: U64, rules: RowRules) -> I32:
    rows = np.zeros((len(keys), rules.dim), np.int32)
    _starts(rows, keys, rules)
    return rows


@kernel
def _pack(items: ItemArrays, keys: U64, slots: I32, rules: RowRules, out: I32) -> None:
    """Fill out [n, d + 27] with the values of the given slots."""
    for k in range(slots.shape[0]):
        slot, at = slots[k], rules.dim
        start_item(out, k, keys[slot], rules)
        for d in range(at):
            out[k, d] = items.rows[slot, d] - out[k, d]
        for c in range(_COUNTERS):
            out[k, at + c] = items.counters[slot, c]
        at += _COUNTERS
        for day in range(DAYS):
            out[k, at + day] = items.bucket_day[slot, day]
            out[k, at + DAYS + day] = items.bucket_clicked[slot, day]
            out[k, at + 2 * DAYS + day] = items.bucket_shown[slot, day]


def pack_items(items: Items, slots: I32) -> U8:
    """Return the values of the given slots, uint8 [n, width]."""
    values = np.empty((len(slots), item_width(items.rules.dim) // 4), np.int32)
    _pack(items.arrays, items.table.keys, slots, items.rules, values)
    return values.view(np.uint8)


def unpack_items(items: Items, keys: U64, values: U8) -> I32:
    """Set rows, counters and buckets of items that are new to the table, and add to its totals; return their slots."""
    if values.shape != (len(keys), item_width(items.rules.dim)):
        raise ValueError(f"{len(keys)} items need values of {item_width(items.rules.dim)} bytes each")
    slots = items.intern(keys)
    whole = np.ascontiguousarray(values).view(np.int32)
    arrays, at = items.arrays, items.rules.dim
    arrays.rows[slots] = whole[:, :at] + _start_rows(keys, items.rules)
    for column in arrays[1:5]:
        column[slots] = whole[:, at : at + column.shape[1]]
        at += column.shape[1]
    arrays.totals[:] += arrays.counters[slots][:, :2].sum(axis=0, dtype=np.int64)
    return slots
