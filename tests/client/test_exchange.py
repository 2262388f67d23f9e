"""How events are shared out to requests, and when a call is tried again: no server is needed to see it."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saros.client import ApiError, BusyError, Event, NoAnswerError, Retries, ServerError
from saros.client.calls import recommend
from saros.client.events import BYTES_MAX, EVENTS_MAX, Line, _requests, line_of
from saros.client.exchange import Reply, error_of


def reply(status: int, retry_after: str | None = None, name: str = "overloaded") -> Reply:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return Reply(status, headers, json.dumps({"type": f"urn:saros:problem:{name}", "detail": "of the test"}).encode())


def error(status: int, retry_after: str | None = None, name: str = "overloaded") -> ApiError:
    found = error_of(reply(status, retry_after, name))
    assert isinstance(found, ApiError)
    return found


users = st.one_of(st.just("busy"), st.integers(0, 60).map(lambda k: f"user {k}"), st.none())


@given(st.lists(st.tuples(users, st.sampled_from([10, 10, 10, 200_000])), max_size=150))
def test_every_event_goes_once_in_its_users_order_in_requests_that_can_be_sent_again(
    shapes: list[tuple[str | None, int]],
) -> None:
    def event(user: str | None) -> Event:
        return {"kind": "item", "item": "x"} if user is None else {"kind": "click", "user": user, "item": "x"}

    lines = [Line(b"x" * size, event(user)) for user, size in shapes]
    requests = _requests(lines)
    assert sorted(place for request in requests for place in request) == list(range(len(lines)))
    for request in requests:
        assert request
        assert sum(len(lines[place].text) + 1 for place in request) <= BYTES_MAX
        for user in {user for user, _ in shapes if user is not None}:
            assert sum(shapes[place][0] == user for place in request) <= 16
    for whose in {user for user, _ in shapes}:
        in_order = [place for request in requests for place in request if shapes[place][0] == whose]
        assert in_order == sorted(in_order)


def test_events_of_many_users_fill_their_requests() -> None:
    lines = [line_of({"kind": "click", "user": f"user {k}", "item": "x"}) for k in range(2 * EVENTS_MAX + 1)]
    assert [len(request) for request in _requests(lines)] == [EVENTS_MAX, EVENTS_MAX, 1]
    one = [line_of({"kind": "click", "user": "ann", "item": "x"}) for _ in range(40)]
    assert [len(request) for request in _requests(one)] == [16, 16, 8]
    both = [line for pair in zip(one, lines[:40], strict=True) for line in pair]
    assert [len(request) for request in _requests(both)] == [56, 16, 8], "others do not wait for ann"
    assert _requests([]) == []


def test_one_event_that_is_too_large_goes_alone() -> None:
    event: Event = {"kind": "item", "item": "x"}
    lines = [Line(b"a", event), Line(b"x" * (BYTES_MAX + 1), event), Line(b"b", event)]
    assert _requests(lines) == [[0], [1], [2]]


def test_an_event_keeps_its_id_and_gets_one_where_it_has_none() -> None:
    made = [json.loads(line_of({"kind": "click", "user": "é", "item": "x"}).text) for _ in range(2)]
    assert made[0]["user"] == "é"
    assert made[0]["event_id"] != made[1]["event_id"]
    event: Event = {"kind": "click", "user": "a", "item": "x\ny", "event_id": "mine"}
    line = line_of(event)
    assert json.loads(line.text) == event
    assert b"\n" not in line.text
    assert line.event is event


def test_pauses_grow_and_are_left_to_chance() -> None:
    retries, busy = Retries(times=10, first_s=0.1, most_s=1.0), error(503)
    for tried in range(10):
        waits = [retries.wait_s(tried, busy, repeatable=True) for _ in range(300)]
        most = min(1.0, 0.1 * 2**tried)
        assert all(wait is not None and 0 <= wait <= most for wait in waits)
        assert max(wait or 0 for wait in waits) > 0.8 * most
        assert min(wait or 0 for wait in waits) < 0.2 * most
    assert retries.wait_s(10, busy, repeatable=True) is None


def test_it_waits_at_least_as_long_as_it_is_told() -> None:
    retries = Retries(first_s=0.5, after_most_s=30)
    waits = [retries.wait_s(0, error(429, "2", "queue-full"), repeatable=False) for _ in range(100)]
    assert all(wait is not None and 2 <= wait <= 2.5 for wait in waits)
    assert retries.wait_s(0, error(503, "31"), repeatable=True) is None
    assert retries.wait_s(0, error(503, "9" * 400), repeatable=True) is None


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("7", 7, 7),
        pytest.param(
            format_datetime(datetime.now(UTC) + timedelta(hours=5), usegmt=True), 1, 5 * 3600, id="in five hours"
        ),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("soon", None, None),
        ("-3", None, None),
        ("1.5", None, None),
        ("", None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, low: float | None, high: float | None) -> None:
    found = error(503, value).retry_after_s
    if low is None or high is None:
        assert found is None
    else:
        assert found is not None
        assert low <= found <= high


def test_what_may_have_been_done_is_tried_again_only_if_that_does_no_harm() -> None:
    retries = Retries()

    def again(failed: ApiError | NoAnswerError) -> tuple[bool, bool]:
        first, second = (retries.wait_s(0, failed, repeatable=repeatable) for repeatable in (True, False))
        return first is not None, second is not None

    assert again(NoAnswerError("it never arrived", sent=False)) == (True, True)
    assert again(NoAnswerError("it may have arrived", sent=True)) == (True, False)
    for status, name in ((429, "queue-full"), (503, "overloaded"), (503, "not-ready")):
        assert again(error(status, None, name)) == (True, True), "the API did nothing"
    for status, name in ((503, "kafka-away"), (502, "of a proxy"), (504, "of a proxy")):
        assert again(error(status, None, name)) == (True, False)
    for status in (400, 401, 403, 404, 413, 422, 500):
        assert again(error(status, "0", "any")) == (False, False)


def test_kinds_of_errors() -> None:
    assert isinstance(error(503), BusyError)
    assert isinstance(error(500), ServerError)
    assert isinstance(error(501), ServerError)
    odd = error_of(Reply(502, {}, b"<html>"))
    assert isinstance(odd, BusyError)
    assert (odd.type, odd.request_id) == ("about:blank", "")
    assert error_of(Reply(204, {}, b"")) is None


def test_it_has_time_to_wait_for_a_token() -> None:
    assert recommend("a").ask.extra_s == 0
    assert recommend("a", min_token="0:1").ask.extra_s == 1
    assert recommend("a", min_token="0:1", wait_ms=3000).ask.extra_s == 3
    assert recommend("a", min_token="").ask.params == (("user_id", "a"),)
