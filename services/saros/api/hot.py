"""The GET routes with answers: ASGI endpoints that read the raw path and query, and write bytes.

An id stands in the path as the caller wrote it, percent-encoded, so it may hold a "/": the framework's routes see it
only when that is lost. They are documented from the tables they are read with (`saros.api.openapi`).
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from saros.api.aliases import ALIASES
from saros.api.limits import WAIT_MS
from saros.api.plan import Answer, TokenError, Wish
from saros.api.problems import UNKNOWN_ITEM, ProblemError, bad_token
from saros.api.queries import EXTRAS, decoded, extras_of, read_query, tables_of, text_of
from saros.api.replies import answer_object, items_of, to_json
from saros.api.service import Service
from saros.api.short import Turn
from saros.wire.columns import ID_MAX

_QUERIES, _QUERY_BYTES = 1024, 64  # that are remembered, and how long one may be

# Of the id in the path as it stands there, and the query.
Endpoint = Callable[[bytes, bytes], Awaitable[bytes]]
# The same on the short way: it is told when there is an answer. It raises where there is none to be had this way.
Begin = Callable[[bytes, bytes, Turn], None]


class HotRoute(NamedTuple):
    """A route that is found by its raw path: `head` + the id + `tail`, or `head` alone.

    One without an endpoint is left to the framework, in its other form (`saros.api.aliases`).
    """

    template: str
    head: bytes
    tail: bytes
    endpoint: Endpoint | None
    begin: Begin | None = None

    @property
    def spans(self) -> bool:
        """True if there is an id in the path."""
        return bool(self.tail) or self.endpoint is None


class _Asked(NamedTuple):
    """What a query asks for, of whichever user: the fields of a wish behind its user, and what is handed back."""

    wish: tuple[Any, ...]
    scenario: str
    extras: dict[str, Any] | None  # what it says, where it asks for more than the best items
    token: str


class _Waiting:
    """A wish of a request on the short way."""

    __slots__ = ("_scenario", "_turn", "wishes")

    def __init__(self, wish: Wish, scenario: str, turn: Turn) -> None:
        self.wishes, self._scenario, self._turn = (wish,), scenario, turn

    def resolve(self, found: Sequence[Answer]) -> None:
        """Answer the request."""
        try:
            body = to_json(answer_object(found[0], self._scenario, time.perf_counter() - self._turn.start_s))
        except Exception as error:
            self.fail(error)
        else:
            self._turn.tell(body)

    def fail(self, error: BaseException) -> None:
        """Let it go the long way, which finds out by itself, and tells."""
        self._turn.give_up()


class HotRoutes:
    """The endpoints."""

    def __init__(self, service: Service) -> None:
        self._service, self._tables = service, tables_of(service.limits)
        # Most callers ask in the same words again and again: what those say is read once.
        self._asked = lru_cache(_QUERIES)(self._read)
        self._wait_ms = min(WAIT_MS, service.limits.wait_ms_max)
        self._k = self._tables.popular["k"].default
        users = "/v1/users/{user_id}/recommendations"
        self.all = (
            HotRoute(users, b"/v1/users/", b"/recommendations", self.recommend, self.begin),
            HotRoute("/v1/items/{item_id}/similar", b"/v1/items/", b"/similar", self.similar),
            HotRoute("/v1/recommendations", b"/v1/recommendations", b"", self.recommend),
            HotRoute("/v1/similar", b"/v1/similar", b"", self.similar),
            HotRoute("/v1/popular", b"/v1/popular", b"", self.popular),
            *(HotRoute(alias.template, alias.head, b"", None) for alias in ALIASES),
        )

    def _read(self, query: bytes) -> _Asked:
        return self._asks_for(read_query(self._tables.recommend, query))

    def _asks_for(self, given: dict[str, Any]) -> _Asked:
        """Return what the values of a query ask for."""
        token, k = given.get("min_token", ""), given.get("k", self._k)
        wait_ms = given.get("wait_ms", self._wait_ms if token else 0)
        exclude, exclude_seen = tuple(given.get("exclude", ())), given.get("exclude_seen", True)
        wish = ((), k, exclude, exclude_seen, given.get("category", ""), token, wait_ms)
        return _Asked(wish, given.get("scenario", ""), None if EXTRAS.isdisjoint(given) else given, token)

    def _of_user(self, raw: bytes, query: bytes) -> tuple[str, _Asked]:
        """Return the user in the path, and what is asked for."""
        user_id = text_of("user_id", decoded(raw, "path", "user_id"), 1, ID_MAX, "path")
        return user_id, self._asked(query) if len(query) <= _QUERY_BYTES else self._read(query)

    def begin(self, raw: bytes, query: bytes, turn: Turn) -> None:
        """Recommend items to a user, the short way."""
        self._service.check_ready()
        user_id, asked = self._of_user(raw, query)
        if asked.token or asked.extras is not None:
            raise ValueError("this takes the long way")
        self._service.model.serve(_Waiting(Wish(user_id, *asked.wish), asked.scenario, turn))

    async def recommend(self, raw: bytes, query: bytes) -> bytes:
        """Recommend items to a user."""
        start = time.perf_counter()
        self._service.check_ready()
        if raw:
            user_id, asked = self._of_user(raw, query)
        else:
            given = read_query(self._tables.recommend_query, query)
            user_id, asked = given["user_id"], self._asks_for(given)
        wish, own_id = Wish(user_id, *asked.wish), ""
        if asked.extras is not None:
            wish = wish._replace(extras=extras_of(asked.extras, "query", wish.k))
            own_id = wish.extras.own_id if wish.extras is not None else ""
        try:
            (answer,) = await self._service.model.recommend((wish,))
        except TokenError as error:
            raise bad_token(error, "query") from error
        return to_json(answer_object(answer, asked.scenario, time.perf_counter() - start, own_id))

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
