"""saros.core.tiles: dot products of codes, sixteen rows at a time, are those of plain integers."""

import numpy as np
import pytest

from saros.core.jit import I8, I32, kernel, line_zeros
from saros.core.lanes import spread, store
from saros.core.tiles import add_pairs, bits, lowest_bit


@kernel
def dot_tiles(codes: I8, pairs: I32, dots: I32) -> None:
    for tile in range(codes.shape[0]):
        sums = spread(np.int32(0))
        for p in range(pairs.shape[0]):
            sums = add_pairs(sums, codes, tile, 32 * p, pairs[p])
        store(dots, 0, 16 * tile, sums)


@kernel
def look_at_bits(numbers: I32, found: I32) -> None:
    from_lanes = spread(np.int32(0))
    for k in range(numbers.shape[0]):
        found[k] = lowest_bit(numbers[k]) + 100 * bits(from_lanes < numbers[k])


@pytest.mark.parametrize("dim", [2, 8, 64, 512])
@pytest.mark.parametrize("extreme", [False, True])
def test_dots_are_those_of_integers(dim: int, extreme: bool) -> None:
    rng, tiles = np.random.default_rng(dim), 3
    top = min(32767, (2**31 - 1) // (127 * dim))
    rows, u = rng.integers(-127, 128, (16 * tiles, dim)), rng.integers(-top, top + 1, dim)
    if extreme:
        rows, u = rng.choice([-127, 127], rows.shape), np.full(dim, -top)
        rows[0], rows[1] = 127, -127  # the largest sums there can be
    codes = line_zeros((tiles, 16 * dim), np.int8)
    codes[:] = rows.reshape(tiles, 16, dim // 2, 2).transpose(0, 2, 1, 3).reshape(tiles, -1)
    dots = np.zeros(16 * tiles, np.int32)
    dot_tiles(codes, u.astype(np.int16).view(np.int32), dots)
    assert dots.tolist() == (rows @ u).tolist()


def test_bits_of_lanes_and_the_lowest_of_a_number() -> None:
    numbers = np.array([1, 2, 6, 1 << 15, -(1 << 10)], np.int32)
    found = np.zeros(5, np.int32)
    look_at_bits(numbers, found)
    assert found.tolist() == [6553500, 6553501, 6553501, 6553515, 10]
