"""Anything at all over a socket, with keys in force: whatever headers, ids and bodies come, no answer is 5xx.

The server is real; the model behind it knows its answers by heart, and Kafka is the broker of this run. A few examples
are for a model that learns, in a process of its own.
"""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saros.adapters.kafka import Admin, Cluster
from saros.adapters.names import EVENTS_SETTINGS
from saros.api.access import AccessLog
from saros.api.guard import Guard
from saros.api.keys import entry_of, new_key, read_entries
from saros.api.limits import Limits
from saros.api.scopes import ROUTES
from tests.api.double import ITEMS, Double, Served, served
from tests.api.test_end_to_end import started
from tests.broker import Broker
from tests.store import StoreServer
from tests.trainer.runs import Model, running

# The server is in this process, and its threads may draw at random while an example is made.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")
KEY = new_key()
BOUNDED = settings(max_examples=600, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
# A header's value: no line may end in it, or it would be another header.
values = st.binary(max_size=60).map(lambda raw: raw.translate(None, b"\r\n\x00"))
names = st.sampled_from([
    b"X-API-Key", b"X-Request-ID", b"traceparent", b"Content-Type", b"Content-Encoding", b"Accept", b"Host", b"Origin",
    b"Expect", b"Upgrade", b"Connection", b"Transfer-Encoding", b"Cookie", b"Range", b"X-Forwarded-For", b"TE",
])  # fmt: skip
odd_headers = st.lists(st.tuples(names, values), max_size=6)
ids = st.one_of(st.binary(max_size=300), st.text(max_size=80).map(str.encode), st.sampled_from(ITEMS).map(str.encode))
pieces = st.one_of(
    st.sampled_from([b"k", b"exclude", b"user_id", b"item_id", b"category", b"min_token", b"wait_ms", b"scenario",
                     b"exclude_seen", b"explore", b"diversity", b"explain", b"seed", b"blocks_min", b"blocks_max"]),
    st.binary(max_size=12).map(lambda raw: quote_from_bytes(raw).encode()),
)  # fmt: skip
queries = st.lists(st.tuples(pieces, st.one_of(pieces, st.integers().map(lambda k: b"%d" % k))), max_size=5).map(
    lambda pairs: b"&".join(b"=".join(pair) for pair in pairs)
)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30))
fields = st.one_of(
    st.sampled_from(["kind", "user", "user_id", "users", "item", "items", "item_id", "session", "candidates", "k",
                     "time", "weight", "exclude", "categories", "properties", "hidden", "expires_at", "min_token",
                     "wait_ms", "blocks_min", "blocks_max", "mode", "deleted", "explore", "seed"]),
    st.text(max_size=10),
)  # fmt: skip
kinds = st.sampled_from(["impression", "click", "negative", "positive", "item", "erase", "gate", "tick"])
values_of_json = st.recursive(
    st.one_of(leaves, kinds),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(fields, inner, max_size=6)),
    max_leaves=12,
)
# Good ones, and good but for a field or two.
good: st.SearchStrategy[dict[str, Any]] = st.sampled_from([
    {"kind": "click", "user": "ann", "item": "a"}, {"kind": "impression", "user": "ann", "items": ["a", "b"]},
    {"kind": "item", "item": "a", "categories": ["x"]}, {"user_id": "ann"}, {"user_id": "ann", "candidates": ["a"]},
    {"session": [{"item": "a", "kind": "click"}]},
])  # fmt: skip
nearly = st.tuples(good, st.dictionaries(fields, leaves, max_size=2)).map(lambda both: {**both[0], **both[1]})
bodies = st.one_of(
    nearly.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=200),
    values_of_json.map(lambda value: json.dumps(value).encode()),
    st.lists(values_of_json, max_size=3).map(lambda all_of: b"\n".join(json.dumps(one).encode() for one in all_of)),
)
# Bodies that are good where they are sent.
fitting: st.SearchStrategy[tuple[tuple[str, str], dict[str, Any]]] = st.sampled_from([
    (("POST", "/v1/events"), {"kind": "click", "user": "ann", "item": "a"}),
    (("POST", "/v1/events"), {"kind": "impression", "user": "ann", "items": ["a", "b"]}),
    (("POST", "/v1/events"), {"kind": "item", "item": "a", "categories": ["x"]}),
    (("POST", "/v1/recommendations"), {"user_id": "ann", "explore": 0.5, "diversity": 0.5, "explain": True}),
    (("POST", "/v1/recommendations"), {"users": ["ann", "bob"], "min_token": "0:0,0:1,2:7"}),
    (("POST", "/v1/recommendations"), {"session": [{"item": "a", "kind": "click"}], "category": "x"}),
    (("POST", "/v1/rank"), {"user_id": "ann", "candidates": ["a", "b"]}),
    (("PUT", "/v1/items"), {"categories": ["x"], "hidden": False, "expires_at": 4e9, "properties": {"p": "1"}}),
    (("PATCH", "/v1/items/{item_id}"), {"categories": ["y"], "expires_at": 1.0}),
    (("POST", "/v1/items:batch"), {"items": [
        {"op": "put", "item_id": "a", "categories": ["x"]}, {"op": "patch", "item_id": "a", "hidden": True},
        {"op": "delete", "item_id": "b"},
    ]}),
    (("PATCH", "/v1/gate"), {"blocks_max": 60, "blocks_min": 2}),
    (("PATCH", "/v1/gate"), {"blocks_max": "p95", "repeat_clicks": "learn", "revision": 1}),
])  # fmt: skip
nearly_fitting = st.tuples(fitting, st.dictionaries(fields, leaves, max_size=1)).map(
    lambda both: (both[0][0], json.dumps({**both[0][1], **both[1]}).encode())
)
media = st.sampled_from(
    [b"application/json", b"application/x-ndjson", b"application/x-protobuf", b"text/plain", b"\xff"]
)


@pytest.fixture(scope="module")
def api(broker: Broker) -> Iterator[Served]:
    guard = Guard(read_entries([("here", entry_of("all", ["admin"], KEY))]))
    limits = Limits(wait_ms_max=5, body_timeout_s=2.0)
    topic = f"fuzz-{uuid4().hex[:12]}"
    Admin(Cluster(broker.address)).ensure(topic, Double().partitions, 1, EVENTS_SETTINGS)
    with served(
        Double(), bootstrap=broker.address, topic=topic, limits=limits, guard=guard, access=AccessLog(1.0)
    ) as serving:
        yield serving


class Learned(NamedTuple):
    """A server with a model that learns."""

    url: str


@pytest.fixture(scope="module")
def learned(
    real_broker: Broker, store_server: StoreServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Learned]:
    model = Model(f"m{uuid4().hex[:12]}", real_broker.address, store_server.url, tmp_path_factory.mktemp("model"))
    more = {"SAROS_API__KEYS": entry_of("all", ["admin"], KEY), "SAROS_API__WAIT_MS_MAX": "5"}
    with running([model.trainer()]), started(model, **more) as api:
        api.await_ready()
        yield Learned(str(api.client.base_url))
        assert api.client.get("/livez").status_code == 200
        assert "request failed" not in api.words()


def say(api: Served | Learned, request: bytes, *, ends: bool) -> list[bytes]:
    """Send bytes, and return the first line of each answer. What does not end by itself, as noise may, we end."""
    host, port = api.url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as wire:
        wire.sendall(request)
        if not ends:
            wire.shutdown(socket.SHUT_WR)
        answer = b""
        with suppress(ConnectionResetError):
            while chunk := wire.recv(65536):
                answer += chunk
    return [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def check(api: Served | Learned, request: bytes, *, ends: bool = True) -> None:
    """No answer is 5xx, and whatever is a request has one."""
    lines = say(api, request, ends=ends)
    assert lines or not ends, request
    for line in lines:
        assert 200 <= int(line.split()[1]) < 500, (line, request)


def head(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return b"%b %b HTTP/1.1\r\nhost: x\r\n%bconnection: close\r\n" % (method, target, lines)


routes = st.sampled_from(sorted(ROUTES))


def target_of(route: str, raw: bytes, query: bytes) -> bytes:
    if route == "/v1/live":
        query = b"count=1&" + query  # else it would not end
    start, brace, rest = route.partition("{")
    path = start.encode() + (
        quote_from_bytes(raw, safe="").encode() + rest.partition("}")[2].encode() if brace else b""
    )
    return path + (b"?" + query if query else b"")


@BOUNDED
@given(routes, ids, queries, odd_headers, st.booleans())
def test_ids_queries_and_headers(
    api: Served, route: tuple[str, str], raw: bytes, query: bytes, headers: list[tuple[bytes, bytes]], known: bool
) -> None:
    own = [(b"x-api-key", KEY.encode())] if known else []
    check(api, head(route[0].encode(), target_of(route[1], raw, query), [*headers, *own]) + b"\r\n")


@BOUNDED
@given(routes, ids, media, bodies)
def test_bodies(api: Served, route: tuple[str, str], raw: bytes, kind: bytes, body: bytes) -> None:
    headers = [(b"x-api-key", KEY.encode()), (b"content-type", kind), (b"content-length", b"%d" % len(body))]
    check(api, head(route[0].encode(), target_of(route[1], raw, b""), headers) + b"\r\n" + body)


@BOUNDED
@given(st.one_of(st.binary(max_size=300), st.tuples(st.binary(max_size=40), values).map(
    lambda parts: b"GET /v1/popular HTTP/1.1\r\n" + parts[0] + b": " + parts[1] + b"\r\n\r\n")))  # fmt: skip
def test_bytes(api: Served, noise: bytes) -> None:
    check(api, noise, ends=False)


def send(api: Served | Learned, route: tuple[str, str], body: bytes) -> None:
    headers = [(b"x-api-key", KEY.encode()), (b"content-type", b"application/json")]
    target = target_of(route[1], b"item/1", b"item_id=item/1" if route[1] == "/v1/items" else b"")
    check(api, head(route[0].encode(), target, [*headers, (b"content-length", b"%d" % len(body))]) + b"\r\n" + body)


@settings(BOUNDED, max_examples=250)
@given(nearly_fitting)
def test_bodies_that_fit_but_for_a_field(api: Served, asked: tuple[tuple[str, str], bytes]) -> None:
    send(api, *asked)


@settings(BOUNDED, max_examples=120)
@given(nearly_fitting)
def test_bodies_for_a_model_that_learns(learned: Learned, asked: tuple[tuple[str, str], bytes]) -> None:
    send(learned, *asked)


@settings(BOUNDED, max_examples=120)
@given(routes.filter(lambda route: route[1] != "/v1/live"), ids, queries)
def test_ids_and_queries_for_a_model_that_learns(
    learned: Learned, route: tuple[str, str], raw: bytes, query: bytes
) -> None:
    check(learned, head(route[0].encode(), target_of(route[1], raw, query), [(b"x-api-key", KEY.encode())]) + b"\r\n")


def test_after_all_of_it_the_server_lives(api: Served) -> None:
    assert api.client.get("/livez").status_code == 200
    assert api.client.get("/v1/users/ann/recommendations", headers={"x-api-key": KEY}).status_code == 200
    text = api.client.get("/metrics", headers={"x-api-key": KEY}).text
    statuses = set(re.findall(r'saros_api_requests_total\{.*status="(\d+)"', text))
    assert {"200", "202", "401", "404", "415", "422"} <= statuses, "all kinds of answers were given"
    assert max(statuses) < "500"
    for method, route in (("PUT", "/v1/items"), ("PATCH", "/v1/items/{item_id}"), ("POST", "/v1/items:batch"),
                          ("PATCH", "/v1/gate"), ("POST", "/v1/events")):  # fmt: skip
        assert f'saros_api_requests_total{{method="{method}",route="{route}",status="202"}}' in text, route
