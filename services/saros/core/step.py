"""The step: one SGD step per block on the pairwise ranking loss, a whole micro-batch per call.

For a block with user row u, positives i and negatives j the gradient on every item row is a scalar times u, so a block
is (u, items, one coefficient each). With margins x_ij = s_i - s_j, weights w and z = P·N + ω·(P + N):

    g_ij = z^-e · w_i·w_j · σ(-x_ij)
    a_i  = Σ_j g_ij + ω·z^-e·w_i·σ(low - s_i)        a_j = -Σ_i g_ij - ω·z^-e·w_j·σ(s_j - high)
    v   += coef·u,  coef = rate_item · a / (1 + ν·|u|²)        u += rate_user · Σ a·v   (with the old v)

`live` (the recipe): s = u·v + π with the item prior π = ln[(C + α·p0) / (S + α·(1 - p0))] from the counters before the
block, e = 0.6, rates that fall with the item's updates and the user's moves, ν = 1. Few pairs say little, so each side
also plays a virtual opponent of weight ω: the positives one at `low`, how the user's negatives have scored of late, and
the negatives one at `high`, how its positives have. Both are running means that move with the user's row. `paper` is
the exact gradient of the block's mean logistic loss (the paper's Eq. 3 at μ = 0): s = u·v, e = 1, constant rates,
ω = ν = 0.

A coefficient is cut where it would move a coordinate of an item beyond ±32; user rows are clamped there. Nothing that
leaves this module is NaN or infinite, whatever the rates.
"""

import math
from typing import NamedTuple

import numpy as np

from saros.core import counts as c
from saros.core.fold import SignedBlocks, ask_for_items, fold_block, fold_counters
from saros.core.items import ItemArrays
from saros.core.jit import F32, F64, I32, I64, as_int, kernel, merged_kernel
from saros.core.lanes import LANES, as_f32, first, how_many, load, prefetch, spread, sqrt, store, total, where
from saros.core.ledger import LedgerArrays
from saros.core.rowmath import DOWN, add_row, copy_row, count_far, learn_rows, lies_within, pull_row, square_row
from saros.core.rows import ONE, RowRules
from saros.core.scoring import (
    BASE_LOSS,
    BLOCKS,
    LOSS,
    UNKNOWN,
    WIDE,
    Scratch,
    gather,
    judge,
    judge_wide,
    mean_scores,
    mean_scores_wide,
    raise_powers,
    raise_rivals,
)
from saros.core.settle import ADD, KEEP, MOVE, RESET, SCORE, STORED, Blocks
from saros.core.users import HIGH, LEVEL_MAX, LEVEL_ONE, LOW, MOVED, UserArrays, reset_row

LIVE, PAPER = 0, 1
KINDS = {"live": LIVE, "paper": PAPER}

PRIOR_MIN = 1e-3
_LIMIT = 32.0  # the step moves no coordinate beyond it
_COEF_MAX = 1e9
HIGH_START = 0.6  # where the virtual positive starts; the virtual negative starts at 0
_LEVEL_UNIT = 1.0 / LEVEL_ONE
_LEVEL_RATE = 0.2
_AHEAD = 2  # blocks between the one in work and the one whose rows are asked for


class StepRules(NamedTuple):
    """Rates and shapes of the step; `lr_*` at the start, falling as 1/sqrt(1 + n/decay_*); decay 0: constant."""

    kind: int
    lr_user: float
    lr_item: float
    decay_user: float
    decay_item: float
    exponent: float
    prior: float  # α; the weight of p0 in an item's prior
    opponent: float  # ω; the weight of the virtual opponents
    shrink: float  # ν; how much a long user row slows down the items


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
    lr_item: float = 0.5,
    decay_user: float = 30.0,
    decay_item: float = 100.0,
    exponent: float = 0.6,
    prior: float = 4.0,
    opponent: float = 1.5,
) -> StepRules:
    """Return the live recipe."""
    return _checked(StepRules(LIVE, lr_user, lr_item, decay_user, decay_item, exponent, prior, opponent, 1.0))


def paper_step(lr: float = 0.2) -> StepRules:
    """Return the paper's plain step; the prior serves the baseline only."""
    return _checked(StepRules(PAPER, lr, lr, 0.0, 0.0, 1.0, 4.0, 0.0, 0.0))


def _checked(rules: StepRules) -> StepRules:
    """Raise ValueError unless every number is finite and of the right sign."""
    if not all(math.isfinite(x) and x >= 0 for x in rules[1:]):
        raise ValueError("step rates, decays, weights, the exponent and the prior must be finite and not negative")
    if rules.prior < PRIOR_MIN:
        raise ValueError(f"the prior's strength must be at least {PRIOR_MIN}, or the odds of a new item have no bounds")
    return rules


@kernel
def _pull(margin: float) -> np.float32:
    """Return σ(-margin)."""
    return np.float32(1.0 / (1.0 + math.exp(min(margin, 700.0))))


@kernel
def _coefficients_wide(
    negatives: int, count: int, scale: np.float32, opponent: np.float32, prior: bool, s: Scratch
) -> None:
    """`_coefficients` for scores too far apart for ratios of powers: every pair on its own, in double precision."""
    for j in range(negatives):
        score = np.float64(s.dot[j]) + (math.log(s.odds[j]) if prior else 0.0)
        s.a[j] = -(scale * opponent * s.weight[j] * _pull(s.level[1] - score))
    for i in range(negatives, count):
        score = np.float64(s.dot[i]) + (math.log(s.odds[i]) if prior else 0.0)
        total = scale * opponent * s.weight[i] * _pull(score - s.level[0])
        for j in range(negatives):
            x = np.float64(s.dot[i]) - s.dot[j]
            if prior:
                x += math.log(s.odds[i]) - math.log(s.odds[j])
            g = scale * s.weight[i] * s.weight[j] * _pull(x)
            total += g
            s.a[j] -= g
        s.a[i] = total


@merged_kernel
def _coefficients(negatives: int, count: int, scale: np.float32, opponent: np.float32, s: Scratch) -> None:
    """Fill a: what the other side, and the virtual opponent, pull each item by."""
    extra, low, high = scale * opponent, s.rival[0], s.rival[1]
    for at in range(0, count, LANES):
        own = load(s.power, 0, at)
        store(s.a, 0, at, where(first(count - at), load(s.weight, 0, at) * -extra * (own / (own + high)), 0.0))
    for i in range(negatives, count):
        weight, own = scale * s.weight[i], s.power[i]
        whole = weight * opponent * (low / (low + own))
        for at in range(0, negatives, LANES):
            others = load(s.power, 0, at)
            g = load(s.weight, 0, at) * weight * (others / (others + own))
            g = where(first(negatives - at), g, 0.0)
            whole += total(g)
            store(s.a, 0, at, load(s.a, 0, at) - g)
        s.a[i] = whole


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


@merged_kernel
def _set_rates(count: int, rules: StepRules, s: Scratch) -> None:
    """Fill rate. Divisions and roots take long and need no scores: begun early, they cost nothing."""
    start = np.float32(min(rules.lr_item, _COEF_MAX))
    if rules.shrink > 0:
        start /= np.float32(1.0) + np.float32(min(rules.shrink, _COEF_MAX)) * square_row(s.u, 0)
    for at in range(0, count, LANES):
        rate = spread(start)
        if rules.decay_item > 0:
            updates = load(s.updates, 0, at)
            share = np.float32(min(1.0 / rules.decay_item, _COEF_MAX))
            rate = rate / sqrt(as_f32(where(updates > 0, updates, 0)) * share + 1.0)
        store(s.rate, 0, at, rate)


@merged_kernel
def _scale(positives: int, negatives: int, rules: StepRules, s: Scratch) -> np.float32:
    """Return (P·N + ω·(P + N))^-e; what was computed once is remembered, because powers take long."""
    if s.scaled[0] != rules.exponent or s.scaled[1] != rules.opponent:
        s.scales[:] = 0.0
        s.scaled[0], s.scaled[1] = rules.exponent, rules.opponent
    known = positives < s.scales.shape[0] and negatives < s.scales.shape[1]
    if known and s.scales[positives, negatives] > 0.0:
        return s.scales[positives, negatives]
    scale = np.float32((positives * negatives + rules.opponent * (positives + negatives)) ** -rules.exponent)
    if known:
        s.scales[positives, negatives] = scale
    return scale


@kernel
def _cut_long(items: ItemArrays, blocks: Blocks, b: int, s: Scratch, reach: np.float32, counts: I64) -> None:
    """Cut the coefficients of block b that may move a row too far."""
    for k in range(blocks.negatives[b] + blocks.positives[b]):
        if s.wide[k] or abs(s.coef[k]) * reach >= 16.0:
            cut = _cut(items.rows[blocks.slots[blocks.start[b] + k]], s.u[0], s.coef[k])
            counts[c.CLAMPED] += cut != s.coef[k]
            s.coef[k] = cut


@merged_kernel
def _set_coefs(items: ItemArrays, blocks: Blocks, b: int, s: Scratch, reach: np.float32, counts: I64) -> None:
    """Fill coef and keep it with block b; `reach` is the largest |u|."""
    count, long = blocks.negatives[b] + blocks.positives[b], as_int(s.odd[WIDE])
    for at in range(0, count, LANES):
        coefs = load(s.rate, 0, at) * load(s.a, 0, at)
        coefs = where(coefs < _COEF_MAX, coefs, _COEF_MAX)
        coefs = where(coefs > -_COEF_MAX, coefs, -_COEF_MAX)
        store(s.coef, 0, at, coefs)
        moves = coefs * reach
        long += how_many(((moves >= 16.0) | (moves <= -16.0)) & first(count - at))
    if long:
        _cut_long(items, blocks, b, s, reach, counts)
    for k in range(count):
        blocks.coefs[blocks.start[b] + k] = s.coef[k]


@kernel
def _clamp(row: F32, before: F32, counts: I64) -> None:
    """Bring a moved row back within ±32; a coordinate that is no number stays where it was before."""
    for d in range(row.shape[0]):
        if not np.isfinite(row[d]):
            row[d] = before[d]
            counts[c.NON_FINITE] += 1
        elif abs(row[d]) > _LIMIT:
            row[d] = _LIMIT if row[d] > 0 else -_LIMIT
            counts[c.CLAMPED] += 1


@merged_kernel
def _pace(users: UserArrays, user: int, rules: StepRules) -> float:
    """Return the rate at which a user's row moves now."""
    rate = rules.lr_user
    if rules.decay_user > 0:
        rate /= math.sqrt(1.0 + users.gate[user, MOVED] / rules.decay_user)
    return min(rate, _COEF_MAX)


@merged_kernel
def _set_pulls(count: int, rate: float, s: Scratch) -> None:
    """Fill pull: what each item's row, on the grid, adds to the user's."""
    pace = np.float32(rate)
    for at in range(0, count, LANES):
        store(s.pull, 0, at, load(s.a, 0, at) * pace * DOWN)


@kernel
def _move_apart(users: F32, user: int, rows: I32, slots: I32, begin: int, s: Scratch, count: int) -> None:
    """`pull_row` where some items have no slot: they pull from where they would start."""
    for d in range(users.shape[1]):
        for k in range(count):
            slot = slots[begin + k]
            users[user, d] += np.float32(rows[slot, d] if slot >= 0 else s.start[k, d]) * s.pull[k]


@merged_kernel
def _move_rows(w: Work, b: int, adds: bool, moves: bool) -> None:
    """Item rows += coef·u, user row += Σ pull·v, with the rows as they were before; as far as the flags say."""
    blocks, users, rows, s = w.blocks, w.users.rows, w.items.rows, w.scratch
    user, start, count = blocks.user[b], blocks.start[b], blocks.negatives[b] + blocks.positives[b]
    if adds and moves:
        if learn_rows(users, user, s.u, rows, blocks.slots, start, s.pull, s.coef, count):
            w.counts[c.FAR] += count_far(rows, blocks.slots, start, count)
    elif adds:
        for k in range(count):
            w.counts[c.FAR] += add_row(rows, blocks.slots[start + k], s.u, 0, s.coef[k])
    elif s.odd[UNKNOWN] == 0:
        pull_row(users, user, rows, blocks.slots, start, s.pull, count)
    else:
        _move_apart(users, user, rows, blocks.slots, start, s, count)


@merged_kernel
def _follow(users: UserArrays, user: int, column: int, score: float) -> None:
    """Let a level go part of the way to a score."""
    aim = max(-LEVEL_MAX, min(LEVEL_MAX, score * LEVEL_ONE))
    users.gate[user, column] += np.int32(np.rint(_LEVEL_RATE * (aim - users.gate[user, column])))


@merged_kernel
def _learn(w: Work, b: int) -> None:
    """Score, add and move for block b, as its flags say. One whose clicks were all repeats has nothing to say."""
    blocks, ledger, rules, s = w.blocks, w.ledger, w.rules, w.scratch
    if blocks.positives[b] == 0:
        return
    user, flags, entry = blocks.user[b], blocks.flags[b], blocks.entry[b]
    reach = copy_row(s.u, 0, ledger.rows, entry) if flags & STORED else copy_row(s.u, 0, w.users.rows, user)
    pace = _pace(w.users, user, rules)
    if entry >= 0 and not flags & STORED:
        copy_row(ledger.rows, entry, s.u, 0)
    negatives, count = blocks.negatives[b], blocks.negatives[b] + blocks.positives[b]
    top, low = gather(w.items, blocks, b, w.rows, s)
    if flags & ADD:
        _set_rates(count, rules, s)
    close = raise_powers(w.items, count, rules.prior, rules.kind == LIVE, top, low, s)
    levels = w.users.gate[user]
    raise_rivals(np.float32(levels[LOW] * _LEVEL_UNIT), np.float32(HIGH_START + levels[HIGH] * _LEVEL_UNIT), top, s)
    if flags & SCORE:
        sums = w.progressive[blocks.decision[b]]
        sums[BLOCKS] += 1
        if close:
            judge(s.power, negatives, count, sums, LOSS)
        else:
            judge_wide(s, negatives, count, rules.kind == LIVE, sums)
        judge(s.odds, negatives, count, sums, BASE_LOSS)
    if not flags & (ADD | MOVE):
        return
    copy_row(blocks.rows, b, s.u, 0)
    scale, opponent = _scale(as_int(blocks.positives[b]), as_int(negatives), rules, s), np.float32(rules.opponent)
    if close:
        _coefficients(negatives, count, scale, opponent, s)
    else:
        _coefficients_wide(negatives, count, scale, opponent, rules.kind == LIVE, s)
    if flags & ADD:
        _set_coefs(w.items, blocks, b, s, reach, w.counts)
    if flags & MOVE:
        _set_pulls(count, pace, s)
    _move_rows(w, b, bool(flags & ADD), bool(flags & MOVE))
    if flags & ADD:
        fold_counters(w.items, w.signed, b, 1)
        if flags & KEEP:
            for k in range(count):
                ledger.coefs[blocks.arena[b] + k] = s.coef[k]
    if flags & MOVE:
        if not lies_within(w.users.rows, user, np.float32(_LIMIT)):
            _clamp(w.users.rows[user], s.u[0], w.counts)
        w.users.gate[user, MOVED] += 1
        if rules.opponent > 0:
            if close:
                passed, clicked = mean_scores(negatives, count, top, s)
            else:
                passed, clicked = mean_scores_wide(negatives, count, rules.kind == LIVE, s)
            if negatives > 0:  # a guest's click may stand alone
                _follow(w.users, user, LOW, passed)
            _follow(w.users, user, HIGH, clicked - HIGH_START)


@merged_kernel
def _ask_for(w: Work, b: int) -> None:
    """Ask for what block b will need."""
    blocks = w.blocks
    prefetch(w.users.rows, blocks.user[b])
    prefetch(w.users.gate, blocks.user[b])
    ask_for_items(w.items, blocks.slots, blocks.start[b], blocks.negatives[b] + blocks.positives[b])


@kernel
def step(w: Work) -> None:
    """Do the blocks in order: reset, score, add, move, take back.

    Item rows, counters and totals change as they go; daily buckets are folded when the batch is accepted.
    """
    blocks = w.blocks
    for b in range(blocks.user.shape[0]):
        if b + _AHEAD < blocks.user.shape[0]:
            _ask_for(w, b + _AHEAD)
        if blocks.flags[b] & RESET:
            reset_row(w.users, blocks.user[b], w.rows)
        elif blocks.sign[b] < 0:
            w.counts[c.FAR] += fold_block(w.items, w.signed, b, 1)
        else:
            _learn(w, b)
