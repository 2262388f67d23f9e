"""Scores of a block as it stands, before it is learned: what the step needs, and progressive validation for free.

Scores are held as powers, exp(s) relative to the block's largest u·v. Then σ(-(s_i - s_j)) is e_j / (e_i + e_j), the
prior is a factor (its odds) instead of a logarithm, and a pair's loss is log(1 + e_j / e_i). Where scores lie too far
apart for that, every pair is computed on its own in double precision.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from saros.core.items import CLICKED, SHOWN, UPDATES, ItemArrays
from saros.core.jit import F32, F64, I32, U8, kernel, line_zeros, merged_kernel
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
    lowest,
    rint,
    store,
    total,
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
_SPREAD_MAX = 1e9  # of the powers in a block, for ratios of them
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
    rate: F32  # [w] of the items
    wide: U8  # [w] 1: a coordinate lies beyond ±16
    u: F32  # [1, d]
    start: I32  # [w, d] rows of the items that have no slot
    odd: I32  # [2] how many have no slot, and how many have a coordinate beyond ±16
    level: F32  # [16] the scores of the virtual negative and the virtual positive
    rival: F32  # [16] and their powers
    scales: F32  # [16, 64] the scale of blocks by P and N, as far as they were needed before
    scaled: F64  # [2] e and ω of `scales`


def scratch(items: int, dim: int) -> Scratch:
    """Return room for blocks of so many items."""
    width = -(-items // LANES) * LANES
    floats: list[F32] = [line_zeros(width, np.float32) for _ in range(7)]
    counters: list[I32] = [line_zeros(width, np.int32) for _ in range(3)]
    others = (
        line_zeros(width, np.float32),
        np.zeros(width, np.uint8),
        line_zeros((1, dim), np.float32),
        line_zeros((width, dim), np.int32),
        np.zeros(2, np.int32),
        line_zeros(LANES, np.float32),
        line_zeros(LANES, np.float32),
        np.zeros((16, 64), np.float32),
        np.full(2, np.nan),
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
def raise_rivals(low: np.float32, high: np.float32, top: np.float32, s: Scratch) -> None:
    """Fill level and rival: what a block's positives and negatives play against beside each other."""
    s.level[0], s.level[1] = low, high
    x = load(s.level, 0, 0) - top
    x = where(x > -_EXP_MAX, x, -_EXP_MAX)
    store(s.rival, 0, 0, exp32(where(x < _EXP_MAX, x, _EXP_MAX)))


@merged_kernel
def raise_powers(
    items: ItemArrays, count: int, prior: float, live: bool, top: np.float32, low: np.float32, s: Scratch
) -> bool:
    """Fill odds and power; True if the block's scores lie close enough together for ratios of powers."""
    p0 = (items.totals[CLICKED] + 1.0) / (items.totals[CLICKED] + items.totals[SHOWN] + 2.0)
    likes, dislikes = np.float32(prior * p0), np.float32(prior * (1.0 - p0))
    least, most = np.float32(np.inf), np.float32(0.0)
    for at in range(0, count, LANES):
        clicked, shown = load(s.clicked, 0, at), load(s.shown, 0, at)
        clicks, views = as_f32(where(clicked > 0, clicked, 0)), as_f32(where(shown > 0, shown, 0))
        odds = (clicks + likes) / (views + dislikes)
        store(s.odds, 0, at, odds)
        x = load(s.dot, 0, at) - top
        power = exp32(where(x > -_EXP_MAX, x, -_EXP_MAX))
        if live:
            power = power * odds
        store(s.power, 0, at, power)
        here = first(count - at)
        least, most = min(least, lowest(where(here, power, np.inf))), max(most, highest(where(here, power, 0.0)))
    return bool(top - low < _EXP_MAX and least > 0.0 and most < least * np.float32(_SPREAD_MAX))


@merged_kernel
def log32(x: Any) -> Any:
    """log(x) of float32 lanes, x from 1e-37 to 1e38, to within a few units in the last place of x or of the answer."""
    # x = m·2^e with m from √½ to √2, so that the polynomial is near its centre.
    bits = bits_as_i32(x)
    e = (bits - 0x3F3504F3) >> 23
    f = bits_as_f32(bits - (e << 23)) - 1.0
    square = f * f
    p = f * 7.0376836292e-2 - 1.1514610310e-1
    p = p * f + 1.1676998740e-1
    p = p * f - 1.2420140846e-1
    p = p * f + 1.4249322787e-1
    p = p * f - 1.6668057665e-1
    p = p * f + 2.0000714765e-1
    p = p * f - 2.4999993993e-1
    p = p * f + 3.3333331174e-1
    tail = as_f32(e) * -2.12194440e-4 - square * 0.5 + f * square * p
    return tail + f + as_f32(e) * 0.693359375


@merged_kernel
def log1p32(x: Any) -> Any:
    """log(1 + x) of float32 lanes, x from 0 to 1e30, to within a few units in the last place."""
    y = x + 1.0
    return log32(y) + (x - (y - 1.0)) / y  # what adding 1 has cut off


@merged_kernel
def mean_scores(negatives: int, count: int, top: np.float32, s: Scratch) -> tuple[float, float]:
    """Return the mean score of the block's negatives and of its positives, from the powers."""
    low, high = 0.0, 0.0
    for at in range(0, count, LANES):
        logs, below = log32(load(s.power, 0, at)), first(negatives - at)
        low += total(where(below, logs, 0.0))
        high += total(where(first(count - at), where(below, 0.0, logs), 0.0))
    return float(top) + low / negatives, float(top) + high / (count - negatives)


@kernel
def mean_scores_wide(negatives: int, count: int, prior: bool, s: Scratch) -> tuple[float, float]:
    """`mean_scores` where scores lie too far apart for powers."""
    low, high = 0.0, 0.0
    for k in range(count):
        score = s.dot[k] + (math.log(s.odds[k]) if prior else 0.0)
        if k < negatives:
            low += score
        else:
            high += score
    return low / negatives, high / (count - negatives)


@merged_kernel
def judge(power: F32, negatives: int, count: int, sums: F64, column: int) -> None:
    """Add a block's mean pair loss, pair accuracy and reciprocal rank (ties count half) to three sums."""
    loss, halves, most = 0.0, 0, 0
    for i in range(negatives, count):
        own, below = power[i], 0
        inverse = np.float32(1.0) / own
        for at in range(0, negatives, LANES):
            others, here = load(power, 0, at), first(negatives - at)
            loss += total(where(here, log1p32(others * inverse), 0.0))
            below += how_many((others < own) & here) + how_many((others <= own) & here)
        halves += below
        most = max(most, below)  # that of the best positive: what is not below it, by halves, is above it
    share = 1.0 / (negatives * (count - negatives))
    sums[column] += loss * share
    sums[column + 1] += 0.5 * halves * share
    sums[column + 2] += 1.0 / (1.0 + negatives - 0.5 * most)


@kernel
def judge_wide(s: Scratch, negatives: int, count: int, prior: bool, sums: F64) -> None:
    """`judge` for scores too far apart for ratios of powers: every pair on its own, in double precision."""
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
