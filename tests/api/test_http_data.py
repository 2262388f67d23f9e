"""The routes about items, users and the gate: what HTTP makes of them, to a real broker; and what is wrong is named."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from saros.adapters.kafka import Admin, Cluster
from saros.adapters.names import EVENTS_SETTINGS
from saros.api import gate_routes, gates
from saros.api.gates import Gates
from saros.api.limits import Limits
from saros.api.replies import new_id
from saros.core.bounds import Dropped
from saros.core.codec import pack_partition
from saros.core.gate import GateRules, gate_state
from saros.core.timeline import new_timeline
from saros.errors import StoreError
from saros.wire.encode import events_in
from saros.wire.partitions import partitions_of
from saros.wire.rare import gate_change
from saros.wire.v1 import redo_pb2 as pb
from saros.wire.v1.events_pb2 import Event, ItemUpsert
from tests.api.double import ITEMS, Double, Served, check_problem, served
from tests.api.test_http_events import PARTITIONS, messages, refused_by_a_trainer
from tests.broker import Broker

LIMITS = Limits(k_max=500, events_max=4, body_max_bytes=8000, wait_ms_max=5000)
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """A server without a broker: nothing gets through."""
    with served(Double(), limits=LIMITS, ack_timeout_s=0.5) as running:
        yield running


@pytest.fixture
def api(shared: Served) -> Served:
    shared.model.asked.clear()
    return shared


@pytest.fixture
def made(real_broker: Broker, topic: str) -> str:
    Admin(Cluster(real_broker.address)).ensure(topic, PARTITIONS, 1, EVENTS_SETTINGS)
    return topic


@pytest.fixture
def linked(real_broker: Broker, made: str) -> Iterator[Served]:
    """A server with a broker."""
    with served(Double(PARTITIONS), bootstrap=real_broker.address, topic=made, limits=LIMITS) as running:
        yield running


def sent(broker: Broker, topic: str, group: str) -> list[tuple[int, Event]]:
    """All events of a topic, each with its partition; a trainer would take them."""
    found = messages(broker.address, topic, group)
    assert refused_by_a_trainer(found) == 0
    return [(partition, event) for partition, _, value in found for event in events_in(value)]


# --- items -----------------------------------------------------------------------------------------------------------


def test_an_item_is_told_in_both_forms(api: Served) -> None:
    told = {
        "item_id": "item/1", "categories": ["c"], "hidden": False, "expires_at": 1_700_000_000_250,
        "properties": {"a": "b"}, "served": True, "updates": 3, "clicked": 2, "shown": 1,
    }  # fmt: skip
    for path in ("/v1/items/item%2F1", "/v1/items?item_id=item/1"):
        answer = api.client.get(path)
        assert (answer.status_code, answer.json()) == (200, told)
        assert answer.headers["cache-control"] == "no-store"
    asked = "/v1/items/item%2F1?min_token=0:1"
    assert api.client.get(asked).json()["token_reached"] is True
    assert api.client.get(f"{asked}&wait_ms=0").json()["token_reached"] is False
    check_problem(api.client.get("/v1/items/other"), 404, "unknown-item")


@pytest.mark.parametrize("item", ["a/b", "a b", "é🙂", "%", "a+b", "?&=#", "...", "a\x00b", "x" * 256, ":batch"])
def test_ids_of_items_hold_any_utf_8(linked: Served, real_broker: Broker, made: str, group: str, item: str) -> None:
    answer = linked.client.put(f"/v1/items/{quote(item, safe='')}", json={"hidden": True})
    assert answer.status_code == 202, answer.text
    assert answer.json()["item_id"] == item
    assert linked.client.put("/v1/items", params={"item_id": item}, json={"hidden": True}).status_code == 202
    home = int(partitions_of([item], PARTITIONS)[0])
    assert answer.json()["token"] == f"{home}:0"
    wanted = Event(item_upsert=ItemUpsert(item_id=item, hidden=True))
    assert sent(real_broker, made, group) == [(home, wanted)] * 2


def test_what_is_written_of_items_is_one_event_each(linked: Served, real_broker: Broker, made: str, group: str) -> None:
    client, path = linked.client, "/v1/items/item%2F1"
    put = {"categories": ["x", "y"], "expires_at": 1_700_000_000.5, "properties": {"p": "1"}}
    for method, body in (
        ("PUT", put), ("PUT", {}), ("PATCH", {"hidden": False}), ("PATCH", {"expires_at": None, "categories": []}),
        ("PATCH", {"properties": {"q": "é"}, "hidden": True}), ("PATCH", {"expires_at": 1_700_000_000_250}),
        ("DELETE", None),
    ):  # fmt: skip
        answer = client.request(method, path, json=body)
        assert answer.status_code == 202, answer.text
        assert answer.json().keys() == {"item_id", "token"}
    batch = [
        {"op": "put", "item_id": "item/1", "hidden": True}, {"op": "patch", "item_id": "item/1", "categories": ["z"]},
        {"op": "delete", "item_id": "item/1"},
    ]  # fmt: skip
    assert client.post("/v1/items:batch", json={"items": batch}).json()["accepted"] == 3
    told = [event.item_upsert for _, event in sent(real_broker, made, group)]
    assert told == [
        ItemUpsert(item_id="item/1", categories=["x", "y"], expires_at_ms=1_700_000_000_500, properties={"p": "1"}),
        ItemUpsert(item_id="item/1"),
        ItemUpsert(item_id="item/1", changes=2),
        ItemUpsert(item_id="item/1", changes=1 | 4),
        ItemUpsert(item_id="item/1", hidden=True, properties={"q": "é"}, changes=2 | 8),
        ItemUpsert(item_id="item/1", expires_at_ms=1_700_000_000_250, changes=4),
        ItemUpsert(item_id="item/1", deleted=True),
        ItemUpsert(item_id="item/1", hidden=True),
        ItemUpsert(item_id="item/1", categories=["z"], changes=1),
        ItemUpsert(item_id="item/1", deleted=True),
    ]


def test_examples_of_the_document_work(linked: Served) -> None:
    schemas = linked.client.get("/openapi.json").json()["components"]["schemas"]
    assert schemas["ItemBatch"]["properties"]["items"]["maxItems"] == LIMITS.events_max
    routes = {
        "ItemBody": ("PUT", "/v1/items/item%2F1"), "ItemChange": ("PATCH", "/v1/items/item%2F1"),
        "ItemBatch": ("POST", "/v1/items:batch"), "GateChangeBody": ("PATCH", "/v1/gate"),
    }  # fmt: skip
    for name, (method, path) in routes.items():
        for example in schemas[name]["examples"]:
            answer = linked.client.request(method, path, json=example)
            assert answer.status_code == (409 if "revision" in example else 202), (example, answer.text)


def test_a_change_of_nothing_changes_nothing(api: Served) -> None:
    """It must not be taken for a put, whose event looks the same."""
    check_problem(api.client.patch("/v1/items/item%2F1", json={}), 422, "invalid", "")
    batch: dict[str, Any] = {"items": [{"op": "patch", "item_id": "item/1"}]}
    check_problem(api.client.post("/v1/items:batch", json=batch), 422, "invalid", "items.0.patch")
    batch = {"items": [{"op": "delete", "item_id": "item/1", "hidden": True}]}
    check_problem(api.client.post("/v1/items:batch", json=batch), 422, "invalid", "items.0.delete.hidden")


_LONG = {"a": "x" * 4096}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ([], ""),
        ({"categories": "x"}, "categories"),
        ({"categories": [""]}, "categories.0"),
        ({"categories": ["x" * 65]}, "categories.0"),
        ({"categories": ["x"] * 33}, "categories"),
        ({"categories": None}, "categories"),
        ({"hidden": "true"}, "hidden"),
        ({"hidden": None}, "hidden"),
        ({"expires_at": -1}, "expires_at"),
        ({"expires_at": 1e15}, "expires_at"),
        ({"expires_at": "2026-01-01"}, "expires_at"),
        ({"properties": {"a": 1}}, "properties.a"),
        ({"properties": _LONG}, "properties"),
        ({"properties": {"\ud800": "x"}}, ""),
        ({"deleted": True}, "deleted"),
        ({"item_id": "b"}, "item_id"),
    ],
)
def test_items_that_are_wrong_are_422_and_name_what(api: Served, body: Any, where: str) -> None:
    content = json.dumps(body)
    for method in ("PUT", "PATCH"):
        answer = api.client.request(method, "/v1/items/item%2F1", content=content, headers=JSON)
        check_problem(answer, 422, "invalid", where if "\\ud800" not in content else "")
    if isinstance(body, dict) and "item_id" not in body and "\\ud800" not in content:
        batch = {"items": [{"op": "put", "item_id": "a", **body}]}
        check_problem(api.client.post("/v1/items:batch", json=batch), 422, "invalid", f"items.0.put.{where}")


@pytest.mark.parametrize(
    ("method", "path", "where"),
    [
        ("GET", "/v1/items", "item_id"),
        ("GET", "/v1/items?item_id=", "item_id"),
        ("GET", "/v1/items/%FF", "item_id"),
        ("GET", f"/v1/items/{'x' * 257}", "item_id"),
        ("GET", "/v1/items/a?item_id=b", "item_id"),
        ("GET", "/v1/items/a?k=1", "k"),
        ("GET", "/v1/items/a?min_token=none", "min_token"),
        ("GET", "/v1/items/a?wait_ms=5001", "wait_ms"),
        ("DELETE", "/v1/items", "item_id"),
        ("DELETE", "/v1/items/a?min_token=1:1", "min_token"),
        ("GET", "/v1/users", "user_id"),
        ("GET", "/v1/users/%FF", "user_id"),
        ("GET", "/v1/users/a?user_id=b", "user_id"),
        ("GET", "/v1/users/a?min_token=none", "min_token"),
        ("DELETE", "/v1/users", "user_id"),
        ("DELETE", "/v1/users/a?wait_ms=1", "wait_ms"),
        ("GET", "/v1/gate?k=1", "k"),
        ("GET", "/v1/gate?min_token=none", "min_token"),
        ("GET", "/v1/gate/simulate?blocks_min=1", "blocks_max"),
        ("GET", "/v1/gate/simulate?blocks_min=0&blocks_max=1", "blocks_min"),
        ("GET", "/v1/gate/simulate?blocks_min=5&blocks_max=4", "blocks_min"),
        ("GET", "/v1/gate/simulate?blocks_min=1&blocks_max=1000001", "blocks_max"),
    ],
)
def test_queries_that_are_wrong_are_422_and_name_what(api: Served, method: str, path: str, where: str) -> None:
    check_problem(api.client.request(method, path), 422, "invalid", where)


def test_batches_have_limits(api: Served) -> None:
    one = {"op": "delete", "item_id": "a"}
    check_problem(api.client.post("/v1/items:batch", json={"items": []}), 422, "invalid", "items")
    check_problem(api.client.post("/v1/items:batch", json={"items": [one] * 5}), 413, "too-large")
    for action in ({"op": "drop", "item_id": "a"}, {"item_id": "a"}):
        check_problem(api.client.post("/v1/items:batch", json={"items": [action]}), 422, "invalid", "items.0")
    answer = api.client.post("/v1/items:batch", json={"items": [{"op": "patch", "item_id": "nobody", "hidden": True}]})
    check_problem(answer, 422, "invalid", "0")
    assert answer.json()["rejected"][0]["reason"] == "unknown_item"


def test_a_change_of_an_item_that_the_batch_has_deleted_is_refused(linked: Served) -> None:
    one, hide = {"item_id": "item/1"}, {"op": "patch", "item_id": "item/1", "hidden": True}
    batch = [{"op": "delete", **one}, hide, {"op": "put", **one}, hide]
    told = linked.client.post("/v1/items:batch", json={"items": batch}).json()
    assert told["accepted"] == 3
    assert [(bad["index"], bad["reason"]) for bad in told["rejected"]] == [(1, "unknown_item")]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/items/item%2F1"),
        ("PATCH", "/v1/items/item%2F1"),
        ("POST", "/v1/items:batch"),
        ("PATCH", "/v1/gate"),
    ],
)
@pytest.mark.parametrize(
    ("content", "headers", "status", "name"),
    [
        (b"{", JSON, 422, "invalid"),
        (b"{}", {"content-type": "text/plain"}, 415, "unsupported-media-type"),
        (b"{}", {**JSON, "content-encoding": "gzip"}, 415, "unsupported-media-type"),
        (b" " * 8001, JSON, 413, "too-large"),
    ],
)
def test_bodies_that_are_not_taken(
    api: Served, method: str, path: str, content: bytes, headers: dict[str, str], status: int, name: str
) -> None:
    check_problem(api.client.request(method, path, content=content, headers=headers), status, name)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/v1/items/a", "DELETE, GET, PATCH, PUT"),
        ("POST", "/v1/items", "DELETE, GET, PATCH, PUT"),
        ("PUT", "/v1/users/a", "DELETE, GET"),
        ("GET", "/v1/items:batch", "POST"),
        ("PUT", "/v1/gate", "GET, PATCH"),
        ("POST", "/v1/gate/simulate", "GET"),
    ],
)
def test_methods_that_a_route_has_not_are_405(api: Served, method: str, path: str, allow: str) -> None:
    answer = api.client.request(method, path)
    check_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == allow


def test_without_a_broker_nothing_is_written(api: Served) -> None:
    for method, path, body in (
        ("PUT", "/v1/items/a", {}), ("DELETE", "/v1/items/a", None), ("DELETE", "/v1/users/a", None),
        ("PATCH", "/v1/gate", {"blocks_max": 60}),
    ):  # fmt: skip
        answer = api.client.request(method, path, json=body)
        check_problem(answer, 503, "kafka-away")
        assert "retry-after" in answer.headers


def test_before_there_is_a_model_nothing_is_told() -> None:
    model = Double(partitions=0)
    model.reasons = ["no genesis yet"]
    with served(model) as running:
        for path in ("/v1/items/a", "/v1/users/a", "/v1/gate", "/v1/gate/simulate?blocks_min=1&blocks_max=2"):
            check_problem(running.client.get(path), 503, "not-ready")
        check_problem(running.client.put("/v1/items/a", json={}), 503, "not-ready")
        check_problem(running.client.delete("/v1/users/a"), 503, "not-ready")
        model.reasons = []  # or it is never loaded


def test_requests_are_counted_by_route_and_not_by_id(api: Served) -> None:
    for item in ("item%2F1", "item%2F2"):
        api.client.get(f"/v1/items/{item}")
    text = api.client.get("/metrics").text
    assert 'saros_api_requests_total{method="GET",route="/v1/items/{item_id}",status="200"}' in text
    assert "item%2F2" not in text


# --- users -----------------------------------------------------------------------------------------------------------


def test_a_user_is_told_in_both_forms(api: Served) -> None:
    told = {
        "user_id": "a/b", "partition": 2, "blocks": 9, "blocks_in_window": 8, "band": "in_band",
        "last_seen": "2023-11-14T22:13:20.250Z", "held": 1, "learned": 3, "taken_back": 6,
        "taken_back_in_window": 2, "left_out": 2, "shown": 4, "moved": 7,
    }  # fmt: skip
    for path in ("/v1/users/a%2Fb", "/v1/users?user_id=a/b"):
        answer = api.client.get(path)
        assert (answer.status_code, answer.json()) == (200, told)
    assert api.client.get("/v1/users/a?min_token=0:1").json()["token_reached"] is True
    check_problem(api.client.get("/v1/users/nobody"), 404, "unknown-user")


def test_a_store_that_is_away_is_told(api: Served) -> None:
    api.model.fails = StoreError("the store does not answer")
    try:
        answer = api.client.get("/v1/users/ann")
        check_problem(answer, 503, "store-away")
        assert "retry-after" in answer.headers
    finally:
        api.model.fails = None


def test_an_erasure_is_an_event_and_says_what_it_does_not_reach(
    linked: Served, real_broker: Broker, made: str, group: str
) -> None:
    home = int(partitions_of(["a/b"], PARTITIONS)[0])
    for k, path in enumerate(("/v1/users/a%2Fb", "/v1/users?user_id=a/b")):
        answer = linked.client.delete(path)
        assert answer.status_code == 202
        told = answer.json()
        assert (told["user_id"], told["token"]) == ("a/b", f"{home}:{k}")
        assert any("taken back" in what for what in told["erased"])
        left = " ".join(f"{one['what']} {one['until']}" for one in told["not_erased"])
        for word in ("before the gate's window", "Kafka", "dead letters", "30 days", "snapshots", "log"):
            assert word in left
    wanted = Event(user_id="a/b")
    wanted.user_erase.SetInParent()
    assert sent(real_broker, made, group) == [(home, wanted)] * 2


# --- the gate --------------------------------------------------------------------------------------------------------


def test_a_change_of_the_gate_goes_whole_to_every_partition(
    linked: Served, real_broker: Broker, made: str, group: str
) -> None:
    answer = linked.client.patch("/v1/gate", json={"blocks_max": "p95.5", "mode": "shadow"})
    assert answer.status_code == 202, answer.text
    assert answer.json()["revision"] == 1
    assert answer.json()["settings"]["blocks_max"] == "p95.5"
    assert answer.json()["token"] == "0:0,1:0,2:0"
    second = linked.client.patch("/v1/gate", json={"blocks_min": 3, "blocks_max": 60, "window_days": 2, "revision": 1})
    assert second.json()["revision"] == 2, "though the log has not told of the first yet"
    third = linked.client.patch(
        "/v1/gate", json={"blocks_min": "min", "own_row": "learn", "repeat_clicks": "learn"}
    ).json()
    assert third["settings"] == {
        "blocks_min": "min", "blocks_max": 60, "blocks_max_floor": 50, "blocks_max_ceiling": 100, "window_days": 2,
        "mode": "shadow", "own_row": "learn", "repeat_clicks": "learn",
    }  # fmt: skip
    first = GateRules(percentile=95.5, mode=2)
    then = first._replace(blocks_min=3, blocks_max=60, window_days=2)
    rules = [first, then, then._replace(blocks_min=0, own_row=True, ignore_repeats=False)]
    found = sent(real_broker, made, group)
    for partition in range(PARTITIONS):
        changes = [event.gate_change for home, event in found if home == partition]
        assert changes == [gate_change(each, revision) for revision, each in enumerate(rules, start=1)]


def test_a_change_that_not_all_partitions_took_names_those_and_counts_no_events() -> None:
    def counted(running: Served) -> list[str]:
        text = running.client.get("/metrics").text
        return re.findall(r"^saros_api_events_(?:accepted|unacknowledged)_total \S+$", text, re.MULTILINE)

    with served(Double(PARTITIONS), ack_timeout_s=0.5) as running:
        before = counted(running)
        answer = running.client.patch("/v1/gate", json={"blocks_max": 60})
        check_problem(answer, 503, "kafka-away")
        told = answer.json()
        assert (told["partitions"], told["token"]) == ([0, 1, 2], "")
        assert "events" not in told["detail"]
        assert not {"accepted", "unacknowledged", "rejected"} & told.keys()
        assert len(before) == 2
        assert counted(running) == before


def test_a_change_that_not_all_partitions_took_can_be_sent_again(
    linked: Served, real_broker: Broker, made: str, group: str
) -> None:
    model = linked.model
    before, model.gate = model.gate, Gates(PARTITIONS, GateRules(), log_id=8)
    partial = gate_change(GateRules(blocks_max=60, window_days=3), 2)
    model.gate.note(0, pb.Partition(gate=gate_change(GateRules(window_days=3), 1)))
    model.gate.note(1, pb.Partition(gate=partial))
    body = {"blocks_max": 60, "revision": 1}
    for other in ({**body, "blocks_max": 61}, {**body, "blocks_min": 99}, {**body, "revision": 9}, {"revision": 1}):
        check_problem(linked.client.patch("/v1/gate", json=other), 409, "conflict")
    again = linked.client.patch("/v1/gate", json=body)
    assert again.status_code == 202, again.text
    assert (again.json()["revision"], again.json()["settings"]["window_days"]) == (2, 3)
    found = sent(real_broker, made, group)[-PARTITIONS:]
    assert sorted(home for home, _ in found) == [0, 1, 2]
    assert all(event.gate_change == partial for _, event in found)
    for partition in range(PARTITIONS):
        model.gate.note(partition, pb.Partition(gate=partial))
    check_problem(linked.client.patch("/v1/gate", json=body), 409, "conflict")
    model.gate = before


def test_a_change_that_came_though_nobody_acknowledged_it_is_no_conflict_with_itself() -> None:
    model, body = Double(PARTITIONS), {"blocks_max": 60, "revision": 0}
    with served(model, ack_timeout_s=0.3) as running:
        check_problem(running.client.patch("/v1/gate", json=body), 503, "kafka-away")
        for partition in range(PARTITIONS):
            model.gate.note(partition, pb.Partition(gate=gate_change(GateRules(blocks_max=60), 1)))
        check_problem(running.client.patch("/v1/gate", json={**body, "blocks_max": 61}), 409, "conflict")
        check_problem(running.client.patch("/v1/gate", json=body), 503, "kafka-away")


def test_another_log_begins_with_the_first_revision(linked: Served) -> None:
    model = linked.model
    assert linked.client.patch("/v1/gate", json={"window_days": 3}).json()["revision"] == 1
    assert linked.client.patch("/v1/gate", json={"blocks_max": 60}).json()["settings"]["window_days"] == 3
    before = model.gate
    model.gate = Gates(PARTITIONS, GateRules(), log_id=9)
    told = linked.client.patch("/v1/gate", json={"blocks_max": 70, "revision": 0}).json()
    assert (told["revision"], told["settings"]["window_days"]) == (1, 7)
    model.gate = before


def test_the_gate_is_told_as_each_partition_has_it() -> None:
    model = Double(PARTITIONS)
    with served(model) as running:
        told = running.client.get("/v1/gate").json()
        assert (told["revision"], told["in_force"]) == (0, True)
        assert told["partitions"][1] == {"partition": 1, "revision": 0, "blocks_min": 1, "blocks_max": 50}
        model.gate.note(2, pb.Partition(gate=gate_change(GateRules(blocks_max=30), 0)))
        told = running.client.get("/v1/gate").json()
        assert (told["revision"], told["in_force"], told["settings"]["blocks_max"]) == (0, True, 30)
        assert [part["blocks_max"] for part in told["partitions"]] == [30, 30, 30]
        change = pb.Partition(gate=gate_change(GateRules(blocks_max=9), 4))
        model.gate.note(1, change)
        told = running.client.get("/v1/gate?min_token=0:1").json()
        assert (told["revision"], told["in_force"], told["token_reached"]) == (4, False, True)
        assert told["settings"]["blocks_max"] == 9
        assert [part["revision"] for part in told["partitions"]] == [0, 4, 0]
        for partition in (0, 2):
            model.gate.note(partition, change)
        assert running.client.get("/v1/gate").json()["in_force"]
        check_problem(running.client.patch("/v1/gate", json={"mode": "shadow", "revision": 3}), 409, "conflict")


def test_clicks_of_a_simulated_gate_are_those_that_blocks_have(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ways, path = Double(5), list[float](), "/v1/gate/simulate?blocks_min=1&blocks_max=9"

    async def noted(begun_s: float) -> float:
        ways.append(begun_s)
        return begun_s

    found = Dropped(users=4, blocks=7, users_dropped=2, blocks_dropped=3, users_exact=True, blocks_exact=True)
    monkeypatch.setattr(gates, "dropped", lambda *_: found)
    monkeypatch.setattr(gate_routes, "SLICE_S", 0.0)
    monkeypatch.setattr(gate_routes, "give_way", noted)
    state = gate_state(GateRules())
    for partition in range(5):
        model.gate.note(partition, pb.Partition(state=pack_partition(new_timeline(1), state)))
    with served(model) as running:
        assert running.client.get(path).json()["clicks"] == {
            "total": None, "dropped": None, "share": 3 / 7, "exact": False,
        }  # fmt: skip
        assert len(ways) == 5, "others may have their turn after each partition"
        model.clicks = 1.5
        told = running.client.get(path).json()
        assert told["clicks"] == {"total": 52, "dropped": 22, "share": 3 / 7, "exact": False}
        assert told["blocks"] == {"total": 35, "dropped": 15, "share": 3 / 7, "exact": True}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, ""),
        ({"revision": 0}, ""),
        ({"blocks_max": 0}, "blocks_max"),
        ({"blocks_max": "p0"}, "blocks_max"),
        ({"blocks_max": "p100"}, "blocks_max"),
        ({"blocks_max": "most"}, "blocks_max"),
        ({"blocks_max": 2.5}, "blocks_max"),
        ({"blocks_min": "mean"}, "blocks_min"),
        ({"blocks_min": 51}, ""),
        ({"blocks_min": 9, "blocks_max": 8}, ""),
        ({"blocks_max_floor": 101}, ""),
        ({"window_days": 9}, "window_days"),
        ({"mode": "session"}, "mode"),
        ({"mode": 1}, "mode"),
        ({"own_row": True}, "own_row"),
        ({"repeat_clicks": "drop"}, "repeat_clicks"),
        ({"repeat_clicks": True}, "repeat_clicks"),
        ({"revision": -1, "blocks_max": 60}, "revision"),
    ],
)
def test_changes_of_the_gate_that_are_wrong_are_422_and_name_what(api: Served, body: Any, where: str) -> None:
    answer = api.client.patch("/v1/gate", json=body)
    check_problem(answer, 422, "invalid")
    assert any(error["name"].startswith(where) for error in answer.json()["errors"]), answer.text


# --- more than the best items ----------------------------------------------------------------------------------------


def test_extras_are_asked_for_in_both_ways(api: Served) -> None:
    first = api.client.get("/v1/users/ann/recommendations?k=2&explore=0.25&diversity=1&explain=true&seed=s").json()
    second = api.client.get("/v1/users/ann/recommendations?k=2&explore=1e-1").json()
    posted = {"users": ["ann", "bob"], "explore": 1, "diversity": 0.5, "explain": True}
    many = api.client.post("/v1/recommendations", json=posted).json()["results"]
    api.client.get("/v1/users/ann/recommendations?k=400&explore=0&diversity=0.0&explain=false&seed=s")
    one, two, three, four, plain = (wish.extras for wish in api.model.asked)
    assert one is not None
    assert two is not None
    assert (one.seed, *one[2:]) == ("s", 0.25, 1.0, True)
    assert (two.seed, *two[2:]) == (second["recommendation_id"], 0.1, 0.0, False)
    assert [each.seed for each in (three, four) if each] == [result["recommendation_id"] for result in many]
    assert plain is None, "the plain way is not left for nothing"
    assert first["recommendation_id"] == one.own_id
    assert first["items"][0] == {
        "item_id": ITEMS[0], "score": 1.0, "rank": 1, "explored": False,
        "explain": {"rate": 0.5, "nearest_click": None},
    }  # fmt: skip
    assert new_id() not in (first["recommendation_id"], second["recommendation_id"])


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("explore=1.1", "explore"), ("explore=-0.1", "explore"), ("explore=nan", "explore"), ("explore=", "explore"),
        ("diversity=2", "diversity"), ("diversity=1_0", "diversity"), ("explain=yes", "explain"),
        ("explore=.5&seed=", "seed"), (f"explore=.5&seed={'x' * 65}", "seed"), ("explain=true&k=201", "k"),
    ],
)  # fmt: skip
def test_extras_that_are_wrong_are_422_and_name_what(api: Served, query: str, where: str) -> None:
    check_problem(api.client.get(f"/v1/users/ann/recommendations?{query}"), 422, "invalid", where)


@pytest.mark.parametrize(
    ("more", "where"),
    [({"explore": 1.5}, "explore"), ({"diversity": -1}, "diversity"), ({"explain": "true"}, "explain"),
     ({"seed": ""}, "seed"), ({"seed": "é" * 33}, "seed"), ({"explain": True, "k": 201}, "k")],
)  # fmt: skip
def test_posted_extras_that_are_wrong_are_422_and_name_what(api: Served, more: dict[str, Any], where: str) -> None:
    check_problem(api.client.post("/v1/recommendations", json={"user_id": "a", **more}), 422, "invalid", where)
