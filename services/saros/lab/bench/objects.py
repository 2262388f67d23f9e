"""Sessions and gate the plain way: one Python object per user, one per event, dicts for sets.

It gives the very blocks and decisions of `saros.core` (rule `click`, mode `immediate`, fixed bounds) and is what the
core's columns are measured against. It does less: no event ids, no weights, no ticks, no erasing, no bytes of ledgers,
no estimates, no counters.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from saros.core.events import CLICK, DAY_MS, IMPRESSION, Events
from saros.core.gate import LEARN, OVER, REPEATED, WAIT, GateRules
from saros.core.sessions import SessionRules
from saros.core.users import REPEAT_SIZE


class Event(NamedTuple):
    """One event, as a decoder of messages would hand it over."""

    user: int
    kind: int
    time_ms: int
    items: list[int]


class Block(NamedTuple):
    """A closed block and the gate's word on it."""

    user: int
    time_ms: int
    negatives: list[int]
    positives: list[int]
    decision: int


class User:
    """Session and gate of one user; a dict without values is a set that keeps its order."""

    __slots__ = ("carried", "clicked", "clock_ms", "days", "negatives", "repeats")

    def __init__(self) -> None:
        self.clock_ms = -1
        self.negatives: dict[int, None] = {}
        self.carried: dict[int, None] = {}
        self.clicked: dict[int, None] = {}
        self.repeats: dict[int, None] = {}
        self.days: dict[int, int] = {}


def unpacked(events: Events) -> list[Event]:
    """Return columns as objects."""
    start, items = events.start.tolist(), events.items.tolist()
    columns = zip(events.user.tolist(), events.kind.tolist(), events.time_ms.tolist(), strict=True)
    return [Event(*event, items[start[e] : start[e + 1]]) for e, event in enumerate(columns)]


class Partition:
    """All users of a partition."""

    def __init__(self, sessions: SessionRules, gate: GateRules) -> None:
        self.sessions, self.gate = sessions, gate
        self.users: dict[int, User] = {}

    def learn(self, events: Iterable[Event]) -> list[Block]:
        """Feed events in order; return the blocks that closed, decided."""
        return list(self._feed(events))

    def _feed(self, events: Iterable[Event]) -> Iterator[Block]:
        for event in events:
            user = self.users.get(event.user)
            if user is None:
                user = self.users[event.user] = User()
            clock_ms = max(user.clock_ms, event.time_ms)
            if 0 <= user.clock_ms < clock_ms - self.sessions.gap_ms and self.sessions.gap_ms > 0:
                user.negatives, user.carried, user.clicked = {}, {}, {}
            user.clock_ms = clock_ms
            if event.kind == CLICK:
                if self._click(user, event.items[0]):
                    yield self._close(event.user, user)
            elif event.kind == IMPRESSION:
                for item in event.items:
                    if item not in user.clicked and item not in user.carried:
                        _add(user.negatives, item, self.sessions.negatives_max)
            else:
                user.carried.pop(event.items[0], None)
                _add(user.negatives, event.items[0], self.sessions.negatives_max)

    def _click(self, user: User, item: int) -> bool:
        """Take a click; True if it closes a block."""
        user.negatives.pop(item, None)
        _add(user.clicked, item, self.sessions.clicked_max)
        closes = len(user.negatives) > 0
        _add(user.carried, item, self.sessions.carried_max + closes)
        return closes

    def _close(self, name: int, user: User) -> Block:
        """Close a block, count it, and decide."""
        today, gate = user.clock_ms // DAY_MS, self.gate
        user.days[today] = user.days.get(today, 0) + 1
        for day in [day for day in user.days if day <= today - gate.window_days]:
            del user.days[day]
        count = sum(user.days.values())
        positives = list(user.carried)
        if gate.ignore_repeats:
            positives = [item for item in positives if item not in user.repeats]
            for item in positives:
                _add(user.repeats, item, REPEAT_SIZE)
        decision = WAIT if count < gate.blocks_min else LEARN
        if count > gate.blocks_max:
            decision = OVER
        elif not positives:
            decision = REPEATED
        block = Block(name, user.clock_ms, list(user.negatives), positives, decision)
        user.negatives, user.carried = {}, {}
        return block


def _add(items: dict[int, None], item: int, limit: int) -> None:
    """Add an item once; at the limit the oldest goes."""
    if item not in items:
        if len(items) >= limit:
            del items[next(iter(items))]
        items[item] = None
