"""What a key may do, and what each route asks for: one table, from which requests are checked and documented.

To add a route, add its line to `ROUTES`. One that is missing there asks for `admin`, the strictest, and a test says so.
"""

from collections.abc import Iterator
from typing import Any

from saros.api import problems as p
from saros.api.service_schemas import ProblemBody

# Bits: what a key may do, and what a route asks for. A route that asks for nothing is open to everybody.
OPEN, INGEST, READ, ADMIN = 0, 1, 2, 4
# What each scope's name gives a key. An operator who may change items and erase users may do the rest as well.
EVERYTHING = ADMIN | INGEST | READ
GIVES = {"ingest": INGEST, "read": READ, "admin": EVERYTHING}
_NAMES = {INGEST: "ingest", READ: "read", ADMIN: "admin"}

ROUTES = {
    # Events that change items or erase users need ADMIN, as the routes for the same do: `saros.api.ingest` looks.
    ("POST", "/v1/events"): INGEST,
    ("GET", "/v1/users/{user_id}/recommendations"): READ,
    ("GET", "/v1/recommendations"): READ,
    ("POST", "/v1/recommendations"): READ,
    ("POST", "/v1/rank"): READ,
    ("GET", "/v1/items/{item_id}/similar"): READ,
    ("GET", "/v1/similar"): READ,
    ("GET", "/v1/popular"): READ,
    ("GET", "/v1/items"): READ,
    ("PUT", "/v1/items"): ADMIN,
    ("PATCH", "/v1/items"): ADMIN,
    ("DELETE", "/v1/items"): ADMIN,
    ("GET", "/v1/items/{item_id}"): READ,
    ("PUT", "/v1/items/{item_id}"): ADMIN,
    ("PATCH", "/v1/items/{item_id}"): ADMIN,
    ("DELETE", "/v1/items/{item_id}"): ADMIN,
    ("POST", "/v1/items:batch"): ADMIN,
    # What is known of a person.
    ("GET", "/v1/users"): ADMIN,
    ("DELETE", "/v1/users"): ADMIN,
    ("GET", "/v1/users/{user_id}"): ADMIN,
    ("DELETE", "/v1/users/{user_id}"): ADMIN,
    ("GET", "/v1/gate"): READ,
    ("PATCH", "/v1/gate"): ADMIN,
    ("GET", "/v1/gate/simulate"): READ,
    ("GET", "/v1/stats"): READ,
    ("GET", "/v1/live"): READ,
    # Unless a setting opens it: how much comes in, and how well it is going, is nobody's business.
    ("GET", "/metrics"): READ,
    # Load balancers have no keys.
    ("GET", "/livez"): OPEN,
    ("GET", "/readyz"): OPEN,
    # No browser sends a header when it opens a page; these say only what the documentation does.
    ("GET", "/"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/openapi.json"): OPEN,
}


def scope_of(method: str, route: str) -> int:
    """Return what a route asks for."""
    return ROUTES.get((method, route), ADMIN)


def name_of(need: int) -> str:
    """Return the name of what a route asks for."""
    return _NAMES[need]


_SCHEME = "key"
_SCHEMES = {
    _SCHEME: {
        "type": "apiKey", "in": "header", "name": "X-API-Key",
        "description": "`saros key new` makes one. `admin` may all that `ingest` and `read` may.",
    }
}  # fmt: skip
_REQUEST_ID = {
    "description": "The `X-Request-ID` of the request, or one that was made for it.",
    "schema": {"type": "string", "maxLength": 128},
}


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def declare(document: dict[str, Any], needs: dict[tuple[str, str], int], *, asked: bool) -> None:
    """Say in an OpenAPI document what each route asks for; where nobody is asked, a key may be left out."""
    components = document["components"]
    components["securitySchemes"], components["headers"] = _SCHEMES, {"X-Request-ID": _REQUEST_ID}
    for method, path, operation in _operations(document):
        need = needs[method, path]
        operation["security"] = [] if need == OPEN else [{_SCHEME: [name_of(need)]}]
        if need != OPEN:
            if not asked:
                operation["security"].insert(0, {})
            operation["description"] += f"\n\nNeeds the scope `{name_of(need)}`."
            refusals = p.as_responses((p.NO_KEY, p.NOT_YOURS), ProblemBody.__name__)
            operation["responses"] |= {str(status): response for status, response in refusals.items()}
            operation["responses"] = dict(sorted(operation["responses"].items()))
        for response in operation["responses"].values():
            response.setdefault("headers", {})["X-Request-ID"] = {"$ref": "#/components/headers/X-Request-ID"}
