"""Bytes on the events' topic to the columns that the core eats; what cannot be taken becomes dead letters.

Invariants: a bad event delays none of its neighbours, in its own message or in others. When `take` returns, every bad
event it met is acknowledged as a dead letter; only then may the input advance. Where the dead letters' topic is away,
`take` raises and the same messages have to be read again: letters are at least once, events are not touched.
"""

import logging
from collections import Counter
from typing import NamedTuple

import numpy as np

from saros.adapters.dead import DeadLetters, Letter
from saros.adapters.kafka import Polled, Reader
from saros.core.events import TICK, Events, spans
from saros.core.ids import joined
from saros.core.jit import I64, U8
from saros.core.learner import Learner
from saros.telemetry import DEAD_LETTERS, Seldom
from saros.wire.columns import GOOD, REASONS, UPSERT, Decoded
from saros.wire.decode import Decoder
from saros.wire.names import Names
from saros.wire.rare import read_rare
from saros.wire.v1.events_pb2 import Event


class Taken(NamedTuple):
    """What came in with one poll."""

    polled: Polled
    buffer: U8  # the values of all messages, end to end
    decoded: Decoded
    rare: dict[int, Event]  # item upserts and gate changes by row
    dead: Counter[str]  # events that were refused, by reason

    def rows(self, partition: int) -> I64:
        """Return the good events of a partition that the core knows, in order."""
        good = (self.decoded.reason == GOOD) & (self.decoded.kind < UPSERT)
        return np.flatnonzero(good & (self.polled.partition[self.decoded.message] == partition))

    def events(self, partition: int, learner: Learner) -> Events:
        """Return the good events of a partition as its learner takes them; users that are new get slots."""
        rows, all_of = self.rows(partition), self.decoded
        pick: slice | I64 = slice(None)
        items, start = all_of.item, all_of.start
        if len(rows) < len(all_of.kind):
            pick = rows
            sizes = np.diff(all_of.start)[rows]
            start, items = np.concatenate(([0], np.cumsum(sizes))), all_of.item[spans(all_of.start[rows], sizes)]
        kind = all_of.kind[pick]
        users, personal = np.full(len(kind), -1, np.int32), kind != TICK
        users[personal] = learner.intern(all_of.user[pick][personal])
        return Events(
            user=users,
            kind=kind,
            time_ms=all_of.time_ms[pick],
            log_ms=self.polled.log_ms[all_of.message[pick]],
            event_id=all_of.event_id[pick],
            session=all_of.session[pick],
            weight=all_of.weight[pick],
            bot=all_of.bot[pick],
            start=start,
            items=items,
        )


class Intake:
    """Reads, decodes, and writes dead letters; keeps the texts of items."""

    def __init__(
        self, reader: Reader, decoder: Decoder, dead: DeadLetters, topic: str, names_max: int = 100_000
    ) -> None:
        self._reader, self._decoder, self._dead, self._topic = reader, decoder, dead, topic
        self._seldom = Seldom()
        self.names = Names(names_max)

    def take(self, count: int, timeout_s: float) -> Taken:
        """Take up to `count` messages; the answer is valid until the next call."""
        polled = self._reader.poll(count, timeout_s)
        buffer, bounds = joined(polled.values)
        decoded = self._decoder.decode(buffer, bounds, polled.partition)
        rare = read_rare(buffer, decoded, polled.partition, self._decoder.partitions)
        bad = np.flatnonzero(decoded.reason != GOOD)
        dead = Counter(REASONS[code] for code in decoded.reason[bad].tolist())
        if dead:
            self._dead.write(self._letter(polled, decoded, buffer, int(row)) for row in bad)
            for reason, count in dead.items():
                DEAD_LETTERS.labels(reason).inc(count)
            self._seldom.log("dead letters were written", logging.WARNING, **dead)
        self.names.note(buffer, decoded)
        return Taken(polled, buffer, decoded, rare, dead)

    def _letter(self, polled: Polled, decoded: Decoded, buffer: U8, row: int) -> Letter:
        """Return the dead letter of a bad row: its event's bytes, or the whole message's where that is broken."""
        message = int(decoded.message[row])
        first, end = int(decoded.first[row]), int(decoded.end[row])
        whole = end - first == len(polled.values[message])
        return Letter(
            REASONS[decoded.reason[row]],
            buffer[first:end].tobytes(),
            self._topic,
            int(polled.partition[message]),
            polled.offset(message),
            int(polled.log_ms[message]),
            -1 if whole else row - int(np.searchsorted(decoded.message, message)),
            polled.key(message),
        )
