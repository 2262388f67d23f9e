"""Answers: from a wish, a user and the items as they are now to a list.

Where an answer comes from: the user's row if it has moved ("model"); else the clicks of the session that came with the
wish ("session"); else what is popular. A user is "cold" until it has closed a block.
"""

from collections.abc import Sequence

import numpy as np
import orjson

from saros.api.people import NOBODY, Party, Person
from saros.api.plan import Wish
from saros.api.shelf import Shelf
from saros.api.world import World
from saros.core import topk
from saros.core.catalogue import logit
from saros.core.guest import EVENTS_MAX
from saros.core.jit import F32, I32
from saros.core.masks import combine
from saros.core.popular import popular as popular_items
from saros.core.tiles import TILE_BITS
from saros.core.topk_many import FoundMany, top_k_many

Items = list[tuple[str, float]]
Notes = list[dict[str, object]] | None  # what else there is to say of each item
Best = tuple[Items | bytes, str, Notes]  # bytes: items that are JSON already
_NONE: I32 = np.zeros(0, np.int32)


def row_of(world: World, wish: Wish, person: Person) -> tuple[F32 | None, str]:
    """Return the row that items are scored with, and where it came from; none: what is popular has to do."""
    # A row that is no row (a store may hold anything) counts as none.
    if person.row is not None and (np.abs(person.row) <= topk.USER_MAX).all():
        return person.row, "model"
    session = wish.session[-EVENTS_MAX:]
    if any(clicked for _, clicked in session):
        keys = world.shelf.keys_of(item for item, _ in session)
        return world.guest.row(keys, [clicked for _, clicked in session]), "session"
    return None, "popular"


def excluded(world: World, wish: Wish, person: Person) -> I32:
    """Return the slots that a wish does not want."""
    shelf = world.shelf
    slots = [shelf.slots_of(wish.exclude)] if wish.exclude else []
    if wish.exclude_seen:
        clicked = [item for item, clicked in wish.session if clicked]
        slots += [shelf.slots_of(clicked)] if clicked else []
        slots += [shelf.seen(person.seen)] if len(person.seen) else []
    found: I32 = np.concatenate(slots) if slots else _NONE
    return found[found >= 0]


def best(world: World, wish: Wish, person: Person) -> Best:
    """Return the best items for a wish, and where they came from."""
    shelf, (row, source) = world.shelf, row_of(world, wish, person)
    within, without, exclude = shelf.category(wish.category), shelf.withheld(), excluded(world, wish, person)
    if row is None:
        found = popular_items(shelf.catalogue, shelf.rates, wish.k, within=within, without=without, exclude=exclude)
    else:
        found = topk.top_k(shelf.catalogue, row, wish.k, within=within, without=without, exclude=exclude)
    return named(world, found), source, None


def best_of(world: World, wishes: Sequence[Wish], party: Party, places: Sequence[int]) -> list[Best]:
    """Return the best items for each wish, and where they came from. Its user stands in the party at its place, or -1.

    Those with a row of their own are answered together, as far as they want the same of the catalogue. Who wants more
    than the best (`saros.api.extras`) gets nothing here.
    """
    found: list[Best] = [([], "", None)] * len(wishes)
    alike: dict[tuple[int, str, bool], list[int]] = {}
    moved = party.moved()
    for k, (wish, place) in enumerate(zip(wishes, places, strict=True)):
        if wish.extras is not None:
            continue
        if place >= 0 and moved[place] and not wish.exclude and not wish.session and wish.k:
            alike.setdefault((wish.k, wish.category, wish.exclude_seen), []).append(k)
        else:
            found[k] = best(world, wish, party.person(place) if place >= 0 else NOBODY)
    for (size, category, exclude_seen), which in alike.items():
        rows = np.array([places[k] for k in which], np.int32)
        for k, items in zip(which, _best_alike(world, party, rows, size, category, exclude_seen), strict=True):
            found[k] = (items, "model", None) if items is not None else best(world, wishes[k], party.person(places[k]))
    return found


def _best_alike(
    world: World, party: Party, rows: I32, k: int, category: str, exclude_seen: bool
) -> list[bytes | None]:  # fmt: skip
    """Return the best k items for users by their own rows, as JSON; None: by this row nobody can tell."""
    shelf = world.shelf
    allowed = combine(shelf.catalogue.arrays.known, shelf.category(category), shelf.withheld(), _NONE)
    exclude, starts = shelf.seen_by(party.users, rows) if exclude_seen else (_NONE, np.zeros(len(rows) + 1, np.int64))
    return _listed(shelf, top_k_many(shelf.catalogue, party.users.rows, rows, k, allowed, exclude, starts))


def _listed(shelf: Shelf, found: FoundMany) -> list[bytes | None]:
    """Return what was found for users as `items_of` has it, in JSON: all scores are written at once, and ids seldom."""
    if not found.scores.size:
        return [b"[]" if size >= 0 else None for size in found.sizes.tolist()]
    scores = orjson.dumps(found.scores.astype(np.float64), option=orjson.OPT_SERIALIZE_NUMPY)[2:-2].split(b"],[")
    ranks = [b',"rank":%d},' % rank for rank in range(1, found.scores.shape[1] + 1)]
    listed = list[bytes | None]()
    for slots, written, size in zip(found.slots.tolist(), scores, found.sizes.tolist(), strict=True):
        if size < 0:
            listed.append(None)
            continue
        parts = [b""] * (3 * size)
        parts[0::3], parts[1::3], parts[2::3] = shelf.begun(slots[:size]), written.split(b",")[:size], ranks[:size]
        listed.append(b"[%b]" % b"".join(parts)[:-1])
    return listed


def named(world: World, found: topk.Found) -> Items:
    """Return what was found, with the ids of items."""
    return list(zip(world.shelf.texts(found.slots.tolist()), found.scores.tolist(), strict=True))


def ranked(world: World, wish: Wish, person: Person, candidates: Sequence[str]) -> tuple[Items, str]:
    """Return candidates in order, and what they were scored with.

    Candidates that are hidden, expired, excluded or not of the category are left out. One that the catalogue does not
    know has the prior of a new item and stands among the others by it; of its categories nothing is known.
    """
    shelf, (row, source) = world.shelf, row_of(world, wish, person)
    ids = list(dict.fromkeys(candidates))
    keys = shelf.keys_of(ids)
    slots = shelf.replica.items.table.find(keys)
    allowed = combine(
        shelf.catalogue.arrays.known, shelf.category(wish.category), shelf.withheld(), excluded(world, wish, person)
    )
    inside = slots >= 0
    inside[inside] = (allowed[slots[inside] >> TILE_BITS] >> (slots[inside] & 15).astype(np.uint16)) & 1 != 0
    scores = np.full(len(ids), _new_item(world, row), np.float32)
    if row is None:
        known = inside & (slots < len(shelf.rates))
        scores[known] = shelf.rates[slots[known]]
    else:
        scores[inside] = topk.scores_of(shelf.catalogue, row, slots[inside])
    unwanted = set(wish.exclude)
    unknown = np.array(
        [
            slot < 0 and not wish.category and each not in unwanted and not shelf.is_withheld(key)
            for slot, each, key in zip(slots.tolist(), ids, keys.tolist(), strict=True)
        ],
        np.bool_,
    )
    kept = np.flatnonzero(inside | unknown)
    order = kept[np.lexsort((keys[kept], -scores[kept]))][: wish.k]
    return [(ids[k], float(scores[k])) for k in order.tolist()], source


def _new_item(world: World, row: F32 | None) -> float:
    """Return the score of an item that nobody has seen: its prior, or its rate where rates are compared."""
    catalogue = world.shelf.catalogue
    if row is None:
        return catalogue.p0
    return logit(catalogue.p0) if world.shelf.has_prior else 0.0


def similar(world: World, item_id: str, k: int, exclude: Sequence[str], category: str) -> Items | None:
    """Return the items most similar to another; None where that is not in the catalogue."""
    shelf = world.shelf
    slot = int(shelf.slots_of([item_id])[0])
    if slot < 0:
        return None
    out = shelf.slots_of(exclude) if exclude else _NONE
    within, without = shelf.category(category), shelf.withheld()
    return named(world, topk.similar(shelf.catalogue, slot, k, within=within, without=without, exclude=out[out >= 0]))


def popular(world: World, k: int, category: str) -> Items:
    """Return what is popular."""
    shelf = world.shelf
    within, without = shelf.category(category), shelf.withheld()
    return named(world, popular_items(shelf.catalogue, shelf.rates, k, within=within, without=without))
