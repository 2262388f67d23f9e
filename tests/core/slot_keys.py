"""Keys that try the slot table, and what must hold of its cells."""

import numpy as np

from saros.core import cells
from saros.core.jit import I32, U64
from saros.core.table import SlotTable


def homed(product: int) -> int:
    """The key whose product (see `cells.home`) is this one: its high bits are the home cell."""
    folded = product * pow(0x9E3779B97F4A7C15, -1, 2**64) % 2**64
    return folded ^ (folded >> 32)


# Keys that a careless home cell or a careless deletion would trip over.
AROUND_THE_END = [homed(product % 2**64) for product in range(-24, 24)]
POOLS = [
    list(range(48)),
    [i << 52 for i in range(48)],
    [0xDEADBEEF << 32 | i for i in range(48)],
    [i << 32 | 7 for i in range(48)],
    AROUND_THE_END,
    [homed(i << 61 | i) for i in range(48)],
]
EVERY_KEY = sorted({key for pool in POOLS for key in pool})


def u64(keys: list[int]) -> U64:
    """Keys as the table takes them."""
    return np.array(keys, np.uint64)


def i32(slots: list[int]) -> I32:
    """Slots as the table takes them."""
    return np.array(slots, np.int32)


def check_cells(table: SlotTable) -> None:
    """Every key stands in one cell, findable from its home; at least half of the cells are empty."""
    arrays = table.arrays()
    count = len(arrays.cells)
    assert count & (count - 1) == 0
    assert count >= 2 * table.capacity
    taken = {at: (int(key), int(slot) - 1) for at, (key, slot) in enumerate(arrays.cells) if slot}
    assert sorted(slot for _, slot in taken.values()) == table.slots().tolist()
    for at, (key, slot) in taken.items():
        assert int(arrays.keys[slot]) == key
        home = int(cells.home(arrays, np.uint64(key)))
        assert all((home + step) % count in taken for step in range((at - home) % count))
    assert not arrays.cells[[at for at in range(count) if at not in taken]].any()
