"""The partition's time: what `feed` tells the gate, in order, and the deadlines of open sessions.

The watermark is the highest user clock of the partition. It never goes back, and only events and ticks move it. In the
gate's `session` mode a heap holds one deadline per user with held blocks: the end of the session, or, for a user that
closes blocks faster than one in each `wait`, the time at which that pace would have brought it here. The watermark
fires the deadlines it passes in (deadline, user key) order, before the event that moved it is taken.
"""

from typing import NamedTuple

import numpy as np

from saros.core.events import DAY_MS
from saros.core.jit import I32, I64, U8, U16, U64, as_int, copy_columns, inline_kernel, kernel, merged_kernel
from saros.core.users import CLOCK, FLAGS, FREE, IN_HEAP, OPEN, UserArrays

# What stands in `Closed.op`.
BLOCK, SESSION_END, NEW_DAY, ERASED, EXPIRED = 1, 2, 3, 4, 5
WAIT_MAX_MS = 8 * DAY_MS  # nobody is waited for longer than the gate's longest window
OPS_PER_EVENT = 4  # expired, session end, block, new day: the most one event can add, deadlines aside


class Closed(NamedTuple):
    """Output columns of `feed`, in order; a block's negatives come before its positives."""

    op: U8
    user: I32
    time_ms: I64  # the user's clock
    start: I64  # into items and weights
    negatives: I32
    positives: I32
    items: U64
    weights: U16
    used: I64  # [2]: rows, items

    @classmethod
    def empty(cls, rows: int, items: int) -> "Closed":
        """Return room for so many rows and items."""
        return cls(
            op=np.zeros(rows, np.uint8),
            user=np.zeros(rows, np.int32),
            time_ms=np.zeros(rows, np.int64),
            start=np.zeros(rows, np.int64),
            negatives=np.zeros(rows, np.int32),
            positives=np.zeros(rows, np.int32),
            items=np.zeros(items, np.uint64),
            weights=np.zeros(items, np.uint16),
            used=np.zeros(2, np.int64),
        )


class Timeline(NamedTuple):
    """The partition's time: its watermark and, in `session` mode, a heap of session deadlines.

    A user stands in the heap at most once, at a deadline that may be too early, never too late: when it comes up and
    the user's clock has moved since, it goes back in.
    """

    at: I64  # [2]: watermark (-1 before the first event), heap size
    deadline_ms: I64
    key: U64  # ties are broken by the user's key, never by its slot: slots differ between processes
    user: I32


@inline_kernel
def day_of(time_ms: int) -> int:
    """Return the UTC day a time falls in."""
    return time_ms // DAY_MS


@inline_kernel
def emit(closed: Closed, op: int, user: int, time_ms: int) -> int:
    """Append a row without items and return its index."""
    row = closed.used[0]
    closed.op[row] = op
    closed.user[row] = user
    closed.time_ms[row] = time_ms
    closed.start[row] = closed.used[1]
    closed.negatives[row] = 0
    closed.positives[row] = 0
    closed.used[0] = row + 1
    return row


@kernel
def _swap(timeline: Timeline, one: int, other: int) -> None:
    """Exchange two places of the heap."""
    deadline, key, user = timeline.deadline_ms, timeline.key, timeline.user
    deadline[one], deadline[other] = deadline[other], deadline[one]
    key[one], key[other] = key[other], key[one]
    user[one], user[other] = user[other], user[one]


@kernel
def _before(timeline: Timeline, one: int, other: int) -> bool:
    """True if the deadline at one place comes first; ties go by user key."""
    if timeline.deadline_ms[one] != timeline.deadline_ms[other]:
        return timeline.deadline_ms[one] < timeline.deadline_ms[other]
    return timeline.key[one] < timeline.key[other]


@kernel
def _sift(timeline: Timeline, place: int) -> None:
    """Restore the heap's order around a place that has changed."""
    while place > 0 and _before(timeline, place, (place - 1) // 2):
        _swap(timeline, place, (place - 1) // 2)
        place = (place - 1) // 2
    while True:
        least = place
        for child in range(2 * place + 1, min(2 * place + 3, timeline.at[1])):
            if _before(timeline, child, least):
                least = child
        if least == place:
            return
        _swap(timeline, place, least)
        place = least


@inline_kernel
def deadline_of(users: UserArrays, user: int, gap_ms: int) -> int:
    """Return when the held blocks of a user are due."""
    return max(users.head[user, CLOCK] + gap_ms, users.head[user, FREE])


@kernel
def watch(timeline: Timeline, users: UserArrays, user: int, gap_ms: int) -> None:
    """Put a user with held blocks into the heap, unless it stands there; it cannot be evicted until it has left."""
    if users.head[user, FLAGS] & IN_HEAP:
        return
    users.head[user, FLAGS] |= IN_HEAP
    users.pins[user] += 1
    place = timeline.at[1]
    timeline.at[1] = place + 1
    timeline.deadline_ms[place] = deadline_of(users, user, gap_ms)
    timeline.key[place], timeline.user[place] = users.keys[user], user
    _sift(timeline, place)


@kernel
def _leave(timeline: Timeline, users: UserArrays, place: int) -> int:
    """Take the user at a place out of the heap and return it."""
    user, last = as_int(timeline.user[place]), timeline.at[1] - 1
    _swap(timeline, place, last)
    timeline.at[1] = last
    if place < last:
        _sift(timeline, place)
    users.head[user, FLAGS] &= ~IN_HEAP
    users.pins[user] -= 1
    return user


@kernel
def unwatch(timeline: Timeline, users: UserArrays, user: int) -> None:
    """Take a user out of the heap: its clock starts anew and may come to lie before the deadline noted there."""
    if users.head[user, FLAGS] & IN_HEAP:
        for place in range(timeline.at[1]):
            if timeline.user[place] == user:
                _leave(timeline, users, place)
                return


@merged_kernel
def advance(timeline: Timeline, users: UserArrays, gap_ms: int, closed: Closed, time_ms: int) -> bool:
    """Move the watermark: end the sessions whose deadline it passes, in (deadline, key) order; False: out of room."""
    while timeline.at[1] > 0 and timeline.deadline_ms[0] < time_ms:
        if closed.used[0] + OPS_PER_EVENT > closed.op.shape[0]:
            return False
        noted = timeline.deadline_ms[0]
        user = _leave(timeline, users, 0)
        if users.head[user, FLAGS] & OPEN:
            if deadline_of(users, user, gap_ms) == noted:
                users.head[user, FLAGS] &= ~OPEN
                emit(closed, SESSION_END, user, users.head[user, CLOCK])
            else:
                watch(timeline, users, user, gap_ms)
    if day_of(time_ms) != day_of(timeline.at[0]):
        emit(closed, NEW_DAY, -1, time_ms)
    timeline.at[0] = time_ms
    return True


def new_timeline(capacity: int) -> Timeline:
    """Return a timeline with room for the deadlines of so many users."""
    return Timeline(
        at=np.array([-1, 0], np.int64),
        deadline_ms=np.zeros(capacity, np.int64),
        key=np.zeros(capacity, np.uint64),
        user=np.zeros(capacity, np.int32),
    )


def widened(timeline: Timeline, capacity: int) -> Timeline:
    """Return the same timeline with room for more users."""
    wider = new_timeline(capacity)
    copy_columns(wider, timeline)
    return wider
