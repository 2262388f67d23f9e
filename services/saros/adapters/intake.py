"""Bytes on the events' topic to the columns that the core eats; what cannot be taken becomes dead letters.

Invariants: a bad event delays none of its neighbours, in its own message or in others. When `take` returns, every bad
event it met is acknowledged as a dead letter; only then may the input advance. Where the dead letters' topic is away,
`take` raises and the same messages have to be read again: letters are at least once, events are not touched.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from saros.adapters.dead import DeadLetters, Letter
from saros.adapters.kafka import Polled, Reader
from saros.core.events import CLICK, IMPRESSION, TICK, Events, spans
from saros.core.ids import joined
from saros.core.jit import I64, U8, U64
from saros.core.learner import Learner
from saros.telemetry import DEAD_LETTERS, Seldom
from saros.wire.columns import BUFFER_MAX, GATE, GOOD, REASONS, UPSERT, Decoded
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
    single: bool  # each message is one event

    def of(self, partition: int) -> I64:
        """Return which messages came from a partition, in order."""
        return np.flatnonzero(self.polled.partition == partition)

    def all_rows(self, messages: I64) -> I64:
        """Return the events of these messages, good or bad, in order."""
        if self.single:
            return messages
        first = np.searchsorted(self.decoded.message, messages)  # events stand in the order of their messages
        return spans(first, np.searchsorted(self.decoded.message, messages, side="right") - first)

    def rows(self, messages: I64) -> I64:
        """Return the good events of these messages that the core knows, in order."""
        rows = self.all_rows(messages)
        if not self.dead and not self.rare:
            return rows
        kept: I64 = rows[(self.decoded.reason[rows] == GOOD) & (self.decoded.kind[rows] < UPSERT)]
        return kept

    def kinds(self, messages: I64) -> I64:
        """Return how many good events of each kind these messages hold."""
        rows = self.all_rows(messages)
        rows = rows[self.decoded.reason[rows] == GOOD] if self.dead else rows
        kinds: I64 = np.bincount(self.decoded.kind[rows], minlength=GATE + 1)
        return kinds

    def scenarios(self, rows: I64, count: int) -> I64:
        """Return how many items these good events show, and how many they click, in each scenario (i64[count, 2]).

        Events of known bots are left out. Duplicates are not: who has sent what before, only a learner knows.
        """
        all_of, found = self.decoded, np.zeros((count, 2), np.int64)
        rows = rows[all_of.scenario[rows] != 0]
        if len(rows):
            rows = rows[all_of.bot[rows] == 0]
            which, kind = all_of.scenario[rows] - 1, all_of.kind[rows]
            shown, clicks = kind == IMPRESSION, kind == CLICK
            sizes = (all_of.start[rows + 1] - all_of.start[rows])[shown]
            found[:, 0] = np.bincount(which[shown], sizes, count)
            found[:, 1] = np.bincount(which[clicks], minlength=count)
        return found

    def users(self, rows: I64) -> U64:
        """Return the users that these events name, each once."""
        return np.unique(self.decoded.user[rows[self.decoded.kind[rows] != TICK]])

    def events(self, rows: I64, learner: Learner) -> Events:
        """Return events as a learner takes them; users that are new get slots."""
        all_of = self.decoded
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

    def runs(self, messages: I64, events_max: int, rare_bytes: int = BUFFER_MAX) -> Iterator[I64]:
        """Cut messages of a partition into micro-batches: of so many events, or of so many bytes of rare ones, which go
        into the record as they are; a change of the gate is one of its own.

        So the first record of a partition tells the rules that it was learned with, whatever came with it.
        """
        decoded, rare, count = self.decoded, self._rare_rows(), len(self.polled.values)
        events = np.cumsum(np.bincount(decoded.message, minlength=count)[messages])
        lengths = decoded.end[rare] - decoded.first[rare]
        sizes = np.cumsum(np.bincount(decoded.message[rare], lengths, count)[messages])
        changed = decoded.message[rare[decoded.kind[rare] == GATE]]
        places = np.flatnonzero(np.isin(messages, changed))
        changes = np.union1d(places, places + 1)  # a run may not go beyond the next of these
        first, before, size = 0, 0, 0.0
        while first < len(messages):
            full = int(np.searchsorted(events, before + events_max)) + 1
            heavy = int(np.searchsorted(sizes, size + rare_bytes)) + 1
            change = np.searchsorted(changes, first, side="right")
            end = min(full, heavy, len(messages), *changes[change : change + 1].tolist())
            yield messages[first:end]
            first, before, size = end, int(events[end - 1]), float(sizes[end - 1])

    def rare_of(self, messages: I64) -> list[Event]:
        """Return the item upserts and gate changes of these messages, in order."""
        return [self.rare[row] for row in self.rare_rows(messages).tolist()]

    def rare_rows(self, messages: I64) -> I64:
        """Return the rows of the item upserts and gate changes of these messages, in order."""
        rows = self._rare_rows()
        return rows[np.isin(self.decoded.message[rows], messages)]

    def _rare_rows(self) -> I64:
        return np.fromiter(self.rare, np.int64, len(self.rare))


def decode(polled: Polled, decoder: Decoder) -> Taken:
    """Return what came in with one poll; valid until the decoder's call after the next that brings something."""
    buffer, bounds = joined(polled.values)
    decoded = decoder.decode(buffer, bounds, polled.partition)
    rare = read_rare(buffer, decoded, polled.partition, decoder.partitions)
    dead = Counter(REASONS[code] for code in decoded.reason[decoded.reason != GOOD].tolist())
    single = np.array_equal(decoded.message, np.arange(len(polled.values)))
    return Taken(polled, buffer, decoded, rare, dead, single)


class Intake:
    """Reads, decodes, and writes dead letters; keeps the texts of items."""

    def __init__(
        self, reader: Reader, decoder: Decoder, dead: DeadLetters, topic: str, names_max: int = 100_000
    ) -> None:
        self._reader, self._decoder, self._dead, self._topic = reader, decoder, dead, topic
        self._seldom = Seldom()
        self.names = Names(names_max)

    def take(self, count: int, timeout_s: float, linger_s: float = 0.0) -> Taken:
        """Take up to `count` messages as `Reader.poll` does; valid until the call after the next that takes
        something."""
        taken = decode(self._reader.poll(count, timeout_s, linger_s), self._decoder)
        if taken.dead:
            self._bury(taken, np.flatnonzero(taken.decoded.reason != GOOD), taken.dead)
        self.names.note(taken.buffer, taken.decoded)
        return taken

    def refuse(self, taken: Taken, rows: I64, reason: int) -> None:
        """Let rare events that were good be dead letters; acknowledged when this returns, as all are."""
        taken.decoded.reason[rows] = reason
        for row in rows.tolist():
            del taken.rare[row]
        dead = Counter({REASONS[reason]: len(rows)})
        taken.dead.update(dead)
        self._bury(taken, rows, dead)

    def _bury(self, taken: Taken, rows: I64, dead: Counter[str]) -> None:
        self._dead.write(self._letter(taken, row) for row in rows.tolist())
        for reason, letters in dead.items():
            DEAD_LETTERS.labels(reason).inc(letters)
        self._seldom.log("dead letters were written", logging.WARNING, **dead)

    def _letter(self, taken: Taken, row: int) -> Letter:
        """Return the dead letter of a bad row: its event's bytes, or the whole message's where that is broken."""
        polled, decoded = taken.polled, taken.decoded
        message = int(decoded.message[row])
        first, end = int(decoded.first[row]), int(decoded.end[row])
        whole = end - first == len(polled.values[message])
        return Letter(
            REASONS[decoded.reason[row]],
            taken.buffer[first:end].tobytes(),
            self._topic,
            int(polled.partition[message]),
            polled.offset(message),
            int(polled.log_ms[message]),
            -1 if whole else row - int(np.searchsorted(decoded.message, message)),
            polled.key(message),
        )
