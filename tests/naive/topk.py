"""Slow, obvious twin of saros.core.catalogue, topk and popular: every item scored, one full sort.

Scores are float32 to the bit: the order of every sum is the one that saros.core.lanes writes down.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
LANES = 16
DAYS = 8
DOWN = np.float32(2.0**-24)


def in_lanes(products: F32) -> F32:
    """The sums of products [..., d]: sixteen sums side by side, halves onto halves, then what is left, one by one."""
    whole = products.shape[-1] // LANES * LANES
    sums = np.zeros((*products.shape[:-1], LANES), np.float32)
    for at in range(0, whole, LANES):
        sums = sums + products[..., at : at + LANES]
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    found = sums[..., 0]
    for k in range(whole, products.shape[-1]):
        found = found + products[..., k]
    return np.asarray(found, np.float32)


def dots(u: F32, words: I32) -> F32:
    """u·v of rows [n, d] on the grid of 2^-24."""
    return in_lanes(words.astype(np.float32) * u) * DOWN


def prior(clicked: int, shown: int, weight: float, p0: float) -> np.float32:
    """The item prior; there is none where it has no weight."""
    if weight == 0:
        return np.float32(0.0)
    return np.float32(math.log((max(0, clicked) + weight * p0) / (max(0, shown) + weight * (1.0 - p0))))


def unbiased(words: I32) -> F32:
    """Rows as numbers, coordinate 0 being 0, padded to whole lanes."""
    rows = np.zeros((len(words), -(-words.shape[1] // LANES) * LANES), np.float32)
    rows[:, : words.shape[1]] = words.astype(np.float32) * DOWN
    rows[:, 0] = 0.0
    return rows


def inverses(words: I32) -> F32:
    """1/|v| of each row without coordinate 0, or 0."""
    squares = in_lanes(unbiased(words) ** 2)
    return np.array([1.0 / math.sqrt(square) if square > 0 else 0.0 for square in squares], np.float32)


def cosines(words: I32, slot: int) -> F32:
    """How like each row is to one of them, without coordinate 0; that one is brought to length 1 before."""
    u = (unbiased(words)[slot] * inverses(words)[slot])[: words.shape[1]]
    return dots(u, words) * inverses(words)


def best(scores: F32, keys: Sequence[int], slots: Iterable[int], k: int) -> list[int]:
    """The best k of some slots: a full sort by score, the highest first, then by key, the lowest first."""
    return sorted(slots, key=lambda slot: (-float(scores[slot]), keys[slot]))[:k]


def rate(
    buckets: Iterable[tuple[int, int, int]], day: int, p0: float, weight: float, half_life_days: float
) -> np.float32:
    """The decayed positive rate of an item, from (day, clicked, shown) of days."""
    clicked = shown = 0.0
    for then, clicks, views in sorted(buckets, reverse=True):
        if day - DAYS < then <= day:
            share = 0.5 ** ((day - then) / half_life_days)
            clicked += share * clicks
            shown += share * views
    clicked, shown = max(0.0, clicked), max(0.0, shown)
    return np.float32((clicked + weight * p0) / (clicked + shown + weight))
