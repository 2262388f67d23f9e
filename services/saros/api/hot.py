"""The GET routes with answers: ASGI endpoints that read the raw path and query, and write bytes.

An id stands in the path as the caller wrote it, percent-encoded, so it may hold a "/": the framework's routes see it
only when that is lost. They are documented from the tables they are read with (`saros.api.openapi`).
"""

import time
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import NamedTuple

from saros.api.aliases import ALIASES
from saros.api.limits import WAIT_MS
from saros.api.plan import Wish
from saros.api.problems import UNKNOWN_ITEM, ProblemError, bad_token
from saros.api.queries import EXTRAS, decoded, extras_of, read_query, tables_of, text_of
from saros.api.replies import answer_object, items_of, to_json
from saros.api.service import Service
from saros.wire.columns import ID_MAX

_QUERIES, _QUERY_BYTES = 1024, 64  # that are remembered, and how long one may be

# Of the id in the path as it stands there, and the query.
Endpoint = Callable[[bytes, bytes], Awaitable[bytes]]


class HotRoute(NamedTuple):
    """A route that is found by its raw path: `head` + the id + `tail`, or `head` alone.

    One without an endpoint is left to the framework, in its other form (`saros.api.aliases`).
    """

    template: str
    head: bytes
    tail: bytes
    endpoint: Endpoint | None

    @property
    def spans(self) -> bool:
        """True if there is an id in the path."""
        return bool(self.tail) or self.endpoint is None


class HotRoutes:
    """The endpoints."""

    def __init__(self, service: Service) -> None:
        self._service, self._tables = service, tables_of(service.limits)
        # Most callers ask in the same words again and again: what those say is read once.
        self._asked = lru_cache(_QUERIES)(partial(read_query, self._tables.recommend))
        self._wait_ms = min(WAIT_MS, service.limits.wait_ms_max)
        self._k = self._tables.popular["k"].default
        self.all = (
            HotRoute("/v1/users/{user_id}/recommendations", b"/v1/users/", b"/recommendations", self.recommend),
            HotRoute("/v1/items/{item_id}/similar", b"/v1/items/", b"/similar", self.similar),
            HotRoute("/v1/recommendations", b"/v1/recommendations", b"", self.recommend),
            HotRoute("/v1/similar", b"/v1/similar", b"", self.similar),
            HotRoute("/v1/popular", b"/v1/popular", b"", self.popular),
            *(HotRoute(alias.template, alias.head, b"", None) for alias in ALIASES),
        )

    async def recommend(self, raw: bytes, query: bytes) -> bytes:
        """Recommend items to a user."""
        start = time.perf_counter()
        self._service.check_ready()
        if raw:
            user_id = text_of("user_id", decoded(raw, "path", "user_id"), 1, ID_MAX, "path")
            given = self._asked(query) if len(query) <= _QUERY_BYTES else read_query(self._tables.recommend, query)
        else:
            given = read_query(self._tables.recommend_query, query)
            user_id = given["user_id"]
        token = given.get("min_token", "")
        wish = Wish(
            user_id,
            (),
            given.get("k", self._k),
            tuple(given.get("exclude", ())),
            given.get("exclude_seen", True),
            given.get("category", ""),
            token,
            given.get("wait_ms", self._wait_ms if token else 0),
            None if EXTRAS.isdisjoint(given) else extras_of(given, "query", given.get("k", self._k)),
        )
        try:
            (answer,) = await self._service.model.recommend((wish,))
        except ValueError as error:
            raise bad_token(error, token, "query") from error
        took_s, scenario = time.perf_counter() - start, given.get("scenario", "")
        if wish.extras is None:
            return to_json(answer_object(answer, scenario, took_s))
        return to_json(answer_object(answer, scenario, took_s, wish.extras.own_id))

    async def similar(self, raw: bytes, query: bytes) -> bytes:
        """Return the items nearest to one."""
        start = time.perf_counter()
        self._service.check_ready()
        if raw:
            item_id = text_of("item_id", decoded(raw, "path", "item_id"), 1, ID_MAX, "path")
            given = read_query(self._tables.similar, query)
        else:
            given = read_query(self._tables.similar_query, query)
            item_id = given["item_id"]
        found = self._service.model.similar(
            item_id, given.get("k", self._k), given.get("exclude", ()), given.get("category", "")
        )
        if found is None:
            raise ProblemError(UNKNOWN_ITEM, "the model does not know this item")
        took_ms = round(1000 * (time.perf_counter() - start), 3)
        return to_json({"item_id": item_id, "items": items_of(found), "took_ms": took_ms})

    async def popular(self, raw: bytes, query: bytes) -> bytes:
        """Return what is liked of late."""
        start = time.perf_counter()
        self._service.check_ready()
        given = read_query(self._tables.popular, query)
        found = self._service.model.popular(given.get("k", self._k), given.get("category", ""))
        took_ms = round(1000 * (time.perf_counter() - start), 3)
        return to_json({"items": items_of(found), "took_ms": took_ms})
