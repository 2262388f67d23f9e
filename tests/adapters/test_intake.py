"""Good events arrive in order whatever lies between them, and each bad one is a dead letter with its reason."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saros.adapters.dead import DeadLetters, Letter, letter_of
from saros.adapters.intake import Intake, Taken, decode
from saros.adapters.kafka import Admin, Cluster, Polled, Reader, Writer
from saros.adapters.names import DEAD_SETTINGS, EVENTS_SETTINGS
from saros.core.events import CLICK, IMPRESSION, TICK
from saros.core.gate import GateRules
from saros.core.ids import derive_key, hash_texts
from saros.core.items import Items
from saros.core.learner import Learner
from saros.core.rows import live_rows
from saros.core.step import live_step
from saros.errors import BrokerError
from saros.wire.decode import Decoder
from saros.wire.encode import event_of, message_of
from saros.wire.partitions import partitions_of
from saros.wire.rare import gate_change
from saros.wire.v1.events_pb2 import Event, ItemUpsert
from tests.broker import Broker

KEY = derive_key(3)
HOME = int(partitions_of(["ann"], 2)[0])
OTHER = next(name for name in map(str, range(99)) if partitions_of([name], 2)[0] != HOME)


def good(k: int) -> Event:
    return event_of("ann", CLICK, [f"item {k}"], 1_700_000_000_000 + k)


BAD = {
    "bad_protobuf": b"\x1a\xff",
    "bad_utf8": bytes.fromhex("1a01ff5a030a0161"),
    "message_too_large": b"\xfa\x07\xc1\x84\x3d" + b"x" * 1_000_001,
    "too_many_events": message_of([good(0)] * 1001),
    "no_kind": Event(user_id="ann").SerializeToString(),
    "id_missing": event_of("", CLICK, ["a"], 1).SerializeToString(),
    "id_too_long": event_of("ann", CLICK, ["a" * 257], 1).SerializeToString(),
    "too_many_items": event_of("ann", IMPRESSION, [str(k) for k in range(201)], 1).SerializeToString(),
    "bad_time": event_of("ann", CLICK, ["a"], -1).SerializeToString(),
    "bad_sign": bytes.fromhex("1a03616e6e62030a0161"),
    "misrouted": event_of(OTHER, CLICK, ["a"], 1).SerializeToString(),
    "bad_item": bytes.fromhex("6a00"),
    "bad_gate_change": bytes.fromhex("7a00"),
}


@pytest.fixture
def names(real_broker: Broker, topic: str) -> tuple[str, str]:
    """A topic of events with two partitions, and one of dead letters."""
    admin, dead = Admin(Cluster(real_broker.address)), f"{topic}-dead"
    admin.ensure(topic, 2, 1, EVENTS_SETTINGS)
    admin.ensure(dead, 2, 1, DEAD_SETTINGS)
    return topic, dead


def intake(cluster: Cluster, names: tuple[str, str], group: str) -> Intake:
    reader = Reader(cluster, group)
    reader.assign(names[0], [(0, 0), (1, 0)])
    return Intake(reader, Decoder(KEY, 2), DeadLetters(Writer(cluster), names[1], 2), names[0])


def test_poison_between_good_events(real_broker: Broker, names: tuple[str, str], group: str) -> None:
    cluster = Cluster(real_broker.address, {"message.max.bytes": 1_100_000})
    writer = Writer(cluster)
    for k, (reason, bad) in enumerate(BAD.items()):
        writer.send(names[0], HOME, message_of([good(2 * k)]))
        writer.send(names[0], HOME, bad, key=reason.encode())
        writer.send(names[0], HOME, message_of([good(2 * k + 1), Event(user_id="ann"), good(2 * k + 1)]))
    writer.flush()
    source, items, dead, until = intake(cluster, names, group), [], 0, time.monotonic() + 60
    reached: dict[int, int] = {}
    while reached.get(HOME, 0) < 3 * len(BAD):
        assert time.monotonic() < until
        taken = source.take(5, 0.2)
        rows = taken.rows(taken.of(HOME))
        whole = taken.buffer.tobytes()
        for k in (k for row in rows for k in range(taken.decoded.start[row], taken.decoded.start[row + 1])):
            items.append(whole[taken.decoded.item_first[k] : taken.decoded.item_end[k]].decode())
        dead += sum(taken.dead.values())
        reached |= taken.polled.next_offsets()
    wanted = [f"item {n}" for k in range(len(BAD)) for n in (2 * k, 2 * k + 1, 2 * k + 1)]
    assert items == wanted, "in order, none lost, none twice"
    assert dead == 2 * len(BAD)
    reader = Reader(cluster, f"{group}-dead")
    assert reader.watermarks(names[0], HOME)[1] == reached[HOME], "no lag is left"
    letters: list[Letter] = []
    reader.assign(names[1], [(0, 0), (1, 0)])
    while len(letters) < dead:
        assert time.monotonic() < until
        letters += [letter_of(message) for message in reader.receive(100, 0.2)]
    whole_ones = {letter.reason: letter for letter in letters if letter.place == -1}
    assert whole_ones.keys() == BAD.keys()
    for k, (reason, value) in enumerate(BAD.items()):
        letter = whole_ones[reason]
        assert (letter.value, letter.topic, letter.partition, letter.offset) == (value, names[0], HOME, 3 * k + 1)
        assert letter.key == reason.encode()
    parts = [letter for letter in letters if letter.place != -1]
    assert [(letter.place, letter.reason, letter.offset) for letter in parts] == [
        (1, "no_kind", 3 * k + 2) for k in range(len(BAD))
    ]


def test_the_core_takes_what_comes_in(real_broker: Broker, names: tuple[str, str], group: str) -> None:
    cluster = Cluster(real_broker.address)
    writer = Writer(cluster)
    tick = Event(event_time_ms=1_700_000_060_000)
    tick.tick.SetInParent()
    shown = event_of("ann", IMPRESSION, ["alien", "brazil"], 1_700_000_000_000)
    clicked = event_of("ann", CLICK, ["brazil"], 1_700_000_001_000)
    writer.send(names[0], HOME, message_of([shown, Event(user_id="ann"), clicked, tick]))
    writer.send(names[0], 1 - HOME, message_of([event_of(OTHER, CLICK, ["clue"], 1_700_000_001_000)]))
    writer.flush()
    source = intake(cluster, names, group)
    learner = Learner(Items(live_rows(4), 100), live_step())
    found: list[Taken] = []
    kinds: list[int] = []
    for _ in range(100):
        taken = source.take(10, 0.2)
        events = taken.events(taken.rows(taken.of(HOME)), learner)
        kinds += events.kind.tolist()
        if len(events.user):
            found.append(taken)
            batch = learner.learn(events)
            assert batch.blocks.negatives.tolist() == [1]
            assert batch.blocks.items.tolist() == hash_texts(KEY, ["alien", "brazil"]).tolist()
            assert (np.abs(events.log_ms - time.time() * 1000) < 600_000).all(), "the broker's time"
            break
    assert kinds == [IMPRESSION, CLICK, TICK]
    assert learner.users.table.find(hash_texts(KEY, ["ann"])).tolist() != [-1]


def test_where_dead_letters_cannot_be_written_nothing_advances(
    real_broker: Broker, names: tuple[str, str], group: str
) -> None:
    cluster = Cluster(real_broker.address)
    writer = Writer(cluster)
    writer.send(names[0], HOME, BAD["no_kind"])
    writer.flush()
    reader = Reader(cluster, group)
    reader.assign(names[0], [(HOME, 0)])
    away = DeadLetters(Writer(Cluster("127.0.0.1:9", {"log_level": 0, "message.timeout.ms": 800})), names[1], 2)
    source, client = Intake(reader, Decoder(KEY, 2), away, names[0]), away._writer._client

    def take_all() -> None:
        for _ in range(100):
            source.take(10, 0.2)

    with pytest.raises(BrokerError, match="not taken"):
        take_all()
    assert away._writer._client is not client, "it may have failed for good, and letters are written again"
    again = intake(cluster, names, group)
    for _ in range(100):
        taken = again.take(10, 0.2)
        if taken.dead:
            break
    assert taken.dead == {"no_kind": 1}


GATE_CHANGE = Event(gate_change=gate_change(GateRules(), 1))
TOY = next(name for name in map(str, range(99)) if partitions_of([name], 2)[0] == HOME)
UPSERT = Event(item_upsert=ItemUpsert(item_id=TOY, properties={"title": "x" * 80}))
RARE = (GATE_CHANGE, UPSERT)


@given(
    st.lists(
        st.lists(st.sampled_from([good(0), GATE_CHANGE, UPSERT]), min_size=1, max_size=4), min_size=1, max_size=30
    ),
    st.integers(1, 8),
    st.integers(1, 500),
    st.data(),
)
def test_micro_batches_are_cut_at_so_many_events_or_bytes_of_rare_ones_and_at_changes_of_the_gate(
    sent: list[list[Event]], events_max: int, rare_bytes: int, data: st.DataObject
) -> None:
    values = [message_of(events) for events in sent]
    polled = Polled(values, np.full(len(sent), HOME, np.int32), np.ones(len(sent), np.int64), [None] * len(sent))
    mine = sorted(data.draw(st.sets(st.integers(0, len(sent) - 1))))
    taken, expected, run = decode(polled, Decoder(KEY, 2)), list[list[int]](), list[int]()
    for message in mine:
        if GATE_CHANGE in sent[message]:
            expected.append(run)
            run = []
        run.append(message)
        events = [event for k in run for event in sent[k]]
        heavy = sum(event.ByteSize() for event in events if event in RARE) >= rare_bytes
        if len(events) >= events_max or heavy or GATE_CHANGE in sent[message]:
            expected.append(run)
            run = []
    runs = [each.tolist() for each in taken.runs(np.array(mine, np.int64), events_max, rare_bytes)]
    assert runs == [each for each in (*expected, run) if each]
    for messages in runs:
        rare = [event for k in messages for event in sent[k] if event in RARE]
        assert taken.rare_of(np.array(messages, np.int64)) == rare
