"""Scores of a block as it stands, before it is learned: what the step needs, and progressive validation for free.

Scores are held as powers, exp(s) relative to the block's largest u·v. Then σ(-(s_i - s_j)) is e_j / (e_i + e_j), the
prior is a factor (its odds) instead of a logarithm, and the loss of many pairs is the logarithm of one product. Where
scores lie too far apart for that, every pair is computed on its own in double precision.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from saros.core.items import CLICKED, SHOWN, UPDATES, ItemArrays
from saros.core.jit import F32, F64, I32, U8, kernel, line_zeros, merged_kernel
from saros.core.lanes import (
    LANES,
    as_f32,
    as_f64,
    as_i32,
    bits_as_f32,
    first,
    highest,
    how_many,
    load,
    lowest,
    product,
    rint,
    store,
    where,
)
from saros.core.rowmath import dot_row
from saros.core.rows import RowRules, start_item
from saros.core.settle import Blocks

# Columns of the progressive sums; the last three are those of the item prior alone.
BLOCKS, LOSS, ACCURACY, RECIPROCAL_RANK, BASE_LOSS, BASE_ACCURACY, BASE_RECIPROCAL_RANK = 0, 1, 2, 3, 4, 5, 6
PROGRESSIVE = (
    "blocks", "loss", "accuracy", "reciprocal_rank", "base_loss", "base_accuracy", "base_reciprocal_rank",
)  # fmt: skip

_EXP_MAX = 80.0  # exp32 takes numbers up to it, and down to its negative
_SPREAD_MAX = 1e9  # of the powers in a block, for products of ratios
_PRODUCT_MAX = 1e300
_SCALES = 1024
UNKNOWN, WIDE = 0, 1  # places in `Scratch.odd`
_WEIGHT_UNIT = np.float32(1.0 / 4096.0)


@merged_kernel
def exp32(x: Any) -> Any:
    """exp(x) of float32 lanes, |x| <= 80, to within one unit in the last place: libm's would be most of the step."""
    n = rint(x * 1.4426950408889634)
    r = x - n * 0.693359375
    r = r - n * -2.12194440e-4
    p = r * 1.9875691500e-4 + 1.3981999507e-3
    p = p * r + 8.3334519073e-3
    p = p * r + 4.1665795894e-2
    p = p * r + 1.6666665459e-1
    p = p * r + 5.0000001201e-1
    p = p * r * r + r + 1.0
    return p * bits_as_f32((as_i32(n) + 127) << 23)


class Scratch(NamedTuple):
    """Room for one block of at most w items, w being a multiple of 16; what stands beyond the block means nothing."""

    dot: F32  # [w] u·v
    odds: F32  # [w] exp of the prior
    power: F32  # [w] exp of the score, relative to the block's largest u·v
    weight: F32  # [w]
    a: F32  # [w]
    coef: F32  # [w]
    pull: F32  # [w]
    clicked: I32  # [w] counters of the items, as they were before the block
    shown: I32  # [w]
    updates: I32  # [w]
    rate: F64  # [w] of the items
    wide: U8  # [w] 1: a coordinate lies beyond ±16
    u: F32  # [1, d]
    start: I32  # [w, d] rows of the items that have no slot
    odd: I32  # [2] how many have no slot, and how many have a coordinate beyond ±16
    scales: F32  # (P·N)^-e by P·N, as far as they were needed before
    exponent: F64  # [1] e of `scales`


def scratch(items: int, dim: int) -> Scratch:
    """Return room for blocks of so many items."""
    width = -(-items // LANES) * LANES
    floats: list[F32] = [line_zeros(width, np.float32) for _ in range(7)]
    counters: list[I32] = [line_zeros(width, np.int32) for _ in range(3)]
    others = (
        line_zeros(width, np.float64),
        np.zeros(width, np.uint8),
        line_zeros((1, dim), np.float32),
        line_zeros((width, dim), np.int32),
        np.zeros(2, np.int32),
        np.zeros(_SCALES, np.float32),
        np.full(1, np.nan),
    )
    return Scratch._make([*floats, *counters, *others])


@merged_kernel
def gather(items: ItemArrays, blocks: Blocks, b: int, rows: RowRules, s: Scratch) -> tuple[np.float32, np.float32]:
    """Fill dot, weight and counters for block b; return the highest and lowest dot. Unknown items count as new."""
    start = blocks.start[b]
    top, low = np.float32(-np.inf), np.float32(np.inf)
    unknown, beyond = 0, 0
    for k in range(blocks.negatives[b] + blocks.positives[b]):
        slot = blocks.slots[start + k]
        if slot < 0:
            start_item(s.start, k, blocks.items[start + k], rows)
            dot, wide = dot_row(s.start, k, s.u)
            unknown += 1
            s.clicked[k], s.shown[k] = 0, 0
        else:
            dot, wide = dot_row(items.rows, slot, s.u)
            s.clicked[k], s.shown[k] = items.counters[slot, CLICKED], items.counters[slot, SHOWN]
            s.updates[k] = items.counters[slot, UPDATES]
        s.dot[k], s.wide[k] = dot, wide
        beyond += wide
        s.weight[k] = np.float32(blocks.weights[start + k]) * _WEIGHT_UNIT
        top = dot if dot > top else top
        low = dot if dot < low else low
    s.odd[UNKNOWN], s.odd[WIDE] = unknown, beyond
    return top, low


@merged_kernel
def raise_powers(
    items: ItemArrays, count: int, prior: float, live: bool, top: np.float32, low: np.float32, s: Scratch
) -> bool:
    """Fill odds and power; True if the block's scores lie close enough together for products of ratios."""
    p0 = (items.totals[CLICKED] + 1.0) / (items.totals[CLICKED] + items.totals[SHOWN] + 2.0)
    least, most = np.float32(np.inf), np.float32(0.0)
    for at in range(0, count, LANES):
        clicked, shown = load(s.clicked, 0, at), load(s.shown, 0, at)
        clicks, views = as_f64(where(clicked > 0, clicked, 0)), as_f64(where(shown > 0, shown, 0))
        odds = as_f32((clicks + prior * p0) / (views + prior * (1.0 - p0)))
        store(s.odds, 0, at, odds)
        x = load(s.dot, 0, at) - top
        power = exp32(where(x > -_EXP_MAX, x, -_EXP_MAX))
        if live:
            power = power * odds
        store(s.power, 0, at, power)
        here = first(count - at)
        least, most = min(least, lowest(where(here, power, np.inf))), max(most, highest(where(here, power, 0.0)))
    return bool(top - low < _EXP_MAX and least > 0.0 and most < least * np.float32(_SPREAD_MAX))


@kernel
def _log_each(power: F32, own: np.float32, begin: int, end: int) -> float:
    """Return Σ log(1 + power[j] / own) where their product would not fit a double."""
    loss = 0.0
    for j in range(begin, end):
        loss += math.log1p(np.float64(power[j]) / own)
    return loss


@merged_kernel
def judge(power: F32, negatives: int, count: int, sums: F64, column: int) -> None:
    """Add a block's mean pair loss, pair accuracy and reciprocal rank (ties count half) to three sums."""
    loss, halves, above, best = 0.0, 0, 0, np.float32(0.0)
    for i in range(negatives, count):
        own = power[i]
        best = max(best, own)
        inverse = 1.0 / own
        for at in range(0, negatives, LANES):
            others, here = load(power, 0, at), first(negatives - at)
            ratios = product(where(here, as_f64(others) * inverse + 1.0, 1.0))
            if ratios < _PRODUCT_MAX:
                loss += math.log(ratios)
            else:
                loss += _log_each(power, own, at, min(at + LANES, negatives))
            halves += how_many((others < own) & here) + how_many((others <= own) & here)
    for at in range(0, negatives, LANES):
        others, here = load(power, 0, at), first(negatives - at)
        above += how_many((others > best) & here) + how_many((others >= best) & here)
    pairs = negatives * (count - negatives)
    sums[column] += loss / pairs
    sums[column + 1] += 0.5 * halves / pairs
    sums[column + 2] += 1.0 / (1.0 + 0.5 * above)


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
