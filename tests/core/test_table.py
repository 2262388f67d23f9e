"""saros.core.table against a dict: any sequence of calls, and the cells after each of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from saros.core import cells
from saros.core.jit import I32, U64, kernel
from saros.core.table import SIZE, SlotTable, TableArrays, insert, probe
from tests.core.slot_keys import EVERY_KEY, POOLS, check_cells, i32, u64
from tests.naive import ids as naive


@kernel
def probe_all(arrays: TableArrays, keys: U64, slots: I32) -> None:
    """Look keys up one by one, as another kernel would."""
    for i in range(len(keys)):
        slots[i] = probe(arrays, keys[i])


@kernel
def insert_all(arrays: TableArrays, keys: U64, slots: I32) -> None:
    """Insert keys one by one, as another kernel would."""
    for i in range(len(keys)):
        slots[i] = insert(arrays, keys[i])


def contents(table: SlotTable) -> list[Any]:
    """All that a table holds."""
    return [array.tolist() for array in table.arrays()]


class SlotTableMachine(RuleBasedStateMachine):
    """Drive the table and its twin with the same calls."""

    @initialize(
        limit=st.integers(1, 40),
        capacity=st.integers(1, 12),
        evict=st.booleans(),
        ahead=st.booleans(),
        pools=st.lists(st.sampled_from(POOLS)),
    )
    def start(self, limit: int, capacity: int, evict: bool, ahead: bool, pools: list[list[int]]) -> None:
        self.table = SlotTable(limit, capacity, evict, ahead)
        self.twin = naive.SlotTable(limit, capacity, evict)
        self.keys = sorted({key for pool in pools for key in pool}) or EVERY_KEY

    def some_keys(self, data: st.DataObject) -> list[int]:
        """Keys of this run's pools, with repeats."""
        return data.draw(st.lists(st.sampled_from(self.keys), max_size=30))

    def some_slots(self, data: st.DataObject) -> list[int]:
        """Mostly slots in use, with repeats; now and then anything."""
        used = self.twin.slots()
        anything = st.integers(-2, self.twin.capacity + 1)
        return data.draw(
            st.lists(st.sampled_from(used) if used else anything, max_size=12) | st.lists(anything, max_size=3)
        )

    @rule(data=st.data())
    def intern(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        slots, fresh = self.table.intern(u64(keys))
        assert slots.dtype == fresh.dtype == np.int32
        assert (slots.tolist(), fresh.tolist()) == self.twin.intern(keys)

    @rule(data=st.data())
    def find(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        found = self.table.find(u64(keys))
        assert found.dtype == np.int32
        assert found.tolist() == self.twin.find(keys)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        slots = self.some_slots(data)
        if data.draw(st.booleans()):
            slots = list(dict.fromkeys(slots))
        self.both(lambda: self.twin.remove(slots), lambda: self.table.remove(i32(slots)))

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        slots = self.some_slots(data)
        self.both(lambda: self.twin.shift_pins(slots, 1), lambda: self.table.pin(i32(slots)))

    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        slots = self.some_slots(data)
        self.both(lambda: self.twin.shift_pins(slots, -1), lambda: self.table.unpin(i32(slots)))

    @rule(count=st.integers(0, 50))
    def reserve(self, count: int) -> None:
        assert self.table.reserve(count) == self.twin.reserve(count)

    @rule(limit=st.integers(1, 60))
    def widen(self, limit: int) -> None:
        self.table.widen(limit)
        self.twin.limit = max(self.twin.limit, limit)

    @rule(data=st.data())
    def insert_from_a_kernel(self, data: st.DataObject) -> None:
        # As many as fit; the twin's `intern` then neither grows nor evicts.
        keys = self.some_keys(data)
        room = self.table.reserve(len(keys))
        assert room == self.twin.reserve(len(keys))
        slots = i32([0] * room)
        insert_all(self.table.arrays(), u64(keys[:room]), slots)
        assert slots.tolist() == self.twin.intern(keys[:room])[0]

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.twin.clear()

    def both(self, twin_call: Callable[[], None], call: Callable[[], None]) -> None:
        """Make a call of both: neither raises, or both do."""
        try:
            twin_call()
        except ValueError:
            with pytest.raises(ValueError, match="slot"):
                call()
        else:
            call()

    @invariant()
    def same_state(self) -> None:
        if not hasattr(self, "twin"):
            return
        table, twin = self.table, self.twin
        assert (table.size, table.capacity) == (len(twin.slot_of), twin.capacity)
        slots = table.slots()
        assert slots.dtype == np.int32
        assert slots.tolist() == twin.slots()
        arrays = table.arrays()
        given_count = len(twin.key_of)
        assert arrays.keys.tolist() == [key or 0 for key in twin.key_of] + [0] * (table.capacity - given_count)
        assert table.pins.tolist() == twin.pins + [0] * (table.capacity - given_count)
        assert (arrays.state & cells.REFERENCED != 0).tolist()[:given_count] == twin.referenced
        assert not (arrays.state & cells.HELD).any()
        assert arrays.counters[cells.HAND] == twin.hand
        found = i32([0] * len(self.keys))
        probe_all(arrays, u64(self.keys), found)
        assert found.tolist() == [twin.slot_of.get(key, -1) for key in self.keys]
        check_cells(table)


TestSlotTable = SlotTableMachine.TestCase
TestSlotTable.settings = settings(max_examples=200, stateful_step_count=30)


def test_eviction_gives_a_second_chance_in_slot_order() -> None:
    table = SlotTable(3, 3)
    table.intern(u64([10, 11, 12]))
    # All are referenced: the hand clears all three, and takes the first.
    assert table.intern(u64([13]))[0].tolist() == [0]
    table.find(u64([11]))
    # 11 (slot 1) is referenced again and is passed over; 12 (slot 2) goes.
    slots, fresh = table.intern(u64([14]))
    assert (slots.tolist(), fresh.tolist()) == ([2], [2])
    assert table.find(u64([10, 11, 12, 13, 14])).tolist() == [-1, 1, -1, 0, 2]


@pytest.mark.parametrize("way", ["find", "intern", "insert"])
def test_whatever_looks_a_key_up_gives_it_a_second_chance(way: str) -> None:
    table = SlotTable(4, 4)
    table.intern(u64([10, 11, 12, 13]))
    table.intern(u64([14]))  # takes slot 0 and leaves slots 1 to 3 not referenced
    table.remove(i32([0]))  # so that there is room: in a full table `intern` goes another way
    if way == "find":
        table.find(u64([11]))
    elif way == "intern":
        table.intern(u64([11]))
    else:
        insert_all(table.arrays(), u64([11]), i32([0]))
    assert table.intern(u64([15, 16]))[0].tolist() == [0, 2]


def test_a_call_never_evicts_what_it_answers_with() -> None:
    table = SlotTable(3, 3)
    table.intern(u64([1, 2, 3]))
    slots, fresh = table.intern(u64([4, 2, 5, 6, 4, 3, 6]))
    # 2 and 3 are in the call, so only one slot can go, to 4; 5 and 6 find no room.
    assert (slots.tolist(), fresh.tolist()) == ([0, 1, -1, -1, 0, 2, -1], [0])


def test_pinned_slots_stay_and_refusals_change_nothing() -> None:
    table = SlotTable(2, 2)
    table.intern(u64([1, 2]))
    table.pin(i32([0, 1, 1]))
    before = contents(table)
    slots, fresh = table.intern(u64([3, 1]))
    assert (slots.tolist(), fresh.tolist()) == ([-1, 0], [])
    for refused in ([0, 1, 1, 1], [1, 0, 0], [0, 2], [0, -1]):
        with pytest.raises(ValueError, match="slot"):
            table.unpin(i32(refused))
    for refused in ([0, 0], [1, 2], [-1]):
        with pytest.raises(ValueError, match="slot"):
            table.remove(i32(refused))
    assert contents(table) == before
    table.unpin(i32([1, 1]))
    assert table.intern(u64([3]))[0].tolist() == [1]


def test_without_eviction_a_full_table_refuses_new_keys_only() -> None:
    table = SlotTable(2, 1, evict=False)
    slots, fresh = table.intern(u64([5, 6, 7, 5, 7]))
    assert (slots.tolist(), fresh.tolist()) == ([0, 1, -1, 0, -1], [0, 1])
    table.remove(i32([0]))
    assert table.intern(u64([7, 5]))[0].tolist() == [0, -1]


def test_a_cleared_table_is_as_new_but_for_its_capacity() -> None:
    table, fresh = SlotTable(8, 2), SlotTable(8, 8)
    table.intern(u64(list(range(8))))
    table.intern(u64([8, 9, 10]))
    table.pin(i32([4]))
    table.remove(i32([5, 6]))
    assert table.arrays().counters[cells.HAND] == 3
    table.clear()
    assert table.capacity == 8
    assert contents(table) == contents(fresh)


def test_pins_do_not_overflow() -> None:
    table = SlotTable(1, 1)
    table.intern(u64([9]))
    table.pins[0] = 2**31 - 2
    table.pin(i32([0]))
    with pytest.raises(ValueError, match="pins it can hold"):
        table.pin(i32([0]))
    assert table.pins.tolist() == [2**31 - 1]


def test_a_kernel_inserts_what_was_reserved_and_sees_what_is_fresh() -> None:
    table = SlotTable(5, 1, evict=True)
    table.intern(u64([0]))
    assert table.reserve(9) == 4
    assert table.capacity == 5
    slots = i32([0] * 7)
    insert_all(table.arrays(), u64([3, 0, 4, 5, 3, 6, 7]), slots)
    assert slots.tolist() == [1, 0, 2, 3, 1, 4, -1]
    assert table.arrays().counters[SIZE] == table.size == 5
    assert table.reserve(1) == 0


def test_a_large_table_grows_and_shrinks_exactly() -> None:
    keys = np.unique(np.arange(50_000, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95))
    table = SlotTable(40_000, 16, evict=False)
    slots, fresh = table.intern(keys)
    assert slots.tolist() == [*range(40_000), *[-1] * 10_000]
    assert fresh.tolist() == list(range(40_000))
    table.remove(i32(list(range(0, 40_000, 2))))
    assert table.find(keys[:40_000]).tolist() == [slot if slot % 2 else -1 for slot in range(40_000)]
    assert table.intern(keys[40_000:])[0].tolist() == list(range(39_998, 19_998, -2))
    check_cells(table)


def test_arguments_of_the_wrong_kind_are_refused() -> None:
    table = SlotTable(4)
    assert table.capacity == 4
    keys = u64([1, 2])
    wrong_keys: list[Any] = [keys.astype(np.int64), keys.reshape(2, 1), u64([1, 2, 3, 4])[::2]]
    for wrong in wrong_keys:
        with pytest.raises(ValueError, match="keys must be a contiguous one-dimensional uint64"):
            table.find(wrong)
        with pytest.raises(ValueError, match="keys must be"):
            table.intern(wrong)
    for method in (table.remove, table.pin, table.unpin):
        with pytest.raises(ValueError, match="slots must be a contiguous one-dimensional int32"):
            method(np.array([0], np.int64))
    with pytest.raises(ValueError, match="count"):
        table.reserve(-1)
    for limit in (0, 2**30 + 1):
        with pytest.raises(ValueError, match="limit"):
            SlotTable(limit)
    with pytest.raises(ValueError, match="capacity"):
        SlotTable(4, 0)
