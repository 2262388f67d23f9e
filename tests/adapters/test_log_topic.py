"""A topic for the model's log that would forget, or takes no record, is refused with what mends it."""

import time
from typing import Any

import pytest

from saros.adapters.kafka import Admin, Cluster, EmbeddedBroker, TooLargeError, Writer, check_log
from saros.adapters.kafka.checks import judge_log
from saros.adapters.names import REDO_SETTINGS
from saros.adapters.redo import RedoLog
from saros.errors import InputError, RefusedError
from saros.wire.v1 import redo_pb2 as pb
from tests.broker import Broker

LEAST = 10 * 2**20


@pytest.fixture
def cluster(real_broker: Broker) -> Cluster:
    return Cluster(real_broker.address)


def test_the_topic_that_saros_makes_is_right(cluster: Cluster, topic: str) -> None:
    admin = Admin(cluster)
    admin.ensure(topic, 1, 1, REDO_SETTINGS)
    assert admin.settings(topic)["retention.ms"] == "-1"
    check_log(admin, topic, LEAST)


@pytest.mark.parametrize(
    ("settings", "told", "hint"),
    [
        # What a broker gives a topic that it makes by itself.
        ({}, "retention.ms=604800000", "retention.ms=-1,max.message.bytes=10485760"),
        ({**REDO_SETTINGS, "retention.bytes": "1000000"}, "retention.bytes=1000000", "retention.bytes=-1"),
        ({**REDO_SETTINGS, "cleanup.policy": "compact"}, "cleanup.policy=compact", "cleanup.policy=delete"),
        ({**REDO_SETTINGS, "max.message.bytes": "1048588"}, "max.message.bytes=1048588", "max.message.bytes=10485760"),
    ],
    ids=["by itself", "bytes", "compact", "small"],
)
def test_one_that_forgets_or_is_too_narrow_is_refused(
    cluster: Cluster, topic: str, settings: dict[str, str], told: str, hint: str
) -> None:
    admin = Admin(cluster)
    admin.ensure(topic, 1, 1, settings)
    with pytest.raises(InputError) as caught:
        check_log(admin, topic, LEAST)
    assert told in caught.value.message
    assert caught.value.hint == f"kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {hint}"


def test_what_nobody_tells_is_not_refused() -> None:
    assert judge_log({}, LEAST) == {}
    broker = EmbeddedBroker()
    check_log(Admin(Cluster(broker.address)), "any", LEAST)
    broker.close()


def large(count: int) -> pb.Record:
    record = pb.Record(nonce=1)
    record.users.rows = bytes(range(256)) * count
    return record


@pytest.mark.parametrize("at_once", [True, False])
def test_a_record_that_the_topic_does_not_take_ends_the_trainer(
    cluster: Cluster, topic: str, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent again it would be refused again."""
    made = Admin(cluster).ensure(topic, 1, 1, {**REDO_SETTINGS, "max.message.bytes": "20000"})
    if at_once:  # the client refuses it, and the topic is not asked
        monkeypatch.setattr("saros.adapters.redo.REDO_MESSAGE_MAX", 20_000)
    log = RedoLog(cluster, made)

    def send() -> None:
        log.send(0, large(200))
        until = time.monotonic() + 20
        while time.monotonic() < until:
            log.check_sent()

    with pytest.raises(
        RefusedError, match=r"does not take a record: .*MSG_SIZE_TOO_LARGE.* had 512\d\d bytes"
    ) as caught:
        send()
    assert f"max.message.bytes={20_000 if at_once else 64 * 2**20}" in caught.value.hint
    log.close()


def test_a_message_that_is_too_large_is_told_apart(cluster: Cluster, topic: str) -> None:
    Admin(cluster).ensure(topic, 1, 1, {})
    writer: Any = Writer(cluster)
    with pytest.raises(TooLargeError, match="MSG_SIZE_TOO_LARGE"):
        writer.send(topic, 0, b"x" * 2_000_000)
