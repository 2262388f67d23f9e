"""What HTTP makes of a model's answers, and of requests that are wrong: a real server, a model with known answers."""

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from saros.api.limits import Limits
from tests.api.double import ITEMS, PROBLEM, Double, Served, check_problem, served

LIMITS = Limits(
    k_max=12, exclude_max=3, users_max=2, session_max=2, candidates_max=3, body_max_bytes=4000, wait_ms_max=5000
)


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with served(Double(), limits=LIMITS) as running:
        yield running


@pytest.fixture
def api(shared: Served) -> Served:
    """The server, whose model was asked nothing yet."""
    shared.model.asked.clear()
    return shared


def test_recommendations_for_a_user(api: Served) -> None:
    answer = api.client.get("/v1/users/ann/recommendations?k=3&exclude=item/1&scenario=home")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    told = answer.json()
    assert re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]+", told.pop("recommendation_id"))
    assert told.pop("took_ms") >= 0
    assert told == {
        "items": [
            {"item_id": "item/0", "score": 1.0, "rank": 1},
            {"item_id": "item/2", "score": 0.875, "rank": 2},
            {"item_id": "item/3", "score": 0.75, "rank": 3},
        ],
        "source": "model",
        "user_state": "in_band",
        "model_time": "2023-11-14T22:13:20.250Z",
        "stale": False,
        "scenario": "home",
    }
    (wish,) = api.model.asked
    assert (wish.user_id, wish.k, wish.exclude, wish.exclude_seen, wish.category) == ("ann", 3, ("item/1",), True, "")


def test_both_forms_ask_the_same_and_every_answer_has_its_own_id(api: Served) -> None:
    query = "k=7&exclude=a&exclude=b%26c&exclude_seen=false&category=x+y&min_token=1%3A5&wait_ms=9"
    first = api.client.get(f"/v1/users/ann/recommendations?{query}").json()
    second = api.client.get(f"/v1/recommendations?{query}&user_id=ann").json()
    assert first.pop("recommendation_id") != second.pop("recommendation_id")
    first["took_ms"] = second["took_ms"] = 0
    assert first == second
    assert first["token_reached"] is True
    one, other = api.model.asked
    assert one == other
    assert one[2:] == (7, ("a", "b&c"), False, "x y", "1:5", 9, None)


def test_a_token_is_waited_for_unless_it_is_said_otherwise(api: Served) -> None:
    api.client.get("/v1/users/ann/recommendations?min_token=1:5")
    api.client.get("/v1/users/ann/recommendations")
    answer = api.client.get("/v1/users/ann/recommendations?min_token=1:5&wait_ms=0")
    assert [wish.wait_ms for wish in api.model.asked] == [1000, 0, 0]
    assert answer.json()["token_reached"] is False


@pytest.mark.parametrize("user", ["a/b", "a b", "é🙂", "%", "a+b", "?&=#", "...", "a\x00b", "x" * 256, "é" * 128])
def test_ids_hold_any_utf_8(api: Served, user: str) -> None:
    assert api.client.get(f"/v1/users/{quote(user, safe='')}/recommendations").status_code == 200
    assert api.client.get("/v1/recommendations", params={"user_id": user}).status_code == 200
    assert api.client.post("/v1/recommendations", json={"user_id": user}).status_code == 200
    assert [wish.user_id for wish in api.model.asked] == [user] * 3


def test_dots_go_into_the_query(api: Served) -> None:
    """Clients take "." and ".." out of a path before anybody sees it."""
    for user in (".", ".."):
        assert api.client.get("/v1/recommendations", params={"user_id": user}).status_code == 200
    assert [wish.user_id for wish in api.model.asked] == [".", ".."]


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/v1/users/%FF/recommendations", "user_id"),
        (f"/v1/users/{'x' * 257}/recommendations", "user_id"),
        ("/v1/recommendations", "user_id"),
        ("/v1/recommendations?user_id=", "user_id"),
        ("/v1/recommendations?user_id=a&user_id=b", "user_id"),
        ("/v1/recommendations?user_id=%C3", "user_id"),
        ("/v1/users/a/recommendations?user_id=b", "user_id"),
        ("/v1/users/a/recommendations?k=0", "k"),
        ("/v1/users/a/recommendations?k=13", "k"),
        ("/v1/users/a/recommendations?k=", "k"),
        ("/v1/users/a/recommendations?k=1_0", "k"),
        ("/v1/users/a/recommendations?k=%D9%A3", "k"),
        ("/v1/users/a/recommendations?k=1&k=2", "k"),
        ("/v1/users/a/recommendations?exclude=a&exclude=b&exclude=c&exclude=d", "exclude"),
        ("/v1/users/a/recommendations?exclude=", "exclude"),
        ("/v1/users/a/recommendations?exclude_seen=yes", "exclude_seen"),
        (f"/v1/users/a/recommendations?category={'x' * 65}", "category"),
        (f"/v1/users/a/recommendations?scenario={'x' * 65}", "scenario"),
        ("/v1/users/a/recommendations?wait_ms=5001", "wait_ms"),
        ("/v1/users/a/recommendations?wait_ms=-1", "wait_ms"),
        ("/v1/users/a/recommendations?min_token=none", "min_token"),
        ("/v1/users/a/recommendations?exlude=b", "exlude"),
        ("/v1/items/a/similar?scenario=home", "scenario"),
        ("/v1/items/%FF/similar", "item_id"),
        ("/v1/similar", "item_id"),
        ("/v1/popular?k=13", "k"),
        ("/v1/popular?exclude=a", "exclude"),
    ],
)
def test_queries_that_are_wrong_are_422_and_name_what(api: Served, path: str, where: str) -> None:
    check_problem(api.client.get(path), 422, "invalid", where)
    assert not [wish for wish in api.model.asked if not wish.token], "the model is not asked"


def test_similar_and_popular(api: Served) -> None:
    for path in ("/v1/items/item%2F3/similar?k=2&exclude=item/0", "/v1/similar?item_id=item/3&k=2&exclude=item/0"):
        told = api.client.get(path).json()
        assert told["item_id"] == "item/3"
        assert [(one["item_id"], one["rank"]) for one in told["items"]] == [("item/1", 1), ("item/2", 2)]
    check_problem(api.client.get("/v1/items/other/similar"), 404, "unknown-item")
    told = api.client.get("/v1/popular?category=new-").json()
    assert [one["item_id"] for one in told["items"]] == [f"new-{item}" for item in ITEMS[:10]]


def test_posted_recommendations(api: Served) -> None:
    post = api.client.post
    one = post("/v1/recommendations", json={"user_id": "ann", "k": 1, "exclude": ["item/0"], "scenario": "home"})
    assert [item["item_id"] for item in one.json()["items"]] == ["item/1"]
    assert one.json()["scenario"] == "home"
    many = post("/v1/recommendations", json={"users": ["ann", "bob"], "category": "x", "min_token": "0:1"}).json()
    assert [result["user_id"] for result in many["results"]] == ["ann", "bob"]
    assert len({result["recommendation_id"] for result in many["results"]}) == 2
    session = [{"item": "a", "kind": "impression"}, {"item": "b", "kind": "positive"}]
    guest = post("/v1/recommendations", json={"session": session, "exclude_seen": False}).json()
    assert guest["source"] == "session"
    assert post("/v1/recommendations", json={"session": []}).json()["source"] == "popular"
    first, second, third, fourth, fifth = api.model.asked
    assert first[:4] == ("ann", (), 1, ("item/0",))
    assert (second.user_id, third.user_id, second.category, third.token, third.wait_ms) == (
        "ann",
        "bob",
        "x",
        "0:1",
        1000,
    )
    assert (fourth.user_id, fourth.session, fourth.exclude_seen) == ("", (("a", False), ("b", True)), False)
    assert fifth.session == ()


def test_ranking(api: Served) -> None:
    told = api.client.post("/v1/rank", json={"user_id": "ann", "candidates": ["b", "c", "a"]}).json()
    assert [item["item_id"] for item in told["items"]] == ["a", "b", "c"]
    body = {"session": [{"item": "x", "kind": "click"}], "candidates": ["b", "a"], "k": 1, "exclude_seen": True}
    assert [item["item_id"] for item in api.client.post("/v1/rank", json=body).json()["items"]] == ["a"]
    first, second = api.model.asked
    assert (first.user_id, first.k, first.exclude_seen) == ("ann", 3, False)
    assert (second.user_id, second.session, second.k, second.exclude_seen) == ("", (("x", True),), 1, True)


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/v1/recommendations", {}, ""),
        ("/v1/recommendations", {"user_id": "a", "users": ["b"]}, ""),
        ("/v1/recommendations", {"user_id": "a", "session": []}, ""),
        ("/v1/recommendations", [], ""),
        ("/v1/recommendations", {"user_id": ""}, "user_id"),
        ("/v1/recommendations", {"user_id": "é" * 129}, "user_id"),
        ("/v1/recommendations", {"user_id": "\ud800"}, "user_id"),
        ("/v1/recommendations", {"user_id": 5}, "user_id"),
        ("/v1/recommendations", {"users": []}, "users"),
        ("/v1/recommendations", {"users": ["a", "b", "c"]}, "users"),
        ("/v1/recommendations", {"users": ["a", ""]}, "users.1"),
        ("/v1/recommendations", {"user_id": "a", "k": 13}, "k"),
        ("/v1/recommendations", {"user_id": "a", "k": 0}, "k"),
        ("/v1/recommendations", {"user_id": "a", "k": "5"}, "k"),
        ("/v1/recommendations", {"user_id": "a", "k": True}, "k"),
        ("/v1/recommendations", {"user_id": "a", "exclude": ["b"] * 4}, "exclude"),
        ("/v1/recommendations", {"user_id": "a", "exclude": "b"}, "exclude"),
        ("/v1/recommendations", {"user_id": "a", "category": ""}, "category"),
        ("/v1/recommendations", {"user_id": "a", "wait_ms": 5001}, "wait_ms"),
        ("/v1/recommendations", {"user_id": "a", "min_token": "none"}, "min_token"),
        ("/v1/recommendations", {"user_id": "a", "exlude": []}, "exlude"),
        ("/v1/recommendations", {"session": [{"item": "a", "kind": "view"}]}, "session.0.kind"),
        ("/v1/recommendations", {"session": [{"item": "a", "kind": "click"}] * 3}, "session"),
        ("/v1/rank", {"user_id": "a"}, "candidates"),
        ("/v1/rank", {"user_id": "a", "candidates": []}, "candidates"),
        ("/v1/rank", {"user_id": "a", "candidates": ["a"] * 4}, "candidates"),
        ("/v1/rank", {"candidates": ["a"]}, ""),
        ("/v1/rank", {"user_id": "a", "session": [], "candidates": ["a"]}, ""),
        ("/v1/rank", {"user_id": "a", "candidates": ["a"], "min_token": "none"}, "min_token"),
    ],
)
def test_bodies_that_are_wrong_are_422_and_name_what(api: Served, path: str, body: object, where: str) -> None:
    answer = api.client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    check_problem(answer, 422, "invalid", where)


@pytest.mark.parametrize("path", ["/v1/events", "/v1/recommendations", "/v1/rank"])
@pytest.mark.parametrize(
    ("content", "headers", "status", "name"),
    [
        (b"{", {"content-type": "application/json"}, 422, "invalid"),
        (b"{}", {"content-type": "text/plain"}, 415, "unsupported-media-type"),
        (b"{}", {}, 415, "unsupported-media-type"),
        (b"{}", {"content-type": "application/json", "content-encoding": "gzip"}, 415, "unsupported-media-type"),
        (b" " * 4001, {"content-type": "application/json"}, 413, "too-large"),
    ],
)
def test_bodies_that_are_not_taken(
    api: Served, path: str, content: bytes, headers: dict[str, str], status: int, name: str
) -> None:
    check_problem(api.client.post(path, content=content, headers=headers), status, name)
    check_problem(api.client.post(path, content=iter([content]), headers=headers), status, name)


@pytest.mark.parametrize("content", [b"\xff", b"[" * 3900, b"1" * 3900, b"NaN", b'"\\ud800"'])
def test_json_that_is_odd_is_the_caller_s_mistake(api: Served, content: bytes) -> None:
    for path in ("/v1/events", "/v1/recommendations"):
        answer = api.client.post(path, content=content, headers={"content-type": "application/json; charset=utf-8"})
        assert answer.status_code in (400, 422), answer.text
        assert answer.headers["content-type"] == PROBLEM


@pytest.mark.parametrize(
    "path",
    ["/v1", "/v1/users/", "/v1/users//recommendations", "/v1/users/a/b/recommendations", "/v1/popular/",
     "/v1/users/a/recommendations/", "/v1/items/a/b", "/v1/items/", "/v1/users/a/b", "/redoc", "/v1/%70opular",
     "/V1/popular", "/v1/gate/"],
)  # fmt: skip
def test_paths_that_are_none_are_404(api: Served, path: str) -> None:
    check_problem(api.client.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/v1/recommendations", "GET, POST"),
        ("POST", "/v1/users/a/recommendations", "GET"),
        ("POST", "/v1/popular", "GET"),
        ("GET", "/v1/events", "POST"),
        ("PUT", "/v1/rank", "POST"),
        ("POST", "/livez", "GET"),
        ("OPTIONS", "/v1/events", "POST"),
    ],
)
def test_methods_that_a_route_has_not_are_405(api: Served, method: str, path: str, allow: str) -> None:
    answer = api.client.request(method, path, headers={"origin": "http://elsewhere"})
    check_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == allow
    assert not [name for name in answer.headers if name.startswith("access-control")]
