"""Progressive validation: every block is judged before it is learned, so each stream is its own test set.

Accuracy is the share of (clicked, not clicked) pairs in the right order, reciprocal rank that of the best clicked item;
ties count half. Beside the model stand two baselines that learn from the same blocks: the item positive rate, which the
step judges itself, and popularity, the number of clicks, judged here.
"""

import numpy as np

from saros.core.jit import F32, F64, I64, kernel
from saros.core.learner import Batch
from saros.core.scoring import (
    ACCURACY,
    BASE_ACCURACY,
    BASE_RECIPROCAL_RANK,
    BLOCKS,
    PROGRESSIVE,
    RECIPROCAL_RANK,
    judge,
    scratch,
)
from saros.core.settle import SCORE, Blocks

WINDOW = 10_000  # blocks
_POPULAR_ACCURACY, _POPULAR_RECIPROCAL_RANK = len(PROGRESSIVE) + 1, len(PROGRESSIVE) + 2
_COLUMNS = len(PROGRESSIVE) + 3


@kernel
def _judge_popularity(blocks: Blocks, clicks: I64, power: F32, sums: F64) -> None:
    """Judge each block by the clicks counted so far, then count its own; clicks: int64[slots], power: room for one."""
    for b in range(blocks.user.shape[0]):
        first, negatives = blocks.start[b], blocks.negatives[b]
        count = negatives + blocks.positives[b]
        if blocks.flags[b] & SCORE and blocks.positives[b] > 0:
            for k in range(count):
                slot = blocks.slots[first + k]
                power[k] = 1.0 if slot < 0 else 1.0 + clicks[slot]
            judge(power, negatives, count, sums, 0)
        for k in range(first + negatives, first + count):
            if blocks.sign[b] != 0:
                clicks[blocks.slots[k]] += blocks.sign[b]


class Progressive:
    """A watcher of batches that keeps sums by windows of so many blocks."""

    def __init__(self, items: int, widest: int, window: int = WINDOW) -> None:
        self._window = window
        self._windows = [np.zeros(_COLUMNS)]
        self._clicks, self._power = np.zeros(items, np.int64), scratch(widest, 1).power

    @property
    def left(self) -> int:
        """Blocks until the window is full: as an event closes at most one, so many events never run over its end."""
        return int(self._window - self._windows[-1][BLOCKS])

    def __call__(self, partition: int, batch: Batch) -> None:
        sums = self._windows[-1]
        sums[: len(PROGRESSIVE)] += batch.progressive.sum(axis=0)
        _judge_popularity(batch.blocks, self._clicks, self._power, sums[len(PROGRESSIVE) :])
        if self.left <= 0:
            self._windows.append(np.zeros(_COLUMNS))

    def windows(self) -> list[dict[str, float]]:
        """Return the means of each window, in order; the last one may be shorter."""
        return [_means(sums) for sums in self._windows if sums[BLOCKS] > 0]

    def total(self) -> dict[str, float]:
        """Return the means over all blocks."""
        return _means(np.sum(self._windows, axis=0))


def _means(sums: F64) -> dict[str, float]:
    means = sums / max(sums[BLOCKS], 1.0)
    return {
        "blocks": int(sums[BLOCKS]),
        "accuracy": float(means[ACCURACY]),
        "reciprocal_rank": float(means[RECIPROCAL_RANK]),
        "item_positive_rate_accuracy": float(means[BASE_ACCURACY]),
        "item_positive_rate_reciprocal_rank": float(means[BASE_RECIPROCAL_RANK]),
        "popularity_accuracy": float(means[_POPULAR_ACCURACY]),
        "popularity_reciprocal_rank": float(means[_POPULAR_RECIPROCAL_RANK]),
    }
