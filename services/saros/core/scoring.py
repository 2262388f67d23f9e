"""Scores of a block as it stands, before it is learned: what the step needs, and progressive validation for free.

Scores are held as powers, exp(s) relative to the block's largest u·v. Then σ(-(s_i - s_j)) is e_j / (e_i + e_j), the
prior is a factor (its odds) instead of a logarithm, and the loss of many pairs is the logarithm of one product. Where
scores lie too far apart for that, every pair is computed on its own in double precision.
"""

import math
from typing import NamedTuple

import numpy as np

from saros.core.items import CLICKED, SHOWN, ItemArrays
from saros.core.jit import F32, F64, I32, U8, as_int, fast_kernel, kernel
from saros.core.rows import ONE, RowRules, start_item
from saros.core.settle import Blocks

# Columns of the progressive sums; the last three are those of the item prior alone.
BLOCKS, LOSS, ACCURACY, RECIPROCAL_RANK, BASE_LOSS, BASE_ACCURACY, BASE_RECIPROCAL_RANK = 0, 1, 2, 3, 4, 5, 6
PROGRESSIVE = (
    "blocks", "loss", "accuracy", "reciprocal_rank", "base_loss", "base_accuracy", "base_reciprocal_rank",
)  # fmt: skip

_EXP_MAX = 80.0  # exp32 takes numbers up to it, and down to its negative
_SAFE_BITS = 1 << 28  # rows whose x ^ (x >> 31) stays below lie within ±16
_SPREAD_MAX = 1e9  # of the powers in a block, for products of ratios
_PRODUCT_MAX = 1e200  # one more factor still fits a double


@kernel
def exp32(x: np.float32) -> np.float32:
    """exp(x) for |x| <= 80 in float32, to within one unit in the last place: libm's would be most of the step."""
    n = np.rint(x * np.float32(1.4426950408889634))
    r = x - n * np.float32(0.693359375)
    r = r - n * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    return p * np.int32((np.int32(n) + 127) << 23).view(np.float32)


class Scratch(NamedTuple):
    """Room for one block of at most w items."""

    v: F32  # [w, d] item rows
    dot: F32  # [w] u·v
    odds: F32  # [w] exp of the prior
    power: F32  # [w] exp of the score, relative to the block's largest u·v
    a: F32  # [w]
    wide: U8  # [w] 1: a coordinate lies beyond ±16
    u: F32  # [d]
    start: I32  # [1, d]


def scratch(items: int, dim: int) -> Scratch:
    """Return room for blocks of so many items."""
    return Scratch(
        v=np.zeros((items, dim), np.float32),
        dot=np.zeros(items, np.float32),
        odds=np.zeros(items, np.float32),
        power=np.zeros(items, np.float32),
        a=np.zeros(items, np.float32),
        wide=np.zeros(items, np.uint8),
        u=np.zeros(dim, np.float32),
        start=np.zeros((1, dim), np.int32),
    )


@fast_kernel
def _dot(row: I32, u: F32, v: F32) -> tuple[np.float32, bool]:
    """Write an int32 row as float32 to v; return u·v and whether a coordinate lies beyond ±16."""
    total, bits = np.float32(0.0), np.int32(0)
    for k in range(u.shape[0]):
        word = row[k]
        value = np.float32(word) * np.float32(1.0 / ONE)
        v[k] = value
        total += value * u[k]
        bits |= word ^ (word >> 31)
    return total, as_int(bits) >= _SAFE_BITS


@fast_kernel
def gather(items: ItemArrays, blocks: Blocks, b: int, rows: RowRules, prior: float, s: Scratch) -> int:
    """Fill v, dot and odds for block b; return its number of items. Items not in the table count as new."""
    p0 = (items.totals[CLICKED] + 1.0) / (items.totals[CLICKED] + items.totals[SHOWN] + 2.0)
    first, count = blocks.start[b], blocks.negatives[b] + blocks.positives[b]
    for k in range(count):
        slot = blocks.slots[first + k]
        clicked, shown = 0, 0
        if slot < 0:
            start_item(s.start, 0, blocks.items[first + k], rows)
            s.dot[k], s.wide[k] = _dot(s.start[0], s.u, s.v[k])
        else:
            s.dot[k], s.wide[k] = _dot(items.rows[slot], s.u, s.v[k])
            clicked, shown = max(0, items.counters[slot, CLICKED]), max(0, items.counters[slot, SHOWN])
        s.odds[k] = (clicked + prior * p0) / (shown + prior * (1.0 - p0))
    return count


@kernel
def raise_powers(s: Scratch, count: int, prior: bool) -> bool:
    """Fill power; True if the block's scores lie close enough together for products of ratios."""
    top, low = s.dot[0], s.dot[0]
    for k in range(1, count):
        top, low = max(top, s.dot[k]), min(low, s.dot[k])
    for k in range(count):
        s.power[k] = exp32(max(np.float32(-_EXP_MAX), s.dot[k] - top))
        if prior:
            s.power[k] *= s.odds[k]
    least, most = s.power[0], s.power[0]
    for k in range(1, count):
        least, most = min(least, s.power[k]), max(most, s.power[k])
    return top - low < _EXP_MAX and least > 0.0 and most < least * np.float32(_SPREAD_MAX)


@kernel
def judge(power: F32, negatives: int, count: int, sums: F64, column: int) -> None:
    """Add a block's mean pair loss, pair accuracy and reciprocal rank (ties count half) to three sums."""
    loss, right, best = 0.0, 0.0, np.float32(0.0)
    for i in range(negatives, count):
        best = max(best, power[i])
        inverse, product = 1.0 / power[i], 1.0
        for j in range(negatives):
            product *= 1.0 + power[j] * inverse
            right += 1.0 if power[i] > power[j] else (0.5 if power[i] == power[j] else 0.0)
            if product > _PRODUCT_MAX:
                loss, product = loss + math.log(product), 1.0
        loss += math.log(product)
    above = 0.0
    for j in range(negatives):
        above += 1.0 if power[j] > best else (0.5 if power[j] == best else 0.0)
    pairs = negatives * (count - negatives)
    sums[column] += loss / pairs
    sums[column + 1] += right / pairs
    sums[column + 2] += 1.0 / (1.0 + above)


@kernel
def judge_wide(s: Scratch, negatives: int, count: int, prior: bool, sums: F64) -> None:
    """`judge` for scores too far apart for products of ratios: every pair on its own, in double precision."""
    loss, right, top, above = 0.0, 0.0, -np.inf, 0.0
    for i in range(negatives, count):
        score = s.dot[i] + (math.log(s.odds[i]) if prior else 0.0)
        top = max(top, score)
        for j in range(negatives):
            x = score - s.dot[j] - (math.log(s.odds[j]) if prior else 0.0)
            loss += math.log1p(math.exp(-abs(x))) + max(0.0, -x)
            right += 1.0 if x > 0 else (0.5 if x == 0 else 0.0)
    for j in range(negatives):
        x = top - s.dot[j] - (math.log(s.odds[j]) if prior else 0.0)
        above += 1.0 if x < 0 else (0.5 if x == 0 else 0.0)
    pairs = negatives * (count - negatives)
    sums[LOSS] += loss / pairs
    sums[ACCURACY] += right / pairs
    sums[RECIPROCAL_RANK] += 1.0 / (1.0 + above)
