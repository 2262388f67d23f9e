"""The Kafka adapter against a real broker: what was sent arrives once and in order, and what is wrong is said."""

import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client import REGISTRY

from saros.adapters.kafka import (
    Admin,
    Cluster,
    Copies,
    EmbeddedBroker,
    LostPlaceError,
    Reader,
    Writer,
    check_times,
    check_topic,
)
from saros.adapters.kafka.checks import judge_copies
from saros.core.events import TIME_MAX_MS
from saros.errors import BrokerError, InputError, SarosError
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
        offsets = map(polled.offset, range(len(polled.values)))
        found += zip(polled.partition.tolist(), offsets, polled.values, strict=True)
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
    assert polled.offset(0) == 249
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
    assert reader.last_end(made, 0) == 5, "behind the last message"
    assert reader.last_end(made, 1) == 0, "there is none"
    Admin(cluster).trim(made, 0, 5)
    assert reader.last_end(made, 0) == 0, "nor is there any more"
    reader.close()


def test_who_looks_commits_nothing(cluster: Cluster, made: str, group: str, real_broker: Broker) -> None:
    """Else whoever watches the group's lag would take for read what was only looked at."""
    writer, reader = Writer(cluster), Reader(cluster, group)
    writer.send(made, 0, b"a")
    writer.flush()
    assert reader.last_end(made, 0) == 1
    reader.close()
    watching = Consumer({"bootstrap.servers": real_broker.address, "group.id": group})
    (committed,) = watching.committed([TopicPartition(made, 0)], timeout=20)
    watching.close()
    assert committed.offset < 0, "there is none"


def test_times_that_senders_say_are_bounded(cluster: Cluster, topic: str, group: str) -> None:
    """One sends microseconds for milliseconds."""
    admin = Admin(cluster)
    admin.ensure(
        topic, 1, 1, {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1)}
    )
    assert "trusts their clocks; set message.timestamp.type=LogAppendTime" in check_times(admin, topic)
    other = Producer({"bootstrap.servers": cluster.bootstrap})
    for time_ms in (1_700_000_000_000, 1_700_000_000_000_000):
        other.produce(topic, b"a", partition=0, timestamp=time_ms)
    other.flush(20)
    reader = Reader(cluster, group)
    reader.assign(topic, [(0, 0)])
    found = list[int]()
    until = time.monotonic() + 20
    while len(found) < 2:
        assert time.monotonic() < until
        found += reader.poll(10, 0.2).log_ms.tolist()
    assert found == [1_700_000_000_000, TIME_MAX_MS]
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
    reader.pause()
    assert reader.poll(10, 1.0).values == []
    reader.seek(made, (1, 0))
    assert reader.poll(10, 1.0).values == [], "what begins anew meanwhile waits too"
    reader.resume()
    assert sorted(read(reader, 2)) == [(0, 0, b"0"), (1, 0, b"1")]
    reader.close()


def test_of_two_readers_with_one_name_the_first_ends(cluster: Cluster, made: str, group: str) -> None:
    """And says so in a way that nobody takes for passing: it would never read again."""
    readers = [Reader(cluster, group, instance="one") for _ in range(2)]
    begun: list[int] = []

    def gained(partitions: list[int]) -> list[tuple[int, int]]:
        begun.extend(partitions)
        return [(partition, 0) for partition in partitions]

    until = time.monotonic() + 30
    for reader in readers:
        reader.subscribe(made, gained, lambda _: None)
        begun.clear()
        while len(begun) < 2:
            assert time.monotonic() < until
            reader.poll(10, 0.1)
    with pytest.raises(SarosError, match="reading has ended") as caught:
        read(readers[0], 1)
    assert not isinstance(caught.value, BrokerError)
    for reader in readers:
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


def test_a_topic_with_enough_replicas_is_made_so_that_two_have_each_message(cluster: Cluster, topic: str) -> None:
    with pytest.raises(InputError) as caught:
        Admin(cluster).ensure(topic, 3, 3, APPEND_TIME, create=False)
    assert caught.value.hint.endswith("message.timestamp.type=LogAppendTime, min.insync.replicas=2")


def test_a_topic_that_may_lose_what_it_acknowledged_is_warned_of(cluster: Cluster, made: str) -> None:
    admin = Admin(cluster)
    assert admin.copies(made) == Copies(1, 1)
    assert admin.copies("nowhere") is None
    assert check_times(admin, made) == ""
    warning = check_topic(admin, made)
    assert warning.startswith(f"topic {made} has replication factor 1 and min.insync.replicas 1: ")
    assert "kafka-reassign-partitions), then set min.insync.replicas=2" in warning
    assert "then" not in judge_copies("t", Copies(3, 1))
    assert "replicas" not in judge_copies("t", Copies(2, 2)).partition(":")[0]
    assert "does not tell" in judge_copies("t", Copies(3, None))
    assert judge_copies("t", Copies(3, 2)) == ""


def test_the_embedded_broker_is_not_asked_for_replicas() -> None:
    broker = EmbeddedBroker()
    assert check_topic(Admin(Cluster(broker.address)), "any") == ""
    broker.close()


def test_settings_that_the_broker_refuses_are_told(cluster: Cluster, topic: str) -> None:
    with pytest.raises(BrokerError, match="cannot be made: INVALID_CONFIG"):
        Admin(cluster).ensure(topic, 1, 1, {"message.timestamp.type": "Sundial"})
    with pytest.raises(BrokerError, match="cannot be made: INVALID_REPLICATION_FACTOR"):
        Admin(cluster).ensure(topic, 1, 3, {})


def test_a_message_that_is_not_taken_is_an_error(cluster: Cluster, made: str) -> None:
    writer = Writer(cluster)
    with pytest.raises(BrokerError, match="MSG_SIZE_TOO_LARGE"):
        writer.send(made, 0, b"x" * 2_000_000)

    def send_astray() -> None:
        writer.send(made, 5, b"no such partition")  # is refused at once, if the client has heard of the topic already
        writer.flush()

    with pytest.raises(BrokerError, match="UNKNOWN_PARTITION"):
        send_astray()
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


class Member:
    """A reader in a group, and what it was told."""

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self.owned: set[int] = set()
        self.reader, self.found = Reader(cluster, group, statistics_s=0.1), Counter[bytes]()
        self.reader.subscribe(topic, self.gained, self.lost)
        self.next: dict[int, int] = {}

    def gained(self, partitions: list[int]) -> list[tuple[int, int]]:
        assert not self.owned & set(partitions)
        self.owned |= set(partitions)
        return [(partition, 0) for partition in partitions]

    def lost(self, partitions: list[int]) -> None:
        assert set(partitions) <= self.owned
        self.owned -= set(partitions)

    def poll(self) -> None:
        polled = self.reader.poll(100, 0.1)
        assert set(polled.partition.tolist()) <= self.owned
        self.found.update(polled.values)
        self.next |= polled.next_offsets()


def test_a_group_shares_partitions_and_gives_up_only_what_another_takes(
    cluster: Cluster, made: str, group: str
) -> None:
    writer, until = Writer(cluster), time.monotonic() + 60
    for k in range(10):
        writer.send(made, k % 2, b"%d" % k)
    writer.flush()
    one = Member(cluster, made, group)
    while sum(one.found.values()) < 10:
        assert time.monotonic() < until
        one.poll()
    assert one.owned == {0, 1}
    one.reader.commit(made, sorted(one.next.items()))
    two = Member(cluster, made, group)
    while sum(two.found.values()) < 5:
        assert time.monotonic() < until
        one.poll()
        two.poll()
    assert sorted([*one.owned, *two.owned]) == [0, 1], "each has one"
    assert all(count == 1 for count in one.found.values()), "the one that stayed was not read again"
    (back,) = two.owned
    two.reader.close()
    while one.owned != {0, 1}:
        assert time.monotonic() < until
        one.poll()
    while one.found[b"%d" % (8 + back)] < 2:
        assert time.monotonic() < until
        one.poll()
    committed = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group}).committed(
        [TopicPartition(made, partition) for partition in (0, 1)], timeout=20
    )
    assert [place.offset for place in committed] == [5, 5]
    one.reader.close()


def test_an_error_in_what_is_told_comes_out_of_poll(cluster: Cluster, made: str, group: str) -> None:
    def gained(partitions: list[int]) -> list[tuple[int, int]]:
        raise BrokerError("no place is known")

    reader = Reader(cluster, group)
    reader.subscribe(made, gained, lambda partitions: None)
    with pytest.raises(SarosError, match="partitions could not be begun: no place is known") as caught:
        read(reader, 1)
    assert not isinstance(caught.value, BrokerError), "nobody takes it for passing"
    reader.close()


def test_statistics_are_metrics(cluster: Cluster, made: str, group: str) -> None:
    writer = Writer(cluster)
    for _ in range(10):
        writer.send(made, 0, b"x")
    writer.flush()
    reader, until = Reader(cluster, group, statistics_s=0.05), time.monotonic() + 30
    reader.assign(made, [(0, 0), (1, 0)])

    def lag(partition: int) -> float | None:
        return REGISTRY.get_sample_value("saros_kafka_lag_messages", {"topic": made, "partition": str(partition)})

    read = 0
    while read < 10 or lag(0) != 0 or lag(1) is None:
        assert time.monotonic() < until
        read += len(reader.poll(3, 0.1).values)
    assert (
        REGISTRY.get_sample_value("saros_kafka_round_trip_seconds", {"client": "consumer", "broker": "1"}) is not None
    )
    reader.assign(made, [(1, 0)])
    while lag(0) is not None:
        assert time.monotonic() < until
        reader.poll(1, 0.1)
    reader.close()
