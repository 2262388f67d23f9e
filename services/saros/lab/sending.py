"""A log to messages of the events' topic, each in the partition of its user."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from saros.lab.log import Log
from saros.wire.columns import EVENTS_MAX, MESSAGE_MAX
from saros.wire.encode import event_of, message_of
from saros.wire.partitions import partitions_of
from saros.wire.v1.events_pb2 import Event

_ROOM = 8  # bytes that an event takes in a batch beside its own, at most


class Envelope(NamedTuple):
    """A message to send."""

    partition: int
    value: bytes
    events: int


def envelopes(log: Log, partitions: int, batch: int) -> Iterator[Envelope]:
    """Yield the log's events in order, up to `batch` of a partition in one message."""
    assert 1 <= batch <= EVENTS_MAX, batch
    home, names = partitions_of(log.users, partitions).tolist(), log.items
    waiting: list[list[Event]] = [[] for _ in range(partitions)]
    sizes = [0] * partitions
    columns = (log.user, log.kind, log.time_ms, log.start[:-1], log.start[1:])
    for user, kind, time_ms, first, end in zip(*(column.tolist() for column in columns), strict=True):
        p, event = home[user], event_of(log.users[user], kind, [names[k] for k in log.item[first:end]], time_ms)
        size = event.ByteSize() + _ROOM
        if waiting[p] and sizes[p] + size > MESSAGE_MAX:
            yield _closed(p, waiting, sizes)
        waiting[p].append(event)
        sizes[p] += size
        if len(waiting[p]) == batch:
            yield _closed(p, waiting, sizes)
    for p in range(partitions):
        if waiting[p]:
            yield _closed(p, waiting, sizes)


def _closed(p: int, waiting: list[list[Event]], sizes: list[int]) -> Envelope:
    events, waiting[p], sizes[p] = waiting[p], [], 0
    return Envelope(p, message_of(events), len(events))


class Pace:
    """Keeps to so many events a second; 0 is as fast as can be."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock, self._start, self._sent = rate, clock, clock(), 0

    def wait(self, events: int, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait until so many more events may be sent."""
        if self._rate > 0:
            ahead = self._start + self._sent / self._rate - self._clock()
            if ahead > 0:
                sleep(ahead)
        self._sent += events
