"""Who asked what: ids of requests, traces they belong to, and the access log.

The log never holds a path or a query, as both hold ids of users: it has the route. What a stranger sent gets into a
line only in letters that cannot break it. A share of the requests is logged, and every one that failed; of those so
many a second, the rest is counted and told with the next.
"""

import logging
import random
import re
import secrets
import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from saros.telemetry import log

ERRORS_PER_S = 10  # of one kind, the caller's or ours: either must not hide the other

_SANE = re.compile(rb"[A-Za-z0-9._~:/@+=-]{1,128}").fullmatch
# A process's own beginning and a number: unique like a random id, and made in no time.
_PREFIX, _NUMBERS = secrets.token_hex(8).encode(), count(1)
# https://www.w3.org/TR/trace-context/: version, trace, parent, flags; later versions may have more behind.
_TRACE = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")

Headers = Mapping[bytes, bytes]


def request_id_of(headers: Headers) -> bytes:
    """Return the id that a request came with, if it is sane, or a new one."""
    given = headers.get(b"x-request-id")
    if given is not None and _SANE(given):
        return given
    return b"%b-%x" % (_PREFIX, next(_NUMBERS))


def trace_of(headers: Headers) -> dict[str, str]:
    """Return the trace that a request belongs to, as fields of a log line."""
    given = headers.get(b"traceparent")
    found = _TRACE.fullmatch(given) if given is not None else None
    if found is None or (found[1] == b"00" and found[4] is not None):
        return {}
    return {"trace_id": found[2].decode(), "parent_id": found[3].decode()}


class _Allowance:
    """So many lines a second."""

    def __init__(self) -> None:
        self._second, self._lines, self._held = 0, 0, 0

    def take(self) -> int:
        """Return how many were held back since the last line, or -1 to hold back this one."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > ERRORS_PER_S:
            self._held += 1
            return -1
        held, self._held = self._held, 0
        return held


class AccessLog:
    """Lines about requests."""

    def __init__(self, share: float = 0.0) -> None:
        """`share` of the requests that succeed are logged."""
        self._share = share
        self._theirs, self._ours = _Allowance(), _Allowance()

    def wants(self, status: int) -> bool:
        """Return whether a line is wanted; whoever asks on the hot route pays for no more than this."""
        return status >= 400 or (self._share > 0 and random.random() < self._share)

    def write(
        self, headers: Headers, request_id: bytes, method: str, route: str, status: int, seconds: float, key: str,
        peer: str,
    ) -> None:  # fmt: skip
        """Write a line about a request that was answered."""
        fields: dict[str, Any] = {
            "method": method, "route": route, "status": status, "ms": round(1000 * seconds, 3),
            "request_id": request_id.decode(), "key": key or "-", "peer": peer or "-", **trace_of(headers),
        }  # fmt: skip
        level = logging.INFO
        if status >= 400:
            held = (self._ours if status >= 500 else self._theirs).take()
            if held < 0:
                return
            if held:
                fields["held_back"] = held
            level = logging.WARNING if status >= 500 else logging.INFO
        log("request answered", level, **fields)
