"""Writing from an event loop: a message is acknowledged by all replicas, or the one who waits for it gets an error.

Invariants: `send` never blocks. What waits for the broker is bounded, in messages and in bytes: beyond, a message is
refused at once. Where no broker answers, one message at a time finds out whether that is still so, and all others are
refused at once: a caller learns in no time what it would learn after a timeout.
"""

import asyncio
import threading
from collections import deque
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from saros.adapters.kafka.cluster import Cluster, new_client, text_of
from saros.errors import BrokerError, LimitError

_LINGER_MS = 2
_POLL_S = 0.1
# librdkafka's own limits, far above ours.
_QUEUE_MESSAGES, _QUEUE_KB = 1_000_000, 2_000_000


class Sender:
    """An idempotent producer for one event loop. A thread of its own takes the broker's answers."""

    def __init__(self, cluster: Cluster, *, ack_timeout_s: float, messages_max: int, bytes_max: int) -> None:
        self._config = cluster.config(
            enable_idempotence=True,
            acks="all",
            linger_ms=_LINGER_MS,
            message_timeout_ms=round(1000 * ack_timeout_s),
            queue_buffering_max_messages=_QUEUE_MESSAGES,
            queue_buffering_max_kbytes=_QUEUE_KB,
        )
        self._messages_max, self._bytes_max = messages_max, bytes_max
        self._client: Producer = new_client(Producer, self._config)
        self._answers: deque[tuple[asyncio.Future[int], KafkaError | None, int]] = deque()
        self._sent: dict[asyncio.Future[int], int] = {}  # bytes of each message that is not answered yet
        self._woken = self._down = self._broken = self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._poll, name="saros-sender", daemon=True)
        self.waiting_bytes = 0

    @property
    def waiting_messages(self) -> int:
        """Messages that wait for the broker."""
        return len(self._sent)

    def start(self) -> None:
        """Begin, in the event loop that this is called in."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def check_room(self, messages: int, size: int) -> None:
        """Raise LimitError if so many messages of so many bytes have no room, BrokerError if no broker answers."""
        if self._down and self.waiting_messages:
            raise BrokerError("no broker answers")
        if self.waiting_messages + messages > self._messages_max or self.waiting_bytes + size > self._bytes_max:
            raise LimitError(f"{self.waiting_messages} messages of {self.waiting_bytes} bytes wait for the broker")

    def send(self, topic: str, partition: int, value: bytes) -> asyncio.Future[int]:
        """Send a message; the answer is its offset, or a BrokerError."""
        assert self._loop is not None, "start comes first"
        if self._broken:
            self._renew()
        future: asyncio.Future[int] = self._loop.create_future()
        try:
            self._client.produce(topic, value, None, partition, on_delivery=partial(self._delivered, future))
        except (BufferError, KafkaException) as error:
            self._broken = self._broken or not isinstance(error, BufferError)
            future.set_exception(BrokerError(f"{topic}/{partition} takes no message: {error}"))
            return future
        self._sent[future] = len(value)
        self.waiting_bytes += len(value)
        return future

    async def close(self, timeout_s: float) -> int:
        """Wait for what is on its way; return how many messages were not acknowledged in time."""
        left: int = await asyncio.to_thread(self._client.flush, timeout_s)
        self._closing = True
        await asyncio.to_thread(self._thread.join)
        self._settle()
        return left

    def _renew(self) -> None:
        """Begin with a new client: an idempotent producer that met a fatal error takes nothing more.

        Nobody hears from the old one again: what it has not answered is an error at once, and may yet arrive.
        """
        self._settle()
        for future in self._sent:
            if not future.done():
                future.set_exception(BrokerError("a message was not taken: its producer had to begin anew"))
        self._sent.clear()
        self.waiting_bytes = 0
        self._client.purge(in_queue=True, in_flight=True, blocking=False)
        self._client.flush(0)
        self._client, self._broken = new_client(Producer, self._config), False

    def _poll(self) -> None:
        while not self._closing:
            self._client.poll(_POLL_S)

    def _delivered(self, future: asyncio.Future[int], error: KafkaError | None, message: Message) -> None:
        """Take one answer; called by the thread. The loop is woken once for all that came since it last looked."""
        offset = message.offset()
        self._answers.append((future, error, -1 if offset is None else offset))
        if not self._woken:
            self._woken = True
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        """Hand the answers to those who wait."""
        self._woken = False  # before it looks: an answer that comes meanwhile wakes it again
        while self._answers:
            future, error, offset = self._answers.popleft()
            size = self._sent.pop(future, None)
            if size is None:  # of a client that was given up: settled, and it says nothing of this one
                continue
            self.waiting_bytes -= size
            if error is None:
                self._down = False
            else:
                self._down, self._broken = True, self._broken or error.fatal()
            if future.done():  # whoever waited has gone
                continue
            if error is None:
                future.set_result(offset)
            else:
                future.set_exception(BrokerError(f"a message was not taken: {text_of(error)}"))
