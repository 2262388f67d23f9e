"""The step: one SGD step per block on the pairwise ranking loss, a whole micro-batch per call.

For a block with user row u, positives i and negatives j the gradient on every item row is a scalar times u, so a block
is (u, items, one coefficient each). With margins x_ij = s_i - s_j and weights w:

    g_ij = (P·N)^-e · w_i·w_j · σ(-x_ij)        a_i = Σ_j g_ij        a_j = -Σ_i g_ij
    v   += coef·u,  coef = rate_item · a        u   += rate_user · Σ a·v   (with the old v)

`live` (the recipe): s = u·v + π with the item prior π = ln[(C + α·p0) / (S + α·(1 - p0))] from the counters before the
block, e = 0.75, rates that fall with the item's updates and the user's moves. `paper` is the exact gradient of the
block's mean logistic loss (the paper's Eq. 3 at μ = 0): s = u·v, e = 1, constant rates.

A coefficient is cut where it would move a coordinate of an item beyond ±32; user rows are clamped there. Nothing that
leaves this module is NaN or infinite, whatever the rates.
"""

import math
from typing import NamedTuple

import numpy as np

from saros.core import counts as c
from saros.core.fold import SignedBlocks, fold_counters, fold_row
from saros.core.items import CLICKED, SHOWN, UPDATES, ItemArrays
from saros.core.jit import F32, F64, I64, fast_kernel, kernel
from saros.core.ledger import LedgerArrays
from saros.core.rows import ONE, RowRules, start_item, start_user
from saros.core.settle import ADD, KEEP, MOVE, RESET, SCORE, STORED, Blocks
from saros.core.users import MOVED, UserArrays

LIVE, PAPER = 0, 1
KINDS = {"live": LIVE, "paper": PAPER}

# Columns of the progressive sums; the last three are those of the item prior alone.
BLOCKS, LOSS, ACCURACY, RECIPROCAL_RANK, BASE_LOSS, BASE_ACCURACY, BASE_RECIPROCAL_RANK = 0, 1, 2, 3, 4, 5, 6
PROGRESSIVE = (
    "blocks", "loss", "accuracy", "reciprocal_rank", "base_loss", "base_accuracy", "base_reciprocal_rank",
)  # fmt: skip

_LIMIT = 32.0  # the step moves no coordinate beyond it
_SAFE_BITS = 1 << 28  # rows whose x ^ (x >> 31) stays below lie within ±16
_COEF_MAX = 1e9
_SPREAD_MAX = 1e9  # of exp(score) within a block; beyond it every pair is computed on its own
_PRODUCT_MAX = 1e200  # one more factor still fits a double


class StepRules(NamedTuple):
    """Rates and shapes of the step; `lr_*` at the start, falling as 1/sqrt(1 + n/decay_*); decay 0: constant."""

    kind: int
    lr_user: float
    lr_item: float
    decay_user: float
    decay_item: float
    exponent: float
    prior: float  # α; the weight of p0 in an item's prior


def live_step(
    lr_user: float = 0.5,
    lr_item: float = 0.25,
    decay_user: float = 30.0,
    decay_item: float = 100.0,
    exponent: float = 0.75,
    prior: float = 4.0,
) -> StepRules:
    """Return the live recipe."""
    return _checked(StepRules(LIVE, lr_user, lr_item, decay_user, decay_item, exponent, prior))


def paper_step(lr: float = 0.2) -> StepRules:
    """Return the paper's plain step; the prior serves the baseline only."""
    return _checked(StepRules(PAPER, lr, lr, 0.0, 0.0, 1.0, 4.0))


def _checked(rules: StepRules) -> StepRules:
    """Raise ValueError unless every number is finite and of the right sign."""
    if not all(math.isfinite(x) and x >= 0 for x in rules[1:]) or rules.prior <= 0:
        raise ValueError("step rates, decays and the exponent must be finite and not negative, the prior above 0")
    return rules


@kernel
def exp32(x: np.float32) -> np.float32:
    """exp(x) for -80 <= x <= 80 in float32, to within 2 units in the last place: libm's would be most of the step."""
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
    wide: np.ndarray  # bool [w]: a coordinate lies beyond ±16
    u: F32  # [d]
    start: np.ndarray  # int32 [1, d]


def scratch(items: int, dim: int) -> Scratch:
    """Return room for blocks of so many items."""
    return Scratch(
        np.zeros((items, dim), np.float32),
        *(np.zeros(items, np.float32) for _ in range(4)),
        np.zeros(items, np.bool_),
        np.zeros(dim, np.float32),
        np.zeros((1, dim), np.int32),
    )


@fast_kernel
def _dot(row: np.ndarray, u: F32, v: F32) -> tuple[np.float32, bool]:
    """Write an int32 row as float32 to v; return u·v and whether a coordinate lies beyond ±16."""
    total, bits = np.float32(0.0), np.int32(0)
    for k in range(u.shape[0]):
        word = row[k]
        value = np.float32(word) * np.float32(1.0 / ONE)
        v[k] = value
        total += value * u[k]
        bits |= word ^ (word >> 31)
    return total, bits >= _SAFE_BITS


@fast_kernel
def _gather(items: ItemArrays, blocks: Blocks, b: int, rows: RowRules, rules: StepRules, s: Scratch) -> int:
    """Fill v, dot and odds for block b; return its number of items. Items not in the table count as new."""
    prior = rules.prior
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
def _spread(power: F32, count: int) -> bool:
    """True if the block's values lie close enough together for products of ratios."""
    low, high = power[0], power[0]
    for k in range(1, count):
        low, high = min(low, power[k]), max(high, power[k])
    return low > 0.0 and high < low * np.float32(_SPREAD_MAX)


@kernel
def _judge(power: F32, negatives: int, count: int, sums: F64, column: int) -> None:
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
def _judge_wide(s: Scratch, negatives: int, count: int, prior: bool, sums: F64) -> None:
    """`_judge` for scores too far apart for products of ratios: every pair on its own, in double precision."""
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


@kernel
def _pair(s: Scratch, i: int, j: int, close: bool, prior: bool) -> np.float32:
    """σ(-(s_i - s_j))."""
    if close:
        return s.power[j] / (s.power[i] + s.power[j])
    x = np.float64(s.dot[i]) - s.dot[j]
    if prior:
        x += math.log(s.odds[i]) - math.log(s.odds[j])
    return np.float32(1.0 / (1.0 + math.exp(min(x, 700.0))))


@kernel
def _coefficients(blocks: Blocks, b: int, rules: StepRules, close: bool, s: Scratch) -> None:
    """Fill a: a_i = Σ_j g_ij for positives, a_j = -Σ_i g_ij for negatives."""
    first, negatives = blocks.start[b], blocks.negatives[b]
    count = negatives + blocks.positives[b]
    scale = np.float32((negatives * blocks.positives[b]) ** -rules.exponent)
    for j in range(negatives):
        s.a[j] = 0.0
    for i in range(negatives, count):
        total = np.float32(0.0)
        weight = scale * np.float32(blocks.weights[first + i] / 4096.0)
        for j in range(negatives):
            g = weight * np.float32(blocks.weights[first + j] / 4096.0) * _pair(s, i, j, close, rules.kind == LIVE)
            total += g
            s.a[j] -= g
        s.a[i] = total


@kernel
def _cut(row: np.ndarray, u: F32, coef: np.float32) -> np.float32:
    """Shrink a coefficient until it moves no coordinate of an int32 row beyond ±32 (0 where nothing else is left)."""
    limit = np.int64(_LIMIT * ONE)
    share = 1.0
    for k in range(u.shape[0]):
        step = np.float64(coef) * u[k] * ONE
        room = max(0, limit - row[k]) if step > 0 else max(0, limit + row[k])
        if abs(step) > room:
            share = min(share, room / abs(step))
    coef = np.float32(coef * share)
    for _ in range(64):
        fits = True
        for k in range(u.shape[0]):
            moved = row[k] + np.rint(np.float64(np.float32(coef * (u[k] * np.float32(ONE)))))
            fits &= abs(moved) <= limit or abs(moved) <= abs(np.int64(row[k]))
        if fits:
            return coef
        coef = np.float32(coef * np.float32(0.75))
    return np.float32(0.0)


@kernel
def _add(items: ItemArrays, blocks: Blocks, signed: SignedBlocks, b: int, rules: StepRules, s: Scratch, counts: I64) -> None:
    """Compute the coefficients of block b, keep them, and fold it in with +1."""
    first, d = blocks.start[b], s.u.shape[0]
    reach = np.float32(0.0)
    for k in range(d):
        reach = max(reach, abs(s.u[k]))
        blocks.rows[b, k] = s.u[k]
    for k in range(blocks.negatives[b] + blocks.positives[b]):
        slot = blocks.slots[first + k]
        rate = rules.lr_item
        if rules.decay_item > 0:
            rate /= math.sqrt(1.0 + max(0, items.counters[slot, UPDATES]) / rules.decay_item)
        coef = np.float32(max(-_COEF_MAX, min(_COEF_MAX, rate * s.a[k])))
        if not np.isfinite(coef):
            coef = np.float32(0.0)
            counts[c.NON_FINITE] += 1
        if s.wide[k] or abs(coef) * reach >= 16.0:
            cut = _cut(items.rows[slot], s.u, coef)
            counts[c.CLAMPED] += cut != coef
            coef = cut
        blocks.coefs[first + k] = coef
        counts[c.FAR] += fold_row(items.rows, slot, coef, s.u, 1)
    fold_counters(items, signed, b, 1)


@fast_kernel
def _move(users: UserArrays, user: int, count: int, rules: StepRules, s: Scratch, counts: I64) -> None:
    """u += rate · Σ a·v, each coordinate within ±32."""
    rate = rules.lr_user
    if rules.decay_user > 0:
        rate /= math.sqrt(1.0 + users.gate[user, MOVED] / rules.decay_user)
    rate = min(rate, _COEF_MAX)
    row = users.rows[user]
    for k in range(count):
        pull = np.float32(rate * s.a[k])
        for d in range(row.shape[0]):
            row[d] += pull * s.v[k, d]
    for d in range(row.shape[0]):
        if not np.isfinite(row[d]):
            row[d] = s.u[d]
            counts[c.NON_FINITE] += 1
        elif abs(row[d]) > _LIMIT:
            row[d] = _LIMIT if row[d] > 0 else -_LIMIT
            counts[c.CLAMPED] += 1
    users.gate[user, MOVED] += 1


@kernel
def _learn(
    users: UserArrays,
    items: ItemArrays,
    ledger: LedgerArrays,
    blocks: Blocks,
    signed: SignedBlocks,
    b: int,
    rules: StepRules,
    rows: RowRules,
    s: Scratch,
    progressive: F64,
    counts: I64,
) -> None:
    """Score, add and move for block b, as its flags say."""
    user, flags, entry = blocks.user[b], blocks.flags[b], blocks.entry[b]
    for k in range(s.u.shape[0]):
        s.u[k] = ledger.rows[entry, k] if flags & STORED else users.rows[user, k]
    if entry >= 0 and not flags & STORED:
        for k in range(s.u.shape[0]):
            ledger.rows[entry, k] = s.u[k]
    count = _gather(items, blocks, b, rows, rules, s)
    top = s.dot[0]
    for k in range(1, count):
        top = max(top, s.dot[k])
    for k in range(count):
        s.power[k] = exp32(max(np.float32(-80.0), s.dot[k] - top))
        if rules.kind == LIVE:
            s.power[k] *= s.odds[k]
    close = _spread(s.power, count)
    if flags & SCORE:
        sums = progressive[blocks.decision[b]]
        sums[BLOCKS] += 1
        if close:
            _judge(s.power, blocks.negatives[b], count, sums, LOSS)
        else:
            _judge_wide(s, blocks.negatives[b], count, rules.kind == LIVE, sums)
        _judge(s.odds, blocks.negatives[b], count, sums, BASE_LOSS)
    if not flags & (ADD | MOVE):
        return
    _coefficients(blocks, b, rules, close, s)
    if flags & ADD:
        _add(items, blocks, signed, b, rules, s, counts)
        if flags & KEEP:
            for k in range(count):
                ledger.coefs[blocks.arena[b] + k] = blocks.coefs[blocks.start[b] + k]
    if flags & MOVE:
        _move(users, user, count, rules, s, counts)


@kernel
def step(
    users: UserArrays,
    items: ItemArrays,
    ledger: LedgerArrays,
    blocks: Blocks,
    signed: SignedBlocks,
    rules: StepRules,
    rows: RowRules,
    s: Scratch,
    progressive: F64,
    counts: I64,
) -> None:
    """Do the blocks in order: reset, score, add, move, take back. `signed` is the fold's view of the same columns.

    Item rows, counters and totals change as they go; daily buckets are folded when the batch is accepted.
    """
    for b in range(blocks.user.shape[0]):
        flags = blocks.flags[b]
        if flags & RESET:
            start_user(users.rows, blocks.user[b], users.keys[blocks.user[b]], rows)
            users.gate[blocks.user[b], MOVED] = 0
        elif blocks.sign[b] < 0:
            first = blocks.start[b]
            for k in range(first, first + blocks.negatives[b] + blocks.positives[b]):
                counts[c.FAR] += fold_row(items.rows, blocks.slots[k], blocks.coefs[k], blocks.rows[b], -1)
            fold_counters(items, signed, b, 1)
        else:
            _learn(users, items, ledger, blocks, signed, b, rules, rows, s, progressive, counts)
