"""A bounded table from 64-bit keys to dense int32 slots, with second-chance eviction.

Callers keep their own columns beside it, indexed by slot, and reset a slot's columns when the table calls it fresh.
Keys are hashes (`saros.core.ids`), but nothing relies on it. Other kernels work on the same table, key by key, through
`arrays()` and the kernels `probe` and `insert`, which `saros.core.cells` holds with the layout.

Invariants:
- A key has one slot for as long as it stands in the table; no two keys share one.
- Order is fixed: a free slot is given first (the one freed last), then a new one, then an evicted one. Which slot a key
  gets depends on the calls alone.
- A slot with pins > 0 is not evicted, nor is one that the same call answers with.
- A call that raises has changed nothing.
"""

import numpy as np
from numpy.typing import NDArray

from saros.core import cells
from saros.core.cells import FREE, HAND, HELD, REFERENCED, SIZE, USED, TableArrays, insert, probe
from saros.core.jit import I32, U64, kernel
from saros.core.lanes import prefetch

__all__ = ["SIZE", "SlotTable", "TableArrays", "insert", "probe"]

_NOT_REFERENCED = 0xFF ^ REFERENCED
_NOT_HELD = 0xFF ^ HELD
# Keys between the one looked up and the one whose cell is asked for; a third faster at a million keys.
_AHEAD = 16
_LIMIT_MAX = 1 << 30
_PINS_MAX = 2**31 - 1


@kernel
def _find(arrays: TableArrays, keys: U64, slots: I32) -> None:
    """Fill slots (int32[n]) with those of keys (uint64[n]), -1 where absent, and mark them referenced."""
    last = len(keys) - 1
    for i in range(len(keys)):
        prefetch(arrays.cells, cells.home(arrays, keys[min(i + _AHEAD, last)]))
        slot = probe(arrays, keys[i])
        slots[i] = slot
        if slot >= 0:
            arrays.state[slot] |= REFERENCED


@kernel
def _intern(arrays: TableArrays, keys: U64, slots: I32, fresh: I32, begin: int, given: int) -> tuple[int, int]:
    """Give slots to keys[begin:] while there is room; return how far it came and how many of `fresh` are filled.

    keys: uint64[n]; slots, fresh: int32[n].
    """
    last = len(keys) - 1
    i = begin
    while i <= last:
        prefetch(arrays.cells, cells.home(arrays, keys[min(i + _AHEAD, last)]))
        size = arrays.counters[SIZE]
        slot = insert(arrays, keys[i])
        if slot < 0:
            break
        slots[i] = slot
        if arrays.counters[SIZE] > size:
            fresh[given] = slot
            given += 1
        i += 1
    return i, given


@kernel
def _evict(arrays: TableArrays) -> int:
    """Drop and return the next clean slot that the clock hand finds not referenced, or -1: all are pinned or held.

    Assumes that every slot is in use. Only slots that may go lose their referenced bit, so -1 has changed nothing.
    """
    count = len(arrays.state)
    hand = arrays.counters[HAND]
    found = -1
    candidates = 0
    for step in range(2 * count):
        if arrays.pins[hand] == 0 and arrays.state[hand] & HELD == 0:
            candidates += 1
            if arrays.state[hand] & REFERENCED == 0:
                found = hand
            arrays.state[hand] &= _NOT_REFERENCED
        hand = hand + 1 if hand + 1 < count else 0
        if found >= 0 or (step + 1 == count and candidates == 0):
            break
    if found >= 0:
        # Where many go, they go one after another.
        prefetch(arrays.cells, cells.home(arrays, arrays.keys[min(found + _AHEAD, count - 1)]))
        cells.drop(arrays, found)
    arrays.counters[HAND] = hand  # after -1 it has gone round once, and so has not moved
    return found


@kernel
def _intern_full(arrays: TableArrays, keys: U64, slots: I32, fresh: I32, begin: int, given: int, evict: bool) -> int:
    """Give slots to keys[begin:] in a full table; return how many of `fresh` are filled.

    keys: uint64[n]; slots, fresh: int32[n], slots[:begin] given already. Keys that are present keep their slots,
    wherever in the call they stand: all of them are held before the first eviction.
    """
    last = len(keys) - 1
    for i in range(len(keys)):
        if i >= begin:
            prefetch(arrays.cells, cells.home(arrays, keys[min(i + _AHEAD, last)]))
            slots[i] = probe(arrays, keys[i])
        if slots[i] >= 0:
            arrays.state[slots[i]] |= HELD | REFERENCED
    # Within a call slots are held and never let go: where nothing could be evicted once, nothing can be later.
    exhausted = not evict
    for i in range(begin, len(keys)):
        if slots[i] < 0:
            prefetch(arrays.cells, cells.home(arrays, keys[min(i + _AHEAD, last)]))
            slot = probe(arrays, keys[i])  # given since, if the call names the key twice
            if slot < 0 and not exhausted:
                slot = _evict(arrays)
                exhausted = slot < 0
                if slot >= 0:
                    cells.fill(arrays, cells.locate(arrays, keys[i]), slot, keys[i])
                    arrays.state[slot] |= HELD
                    arrays.counters[SIZE] += 1
                    fresh[given] = slot
                    given += 1
            slots[i] = slot
    for i in range(len(keys)):
        if slots[i] >= 0:
            arrays.state[slots[i]] &= _NOT_HELD
    return given


@kernel
def _remove(arrays: TableArrays, slots: I32) -> int:
    """Free slots (int32[n]); return -1, or the index of the first not in use or repeated, nothing being changed."""
    wrong = -1
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0 or slot >= len(arrays.state) or arrays.state[slot] & (USED | HELD) != USED:
            wrong = i
            break
        arrays.state[slot] |= HELD
    if wrong >= 0:
        for i in range(wrong):
            arrays.state[slots[i]] &= _NOT_HELD
    else:
        for i in range(len(slots)):
            cells.drop(arrays, int(slots[i]))
            arrays.free[arrays.counters[FREE]] = slots[i]
            arrays.counters[FREE] += 1
    return wrong


@kernel
def _shift_pins(arrays: TableArrays, slots: I32, by: int) -> int:
    """Add `by` to the pins of slots (int32[n]); return -1, or the index of the first that cannot, changing nothing."""
    wrong = -1
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0 or slot >= len(arrays.state) or arrays.state[slot] & USED == 0:
            wrong = i
            break
        pins = np.int64(arrays.pins[slot]) + by
        if pins < 0 or pins > _PINS_MAX:
            wrong = i
            break
        arrays.pins[slot] = pins
    for i in range(wrong):
        arrays.pins[slots[i]] -= by
    return wrong


def _check(name: str, array: NDArray[np.generic], dtype: type[np.generic]) -> None:
    """Refuse what is not a contiguous one-dimensional array of this dtype."""
    if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} must be a contiguous one-dimensional {dtype.__name__} array, "
            f"not {array.dtype} of shape {array.shape}"
        )


class SlotTable:
    """A table of at most `limit` keys; with `evict` a full one gives up clean slots, else it refuses new keys."""

    def __init__(self, limit: int, capacity: int = 1024, evict: bool = True, ahead: bool = False) -> None:
        """Make an empty table with slots allocated for min(capacity, limit) keys.

        With `ahead` memory for all keys is set aside, and growing copies nothing; until it is touched it takes no room.
        """
        if not 1 <= limit <= _LIMIT_MAX:
            raise ValueError(f"limit must lie in [1, {_LIMIT_MAX}], not {limit}")
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self._limit = limit
        self._evict = evict
        self._room = cells.allocate(limit if ahead else min(capacity, limit))
        self._arrays = cells.first_of(self._room, min(capacity, limit))

    @property
    def size(self) -> int:
        """Slots in use."""
        return int(self._arrays.counters[SIZE])

    @property
    def capacity(self) -> int:
        """Slots allocated, never more than the limit; columns beside the table need this length."""
        return len(self._arrays.keys)

    @property
    def keys(self) -> U64:
        """The key of each slot, uint64[capacity], 0 where not in use; good until the table next grows."""
        return self._arrays.keys

    @property
    def pins(self) -> I32:
        """The pins of each slot, int32[capacity]; good until the table next grows."""
        return self._arrays.pins

    def arrays(self) -> TableArrays:
        """Return the arrays for `probe` and `insert`; good until the table next grows (`intern`, `reserve`)."""
        return self._arrays

    def find(self, keys: U64) -> I32:
        """Return the slot of each key, -1 where absent, and mark them referenced."""
        _check("keys", keys, np.uint64)
        slots = np.empty(len(keys), np.int32)
        _find(self._arrays, keys, slots)
        return slots

    def intern(self, keys: U64) -> tuple[I32, I32]:
        """Return the slot of each key, and those given by this call in order of first appearance; -1 is no room.

        Keys that are present keep their slots: a call never evicts what it answers with.
        """
        _check("keys", keys, np.uint64)
        slots = np.empty(len(keys), np.int32)
        fresh = np.empty(len(keys), np.int32)
        done, given = _intern(self._arrays, keys, slots, fresh, 0, 0)
        while done < len(keys) and self.capacity < self._limit:
            self._enlarge(min(2 * self.capacity, self._limit))
            done, given = _intern(self._arrays, keys, slots, fresh, done, given)
        if done < len(keys):
            given = _intern_full(self._arrays, keys, slots, fresh, done, given, self._evict)
        return slots, fresh[:given].copy()

    def reserve(self, count: int) -> int:
        """Grow until `count` more keys fit, as far as the limit allows, and return how many of them do."""
        if count < 0:
            raise ValueError(f"count must not be negative, not {count}")
        wanted = min(self.size + count, self._limit)
        capacity = self.capacity
        while capacity < wanted:
            capacity = min(2 * capacity, self._limit)
        if capacity > self.capacity:
            self._enlarge(capacity)
        return wanted - self.size

    def _enlarge(self, capacity: int) -> None:
        if capacity > len(self._room.keys):
            self._room = cells.enlarge(self._room, capacity)
        self._arrays = cells.first_of(self._room, capacity)

    def widen(self, limit: int) -> None:
        """Let in as many keys as this, if that is more."""
        if limit > _LIMIT_MAX:
            raise ValueError(f"limit must lie in [1, {_LIMIT_MAX}], not {limit}")
        self._limit = max(self._limit, limit)

    def remove(self, slots: I32) -> None:
        """Free slots, pinned or not; the one named last is the first to be given again."""
        _check("slots", slots, np.int32)
        wrong = _remove(self._arrays, slots)
        if wrong >= 0:
            raise ValueError(f"slot {slots[wrong]} (at {wrong}) is not in use, or is named twice")

    def pin(self, slots: I32) -> None:
        """Add a pin to each slot; a slot named twice gets two."""
        _check("slots", slots, np.int32)
        wrong = _shift_pins(self._arrays, slots, 1)
        if wrong >= 0:
            raise ValueError(f"slot {slots[wrong]} (at {wrong}) is not in use, or has all the pins it can hold")

    def unpin(self, slots: I32) -> None:
        """Take a pin from each slot; a slot named twice loses two."""
        _check("slots", slots, np.int32)
        wrong = _shift_pins(self._arrays, slots, -1)
        if wrong >= 0:
            raise ValueError(f"slot {slots[wrong]} (at {wrong}) is not in use, or has no pin left to take")

    def slots(self) -> I32:
        """Return all slots in use in ascending order."""
        return np.flatnonzero(self._arrays.state).astype(np.int32)

    def clear(self) -> None:
        """Empty the table in place; the allocated slots stay allocated."""
        for array in self._arrays[:-1]:
            array.fill(0)
        self._arrays.counters[: cells.SHIFT] = 0
