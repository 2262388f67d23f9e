"""A slow, obvious twin of saros.lab.passes: numpy in float64, one block after the other, written from the formula."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.naive.step import logistic_loss, sigmoid

LIMIT = 32.0

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """A block of a table: indices of its user and items, and how it stands at the end."""

    user: int
    number: int
    sign: int
    negatives: list[int]
    positives: list[int]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for i in self.positives for j in self.negatives]


@dataclass(frozen=True)
class Recipe:
    """The numbers of a pass; `alpha` 0 is no prior, `anchor` the part of the start row that users are drawn to."""

    lr_user: float
    lr_item: float
    mu_user: float
    mu_item: float
    exponent: float
    decay_user: float
    alpha: float
    power: float
    anchor: float


def eq3(block: Block, users: Matrix, items: Matrix, mu: float) -> float:
    """The paper's loss of a block: the mean over its pairs of the logistic loss and the squares of all three rows."""
    u = users[block.user]
    losses = [
        logistic_loss(u @ (items[i] - items[j])) + mu * (u @ u + items[i] @ items[i] + items[j] @ items[j])
        for i, j in block.pairs
    ]
    return math.fsum(losses) / len(losses)


class Passes:
    """Rows and counters that learn pass by pass."""

    def __init__(self, recipe: Recipe, blocks: list[Block], users: Matrix, items: Matrix) -> None:
        counting = [b for b in blocks if b.sign == 1 and b.pairs]
        self.recipe, self.blocks = recipe, sorted(counting, key=lambda b: (b.user, b.number))
        self.users, self.items, self.start = users.copy(), items.copy(), users.copy()
        self.clicked, self.shown = np.zeros(len(items)), np.zeros(len(items))
        self.done = 0

    def prior(self, clicked: Matrix, shown: Matrix) -> Matrix:
        """π of all items, given their counters; p0 is always that of all that was counted."""
        if self.recipe.alpha == 0:
            return np.zeros(len(clicked))
        p0 = (self.clicked.sum() + 1) / (self.clicked.sum() + self.shown.sum() + 2)
        odds: Matrix = (clicked + self.recipe.alpha * p0) / (shown + self.recipe.alpha * (1 - p0))
        return np.log(odds)

    def go(self) -> None:
        """One pass."""
        for place, block in enumerate(self.blocks):
            earlier = sum(b.user == block.user for b in self.blocks[:place])
            clicked, shown = self.clicked.copy(), self.shown.copy()
            if self.done > 0:
                clicked[block.positives] -= 1
                shown[block.negatives] -= 1
            self.step(block, earlier, self.prior(clicked, shown))
            if self.done == 0:
                self.clicked[block.positives] += 1
                self.shown[block.negatives] += 1
        self.done += 1

    def step(self, block: Block, earlier: int, prior: Matrix) -> None:
        """Go down the gradient of one block: the sums over its pairs, pair by pair."""
        r, u = self.recipe, self.users[block.user].copy()
        scores = self.items @ u + prior
        slope_u, slope_v = np.zeros_like(u), np.zeros_like(self.items)
        mass_u, mass_v = 0.0, np.zeros(len(self.items))  # how many times a row stands in the regularisation
        for i, j in block.pairs:
            weight = len(block.pairs) ** -r.exponent
            g = weight * sigmoid(scores[j] - scores[i])
            slope_u += g * (self.items[i] - self.items[j])
            slope_v[i] += g * u
            slope_v[j] -= g * u
            mass_u += weight
            mass_v[[i, j]] += weight
        fall = (1 + self.done) ** -r.power
        rate_user = r.lr_user * fall / (math.sqrt(1 + earlier / r.decay_user) if r.decay_user else 1.0)
        rate_item = r.lr_item * fall
        shrink_u = min(1.0, 2 * rate_user * r.mu_user * mass_u)
        shrink_v = np.minimum(1.0, 2 * rate_item * r.mu_item * mass_v)[:, None]
        aim = r.anchor * self.start[block.user]
        self.users[block.user] = np.clip(u + rate_user * slope_u - shrink_u * (u - aim), -LIMIT, LIMIT)
        self.items = np.clip(self.items + rate_item * slope_v - shrink_v * self.items, -LIMIT, LIMIT)


def fit(
    recipe: Recipe, blocks: list[Block], users: Matrix, items: Matrix, passes: int
) -> list[tuple[Matrix, Matrix, Matrix]]:
    """After each pass: the means of the rows at the ends of the passes so far, and the prior of all counted."""
    learned = Passes(recipe, blocks, users, items)
    ends: list[tuple[Matrix, Matrix]] = []
    found = []
    for _ in range(passes):
        learned.go()
        ends.append((learned.users.copy(), learned.items.copy()))
        means = [np.mean(np.stack(rows), axis=0) for rows in zip(*ends, strict=True)]
        found.append((means[0], means[1], learned.prior(learned.clicked, learned.shown)))
    return found
