"""The redo topic: genesis, what is written to it, and what is read back.

Every record is read back before it counts, by its writer as by all others: so all of them judge the same messages in
the same order. But only while it is the same topic: one that was lost and made anew has other messages at the same
offsets, and only its id tells.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from saros.adapters.kafka import Cluster, Reader, TooLargeError, Topic, Writer
from saros.adapters.names import REDO_MESSAGE_MAX
from saros.adapters.places import Same
from saros.errors import BrokerError, RefusedError
from saros.redo.fence import Fence
from saros.redo.genesis import WRONG_LOG, Genesis, genesis_of
from saros.redo.record import judged, read_redo, redo_of
from saros.wire.v1 import redo_pb2 as pb

_MESSAGES = 100
_POLL_S = 0.02  # a poll waits so long for as many messages as it may take
_QUIET_POLLS = 1500  # without a message, where some are known to be there
_WAIT_MS = 10
_OVERHEAD = 4096  # of a message, less than this
_KEEP = "`saros rebase` keeps what the store holds and begins a new log"


class Message(NamedTuple):
    """A message of the redo topic; one that is no record is None."""

    partition: int
    offset: int
    record: pb.Record | None


class RedoLog:
    """Reads and writes the redo topic of a model."""

    def __init__(self, cluster: Cluster, topic: Topic, gather_ms: int = 0) -> None:
        """`gather_ms`: records may be read so much later, for more of them to come at once."""
        self._topic, self._id = topic.name, topic.id
        self._reader = Reader(cluster, f"{topic.name}-reader", gather_ms=gather_ms)
        # Goes from partition to partition: whoever waits for one of them at the broker keeps the next one waiting.
        self._again = Reader(cluster, f"{topic.name}-reader", wait_ms=_WAIT_MS)
        self._span_read: object = None  # the last one that was assigned, while it is read
        self._writer = Writer(cluster, linger_ms=0, largest=REDO_MESSAGE_MAX)
        self._largest = 0  # bytes of a record that was sent
        self.topic = Same(cluster, topic.name, topic.id, _KEEP)

    def genesis(self) -> Genesis | None:
        """Return the first genesis for this topic in partition 0, or None where there is none."""
        for _, _, message in self._span(0, 0, self.end(0), whole=True):
            if message is not None and message.WhichOneof("kind") == "genesis":
                found = genesis_of(message.genesis)
                if found.redo_topic_id == self._id:
                    return found
        return None

    def write_genesis(self, genesis: Genesis) -> None:
        """Append a genesis; whether it is the first the log says."""
        self._writer.send(self._topic, 0, pb.Redo(genesis=genesis.message()).SerializeToString())
        self._writer.flush()

    def end(self, partition: int) -> int:
        """Return the offset behind the last message."""
        return self._reader.watermarks(self._topic, partition)[1]

    def is_trimmed(self, partition: int) -> bool:
        """True if a partition has lost its first messages."""
        return self._reader.watermarks(self._topic, partition)[0] > 0

    def record_at(self, partition: int, offset: int) -> pb.Record | None:
        """Return the record at an offset, or None where there is none, or none any more."""
        for _, _, message in self._span(partition, offset, offset + 1, whole=True):
            if message is not None and message.WhichOneof("kind") == "record":
                return message.record
        return None

    def check(self, partition: int, fence: Fence, what: str) -> None:
        """Refuse a place that this log does not have."""
        low, end = self._reader.watermarks(self._topic, partition)
        if fence.offset >= end or fence.offset + 1 < low:
            raise RefusedError(
                f"{what} is at {fence.offset} of redo partition {partition}, which has {low} to {end}",
                WRONG_LOG,
            )

    def follow(self, fences: Sequence[Fence]) -> None:
        """Read all partitions, each from behind its fence."""
        self._reader.assign(self._topic, [(partition, fence.offset + 1) for partition, fence in enumerate(fences)])

    def poll(self, timeout_s: float, count: int = 100, linger_s: float = 0.0) -> list[Message]:
        """Return what has come since the last call: wait so long for the first message, then so long for the rest."""
        polled = self._reader.poll(count, timeout_s, linger_s)
        return [
            Message(partition, polled.offset(k), _record(value))
            for k, (partition, value) in enumerate(zip(polled.partition.tolist(), polled.values, strict=True))
        ]

    def accepted(self, partition: int, fence: Fence, end: int) -> Iterator[tuple[Fence, pb.Record]]:
        """Read a part of a partition again: the records that count behind a fence and before an offset."""
        for _, offset, message in self._span(partition, fence.offset + 1, end):
            record = message.record if message is not None and message.WhichOneof("kind") == "record" else None
            counts, fence = judged(fence, offset, record)
            if counts:
                assert record is not None
                yield fence, record

    def is_older(self, partition: int, fence: Fence, time_ms: int) -> bool:
        """True if the last message that a fold has read was written before a time."""
        return fence.offset < self.first_since(partition, time_ms)

    def first_since(self, partition: int, time_ms: int) -> int:
        """Return the offset of the first message written since a time; where there is none, the one behind the last."""
        return self._again.first_since(self._topic, partition, time_ms)

    def _span(
        self, partition: int, first: int, end: int, whole: bool = False
    ) -> Iterator[tuple[int, int, pb.Redo | None]]:
        """Read the messages of [first, end); with `whole` from the first that is there. Another span may be read in the
        middle of it: mending a partition, a trainer may find that the store fell back meanwhile."""
        low, _ = self._again.watermarks(self._topic, partition)
        at, quiet, own = max(first, low) if whole else first, 0, object()
        while at < end:
            if self._span_read is not own:
                self._again.assign(self._topic, [(partition, at)])
                self._span_read, quiet = own, 0
            polled = self._again.poll(_MESSAGES, _POLL_S)
            quiet = 0 if polled.values else quiet + 1
            if quiet > _QUIET_POLLS:
                raise BrokerError(f"{self._topic}/{partition} does not give what is at {at}, before its end {end}")
            for k, value in enumerate(polled.values):
                at = polled.offset(k) + 1
                if at > end:
                    break
                yield partition, at - 1, read_redo(value)
        if self._span_read is own:
            self._again.assign(self._topic, [])
            self._span_read = None

    def send(self, partition: int, record: pb.Record) -> int:
        """Send a record and return its bytes; BrokerError where it, or one before it, cannot be delivered."""
        value = redo_of(record)
        if len(value) > REDO_MESSAGE_MAX - _OVERHEAD and record.stats.messages == 1:  # more of them would be split
            raise RefusedError(
                f"{self._topic} takes no record of {len(value)} bytes: in message {record.end - 1} of partition "
                f"{partition} there are too many users whose ledgers end, as they pass B or are erased",
                f"no setting helps: leave it out with kafka-delete-records (that partition of the events, offset "
                f"{record.end}) and SAROS_KAFKA__STOP_AT_GAP=false; then send its events again, fewer users a message",
            )
        self._largest = max(self._largest, len(value))
        with self._room():
            self._writer.send(self._topic, partition, value)
            self._writer.check()
        return len(value)

    def start_over(self) -> None:
        """Give up all that was sent and not read back; it may still arrive, and then the log decides."""
        self._writer.start_over()

    def check_sent(self) -> None:
        """Raise BrokerError if something that was sent cannot be delivered."""
        with self._room():
            self._writer.check()

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Refuse a topic that does not take a record: it would be learned and refused again and again."""
        try:
            yield
        except TooLargeError as error:
            raise RefusedError(
                f"{self._topic} does not take a record: {error}; the largest had {self._largest} bytes",
                f"set max.message.bytes={REDO_MESSAGE_MAX} (kafka-configs --alter), and let the brokers take as much; "
                "or make SAROS_TRAINER__RECORD_KB smaller",
            ) from error

    def close(self) -> None:
        """End all clients."""
        self._reader.close()
        self._again.close()


def _record(value: bytes) -> pb.Record | None:
    message = read_redo(value)
    return message.record if message is not None and message.WhichOneof("kind") == "record" else None
