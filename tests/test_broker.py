"""The broker that the tests of the log stand on: the one of this run works, and it is chosen as promised."""

import gc
import os
import re
import subprocess
import sys
import time
import warnings
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests import broker as brokers
from tests.broker import Broker, start_broker
from tests.servers import BrokerError, UnavailableError, spawned

WAIT_S = 30


def create(broker: Broker, topic: str, partitions: int = 1, **config: str) -> None:
    wanted = NewTopic(topic, partitions, 1, config={name.replace("_", "."): value for name, value in config.items()})
    admin = AdminClient({"bootstrap.servers": broker.address})  # it must outlive what it is asked for
    for future in admin.create_topics([wanted]).values():
        future.result(WAIT_S)


def everything(broker: Broker, topic: str, group: str) -> tuple[list[Message], int]:
    """Return all that a read_committed consumer sees of partition 0, and the offset it stands at afterwards."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    seen: list[Message] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"silence after {len(seen)} messages"
            error = message.error()
            if error is None:
                seen.append(message)
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            (position,) = consumer.position([TopicPartition(topic, 0)])
            return seen, position.offset


def test_what_is_produced_is_consumed(broker: Broker, topic: str, group: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    sent = [f"event {number}".encode() for number in range(100)]
    for value in sent:
        producer.produce(topic, value, key=b"ann")
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group, "auto.offset.reset": "earliest"})
    with closing(consumer):
        consumer.subscribe([topic])
        got: list[Message] = []
        while len(got) < len(sent):
            message = consumer.poll(WAIT_S)
            assert message is not None, f"silence after {len(got)} messages"
            assert message.error() is None
            got.append(message)
        consumer.commit(asynchronous=False)
        (partition,) = {message.partition() for message in got}
        assert partition is not None
        (committed,) = consumer.committed([TopicPartition(topic, partition)], WAIT_S)
    assert [message.value() for message in got] == sent
    assert {message.key() for message in got} == {b"ann"}
    assert committed.offset == len(sent)


def test_topics_and_groups_are_each_tests_own(topic: str, group: str) -> None:
    assert topic != group
    for name in (topic, group):
        assert name.startswith("test-topics-and-groups-are-each-tests-own-")
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_a_topic_has_the_partitions_it_was_created_with(real_broker: Broker, topic: str) -> None:
    create(real_broker, topic, partitions=3)
    found = AdminClient({"bootstrap.servers": real_broker.address}).list_topics(topic, WAIT_S).topics[topic]
    assert found.error is None
    assert sorted(found.partitions) == [0, 1, 2]


def test_the_broker_stamps_messages_where_the_topic_says_so(real_broker: Broker, topic: str, group: str) -> None:
    create(real_broker, topic, message_timestamp_type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": real_broker.address})
    producer.produce(topic, b"click", timestamp=1)
    assert producer.flush(WAIT_S) == 0
    (message,), _ = everything(real_broker, topic, group)
    kind, stamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    # The container of another machine may have another clock, but none that is hours off.
    assert abs(stamp_ms - before_ms) < 3_600_000


def test_transactions_leave_gaps_that_a_consumer_steps_over(real_broker: Broker, topic: str, group: str) -> None:
    create(real_broker, topic)
    producer = Producer({"bootstrap.servers": real_broker.address, "transactional.id": group})
    producer.init_transactions(WAIT_S)
    for values, end in [
        ((b"a", b"b"), producer.commit_transaction),
        ((b"c",), producer.abort_transaction),
        ((b"d",), producer.commit_transaction),
    ]:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(WAIT_S) == 0
        end(WAIT_S)
    seen, position = everything(real_broker, topic, group)
    # Each transaction ends with a marker, at 2, 4 and 6; c, at 3, was never committed.
    assert [(message.offset(), message.value()) for message in seen] == [(0, b"a"), (1, b"b"), (5, b"d")]
    assert position == 7


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"log.cleaner.threads": "many"}, "Invalid value many for configuration log.cleaner.threads"),
        # The settings are all right: only the broker itself looks for the class.
        ({"metric.reporters": "saros.Absent"}, "Class saros.Absent cannot be found"),
    ],
    ids=["refuses", "dies"],
)
def test_a_broker_that_does_not_start_shows_its_last_words(
    real_broker: Broker, tmp_path: Path, wrong: dict[str, str], words: str
) -> None:
    if real_broker.kind == "given":
        pytest.skip("the broker was given, so none is started here")
    start = brokers.docker(wrong) if real_broker.kind == "docker" else brokers.java(tmp_path, wrong)
    with pytest.raises(BrokerError, match=f"(?s)its last words:\n.*{re.escape(words)}"), start:
        pass
    assert not (tmp_path / "data").exists()


def test_a_given_broker_wins(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAROS_TEST_KAFKA", broker.address)
    with start_broker(tmp_path) as given:
        assert given == Broker("given", broker.address, True, "")
    assert list(tmp_path.iterdir()) == [], "nothing was started"


def test_a_given_broker_that_does_not_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "GIVEN_S", 0.5)
    monkeypatch.setenv("SAROS_TEST_KAFKA", "127.0.0.1:1")
    with (
        pytest.raises(BrokerError, match=r"no broker answers at SAROS_TEST_KAFKA=127\.0\.0\.1:1"),
        start_broker(tmp_path),
    ):
        pass


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a broker, an engine or a cache. Programs in the directory returned are all it has."""
    monkeypatch.delenv("SAROS_TEST_KAFKA", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def program(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def test_where_nothing_can_be_had_the_embedded_broker_runs(nothing: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    with start_broker(tmp_path) as last:
        assert time.monotonic() - began < 5
        assert (last.kind, last.real) == ("embedded", False)
        without_docker, without_java = last.note.split("; ")
        assert without_docker.startswith("docker: no engine answers")
        assert without_java == "java: not installed"
        assert AdminClient({"bootstrap.servers": last.address}).list_topics(timeout=WAIT_S).brokers


def test_an_engine_that_does_not_answer_leaves_no_warning_for_a_later_test(nothing: Path) -> None:
    gc.collect()
    with pytest.raises(UnavailableError, match="docker: no engine answers"), brokers.docker():
        pass
    with warnings.catch_warnings(record=True) as late:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(warning.message) for warning in late] == []


@pytest.mark.parametrize(
    ("version", "reason"), [("11.0.2", "is 11, Kafka needs 17"), ("1.8.0_402", "is 1, Kafka"), (None, "is no Java")]
)
def test_an_old_java_will_not_do(nothing: Path, tmp_path: Path, version: str | None, reason: str) -> None:
    program(nothing / "java", f"echo 'openjdk version \"{version}\"' >&2" if version else "exit 1")
    with pytest.raises(UnavailableError, match=reason), brokers.java(tmp_path):
        pass


def test_without_maven_there_is_no_fetch(nothing: Path, tmp_path: Path) -> None:
    program(nothing / "java", "echo 'openjdk version \"17\"' >&2")
    with pytest.raises(UnavailableError, match="there is no mvn to fetch it"), brokers.java(tmp_path):
        pass


def test_a_fetch_that_fails_says_why_and_leaves_nothing(nothing: Path, tmp_path: Path) -> None:
    program(nothing / "java", "echo 'openjdk version \"17\"' >&2")
    program(
        nothing / "mvn",
        'for last; do :; done; /bin/mkdir "${last#*=}"; : >"${last#*=}/kafka.jar"',
        "echo '[ERROR] no host'",
        "exit 1",
    )
    with pytest.raises(UnavailableError, match=r"Maven cannot fetch Kafka: \[ERROR\] no host"), brokers.java(tmp_path):
        pass
    assert list((tmp_path / "cache" / "saros").iterdir()) == []


def test_a_program_ends_with_its_block(tmp_path: Path) -> None:
    with spawned(["/bin/sleep", "600"], tmp_path / "log") as process:
        assert process.poll() is None
    assert process.returncode == -9


def test_a_program_dies_with_the_tests(tmp_path: Path) -> None:
    # The program holds the pipe that its log is, and so does the shell that guards it: the pipe ends when both have.
    script = (
        "import os, pathlib, signal, tests.servers\n"
        "with tests.servers.spawned(['/bin/sh', '-c', 'echo ready; exec /bin/sleep 600'], pathlib.Path('/dev/fd/1')):\n"
        "    input()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    tester = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[1],
        env=os.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with tester:
        assert tester.stdin is not None
        assert tester.stdout is not None
        assert tester.stdout.readline() == b"ready\n"
        rest, _ = tester.communicate(b"die\n", timeout=WAIT_S)
    assert rest == b""
    assert tester.returncode == -9
