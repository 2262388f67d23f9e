"""Who may do what: every route with every kind of key, keys that change while requests come, and what a key costs."""

import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from saros.adapters.kafka import Admin, Cluster
from saros.adapters.names import EVENTS_SETTINGS
from saros.api.guard import Guard
from saros.api.keys import KEYS_MAX, Key, Ring, entry_of, lines_of, new_key, read_entries
from saros.api.scopes import ADMIN, GIVES, INGEST, OPEN, READ, ROUTES, scope_of
from saros.errors import InputError
from saros.wire.objects import event_of_object
from saros.wire.v1.events_pb2 import EventBatch
from tests.api.double import Double, Served, check_problem, served
from tests.broker import Broker
from tests.trainer.runs import await_until

KEYS = {scopes: new_key() for scopes in ("ingest", "read", "admin", "ingest+read")}
UNKNOWN = new_key()


def key_of(scopes: str, key: str = "") -> Key:
    (found,) = read_entries([("here", entry_of(scopes.replace("+", "-"), scopes.split("+"), key or KEYS[scopes]))])
    return found


def guard() -> Guard:
    return Guard([key_of(scopes) for scopes in KEYS])


@pytest.fixture(scope="module")
def api(broker: Broker) -> Iterator[Served]:
    topic = f"keys-{uuid4().hex[:12]}"
    Admin(Cluster(broker.address)).ensure(topic, Double().partitions, 1, EVENTS_SETTINGS)
    with served(Double(), bootstrap=broker.address, topic=topic, guard=guard()) as running:
        yield running


def ask(api: Served, method: str, route: str, key: str | None) -> httpx.Response:
    headers = {} if key is None else {"x-api-key": key}
    params = {"count": "1"} if route == "/v1/live" else {}  # or it would have no end
    return api.client.request(method, re.sub(r"\{[^}]*\}", "item%2F1", route), params=params, headers=headers)


# --- the table -----------------------------------------------------------------------------------------------------


def test_every_route_has_a_line_in_the_table(api: Served) -> None:
    assert set(api.app.needs) == set(ROUTES), "each route names its scope, and each scope is of a route"


def test_a_route_that_nobody_thought_of_is_for_admins() -> None:
    assert scope_of("DELETE", "/v1/everything") == ADMIN
    assert scope_of("HEAD", "/livez") == ADMIN


def test_what_each_scope_gives() -> None:
    assert GIVES == {"ingest": INGEST, "read": READ, "admin": INGEST | READ | ADMIN}
    assert [ROUTES["GET", path] for path in ("/livez", "/readyz", "/docs", "/openapi.json")] == [OPEN] * 4


@pytest.mark.parametrize(("method", "route"), sorted(ROUTES))
def test_every_route_with_every_key(api: Served, method: str, route: str) -> None:
    need = ROUTES[method, route]
    for scopes, key in KEYS.items():
        answer = ask(api, method, route, key)
        if need == OPEN or any(GIVES[scope] & need for scope in scopes.split("+")):
            assert answer.status_code not in (401, 403), (scopes, answer.text)
            assert answer.status_code < 500, (scopes, answer.text)
        else:
            check_problem(answer, 403, "forbidden")
            assert "www-authenticate" not in answer.headers
    for key in (None, "", UNKNOWN, KEYS["admin"][:-1], KEYS["admin"] + "x", "k" * 5000):  # type: ignore[assignment]
        answer = ask(api, method, route, key)
        if need == OPEN:
            assert answer.status_code == 200, answer.text
        else:
            check_problem(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"] == 'ApiKey realm="saros"'
            assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_what_is_no_route_is_404_whoever_asks(api: Served) -> None:
    for key in (None, UNKNOWN, KEYS["read"]):
        check_problem(ask(api, "GET", "/v1/nowhere", key), 404, "not-found")
        check_problem(ask(api, "DELETE", "/v1/rank", key), 405, "method-not-allowed")


def test_a_body_is_not_read_of_whoever_may_not(api: Served) -> None:
    answer = api.client.post("/v1/rank", content=b"x" * 100_000, headers={"x-api-key": KEYS["ingest"]})
    check_problem(answer, 403, "forbidden")
    assert api.client.get("/livez").status_code == 200, "the same connection goes on"


CLICKED = {"kind": "click", "user": "ann", "item": "alien"}
KEPT = {"kind": "item", "item": "alien", "hidden": True}
ERASED = {"kind": "erase", "user": "ann"}


def as_protobuf(events: list[dict[str, object]]) -> bytes:
    return EventBatch(events=map(event_of_object, events)).SerializeToString()


@pytest.mark.parametrize("scopes", ["ingest", "ingest+read", "admin"])
@pytest.mark.parametrize(
    ("kind", "write"),
    [
        ("application/json", json.dumps),
        ("application/x-ndjson", lambda events: "\n".join(map(json.dumps, events))),
        ("application/x-protobuf", as_protobuf),
    ],
)
def test_events_that_change_items_or_erase_users_need_admin(
    api: Served, scopes: str, kind: str, write: Callable[[list[object]], str | bytes]
) -> None:
    headers = {"x-api-key": KEYS[scopes], "content-type": kind}
    answer = api.client.post("/v1/events", content=write([CLICKED, KEPT, ERASED]), headers=headers)
    assert answer.status_code == 202, answer.text
    rejected = [(one["index"], one["reason"]) for one in answer.json()["rejected"]]
    assert rejected == ([] if scopes == "admin" else [(1, "needs_admin"), (2, "needs_admin")])
    alone = api.client.post("/v1/events", content=write([ERASED]), headers=headers)
    assert alone.status_code == (202 if scopes == "admin" else 422), alone.text


def test_without_keys_everybody_may_send_all_kinds_of_events(broker: Broker) -> None:
    topic = f"keys-{uuid4().hex[:12]}"
    Admin(Cluster(broker.address)).ensure(topic, Double().partitions, 1, EVENTS_SETTINGS)
    with served(Double(), bootstrap=broker.address, topic=topic) as open_to_all:
        answer = open_to_all.client.post("/v1/events", json=[CLICKED, KEPT, ERASED])
        assert (answer.status_code, answer.json()["rejected"]) == (202, [])


def test_refusals_are_counted_and_no_key_is_told(api: Served) -> None:
    def count(reason: str) -> float:
        text = ask(api, "GET", "/metrics", KEYS["admin"]).text
        assert not any(key in text for key in KEYS.values())
        assert "ingest-read" not in text, "names are no labels"
        found = re.search(rf'saros_api_refused_total{{reason="{reason}"}} (\S+)', text)
        assert found is not None
        return float(found[1])

    before = [count(reason) for reason in ("missing", "unknown", "scope")]
    for key in (None, UNKNOWN, UNKNOWN, KEYS["ingest"]):
        ask(api, "GET", "/v1/popular", key)
    after = [count(reason) for reason in ("missing", "unknown", "scope")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 2, 1]


def test_metrics_can_be_opened() -> None:
    with served(Double(), guard=Guard([key_of("read")], metrics_open=True)) as api:
        assert ask(api, "GET", "/metrics", None).status_code == 200
        assert ask(api, "GET", "/v1/stats", None).status_code == 401
        assert api.client.get("/openapi.json").json()["paths"]["/metrics"]["get"]["security"] == []


def test_without_keys_nobody_is_asked() -> None:
    with served(Double()) as api:
        for key in (None, UNKNOWN):
            assert ask(api, "GET", "/v1/popular", key).status_code == 200
        document = api.client.get("/openapi.json").json()
    assert document["paths"]["/v1/popular"]["get"]["security"] == [{}, {"key": ["read"]}]


def test_the_document_says_what_each_route_asks_for(api: Served) -> None:
    document = api.client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["key"]["name"] == "X-API-Key"
    names = {OPEN: [], INGEST: [{"key": ["ingest"]}], READ: [{"key": ["read"]}], ADMIN: [{"key": ["admin"]}]}
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            need = ROUTES[method.upper(), path]
            assert one["security"] == names[need], path
            assert ({"401", "403"} <= set(one["responses"])) is (need != OPEN), path


# --- keys -----------------------------------------------------------------------------------------------------------


def test_a_key_is_found_by_all_of_its_hash() -> None:
    key = new_key()
    digest = hashlib.sha256(key.encode()).digest()
    assert Ring([Key("a", READ, digest)]).find(key.encode()) == ("a", READ, digest)
    for place in range(32):  # one bit is another, wherever it is
        other = bytes(byte ^ (place == at) for at, byte in enumerate(digest))
        assert Ring([Key("a", READ, other)]).find(key.encode()) is None
    assert Ring([]).find(key.encode()) is None


def test_a_key_of_one_hash_is_there_once_and_a_name_may_have_two() -> None:
    one, two = key_of("read"), key_of("read", new_key())
    assert len(Ring([one, two])) == 2
    with pytest.raises(InputError, match="'read' is there twice"):
        Ring([one, one])
    with pytest.raises(InputError, match="keep at most 1000"):
        Ring([Key("many", READ, k.to_bytes(32, "little")) for k in range(1, KEYS_MAX + 2)])


@pytest.mark.parametrize(
    "entry",
    [
        "shop", "shop:read", "shop:read:{key}", f"shop:read:{'A' * 64}", f"shop:read:{'a' * 63}",
        f"shop:write:{'a' * 64}", f"shop::{'a' * 64}", f"shop:read+:{'a' * 64}", f":read:{'a' * 64}",
        f"sh op:read:{'a' * 64}", f"{'s' * 65}:read:{'a' * 64}", f"-shop:read:{'a' * 64}", f"shop:read:{'a' * 64}:",
        "{key}",
    ],
)  # fmt: skip
def test_entries_that_are_wrong_are_named_by_their_place_alone(entry: str) -> None:
    with pytest.raises(InputError) as caught:
        read_entries([("line 7 of keys", entry.format(key=KEYS["read"]))])
    assert "line 7 of keys" in str(caught.value)
    assert KEYS["read"] not in str(caught.value)


@pytest.mark.parametrize("key", ["", "short", "x" * 31, "x" * 257, "é" * 40, "two words" * 5, "x" * 40 + "\n"])
def test_keys_that_can_be_guessed_or_cannot_be_sent_have_no_entry(key: str) -> None:
    with pytest.raises(InputError, match="let `saros key new` make one"):
        entry_of("shop", ["read"], key)


def test_keys_are_long_and_all_different() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(re.fullmatch(r"saros_[A-Za-z0-9_-]{43}", key) for key in keys)


def test_a_file_has_comments_and_empty_lines() -> None:
    text = f"# ours\n\n  {entry_of('shop', ['read'], KEYS['read'])}  \n"
    assert lines_of(text, "keys") == [("line 3 of keys", entry_of("shop", ["read"], KEYS["read"]))]


def test_a_key_costs_a_few_microseconds() -> None:
    """In time of the processor, the best of some rounds: others work on this machine, too."""
    asked, key, rounds = guard(), KEYS["read"].encode(), 5000

    def cost_us() -> float:
        start = time.process_time()
        for _ in range(rounds):
            asked.admit(READ, key)
        return 1e6 * (time.process_time() - start) / rounds

    assert min(cost_us() for _ in range(7)) < 5


# --- rotation -------------------------------------------------------------------------------------------------------


def put(file: Path, text: str) -> None:
    """Put a file in place of another, whole."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def value(api: Served, metric: str, key: str) -> float:
    found = re.search(rf"^{metric} (\S+)$", api.client.get("/metrics", headers={"x-api-key": key}).text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_keys_change_under_load_and_nobody_who_has_one_is_refused(tmp_path: Path) -> None:
    old, new, file = new_key(), new_key(), tmp_path / "keys"
    both = {key: entry_of("shop", ["read"], key) for key in (old, new)}
    put(file, both[old])
    with served(Double(), guard=Guard([key_of("admin")], file)) as api:
        statuses: dict[str, list[int]] = {old: [], new: []}
        stop = {key: threading.Event() for key in both}

        def load(key: str) -> None:
            with httpx.Client(base_url=api.url, headers={"x-api-key": key}) as client:
                while not stop[key].is_set():
                    statuses[key].append(client.get("/v1/users/ann/recommendations").status_code)

        def status(key: str) -> int:
            return api.client.get("/v1/popular", headers={"x-api-key": key}).status_code

        threads = {key: threading.Thread(target=load, args=[key]) for key in both}
        threads[old].start()
        await_until(lambda: len(statuses[old]) > 50)
        assert status(new) == 401
        put(file, "\n".join(both.values()))
        await_until(lambda: status(new) == 200)
        threads[new].start()
        await_until(lambda: len(statuses[new]) > 50)
        stop[old].set()
        threads[old].join()
        put(file, both[new])
        await_until(lambda: status(old) == 401)
        more = len(statuses[new]) + 50
        await_until(lambda: len(statuses[new]) > more)
        stop[new].set()
        threads[new].join()
        assert set(statuses[old]) == set(statuses[new]) == {200}
        assert status(KEYS["admin"]) == 200, "those of the setting stay"
        assert value(api, "saros_api_keys", new) == 2


@pytest.mark.parametrize("broken", ["", "# nobody\n", "shop:read:tooshort\n", "\udcff", None])
def test_a_broken_file_keeps_the_keys_and_says_so(
    tmp_path: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    key, file = new_key(), tmp_path / "keys"
    good = entry_of("shop", ["read"], key)
    put(file, good)
    with served(Double(), guard=Guard(file=file)) as api, caplog.at_level(logging.INFO, "saros"):
        if broken is None:
            file.unlink()
        else:
            file.with_suffix(".new").write_bytes(broken.encode(errors="surrogateescape"))
            file.with_suffix(".new").replace(file)
        await_until(lambda: value(api, "saros_api_keys_broken", key) == 1)
        assert api.client.get("/v1/popular", headers={"x-api-key": key}).status_code == 200
        assert api.client.get("/v1/popular").status_code == 401, "it never opens"
        (said,) = [one for one in caplog.records if (one.name, one.levelno) == ("saros", logging.ERROR)]
        assert said.getMessage() == "file of keys could not be read, the keys before it stay"
        put(file, good)
        await_until(lambda: value(api, "saros_api_keys_broken", key) == 0)
        assert "file of keys was mended" in caplog.text


def test_at_the_start_a_broken_file_is_refused(tmp_path: Path) -> None:
    for text, words in ((None, "cannot be read"), ("", "has no key"), ("x" * 2**20 + "x", "more than 1048576 bytes")):
        file = tmp_path / "keys"
        if text is not None:
            file.write_text(text)
        with pytest.raises(InputError, match=words):
            Guard(file=file)
