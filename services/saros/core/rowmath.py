"""Arithmetic on whole rows: the loops in which step and fold spend their time.

Sixteen coordinates at a time; what is left over of a row goes one by one. Sums have one order on every machine.
"""

import numpy as np

from saros.core.jit import F32, I32, merged_kernel
from saros.core.lanes import (
    LANES,
    as_f32,
    as_i32,
    bits_as_f32,
    bits_as_i32,
    first,
    highest,
    how_many,
    load,
    rint,
    spread,
    store,
    total,
    where,
)
from saros.core.rows import ONE

_WIDTH = 4 * LANES
_UNSIGNED = 0x7FFFFFFF
_WIDE, _FAR = 1 << 28, 1 << 30  # what x ^ (x >> 31) is beyond ±16 and ±64
_UP = np.float32(ONE)
DOWN = np.float32(1.0 / ONE)  # from the grid of item rows to numbers


@merged_kernel
def copy_row(target: F32, i: int, source: F32, j: int) -> np.float32:
    """target[i] = source[j]; return the largest |x|, all being finite."""
    dim = target.shape[1]
    whole = dim & -LANES
    most = spread(np.int32(0))
    for at in range(0, whole, LANES):
        x = load(source, j, at)
        store(target, i, at, x)
        # Without the sign, floats are ordered as their bits are.
        bits = bits_as_i32(x) & _UNSIGNED
        most = where(bits > most, bits, most)
    reach = highest(bits_as_f32(most))
    for d in range(whole, dim):
        target[i, d] = source[j, d]
        reach = max(reach, abs(source[j, d]))
    return reach


@merged_kernel
def dot_row(rows: I32, slot: int, u: F32) -> tuple[np.float32, bool]:
    """Return u[0]·rows[slot] (2^24 is 1.0), and whether a coordinate of the row lies beyond ±16."""
    dim = rows.shape[1]
    whole = dim & -LANES
    sums, sizes = spread(np.float32(0.0)), spread(np.int32(0))
    for at in range(0, whole, LANES):
        words = load(rows, slot, at)
        sums = sums + as_f32(words) * load(u, 0, at)
        sizes = sizes | (words ^ (words >> 31))
    dot, beyond = total(sums), how_many(sizes >= _WIDE) > 0
    for d in range(whole, dim):
        word = rows[slot, d]
        dot += np.float32(word) * u[0, d]
        beyond |= word ^ (word >> 31) >= _WIDE
    return dot * DOWN, beyond


@merged_kernel
def add_row(rows: I32, slot: int, u: F32, i: int, coef: np.float32) -> bool:
    """rows[slot] += int32(rint(coef · u[i]·2^24)), one float32 product; True if a coordinate lies beyond ±64.

    |coef · u| must not exceed 64, which the step and the codec see to. To take back, give -coef.
    """
    dim = rows.shape[1]
    whole = dim & -LANES
    sizes, lift = spread(np.int32(0)), coef * _UP  # a power of two: the product rounds as if u had been multiplied
    for at in range(0, whole, LANES):
        words = load(rows, slot, at) + as_i32(rint(load(u, i, at) * lift))
        store(rows, slot, at, words)
        sizes = sizes | (words ^ (words >> 31))
    beyond = how_many(sizes >= _FAR) > 0
    for d in range(whole, dim):
        word = np.int32(rows[slot, d] + np.int32(np.rint(u[i, d] * lift)))
        rows[slot, d] = word
        beyond |= word ^ (word >> 31) >= _FAR
    return beyond


@merged_kernel
def _pull_wide(users: F32, user: int, at: int, rows: I32, slots: I32, begin: int, pulls: F32, count: int) -> None:
    """Pull four times sixteen coordinates, from `at` on: what each item costs beside its row is paid once for all."""
    one, two = load(users, user, at), load(users, user, at + LANES)
    three, four = load(users, user, at + 2 * LANES), load(users, user, at + 3 * LANES)
    for k in range(count):
        slot, pull = slots[begin + k], pulls[k]
        one = one + as_f32(load(rows, slot, at)) * pull
        two = two + as_f32(load(rows, slot, at + LANES)) * pull
        three = three + as_f32(load(rows, slot, at + 2 * LANES)) * pull
        four = four + as_f32(load(rows, slot, at + 3 * LANES)) * pull
    store(users, user, at, one)
    store(users, user, at + LANES, two)
    store(users, user, at + 2 * LANES, three)
    store(users, user, at + 3 * LANES, four)


@merged_kernel
def pull_row(users: F32, user: int, rows: I32, slots: I32, begin: int, pulls: F32, count: int) -> None:
    """users[user] += Σ pulls[k] · rows[slots[begin + k]] over k < count, in order; pulls bring 2^-24 with them."""
    dim = users.shape[1]
    whole, wide = dim & -LANES, dim & -_WIDTH
    for at in range(0, wide, _WIDTH):
        _pull_wide(users, user, at, rows, slots, begin, pulls, count)
    for at in range(wide, whole, LANES):
        x = load(users, user, at)
        for k in range(count):
            x = x + as_f32(load(rows, slots[begin + k], at)) * pulls[k]
        store(users, user, at, x)
    for d in range(whole, dim):
        y = users[user, d]
        for k in range(count):
            y += np.float32(rows[slots[begin + k], d]) * pulls[k]
        users[user, d] = y


@merged_kernel
def lies_within(rows: F32, i: int, limit: np.float32) -> bool:
    """True if all of rows[i] lies within ±limit; NaN does not."""
    dim = rows.shape[1]
    whole = dim & -LANES
    inside = first(LANES)
    for at in range(0, whole, LANES):
        x = load(rows, i, at)
        inside = inside & (x <= limit) & (x >= -limit)
    lies = how_many(inside) == LANES
    for d in range(whole, dim):
        lies &= abs(rows[i, d]) <= limit
    return lies
