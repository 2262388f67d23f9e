"""The OpenAPI document: what the framework cannot see by itself.

The framework documents the routes it serves; here is what it is told of them. The hot routes are added from the tables
they are read with, and every route names every error it can answer with.
"""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import saros
from saros.api import problems as p
from saros.api.aliases import ALIASES, Alias
from saros.api.event_document import EVENTS_BODY
from saros.api.limits import Limits
from saros.api.queries import Parameter, Table, tables_of
from saros.api.schemas import Popular, Recommendations, Similar, list_limits
from saros.api.service_schemas import ProblemBody

_REF = "#/components/schemas/"
_ALWAYS = (p.BAD_REQUEST, p.TIMEOUT, p.HEAD_TOO_LARGE, p.INTERNAL)
BODY = (p.TOO_LARGE, p.MEDIA, p.INVALID)
_ENCODED = ' Percent-encoded: a "/" in it is %2F.'
_DESCRIPTION = """Events in, recommendations out; what is clicked changes what is recommended a moment later.

Errors are `application/problem+json` (RFC 9457); their `type` never changes. Where it makes sense to try again, the
answer has `Retry-After`. Parameters and fields that are not known are refused. Every answer has an `X-Request-ID`: the
one of the request, if it has one of 1 to 128 letters, digits and any of `._~:/@+=-`."""


def _errors(*kinds: p.Kind) -> dict[int | str, dict[str, Any]]:
    """Return errors as responses, with those that any request may get."""
    return p.as_responses((*kinds, *_ALWAYS), ProblemBody.__name__)


def route(tag: str, summary: str, description: str, *kinds: p.Kind, **more: Any) -> dict[str, Any]:
    """Return what the framework is told of a route."""
    return {"tags": [tag], "summary": summary, "description": description, "responses": _errors(*kinds), **more}


def example(status: str, value: object, media: str = "application/json") -> dict[str, Any]:
    return {"responses": {status: {"content": {media: {"example": value}}}}}


_ITEMS = [{"item_id": "clue", "score": 1.25, "rank": 1}, {"item_id": "dune", "score": 0.5, "rank": 2}]
_ANSWER = {
    "recommendation_id": "5f0c8a1e9d3b7c42-1a", "items": _ITEMS, "source": "model", "user_state": "in_band",
    "model_time": "2026-01-31T12:00:00.250Z", "stale": False, "took_ms": 0.31,
}  # fmt: skip

EVENTS = route(
    "events", "Send events",
    "Returns when Kafka has acknowledged all good ones. Bad ones are refused one by one, with the reason; where all "
    "are bad it is 422. An event that is sent again needs the same `event_id`, or it counts twice.",
    *BODY, p.QUEUE_FULL, p.OVERLOADED, p.NOT_READY, p.KAFKA_AWAY,
    openapi_extra={"requestBody": EVENTS_BODY, **example("202", {
        "accepted": 2, "rejected": [{"index": 1, "reason": "id_missing", "detail": "no user"}], "token": "2:1041",
    })},
)  # fmt: skip
RECOMMEND_POST = route(
    "recommendations", "Recommend to one user, to many, or to a guest",
    "For long lists of items to leave out, for many users in one call, and for guests. Exactly one of `user_id`, "
    "`users` and `session` is needed.",
    *BODY, p.OVERLOADED, p.NOT_READY, openapi_extra=example("200", _ANSWER),
)  # fmt: skip
RANK = route(
    "recommendations", "Rank candidates",
    "Ranks the items you give, for a user or a guest. Items that may not be recommended are left out of the answer; "
    "one that the model does not know stands among the others as a new item does.",
    *BODY, p.OVERLOADED, p.NOT_READY, openapi_extra=example("200", _ANSWER),
)  # fmt: skip
STATS = route(
    "service", "How the model stands", "Numbers about the model in this process.", p.OVERLOADED,
    openapi_extra=example("200", {
        "model": "saros", "ready": True, "log_id": "4f1d2c0b9a8e7d65", "partitions": 3, "shards": 16, "dim": 64,
        "items": 3706, "p0": 0.21, "model_time_ms": 1769860800250, "next": [1041, 998, 1044], "lag_messages": 0,
        "lag_s": 0.0, "stale": False, "gate_revision": 5, "users_in_memory": 812, "catalogue_bytes": 2097152,
        "users_bytes": 1048576,
    }),
)  # fmt: skip
LIVE = route("service", "Is the process alive",
             "200, or 503 where a defect has ended what follows the model: only a new start helps.",
             p.NOT_LIVE, openapi_extra=example("200", {"status": "live"}))  # fmt: skip
READY = route("service", "Is it ready", "200, or 503 with the reasons: the model is loaded and not behind.",
               p.NOT_READY, openapi_extra=example("200", {"status": "ready"}))  # fmt: skip
METRICS = route("service", "Metrics for Prometheus", "All metrics have the prefix `saros_`.")
_METRICS = "# HELP saros_api_ready 1: ready, as /readyz says.\n# TYPE saros_api_ready gauge\nsaros_api_ready 1.0\n"


def parameter_of(parameter: Parameter, where: str) -> dict[str, Any]:
    schema = dict(parameter.schema)
    if parameter.default is not None and parameter.default != "" and not parameter.many:
        schema["default"] = parameter.default
    return {
        "name": parameter.name, "in": where, "required": parameter.required, "description": parameter.says,
        "schema": schema, "example": parameter.example,
    }  # fmt: skip


def _get(
    tag: str, summary: str, description: str, name: str, path: Sequence[Parameter], table: Table,
    model: type[BaseModel], example: object, *kinds: p.Kind,
) -> dict[str, Any]:  # fmt: skip
    """Return the operation of a hot route."""
    content = {"schema": {"$ref": _REF + model.__name__}, "example": example}
    found: dict[int | str, Any] = {
        200: {"description": "Items, the best first.", "content": {"application/json": content}}
    }
    errors = _errors(*kinds, p.INVALID, p.OVERLOADED, p.NOT_READY)
    return {
        "get": {
            "tags": [tag], "summary": summary, "description": description, "operationId": name,
            "parameters": [*(parameter_of(one, "path") for one in path), *(parameter_of(one, "query") for one in
                                                                         table.values())],
            "responses": {str(status): response for status, response in {**found, **errors}.items()},
        }
    }  # fmt: skip


def hot_paths(limits: Limits) -> dict[str, dict[str, Any]]:
    """Return the hot routes as the document has them."""
    tables = tables_of(limits)
    user, item = tables.recommend_query["user_id"], tables.similar_query["item_id"]
    in_query = "For ids with any characters: the id stands in the query."
    similar = {"item_id": "alien", "items": _ITEMS, "took_ms": 0.12}
    return {
        "/v1/users/{user_id}/recommendations": _get(
            "recommendations", "Recommend to a user", "What the user would like best, by the model as it is now.",
            "recommend", [user._replace(says=user.says + _ENCODED)], tables.recommend, Recommendations, _ANSWER,
        ),
        "/v1/recommendations": _get(
            "recommendations", "Recommend to a user, named in the query", in_query,
            "recommend_by_query", [], tables.recommend_query, Recommendations, _ANSWER,
        ),
        "/v1/items/{item_id}/similar": _get(
            "items", "Items near to one", "The items whose rows point the same way.",
            "similar", [item._replace(says=item.says + _ENCODED)], tables.similar, Similar, similar, p.UNKNOWN_ITEM,
        ),
        "/v1/similar": _get(
            "items", "Items near to one, named in the query", in_query,
            "similar_by_query", [], tables.similar_query, Similar, similar, p.UNKNOWN_ITEM,
        ),
        "/v1/popular": _get(
            "items", "What is liked of late", "The same for everybody: the share of clicks, the last days first.",
            "popular", [], tables.popular, Popular, {"items": _ITEMS, "took_ms": 0.08},
        ),
    }  # fmt: skip


def _by_path(operation: dict[str, Any], alias: Alias) -> dict[str, Any]:
    """Return the operation of a route in its other form, with the id in the path."""
    parameters = [
        {**one, "in": "path", "description": one["description"] + _ENCODED} if one["name"] == alias.name else one
        for one in operation["parameters"]
    ]
    return {**operation, "operationId": operation["operationId"] + "_by_path", "parameters": parameters}


def document(app: FastAPI, limits: Limits) -> dict[str, Any]:
    """Return the whole document."""
    found = get_openapi(title="Saros", version=saros.__version__, description=_DESCRIPTION, routes=app.routes)
    paths, schemas = found["paths"], found["components"]["schemas"]
    for path, operations in hot_paths(limits).items():
        paths[path] = {**operations, **paths.get(path, {})}
    for alias in ALIASES:
        paths[alias.template] = {method: _by_path(one, alias) for method, one in paths[alias.path].items()}
    _, own = models_json_schema(
        [(model, "serialization") for model in (Popular, ProblemBody, Recommendations, Similar)],
        ref_template=_REF + "{model}",
    )
    found["components"]["schemas"] = schemas = {**own["$defs"], **schemas}
    for (model, name), limit in list_limits(limits).items():
        schema = schemas[model]["properties"][name]
        # Of a field that may be missing the limit belongs to what it is if it is there.
        schema.get("anyOf", [schema])[0].update(limit)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    content = paths["/metrics"]["get"]["responses"]["200"]["content"]
    content.clear()
    content["text/plain"] = {"schema": {"type": "string"}, "example": _METRICS}
    # What callers want first, what operators want last.
    found["paths"] = dict(sorted(paths.items(), key=lambda entry: (not entry[0].startswith("/v1/"), entry[0])))
    return found
