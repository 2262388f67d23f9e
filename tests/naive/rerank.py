"""Slow, obvious twin of saros.core.rerank: plain loops over plain numbers."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.naive.ids import splitmix64

F32 = NDArray[np.float32]
POOL = 8192
WORD = 2**64


def uniform(x: int) -> float:
    """A number between 0 and 1 from 64 bits."""
    return ((splitmix64(x % WORD) >> 12) + 0.5) / 2**52


def cosine(one: F32, other: F32) -> float:
    """The sum of products of two rows of length 1, one after the other."""
    total = 0.0
    for a, b in zip(one.tolist(), other.tolist(), strict=True):
        total += a * b
    return total


def marginal(units: F32, scores: F32, weight: float, k: int) -> list[int]:
    """Maximal marginal relevance: each time all that is left is weighed anew."""
    worth = [float(score) for score in scores]
    low, span = min(worth, default=0.0), max(worth, default=0.0) - min(worth, default=0.0)
    worth = [(one - low) / span if span > 0 else 1.0 for one in worth]
    chosen: list[int] = []
    while len(chosen) < min(k, len(worth)):
        left = [place for place in range(len(worth)) if place not in chosen]

        def value(place: int) -> float:
            near = max((cosine(units[place], units[other]) for other in chosen), default=0.0)
            return (1.0 - weight) * worth[place] - weight * near

        chosen.append(max(left, key=lambda place: (value(place), -place)))
    return chosen


def draw(updates: Sequence[int], keys: Sequence[int], allowed: Sequence[int], count: int, seed: int) -> list[int]:
    """The items with the highest ln(u)/w, w = 1/(1 + updates), of those that a draw looks at: evenly spread."""
    there, looks, ascending = len(allowed), min(len(allowed), POOL), sorted(allowed)
    first = splitmix64(seed) % there if there else 0
    looked = [ascending[(j * there + first) // looks] for j in range(looks)]
    luck = {slot: np.float32(math.log(uniform(seed ^ keys[slot])) * (1.0 + max(0, updates[slot]))) for slot in looked}
    return sorted(luck, key=lambda slot: (-luck[slot], keys[slot]))[:count]


def mix(best: Sequence[int], drawn: Sequence[int], share: float, seed: int, k: int) -> list[tuple[int, int]]:
    """The list with places given away: (item, whether it was drawn)."""
    ours, theirs, found = list(best), list(drawn), list[tuple[int, int]]()
    for rank in range(k):
        if uniform(seed + rank) < share and theirs:
            found.append((theirs.pop(0), 1))
        elif ours:
            found.append((ours.pop(0), 0))
        else:
            break
    return found


def nearest(units: F32, others: F32) -> list[tuple[int, float]]:
    """For each row the first of the nearest others; -1 where there is none."""
    found = []
    for row in units:
        near = [cosine(row, other) for other in others]
        place = near.index(max(near)) if near else -1
        found.append((place, near[place] if near else -2.0))
    return found
