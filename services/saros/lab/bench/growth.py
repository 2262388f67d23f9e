"""How the cost of an event grows with the number of users and of items, in a steady state.

Every user has been seen and every item has a row before the clock starts, so no page is touched for the first time.
Beside each size runs the smallest one, and on both a bare pass that only reads the lines an event needs, in the order
of the events: what grows there too is the memory's (caches and address translation), not ours.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from saros.core.cells import TableArrays
from saros.core.events import IMPRESSION, Events
from saros.core.items import ItemArrays, Items
from saros.core.jit import I32, kernel
from saros.core.learner import Learner
from saros.core.rows import live_rows
from saros.core.step import live_step
from saros.core.table import probe
from saros.core.users import UserArrays
from saros.lab.bench import shapes
from saros.lab.bench.measure import Row, row

GOAL = 3.0
BATCH_EVENTS = 8192  # in a micro-batch
_DIM = 16
_BASE = 10_000  # users where items grow, items where users grow
_SIZES = {"users": [10_000, 100_000, 1_000_000, 2_000_000], "items": [1_000, 10_000, 100_000, 1_000_000]}
_SIZES_QUICK = {"users": [100, 1_000], "items": [100, 1_000]}


class Subject(NamedTuple):
    """A learner in its steady state, and the batches it is to learn, one a round."""

    learner: Learner
    batches: list[Events]


class Spent(NamedTuple):
    """Least nanoseconds per event: of `learn`, of `open` alone, and of a bare pass over the same users or items."""

    learn: float
    open: float
    bare: float


@kernel
def read_users(users: UserArrays, user: I32) -> int:
    """Read a word of each line that an event and its block need of a user, user by user."""
    total = 0
    for e in range(user.shape[0]):
        u = user[e]
        total += users.head[u, 0] + users.ring[u, 0] + users.doom[u] + users.weights[u, 0]
        total += users.gate[u, 0] + users.gate[u, 16] + np.int64(users.sets[u, 0]) + np.int64(users.sets[u, 8])
        total += np.int64(users.sets[u, 64]) + np.int64(users.sets[u, 81]) + np.int64(users.rows[u, 0])
    return total


@kernel
def read_items(table: TableArrays, items: ItemArrays, events: Events) -> int:
    """Look up every item of the events, and read its row and counters."""
    total = 0
    for k in range(events.items.shape[0]):
        slot = probe(table, events.items[k])
        total += items.counters[slot, 0] + items.rows[slot, 0]
    return total


def _subject(users: int, items: int, rounds: int, batch: int) -> Subject:
    """Return a learner that has seen all users and items, and what comes next."""
    item_keys, table = shapes.keys(items, 0), Items(live_rows(_DIM), items)
    table.intern(np.random.default_rng(0).permutation(item_keys))
    learner = Learner(table, live_step(), users_max=users)
    slots = learner.intern(shapes.keys(users, 1))
    batches = shapes.pieces(shapes.slates((rounds + 2) * batch // 2, users, item_keys), rounds + 2)
    before = batches[0].time_ms[0] - 1
    for first in range(0, users, 1 << 16):
        seen = np.random.default_rng(1).permutation(slots)[first : first + (1 << 16)]
        shown = np.resize(item_keys, len(seen))
        learner.learn(Events.of(seen, np.full(len(seen), IMPRESSION), shown, np.full(len(seen), before)))
    # Twice as if in earnest: buffers grow to the size they need.
    for events in batches[:2]:
        learner.learn(events)
    return Subject(learner, batches[2:])


def _spend(subjects: list[Subject], rounds: int, grown: str) -> list[Spent]:
    """Run the subjects in turn, round by round."""
    best = np.full((len(subjects), 3), np.inf)
    for turn in range(rounds):
        for k, (learner, batches) in enumerate(subjects):
            events = batches[turn]
            marks = [time.perf_counter()]
            learner.open(events)
            marks.append(time.perf_counter())
            learner.close()
            marks.append(time.perf_counter())
            # Other lines than those that have just been used.
            ahead = batches[(turn + rounds // 2) % rounds]
            if grown == "users":
                read_users(learner.users.arrays, ahead.user)
            else:
                read_items(learner.items.table.arrays(), learner.items.arrays, ahead)
            marks.append(time.perf_counter())
            spent = np.array([marks[2] - marks[0], marks[1] - marks[0], marks[3] - marks[2]])
            best[k] = np.minimum(best[k], 1e9 * spent / len(events.user))
    return [Spent(*line) for line in best.tolist()]


def grow(quick: bool) -> Iterator[Row]:
    """Measure each size beside the smallest, first by users, then by items."""
    rounds, batch, base = (2, 200, 100) if quick else (24, BATCH_EVENTS, _BASE)
    for grown, sizes in (_SIZES_QUICK if quick else _SIZES).items():
        least = sizes[0]
        for size in sizes:
            counts = [(n, base) if grown == "users" else (base, n) for n in dict.fromkeys((least, size))]
            subjects = [_subject(*pair, rounds, batch) for pair in counts]
            spent = _spend(subjects, rounds, grown)
            del subjects  # two million users are some gigabytes: they go before the next size comes
            yield from _rows(grown, least, size, spent[0], spent[-1])


def _rows(grown: str, least: int, size: int, small: Spent, large: Spent) -> Iterator[Row]:
    """Say what `learn` and `open` cost at a size, and how much of it the memory asks for."""
    pace = large.bare / small.bare
    note = f"a bare pass over the same {grown}: {small.bare:.0f} → {large.bare:.0f} ns/event, {pace:.1f}×"
    for what, before, after in (("learn", small.learn, large.learn), ("open", small.open, large.open)):
        name = f"{what}, {size:,} {grown}"
        if size == least:
            yield row(name, "ns/event", after, better="lower", note="the smallest size")
        else:
            yield row(
                name,
                "ns/event",
                after,
                against=f"{least:,} {grown}",
                peer=before,
                ratio=after / before,
                better="lower",
                goal=GOAL,
                note=note,
            )
