"""One pass over a log with the kernels the service runs: sessions, gate, step and fold, batch by batch.

Each partition has a learner of its own (sessions, gate, users); the item table is shared, as in one trainer process.
The hash key is derived from the seed. Invariants: the clock runs only while learning, never while somebody watches;
with one partition and no user passing B, the batches' size changes no bit of the model.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from saros.core import counts
from saros.core.events import TICK, Events
from saros.core.gate import SESSION, GateRules
from saros.core.ids import derive_key, hash_texts
from saros.core.items import CLICKED, SHOWN, Items
from saros.core.jit import F64, I32, I64, U64
from saros.core.learner import Batch, Learner
from saros.core.rows import ONE, RowRules
from saros.core.sessions import RULE_AUTHORS, Pool, SessionRules
from saros.core.step import LIVE, StepRules
from saros.core.timeline import WAIT_MAX_MS
from saros.lab.log import Log
from saros.lab.model import Model
from saros.wire.partitions import partitions_of

BATCH = 4000  # events, as a trainer's micro-batch

# A gate that stops nobody. It needs no ledger, as nothing is ever taken back.
NO_GATE = GateRules(blocks_max=1_000_000_000, window_days=1, ignore_repeats=False, ledger_max_bytes=2**31 - 1)

# Rating data: one endless session for each user, and sets wide enough that hardly an item is lost to a limit.
RATING_SESSIONS = SessionRules(gap_ms=0, ttl_ms=0, negatives_max=256, carried_max=256, clicked_max=1)

Watcher = Callable[[int, Batch], None]  # told of each partition's batch, outside the clock


class Plan(NamedTuple):
    """How to learn."""

    rows: RowRules
    step: StepRules
    session: SessionRules
    gate: GateRules = NO_GATE
    partitions: int = 1


class _Part(NamedTuple):
    """One partition: its learner, its events and where they stand in the log."""

    learner: Learner
    events: Events
    places: I64


class Replay:
    """A log being learned; `advance` goes on to a given event, `model` is the model as it is now."""

    def __init__(self, log: Log, plan: Plan) -> None:
        self.log, self.plan = log, plan
        self.watchers: tuple[Watcher, ...] = ()
        key = derive_key(plan.rows.seed)
        self.user_keys, self.item_keys = hash_texts(key, log.users), hash_texts(key, log.items)
        self.items = Items(plan.rows, limit=max(1, len(log.items)))
        self.partition = partitions_of(log.users, plan.partitions)
        self.slots = np.zeros(len(log.users), np.int32)
        self.parts = [self._part(p) for p in range(plan.partitions)]
        self.counts, self.seconds, self.done = counts.zeros(), 0.0, 0
        # B of each partition from its start on, one entry for each time it moved.
        self.highs = [[int(part.learner.gate.bounds[1])] for part in self.parts]

    def _part(self, p: int) -> _Part:
        """Give the users of one partition their slots, and cut its events out of the log."""
        plan, users = self.plan, np.flatnonzero(self.partition == p)
        session = plan.session._replace(seed=plan.rows.seed)
        learner = Learner(
            self.items,
            plan.step,
            session,
            plan.gate,
            users_max=max(1, len(users)),
            keep_added=plan.gate != NO_GATE,
            pool=_pool(self.log, users, self.item_keys) if session.rule == RULE_AUTHORS else None,
        )
        self.slots[users] = learner.intern(self.user_keys[users])
        assert (np.diff(self.slots[users]) == 1).all(), "the pool's users stand in slot order"
        places = np.flatnonzero(self.partition[self.log.user] == p)
        return _Part(learner, self.log.take(places).events(self.slots, self.item_keys), places)

    def advance(self, end: int | None = None, batch: int = BATCH) -> None:
        """Learn the log up to event `end` (default: all of it), in batches of so many events."""
        end = len(self.log.user) if end is None else end
        while self.done < end:
            until = min(end, self.done + batch)
            for p, part in enumerate(self.parts):
                first, last = np.searchsorted(part.places, (self.done, until))
                if last > first:
                    self._learn(p, part.events.cut(int(first), int(last)))
            self.done = until

    def finish(self) -> None:
        """Let the sessions that are still open end, so that no block waits for a deadline that never comes."""
        if self.plan.gate.mode == SESSION:
            last = int(self.log.time_ms.max(initial=0)) + max(self.plan.session.gap_ms, WAIT_MAX_MS) + 1
            for p in range(len(self.parts)):
                self._learn(p, Events.of([-1], [TICK], np.zeros(0), [last], start=[0, 0]))

    def _learn(self, p: int, events: Events) -> None:
        """Learn one batch of one partition, on the clock, and tell the watchers of it, off the clock."""
        learner, start = self.parts[p].learner, time.perf_counter()
        batch = learner.learn(events)
        learner.accept(batch)
        self.seconds += time.perf_counter() - start
        self.counts += batch.counts
        high = int(learner.gate.bounds[1])
        if high != self.highs[p][-1]:
            self.highs[p].append(high)
        for watcher in self.watchers:
            watcher(p, batch)

    def owners(self) -> list[I32]:
        """Return, for each partition, the user of each slot."""
        owners = [np.zeros(part.learner.users.table.capacity, np.int32) for part in self.parts]
        for p, users in enumerate(owners):
            own = np.flatnonzero(self.partition == p)
            users[self.slots[own]] = own
        return owners

    def model(self) -> Model:
        """Return the model as it is now; what nobody has taught anything is at its start."""
        users = np.empty((len(self.log.users), self.plan.rows.dim), np.float32)
        for p, part in enumerate(self.parts):
            own = self.partition == p
            users[own] = part.learner.users.arrays.rows[self.slots[own]]
        start = Items(self.plan.rows, limit=max(1, len(self.item_keys)))
        fresh = start.intern(self.item_keys)
        rows = start.arrays.rows[fresh]
        counters = np.zeros((len(self.item_keys), 3), np.int64)
        slots = self.items.table.find(self.item_keys)
        known = slots >= 0
        rows[known], counters[known] = self.items.arrays.rows[slots[known]], self.items.arrays.counters[slots[known]]
        prior = np.zeros(len(self.item_keys))
        if self.plan.step.kind == LIVE:
            prior = prior_of(counters[:, CLICKED], counters[:, SHOWN], self.plan.step.prior)
        return Model(users, (rows / ONE).astype(np.float32), prior)


def prior_of(clicked: I64, shown: I64, strength: float = 4.0) -> F64:
    """Return π = ln[(C + α·p0) / (S + α·(1 − p0))] by item, with p0 = (ΣC + 1) / (ΣC + ΣS + 2)."""
    p0 = (clicked.sum() + 1.0) / (clicked.sum() + shown.sum() + 2.0)
    odds: F64 = np.log((clicked + strength * p0) / (shown + strength * (1.0 - p0)))
    return odds


def _pool(log: Log, users: I64, item_keys: U64) -> Pool:
    """Return what `authors` draws from: the negatives of each user, users in the order in which slots are given."""
    user = np.repeat(log.user, np.diff(log.start))
    own = ~log.clicked() & np.isin(user, users)
    order = np.argsort(user[own], kind="stable")
    sizes = np.bincount(user[own], minlength=len(log.users))[users]
    return Pool(np.concatenate(([0], np.cumsum(sizes))).astype(np.int64), item_keys[log.item[own][order]])
