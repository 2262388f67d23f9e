"""The bench of the trainer: a backlog on a real broker, learned into a real store, beside what it costs at least.

Four ways read the same events, one after the other: (a) `consume` and drop; (b) the trainer's pipeline with its sinks
off: consume, decode, sessions, gate and step, and nothing is kept; (c) the usual Python way: protobuf's own decoder,
dicts, a numpy step for each block, rows written to the store by pipelines, nothing exactly once; (d) `saros trainer`, a
process of its own, until all is learned and in the store. All are events a second of the clock, from the first event
taken; (c) reads a part only, as its speed is always the same.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

import numpy as np

from saros.adapters.dead import DeadLetters
from saros.adapters.intake import Intake
from saros.adapters.kafka import Admin, Cluster, Reader, Writer
from saros.adapters.names import EVENTS_SETTINGS, topics_of
from saros.adapters.redis import Address
from saros.adapters.redis.client import Client
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
from saros.lab.bench.repair import recoveries, shard_writer
from saros.lab.bench.trainers import Told, Trainers, await_until
from saros.lab.bench.usual import UsualWay
from saros.wire.decode import Decoder
from saros.wire.encode import event_of
from saros.wire.partitions import partitions_of

DIM, PARTITIONS, ITEMS = 64, 4, 10_000
SINKS_GOAL, RAW_GOAL, USUAL_GOAL, REDO_GOAL = 0.6, 0.25, 10.0, 2.5
# What docs/operations.md has a trainer's process given beside SAROS_TRAINER__MEMORY_MB.
_MEMORY_MB, _REST_MB, _ITEM_BYTES = 1024, 512, 364
_POLL_S = 2.0
_POLL = {1: 16_000, 100: 160}  # messages in a poll, by events in a message
_USUAL_POLL = {1: 500, 100: 5}  # as people set it
_USUAL_SHARE = 40  # of the events, one in so many


class Case(NamedTuple):
    """A backlog."""

    name: str
    users: int
    batch: int  # events in a message
    slates: bool = False
    events: int = 2_000_000
    once: bool = False  # each user has one slate, and nothing more


class Backlog(NamedTuple):
    """A topic of events, and what it holds."""

    model: str
    events: int
    messages: int
    bytes: int
    users: int  # that have an event


CASES = (
    Case("single, 10 k users", 10_000, 1),
    Case("batches of 100, 10 k users", 10_000, 100),
    Case("single, 1 M users", 1_000_000, 1),
    Case("batches of 100, 1 M users", 1_000_000, 100),
)
REDO = (
    Case("slates, 10 k users", 10_000, 1, slates=True, events=400_000),
    Case("one event a user", 400_000, 1, slates=True, once=True),
)
GROWTH = (
    Case("10 k users", 10_000, 100, events=1_000_000),
    Case("100 k users", 100_000, 100, events=1_000_000),
    Case("2 M users", 2_000_000, 100, events=4_000_000),
)
QUICK = (Case("single, 500 users", 500, 1, events=6_000), Case("batches of 100, 500 users", 500, 100, events=6_000))
QUICK_REDO = (
    Case("slates, 500 users", 500, 1, slates=True, events=2_000),
    Case("one event a user", 500, 1, slates=True, once=True),
)
QUICK_GROWTH = (Case("500 users", 500, 100, events=6_000), Case("1,000 users", 1000, 100, events=6_000))
QUICK_REPAIR = Case("", 500, 1, events=60_000)


def fill(cluster: Cluster, case: Case) -> Backlog:
    """Make a topic and send the events of a case; messages hold events of one partition, as they must."""
    model = f"bench-{uuid4().hex[:8]}"
    topic = topics_of(model).events
    Admin(cluster).ensure(topic, PARTITIONS, 0, EVENTS_SETTINGS)
    events = events_of(case)
    names = [f"user-{k}" for k in range(case.users)]
    home, writer = partitions_of(names, PARTITIONS).tolist(), Writer(cluster, linger_ms=20)
    waiting: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    messages = size = 0

    def send(p: int) -> None:
        nonlocal messages, size
        value = waiting[p][0] if case.batch == 1 else _batch(waiting[p])
        writer.send(topic, p, value)
        messages, size, waiting[p] = messages + 1, size + len(value), []

    for user, value in values_of(events, names):
        p = home[user]
        waiting[p].append(value)
        if len(waiting[p]) == case.batch:
            send(p)
    for p in range(PARTITIONS):
        if waiting[p]:
            send(p)
    writer.flush(120)
    return Backlog(model, len(events.user), messages, size, len(np.unique(events.user)))


def events_of(case: Case) -> Events:
    """Return the events of a case."""
    items = shapes.keys(ITEMS, 2)
    if case.once:
        return shapes.once(case.users, items)
    if case.slates:
        return shapes.slates(max(1, case.events // 2), case.users, items)
    return shapes.crowd(case.events, case.users, items)


def values_of(events: Events, names: list[str], *, live: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield each event's user and bytes, an id of its own in each: without one nothing could be told apart.

    `live`: no times and no ids, so that they happen when they are sent, and may be sent again.
    """
    items, start = [f"item-{key % 1_000_000}" for key in events.items.tolist()], events.start.tolist()
    columns = zip(events.user.tolist(), events.kind.tolist(), events.time_ms.tolist(), strict=True)
    for k, (user, kind, time_ms) in enumerate(columns):
        event = event_of(names[user], kind, items[start[k] : start[k + 1]], 0 if live else time_ms)
        if not live:
            event.event_id = f"{k:012x}"
        yield user, event.SerializeToString()


def _batch(values: list[bytes]) -> bytes:
    """Return a batch of events that are bytes already: field 1 of `EventBatch`, as often as there are events."""
    parts = []
    for value in values:
        size, length = len(value), bytearray()
        while size > 127:
            length.append(size & 127 | 128)
            size >>= 7
        parts += [b"\x0a", bytes([*length, size]), value]
    return b"".join(parts)


def _timed(cluster: Cluster, backlog: Backlog, read: Callable[[Reader], int]) -> float:
    """Return the events a second of a way to read a backlog, from its first event on; `read` says how many."""
    reader = Reader(cluster, f"bench-{uuid4().hex}")
    topic = topics_of(backlog.model).events
    reader.assign(topic, [(partition, 0) for partition in range(PARTITIONS)])
    gc.collect()
    gc.disable()
    try:
        await_until(reader.look)
        start = time.perf_counter()
        return read(reader) / (time.perf_counter() - start)
    finally:
        gc.enable()
        reader.close()


def raw(cluster: Cluster, backlog: Backlog, poll: int) -> float:
    """(a): consume and drop."""

    def read(reader: Reader) -> int:
        left = backlog.messages
        while left > 0:
            left -= reader.drop(min(poll, left), _POLL_S)
        return backlog.events

    return _timed(cluster, backlog, read)


def without_sinks(cluster: Cluster, backlog: Backlog, poll: int, users: int) -> float:
    """(b): the pipeline, and nothing is kept."""
    items = Items(live_rows(DIM), 1_000_000)
    learners = [Learner(items, live_step(), keep_added=False, users_max=users, ahead=True) for _ in range(PARTITIONS)]
    topic = topics_of(backlog.model).events

    def read(reader: Reader) -> int:
        dead = DeadLetters(Writer(cluster), topic, PARTITIONS)  # nothing here is bad
        intake, left, count = Intake(reader, Decoder(derive_key(0), PARTITIONS), dead, topic), backlog.messages, 0
        while left > 0:
            taken = intake.take(min(poll, left), _POLL_S, _POLL_S)
            left -= len(taken.polled.values)
            for partition in np.unique(taken.polled.partition).tolist():
                learner, rows = learners[partition], taken.rows(taken.of(partition))
                learner.accept(learner.learn(taken.events(rows, learner)))
                count += len(rows)
        return count

    return _timed(cluster, backlog, read)


def usual(cluster: Cluster, store: Address, backlog: Backlog, poll: int) -> float:
    """(c): the usual Python way."""
    way, client = UsualWay(SessionRules(), GateRules(blocks_max=100), DIM), Client(store)

    def read(reader: Reader) -> int:
        left = messages = max(1, backlog.messages // _USUAL_SHARE)
        while left > 0:
            polled = reader.poll(min(poll, left), _POLL_S, _POLL_S)
            left -= len(polled.values)
            users, items = way.learn(polled.values)
            rows = [("HSET", "bench:users", user, way.model.users[user].tobytes()) for user in users]
            rows += [("HSET", "bench:items", item, way.model.items[item].tobytes()) for item in items]
            if rows:
                client.transaction(*rows)
        return backlog.events * messages // backlog.messages

    speed = _timed(cluster, backlog, read)
    client.unlink([b"bench:users", b"bench:items"])
    client.close()
    return speed


def run_train(cluster: Cluster, store: Address, *, quick: bool = False, only: str | None = None) -> list[Row]:
    """Measure the trainer; what it makes is removed."""
    found: list[Row] = []
    with Trainers(cluster, store, DIM, PARTITIONS) as trainers:
        if only in (None, "speed"):
            for case in QUICK if quick else CASES:
                found += _compare(cluster, store, trainers, case)
        if only in (None, "redo"):
            for case in QUICK_REDO if quick else REDO:
                found.append(_redo_row(case, *_learned(cluster, trainers, case)))
        if only in (None, "growth"):
            found += _grow(cluster, trainers, QUICK_GROWTH if quick else GROWTH)
        if only in (None, "repair"):
            found.append(shard_writer(store, DIM, quick=quick))
            backlog = fill(cluster, QUICK_REPAIR if quick else CASES[0])
            found += recoveries(trainers, backlog.model, PARTITIONS)
            trainers.remove(backlog.model)
    return found


def _learned(
    cluster: Cluster, trainers: Trainers, case: Case, count: int = 1, more: Mapping[str, str] = {}
) -> tuple[Backlog, Told]:
    """Fill a topic, and let trainers learn it."""
    backlog = fill(cluster, case)
    told = trainers.learn(backlog.model, count, more)
    trainers.remove(backlog.model)
    return backlog, told


def _grow(cluster: Cluster, trainers: Trainers, cases: Sequence[Case]) -> Iterator[Row]:
    """With more users, and with two trainers."""
    base, more = 0.0, {"SAROS_TRAINER__MEMORY_MB": str(_MEMORY_MB)}
    most_mb = _MEMORY_MB + _REST_MB + ITEMS * _ITEM_BYTES / 2**20
    for case in cases:
        backlog, told = _learned(cluster, trainers, case, more=more)
        speed = told.events / told.seconds
        base = base or speed
        yield row(
            f"train, {case.users:,} users", "events/s", speed, against=f"{cases[0].users:,} users", peer=base,
            ratio=speed / base,
            note=f"{_who(backlog, told)}; SAROS_TRAINER__MEMORY_MB={_MEMORY_MB}, d {DIM}, messages of {case.batch}",
        )  # fmt: skip
        yield row(
            f"memory of the trainer, {case.users:,} users", "MB", told.memory_mb, against="what it may take",
            peer=most_mb, ratio=told.memory_mb and told.memory_mb / most_mb, better="lower", goal=1.0,
            note=f"{_MEMORY_MB} MB as set, {_REST_MB} MB and the items beside it: what a process is to be given",
        )  # fmt: skip
    _, told = _learned(cluster, trainers, cases[0], count=2, more=more)
    yield row(
        "train, two trainers", "events/s", told.events / told.seconds, against="one trainer", peer=base,
        ratio=told.events / told.seconds / base, note="on one machine with broker and store: cores are what they share",
    )  # fmt: skip


def _compare(cluster: Cluster, store: Address, trainers: Trainers, case: Case) -> Iterator[Row]:
    """Let all four ways read one backlog."""
    backlog, poll = fill(cluster, case), _POLL[case.batch]
    least = raw(cluster, backlog, poll)
    bare = without_sinks(cluster, backlog, poll, case.users)
    slow = usual(cluster, store, backlog, _USUAL_POLL[case.batch])
    told = trainers.learn(backlog.model)
    trainers.remove(backlog.model)
    speed, name = told.events / told.seconds, f"train, {case.name}"
    assert told.events == backlog.events, (told, backlog)
    sinks = SINKS_GOAL if case.users == 10_000 else None
    raw_goal = RAW_GOAL if case.users == 10_000 and case.batch == 1 else None
    yield row(
        name, "events/s", speed, against="its sinks off", peer=bare, ratio=speed / bare, goal=sinks,
        note=_who(backlog, told),
    )  # fmt: skip
    yield row(name, "events/s", speed, against="consume and drop", peer=least, ratio=speed / least, goal=raw_goal)
    yield row(name, "events/s", speed, against="the usual Python way", peer=slow, ratio=speed / slow, goal=USUAL_GOAL)
    yield _redo_row(case, backlog, told)


def _redo_row(case: Case, backlog: Backlog, told: Told) -> Row:
    ratio, goal = told.redo_bytes / backlog.bytes, REDO_GOAL if case.users == 10_000 and not case.slates else None
    return row(
        f"redo, {case.name}", "bytes/event", told.redo_bytes / backlog.events, against="the event itself",
        peer=backlog.bytes / backlog.events, ratio=ratio, better="lower", goal=goal, note=_who(backlog, told),
    )  # fmt: skip


def _who(backlog: Backlog, told: Told) -> str:
    """Say how many users came, and how often one of them passed B."""
    return f"{backlog.users:,} users came, {told.crossed:,} times one passed B"
