"""Several passes over the blocks of a log, offline: one SGD step per block on the whole Eq. 3, regularisation and all.

For a block with user row u, P positives i and N negatives j the step goes down the gradient of

    (P·N)^-e · Σ_ij [log(1 + exp(-(s_i - s_j))) + μ_U·‖u - u0‖² + μ_V·(‖v_i‖² + ‖v_j‖²)]

With g_ij = (P·N)^-e · σ(-(s_i - s_j)), a_i = Σ_j g_ij and a_j = -Σ_i g_ij, all from the rows before the block:

    v += rate_item · (a·u - 2·μ_V·(P·N)^-e·m·v)              m = N for a positive, P for a negative: its pairs
    u += rate_user · (Σ a·v - 2·μ_U·(P·N)^(1-e)·(u - u0))

`offline_rules` (the live recipe, again and again): s = u·v + π with the item prior π of the live step, u0 the user's
start row, e = 0.7; both rates fall with the pass, the user's also with its blocks. In the first pass π comes from the
counters before the block, as live. Then the counters stand still and a block's own label is left out of them (C - 1
for its positives, S - 1 for its negatives), or π would tell the answer. `paper_passes` is the paper's Eq. 3 itself:
s = u·v, u0 = 0, e = 1, a constant rate.

Invariants:
- Only blocks that stand (sign 1) and have both sides count; users in index order, each one's blocks by their number,
  whatever the order of the table. Rows are a function of blocks, keys and rules alone.
- What is judged is the mean of the rows at the end of each pass so far.
- Rows stay within ±32 and regularisation never takes a row past its aim, so no rates make anything NaN or infinite.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from saros.core.events import spans
from saros.core.items import CLICKED, SHOWN
from saros.core.jit import F32, F64, I32, I64, U64, fast_kernel, kernel
from saros.core.rows import ONE, RowRules, start_item, start_user
from saros.core.step import PRIOR_MIN
from saros.lab.blocks import BlockTable
from saros.lab.model import Model
from saros.lab.replay import prior_of

_LIMIT = 32.0  # no coordinate goes beyond it, as in the live step
_COEF_MAX = 1e9
_EXP_MAX = 700.0  # exp of it is still a number


class PassRules(NamedTuple):
    """Rates and shapes of a pass."""

    lr_user: float  # times (1 + pass)^-power, pass from 0
    lr_item: float
    mu_user: float  # μ_U
    mu_item: float  # μ_V
    exponent: float  # e
    decay_user: float  # the user's rate falls as 1/sqrt(1 + n/decay), n its blocks in this pass; 0: constant
    prior: float  # α; the weight of p0 in an item's prior; 0: no prior
    power: float
    anchor: float  # u0 is so much of the user's start row


class _Script(NamedTuple):
    """The blocks that count, in the order of a pass; the items of block b are [start[b], start[b + 1])."""

    user: I32
    negatives: I32
    start: I64
    item: I32


class _State(NamedTuple):
    """What the passes learn, by user and item index."""

    users: F32  # [users, d]
    starts: F32  # [users, d] where the users' rows began
    items: F32  # [items, d]
    counters: I64  # [items, 2] clicked and shown, as far as counted
    totals: I64  # [2]


class _Scratch(NamedTuple):
    """Room for one block of at most w items."""

    score: F64  # [w]
    a: F64  # [w]
    pull: F32  # [d] what moves the user's row


def offline_rules(
    lr_user: float = 0.4,
    lr_item: float = 0.16,
    mu_user: float = 0.01,
    mu_item: float = 0.016,
    exponent: float = 0.7,
    decay_user: float = 30.0,
    prior: float = 4.0,
    power: float = 0.75,
) -> PassRules:
    """Return the live recipe for about ten passes."""
    return _checked(PassRules(lr_user, lr_item, mu_user, mu_item, exponent, decay_user, prior, power, 1.0))


def paper_passes(lr: float = 0.1, mu: float = 0.01) -> PassRules:
    """Return the paper's plain step, the exact gradient of Eq. 3."""
    return _checked(PassRules(lr, lr, mu, mu, 1.0, 0.0, 0.0, 0.0, 0.0))


def _checked(rules: PassRules) -> PassRules:
    """Raise ValueError unless every number is finite and of the right sign."""
    if not all(math.isfinite(x) and x >= 0 for x in rules):
        raise ValueError("rates, regularisation and shapes of passes must be finite and not negative")
    if 0 < rules.prior < PRIOR_MIN:
        raise ValueError(f"the prior's strength must be 0 or at least {PRIOR_MIN}, or odds have no bounds")
    if rules.anchor > 1:
        raise ValueError("the anchor must be a share of the start row, from 0 to 1")
    return rules


def fit(
    blocks: BlockTable, user_keys: U64, item_keys: U64, rows: RowRules, rules: PassRules, passes: int
) -> Iterator[Model]:
    """Go over the blocks so many times; yield, after each pass, the mean of the rows at the ends of the passes so far.

    Users and items, and the rows of the models, are indices into `user_keys` and `item_keys`.
    """
    _checked(rules)
    script = _script(blocks)
    for name, index, count in (("user", script.user, len(user_keys)), ("item", script.item, len(item_keys))):
        if len(index) and not 0 <= index.min() <= index.max() < count:
            raise ValueError(f"the blocks name a {name} outside 0 to {count - 1}")
    return _fit(script, _begin(user_keys, item_keys, rows), rules, passes)


def _fit(script: _Script, state: _State, rules: PassRules, passes: int) -> Iterator[Model]:
    """`fit`, once all is checked."""
    widest, dim = int(np.diff(script.start).max(initial=0)), state.users.shape[1]
    scratch = _Scratch(np.zeros(widest), np.zeros(widest), np.zeros(dim, np.float32))
    users, items = np.zeros_like(state.users), np.zeros_like(state.items)
    prior = np.zeros(len(items))
    for turn in range(passes):
        _pass(script, state, rules, turn, scratch)
        if turn == 0 and rules.prior > 0:
            prior = prior_of(state.counters[:, CLICKED], state.counters[:, SHOWN], rules.prior)
        users += (state.users - users) / np.float32(turn + 1)
        items += (state.items - items) / np.float32(turn + 1)
        yield Model(users.copy(), items.copy(), prior)


def _script(blocks: BlockTable) -> _Script:
    """Return the blocks that count, in the order of a pass."""
    sizes = np.diff(blocks.start)
    counts = (blocks.sign == 1) & (blocks.negatives > 0) & (blocks.negatives < sizes)
    # Numbers start anew when a user is erased or expires: then time tells the blocks apart.
    order = np.lexsort((blocks.time_ms, blocks.number, blocks.user))
    order = order[counts[order]]
    return _Script(
        user=blocks.user[order],
        negatives=blocks.negatives[order],
        start=np.concatenate(([0], np.cumsum(sizes[order], dtype=np.int64))),
        item=blocks.item[spans(blocks.start[order], sizes[order])],
    )


def _begin(user_keys: U64, item_keys: U64, rows: RowRules) -> _State:
    """Return the start rows of all users and items, with nothing counted."""
    users = np.zeros((len(user_keys), rows.dim), np.float32)
    items = np.zeros((len(item_keys), rows.dim), np.int32)
    _start_rows(users, items, user_keys, item_keys, rows)
    return _State(
        users=users,
        starts=users.copy(),
        items=items.astype(np.float32) * np.float32(1.0 / ONE),
        counters=np.zeros((len(item_keys), 2), np.int64),
        totals=np.zeros(2, np.int64),
    )


@kernel
def _start_rows(users: F32, items: I32, user_keys: U64, item_keys: U64, rows: RowRules) -> None:
    """Set all rows to where they start."""
    for k in range(users.shape[0]):
        start_user(users, k, user_keys[k], rows)
    for k in range(items.shape[0]):
        start_item(items, k, item_keys[k], rows)


@fast_kernel
def _dot(u: F32, v: F32) -> np.float32:
    """u·v."""
    total = np.float32(0.0)
    for k in range(u.shape[0]):
        total += u[k] * v[k]
    return total


@fast_kernel
def _add(total: F32, coef: np.float32, v: F32) -> None:
    """total += coef·v."""
    for k in range(v.shape[0]):
        total[k] += coef * v[k]


@fast_kernel
def _move(row: F32, pull: F32, coef: np.float32, shrink: np.float32, aim: F32, anchor: np.float32) -> None:
    """row += coef·pull - shrink·(row - anchor·aim), each coordinate within ±32."""
    limit = np.float32(_LIMIT)
    for k in range(row.shape[0]):
        moved = row[k] + coef * pull[k] - shrink * (row[k] - anchor * aim[k])
        row[k] = min(limit, max(-limit, moved))


@kernel
def _coef(x: float) -> np.float32:
    """Cut a coefficient to where its products are numbers."""
    return np.float32(min(_COEF_MAX, max(-_COEF_MAX, x)))


@kernel
def _shrink(rate: float, mu: float, share: float) -> np.float32:
    """How far regularisation takes a row to its aim: 2·rate·μ·share, at most all the way."""
    return np.float32(min(1.0, 2.0 * min(rate * mu, _COEF_MAX) * share))


@kernel
def _score(script: _Script, b: int, state: _State, rules: PassRules, own: int, s: _Scratch) -> None:
    """Fill the scores of block b; `own` is 1 where the counters hold the block's own labels, to be left out."""
    p0 = (state.totals[CLICKED] + 1.0) / (state.totals[CLICKED] + state.totals[SHOWN] + 2.0)
    u, first = state.users[script.user[b]], script.start[b]
    for k in range(script.start[b + 1] - first):
        item = script.item[first + k]
        s.score[k] = _dot(u, state.items[item])
        if rules.prior > 0:
            negative = k < script.negatives[b]
            clicked = state.counters[item, CLICKED] - (0 if negative else own)
            shown = state.counters[item, SHOWN] - (own if negative else 0)
            s.score[k] += math.log((clicked + rules.prior * p0) / (shown + rules.prior * (1.0 - p0)))


@kernel
def _weigh(negatives: int, count: int, scale: float, s: _Scratch) -> None:
    """Fill a: a_i = Σ_j g_ij for positives, a_j = -Σ_i g_ij for negatives."""
    for j in range(negatives):
        s.a[j] = 0.0
    for i in range(negatives, count):
        total = 0.0
        for j in range(negatives):
            g = scale / (1.0 + math.exp(min(_EXP_MAX, s.score[i] - s.score[j])))
            total += g
            s.a[j] -= g
        s.a[i] = total


@kernel
def _step(
    script: _Script, b: int, state: _State, rules: PassRules, rate_user: float, rate_item: float, s: _Scratch
) -> None:
    """Move the user's row and the items' rows of block b, all from the rows before it."""
    user, first, negatives = script.user[b], script.start[b], script.negatives[b]
    count = script.start[b + 1] - first
    positives = count - negatives
    pairs = float(negatives) * positives
    scale = pairs**-rules.exponent
    _weigh(negatives, count, scale, s)
    u, one, zero = state.users[user], np.float32(1.0), np.float32(0.0)
    for k in range(s.pull.shape[0]):
        s.pull[k] = 0.0
    for k in range(count):
        _add(s.pull, _coef(rate_user * s.a[k]), state.items[script.item[first + k]])
    for k in range(count):
        row = state.items[script.item[first + k]]
        shrink = _shrink(rate_item, rules.mu_item, scale * (positives if k < negatives else negatives))
        _move(row, u, _coef(rate_item * s.a[k]), shrink, row, zero)
    shrink = _shrink(rate_user, rules.mu_user, scale * pairs)
    _move(u, s.pull, one, shrink, state.starts[user], np.float32(rules.anchor))


@kernel
def _pass(script: _Script, state: _State, rules: PassRules, turn: int, s: _Scratch) -> None:
    """Do all blocks once; the first pass counts them."""
    fall = (1.0 + turn) ** -rules.power
    user, earlier = np.int32(-1), 0
    for b in range(script.user.shape[0]):
        earlier = earlier + 1 if script.user[b] == user else 0
        user = script.user[b]
        rate_user = rules.lr_user * fall
        if rules.decay_user > 0:
            rate_user /= math.sqrt(1.0 + earlier / rules.decay_user)
        _score(script, b, state, rules, min(turn, 1), s)
        _step(script, b, state, rules, rate_user, rules.lr_item * fall, s)
        if turn > 0:
            continue
        for k in range(script.start[b], script.start[b + 1]):
            side = SHOWN if k - script.start[b] < script.negatives[b] else CLICKED
            state.counters[script.item[k], side] += 1
            state.totals[side] += 1
