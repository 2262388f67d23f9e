"""The best k of many: a heap whose root is the worst of them, ordered by score, then by key.

A higher score is better; of two equal ones the lower key is. So there is one right answer, whatever the order in which
candidates come. Scores are never NaN.
"""

from typing import NamedTuple

import numpy as np

from saros.core.jit import F32, I32, U64, merged_kernel


class Best(NamedTuple):
    """Room for k candidates; the first `size` of them stand there, each no better than its children 2i + 1, 2i + 2."""

    score: F32  # [k]
    key: U64  # [k]
    slot: I32  # [k]

    @classmethod
    def empty(cls, k: int) -> "Best":
        """Return room for k."""
        return cls(np.empty(k, np.float32), np.empty(k, np.uint64), np.empty(k, np.int32))


@merged_kernel
def _beats(score: np.float32, key: np.uint64, best: Best, i: int) -> bool:
    """True if a candidate comes before place i."""
    return score > best.score[i] or (score == best.score[i] and key < best.key[i])


@merged_kernel
def _put(best: Best, i: int, score: np.float32, key: np.uint64, slot: int) -> None:
    best.score[i], best.key[i], best.slot[i] = score, key, slot


@merged_kernel
def _sink(best: Best, size: int, score: np.float32, key: np.uint64, slot: int) -> None:
    """Put a candidate in the root's place, and down to where it belongs."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _beats(best.score[child], best.key[child], best, child + 1):
            child += 1
        if not _beats(score, key, best, child):
            break
        _put(best, i, best.score[child], best.key[child], best.slot[child])
        i = child
    _put(best, i, score, key, slot)


@merged_kernel
def offer(best: Best, size: int, score: np.float32, key: np.uint64, slot: int) -> int:
    """Keep a candidate if it is among the best; return how many are kept now."""
    if size == best.score.shape[0]:
        if size > 0 and _beats(score, key, best, 0):
            _sink(best, size, score, key, slot)
        return size
    i = size
    while i > 0 and not _beats(score, key, best, (i - 1) >> 1):
        parent = (i - 1) >> 1
        _put(best, i, best.score[parent], best.key[parent], best.slot[parent])
        i = parent
    _put(best, i, score, key, slot)
    return size + 1


@merged_kernel
def arrange(best: Best, size: int) -> None:
    """Put the kept ones in order, the best first."""
    for end in range(size - 1, 0, -1):
        score, key, slot = best.score[end], best.key[end], best.slot[end]
        _put(best, end, best.score[0], best.key[0], best.slot[0])
        _sink(best, end, score, key, slot)
