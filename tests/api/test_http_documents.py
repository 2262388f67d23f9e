"""The OpenAPI document and its page: complete, true, and needing nothing from elsewhere."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import saros
from saros.api.limits import Limits
from saros.api.problems import KINDS
from saros.api.service_schemas import ProblemBody
from saros.core.gate import GateRules
from saros.wire.objects import event_of_object
from saros.wire.rare import gate_change
from saros.wire.v1 import redo_pb2 as pb
from saros.wire.v1.events_pb2 import Click, Event, EventBatch
from tests.api.double import Double, Served, served

DOCS = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served(Double(), limits=Limits(k_max=77, exclude_max=33, users_max=22)) as running:
        yield running


@pytest.fixture(scope="module")
def document(api: Served) -> dict[str, Any]:
    answer = api.client.get("/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, one) for path, all_of in document["paths"].items() for method, one in all_of.items()]


def refs(value: Any) -> Iterator[str]:
    """All references in a part of the document."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            else:
                yield from refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from refs(inner)


def test_every_route_is_documented_with_words_and_an_example(document: dict[str, Any]) -> None:
    assert document["info"]["version"] == saros.__version__
    found = {(method.upper(), path) for path, method, _ in operations(document)}
    assert found == {
        ("POST", "/v1/events"), ("GET", "/v1/users/{user_id}/recommendations"), ("GET", "/v1/recommendations"),
        ("POST", "/v1/recommendations"), ("POST", "/v1/rank"), ("GET", "/v1/items/{item_id}/similar"),
        ("GET", "/v1/similar"), ("GET", "/v1/popular"), ("GET", "/v1/stats"), ("GET", "/livez"), ("GET", "/readyz"),
        ("GET", "/metrics"), ("POST", "/v1/items:batch"), ("GET", "/v1/gate"), ("PATCH", "/v1/gate"),
        ("GET", "/v1/gate/simulate"), ("GET", "/v1/live"),
        *((method, f"/v1/items{form}") for method in ("GET", "PUT", "PATCH", "DELETE") for form in ("", "/{item_id}")),
        *((method, f"/v1/users{form}") for method in ("GET", "DELETE") for form in ("", "/{user_id}")),
    }  # fmt: skip
    ids = [one["operationId"] for _, _, one in operations(document)]
    assert len(set(ids)) == len(ids)
    for path, method, one in operations(document):
        assert one["summary"], path
        assert one["description"], path
        assert one["tags"], path
        for parameter in one.get("parameters", ()):
            assert parameter["description"], (path, parameter)
            assert "example" in parameter, (path, parameter)
        (good,) = (answer for status, answer in one["responses"].items() if status < "300")
        ((media, content),) = good["content"].items()
        other = {"/v1/live": "text/event-stream", "/metrics": "text/plain"}
        assert media == other.get(path, "application/json"), path
        assert "example" in content, path
        for media, content in one.get("requestBody", {"content": {}})["content"].items():
            schema = document["components"]["schemas"].get(content["schema"].get("$ref", "").rpartition("/")[2], {})
            told = {"example", "examples"} & (content.keys() | schema.keys())
            assert told or media == "application/x-protobuf", (path, media)
        if method in ("post", "put", "patch"):
            assert one["requestBody"]["required"], path


def test_every_route_names_its_errors(document: dict[str, Any]) -> None:
    always, body, model = {"400", "408", "431", "500"}, {"413", "415", "422"}, {"422", "503"}
    writes = always | {"202", "422", "429", "503"}
    expected = {
        ("post", "/v1/events"): always | body | {"202", "429", "503"},
        ("get", "/v1/users/{user_id}/recommendations"): always | model | {"200"},
        ("get", "/v1/recommendations"): always | model | {"200"},
        ("post", "/v1/recommendations"): always | body | {"200", "503"},
        ("post", "/v1/rank"): always | body | {"200", "503"},
        ("get", "/v1/items/{item_id}/similar"): always | model | {"200", "404"},
        ("get", "/v1/similar"): always | model | {"200", "404"},
        ("get", "/v1/popular"): always | model | {"200"},
        ("get", "/v1/stats"): always | {"200", "503"},
        ("get", "/livez"): always | {"200", "503"},
        ("get", "/readyz"): always | {"200", "503"},
        ("get", "/metrics"): always | {"200"},
        ("post", "/v1/items:batch"): writes | body,
        ("get", "/v1/gate"): always | model | {"200"},
        ("patch", "/v1/gate"): writes | body | {"409"},
        ("get", "/v1/gate/simulate"): always | model | {"200"},
        ("get", "/v1/live"): always | model | {"200"},
    }
    for form in ("", "/{item_id}"):
        expected["get", f"/v1/items{form}"] = always | model | {"200", "404"}
        expected["put", f"/v1/items{form}"] = writes | body
        expected["patch", f"/v1/items{form}"] = writes | body | {"404"}
        expected["delete", f"/v1/items{form}"] = writes
    for form in ("", "/{user_id}"):
        expected["get", f"/v1/users{form}"] = always | model | {"200", "404"}
        expected["delete", f"/v1/users{form}"] = writes
    told = {(method, path): set(one["responses"]) for path, method, one in operations(document)}
    assert {route: statuses - {"401", "403"} for route, statuses in told.items()} == expected, "test_keys has those two"
    for path, _, one in operations(document):
        for status, answer in one["responses"].items():
            if status >= "400":
                (media, content), *others = answer["content"].items()
                assert (media, others) == ("application/problem+json", []), path
                assert all(str(each["value"]["status"]) == status for each in content["examples"].values()), path
            if status in ("429", "503"):
                assert "Retry-After" in answer["headers"], path


def test_problems_have_the_members_that_the_document_says() -> None:
    """All that any problem has beside what all have, each met at least once; and what they are told with."""
    click = {"kind": "click", "user": "ann", "item": "a"}
    late, fine = Double(), Double()
    late.reasons = ["not loaded"]
    fine.gate.note(0, pb.Partition(gate=gate_change(GateRules(), 4)))
    with served(late) as early, served(fine, ack_timeout_s=0.3) as api:
        schema = api.client.get("/openapi.json").json()["components"]["schemas"]["ProblemBody"]
        answers = [
            early.client.get("/readyz"),
            early.client.get("/v1/popular"),
            api.client.get("/v1/nowhere"),
            api.client.get("/v1/popular?k=x"),
            api.client.patch("/v1/gate", json={"mode": "shadow", "revision": 3}),
            api.client.patch("/v1/gate", json={"mode": "shadow"}),
            api.client.post("/v1/events", json=[click, {}]),
            api.client.post("/v1/events", json=[{}]),
        ]
    kinds = [(answer.status_code, answer.json()["type"].rpartition(":")[2]) for answer in answers]
    assert kinds == [
        (503, "not-ready"), (503, "not-ready"), (404, "not-found"), (422, "invalid"), (409, "conflict"),
        (503, "kafka-away"), (503, "kafka-away"), (422, "invalid"),
    ]  # fmt: skip
    members = {name: value for answer in answers for name, value in answer.json().items()}
    assert members.keys() == schema["properties"].keys()
    assert set(schema["required"]) == set.intersection(*(set(answer.json()) for answer in answers)) - {"request_id"}
    for answer in answers:
        ProblemBody.model_validate(answer.json(), strict=True)


def test_a_key_that_is_missing_is_told_how_to_be_shown(document: dict[str, Any]) -> None:
    for path, _, one in operations(document):
        if "401" in one["responses"]:
            assert {"WWW-Authenticate", "X-Request-ID"} <= set(one["responses"]["401"]["headers"]), path
            assert "WWW-Authenticate" not in one["responses"]["403"]["headers"], path


def test_references_lead_somewhere_and_limits_are_those_that_are_set(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for ref in refs(document):
        kind, name = ref.removeprefix("#/components/").split("/")
        assert name in document["components"][kind], ref
    assert not {"HTTPValidationError", "ValidationError"} & set(schemas)
    body = schemas["RecommendBody"]["properties"]
    assert body["k"]["anyOf"][0]["maximum"] == 77
    assert body["exclude"]["maxItems"] == 33
    assert body["users"]["anyOf"][0]["maxItems"] == 22
    (k,) = [one for one in document["paths"]["/v1/popular"]["get"]["parameters"] if one["name"] == "k"]
    assert (k["schema"]["maximum"], k["schema"]["default"]) == (77, 10)


def test_examples_of_the_document_work(api: Served, document: dict[str, Any]) -> None:
    for path, method, one in operations(document):
        url = path
        params = {}
        for parameter in one.get("parameters", ()):
            if parameter["in"] == "path":
                url = url.replace("{" + parameter["name"] + "}", "item%2F1")
            else:
                params[parameter["name"]] = {"item_id": "item/1"}.get(parameter["name"], parameter["example"])
        if method == "get":
            params = {name: str(value).lower() if isinstance(value, bool) else value for name, value in params.items()}
            answer = api.client.get(url, params=params)
            assert answer.status_code == 200, (path, answer.text)
    for name in ("RecommendBody", "RankBody"):
        for example in document["components"]["schemas"][name]["examples"]:
            path = {"RecommendBody": "/v1/recommendations", "RankBody": "/v1/rank"}[name]
            assert api.client.post(path, json=example).status_code == 200, example


def test_examples_of_events_are_events(document: dict[str, Any]) -> None:
    content = document["paths"]["/v1/events"]["post"]["requestBody"]["content"]
    described = content["application/x-protobuf"]["schema"]["description"]
    (event,) = EventBatch.FromString(bytes.fromhex(described.rpartition(" ")[2])).events
    assert event == Event(user_id="ann", click=Click(item_id="brazil"))
    for line in content["application/x-ndjson"]["example"].splitlines():
        assert event_of_object(json.loads(line)).click.item_id
    one, several = (each["value"] for each in content["application/json"]["examples"].values())
    assert all(event_of_object(each).ByteSize() for each in [one, *several])


def test_answers_have_the_fields_that_are_documented(api: Served, document: dict[str, Any]) -> None:
    fields = document["components"]["schemas"]["Recommendations"]
    told = api.client.get("/v1/users/ann/recommendations?min_token=0:1&scenario=home").json()
    assert set(told) == set(fields["properties"])
    assert set(api.client.get("/v1/users/ann/recommendations").json()) == set(fields["required"])


def test_the_page_asks_nobody_else(api: Served) -> None:
    answer = api.client.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}", answer.text), "no address of another host"
    assert not re.findall(r"<(?:link|img|iframe|script[^>]*\ssrc)\b", answer.text), "nothing that is fetched"
    assert re.findall(r"""fetch\("([^"]+)"\)""", answer.text) == ["openapi.json"]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "http" not in policy
    assert 'name="viewport"' in answer.text
    assert "prefers-color-scheme: dark" in answer.text


def test_the_documentation_lists_every_route_and_every_kind_of_error(document: dict[str, Any]) -> None:
    text = DOCS.read_text()
    for path, method, _ in operations(document):
        assert f"`{method.upper()} {path}`" in text, path
    for kind in KINDS:
        assert f"| {kind.status} | `{kind.type}` |" in text
