"""Dead letters: messages that could not be taken, as they came, with the reason. Nothing is dropped in silence.

A letter is acknowledged before the input goes on (`DeadLetters.write` returns only then), and may be written twice
where the writer dies in between: at least once, told apart by their place in the input.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from saros.adapters.kafka import Received, Writer
from saros.errors import BrokerError

_REASON, _TOPIC, _PARTITION, _OFFSET, _TIME, _PLACE = (
    "saros.reason", "saros.topic", "saros.partition", "saros.offset", "saros.time_ms", "saros.place",
)  # fmt: skip


class Letter(NamedTuple):
    """What could not be taken, where it stood, and why."""

    reason: str
    value: bytes
    topic: str
    partition: int
    offset: int
    time_ms: int  # the broker's, of the message it came in
    place: int = -1  # of the event in its batch, from 0; -1: the whole message
    key: bytes | None = None

    def headers(self) -> list[tuple[str, bytes]]:
        """Return all but key and value as Kafka's headers."""
        numbers = {_PARTITION: self.partition, _OFFSET: self.offset, _TIME: self.time_ms, _PLACE: self.place}
        texts = {_REASON: self.reason, _TOPIC: self.topic} | {name: str(number) for name, number in numbers.items()}
        return [(name, text.encode()) for name, text in texts.items()]


def letter_of(message: Received) -> Letter:
    """Return a letter as it was written; what is missing in its headers is empty or -1."""
    texts = {name: value.decode(errors="replace") for name, value in message.headers.items()}

    def number(name: str) -> int:
        try:
            return int(texts.get(name, "-1"))
        except ValueError:
            return -1

    return Letter(
        texts.get(_REASON, ""),
        message.value,
        texts.get(_TOPIC, ""),
        number(_PARTITION),
        number(_OFFSET),
        number(_TIME),
        number(_PLACE),
        message.key,
    )


class DeadLetters:
    """Writes letters to the dead letters' topic."""

    def __init__(
        self, writer: Writer, topic: str, partitions: int, check: Callable[[], None] = lambda: None
    ) -> None:  # fmt: skip
        """`check` may end a wait for the broker."""
        self._writer, self._topic, self._partitions, self._check = writer, topic, partitions, check

    def write(self, letters: Iterable[Letter], timeout_s: float = 30.0) -> None:
        """Write letters and return when all are acknowledged."""
        try:
            for letter in letters:
                # In the partition of its number, so that letters of one input partition stay in order.
                self._writer.send(
                    self._topic,
                    letter.partition % self._partitions,
                    letter.value,
                    key=letter.key,
                    headers=letter.headers(),
                    timeout_s=timeout_s,
                )
            self._writer.flush(timeout_s, self._check)
        except BrokerError:
            self._writer.start_over()  # all of them are to be written again
            raise
