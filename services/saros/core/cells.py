"""The cells of a slot table: open addressing from 64-bit keys to slots, as kernels that other kernels call per key.

`saros.core.table` owns the arrays, their growth and their limits; here are the operations on one key.

Invariants:
- A cell is (key, slot + 1), 16 bytes, so that a probe mostly touches one cache line. (_, 0) is an empty cell, and so 0
  is a legal key. At most half of the cells are taken: every probe meets an empty one.
- Linear probing without tombstones: all cells from a key's home to the key itself are taken. `drop` restores that.
- A slot is in use, or on the free stack, or not yet given (>= counters[TOP]). Slots are never moved.
- Key, pins and state of a slot that is not in use are 0.
"""

from typing import NamedTuple

import numpy as np

from saros.core.jit import I32, I64, U8, U64, kernel

# Places in `counters`.
SIZE = 0  # slots in use
TOP = 1  # the first slot never given
FREE = 2  # height of the free stack
HAND = 3  # the clock hand: the next slot it looks at
SHIFT = 4  # 64 - log2(cells)
COUNTERS = 5

# Bits of `state`.
USED = 1
REFERENCED = 2  # since the clock hand last passed
HELD = 4  # named by the call in progress; 0 between calls

_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class TableArrays(NamedTuple):
    """The arrays of a table, as kernels take them; good until the table next grows."""

    cells: U64  # [power of two >= 2 * capacity, 2]: key, slot + 1
    keys: U64  # [capacity]
    pins: I32  # [capacity]: a slot with pins is not evicted
    state: U8  # [capacity]: USED, REFERENCED, HELD
    free: I32  # [capacity]: a stack of counters[FREE] slots
    counters: I64  # [COUNTERS]


def allocate(capacity: int) -> TableArrays:
    """Return the arrays of an empty table with room for `capacity` >= 1 keys."""
    bits = (2 * capacity - 1).bit_length()
    counters = np.zeros(COUNTERS, np.int64)
    counters[SHIFT] = 64 - bits
    return TableArrays(
        cells=np.zeros((1 << bits, 2), np.uint64),
        keys=np.zeros(capacity, np.uint64),
        pins=np.zeros(capacity, np.int32),
        state=np.zeros(capacity, np.uint8),
        free=np.zeros(capacity, np.int32),
        counters=counters,
    )


def first_of(arrays: TableArrays, capacity: int) -> TableArrays:
    """Return the arrays with so many of their slots; all share the memory and the cells."""
    return arrays._replace(
        keys=arrays.keys[:capacity], pins=arrays.pins[:capacity], state=arrays.state[:capacity],
        free=arrays.free[:capacity],
    )  # fmt: skip


@kernel
def home(arrays: TableArrays, key: np.uint64) -> np.uint64:
    """Return the cell where the search for a key starts: the high bits of a product, which depend on the whole key."""
    return ((key ^ (key >> np.uint64(32))) * _SPREAD) >> np.uint64(arrays.counters[SHIFT])


@kernel
def locate(arrays: TableArrays, key: np.uint64) -> np.uint64:
    """Return the cell that holds a uint64 key, or the empty cell where it would go."""
    cells = arrays.cells
    mask = np.uint64(len(cells) - 1)
    at = home(arrays, key)
    while cells[at, 1] != 0 and cells[at, 0] != key:
        at = (at + np.uint64(1)) & mask
    return at


@kernel
def probe(arrays: TableArrays, key: np.uint64) -> int:
    """Return the slot of a uint64 key or -1; changes nothing, not even the referenced bit."""
    return int(np.int64(arrays.cells[locate(arrays, key), 1])) - 1


@kernel
def fill(arrays: TableArrays, at: np.uint64, slot: int, key: np.uint64) -> None:
    """Put a key into the empty cell `at` and into a slot that is not in use; the caller counts it."""
    arrays.cells[at, 0] = key
    arrays.cells[at, 1] = np.uint64(slot + 1)
    arrays.keys[slot] = key
    arrays.state[slot] = USED | REFERENCED


@kernel
def _take(arrays: TableArrays) -> int:
    """Return a slot that is not in use, the one freed last first, or -1 when all that are allocated are in use."""
    freed = arrays.counters[FREE] > 0
    unused = not freed and arrays.counters[TOP] < len(arrays.keys)
    slot = arrays.counters[TOP] if unused else -1
    if freed:
        slot = int(arrays.free[arrays.counters[FREE] - 1])
    arrays.counters[FREE] -= np.int64(freed)
    arrays.counters[TOP] += np.int64(unused)
    return slot


@kernel
def insert(arrays: TableArrays, key: np.uint64) -> int:
    """Return the slot of a uint64 key, a fresh one if it has none, or -1 if all slots allocated are in use.

    Marks it referenced. A fresh slot shows as counters[SIZE] one higher. Never grows and never evicts: the owner of the
    table calls `SlotTable.reserve` before.
    """
    at = locate(arrays, key)
    slot = int(np.int64(arrays.cells[at, 1])) - 1
    fresh = 0
    if slot >= 0:
        arrays.state[slot] |= REFERENCED
    else:
        slot = _take(arrays)
        if slot >= 0:
            fill(arrays, at, slot, key)
            fresh = 1
    arrays.counters[SIZE] += fresh
    return slot


@kernel
def drop(arrays: TableArrays, slot: int) -> None:
    """Take a slot out of use and close the gap its key leaves; where the slot goes is up to the caller."""
    cells = arrays.cells
    mask = np.uint64(len(cells) - 1)
    hole = locate(arrays, arrays.keys[slot])
    at = (hole + np.uint64(1)) & mask
    while cells[at, 1] != 0:
        # A key moves back into the hole unless its home lies behind the hole (cyclically).
        if (at - home(arrays, cells[at, 0])) & mask >= (at - hole) & mask:
            cells[hole, 0] = cells[at, 0]
            cells[hole, 1] = cells[at, 1]
            hole = at
        at = (at + np.uint64(1)) & mask
    cells[hole, 0] = 0
    cells[hole, 1] = 0
    arrays.keys[slot] = 0
    arrays.pins[slot] = 0
    arrays.state[slot] = 0
    arrays.counters[SIZE] -= 1


@kernel
def _rehash(old: U64, arrays: TableArrays) -> None:
    """Put the taken cells of `old` (uint64[m, 2]) into empty larger cells; homes keep their order, so this streams."""
    cells = arrays.cells
    for i in range(len(old)):
        if old[i, 1] != 0:
            at = locate(arrays, old[i, 0])
            cells[at, 0] = old[i, 0]
            cells[at, 1] = old[i, 1]


def enlarge(arrays: TableArrays, capacity: int) -> TableArrays:
    """Return a copy of a table's arrays with room for `capacity` keys, more than before."""
    larger = allocate(capacity)
    count = len(arrays.keys)
    larger.keys[:count] = arrays.keys
    larger.pins[:count] = arrays.pins
    larger.state[:count] = arrays.state
    larger.free[:count] = arrays.free
    larger.counters[:SHIFT] = arrays.counters[:SHIFT]
    _rehash(arrays.cells, larger)
    return larger
