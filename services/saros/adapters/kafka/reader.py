"""Reading: messages as columns.

Nothing is committed by itself, and a place that the log no longer has is an error, never a jump: whoever reads decides
where to go on (`Reader.watermarks` says what is there). What was taken from the client is answered once, also where an
error came with it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from saros.adapters.kafka.cluster import Cluster, new_client, text_of
from saros.adapters.kafka.statistics import observe
from saros.core.events import TIME_MAX_MS
from saros.core.jit import I32, I64
from saros.errors import BrokerError, SarosError

Place = tuple[int, int]  # partition, offset

_AGAIN_S = 0.05
_WIDER, _LOOKED = 16, 100  # messages
_GATHERED_BYTES = 1 << 18
_KEPT_MAX = 1000  # messages that came although partitions are paused
_T = TypeVar("_T")


class Polled(NamedTuple):
    """Messages as columns; what only a few of them are asked for is read when it is asked."""

    values: list[bytes]
    partition: I32
    log_ms: I64  # the log's time of each, from 0 to TIME_MAX_MS
    messages: list[Any]

    def offset(self, k: int) -> int:
        """Return the offset of message k."""
        return int(self.messages[k].offset())

    def key(self, k: int) -> bytes | None:
        """Return the key of message k."""
        key: bytes | None = self.messages[k].key()
        return key

    def offsets(self) -> I64:
        """Return the offsets of all messages."""
        return np.fromiter(map(Message.offset, self.messages), np.int64, len(self.messages))

    def next_offsets(self) -> dict[int, int]:
        """Return, for each partition, the offset behind its last message."""
        there = np.flatnonzero(np.bincount(self.partition)).tolist()
        return {p: self.offset(int(np.flatnonzero(self.partition == p)[-1])) + 1 for p in there}


class Received(NamedTuple):
    """One message with all that it has; for those that are read one by one."""

    partition: int
    offset: int
    log_ms: int
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]


class Reader:
    """A consumer: of partitions it is told (`assign`), or of a group's share (`subscribe`)."""

    def __init__(
        self, cluster: Cluster, group: str, *, instance: str = "", statistics_s: float = 0, wait_ms: int = 0,
        gather_ms: int = 0,
    ) -> None:  # fmt: skip
        """`instance`: a name that stays over a restart, so that partitions stay too; `statistics_s` 0: none; `wait_ms`:
        how long a fetch waits at the broker where there is nothing, 0: as librdkafka has it; `gather_ms`: so long it
        waits where there is little, so that what is written at the same time comes at once."""
        config = cluster.config(
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="error",
            partition_assignment_strategy="cooperative-sticky",
            isolation_level="read_committed",
        )
        # By default a fetcher whose queue is full looks again after a second, and the queue is empty in a tenth of it.
        config.setdefault("fetch.queue.backoff.ms", 5)
        if instance:
            config["group.instance.id"] = instance
        if wait_ms:
            config["fetch.wait.max.ms"] = wait_ms
        if gather_ms:
            config |= {"fetch.wait.max.ms": gather_ms, "fetch.min.bytes": _GATHERED_BYTES}
        if statistics_s:
            config |= {"stats_cb": observe, "statistics.interval.ms": int(1000 * statistics_s)}
        self._client: Consumer = new_client(Consumer, config)
        # A broker answers one request of a connection after the other, and a fetch may wait there for half a second.
        looks = cluster.config(
            group_id=group, enable_auto_commit=False, isolation_level="read_committed", enable_partition_eof=True
        )
        self._looks: Consumer = new_client(Consumer, looks)
        self._kept: list[Message] = []
        self._moved: set[int] = set()  # partitions that were gained, lost or begun elsewhere since this was cleared
        self.is_paused = False

    def assign(self, topic: str, places: Sequence[Place]) -> None:
        """Read these partitions, each from an offset on."""
        self._client.assign([TopicPartition(topic, partition, offset) for partition, offset in places])

    def subscribe(
        self, topic: str, gained: Callable[[list[int]], Sequence[Place]], lost: Callable[[list[int]], None]
    ) -> None:
        """Join the group. Both functions are called from within `poll`.

        `gained` is told which partitions are ours from now on, beside those we have, and says where each begins;
        `lost` which are no longer. An error in one of them comes out of `poll`, and then this reader has to be closed:
        a `BrokerError` too, and so as one that nobody takes for passing.
        """

        def assign(_client: Consumer, partitions: list[TopicPartition]) -> None:
            with _for_good("begun"):
                self._begin(topic, gained([each.partition for each in partitions]))

        def revoke(_client: Consumer, partitions: list[TopicPartition]) -> None:
            with _for_good("given away"):
                self._leave([each.partition for each in partitions])
                lost([each.partition for each in partitions])
                self._drop(partitions)

        self._client.subscribe([topic], on_assign=assign, on_revoke=revoke, on_lost=revoke)

    def seek(self, topic: str, place: Place) -> None:
        """Go on elsewhere in a partition that is being read."""
        # Not `seek`: it fails where the partition's place was lost, which is when it is needed most.
        try:
            self._leave([place[0]])
            self._drop([TopicPartition(topic, place[0])])
            self._begin(topic, [place])
        except KafkaException as error:
            raise BrokerError(f"{topic}/{place[0]} cannot go on at {place[1]}: {text_of(error.args[0])}") from error

    def _leave(self, partitions: Sequence[int]) -> None:
        """Drop what was taken of partitions and not answered: it is read again from where they begin, by us or not."""
        self._moved.update(partitions)
        self._kept = [message for message in self._kept if message.partition() not in partitions]

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        """Read partitions no more; some may not be read, because beginning them failed."""
        gone = {(each.topic, each.partition) for each in partitions}
        self._client.incremental_unassign(
            [each for each in self._client.assignment() if (each.topic, each.partition) in gone]
        )

    def _begin(self, topic: str, places: Sequence[Place]) -> None:
        """Read partitions beside those we have, paused if these are."""
        self._leave([partition for partition, _ in places])
        there = [TopicPartition(topic, *place) for place in places]
        self._client.incremental_assign(there)
        # The client remembers a pause of a partition that it had before.
        (self._client.pause if self.is_paused else self._client.resume)(there)

    def commit(self, topic: str, places: Sequence[Place]) -> None:
        """Note in the group how far it is: for those who watch its lag, nobody goes on from there."""
        if places:
            self._client.commit(offsets=[TopicPartition(topic, *place) for place in places], asynchronous=True)

    def poll(self, count: int, timeout_s: float, linger_s: float = 0.0) -> Polled:
        """Return up to `count` messages: wait at most `timeout_s` for the first, then `linger_s` for the rest."""
        # Calls through `map` are half the price of a loop's, and this is most of what Python does here.
        messages = self._consume(count, timeout_s, linger_s)
        log_ms = _log_times(messages)
        if (log_ms < 0).any():  # an error has no time
            messages = self._good(messages)
            log_ms = np.maximum(_log_times(messages), 0)  # nor has a message whose sender gave it none
        values: list[Any] = list(map(Message.value, messages))
        if not all(values):
            values = [value or b"" for value in values]
        partition = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
        # In a topic of the senders' time it is what they say.
        return Polled(values, partition, np.minimum(log_ms, TIME_MAX_MS), messages)

    def drop(self, count: int, timeout_s: float) -> int:
        """Take up to `count` messages and look at none of them; return how many: what a poll costs at least."""
        return len(self._consume(count, timeout_s, timeout_s))

    def receive(self, count: int, timeout_s: float) -> list[Received]:
        """`poll` for messages whose key and headers matter; an object for each."""
        return [
            Received(
                message.partition(), message.offset(), message.timestamp()[1], message.value() or b"", message.key(),
                {name: value for name, value in message.headers() or () if value is not None},
            )
            for message in self._good(self._consume(count, timeout_s, timeout_s))
        ]  # fmt: skip

    def _consume(self, count: int, timeout_s: float, linger_s: float = 0.0) -> list[Any]:
        if self._kept:
            kept, self._kept = self._kept, []
            return kept
        try:
            # One call would wait out its time unless there are `count`.
            first = self._client.consume(1, timeout_s)
            if not first or count == 1:
                return first
            self._moved.clear()
            rest = self._client.consume(count - 1, linger_s)
            # The client answers a call with nothing that was taken before a move in it; `first` is of another call.
            return [message for message in first if message.partition() not in self._moved] + rest
        except KafkaException as error:
            raise BrokerError(f"reading failed: {text_of(error.args[0])}") from error

    def stay(self) -> bool:
        """Stay in the group and take nothing, until `resume`; what comes all the same is answered by the next poll.

        True if there is something of the kind.
        """
        if not self.is_paused:
            self.pause()
        return self.look()

    def look(self) -> bool:
        """Take a message that is here, for the next poll to answer; True if there is one."""
        came = self._client.consume(1, 0)  # on its own: what was kept may become less in it
        self._kept += [message for message in came if not _passes(message.error())]
        if len(self._kept) > _KEPT_MAX:
            raise BrokerError(f"{len(self._kept)} messages came from partitions that are paused")
        return bool(self._kept)

    def _good(self, messages: Sequence[Any]) -> list[Any]:
        """Return what is a message; raise for errors among them that do not pass by themselves."""
        good = [message for message in messages if message.error() is None]
        for error in filter(None, (message.error() for message in messages)):
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._kept = good
                raise LostPlaceError(f"a place to read from is not in the log: {error.str()}")
            if error.fatal() or error.code() == KafkaError._FATAL:
                # This client never reads again: whoever tried would wait for good.
                raise SarosError(f"reading has ended: {error.str()}; a reader of the same name may run elsewhere")
            if not _passes(error):
                self._kept = good
                raise BrokerError(f"reading failed: {text_of(error)}")
        return good

    def watermarks(self, topic: str, partition: int, timeout_s: float = 10.0) -> tuple[int, int]:
        """Return the first offset that is still there, and the one behind the last."""
        place = TopicPartition(topic, partition)
        low, high = self._look(place, timeout_s, lambda: self._looks.get_watermark_offsets(place, timeout=timeout_s))
        return int(low), int(high)

    def last_end(self, topic: str, partition: int, timeout_s: float = 10.0) -> int:
        """Return the offset behind the last message, 0 where there is none: a transaction leaves its mark behind it."""
        low, end = self.watermarks(topic, partition, timeout_s)
        at, span = end, 1
        while at > low:
            at, span = max(low, end - span), _WIDER * span
            last = self._last_of(TopicPartition(topic, partition, at), end, timeout_s)
            if last >= 0:
                return last + 1
        return 0

    def _last_of(self, place: TopicPartition, end: int, timeout_s: float) -> int:
        """Return the offset of the last message from a place to an end, -1 where there is none."""
        last, until = -1, time.monotonic() + timeout_s
        self._looks.assign([place])
        try:
            while last < end - 1:
                found: list[Any] = self._looks.consume(_LOOKED, _AGAIN_S)
                last = max([last, *(each.offset() for each in found if each.error() is None)])
                errors = [each.error().code() for each in found if each.error() is not None]
                if KafkaError._PARTITION_EOF in errors:
                    break
                if time.monotonic() > until:
                    raise BrokerError(f"{place.topic}/{place.partition} does not give what is before its end {end}")
        finally:
            self._looks.unassign()
        return min(last, end - 1)

    def _look(self, place: TopicPartition, timeout_s: float, look: Callable[[], _T]) -> _T:
        """Return what `look` finds; for a moment a partition may have no leader, or another one than we know."""
        until = time.monotonic() + timeout_s
        while True:
            try:
                return look()
            except KafkaException as error:
                if error.args[0].code() not in _LEADERLESS or time.monotonic() > until:
                    raise BrokerError(
                        f"{place.topic}/{place.partition} cannot be looked at: {text_of(error.args[0])}"
                    ) from error
                time.sleep(_AGAIN_S)

    def known_end(self, topic: str, partition: int) -> int:
        """Return the offset behind the last message as the last fetch told it; nobody is asked."""
        try:
            known = self._client.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
        except KafkaException:  # nothing was fetched of it yet
            return -1
        return int(known[1]) if known else -1

    def first_since(self, topic: str, partition: int, time_ms: int, timeout_s: float = 10.0) -> int:
        """Return the offset of the first message since a time; where there is none, the one behind the last."""
        place = TopicPartition(topic, partition, time_ms)
        (found,) = self._look(place, timeout_s, lambda: self._looks.offsets_for_times([place], timeout=timeout_s))
        return int(found.offset) if found.offset >= 0 else self.watermarks(topic, partition)[1]

    def pause(self) -> None:
        """Stop fetching, also what is gained from now on; polling goes on."""
        self.is_paused = True
        self._client.pause(self._client.assignment())

    def resume(self) -> None:
        """Fetch again."""
        if self.is_paused:
            self.is_paused = False
            self._client.resume(self._client.assignment())

    def close(self) -> None:
        """Leave the group."""
        self._client.close()
        self._looks.close()


@contextmanager
def _for_good(done: str) -> Iterator[None]:
    """Partitions change hands. Where that fails the group takes them for ours, and nobody reads them: trying to read on
    would hide it."""
    try:
        yield
    except (BrokerError, KafkaException) as error:
        raise SarosError(f"partitions could not be {done}: {error}") from error


def _log_times(messages: Sequence[Any]) -> I64:
    return np.fromiter(map(itemgetter(1), map(Message.timestamp, messages)), np.int64, len(messages))


# A topic that was just made, or a broker that was restarted.
_LEADERLESS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._PARTITION_EOF, KafkaError._TIMED_OUT)


def _passes(error: KafkaError | None) -> bool:
    """True for an error of reading that passes by itself."""
    return error is not None and (error.retriable() or error.code() in _PASSING)


class LostPlaceError(BrokerError):
    """The log no longer has, or does not have yet, what was to be read."""
