"""How a call is made, whoever moves the bytes: a generator that asks and waits, driven by a plain or an async client.

A call is tried again where the API says that it did nothing (429, 503), or where it does no harm: reading, and whatever
says the same when it is said twice.
"""

import json
import random
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Generic, NamedTuple, TypeVar

from saros.client.errors import ApiError, BusyError, ClientError, NoAnswerError, UnreadableError, api_error

T = TypeVar("T")

# The API has refused before it did anything.
_UNTOUCHED = {f"urn:saros:problem:{name}" for name in ("queue-full", "overloaded", "not-ready")}


class Ask(NamedTuple):
    """A request to be made."""

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    content: bytes = b""
    media_type: str = "application/json"
    extra_s: float = 0.0  # that it may take longer than others


class Wait(NamedTuple):
    """A while to be waited."""

    seconds: float


class Reply(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    content: bytes


# Yields what is to be done; is sent what came of an Ask; returns what the caller gets.
Talk = Generator[Ask | Wait, Reply | ClientError | None, T]


class Call(NamedTuple, Generic[T]):
    """A call of the API: what is asked, and how the answer is read."""

    ask: Ask
    read: Callable[[Any], T]
    repeatable: bool = True  # the same again does no harm


class Retries(NamedTuple):
    """How often, and after how long, a call is tried again: twice as long each time, and any part of it by chance."""

    times: int = 4
    first_s: float = 0.1
    most_s: float = 5.0
    after_most_s: float = 30.0  # where the API asks to wait longer than that, the caller hears of it

    def wait_s(self, tried: int, error: ClientError, *, repeatable: bool) -> float | None:
        """Return how long to wait after so many tries again; None: not again."""
        if tried >= self.times or not _may_try_again(error, repeatable):
            return None
        after_s = (error.retry_after_s or 0.0) if isinstance(error, ApiError) else 0.0
        if after_s > self.after_most_s:
            return None
        return after_s + random.random() * min(self.most_s, self.first_s * 2.0**tried)


def _may_try_again(error: ClientError, repeatable: bool) -> bool:
    if isinstance(error, NoAnswerError):
        return repeatable or not error.sent
    return isinstance(error, BusyError) and (repeatable or error.type in _UNTOUCHED)


def make(call: Call[T], retries: Retries) -> Talk[T]:
    """Make a call."""
    tried = 0
    while True:
        reply = yield call.ask
        error = error_of(reply)
        if error is None:
            try:
                return call.read(json_of(reply))
            except (AttributeError, KeyError, TypeError, ValueError) as wrong:
                raise UnreadableError(f"the answer to {call.ask.path} is not as it should be: {wrong!r}") from wrong
        wait_s = retries.wait_s(tried, error, repeatable=call.repeatable)
        if wait_s is None:
            raise error
        tried += 1
        yield Wait(wait_s)


def json_of(reply: object) -> Any:
    """Return what an answer holds; None where it is empty."""
    assert isinstance(reply, Reply)
    if not reply.content:
        return None
    try:
        return json.loads(reply.content)
    except ValueError:
        raise UnreadableError(f"the answer is not JSON: {reply.content[:80]!r}") from None


def error_of(reply: object) -> ClientError | None:
    """Return the error that an answer is, if it is one."""
    if isinstance(reply, ClientError):
        return reply
    assert isinstance(reply, Reply)
    if 200 <= reply.status < 300:
        return None
    if reply.status < 400:
        return UnreadableError(f"the answer has status {reply.status}: is the address that of the API?")
    try:
        told = json.loads(reply.content)
    except ValueError:
        told = None
    problem = told if isinstance(told, dict) else {"title": f"no problem of the API: {reply.content[:80]!r}"}
    return api_error(reply.status, problem, _seconds(reply.headers.get("retry-after")))


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After; a proxy may give a date."""
    if retry_after is None:
        return None
    if retry_after.isascii() and retry_after.isdecimal():
        return float(retry_after[:9])
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
