"""A log of events from a file, as columns, and the paper's protocol to split it.

Users and items are numbered in the order in which the file first names them. Events stand in file order, which breaks
ties wherever events are put into time order.

The protocol: each user's events in time order, the first int(0.8·n) of them train, the rest test. What is ranked is the
user's own test items: each once, positive if the user clicked it in the test part.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saros.core.events import CLICK, POSITIVE, Events, spans
from saros.core.jit import I32, I64, U8, U64

TRAIN_SHARE = 0.8
Bool = NDArray[np.bool_]


class Log(NamedTuple):
    """n events with m items in all; the items of event e are `item[start[e]:start[e + 1]]`."""

    name: str
    users: list[str]
    items: list[str]
    user: I32  # [n] index into users
    kind: U8  # [n] kinds of `saros.core.events`
    time_ms: I64  # [n]
    start: I64  # [n + 1]
    item: I32  # [m] index into items
    sessions: bool  # False: ratings, whose sessions never end

    def take(self, rows: I64) -> "Log":
        """Return the given events, in the given order."""
        sizes = np.diff(self.start)[rows]
        return self._replace(
            user=self.user[rows],
            kind=self.kind[rows],
            time_ms=self.time_ms[rows],
            start=np.concatenate(([0], np.cumsum(sizes))),
            item=self.item[spans(self.start[rows], sizes)],
        )

    def by_time(self) -> "Log":
        """Return the events in time order, as a live system sees them."""
        return self.take(np.argsort(self.time_ms, kind="stable"))

    def by_user(self) -> "Log":
        """Return the events user by user, each user's in time order."""
        return self.take(np.lexsort((self.time_ms, self.user)))

    def clicked(self) -> Bool:
        """Return for each item of the log whether it was clicked there."""
        return np.repeat((self.kind == CLICK) | (self.kind == POSITIVE), np.diff(self.start))

    def events(self, slots: I32, keys: U64) -> Events:
        """Return the log as the core eats it: `slots` by user and `keys` by item."""
        return Events.of(slots[self.user], self.kind, keys[self.item], self.time_ms, start=self.start)


class ToRank(NamedTuple):
    """The items to rank, user by user: those of user u are [starts[u], starts[u + 1])."""

    user: I32
    item: I32
    label: U8
    starts: I64  # [users + 1]


def split(log: Log, share: float = TRAIN_SHARE) -> tuple[Log, Log]:
    """Return the train and the test events, each user by user in time order."""
    ordered = log.by_user()
    sizes = np.bincount(ordered.user, minlength=len(log.users))
    rank = np.arange(len(ordered.user)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    train = rank < np.floor(share * sizes).astype(np.int64)[ordered.user]
    return ordered.take(np.flatnonzero(train)), ordered.take(np.flatnonzero(~train))


def items_to_rank(log: Log) -> ToRank:
    """Return each user's items, in order of their first event, each once; positive if the user clicked it."""
    user = np.repeat(log.user, np.diff(log.start))
    clicked = log.clicked()
    pairs, first, group = np.unique(
        user.astype(np.int64) * len(log.items) + log.item, return_index=True, return_inverse=True
    )
    label = np.zeros(len(pairs), np.uint8)
    np.maximum.at(label, group, clicked.astype(np.uint8))
    order = np.lexsort((first, user[first]))
    first, label = first[order], label[order]
    sizes = np.bincount(user[first], minlength=len(log.users))
    return ToRank(user[first], log.item[first], label, np.concatenate(([0], np.cumsum(sizes))))
