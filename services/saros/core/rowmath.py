"""Arithmetic on whole rows: the loops in which step and fold spend their time.

Sixteen coordinates at a time; what is left over of a row goes one by one. Sums have one order on every machine.
"""

import numpy as np

from saros.core.jit import F32, I32, kernel, merged_kernel
from saros.core.lanes import (
    LANES,
    as_f32,
    bits_as_f32,
    bits_as_i32,
    first,
    highest,
    how_many,
    load,
    nearest,
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
def square_row(rows: F32, i: int) -> np.float32:
    """Return the sum of the squares of rows[i]."""
    dim = rows.shape[1]
    whole = dim & -LANES
    sums = spread(np.float32(0.0))
    for at in range(0, whole, LANES):
        x = load(rows, i, at)
        sums = sums + x * x
    square = total(sums)
    for d in range(whole, dim):
        square += rows[i, d] * rows[i, d]
    return square


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
        words = load(rows, slot, at) + nearest(load(u, i, at) * lift)
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
def _learn_wide(
    users: F32, user: int, u: F32, at: int, rows: I32, slots: I32, begin: int, pulls: F32, coefs: F32, count: int
) -> bool:
    """`learn_rows` for four times sixteen coordinates, from `at` on: all that repeats stays in registers."""
    two, three, four = at + LANES, at + 2 * LANES, at + 3 * LANES
    x1, x2, x3, x4 = load(users, user, at), load(users, user, two), load(users, user, three), load(users, user, four)
    u1, u2, u3, u4 = load(u, 0, at), load(u, 0, two), load(u, 0, three), load(u, 0, four)
    sizes = spread(np.int32(0))
    for k in range(count):
        slot, pull, lift = slots[begin + k], pulls[k], coefs[k] * _UP
        w1, w2, w3, w4 = load(rows, slot, at), load(rows, slot, two), load(rows, slot, three), load(rows, slot, four)
        x1, x2 = x1 + as_f32(w1) * pull, x2 + as_f32(w2) * pull
        x3, x4 = x3 + as_f32(w3) * pull, x4 + as_f32(w4) * pull
        w1, w2 = w1 + nearest(u1 * lift), w2 + nearest(u2 * lift)
        w3, w4 = w3 + nearest(u3 * lift), w4 + nearest(u4 * lift)
        store(rows, slot, at, w1)
        store(rows, slot, two, w2)
        store(rows, slot, three, w3)
        store(rows, slot, four, w4)
        sizes = sizes | (w1 ^ (w1 >> 31)) | (w2 ^ (w2 >> 31)) | (w3 ^ (w3 >> 31)) | (w4 ^ (w4 >> 31))
    store(users, user, at, x1)
    store(users, user, two, x2)
    store(users, user, three, x3)
    store(users, user, four, x4)
    return how_many(sizes >= _FAR) > 0


@merged_kernel
def learn_rows(
    users: F32, user: int, u: F32, rows: I32, slots: I32, begin: int, pulls: F32, coefs: F32, count: int
) -> bool:
    """`pull_row` of a user and `add_row` of each item in one go, u[0] being the user's row as it was.

    True if a coordinate of an item now lies beyond ±64. The items are all different.
    """
    dim = users.shape[1]
    whole, wide, beyond = dim & -LANES, dim & -_WIDTH, False
    for at in range(0, wide, _WIDTH):
        beyond |= _learn_wide(users, user, u, at, rows, slots, begin, pulls, coefs, count)
    for at in range(wide, whole, LANES):
        x, own, sizes = load(users, user, at), load(u, 0, at), spread(np.int32(0))
        for k in range(count):
            slot = slots[begin + k]
            words = load(rows, slot, at)
            x = x + as_f32(words) * pulls[k]
            words = words + nearest(own * (coefs[k] * _UP))
            store(rows, slot, at, words)
            sizes = sizes | (words ^ (words >> 31))
        store(users, user, at, x)
        beyond |= how_many(sizes >= _FAR) > 0
    for d in range(whole, dim):
        y = users[user, d]
        for k in range(count):
            slot = slots[begin + k]
            y += np.float32(rows[slot, d]) * pulls[k]
            word = np.int32(rows[slot, d] + np.int32(np.rint(u[0, d] * (coefs[k] * _UP))))
            rows[slot, d] = word
            beyond |= bool(word ^ (word >> 31) >= _FAR)
        users[user, d] = y
    return beyond


@kernel
def count_far(rows: I32, slots: I32, begin: int, count: int) -> int:
    """Return how many of these rows have a coordinate beyond ±64."""
    far = 0
    for k in range(begin, begin + count):
        beyond = False
        for d in range(rows.shape[1]):
            word = rows[slots[k], d]
            beyond |= word ^ (word >> 31) >= _FAR
        far += beyond
    return far


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
