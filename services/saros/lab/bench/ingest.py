"""The bench of what comes in: from a real broker to learned blocks, beside the least it can cost and the usual way.

Three ways read the same messages, in turn: (a) `consume` and drop; (b) consume, decode and hash to columns, sessions,
gate and step; (c) the usual Python way: protobuf's own decoder for each message, sessions of dicts and lists, a numpy
step for each block. The time is that of the thread that calls: librdkafka's own threads work beside it in all three.
The first round is not counted: a service that runs has met most of its users and items before. Python's garbage
collector is off in (a) and (b), as it is in the trainer's loop, and on in (c), as the usual way leaves it.
"""

import gc
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import uuid4

import numpy as np

from saros.adapters.dead import DeadLetters
from saros.adapters.intake import Intake
from saros.adapters.kafka import Admin, Cluster, Reader, Writer
from saros.adapters.names import EVENTS_SETTINGS
from saros.core.events import Events
from saros.core.gate import GateRules
from saros.core.ids import derive_key
from saros.core.items import Items
from saros.core.learner import Learner
from saros.core.rows import live_rows
from saros.core.sessions import SessionRules
from saros.core.step import live_step
from saros.lab.bench import shapes
from saros.lab.bench.measure import Row, row
from saros.lab.bench.usual import UsualWay
from saros.wire.decode import Decoder
from saros.wire.encode import event_of, message_of
from saros.wire.v1.events_pb2 import Event

DIM = 64
RAW_GOAL = 2.5  # (b) costs at most so many times (a), on single events
USUAL_GOALS = {1: 5.0, 100: 15.0}  # (b) is so many times as fast as (c), by events in a message
_POLL_S = 5.0
_POLLS = {1: 4000, 100: 40}  # messages in a poll, by events in a message: a micro-batch of a few thousand events
_SESSIONS = SessionRules(gap_ms=0, negatives_max=256, carried_max=256, clicked_max=1)
_GATE = GateRules(blocks_max=1_000_000, window_days=1)


class Size(NamedTuple):
    """How much is measured."""

    rounds: int
    events: dict[int, int]  # by events in a message


FULL, QUICK = Size(5, {1: 200_000, 100: 600_000}), Size(1, {1: 2_000, 100: 4_000})

Way = Callable[[Reader, int, int], None]  # reads so many messages, so many at a time


def run_ingest(cluster: Cluster, *, quick: bool = False) -> list[Row]:
    """Measure single events and batches; the topics are made and deleted."""
    size, admin, found = QUICK if quick else FULL, Admin(cluster), []
    for batch, count in size.events.items():
        topic = f"saros-bench-{uuid4().hex[:12]}"
        admin.ensure(topic, 1, 0, EVENTS_SETTINGS)
        try:
            messages = _send(cluster, topic, count, batch)
            found += list(_measure(cluster, topic, messages, count, batch, size.rounds))
        finally:
            admin.delete(topic)
    return found


def _send(cluster: Cluster, topic: str, count: int, batch: int) -> int:
    """Fill a topic; return how many messages it has."""
    events = shapes.ratings(count, shapes.USERS, shapes.keys(shapes.ITEMS, 2))
    writer, sent = Writer(cluster, linger_ms=20), 0
    for first in range(0, count, batch):
        value = message_of(list(_protos(events, first, min(count, first + batch))))
        writer.send(topic, 0, value)
        sent += 1
    writer.flush(120)
    return sent


def _protos(events: Events, first: int, end: int) -> Iterator[Event]:
    for e in range(first, end):
        item = str(events.items[events.start[e]] % np.uint64(1_000_000))
        yield event_of(f"user-{events.user[e]}", int(events.kind[e]), [f"item-{item}"], int(events.time_ms[e]))


def _raw(reader: Reader, messages: int, poll: int) -> None:
    while messages > 0:
        messages -= reader.drop(min(poll, messages), _POLL_S)


def _columns(cluster: Cluster, topic: str) -> Way:
    learner = Learner(Items(live_rows(DIM), 100_000), live_step(), _SESSIONS, _GATE, keep_added=False)
    decoder, dead = Decoder(derive_key(0), 1), DeadLetters(Writer(cluster), topic, 1)  # nothing here is bad

    def read(reader: Reader, messages: int, poll: int) -> None:
        intake = Intake(reader, decoder, dead, topic)
        while messages > 0:
            taken = intake.take(min(poll, messages), _POLL_S, _POLL_S)
            messages -= len(taken.polled.values)
            learner.accept(learner.learn(taken.events(taken.rows(taken.of(0)), learner)))

    return read


def _usual() -> Way:
    way = UsualWay(_SESSIONS, _GATE, DIM)

    def read(reader: Reader, messages: int, poll: int) -> None:
        while messages > 0:
            polled = reader.poll(min(poll, messages), _POLL_S, _POLL_S)
            messages -= len(polled.values)
            way.learn(polled.values)

    return read


def _measure(cluster: Cluster, topic: str, messages: int, count: int, batch: int, rounds: int) -> Iterator[Row]:
    """Let the three ways read the topic in turn, round by round; the best of each counts."""
    ways: list[Way] = [_raw, _columns(cluster, topic), _usual()]
    best, wall = [float("inf")] * 3, [float("inf")] * 3
    for turn in range(rounds + 1):
        for k, read in enumerate(ways):
            if k == 2 and turn > 2:
                continue  # the slow one: two rounds say enough
            reader = Reader(cluster, f"bench-{uuid4().hex}")
            reader.assign(topic, [(0, 0)])
            gc.collect()
            if k < 2:
                gc.disable()
            own, start = time.thread_time(), time.perf_counter()
            read(reader, messages, _POLLS[batch])
            gc.enable()
            if turn > 0 or rounds == 1:
                best[k] = min(best[k], time.thread_time() - own)
                wall[k] = min(wall[k], time.perf_counter() - start)
            reader.close()
    ns = [1e9 * seconds / count for seconds in best]
    what = "single events" if batch == 1 else f"batches of {batch}"
    yield row(f"consume and drop, {what}", "ns/event", ns[0], note=f"{count / wall[0]:,.0f} events/s")
    goal = RAW_GOAL if batch == 1 else None
    yield row(
        f"consume to step, {what}", "ns/event", ns[1], against="consume and drop", peer=ns[0], ratio=ns[1] / ns[0],
        better="lower", goal=goal, note=f"{count / wall[1]:,.0f} events/s",
    )  # fmt: skip
    yield row(
        f"consume to step, {what}", "ns/event", ns[1], against="the usual Python way", peer=ns[2],
        ratio=ns[2] / ns[1], goal=USUAL_GOALS[batch], note=f"the usual way: {count / wall[2]:,.0f} events/s",
    )  # fmt: skip
