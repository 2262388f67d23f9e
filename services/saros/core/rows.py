"""Where rows start: a pure function of (seed, key), by integer arithmetic only, the same on every machine.

Rows live on a grid of 2^-24. A normal deviate is the sum of twelve 16-bit uniforms taken from splitmix64 (its standard
deviation is 2^16 to ten digits), so no library's logarithm or cosine is involved.
"""

import math
from typing import NamedTuple

import numpy as np

from saros.core.ids import splitmix64
from saros.core.jit import F32, I32, as_int, kernel

SCALE_BITS = 24
ONE = 1 << SCALE_BITS  # the fixed-point 1.0
_MEAN_12 = 12 * 65535 // 2
_LANE = np.uint64(0xFFFF)


class RowRules(NamedTuple):
    """How new rows look; the scales are standard deviations on the grid."""

    dim: int
    seed: int
    item_scale: int
    user_scale: int
    user_start: int  # coordinate 0 of a new user; it makes coordinate 0 of an item act as a bias


def row_rules(dim: int, seed: int, *, item_scale: float, user_scale: float, user_start: float) -> RowRules:
    """Put the scales onto the grid."""
    scales = [item_scale, user_scale, user_start]
    if dim < 1 or not 0 <= seed < 2**63 or not all(math.isfinite(x) and 0 <= x <= 8 for x in scales):
        raise ValueError("rows need a dimension of 1 or more, a seed from 0 to 2^63 - 1 and scales between 0 and 8")
    return RowRules(dim, seed, *(round(x * ONE) for x in scales))


def live_rows(dim: int, seed: int = 0) -> RowRules:
    """Rows of the live recipe: items N(0, (0.25/√d)²), users (0.05, 0, …, 0)."""
    return row_rules(dim, seed, item_scale=0.25 / math.sqrt(dim), user_scale=0.0, user_start=0.05)


def paper_rows(dim: int, seed: int = 0) -> RowRules:
    """Rows for the paper's plain step, bias style: users (1, N(0, 0.1²), …), items (0, N(0, 0.1²), …)."""
    return row_rules(dim, seed, item_scale=0.1, user_scale=0.1, user_start=1.0)


@kernel
def stream_of(seed: int, key: np.uint64) -> np.uint64:
    """Return the start of the random stream of one row."""
    return splitmix64(splitmix64(np.uint64(seed)) ^ key)


@kernel
def noise(stream: np.uint64, k: int, scale: int) -> int:
    """Return coordinate k of a row: a normal deviate times scale, on the grid."""
    total = -_MEAN_12
    for draw in range(3):
        bits = splitmix64(stream + np.uint64(3 * k + draw))
        for lane in range(4):
            total += as_int((bits >> np.uint64(16 * lane)) & _LANE)
    return (total * scale + 32768) >> 16


@kernel
def start_item(rows: I32, slot: int, key: np.uint64, rules: RowRules) -> None:
    """Set rows[slot] (int32 fixed point) to an item's start: coordinate 0 is 0, the others noise."""
    stream = stream_of(rules.seed, key)
    rows[slot, 0] = 0
    for k in range(1, rules.dim):
        rows[slot, k] = noise(stream, k, rules.item_scale)


@kernel
def start_user(rows: F32, slot: int, key: np.uint64, rules: RowRules) -> None:
    """Set rows[slot] (float32) to a user's start."""
    stream = stream_of(rules.seed, ~key)
    rows[slot, 0] = rules.user_start / ONE
    for k in range(1, rules.dim):
        rows[slot, k] = noise(stream, k, rules.user_scale) / ONE if rules.user_scale > 0 else 0.0
