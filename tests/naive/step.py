"""Slow, obvious twins of saros.core.rows, saros.core.fold and saros.core.step: the oracle of their tests.

Plain Python integers, float64, dicts, lists and loops, written from the specification; nothing here imports Saros.
Items and users are keys. numpy serves for one thing only: the float32 product that the fold is defined by.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

ONE = 1 << 24  # 1.0 on the grid of item rows
LIMIT = 32.0  # the step moves no coordinate beyond it
DAYS = 8

_WORD = (1 << 64) - 1

Row = list[float]


# --- where rows start ------------------------------------------------------------------------------------------------


def splitmix64(x: int) -> int:
    """The SplitMix64 output that follows state x."""
    z = (x + 0x9E3779B97F4A7C15) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def deviate(seed: int, key: int, k: int) -> int:
    """The sum of twelve 16-bit uniforms less its mean: a normal deviate whose standard deviation is 2^16."""
    stream = splitmix64(splitmix64(seed) ^ key)
    draws = [splitmix64((stream + 3 * k + draw) & _WORD) for draw in range(3)]
    return sum((word >> shift) & 0xFFFF for word in draws for shift in (0, 16, 32, 48)) - 12 * 65535 // 2


def scaled(deviation: int, scale: int) -> int:
    """A deviate times a standard deviation on the grid, rounded; halves go up."""
    return (deviation * scale + 32768) // 65536


def item_start(seed: int, key: int, dim: int, scale: int) -> list[int]:
    """The start row of an item, on the grid."""
    return [0] + [scaled(deviate(seed, key, k), scale) for k in range(1, dim)]


def user_start(seed: int, key: int, dim: int, scale: int, first: int) -> Row:
    """The start row of a user; its stream is that of the complement of its key, so no item shares it by its key."""
    words = [first] + [scaled(deviate(seed, key ^ _WORD, k), scale) for k in range(1, dim)]
    return [float(np.float32(word / ONE)) for word in words]


# --- blocks, items and their fold ------------------------------------------------------------------------------------


@dataclass
class Block:
    """A closed block: item keys, negatives first. `u` and `coefs` say how it was folded, once it was added."""

    user: int
    items: list[int]
    negatives: int
    weights: list[float]
    day: int = 0
    sign: int = 1
    u: Row = field(default_factory=list)
    coefs: list[float] = field(default_factory=list)

    @property
    def positives(self) -> int:
        return len(self.items) - self.negatives


@dataclass
class Item:
    """One item: its row on the grid, its counters, and eight places for days, each (day, clicked, shown)."""

    row: list[int]
    clicked: int = 0
    shown: int = 0
    updates: int = 0
    buckets: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, 0)] * DAYS)


def wrapped(x: int) -> int:
    """An integer as int32 holds it."""
    return (x + 2**31) % 2**32 - 2**31


def moves(coef: float, u: Sequence[float]) -> list[int]:
    """int32(rint(float32(coef) · float32(u·2^24))) per coordinate: what one item of a block moves by."""
    return [int(np.rint(np.float32(coef) * np.float32(np.float32(x) * np.float32(ONE)))) for x in u]


class Items:
    """The item table, and the totals over all of it."""

    def __init__(self, seed: int, dim: int, scale: int) -> None:
        self.seed, self.dim, self.scale = seed, dim, scale
        self.of: dict[int, Item] = {}
        self.clicked = self.shown = 0

    def get(self, key: int) -> Item:
        """The item of a key; one that was never folded is new, and stays unknown."""
        return self.of.get(key) or Item(item_start(self.seed, key, self.dim, self.scale))

    def fold(self, block: Block, direction: int = 1) -> None:
        """Add a block's signed contribution to rows, counters and totals."""
        sign = block.sign * direction
        if sign == 0:
            return
        for place, key in enumerate(block.items):
            item = self.of.setdefault(key, self.get(key))
            item.row = [
                wrapped(x + sign * by) for x, by in zip(item.row, moves(block.coefs[place], block.u), strict=True)
            ]
            item.updates += sign
            if place < block.negatives:
                item.shown += sign
            else:
                item.clicked += sign
        self.shown += sign * block.negatives
        self.clicked += sign * block.positives

    def fold_buckets(self, block: Block) -> None:
        """Count a block in its day's place: a newer day empties the place first, an older one is ignored."""
        if block.sign == 0:
            return
        for place, key in enumerate(block.items):
            item = self.of.setdefault(key, self.get(key))
            day, clicked, shown = item.buckets[block.day % DAYS]
            if day > block.day:
                continue
            if day < block.day:
                clicked = shown = 0
            if place < block.negatives:
                shown += block.sign
            else:
                clicked += block.sign
            item.buckets[block.day % DAYS] = (block.day, clicked, shown)


def counted(blocks: Iterable[Block], key: int, day: int) -> tuple[list[int], list[int]]:
    """What buckets mean: an item's clicked and shown on each of the eight days up to `day`, newest first."""
    clicked, shown = [0] * DAYS, [0] * DAYS
    for block in blocks:
        for place, item in enumerate(block.items):
            age = day - block.day
            if item == key and 0 <= age < DAYS:
                side = shown if place < block.negatives else clicked
                side[age] += block.sign
    return clicked, shown


# --- scores, loss and gradient ---------------------------------------------------------------------------------------


def dot(u: Sequence[float], v: Sequence[float]) -> float:
    """u·v, correctly rounded."""
    return math.fsum(x * y for x, y in zip(u, v, strict=True))


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), for any x."""
    small = math.exp(-abs(x))
    return 1.0 / (1.0 + small) if x >= 0 else small / (1.0 + small)


def logistic_loss(x: float) -> float:
    """log(1 + exp(-x)), for any x."""
    return math.log1p(math.exp(-abs(x))) + max(0.0, -x)


def prior(item: Item, p0: float, alpha: float) -> float:
    """π = ln[(C + α·p0) / (S + α·(1 - p0))]."""
    return math.log((max(0, item.clicked) + alpha * p0) / (max(0, item.shown) + alpha * (1.0 - p0)))


def paper_loss(u: Sequence[float], negatives: Sequence[Row], positives: Sequence[Row]) -> float:
    """Eq. 3 of the paper at μ = 0: the mean over all pairs of log(1 + exp(-u·(v_i - v_j)))."""
    losses = [logistic_loss(dot(u, v_i) - dot(u, v_j)) for v_i in positives for v_j in negatives]
    return math.fsum(losses) / len(losses)


def weighted_loss(
    u: Sequence[float],
    rows: Sequence[Row],
    priors: Sequence[float],
    weights: Sequence[float],
    negatives: int,
    recipe: "Recipe",
    levels: Sequence[float],
) -> float:
    """The live loss, whose gradient (priors and levels held fixed) the step follows.

    z^-e · Σ w_i·w_j·log(1 + exp(-x_ij)) over all pairs, those with a virtual opponent of weight ω among them.
    """
    scores = [dot(u, v) + extra for v, extra in zip(rows, priors, strict=True)]
    pairs = [(i, j) for i in range(negatives, len(rows)) for j in range(negatives)]
    losses = [weights[i] * weights[j] * logistic_loss(scores[i] - scores[j]) for i, j in pairs]
    losses += [recipe.opponent * weights[j] * logistic_loss(levels[1] - scores[j]) for j in range(negatives)]
    losses += [recipe.opponent * weights[i] * logistic_loss(scores[i] - levels[0]) for i in range(negatives, len(rows))]
    return math.fsum(losses) / math.pow(len(pairs) + recipe.opponent * len(rows), recipe.exponent)


def pulls(
    scores: Sequence[float], weights: Sequence[float], negatives: int, recipe: "Recipe", levels: Sequence[float]
) -> list[float]:
    """a_i = Σ_j g_ij for positives, a_j = -Σ_i g_ij for negatives, g_ij = z^-e · w_i·w_j · σ(-(s_i - s_j)).

    The other side of each also has a virtual item of weight ω, at the first level (a negative) and the second.
    """
    pairs = [(i, j) for i in range(negatives, len(scores)) for j in range(negatives)]
    scale = math.pow(len(pairs) + recipe.opponent * len(scores), -recipe.exponent)
    a = [0.0] * len(scores)
    for i, j in pairs:
        g = scale * weights[i] * weights[j] * sigmoid(scores[j] - scores[i])
        a[i] += g
        a[j] -= g
    for k, score in enumerate(scores):
        if k < negatives:
            a[k] -= scale * recipe.opponent * weights[k] * sigmoid(score - levels[1])
        else:
            a[k] += scale * recipe.opponent * weights[k] * sigmoid(levels[0] - score)
    return a


def judged(scores: Sequence[float], negatives: int) -> tuple[float, float, float]:
    """Mean pair loss, pair accuracy and reciprocal rank of the best positive; ties count half."""
    lost, won = scores[:negatives], scores[negatives:]
    pairs = [(i, j) for i in won for j in lost]
    loss = math.fsum(logistic_loss(i - j) for i, j in pairs) / len(pairs)
    right = sum(1.0 if i > j else 0.5 if i == j else 0.0 for i, j in pairs) / len(pairs)
    above = sum(1.0 if j > max(won) else 0.5 if j == max(won) else 0.0 for j in lost)
    return loss, right, 1.0 / (1.0 + above)


# --- the step --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """Rates and shapes of a step; `live` says whether the prior stands in the margin."""

    live: bool
    lr_user: float
    lr_item: float
    decay_user: float
    decay_item: float
    exponent: float
    alpha: float
    opponent: float = 0.0
    shrink: float = 0.0


LIVE = Recipe(
    True,
    lr_user=0.45,
    lr_item=0.5,
    decay_user=30.0,
    decay_item=100.0,
    exponent=0.6,
    alpha=4.0,
    opponent=1.5,
    shrink=1.0,
)
LEVELS = (0.0, 0.6)  # where a user's levels start
LEVEL_ONE = 1 << 16  # 1.0 on the grid of levels


def paper(lr: float) -> Recipe:
    """The paper's plain step."""
    return Recipe(False, lr_user=lr, lr_item=lr, decay_user=0.0, decay_item=0.0, exponent=1.0, alpha=4.0)


def follow(level: int, score: float) -> int:
    """A level, on its grid, after it has gone a fifth of the way to a score; scores beyond 1000 count as 1000."""
    return level + round(0.2 * (max(-1000.0, min(1000.0, score)) * LEVEL_ONE - level))


def rate(start: float, decay: float, n: int) -> float:
    """A rate that falls with a count; decay 0 is none."""
    return start / math.sqrt(1.0 + max(0, n) / decay) if decay else start


@dataclass
class User:
    """A user's row, how often it has moved, and its levels on their grid, less where they start."""

    row: Row
    moved: int = 0
    low: int = 0
    high: int = 0

    def levels(self) -> tuple[float, float]:
        """The scores of the virtual negative and the virtual positive."""
        return LEVELS[0] + self.low / LEVEL_ONE, LEVELS[1] + self.high / LEVEL_ONE


class Model:
    """Users and items that learn block by block."""

    def __init__(self, recipe: Recipe, items: Items, users: dict[int, User]) -> None:
        self.recipe, self.items, self.users = recipe, items, users

    def rows(self, block: Block) -> list[Row]:
        """The block's item rows as numbers."""
        return [[x / ONE for x in self.items.get(key).row] for key in block.items]

    def priors(self, block: Block) -> list[float]:
        """The item priors of now."""
        p0 = (self.items.clicked + 1.0) / (self.items.clicked + self.items.shown + 2.0)
        return [prior(self.items.get(key), p0, self.recipe.alpha) for key in block.items]

    def scores(self, block: Block, u: Sequence[float]) -> list[float]:
        """What the block's items score for a user row."""
        extras = self.priors(block) if self.recipe.live else [0.0] * len(block.items)
        return [dot(u, v) + extra for v, extra in zip(self.rows(block), extras, strict=True)]

    def judge(self, block: Block, u: Sequence[float]) -> list[float]:
        """The progressive sums of one block: 1, then loss, accuracy and rank of the model, then of the prior alone."""
        mine, base = judged(self.scores(block, u), block.negatives), judged(self.priors(block), block.negatives)
        return [1.0, *mine, *base]

    def pulls(self, block: Block, u: Sequence[float]) -> list[float]:
        """What pulls each item of the block toward u (positives) or away from it (negatives)."""
        levels = self.users[block.user].levels() if block.user in self.users else LEVELS
        return pulls(self.scores(block, u), block.weights, block.negatives, self.recipe, levels)

    def coefficients(self, block: Block, u: Sequence[float]) -> list[float]:
        """What each item of the block moves by, in units of u."""
        found = []
        slower = 1.0 + self.recipe.shrink * dot(u, u)
        for key, a in zip(block.items, self.pulls(block, u), strict=True):
            item = self.items.get(key)
            pace = rate(self.recipe.lr_item, self.recipe.decay_item, item.updates) / slower
            found.append(cut(pace * a, u, item.row))
        return found

    def learn(self, block: Block, u: Sequence[float], *, add: bool, move: bool) -> None:
        """One SGD step: items by coef·u where `add`, the user's row by Σ a·v where `move`, all from the old values."""
        user, rows, a, scores = self.users[block.user], self.rows(block), self.pulls(block, u), self.scores(block, u)
        if add:
            block.u, block.coefs = list(u), self.coefficients(block, u)
            self.items.fold(block)
        if move:
            pace = rate(self.recipe.lr_user, self.recipe.decay_user, user.moved)
            pulled = [math.fsum(a[place] * v[k] for place, v in enumerate(rows)) for k in range(len(u))]
            user.row = [max(-LIMIT, min(LIMIT, x + pace * by)) for x, by in zip(user.row, pulled, strict=True)]
            user.moved += 1
            if self.recipe.opponent:
                lost, won = scores[: block.negatives], scores[block.negatives :]
                if lost:
                    user.low = follow(user.low, math.fsum(lost) / len(lost) - LEVELS[0])
                user.high = follow(user.high, math.fsum(won) / len(won) - LEVELS[1])


def cut(coef: float, u: Sequence[float], row: Sequence[int]) -> float:
    """The part of a coefficient that moves no coordinate by more than 64, nor beyond ±32 (nor on, if it lies there)."""
    share = 1.0
    for x, word in zip(u, row, strict=True):
        move, at = coef * x, word / ONE
        room = min(2 * LIMIT, max(0.0, LIMIT - at if move > 0 else LIMIT + at))
        if abs(move) > room:
            share = min(share, room / abs(move))
    return coef * share
