"""Synthetic data in the shape of ML-1M: who acts how often, and on which items.

In ML-1M (6,040 users, 3,706 items) an item's share falls with its rank r as (r + n/12)^-1.5, n being the number of
items, and the number of events of a user is log-normal with a σ of 1; both curves come within 9 % of the file's
(total variation). The same curves stand for other numbers of users and items. Blocks have one positive and 5 to 15
negatives. Everything is a function of the seed.
"""

import numpy as np

from saros.core import counts
from saros.core.events import CLICK, DAY_MS, IMPRESSION, NEGATIVE, Events, spans
from saros.core.gate import DECISIONS, LEARN
from saros.core.items import Items
from saros.core.jit import I32, I64, U64, line_zeros
from saros.core.ledger import NIL, Ledger
from saros.core.rows import live_rows
from saros.core.scoring import PROGRESSIVE, scratch
from saros.core.settle import ADD, MOVE, SCORE, Blocks
from saros.core.step import Work, live_step
from saros.core.users import Users

USERS, ITEMS = 6_040, 3_706
NEGATIVES_MIN, NEGATIVES_MAX = 5, 15
_HEAD = 12  # the bend of the popularity curve: a twelfth of the items
_START_MS = 20_000 * DAY_MS
_WEEK_MS = 7 * DAY_MS
_VISITS_A_WEEK = 20  # of one user: few come near the gate's upper bound, some pass it
_AGAIN_SHARE, _AGAIN_VISITS = 0.06, 120  # of a crowd's visits: those of users who come so often, more than any B
_CLICK_SHARE, _BURST = 0.575, 4  # of ML-1M: ratings of 4 and 5, and how many a user gives in a row


def keys(count: int, seed: int) -> U64:
    """Return so many keys, all different: a 64-bit number that is odd, times 1, 2, 3 …"""
    return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15 + 2 * seed)


def draw_items(rng: np.random.Generator, count: int, items: int) -> I32:
    """Return so many items by popularity; which are popular has nothing to do with their number."""
    bend = items / _HEAD
    least = (1.0 + items / bend) ** -0.5
    rank = bend * ((1.0 - rng.random(count) * (1.0 - least)) ** -2.0 - 1.0)
    popular = np.random.default_rng(items).permutation(items)
    return np.asarray(popular[np.minimum(rank.astype(np.int64), items - 1)], np.int32)


def draw_sets(rng: np.random.Generator, sizes: I64, items: int) -> I32:
    """Return sets of these sizes, end to end; no set holds an item twice."""
    group, drawn = np.repeat(np.arange(len(sizes)), sizes), draw_items(rng, int(sizes.sum()), items)
    while True:
        _, first = np.unique(group * items + drawn, return_index=True)
        again = np.setdiff1d(np.arange(len(drawn)), first)
        if len(again) == 0:
            return drawn
        drawn[again] = draw_items(rng, len(again), items)


def draw_users(rng: np.random.Generator, count: int, users: int) -> I32:
    """Return so many users, the active ones more often."""
    activity = np.cumsum(np.exp(np.random.default_rng(users).standard_normal(users)))
    drawn = np.searchsorted(activity, rng.random(count) * activity[-1])
    return np.asarray(np.minimum(drawn, users - 1), np.int32)


def pieces(events: Events, count: int) -> list[Events]:
    """Return the events in so many pieces of one length; what is left over goes."""
    size = len(events.user) // count
    return [events.cut(k * size, (k + 1) * size) for k in range(count)]


def slates(visits: int, users: int, item_keys: U64, seed: int = 1, who: I32 | None = None) -> Events:
    """Return visits in the order of time: a slate is shown and, 5 to 60 seconds later, one of its items clicked.

    Users are numbers below `users`, which are slots where they were interned in that order; `who` says whose visits.
    """
    rng = np.random.default_rng(seed)
    user, size = draw_users(rng, visits, users), rng.integers(NEGATIVES_MIN + 1, NEGATIVES_MAX + 2, visits)
    user = user if who is None else who
    first = np.cumsum(size) - size
    shown = item_keys[draw_sets(rng, size, len(item_keys))]
    clicked = shown[first + rng.integers(0, size)]
    at = _START_MS + (np.arange(visits) * (_WEEK_MS / _VISITS_A_WEEK / users)).astype(np.int64)
    time_ms = np.concatenate((at, at + rng.integers(5_000, 60_000, visits)))
    order = np.argsort(time_ms, kind="stable")
    sizes = np.concatenate((size, np.ones(visits, np.int64)))
    begins = np.concatenate((first, len(shown) + np.arange(visits)))
    start = np.concatenate(([0], np.cumsum(sizes[order])))
    kind = np.where(order < visits, IMPRESSION, CLICK)
    items = np.concatenate((shown, clicked))[spans(begins[order], sizes[order])]
    return Events.of(np.concatenate((user, user))[order], kind, items, time_ms[order], start=start)


def singles(visits: int, users: int, item_keys: U64, seed: int = 1, who: I32 | None = None) -> Events:
    """Return visits as `slates` does, each of the shown items in an impression of its own, a second after the other."""
    visit = slates(visits, users, item_keys, seed, who)
    sizes = np.diff(visit.start)
    event, place = np.repeat(np.arange(len(sizes)), sizes), spans(np.zeros(len(sizes), np.int64), sizes)
    time_ms = visit.time_ms[event] + 1000 * place - 16_000 * (visit.kind[event] == IMPRESSION)
    order = np.argsort(time_ms, kind="stable")
    event = event[order]
    return Events.of(visit.user[event], visit.kind[event], visit.items[order], time_ms[order])


def once(users: int, item_keys: U64, seed: int = 1) -> Events:
    """Return a slate for each user, and nothing more of it."""
    visit = slates(users, users, item_keys, seed, np.random.default_rng(users).permutation(users).astype(np.int32))
    shown = np.flatnonzero(visit.kind == IMPRESSION)
    sizes = np.diff(visit.start)[shown]
    start = np.concatenate(([0], np.cumsum(sizes)))
    items = visit.items[spans(visit.start[shown], sizes)]
    return Events.of(visit.user[shown], visit.kind[shown], items, visit.time_ms[shown], start=start)


def crowd(count: int, users: int, item_keys: U64, seed: int = 1) -> Events:
    """Return about so many events of which every user has one or more: an impression of each, among visits as `singles`
    has them. A few users come again and again: where there are enough visits, they pass any bound of the gate."""
    rng, visits = np.random.default_rng(seed), max(1, (count - users) // (1 + (NEGATIVES_MIN + NEGATIVES_MAX) // 2 + 1))
    who, again = draw_users(rng, visits, users), rng.random(visits) < _AGAIN_SHARE
    who[again] = rng.integers(0, min(users, max(1, int(again.sum()) // _AGAIN_VISITS)), int(again.sum()))
    visit = singles(visits, users, item_keys, seed, who)
    each = rng.permutation(users).astype(np.int32)
    seen_ms = np.linspace(visit.time_ms[0], visit.time_ms[-1], users).astype(np.int64)
    time_ms = np.concatenate((visit.time_ms, seen_ms))
    order = np.argsort(time_ms, kind="stable")
    kind = np.concatenate((visit.kind, np.full(users, IMPRESSION, np.uint8)))
    items = np.concatenate((visit.items, item_keys[draw_items(rng, users, len(item_keys))]))
    return Events.of(np.concatenate((visit.user, each))[order], kind[order], items[order], time_ms[order])


def ratings(count: int, users: int, item_keys: U64, seed: int = 1) -> Events:
    """Return clicks and negatives of one item each, several of a user in a row, as ML-1M has them."""
    rng = np.random.default_rng(seed)
    burst = np.cumsum(rng.random(count) < 1.0 / _BURST)
    user = draw_users(rng, int(burst[-1]) + 1, users)[burst]
    items = item_keys[draw_items(rng, count, len(item_keys))]
    kind = np.where(rng.random(count) < _CLICK_SHARE, CLICK, NEGATIVE)
    return Events.of(user, kind, items, _START_MS + np.arange(count, dtype=np.int64) * 1000)


def make_blocks(count: int, dim: int, slots: I32, item_keys: U64, users: int, seed: int) -> Blocks:
    """Return blocks as `settle` leaves them: to be scored, added and moved by, in no ledger in memory."""
    rng = np.random.default_rng(seed)
    negatives = rng.integers(NEGATIVES_MIN, NEGATIVES_MAX + 1, count).astype(np.int32)
    sizes = negatives.astype(np.int64) + 1
    items = draw_sets(rng, sizes, len(item_keys))
    blocks = Blocks.empty(count, len(items), dim)
    blocks.user[:] = draw_users(rng, count, users)
    blocks.time_ms[:] = _START_MS
    blocks.sign[:], blocks.flags[:], blocks.decision[:], blocks.entry[:] = 1, SCORE | ADD | MOVE, LEARN, NIL
    blocks.start[:], blocks.negatives[:], blocks.positives[:] = np.cumsum(sizes) - sizes, negatives, 1
    blocks.items[:], blocks.slots[:], blocks.weights[:] = item_keys[items], slots[items], 4096
    blocks.used[:] = count, len(items)
    return blocks


def pairs_of(blocks: Blocks) -> int:
    """Return the number of (positive, negative) pairs."""
    return int((blocks.negatives.astype(np.int64) * blocks.positives).sum())


def make_works(calls: int, blocks: int, dim: int) -> list[Work]:
    """Return the work of so many calls of the step, all on one model with the users and items of ML-1M."""
    item_keys, items = keys(ITEMS, 0), Items(live_rows(dim), ITEMS)
    slots = items.intern(item_keys)
    users = Users(items.rules, negatives_max=64, carried_max=16, clicked_max=64, limit=USERS, evict=False)
    users.intern(keys(USERS, 1))
    ledger, room = Ledger(dim, USERS), scratch(NEGATIVES_MAX + 1, dim)
    told = line_zeros((blocks, dim), np.float32)  # a learner, too, writes every batch into the same columns
    works = []
    for seed in range(calls):
        made = make_blocks(blocks, dim, slots, item_keys, USERS, seed)._replace(rows=told)
        progressive = np.zeros((len(DECISIONS), len(PROGRESSIVE)))
        works.append(
            Work(
                users.arrays,
                items.arrays,
                ledger.arrays,
                made,
                made.signed(),
                live_step(),
                items.rules,
                room,
                progressive,
                counts.zeros(),
            )
        )
    return works
