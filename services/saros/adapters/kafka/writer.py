"""Writing: what was sent is acknowledged by all replicas or is an error.

Partitions are given explicitly: librdkafka's own partitioner is another one than the Java client's.
"""

import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from saros.adapters.kafka.cluster import Cluster, new_client, text_of
from saros.errors import BrokerError

Headers = Sequence[tuple[str, bytes]]

_ROOM_S = 0.05
_FLUSH_S = 0.2


class Writer:
    """An idempotent producer."""

    def __init__(self, cluster: Cluster, *, linger_ms: int = 5, largest: int = 0) -> None:
        """`largest`: bytes that a message may have; 0: what librdkafka takes."""
        config = cluster.config(enable_idempotence=True, acks="all", linger_ms=linger_ms)
        if largest:
            config["message.max.bytes"] = largest
        self._config = config
        self._client: Producer = new_client(Producer, config)
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
                raise _error_of(error.args[0])(
                    f"{topic}/{partition} takes no message: {text_of(error.args[0])}"
                ) from error

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._failed = self._failed or error

    def check(self) -> None:
        """Raise if a message that was sent cannot be acknowledged any more."""
        self._client.poll(0)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise _error_of(failed)(f"a message was not taken: {text_of(failed)}")

    def start_over(self) -> None:
        """Give up what was not sent yet; what is on its way may still arrive. From now on the client is another one:
        one that has failed for good sends nothing any more."""
        self._client.purge(in_queue=True, in_flight=True, blocking=False)
        self._client.flush(0)
        self._client, self._failed = new_client(Producer, self._config), None

    def flush(self, timeout_s: float = 30.0, between: Callable[[], None] = lambda: None) -> None:
        """Return when every message is acknowledged; raise if one cannot be. `between` is called a few times a second,
        and may end it; signals are heard as often."""
        until = time.monotonic() + timeout_s
        while left := self._client.flush(max(0.0, min(_FLUSH_S, until - time.monotonic()))):
            if time.monotonic() > until:
                break
            between()
        self.check()
        if left:
            raise BrokerError(f"{left} messages were not acknowledged within {timeout_s:g} s")


class TooLargeError(BrokerError):
    """A message is larger than its topic takes: sending it again does not help."""


def _error_of(error: KafkaError) -> type[BrokerError]:
    return TooLargeError if error.code() == KafkaError.MSG_SIZE_TOO_LARGE else BrokerError
