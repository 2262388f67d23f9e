"""The Kafka adapter against a real broker: what was sent arrives once and in order, and what is wrong is said."""

import time

import pytest
from confluent_kafka import Producer

from saros.adapters.kafka import Admin, Cluster, LostPlaceError, Reader, Writer
from saros.errors import BrokerError, InputError
from tests.broker import Broker

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@pytest.fixture
def cluster(real_broker: Broker) -> Cluster:
    return Cluster(real_broker.address)


@pytest.fixture
def made(cluster: Cluster, topic: str) -> str:
    """A topic with two partitions."""
    Admin(cluster).ensure(topic, 2, 1, APPEND_TIME)
    return topic


def read(reader: Reader, count: int, timeout_s: float = 20.0) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of the next messages."""
    found: list[tuple[int, int, bytes]] = []
    until = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count}"
        polled = reader.poll(100, 0.2)
        found += zip(polled.partition.tolist(), polled.offset.tolist(), polled.values, strict=True)
    return found


def test_what_is_sent_arrives_once_in_order_with_the_broker_s_time(cluster: Cluster, made: str, group: str) -> None:
    writer, before_ms = Writer(cluster), time.time() * 1000
    for k in range(500):
        writer.send(made, k % 2, b"%d" % k, key=b"who", headers=[("why", b"test")])
    writer.flush()
    reader = Reader(cluster, group)
    reader.assign(made, [(0, 0), (1, 0)])
    found = read(reader, 500)
    for partition in (0, 1):
        own = [(offset, value) for p, offset, value in found if p == partition]
        assert own == [(k, b"%d" % (2 * k + partition)) for k in range(250)]
    reader.assign(made, [(0, 249)])
    polled = reader.poll(10, 10.0)
    assert polled.offset.tolist() == [249]
    assert before_ms - 5000 < polled.log_ms[0] < time.time() * 1000 + 5000
    assert reader.watermarks(made, 0) == (0, 250)
    reader.close()


def test_offsets_may_have_gaps(cluster: Cluster, made: str, group: str, real_broker: Broker) -> None:
    """Transactions leave markers, and aborted messages, that nobody reads."""
    other = Producer({"bootstrap.servers": real_broker.address, "transactional.id": group})
    other.init_transactions(20)
    for k in range(4):
        other.begin_transaction()
        other.produce(made, b"%d" % k, partition=0)
        other.flush(20)  # or an aborted message would never be sent
        if k % 2:
            other.abort_transaction(20)
        else:
            other.commit_transaction(20)
    reader = Reader(cluster, group)
    reader.assign(made, [(0, 0)])
    assert read(reader, 2) == [(0, 0, b"0"), (0, 4, b"2")]
    assert reader.watermarks(made, 0)[1] >= 8
    reader.close()


def test_a_place_that_is_not_there_is_an_error(cluster: Cluster, made: str, group: str) -> None:
    writer = Writer(cluster)
    writer.send(made, 0, b"one")
    writer.flush()
    reader = Reader(cluster, group)
    reader.assign(made, [(0, 7)])
    with pytest.raises(LostPlaceError, match="not in the log"):
        read(reader, 1)
    reader.close()


def test_paused_partitions_wait(cluster: Cluster, made: str, group: str) -> None:
    writer = Writer(cluster)
    for partition in (0, 1):
        writer.send(made, partition, b"%d" % partition)
    writer.flush()
    reader = Reader(cluster, group)
    reader.assign(made, [(0, 0), (1, 0)])
    reader.pause(made, [0])
    assert read(reader, 1) == [(1, 0, b"1")]
    assert reader.poll(10, 1.0).values == []
    reader.resume(made, [0])
    assert read(reader, 1) == [(0, 0, b"0")]
    reader.close()


def test_a_topic_is_made_once_and_has_an_id(cluster: Cluster, topic: str) -> None:
    admin = Admin(cluster)
    assert admin.find(topic) is None
    made = admin.ensure(topic, 3, 1, APPEND_TIME)
    assert (made.name, made.partitions) == (topic, 3)
    assert made.id
    assert admin.ensure(topic, 3, 1, APPEND_TIME) == made == admin.find(topic)
    with pytest.raises(InputError, match="has 3 partitions, not 4"):
        admin.ensure(topic, 4, 1, APPEND_TIME)


def test_a_topic_is_not_made_where_that_is_not_allowed(cluster: Cluster, topic: str) -> None:
    with pytest.raises(InputError, match="does not exist") as caught:
        Admin(cluster).ensure(topic, 3, 1, APPEND_TIME, create=False)
    assert caught.value.hint == "make it with 3 partitions and message.timestamp.type=LogAppendTime"
    assert Admin(cluster).find(topic) is None


def test_settings_that_the_broker_refuses_are_told(cluster: Cluster, topic: str) -> None:
    with pytest.raises(BrokerError, match="cannot be made: INVALID_CONFIG"):
        Admin(cluster).ensure(topic, 1, 1, {"message.timestamp.type": "Sundial"})
    with pytest.raises(BrokerError, match="cannot be made: INVALID_REPLICATION_FACTOR"):
        Admin(cluster).ensure(topic, 1, 3, {})


def test_a_message_that_is_not_taken_is_an_error(cluster: Cluster, made: str) -> None:
    writer = Writer(cluster)
    with pytest.raises(BrokerError, match="MSG_SIZE_TOO_LARGE"):
        writer.send(made, 0, b"x" * 2_000_000)
    writer.send(made, 5, b"no such partition")
    with pytest.raises(BrokerError, match="not taken"):
        writer.flush()
    writer.send(made, 0, b"good")
    writer.flush()


@pytest.mark.parametrize("name", ["enable.auto.commit", "acks", "group.id", "auto.offset.reset"])
def test_options_that_a_promise_rests_on_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"sets {name}"):
        Writer(Cluster("localhost:1", {name: "x"}))


def test_options_are_passed_on_and_secrets_are_not_told() -> None:
    options = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "ann",
               "sasl.password": "hunter2"}  # fmt: skip
    Writer(Cluster("localhost:1", options))
    with pytest.raises(InputError) as caught:
        Writer(Cluster("localhost:1", options | {"compression.type": "steam"}))
    assert 'Invalid value "steam"' in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_broker_that_is_away_is_told() -> None:
    away = Cluster("127.0.0.1:9", {"log_level": 0})
    with pytest.raises(BrokerError, match="does not answer"):
        Admin(away, timeout_s=1.0).find("events")
    writer = Writer(away)
    writer.send("events", 0, b"one")
    with pytest.raises(BrokerError, match="not acknowledged"):
        writer.flush(0.5)
