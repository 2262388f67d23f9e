"""What is popular of late: the positive rate of each item, newer days counting more.

    rate = (C + α·p0) / (C + S + α),   C = Σ clicked·2^(-age/half-life), S likewise of shown

over the daily buckets, age in days before the newest folded day. No clock has a say: a log that stands still, or is
replayed, gives the same list. p0 is the one the catalogue has in force.
"""

import math
from collections.abc import Sequence

import numpy as np

from saros.core.best import Best, arrange, offer
from saros.core.catalogue import Catalogue
from saros.core.items import DAYS, ItemArrays, Items
from saros.core.jit import F32, F64, I32, U16, U64, as_int, kernel
from saros.core.lanes import LANES, load
from saros.core.masks import Mask, as_slots, combine
from saros.core.tiles import TILE_BITS, bits, lowest_bit
from saros.core.topk import Found

HALF_LIFE_DAYS = 3.0


@kernel
def _fill_rates(
    items: ItemArrays, first: int, end: int, day: int, weights: F64, p0: float, prior: float, rates: F32
) -> None:
    """Fill the rates of the slots [first, end); weights: float64[8] by age."""
    for slot in range(first, end):
        clicked, shown = 0.0, 0.0
        for age in range(DAYS):
            place = (day - age) & (DAYS - 1)
            if items.bucket_day[slot, place] == day - age:
                clicked += weights[age] * items.bucket_clicked[slot, place]
                shown += weights[age] * items.bucket_shown[slot, place]
        # A take-back that comes before its block leaves less than nothing for a while.
        clicked, shown = max(0.0, clicked), max(0.0, shown)
        rates[slot] = (clicked + prior * p0) / (clicked + shown + prior)


@kernel
def _best_of(scores: F32, keys: U64, allowed: U16, best: Best) -> int:
    """Fill `best` from a column of scores (float32[16·t]); return how many were found."""
    size = 0
    for tile in range(allowed.shape[0]):
        live, at = as_int(allowed[tile]), tile << TILE_BITS
        if live != 0 and size == best.score.shape[0]:
            live &= ~bits(load(scores, 0, at) < best.score[0])
        while live != 0:
            slot = at + lowest_bit(live)
            live &= live - 1
            size = offer(best, size, scores[slot], keys[slot], slot)
    arrange(best, size)
    return size


def newest_day(items: Items) -> int:
    """Return the newest day that was folded, 0 where none was."""
    return int(items.arrays.bucket_day[: items.table.size].max(initial=0))


def new_rates(catalogue: Catalogue) -> F32:
    """Return room for the rate of each slot (float32[n], n as in the catalogue)."""
    return np.zeros(LANES * len(catalogue.arrays.known), np.float32)


def fill_rates(
    catalogue: Catalogue,
    rates: F32,
    first: int,
    end: int,
    day: int,
    prior: float,
    half_life_days: float = HALF_LIFE_DAYS,
) -> bool:
    """Fill the rates of the slots [first, end), at a day that no folded day lies beyond; True where none is left."""
    if not (math.isfinite(prior) and prior > 0 and half_life_days > 0):
        raise ValueError("the prior's weight and the half-life must be above 0")
    weights = np.array([0.5 ** (age / half_life_days) for age in range(DAYS)])
    size = min(catalogue.items.table.capacity, len(rates))
    _fill_rates(catalogue.items.arrays, first, min(end, size), day, weights, catalogue.p0, prior, rates)
    return end >= size


def positive_rates(catalogue: Catalogue, day: int, prior: float, half_life_days: float = HALF_LIFE_DAYS) -> F32:
    """Return the rate of each slot at a day that no folded day lies beyond."""
    rates = new_rates(catalogue)
    fill_rates(catalogue, rates, 0, len(rates), day, prior, half_life_days)
    return rates


def popular(
    catalogue: Catalogue,
    rates: F32,
    k: int,
    *,
    within: Sequence[Mask] = (),
    without: Sequence[Mask] = (),
    exclude: I32 | Sequence[int] = (),
) -> Found:
    """Return the k slots of the highest rates, ties by key; masks as in `top_k`.

    Rates may be kept for a while: an item that has come since has the rate of a new one, or none if there is no room.
    """
    if k < 0:
        raise ValueError(f"k must not be negative, not {k}")
    known = catalogue.arrays.known[: len(rates) // LANES]
    best = Best.empty(min(k, catalogue.items.table.size))
    allowed = combine(known, within, without, as_slots(exclude))
    size = _best_of(rates, catalogue.items.table.keys, allowed, best) if len(best.slot) else 0
    return Found(best.slot[:size], best.score[:size], 0, 0, 0)
