"""The profile `cluster`: a Redis node, a trainer and an API are killed under load, and not an event is lost."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from saros.adapters.names import topics_of
from saros.client import Client
from saros.wire.encode import events_in
from tests.compose.load import Load
from tests.compose.stack import Stack, await_until, new_stack

pytestmark = pytest.mark.timeout(2400)

SERVICES = ("trainer-1", "trainer-2", "api-1", "api-2")
MODEL = "cluster"


@pytest.fixture(scope="module")
def stack(image: str) -> Iterator[Stack]:
    """The cluster, without the model beside it."""
    with new_stack() as running:
        running.up(*SERVICES)
        yield running


@pytest.fixture(scope="module")
def clients(stack: Stack) -> Iterator[list[Client]]:
    """A client of each API."""
    key = stack.key("operator")
    with stack.client("API_1_PORT", key) as first, stack.client("API_2_PORT", key) as second:
        yield [first, second]


def test_nothing_is_lost_whatever_is_killed(stack: Stack, clients: list[Client]) -> None:
    owners = {row["owner"] for row in status(stack)["partitions"]}
    assert owners == {"trainer-1", "trainer-2"}, "they share the partitions"

    load = Load(clients)
    with load.flowing():
        load.go_on()
        for service in ("redis-2", "trainer-1", "api-1"):
            restarts = stack.kill(service)
            load.go_on()
            stack.await_healthy(service, restarts)
            load.go_on()
        # All at once, as when the machine that they are on goes down.
        restarts_of = {service: stack.kill(service) for service in ("redis-1", "trainer-2", "api-1")}
        assert clients[1].recommend("user-7", k=5).items, "the other API answers meanwhile"
        for service, restarts in restarts_of.items():
            stack.await_healthy(service, restarts)
        load.go_on()

    logged = events_logged(stack)
    assert load.acknowledged <= set(logged), "what was acknowledged is in the log"
    found = stack.await_counted("trainer-1", len(logged))
    assert (found["differences"], found["events"]) == (0, len(logged)), found["told"]
    assert found["users"] > 100

    for client in clients:
        assert client.stats()["ready"]
        assert client.recommend("user-7", k=5).source == "model"


def test_prometheus_tells_its_model_from_the_other(stack: Stack) -> None:
    """By the names that its addresses were found under."""
    stack.up("prometheus")
    both = [(job, MODEL, "1") for job in ("saros-api", "saros-api", "saros-trainer", "saros-trainer")]
    await_until(lambda: stack.targets() == [("prometheus", "", "1"), *both], 90, lambda: str(stack.targets()))


def test_the_cluster_finds_itself_again_at_other_addresses(stack: Stack, clients: list[Client]) -> None:
    before = [item.item_id for item in clients[0].recommend("user-7", k=5).items]
    stack.compose("down", "--timeout", "30", timeout_s=300)
    # Whoever comes first takes the address that another one had.
    stack.compose("up", "--detach", "kafka", "redis-3", "redis-2", timeout_s=300)
    stack.up(*SERVICES)
    assert [item.item_id for item in clients[0].recommend("user-7", k=5).items] == before
    assert stack.audit("trainer-1")["differences"] == 0


def status(stack: Stack) -> dict[str, Any]:
    """Return what `saros status` says."""
    found: dict[str, Any] = json.loads(stack.execute("trainer-1", "saros", "status", "--json"))
    return found


def events_logged(stack: Stack) -> list[str]:
    """Return the ids of all events in the log, read from outside by another client than the one that is tested."""
    topic = topics_of(MODEL).events
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{stack.ports['KAFKA_PORT']}", "group.id": "test"})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    ends = {one: consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=10)[1] for one in partitions}
    consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in partitions])
    found: list[str] = []
    behind = {one for one, end in ends.items() if end}
    while behind:
        message = consumer.poll(10)
        assert message is not None, f"nothing more came of partitions {behind}"
        assert message.error() is None, message.error()
        found += [event.event_id for event in events_in(message.value() or b"")]
        behind = {one for one in behind if one != message.partition() or (message.offset() or 0) + 1 < ends[one]}
    consumer.close()
    return found
