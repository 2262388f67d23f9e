"""The stream for those who watch: server-sent events out of bytes."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from saros.client.errors import UnreadableError


class LiveEvent(NamedTuple):
    """An event: `history` comes first, then a `pulse` each second; docs/api.md says what they hold."""

    name: str
    data: dict[str, Any]


class Events:
    """Puts events together, piece by piece. A line ends with a line feed, and with none of what else Unicode has for
    that: JSON may hold those as they are.
    """

    def __init__(self) -> None:
        self._rest, self._name, self._data = b"", b"", b""

    def take(self, piece: bytes) -> Iterator[LiveEvent]:
        """Yield the events that end within a piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line:
                field, _, value = line.partition(b": ")
                self._name = value if field == b"event" else self._name
                self._data = value if field == b"data" else self._data
                continue
            name, data, self._name, self._data = self._name, self._data, b"", b""
            if name:
                yield _event(name.decode(errors="replace"), data)


def _event(name: str, data: bytes) -> LiveEvent:
    try:
        return LiveEvent(name, json.loads(data))
    except ValueError:
        raise UnreadableError(f"an event {name[:40]!r} is not JSON: {data[:80]!r}") from None
