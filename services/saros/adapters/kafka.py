"""Kafka: the one place that imports its client.

Invariants:

- What was sent is acknowledged by all replicas or is an error: idempotent producer, acks=all, and `flush` raises unless
  every message arrived.
- Nothing is committed by itself, and a place that the log no longer has is an error, never a jump: whoever reads
  decides where to go on (`Reader.watermarks` says what is there).
- Partitions are given explicitly. librdkafka's own partitioner is another one than the Java client's.
- Passwords and keys stand in the options only, and no error repeats them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from saros.core.jit import I32, I64
from saros.errors import BrokerError, InputError

Options = Mapping[str, str | int | float | bool]
Headers = Sequence[tuple[str, bytes]]
Place = tuple[int, int]  # partition, offset

# What the promises above rest on. Whoever sets one of these means something else.
_OURS = frozenset(
    ("enable.auto.commit", "auto.offset.reset", "enable.idempotence", "acks", "partitioner", "group.id",
     "bootstrap.servers", "isolation.level")
)  # fmt: skip
_ROOM_S = 0.05
_LOG_TIME = itemgetter(1)


class Cluster(NamedTuple):
    """Where the brokers are, and how to talk to them."""

    bootstrap: str
    options: Options = {}  # noqa: RUF012

    def config(self, **own: Any) -> dict[str, Any]:
        """Return a client's configuration: ours, with the user's options beside it."""
        taken = sorted(_OURS & set(self.options))
        if taken:
            raise InputError(f"SAROS_KAFKA__OPTIONS sets {', '.join(taken)}", "leave it out; Saros sets it itself")
        named = {name.replace("_", "."): value for name, value in own.items()}
        return {"bootstrap.servers": self.bootstrap, "client.id": "saros", **self.options, **named}


class Polled(NamedTuple):
    """Messages as columns."""

    values: list[bytes]
    partition: I32
    offset: I64
    log_ms: I64  # the broker's time of each


class Received(NamedTuple):
    """One message with all that it has; for those that are read one by one."""

    partition: int
    offset: int
    log_ms: int
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]


class Topic(NamedTuple):
    """A topic as it is."""

    name: str
    id: str  # empty where the broker has no ids
    partitions: int


def _client(kind: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Any:
    """Return a client; an option that librdkafka does not take is the user's mistake."""
    try:
        return kind(config)
    except KafkaException as error:
        raise InputError(
            f"SAROS_KAFKA__OPTIONS is not taken: {error.args[0].str()}", "see librdkafka's settings"
        ) from None


def _text(error: KafkaError) -> str:
    """Return what an error says, with its name."""
    return f"{error.name()}: {error.str()}"


class Admin:
    """Topics: what is there, and what is not yet."""

    def __init__(self, cluster: Cluster, timeout_s: float = 10.0) -> None:
        self._client: AdminClient = _client(AdminClient, cluster.config())
        self._timeout_s = timeout_s

    def find(self, name: str) -> Topic | None:
        """Return a topic, or None where there is none."""
        try:
            # All of them: a broker may make a topic because somebody asks for it by name.
            there = self._client.list_topics(timeout=self._timeout_s)
        except KafkaException as error:
            raise BrokerError(f"the broker does not answer: {_text(error.args[0])}") from error
        if str(there.cluster_id).startswith("mockCluster"):
            # The embedded broker makes topics when they are first written to, and does not describe them.
            return Topic(name, "", EMBEDDED_PARTITIONS)
        found = there.topics.get(name)
        if found is None:
            return None
        if found.error is not None:
            raise BrokerError(f"topic {name} cannot be looked at: {_text(found.error)}")
        return Topic(name, self._id(name), len(found.partitions))

    def _id(self, name: str) -> str:
        """Return the id the broker gave a topic; another topic of the same name has another."""
        try:
            described = self._client.describe_topics(TopicCollection([name]), request_timeout=self._timeout_s)
            return str(described[name].result().topic_id)
        except KafkaException:
            return ""

    def ensure(
        self, name: str, partitions: int, replication: int, settings: Mapping[str, str], *, create: bool = True
    ) -> Topic:
        """Return a topic, made with these settings where there is none and making it is allowed."""
        found = self.find(name)
        if found is None:
            if not create:
                raise InputError(
                    f"topic {name} does not exist, and SAROS_KAFKA__CREATE_TOPICS is false",
                    f"make it with {partitions} partitions and {', '.join(f'{k}={v}' for k, v in settings.items())}",
                )
            # -1 is the brokers' own default.
            self._create(NewTopic(name, partitions, replication or -1, config=dict(settings)))
            found = self._await(name)
        if found.partitions != partitions:
            raise InputError(
                f"topic {name} has {found.partitions} partitions, not {partitions}",
                f"set SAROS_KAFKA__PARTITIONS={found.partitions}, or name another model",
            )
        return found

    def delete(self, name: str) -> None:
        """Delete a topic with all it holds."""
        try:
            self._client.delete_topics([name], request_timeout=self._timeout_s)[name].result()
        except KafkaException as error:
            raise BrokerError(f"topic {name} cannot be deleted: {_text(error.args[0])}") from error

    def _create(self, topic: NewTopic) -> None:
        """Make a topic; that somebody else has made it meanwhile is as good."""
        try:
            self._client.create_topics([topic], request_timeout=self._timeout_s)[topic.topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise BrokerError(f"topic {topic.topic} cannot be made: {_text(error.args[0])}") from error

    def _await(self, name: str) -> Topic:
        """Return a topic that was just made; brokers tell each other in their own time."""
        until = time.monotonic() + self._timeout_s
        while True:
            found = self.find(name)
            if found is not None:
                return found
            if time.monotonic() > until:
                raise BrokerError(f"topic {name} was made and is not there after {self._timeout_s:g} s")
            time.sleep(_ROOM_S)


class Reader:
    """A consumer: of partitions it is told, or of a group's share."""

    def __init__(
        self, cluster: Cluster, group: str, *, on_stats: Callable[[str], None] | None = None, stats_ms: int = 0
    ) -> None:
        callbacks = {} if on_stats is None else {"stats_cb": on_stats, "statistics.interval.ms": stats_ms}
        config = cluster.config(
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="error",
            partition_assignment_strategy="cooperative-sticky",
            isolation_level="read_committed",
        )
        self._client: Consumer = _client(Consumer, {**config, **callbacks})

    def assign(self, topic: str, places: Sequence[Place]) -> None:
        """Read these partitions, each from an offset on."""
        self._client.assign([TopicPartition(topic, partition, offset) for partition, offset in places])

    def poll(self, count: int, timeout_s: float) -> Polled:
        """Return up to `count` messages, as many as there are after at most `timeout_s`."""
        good = self._consume(count, timeout_s)
        size = len(good)
        # Calls through `map` are half the price of a loop's, and this is most of what Python does here.
        return Polled(
            [value or b"" for value in map(Message.value, good)],
            np.fromiter(map(Message.partition, good), np.int32, size),
            np.fromiter(map(Message.offset, good), np.int64, size),
            np.fromiter(map(_LOG_TIME, map(Message.timestamp, good)), np.int64, size),
        )

    def drop(self, count: int, timeout_s: float) -> int:
        """Take up to `count` messages and look at none of them; return how many: what a poll costs at least."""
        return len(self._client.consume(count, timeout_s))

    def receive(self, count: int, timeout_s: float) -> list[Received]:
        """`poll` for messages whose key and headers matter; an object for each."""
        return [
            Received(
                message.partition(), message.offset(), message.timestamp()[1], message.value() or b"", message.key(),
                {name: value for name, value in message.headers() or () if value is not None},
            )
            for message in self._consume(count, timeout_s)
        ]  # fmt: skip

    def _consume(self, count: int, timeout_s: float) -> list[Any]:
        """Return messages without errors; an error that does not pass by itself is raised."""
        try:
            messages = self._client.consume(count, timeout_s)
        except KafkaException as error:
            raise BrokerError(f"reading failed: {_text(error.args[0])}") from error
        if not any(map(Message.error, messages)):
            return messages
        _raise_worst(messages)
        return [message for message in messages if message.error() is None]

    def watermarks(self, topic: str, partition: int, timeout_s: float = 10.0) -> tuple[int, int]:
        """Return the first offset that is still there, and the one behind the last."""
        try:
            low, high = self._client.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)
        except KafkaException as error:
            raise BrokerError(f"{topic}/{partition} cannot be looked at: {_text(error.args[0])}") from error
        return int(low), int(high)

    def pause(self, topic: str, partitions: Sequence[int]) -> None:
        """Stop fetching these partitions; polling goes on."""
        self._client.pause([TopicPartition(topic, partition) for partition in partitions])

    def resume(self, topic: str, partitions: Sequence[int]) -> None:
        """Fetch these partitions again."""
        self._client.resume([TopicPartition(topic, partition) for partition in partitions])

    def close(self) -> None:
        """Leave the group."""
        self._client.close()


def _raise_worst(messages: Sequence[Message]) -> None:
    """Raise for errors among messages. What passes by itself (a broker that is away for a while) is no error here."""
    for error in filter(None, (message.error() for message in messages)):
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise LostPlaceError(f"a place to read from is not in the log: {error.str()}")
        if error.fatal() or not (error.retriable() or error.code() in _PASSING):
            raise BrokerError(f"reading failed: {_text(error)}")


_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._PARTITION_EOF, KafkaError._TIMED_OUT)


class LostPlaceError(BrokerError):
    """The log no longer has, or does not have yet, what was to be read."""


class Writer:
    """An idempotent producer."""

    def __init__(self, cluster: Cluster, *, linger_ms: int = 5) -> None:
        config = cluster.config(enable_idempotence=True, acks="all", linger_ms=linger_ms)
        self._client: Producer = _client(Producer, config)
        self._failed: KafkaError | None = None

    def send(
        self, topic: str, partition: int, value: bytes, *, key: bytes | None = None, headers: Headers = (),
        timeout_s: float = 30.0,
    ) -> None:  # fmt: skip
        """Queue a message; where the queue is full, wait for room."""
        until = time.monotonic() + timeout_s
        while True:
            try:
                self._client.produce(
                    topic, value, key, partition, on_delivery=self._delivered, headers=list(headers) or None
                )
                self._client.poll(0)
                return
            except BufferError:
                if time.monotonic() > until:
                    raise BrokerError(f"the queue of {topic} was full for {timeout_s:g} s") from None
                self._client.poll(_ROOM_S)
            except KafkaException as error:
                raise BrokerError(f"{topic}/{partition} takes no message: {_text(error.args[0])}") from error

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._failed = self._failed or error

    def flush(self, timeout_s: float = 30.0) -> None:
        """Return when every message is acknowledged; raise if one cannot be."""
        left = self._client.flush(timeout_s)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise BrokerError(f"a message was not taken: {_text(failed)}")
        if left:
            raise BrokerError(f"{left} messages were not acknowledged within {timeout_s:g} s")


EMBEDDED_PARTITIONS = 4
EMBEDDED_LIMITS = "4 partitions, about 5 MB of each kept in memory, nothing survives the process, no transactions"


class EmbeddedBroker:
    """librdkafka's in-process cluster on a port of this machine, for as long as this object is open.

    It speaks Kafka's protocol, so any client may use it. Topics come into being when somebody first writes to them.
    Exactly once is promised on a real broker only.
    """

    def __init__(self, timeout_s: float = 10.0) -> None:
        self._client: Producer | None = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._client.list_topics(timeout=timeout_s).brokers.values()
        self.address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def close(self) -> None:
        """End the broker and all it holds."""
        self._client = None
