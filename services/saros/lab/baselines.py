"""What a recommender without any learning of tastes achieves: the baselines a model has to beat.

`item positive rate` ranks by the share of users who liked an item, as the logit of that share with the live prior's
smoothing. It is the one to beat: not personal, and better than most published rows. `popularity` ranks by clicks.
Both count each user's items once, from the train part alone.
"""

from typing import Any

import numpy as np

from saros.core.jit import F64, I64
from saros.lab.log import Log, ToRank, items_to_rank
from saros.lab.model import METRICS, Model, evaluate, ranking_json
from saros.lab.replay import prior_of

# The paper's own rows: test loss, MAP@5, MAP@10, NDCG@5, NDCG@10, after an hour of training.
PAPER = {
    "ml-1m": {
        "paper, SAROS": (0.608, 0.837, 0.808, 0.788, 0.874),
        "paper, BPR": (0.645, 0.836, 0.807, 0.786, 0.873),
    }
}


def measure(name: str, train: Log, test: ToRank) -> dict[str, dict[str, Any]]:
    """Return the rows to stand beside a run on this data set."""
    clicked, shown = clicked_and_shown(train)
    by_rate, by_clicks = _by_item(train, prior_of(clicked, shown)), _by_item(train, clicked.astype(np.float64))
    rows = {
        "item positive rate": ranking_json(evaluate(by_rate, test)),
        # Clicks are no log-odds: a loss of them would say nothing.
        "popularity": {**ranking_json(evaluate(by_clicks, test)), "loss": None},
    }
    for row, (loss, *values) in PAPER.get(name, {}).items():
        rows[row] = {"loss": loss, "authors": dict(zip(METRICS, values, strict=True)), "standard": None}
    return rows


def clicked_and_shown(train: Log) -> tuple[I64, I64]:
    """Return how many users clicked each item, and how many had it and did not."""
    pairs, items = items_to_rank(train), len(train.items)
    clicked = np.bincount(pairs.item[pairs.label == 1], minlength=items)
    return clicked, np.bincount(pairs.item, minlength=items) - clicked


def _by_item(train: Log, scores: F64) -> Model:
    """Return a model that scores items the same for everybody."""
    empty = np.zeros((1, 0), np.float32)
    return Model(np.broadcast_to(empty, (len(train.users), 0)), np.broadcast_to(empty, (len(train.items), 0)), scores)
