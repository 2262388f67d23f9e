"""The stream for those who watch: server-sent events out of lines of text."""

import json
from typing import Any, NamedTuple

from saros.client.errors import UnreadableError


class LiveEvent(NamedTuple):
    """An event: `history` comes first, then a `pulse` each second; docs/api.md says what they hold."""

    name: str
    data: dict[str, Any]


class Lines:
    """Puts events together, line by line."""

    def __init__(self) -> None:
        self._name, self._data = "", ""

    def take(self, line: str) -> LiveEvent | None:
        """Return the event that ends with a line, if one does."""
        if line:
            field, _, value = line.partition(": ")
            self._name = value if field == "event" else self._name
            self._data = value if field == "data" else self._data
            return None
        name, data, self._name, self._data = self._name, self._data, "", ""
        try:
            return LiveEvent(name, json.loads(data)) if name else None
        except ValueError:
            raise UnreadableError(f"an event {name[:40]!r} is not JSON: {data[:80]!r}") from None
