"""Events over HTTP, to a real broker: good ones arrive in their partitions, bad ones are named, nothing is guessed."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saros.adapters.kafka import Admin, Cluster, Reader
from saros.adapters.names import EVENTS_SETTINGS
from saros.api.limits import Limits
from saros.core.ids import derive_key, joined
from saros.wire.columns import GOOD
from saros.wire.decode import Decoder
from saros.wire.encode import events_in
from saros.wire.partitions import partitions_of
from saros.wire.rare import read_rare
from saros.wire.v1.events_pb2 import Event, EventBatch
from tests.api.double import Double, Served, check_problem, served
from tests.broker import SOON, Broker, java_site, serving
from tests.servers import UnavailableError

PARTITIONS = 3
CLICK = {"kind": "click", "user": "ann", "item": "brazil"}
LINES = {"content-type": "application/x-ndjson"}
PROTOBUF = {"content-type": "application/x-protobuf"}


@pytest.fixture
def made(real_broker: Broker, topic: str) -> str:
    """A topic for events."""
    Admin(Cluster(real_broker.address)).ensure(topic, PARTITIONS, 1, EVENTS_SETTINGS)
    return topic


@pytest.fixture
def api(real_broker: Broker, made: str) -> Iterator[Served]:
    with served(Double(PARTITIONS), bootstrap=real_broker.address, topic=made) as running:
        yield running


def messages(address: str, topic: str, group: str) -> list[tuple[int, int, bytes]]:
    """All there is in a topic: partition, offset and value."""
    reader = Reader(Cluster(address), group)
    ends = [reader.watermarks(topic, partition)[1] for partition in range(PARTITIONS)]
    reader.assign(topic, [(partition, 0) for partition in range(PARTITIONS)])
    found: list[tuple[int, int, bytes]] = []
    until = time.monotonic() + 20
    while len(found) < sum(ends):
        assert time.monotonic() < until
        polled = reader.poll(100, 0.2)
        found += zip(
            polled.partition.tolist(), map(polled.offset, range(len(polled.values))), polled.values, strict=True
        )
    reader.close()
    return sorted(found)


def refused_by_a_trainer(found: list[tuple[int, int, bytes]]) -> int:
    """How many of the events in these messages a trainer would make dead letters of."""
    partition = np.array([place for place, _, _ in found], np.int32)
    buffer, bounds = joined([value for _, _, value in found])
    decoded = Decoder(derive_key(0), PARTITIONS).decode(buffer, bounds, partition)
    read_rare(buffer, decoded, partition, PARTITIONS)
    return int((decoded.reason != GOOD).sum())


def token_of(found: list[tuple[int, int, bytes]]) -> str:
    ends = {partition: offset for partition, offset, _ in found}
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(ends.items()))


def test_events_go_to_the_partitions_of_their_users_in_order(
    api: Served, real_broker: Broker, made: str, group: str
) -> None:
    events: list[dict[str, Any]] = [
        {"kind": "click", "user": f"user-{k % 7}", "item": f"item/{k}", "time": 1_700_000_000 + k} for k in range(60)
    ]
    events.append({"kind": "item", "item": "alien", "categories": ["horror"], "properties": {"year": "1979"}})
    answer = api.client.post("/v1/events", json=events)
    assert answer.status_code == 202
    found = messages(real_broker.address, made, group)
    assert answer.json() == {"accepted": 61, "rejected": [], "token": token_of(found)}
    assert len(found) == PARTITIONS, "those of one partition are one message"
    assert refused_by_a_trainer(found) == 0
    users: dict[str, list[int]] = {}
    for partition, _, value in found:
        for event in events_in(value):
            if event.WhichOneof("kind") == "item_upsert":
                assert partition == partitions_of(["alien"], PARTITIONS)[0]
                assert dict(event.item_upsert.properties) == {"year": "1979"}
                continue
            assert partition == partitions_of([event.user_id], PARTITIONS)[0]
            users.setdefault(event.user_id, []).append(event.event_time_ms)
    assert len(users) == 7
    assert all(times == sorted(times) for times in users.values())


def test_all_forms_of_a_body_say_the_same(api: Served, real_broker: Broker, made: str, group: str) -> None:
    event = Event(user_id="ann")
    event.click.item_id = "brazil"
    line = json.dumps(CLICK)
    answers = [
        api.client.post("/v1/events", json=CLICK),
        api.client.post("/v1/events", json=[CLICK]),
        api.client.post("/v1/events", content=f"{line}\n\n{line}\r\n", headers=LINES),
        api.client.post("/v1/events", content=event.SerializeToString(), headers=PROTOBUF),
        api.client.post("/v1/events", content=EventBatch(events=[event]).SerializeToString(), headers=PROTOBUF),
    ]
    assert [(answer.status_code, answer.json()["accepted"]) for answer in answers] == [
        (202, 1), (202, 1), (202, 2), (202, 1), (202, 1),
    ]  # fmt: skip
    found = messages(real_broker.address, made, group)
    assert [one for _, _, value in found for one in events_in(value)] == [event] * 6
    home = int(partitions_of(["ann"], PARTITIONS)[0])
    assert [answer.json()["token"] for answer in answers] == [f"{home}:{k}" for k in range(5)]


def test_no_events_are_fine_and_write_nothing(api: Served, real_broker: Broker, made: str, group: str) -> None:
    for content, headers in ((b"[]", {"content-type": "application/json"}), (b"\n", LINES), (b"", PROTOBUF)):
        answer = api.client.post("/v1/events", content=content, headers=headers)
        assert (answer.status_code, answer.json()) == (202, {"accepted": 0, "rejected": [], "token": ""})
    assert messages(real_broker.address, made, group) == []


BAD = [
    ("text", "not_json"),
    ({}, "no_kind"),
    ({"kind": "tick", "time": 5}, "no_kind"),
    ({"kind": "click", "item": "brazil"}, "id_missing"),
    ({"kind": "click", "user": "", "item": "brazil"}, "id_missing"),
    ({"kind": "click", "user": "ann"}, "id_missing"),
    ({"kind": "click", "user": "é" * 129, "item": "brazil"}, "id_too_long"),
    ({"kind": "click", "user": ["ann"], "item": "brazil"}, "bad_field"),
    ({"kind": "click", "user": "ann", "item": "brazil", "position": -1}, "bad_field"),
    ({"kind": "click", "user": "ann", "item": "brazil", "scenario": "s" * 65}, "id_too_long"),
    ({"kind": "click", "user": "ann", "item": "brazil", "time": "now"}, "bad_time"),
    ({"kind": "click", "user": "ann", "item": "brazil", "time": -1}, "bad_time"),
    ({"kind": "click", "user": "ann", "item": "brazil", "time": 1e300}, "bad_time"),
    ({"kind": "click", "user": "ann", "item": "brazil", "known_bot": 1}, "bad_field"),
    ({"kind": "click", "user": "ann", "item": "brazil", "weight": 2}, "bad_weight"),
    ({"kind": "positive", "user": "ann", "item": "brazil", "weight": 10.5}, "bad_weight"),
    ({"kind": "negative", "user": "ann", "item": "brazil", "weight": "2"}, "bad_weight"),
    ({"kind": "impression", "user": "ann"}, "no_items"),
    ({"kind": "impression", "user": "ann", "items": []}, "no_items"),
    ({"kind": "impression", "user": "ann", "items": ["a"] * 201}, "too_many_items"),
    ({"kind": "impression", "user": "ann", "items": ["a", ""]}, "id_missing"),
    ({"kind": "item", "item": "a", "categories": ["c" * 65]}, "bad_item"),
    ({"kind": "item", "item": "a", "properties": {"p": "v" * 4096}}, "bad_item"),
    ({"kind": "item", "item": "a", "properties": {"p": 5}}, "bad_field"),
    ({"kind": "item", "item": ""}, "bad_item"),
]


def test_good_events_are_taken_though_others_are_bad(api: Served, real_broker: Broker, made: str, group: str) -> None:
    mixed = [one for event, _ in BAD for one in (event, CLICK)]
    answer = api.client.post("/v1/events", json=mixed)
    assert answer.status_code == 202
    told = answer.json()
    assert told["accepted"] == len(BAD)
    assert [(one["index"], one["reason"]) for one in told["rejected"]] == [
        (2 * k, reason) for k, (_, reason) in enumerate(BAD)
    ]
    assert all(one["detail"] for one in told["rejected"])
    found = messages(real_broker.address, made, group)
    assert sum(len(list(events_in(value))) for _, _, value in found) == len(BAD)
    assert refused_by_a_trainer(found) == 0


def test_where_all_are_bad_it_is_an_error(api: Served, real_broker: Broker, made: str, group: str) -> None:
    answer = api.client.post("/v1/events", json=[{}, {"kind": "click", "user": "ann"}])
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:saros:problem:invalid")
    assert [(one["index"], one["reason"]) for one in answer.json()["rejected"]] == [(0, "no_kind"), (1, "id_missing")]
    assert [error["name"] for error in answer.json()["errors"]] == ["0", "1"]
    assert messages(real_broker.address, made, group) == []


def test_bad_lines_and_bad_protobuf_are_refused_one_by_one(api: Served) -> None:
    lines = f"{json.dumps(CLICK)}\nnonsense\n{json.dumps(CLICK)}\n\xff\n".encode("latin-1")
    answer = api.client.post("/v1/events", content=lines, headers=LINES)
    assert answer.json()["accepted"] == 2
    assert [(one["index"], one["reason"]) for one in answer.json()["rejected"]] == [(1, "not_json"), (3, "not_json")]

    good, tick, gate = Event(user_id="ann"), Event(event_time_ms=5), Event()
    good.click.item_id = "brazil"
    tick.tick.SetInParent()
    gate.gate_change.revision, gate.gate_change.blocks_max = 1, 5
    gate.gate_change.blocks_min, gate.gate_change.window_days, gate.gate_change.ledger_max_bytes = 1, 7, 524_288
    gate.gate_change.blocks_max_floor, gate.gate_change.blocks_max_ceiling = 50, 100
    parts = [good.SerializeToString(), b"\x1a\x02\xff\xfe", tick.SerializeToString(), gate.SerializeToString(), b"\xff"]
    body = b"".join(b"\x0a" + bytes([len(part)]) + part for part in parts)
    answer = api.client.post("/v1/events", content=body, headers=PROTOBUF)
    assert answer.json()["accepted"] == 1
    assert [(one["index"], one["reason"]) for one in answer.json()["rejected"]] == [
        (1, "bad_utf8"), (2, "not_taken_here"), (3, "not_taken_here"), (4, "bad_protobuf"),
    ]  # fmt: skip


def test_field_1_inside_an_event_does_not_make_it_a_batch(
    api: Served, real_broker: Broker, made: str, group: str
) -> None:
    """An event with a field 1, which no event has, would be taken for a batch where it stands alone in a message."""
    event = Event(user_id="ann")
    event.click.item_id = "brazil"
    inner = b"\x0a\x03abc" + event.SerializeToString()
    answer = api.client.post("/v1/events", content=b"\x0a" + bytes([len(inner)]) + inner, headers=PROTOBUF)
    assert answer.json()["accepted"] == 1
    assert refused_by_a_trainer(messages(real_broker.address, made, group)) == 0


@pytest.mark.parametrize(
    ("content", "kind", "status", "problem"),
    [
        (b"", "application/json", 422, "invalid"),
        (b"{", "application/json", 422, "invalid"),
        (b"5", "application/json", 422, "invalid"),
        (b"\x0a\x7f", "application/x-protobuf", 422, "invalid"),
        (b"{}", "text/plain", 415, "unsupported-media-type"),
        (b"{}", "", 415, "unsupported-media-type"),
        (b" " * 5000, "application/json", 413, "too-large"),
        (json.dumps([CLICK] * 11).encode(), "application/json", 413, "too-large"),
        (b"{}\n" * 11, "application/x-ndjson", 413, "too-large"),
        (b"\x0a\x00" * 11, "application/x-protobuf", 413, "too-large"),
    ],
)
def test_bodies_that_are_refused(content: bytes, kind: str, status: int, problem: str) -> None:
    limits = Limits(events_max=10, body_max_bytes=4000)
    with served(Double(), limits=limits) as api:
        answer = api.client.post("/v1/events", content=content, headers={"content-type": kind} if kind else {})
        assert (answer.status_code, answer.json()["type"]) == (status, f"urn:saros:problem:{problem}")
        chunked = api.client.post("/v1/events", content=iter([content]), headers={"content-type": kind})
        assert chunked.status_code == status, "the same where no length is given"


def test_without_a_genesis_nothing_is_taken() -> None:
    model = Double(0)
    model.reasons = ["kernels are compiled, once: 2 of 8, step"]
    with served(model) as api:
        answer = api.client.post("/v1/events", json=CLICK)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:saros:problem:not-ready")
        assert model.reasons[0] in answer.json()["detail"], "nobody could look for the model yet"
        assert answer.json()["reasons"] == model.reasons
        assert int(answer.headers["retry-after"]) >= 1
        model.reasons = []  # or it is never loaded


def test_where_kafka_is_away_it_is_said_soon_and_the_rest_goes_on() -> None:
    with served(Double(), ack_timeout_s=0.5) as api:
        answer = api.client.post("/v1/events", json=[CLICK, {}])
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:saros:problem:kafka-away")
        assert int(answer.headers["retry-after"]) >= 1
        told = answer.json()
        assert (told["accepted"], told["unacknowledged"], told["token"]) == (0, [0], "")
        assert [one["index"] for one in told["rejected"]] == [1]
        assert api.client.get("/v1/users/ann/recommendations").status_code == 200
        # While one request finds out whether it is still away, others are not kept waiting.
        with ThreadPoolExecutor(4) as pool:
            several = list(pool.map(lambda _: api.client.post("/v1/events", json=CLICK), range(4)))
        assert [one.status_code for one in several] == [503] * 4
        assert sum("nothing was sent" in one.json()["detail"] for one in several) == 3


@pytest.mark.timeout(120)
def test_kafka_goes_away_and_comes_back(tmp_path: Path, group: str) -> None:
    """503 with Retry-After while it is away, 202 again by itself, and all that was acknowledged is there."""
    with ExitStack() as stack, ExitStack() as broker:
        try:
            site = stack.enter_context(java_site(tmp_path, SOON))
        except UnavailableError as error:
            pytest.skip(f"needs a broker of its own: {error}")
        broker.enter_context(serving(site))
        Admin(Cluster(site.address)).ensure("events", PARTITIONS, 1, EVENTS_SETTINGS)
        api = stack.enter_context(
            served(Double(PARTITIONS), bootstrap=site.address, topic="events", ack_timeout_s=1.0)
        )  # fmt: skip
        ids, acknowledged = count(), set[str]()

        def send(status: int, times: int = 1) -> None:
            """Send events of many users until so many in a row were answered so."""
            until, left = time.monotonic() + 60, times
            while left:
                assert time.monotonic() < until
                name = f"event-{next(ids)}"
                answer = api.client.post("/v1/events", json=CLICK | {"user": f"user-{name}", "event_id": name})
                if answer.status_code == 202:
                    acknowledged.add(name)
                else:
                    check_problem(answer, 503, "kafka-away")
                    assert int(answer.headers["retry-after"]) >= 1
                left = left - 1 if answer.status_code == status else times

        send(202, 10)
        for _ in range(2):
            broker.close()  # as in a crash
            send(503, 5)
            assert api.client.get("/v1/users/ann/recommendations").status_code == 200
            broker.enter_context(serving(site))
            send(202, 10)
        values = [value for _, _, value in messages(site.address, "events", group)]
        there = {event.event_id for value in values for event in EventBatch.FromString(value).events}
        assert acknowledged <= there
        assert len(acknowledged) >= 30


def test_a_full_queue_is_429() -> None:
    """Kafka is away, so what was sent first stays in the queue; the broker has not been given up on yet."""
    with served(Double(), ack_timeout_s=3.0, queue_messages=2) as api, ThreadPoolExecutor(2) as pool:
        first = [pool.submit(api.client.post, "/v1/events", json=CLICK) for _ in range(2)]
        while api.service.ingest.waiting < 2:
            time.sleep(0.01)
        answer = api.client.post("/v1/events", json=CLICK)
        assert (answer.status_code, answer.json()["type"]) == (429, "urn:saros:problem:queue-full")
        assert int(answer.headers["retry-after"]) >= 1
        numbers = queue_of(api)
        assert numbers["messages"] == 2
        assert 2 * len("ann") < numbers["bytes"] < 1000
        assert [one.result().status_code for one in first] == [503, 503]
        assert queue_of(api) == {"messages": 0, "bytes": 0}


def queue_of(api: Served) -> dict[str, float]:
    """Return what the metrics say of the producer's queue."""
    text = api.client.get("/metrics").text
    return {name: float(n) for name, n in re.findall(r"^saros_api_producer_queue_(\w+) (\S+)$", text, re.MULTILINE)}


def test_what_was_counted_is_told(api: Served) -> None:
    def numbers() -> dict[str, float]:
        found = re.findall(r"^(saros_api_events_\S+) (\S+)$", api.client.get("/metrics").text, flags=re.MULTILINE)
        return {name: float(value) for name, value in found}

    before = numbers()
    api.client.post("/v1/events", json=[CLICK, CLICK, {"kind": "click", "user": "ann"}])
    api.client.post("/v1/events", json={"kind": "click", "user": "ann"})
    after = numbers()
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    assert grown["saros_api_events_accepted_total"] == 2
    assert grown['saros_api_events_rejected_total{reason="id_missing"}'] == 2
