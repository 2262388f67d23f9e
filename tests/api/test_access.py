"""Ids of requests, the traces they belong to, and the access log."""

import logging
import re
from typing import Any

import pytest

from saros.api.access import ERRORS_PER_S, AccessLog, request_id_of, trace_of
from saros.api.guard import Guard
from saros.api.keys import entry_of, new_key, read_entries
from tests.api.double import Double, check_problem, served

MADE = re.compile(r"[0-9a-f]{16}-[0-9a-f]+")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of all lines about requests."""
    return [one.__dict__["fields"] for one in caplog.records if one.getMessage() == "request answered"]


def test_an_id_is_taken_up_and_handed_back() -> None:
    with served(Double()) as api:
        asks = (("GET", "/v1/popular"), ("GET", "/livez"), ("GET", "/nowhere"), ("POST", "/v1/rank"),
                ("GET", "/v1/popular?k=x"), ("PUT", "/v1/popular"), ("GET", "/docs"))  # fmt: skip
        for method, path in asks:
            answer = api.client.request(method, path, headers={"x-request-id": "a.B-1_2:3/4@5+6=~"})
            assert answer.headers.get_list("x-request-id") == ["a.B-1_2:3/4@5+6=~"], path
            if answer.status_code >= 400:
                assert answer.json()["request_id"] == "a.B-1_2:3/4@5+6=~", path
        made = [api.client.get("/livez").headers["x-request-id"] for _ in range(20)]
        assert len(set(made)) == 20
        assert all(MADE.fullmatch(one) for one in made)


@pytest.mark.parametrize("given", [b"", b"a b", b"a\tb", b"a;b", b'"a"', b"\xc3\xa9", b"x" * 129, b"a=b level=error x"])
def test_an_id_that_could_break_a_line_is_replaced(given: bytes) -> None:
    assert MADE.fullmatch(request_id_of({b"x-request-id": given}).decode())
    assert request_id_of({b"x-request-id": b"x" * 128}) == b"x" * 128


def test_problems_of_every_origin_have_the_id() -> None:
    model = Double()
    model.reasons = ["not loaded"]
    with served(model) as api:
        for method, path in (("GET", "/readyz"), ("GET", "/v1/popular"), ("POST", "/v1/events")):
            answer = api.client.request(method, path, headers={"x-request-id": "mine"})
            assert answer.json()["request_id"] == "mine", path
        model.reasons = []
        model.fails = ZeroDivisionError()
        for answer in (
            api.client.get("/v1/users/ann/recommendations", headers={"x-request-id": "mine"}),
            api.client.post("/v1/recommendations", json={"user_id": "a"}, headers={"x-request-id": "mine"}),
        ):
            check_problem(answer, 500, "internal")
            assert answer.json()["request_id"] == answer.headers["x-request-id"] == "mine"


def test_a_defect_is_logged_with_id_and_trace(caplog: pytest.LogCaptureFixture) -> None:
    model = Double()
    model.fails = ZeroDivisionError()
    headers = {"x-request-id": "mine", "traceparent": f"00-{TRACE}-{PARENT}-01"}
    with served(model) as api:
        api.client.get("/v1/users/ann/recommendations", headers=headers)
        api.client.post("/v1/recommendations", json={"user_id": "ann"}, headers=headers)
    failed = [one.__dict__["fields"] for one in caplog.records if one.getMessage() == "request failed"]
    assert [one["route"] for one in failed] == ["/v1/users/{user_id}/recommendations", "/v1/recommendations"]
    assert all((one["request_id"], one["trace_id"], one["parent_id"]) == ("mine", TRACE, PARENT) for one in failed)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}-00", True),
        (f"cc-{TRACE}-{PARENT}-01-what-comes-later", True),
        (f"cc-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}-01-more", False),
        (f"ff-{TRACE}-{PARENT}-01", False),
        (f"00-{'0' * 32}-{PARENT}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{PARENT}-01", False),
        (f"00-{TRACE}-{PARENT}", False),
        ("", False),
    ],
)
def test_a_trace_is_taken_up_as_the_standard_says(given: str, taken: bool) -> None:
    expected = {"trace_id": TRACE, "parent_id": PARENT} if taken else {}
    assert trace_of({b"traceparent": given.encode()}) == expected
    assert trace_of({}) == {}


def test_a_line_has_the_route_and_no_id_of_a_user(caplog: pytest.LogCaptureFixture) -> None:
    key = new_key()
    guard = Guard(read_entries([("here", entry_of("shop", ["read"], key))]))
    with served(Double(), guard=guard, access=AccessLog(1.0)) as api, caplog.at_level(logging.INFO, "saros"):
        headers = {"x-request-id": "mine", "traceparent": f"00-{TRACE}-{PARENT}-01", "x-api-key": key}
        api.client.get("/v1/users/ann/recommendations?exclude=secret", headers=headers)
        api.client.get("/v1/popular")
    first, second = lines(caplog)
    assert first.pop("ms") > 0
    assert first == {
        "method": "GET", "route": "/v1/users/{user_id}/recommendations", "status": 200, "request_id": "mine",
        "key": "shop", "peer": "127.0.0.1", "trace_id": TRACE, "parent_id": PARENT,
    }  # fmt: skip
    assert (second["status"], second["key"], "trace_id" in second) == (401, "-", False)
    assert "ann" not in caplog.text
    assert "secret" not in caplog.text
    assert key not in caplog.text


def test_a_share_is_logged_and_failures_always(caplog: pytest.LogCaptureFixture) -> None:
    assert not any(AccessLog(0.0).wants(200) for _ in range(1000))
    assert all(AccessLog(1.0).wants(200) for _ in range(1000))
    some = AccessLog(0.25)
    assert 700 < sum(some.wants(202) for _ in range(4000)) < 1300
    assert all(AccessLog(0.0).wants(status) for status in (400, 401, 404, 429, 500, 503))
    with served(Double()) as api, caplog.at_level(logging.INFO, "saros"):
        api.client.get("/v1/popular")
        api.client.get("/nowhere/ann")
    (line,) = lines(caplog)
    assert (line["route"], line["status"]) == ("other", 404)


def test_failures_are_held_back_where_there_are_many_and_told_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("saros.api.access.time.monotonic", lambda: now)
    access = AccessLog()

    def fail(status: int, times: int) -> None:
        for _ in range(times):
            access.write({}, b"id", "GET", "other", status, 0.001, "", "")

    with caplog.at_level(logging.INFO, "saros"):
        fail(404, 50)
        fail(500, 3)
        assert len(lines(caplog)) == ERRORS_PER_S + 3, "what callers do wrong does not hide what we do"
        assert not any("held_back" in line for line in lines(caplog))
        now += 1
        fail(401, 2)
    assert [line.get("held_back") for line in lines(caplog)[-2:]] == [50 - ERRORS_PER_S, None]
    assert {one.levelno for one in caplog.records if one.__dict__["fields"]["status"] == 500} == {logging.WARNING}
