"""A learned model as plain arrays, and how well it ranks a test set."""

from typing import NamedTuple

import numpy as np

from saros.core.jit import F32, F64
from saros.core.ranking import Ranking, rank
from saros.lab.log import Test


class Model(NamedTuple):
    """Rows by user and item index; an item's score for a user is u·v + its prior."""

    users: F32  # [users, d]
    items: F32  # [items, d]
    prior: F64  # [items]

    def scores(self, test: Test) -> F64:
        """Return the score of every pair of the test set."""
        pairs = np.einsum("nd,nd->n", self.users[test.user], self.items[test.item], dtype=np.float64)
        return pairs + self.prior[test.item]


def evaluate(model: Model, test: Test) -> Ranking:
    """Return both kinds of metrics and the test loss."""
    return rank(model.scores(test), test.label, test.starts)
