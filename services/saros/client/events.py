"""Events on their way: as lines of JSON, in requests that can be sent again.

The API drops an event whose id is among its user's last 16. So each event has an id, and no request holds more than 16
events of one user: whichever may have arrived can be sent again, and counts once. Events of a user go in the order they
were given.
"""

import json
import secrets
from collections import Counter, deque
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple, TypedDict

from saros.client.answers import Receipt, Rejected
from saros.client.errors import ApiError, ClientError, UnreadableError, UnsentError
from saros.client.exchange import Ask, Reply, Retries, Talk, Wait, error_of, json_of

EVENTS_MAX, BYTES_MAX = 1000, 900_000  # of one request; the API's own limits may be lower
_USER_MAX = 16  # events of one user in a request: as many ids are remembered
_LINES = "application/x-ndjson"
_KAFKA_AWAY = "urn:saros:problem:kafka-away"
_PREFIX, _NUMBERS = secrets.token_hex(6), count(1)


class _Kind(TypedDict):
    kind: str


class Event(_Kind, total=False):
    """An event; docs/api.md says which kinds there are, and which of these fields they have."""

    user: str | int
    items: Sequence[str | int]
    item: str | int
    time: float
    event_id: str
    weight: float
    position: int
    session_id: str
    recommendation_id: str
    scenario: str
    known_bot: bool
    categories: Sequence[str]
    hidden: bool
    deleted: bool
    expires_at: float
    properties: dict[str, str]


class Line(NamedTuple):
    """An event as it is sent, and as it was given."""

    text: bytes
    event: Event


def line_of(event: Event) -> Line:
    """Return an event as a line of JSON. One without an id gets one, so that it can be sent again."""
    whole: dict[str, Any] = {**event}
    whole.setdefault("event_id", f"{_PREFIX}-{next(_NUMBERS):x}")
    return Line(json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(), event)


class Tally:
    """What became of events so far."""

    def __init__(self) -> None:
        self._accepted, self._places = 0, dict[int, int]()
        self._rejected: list[Rejected] = []

    def add(self, told: dict[str, Any], places: Sequence[int]) -> None:
        """Take what the API told of the events at these places."""
        accepted = int(told["accepted"])
        rejected = [Rejected(places[one["index"]], one["reason"], one["detail"]) for one in told["rejected"]]
        pairs = [place.partition(":") for place in filter(None, told.get("token", "").split(","))]
        reached = [(int(partition), int(offset)) for partition, _, offset in pairs]
        self._accepted += accepted  # nothing is noted of an answer that cannot be read to its end
        self._rejected += rejected
        for partition, offset in reached:
            self._places[partition] = max(offset, self._places.get(partition, -1))

    def reject(self, *rejected: Rejected) -> None:
        """Take events that were refused."""
        self._rejected += rejected

    def receipt(self) -> Receipt:
        """Return all of it."""
        token = ",".join(f"{partition}:{offset}" for partition, offset in sorted(self._places.items()))
        return Receipt(self._accepted, tuple(sorted(self._rejected, key=lambda one: one.index)), token)


def send_lines(lines: Sequence[Line], retries: Retries) -> Talk[Receipt]:
    """Send events, in as many requests as it takes; UnsentError where some were not acknowledged."""
    tally, waiting, tried = Tally(), deque(_requests(lines)), 0
    while waiting:
        places = waiting.popleft()
        reply = yield Ask("POST", "/v1/events", (), b"\n".join(lines[place].text for place in places), _LINES)
        error = error_of(reply)
        try:
            left = _take(reply, error, places, tally)
        except UnreadableError as wrong:
            error, left = wrong, [places]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as wrong:
            error, left = UnreadableError(f"the answer is none to events: {wrong!r}"), [places]
        waiting.extendleft(reversed(left))
        if left != [places]:
            tried = 0  # it goes on
        if error is None or len(left) != 1:
            continue
        wait_s = retries.wait_s(tried, error, repeatable=True)
        if wait_s is None:
            unsent = sorted(place for request in waiting for place in request)
            raise UnsentError(unsent, tally.receipt(), str(error)) from error
        tried += 1
        yield Wait(wait_s)
    return tally.receipt()


def _take(
    reply: Reply | ClientError | None, error: ClientError | None, places: list[int], tally: Tally
) -> list[list[int]]:  # fmt: skip
    """Note what an answer says; return the requests that are to be made instead: one is the same, or its rest."""
    if error is None:
        tally.add(json_of(reply), places)
        return []
    if not isinstance(error, ApiError):
        return [places]
    told = dict(error.problem)
    if error.status == 413 and len(places) > 1:
        half = len(places) // 2
        return [places[:half], places[half:]]
    if error.status == 413:
        tally.reject(Rejected(places[0], "too_large", error.detail))
        return []
    if error.status == 422 and "rejected" in told:  # all of them are bad
        tally.add(told, places)
        return []
    if error.type == _KAFKA_AWAY and "unacknowledged" in told:
        tally.add(told, places)
        return [[places[index] for index in told["unacknowledged"]]]
    return [places]


class _Request:
    """The places of the events that go together."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self._bytes, self._users = 0, Counter[str]()

    def take(self, place: int, line: Line) -> bool:
        """Take an event if there is room for it."""
        user, size = _user_of(line), len(line.text) + 1
        full = len(self.places) == EVENTS_MAX or self._bytes + size > BYTES_MAX
        if self.places and (full or (user is not None and self._users[user] == _USER_MAX)):
            return False
        self.places.append(place)
        self._bytes += size
        if user is not None:
            self._users[user] += 1
        return True


def _user_of(line: Line) -> str | None:
    return str(line.event["user"]) if "user" in line.event else None


def _requests(lines: Sequence[Line]) -> list[list[int]]:
    """Return the places of the events of each request: each as early as it can go, and behind its user's others."""
    requests: list[_Request] = []
    latest: dict[str | None, int] = {}
    for place, line in enumerate(lines):
        user = _user_of(line)
        at = latest.get(user, 0)
        while at == len(requests) or not requests[at].take(place, line):
            at += 1
            if at >= len(requests):
                requests.append(_Request())
                at = len(requests) - 1
        latest[user] = at
    return [request.places for request in requests]
