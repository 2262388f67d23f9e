"""saros.core.cells: where keys go, and that the cells stay whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core import cells
from saros.core.table import SlotTable
from tests.core.slot_keys import AROUND_THE_END, check_cells, i32, u64


def test_the_adversarial_keys_meet_where_they_should() -> None:
    arrays = SlotTable(64, 64).arrays()
    homes = [int(cells.home(arrays, np.uint64(key))) for key in AROUND_THE_END]
    assert homes == [len(arrays.cells) - 1] * 24 + [0] * 24


@pytest.mark.parametrize("order", ["as given", "reversed"])
def test_a_run_that_wraps_around_the_end_closes_its_gaps(order: str) -> None:
    keys = AROUND_THE_END if order == "as given" else AROUND_THE_END[::-1]
    table = SlotTable(48, 48)
    slots, _ = table.intern(u64(keys))
    assert table.arrays().cells[0, 1] != 0
    assert table.arrays().cells[-1, 1] != 0
    for done, slot in enumerate(slots.tolist(), 1):
        table.remove(i32([slot]))
        assert table.find(u64(keys)).tolist() == [-1] * done + slots.tolist()[done:]
        check_cells(table)


@settings(max_examples=20)
@given(
    first=st.integers(0, 2**64 - 1),
    step=st.sampled_from([1, 2, 3, 1 << 20, 1 << 32, (1 << 32) + 1, 1 << 40, 1 << 48, 0x9E3779B97F4A7C15]),
)
def test_keys_in_arithmetic_progression_do_not_crowd(first: int, step: int) -> None:
    count = 4096
    keys = u64([(first + i * step) % 2**64 for i in range(count)])
    table = SlotTable(count, count)
    table.intern(keys)
    arrays = table.arrays()
    at = {int(key): place for place, (key, slot) in enumerate(arrays.cells) if slot}
    distances = [(at[int(key)] - int(cells.home(arrays, key))) % len(arrays.cells) for key in keys]
    # Ideal hashing at load 1/2 makes it 0.5 on average; a run of all the keys would make it 2048.
    assert sum(distances) / count < 16
