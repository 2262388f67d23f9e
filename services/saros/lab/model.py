"""A learned model as plain arrays, and how well it ranks a test set."""

from typing import Any, NamedTuple

import numpy as np

from saros.core.jit import F32, F64
from saros.core.ranking import Means, Ranking, rank
from saros.lab.log import ToRank

METRICS = ("map@5", "map@10", "ndcg@5", "ndcg@10")


class Model(NamedTuple):
    """Rows by user and item index; an item's score for a user is u·v + its prior."""

    users: F32  # [users, d]
    items: F32  # [items, d]
    prior: F64  # [items]

    def scores(self, test: ToRank) -> F64:
        """Return the score of every pair of the test set."""
        pairs: F64 = np.einsum("nd,nd->n", self.users[test.user], self.items[test.item], dtype=np.float64)
        return pairs + self.prior[test.item]


def evaluate(model: Model, test: ToRank) -> Ranking:
    """Return both kinds of metrics and the test loss."""
    return rank(model.scores(test), test.label, test.starts)


def ranking_json(ranking: Ranking) -> dict[str, Any]:
    """Return a ranking as plain values by name."""
    return {"loss": ranking.loss, "authors": _by_name(ranking.authors), "standard": _by_name(ranking.standard)}


def _by_name(means: Means) -> dict[str, float]:
    values = (means.map_at[5], means.map_at[10], means.ndcg_at[5], means.ndcg_at[10])
    return dict(zip(METRICS, values, strict=True))
