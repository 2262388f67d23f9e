"""What may be done to a list once the best items are found: others mixed in, near doubles moved down, and reasons.

None of it is part of a plain query. Rows are compared as `similar` does, by their cosine without coordinate 0; sums are
float64, one product after the other, so that a slow version comes to the same bits.

- Mixing in: a place of the list is given away with probability ε. Who gets it is drawn without replacement, the fewer
  updates the likelier: the weight of an item that n blocks have moved is 1/(1 + n). All draws come from one seed.
- Maximal marginal relevance: next comes the item with the highest (1 - λ)·relevance - λ·nearness, relevance being its
  score on a scale from 0 to 1 within the list, nearness the highest cosine to those that came before.
"""

import math
from typing import NamedTuple

import numpy as np

from saros.core.best import Best, arrange, offer
from saros.core.catalogue import Catalogue, CatalogueArrays, inverse_of, unpack_row
from saros.core.ids import splitmix64
from saros.core.items import UPDATES
from saros.core.jit import F32, F64, I32, U8, U16, U64, as_int, kernel
from saros.core.lanes import LANES
from saros.core.rowmath import dot_row
from saros.core.tiles import lowest_bit

POOL = 8192  # items that a draw looks at: all that are allowed, or as many as that, evenly spread over them
_NOTHING_YET = -2.0  # below every cosine


class Parts(NamedTuple):
    """What scores are made of: score = vector + prior, to the bit."""

    vector: F32
    prior: F32


@kernel
def uniform(x: np.uint64) -> float:
    """Return a number between 0 and 1, neither of them, from 64 bits."""
    return (np.float64(splitmix64(x) >> np.uint64(12)) + 0.5) * 2.0**-52


@kernel
def _give_away(seed: np.uint64, share: float, places: U8) -> None:
    """Mark the places of a list that are given away."""
    for rank in range(places.shape[0]):
        places[rank] = uniform(seed + np.uint64(rank)) < share


@kernel
def _draw(
    counters: I32, keys: U64, allowed: U16, counts: U8, count: int, looks: int, first: int, seed: np.uint64, best: Best
) -> int:
    """Fill `best` with the draw; return how many there are. The highest ln(u)/w are a draw by the weights w.

    counts: how many are allowed of each word, `count` of all. The j-th of `looks` items that it looks at is allowed
    item (j·count + first) // looks: with `first` drawn below `count`, each of them is as likely to be looked at.
    """
    found, looked, rank, wanted = 0, 0, 0, first // looks
    for tile in range(allowed.shape[0]):
        if rank + as_int(counts[tile]) <= wanted:
            rank += as_int(counts[tile])
            continue
        word = as_int(allowed[tile])
        while word:
            if rank == wanted:
                slot = tile * LANES + lowest_bit(word)
                luck = math.log(uniform(seed ^ keys[slot])) * (1.0 + max(0, counters[slot, UPDATES]))
                found = offer(best, found, np.float32(luck), keys[slot], slot)
                looked += 1
                wanted = (looked * count + first) // looks
            word &= word - 1
            rank += 1
    arrange(best, found)
    return found


@kernel
def _fill_units(rows: I32, slots: I32, v: F32, units: F32) -> None:
    """Fill units[k] with the row of a slot at length 1, coordinate 0 being 0; v is scratch."""
    for k in range(slots.shape[0]):
        unpack_row(rows, slots[k], v)
        inverse = inverse_of(v)
        units[k, 0] = 0.0
        for d in range(1, units.shape[1]):
            units[k, d] = v[0, d] * inverse


@kernel
def _cosine(units: F32, i: int, others: F32, j: int) -> float:
    total = 0.0
    for d in range(units.shape[1]):
        total += np.float64(units[i, d]) * np.float64(others[j, d])
    return total


@kernel
def _diversify(units: F32, relevance: F64, weight: float, near: F64, order: I32) -> None:
    """Fill `order` (as long as it is) with places of the list, greedily; near: float64[n] is scratch."""
    for k in range(near.shape[0]):
        near[k] = _NOTHING_YET
    for place in range(order.shape[0]):
        chosen, highest = -1, 0.0
        for k in range(relevance.shape[0]):
            if np.isnan(near[k]):
                continue  # taken
            worth = (1.0 - weight) * relevance[k] - (weight * near[k] if place > 0 else 0.0)
            if chosen < 0 or worth > highest:
                chosen, highest = k, worth
        order[place], near[chosen] = chosen, np.nan
        for k in range(relevance.shape[0]):
            if not np.isnan(near[k]):
                near[k] = max(near[k], _cosine(units, k, units, chosen))


@kernel
def _fill_nearest(units: F32, others: F32, which: I32, cosine: F32) -> None:
    """Fill for each row which of the others is nearest, and how near; -1 where there is none."""
    for k in range(units.shape[0]):
        which[k], highest = -1, _NOTHING_YET
        for j in range(others.shape[0]):
            here = _cosine(units, k, others, j)
            if here > highest:
                which[k], highest = j, here
        cosine[k] = highest


@kernel
def _fill_parts(c: CatalogueArrays, rows: I32, slots: I32, u: F32, vector: F32, prior: F32) -> None:
    for k in range(slots.shape[0]):
        vector[k], _ = dot_row(rows, slots[k], u)
        prior[k] = c.prior[slots[k]]


def units_of(catalogue: Catalogue, slots: I32) -> F32:
    """Return the rows of items at length 1, as cosines take them."""
    found = catalogue.checked(slots)
    units = np.zeros((len(found), catalogue.items.rules.dim), np.float32)
    _fill_units(catalogue.items.arrays.rows, found, np.zeros((1, catalogue.width), np.float32), units)
    return units


def draw(catalogue: Catalogue, allowed: U16, count: int, seed: int) -> I32:
    """Return up to so many of the allowed items, drawn by how few updates they have had."""
    counts = np.bitwise_count(allowed)
    there = int(counts.sum(dtype=np.int64))
    best = Best.empty(min(count, there))
    if not len(best.slot):
        return best.slot
    first = as_int(splitmix64(np.uint64(seed)) % np.uint64(there))
    keys, counters = catalogue.items.table.keys, catalogue.items.arrays.counters
    found = _draw(counters, keys, allowed, counts, there, min(there, POOL), first, np.uint64(seed), best)
    return best.slot[:found]


def mix(best: I32, drawn: I32, share: float, seed: int, k: int) -> tuple[I32, U8]:
    """Return up to k items: the best in order, but for places given away to those that were drawn; 1: it was drawn."""
    places = np.zeros(k, np.uint8)
    _give_away(np.uint64(seed), share, places)
    ours, theirs = iter(best.tolist()), iter(drawn.tolist())
    slots, marks = [], []
    for given_away in places.tolist():
        found = next(theirs, -1) if given_away else -1
        marks.append(int(found >= 0))
        found = found if found >= 0 else next(ours, -1)
        if found < 0:
            marks.pop()
            break
        slots.append(found)
    return np.array(slots, np.int32), np.array(marks, np.uint8)


def diversify(units: F32, scores: F32, weight: float, k: int) -> I32:
    """Return the places of up to k items of a list by maximal marginal relevance; `weight` is λ, from 0 to 1."""
    relevance = scores.astype(np.float64)
    span = float(relevance.max(initial=-np.inf) - relevance.min(initial=np.inf))
    relevance = (relevance - relevance.min()) / span if span > 0 else np.ones(len(scores))
    order = np.empty(min(k, len(scores)), np.int32)
    _diversify(units, relevance, weight, np.empty(len(scores)), order)
    return order


def nearest(units: F32, others: F32) -> tuple[I32, F32]:
    """Return which of the others is nearest to each row, the first of equals, and their cosine; -1: there is none."""
    which, cosine = np.empty(len(units), np.int32), np.empty(len(units), np.float32)
    _fill_nearest(units, others, which, cosine)
    return which, cosine


def parts_of(catalogue: Catalogue, u: F32, slots: I32) -> Parts:
    """Return what the scores of items are made of."""
    found = catalogue.checked(slots)
    parts = Parts(np.empty(len(found), np.float32), np.empty(len(found), np.float32))
    row = np.ascontiguousarray(u, np.float32).reshape(1, -1)
    _fill_parts(catalogue.arrays, catalogue.items.arrays.rows, found, row, *parts)
    return parts
