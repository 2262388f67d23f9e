"""More than the best items: uncertain ones mixed in, near doubles moved down, and what scores are made of.

A side branch of `saros.api.answers`, for wishes that ask for it. What is drawn is a function of the seed and of the
model as it is; an item that is hidden, expired or deleted is in none of it, not even as a click that stands nearest.
"""

import numpy as np

from saros.api.answers import Best, Notes, excluded, row_of
from saros.api.people import Person
from saros.api.plan import Extras, Wish
from saros.api.world import World
from saros.core import rerank, topk
from saros.core.ids import hash_texts
from saros.core.jit import F32, I32, U8
from saros.core.masks import combine
from saros.core.popular import popular as popular_items

DEEPER = 4  # so many times the items that are asked for are looked at for diversity


def refined(world: World, wish: Wish, extras: Extras, person: Person) -> Best:
    """Return items for a wish, where they came from, and what else there is to say of each."""
    shelf, (row, source) = world.shelf, row_of(world, wish, person)
    catalogue, within, without = shelf.catalogue, shelf.category(wish.category), shelf.withheld()
    exclude, k = excluded(world, wish, person), wish.k * (DEEPER if extras.diversity else 1)
    if row is None:
        found = popular_items(catalogue, shelf.rates, k, within=within, without=without, exclude=exclude)
    else:
        found = topk.top_k(catalogue, row, k, within=within, without=without, exclude=exclude)
    slots = found.slots
    if extras.diversity:
        units = rerank.units_of(catalogue, slots)
        slots = slots[rerank.diversify(units, found.scores, extras.diversity, wish.k)]
    drawn: U8 = np.zeros(len(slots), np.uint8)
    if extras.explore:
        seed = int(hash_texts(world.hash_key, [extras.seed])[0])
        allowed = combine(catalogue.arrays.known, within, without, np.concatenate([exclude, slots]))
        others = rerank.draw(catalogue, allowed, wish.k, seed)
        slots, drawn = rerank.mix(slots, others, extras.explore, seed, wish.k)
    scores = _scores(world, row, slots)
    items = list(zip(shelf.texts(slots.tolist()), scores.tolist(), strict=True))
    return items, source, _notes(world, wish, extras, person, row, slots, drawn)


def _scores(world: World, row: F32 | None, slots: I32) -> F32:
    """Return the scores of items: to the bit those of a plain answer."""
    if row is not None:
        return topk.scores_of(world.shelf.catalogue, row, slots)
    rates = world.shelf.rates
    # An item that has come since the rates were made is drawn now and then.
    scores = np.full(len(slots), world.shelf.catalogue.p0, np.float32)
    known = slots < len(rates)
    scores[known] = rates[slots[known]]
    return scores


def _notes(world: World, wish: Wish, extras: Extras, person: Person, row: F32 | None, slots: I32, drawn: U8) -> Notes:
    notes: list[dict[str, object]] = [{} for _ in slots]
    if extras.explore:
        for note, one in zip(notes, drawn.tolist(), strict=True):
            note["explored"] = bool(one)
    if extras.explain:
        for note, why in zip(notes, _reasons(world, wish, person, row, slots), strict=True):
            note["explain"] = why
    return notes if extras.explore or extras.explain else None


def _reasons(world: World, wish: Wish, person: Person, row: F32 | None, slots: I32) -> list[dict[str, object]]:
    """Return of each item what its score is made of, and which of the clicks that are known stands nearest."""
    shelf = world.shelf
    reasons: list[dict[str, object]]
    if row is None:
        reasons = [{"rate": score} for score in _scores(world, row, slots).tolist()]
    else:
        parts = rerank.parts_of(shelf.catalogue, row, slots)
        reasons = [
            {"prior": prior, "vector": vector}
            for prior, vector in zip(parts.prior.tolist(), parts.vector.tolist(), strict=True)
        ]
    clicked = shelf.slots_of(item for item, clicked in wish.session if clicked)
    clicks = np.unique(np.concatenate([clicked[clicked >= 0], shelf.seen(person.seen)]))
    clicks = clicks[shelf.served(clicks)]
    catalogue = shelf.catalogue
    which, cosines = rerank.nearest(rerank.units_of(catalogue, slots), rerank.units_of(catalogue, clicks))
    texts = shelf.texts(clicks.tolist())
    for reason, place, cosine in zip(reasons, which.tolist(), cosines.tolist(), strict=True):
        reason["nearest_click"] = {"item_id": texts[place], "similarity": cosine} if place >= 0 else None
    return reasons
