"""The step: one SGD step per block on the pairwise ranking loss, a whole micro-batch per call.

For a block with user row u, positives i and negatives j the gradient on every item row is a scalar times u, so a block
is (u, items, one coefficient each). With margins x_ij = s_i - s_j and weights w:

    g_ij = (P·N)^-e · w_i·w_j · σ(-x_ij)        a_i = Σ_j g_ij        a_j = -Σ_i g_ij
    v   += coef·u,  coef = rate_item · a        u   += rate_user · Σ a·v   (with the old v)

`live` (the recipe): s = u·v + π with the item prior π = ln[(C + α·p0) / (S + α·(1 - p0))] from the counters before the
block, e = 0.7, rates that fall with the item's updates and the user's moves. `paper` is the exact gradient of the
block's mean logistic loss (the paper's Eq. 3 at μ = 0): s = u·v, e = 1, constant rates.

A coefficient is cut where it would move a coordinate of an item beyond ±32; user rows are clamped there. Nothing that
leaves this module is NaN or infinite, whatever the rates.
"""

import math
from typing import NamedTuple

import numpy as np

from saros.core import counts as c
from saros.core.fold import SignedBlocks, fold_block, fold_counters, fold_row
from saros.core.items import UPDATES, ItemArrays
from saros.core.jit import F32, F64, I32, I64, fast_kernel, kernel
from saros.core.ledger import LedgerArrays
from saros.core.rows import ONE, RowRules, start_user
from saros.core.scoring import BASE_LOSS, BLOCKS, LOSS, Scratch, gather, judge, judge_wide, raise_powers
from saros.core.settle import ADD, KEEP, MOVE, RESET, SCORE, STORED, Blocks
from saros.core.users import MOVED, UserArrays

LIVE, PAPER = 0, 1
KINDS = {"live": LIVE, "paper": PAPER}

PRIOR_MIN = 1e-3
_LIMIT = 32.0  # the step moves no coordinate beyond it
_COEF_MAX = 1e9


class StepRules(NamedTuple):
    """Rates and shapes of the step; `lr_*` at the start, falling as 1/sqrt(1 + n/decay_*); decay 0: constant."""

    kind: int
    lr_user: float
    lr_item: float
    decay_user: float
    decay_item: float
    exponent: float
    prior: float  # α; the weight of p0 in an item's prior


class Work(NamedTuple):
    """All that `step` reads and writes."""

    users: UserArrays
    items: ItemArrays
    ledger: LedgerArrays
    blocks: Blocks
    signed: SignedBlocks  # the fold's view of the same blocks
    rules: StepRules
    rows: RowRules
    scratch: Scratch
    progressive: F64  # [decisions, 7]
    counts: I64


def live_step(
    lr_user: float = 0.45,
    lr_item: float = 0.25,
    decay_user: float = 30.0,
    decay_item: float = 100.0,
    exponent: float = 0.7,
    prior: float = 4.0,
) -> StepRules:
    """Return the live recipe."""
    return _checked(StepRules(LIVE, lr_user, lr_item, decay_user, decay_item, exponent, prior))


def paper_step(lr: float = 0.2) -> StepRules:
    """Return the paper's plain step; the prior serves the baseline only."""
    return _checked(StepRules(PAPER, lr, lr, 0.0, 0.0, 1.0, 4.0))


def _checked(rules: StepRules) -> StepRules:
    """Raise ValueError unless every number is finite and of the right sign."""
    if not all(math.isfinite(x) and x >= 0 for x in rules[1:]):
        raise ValueError("step rates, decays, the exponent and the prior must be finite and not negative")
    if rules.prior < PRIOR_MIN:
        raise ValueError(f"the prior's strength must be at least {PRIOR_MIN}, or the odds of a new item have no bounds")
    return rules


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
def _cut(row: I32, u: F32, coef: np.float32) -> np.float32:
    """Shrink a coefficient until it moves no coordinate of an int32 row beyond ±32 (0 where nothing else is left)."""
    limit = np.int64(_LIMIT * ONE)
    share = 1.0
    for k in range(u.shape[0]):
        step = np.float64(coef) * u[k] * ONE
        room = min(2 * limit, max(0, limit - row[k] if step > 0 else limit + row[k]))
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
def _add(
    items: ItemArrays, blocks: Blocks, signed: SignedBlocks, b: int, rules: StepRules, s: Scratch, counts: I64
) -> None:
    """Compute the coefficients of block b, keep them, and fold it in with +1."""
    first, reach = blocks.start[b], np.float32(0.0)
    for k in range(s.u.shape[0]):
        reach = max(reach, abs(s.u[k]))
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
def _learn(w: Work, b: int) -> None:
    """Score, add and move for block b, as its flags say. One whose clicks were all repeats has nothing to say."""
    blocks, ledger, rules, s = w.blocks, w.ledger, w.rules, w.scratch
    if blocks.positives[b] == 0:
        return
    user, flags, entry = blocks.user[b], blocks.flags[b], blocks.entry[b]
    for k in range(s.u.shape[0]):
        s.u[k] = ledger.rows[entry, k] if flags & STORED else w.users.rows[user, k]
    if entry >= 0 and not flags & STORED:
        for k in range(s.u.shape[0]):
            ledger.rows[entry, k] = s.u[k]
    count = gather(w.items, blocks, b, w.rows, rules.prior, s)
    close = raise_powers(s, count, rules.kind == LIVE)
    if flags & SCORE:
        sums = w.progressive[blocks.decision[b]]
        sums[BLOCKS] += 1
        if close:
            judge(s.power, blocks.negatives[b], count, sums, LOSS)
        else:
            judge_wide(s, blocks.negatives[b], count, rules.kind == LIVE, sums)
        judge(s.odds, blocks.negatives[b], count, sums, BASE_LOSS)
    if not flags & (ADD | MOVE):
        return
    for k in range(s.u.shape[0]):
        blocks.rows[b, k] = s.u[k]
    _coefficients(blocks, b, rules, close, s)
    if flags & ADD:
        _add(w.items, blocks, w.signed, b, rules, s, w.counts)
        if flags & KEEP:
            for k in range(count):
                ledger.coefs[blocks.arena[b] + k] = blocks.coefs[blocks.start[b] + k]
    if flags & MOVE:
        _move(w.users, user, count, rules, s, w.counts)


@kernel
def step(w: Work) -> None:
    """Do the blocks in order: reset, score, add, move, take back.

    Item rows, counters and totals change as they go; daily buckets are folded when the batch is accepted.
    """
    blocks = w.blocks
    for b in range(blocks.user.shape[0]):
        if blocks.flags[b] & RESET:
            start_user(w.users.rows, blocks.user[b], w.users.keys[blocks.user[b]], w.rows)
            w.users.gate[blocks.user[b], MOVED] = 0
        elif blocks.sign[b] < 0:
            w.counts[c.FAR] += fold_block(w.items, w.signed, b, 1)
        else:
            _learn(w, b)
