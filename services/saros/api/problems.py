"""Errors as callers see them: RFC 9457, `application/problem+json`, each with a type that never changes.

Invariants: every answer from 400 on is one of these kinds, whoever found the error. Nothing of what went wrong inside
is told outside; it stands in the log.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"
_URN = "urn:saros:problem:"
_TEXT = {"type": "string"}


class Kind(NamedTuple):
    """A kind of error."""

    status: int
    name: str
    title: str
    meaning: str
    retry_s: int = 0  # above 0: the answer says after how many seconds it may work

    @property
    def type(self) -> str:
        return _URN + self.name


BAD_REQUEST = Kind(400, "bad-request", "Not understood", "The request is no HTTP, or its body cannot be read.")
NO_KEY = Kind(401, "unauthorized", "No such key", "The header `X-API-Key` is missing, or its key is not known.")
NOT_YOURS = Kind(403, "forbidden", "Not with this key", "The key is known, and has not the scope that the route needs.")
NOT_FOUND = Kind(404, "not-found", "No such route", "No route has this path. A / inside an id is written %2F.")
UNKNOWN_ITEM = Kind(404, "unknown-item", "Unknown item", "The model does not know this item.")
UNKNOWN_USER = Kind(404, "unknown-user", "Unknown user", "Nothing is known of this user.")
NOT_ALLOWED = Kind(405, "method-not-allowed", "Method not allowed", "The route has other methods, named in `Allow`.")
TIMEOUT = Kind(408, "timeout", "Too slow", "The head or the body did not come in within the time that is set.")
CONFLICT = Kind(409, "conflict", "Changed meanwhile", "The gate is at another revision than the one that was named.")
TOO_LARGE = Kind(413, "too-large", "Too large", "The body has more bytes, or holds more events, than are taken.")
MEDIA = Kind(
    415, "unsupported-media-type", "Unsupported media type", "The body is of a type not taken here, or compressed."
)
INVALID = Kind(422, "invalid", "Invalid request", "Something is missing or out of its limits; `errors` says what.")
QUEUE_FULL = Kind(429, "queue-full", "Too many events", "More events wait for Kafka than there is room for.", 1)
HEAD_TOO_LARGE = Kind(
    431,
    "headers-too-large",
    "Headers too large",
    "First line and headers, or what is in a body beside itself, have too many bytes.",
)
INTERNAL = Kind(500, "internal", "Internal error", "A defect of the service; its log says more.")
OVERLOADED = Kind(503, "overloaded", "Overloaded", "As many requests are in work as there may be.", 1)
NOT_READY = Kind(503, "not-ready", "Not ready", "There is no model yet, or it is still being loaded.", 5)
NOT_LIVE = Kind(503, "not-live", "Has to be started anew", "What follows the model has ended, by a defect.", 5)
KAFKA_AWAY = Kind(503, "kafka-away", "Events were not acknowledged", "Kafka did not acknowledge in time.", 2)
STORE_AWAY = Kind(503, "store-away", "The store is away", "The store, where users are, does not answer.", 2)

KINDS = (
    BAD_REQUEST, NO_KEY, NOT_YOURS, NOT_FOUND, UNKNOWN_ITEM, UNKNOWN_USER, NOT_ALLOWED, TIMEOUT, CONFLICT, TOO_LARGE,
    MEDIA, INVALID, QUEUE_FULL, HEAD_TOO_LARGE, INTERNAL, OVERLOADED, NOT_READY, NOT_LIVE, KAFKA_AWAY, STORE_AWAY,
)  # fmt: skip
_BY_STATUS = {kind.status: kind for kind in (BAD_REQUEST, NOT_FOUND, NOT_ALLOWED, TOO_LARGE, MEDIA, INVALID)}


class ProblemError(HTTPException):
    """A request that is answered with a problem. `more` are members beside those that every problem has."""

    def __init__(self, kind: Kind, detail: str, headers: Mapping[str, str] | None = None, **more: object) -> None:
        retry = {"retry-after": str(kind.retry_s)} if kind.retry_s else {}
        super().__init__(kind.status, detail, {**retry, **(headers or {})})
        self.kind, self.more = kind, more

    def body(self, request_id: str = "") -> bytes:
        """Return the problem as JSON, with the id of the request if it has one."""
        kind, own = self.kind, {"request_id": request_id} if request_id else {}
        return orjson.dumps(
            {"type": kind.type, "title": kind.title, "status": kind.status, "detail": self.detail, **own, **self.more}
        )


def invalid(where: str, name: str, detail: str) -> ProblemError:
    """Return the error of one thing that is wrong: where it stands (path, query or body), its name, and what it is."""
    return invalid_all([{"in": where, "name": name, "detail": detail}])


def bad_token(error: Exception, where: str) -> ProblemError:
    """Return the error of a token that is none."""
    return invalid(where, "min_token", str(error))


def invalid_all(errors: list[dict[str, str]]) -> ProblemError:
    """Return the error of all that is wrong."""
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    place = f"{first['in']} {first['name']}".strip()
    return ProblemError(INVALID, f"{place}: {first['detail']}{more}", errors=errors)


def problem_of(error: HTTPException) -> ProblemError:
    """Return the problem that an error of the framework is."""
    if isinstance(error, ProblemError):
        return error
    kind = _BY_STATUS.get(error.status_code, BAD_REQUEST)
    return ProblemError(kind, str(error.detail), error.headers)


def validation_problem(errors: list[Any]) -> ProblemError:
    """Return the problem of a body that is not as its model says. What was given is not repeated."""
    return invalid_all(
        [
            {
                "in": str(one["loc"][0]),
                "name": ".".join(map(str, one["loc"][1:])) if one["type"] != "json_invalid" else "",
                "detail": one["ctx"]["error"] if one["type"] == "json_invalid" else one["msg"],
            }
            for one in errors
        ]
    )


def response_of(request: Request, error: ProblemError) -> Response:
    """Return a problem as the framework sends it."""
    return Response(error.body(request.scope["request_id"]), error.status_code, error.headers, MEDIA_TYPE)


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer an error that a route raised."""
    assert isinstance(error, HTTPException)
    return response_of(request, problem_of(error))


def as_responses(kinds: Iterable[Kind], model: str) -> dict[int | str, dict[str, Any]]:
    """Return errors as OpenAPI has them: one response for each status, with an example for each kind."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        response = found.setdefault(kind.status, {"description": "", "content": {MEDIA_TYPE: {
            "schema": {"$ref": f"#/components/schemas/{model}"}, "examples": {},
        }}})  # fmt: skip
        response["description"] = " ".join((response["description"], kind.meaning)).strip()
        if kind.retry_s:
            response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
        if kind is NO_KEY:
            response["headers"] = {"WWW-Authenticate": {"description": "How to say who asks.", "schema": _TEXT}}
        response["content"][MEDIA_TYPE]["examples"][kind.name] = {
            "value": {"type": kind.type, "title": kind.title, "status": kind.status, "detail": kind.meaning}
        }
    return dict(sorted(found.items(), key=lambda entry: str(entry[0])))
