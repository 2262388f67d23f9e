"""The short way: a hot GET in its plainest form is served without a scope, a task or a coroutine of its own.

It is open to a request whose head came in one piece, in the strictest form that HTTP has, and with nothing in it that
changes how it is answered. Whatever is odd about a request, and whatever goes wrong before it is answered, sends it the
long way from its beginning: through the parser, the framework and the door. So there is one place that makes errors.
"""

import re
from typing import NamedTuple, Protocol

# Each part can match in one way only, so that no head takes long to refuse. A target without "#", headers without
# folds, and nothing behind the head: what a parser might read in another way does not match.
_HEAD = re.compile(
    rb"GET (/[!\"$-~]*+) HTTP/1\.1\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t -~]*+\r\n)*+)\r\n"
).fullmatch  # fmt: skip
_ODD = frozenset((b"connection", b"content-length", b"expect", b"transfer-encoding", b"upgrade"))


class Head(NamedTuple):
    """The head of a GET."""

    target: bytes
    headers: dict[bytes, bytes]  # by their names in small letters


class Connection(Protocol):
    """Where a request came from."""

    client: tuple[str, int] | None

    def answer(self, body: bytes, request_id: bytes) -> None:
        """Send JSON with status 200."""

    def go_long(self) -> None:
        """Send the request the long way."""


class Turn(Protocol):
    """A request on the short way. One of both is called, once."""

    start_s: float

    def tell(self, body: bytes) -> None:
        """Answer it."""

    def give_up(self) -> None:
        """Let it go the long way."""


def read_head(data: bytes) -> Head | None:
    """Return the head of a GET that is all there is in the data; None: it is not for the short way."""
    found = _HEAD(data)
    if found is None:
        return None
    headers = dict[bytes, bytes]()
    lines = found[2].split(b"\r\n")
    for line in lines[:-1]:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.lstrip(b" \t")  # as the parser does
    if len(headers) < len(lines) - 1:  # one is given twice
        return None
    if not _ODD.isdisjoint(headers) and (
        headers.get(b"connection", b"").lower() != b"keep-alive" or len(_ODD & headers.keys()) > 1
    ):
        return None
    return Head(found[1], headers)
