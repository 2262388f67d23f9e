"""The door: every request comes in here, before the framework and inside its app.

It finds the route on the raw path, sends away what is too much and who may not, serves the hot routes, leaves the rest
to the framework, counts, and turns whatever went wrong into a problem. Every answer bears the id of its request. Hot
requests with which nothing is wrong may come the short way (`saros.api.short`).
"""

import logging
import time
from collections.abc import Mapping, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from saros.api.access import AccessLog, Headers, request_id_of, trace_of
from saros.api.guard import Guard
from saros.api.hot import HotRoute
from saros.api.metrics import Requests
from saros.api.problems import INTERNAL, MEDIA_TYPE, NOT_ALLOWED, NOT_FOUND, ProblemError
from saros.api.room import Room
from saros.api.short import Connection, Head

_LOG = logging.getLogger("saros.api")
_NOWHERE = "other"  # the route of all paths that are none: whoever looks for holes must not make metrics
# Answered however much is in work: whoever watches over the process must see it then, too.
_ALWAYS = frozenset(("/livez", "/readyz", "/metrics"))
# Answers that stay open: however many they are, they keep nobody from being served, and have a limit of their own.
_STREAMS = frozenset(("/v1/live",))
# An answer is a user's own, and old when the next click comes.
_NO_STORE = (b"cache-control", b"no-store")
_REQUEST_ID = b"x-request-id"
JSON_HEADERS = ((b"content-type", b"application/json"), _NO_STORE)


class _Turn:
    """A request on the short way (`saros.api.short.Turn`)."""

    __slots__ = ("_door", "connection", "headers", "key", "route", "start_s")

    def __init__(self, door: "Door", connection: Connection, route: str, headers: Headers, key: str) -> None:
        self._door, self.connection, self.route, self.headers, self.key = door, connection, route, headers, key
        self.start_s = time.perf_counter()

    def tell(self, body: bytes) -> None:
        """Answer it."""
        self._door.told(self, body)

    def give_up(self) -> None:
        """Let it go the long way."""
        self._door.given_up(self)


class Door:
    """An ASGI app around the framework's."""

    def __init__(
        self, app: ASGIApp, hot: Sequence[HotRoute], needs: Mapping[tuple[str, str], int], room: Room,
        requests: Requests, guard: Guard, access: AccessLog,
    ) -> None:  # fmt: skip
        """`needs`: what every route asks for, by method and path."""
        self._app, self._requests, self._room = app, requests, room
        self._guard, self._access = guard, access
        self._exact: dict[bytes, tuple[str, HotRoute | None]] = {path.encode(): (path, None) for _, path in needs}
        self._exact |= {route.head: (route.template, route) for route in hot if not route.spans}
        self._needs: dict[str, dict[str, int]] = {}
        for (method, path), need in sorted(needs.items()):
            self._needs.setdefault(path, {})[method] = need
        self._spans = [route for route in hot if route.spans]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        method: str = scope["method"]
        route, hot, raw = self._find(scope["raw_path"])
        endpoint = hot.endpoint if hot is not None else None
        headers = dict(scope["headers"])
        request_id, who = request_id_of(headers), ""
        status, stays, room = 500, route in _STREAMS, self._room
        room.busy, room.streams = room.busy + (not stays), room.streams + stays
        try:
            key = self._guard.admit(self._check(route, method), headers.get(b"x-api-key"))
            who, scope["may"] = key.name, key.may
            if endpoint is not None and method == "GET":
                body = await endpoint(raw, scope["query_string"])
                status = 200
                await _send(send, status, body, [*JSON_HEADERS, (_REQUEST_ID, request_id)])
            else:
                status = await self._pass_on(scope, receive, send, route, request_id)
        except ProblemError as error:
            status = error.status_code
            await _send_problem(send, error, request_id)
        except Exception:
            _note_defect(scope, route, request_id)
            await _send_problem(send, ProblemError(INTERNAL, "the log of the service says more"), request_id)
        finally:
            room.busy, room.streams = room.busy - (not stays), room.streams - stays
            self._note(route, method, status, start, headers, request_id, who, scope.get("client"))

    def _note(
        self, route: str, method: str, status: int, start_s: float, headers: Headers, request_id: bytes, key: str,
        client: tuple[str, int] | None,
    ) -> None:  # fmt: skip
        """Count a request that was answered, and log it if it is to be."""
        self._note_after(time.perf_counter() - start_s, route, method, status, headers, request_id, key, client)

    def refused(
        self, status: int, seconds: float, headers: Headers, request_id: bytes, client: tuple[str, int] | None
    ) -> None:
        """Note bytes that the server has answered with an error, as they became no request: they have no method."""
        self._note_after(seconds, _NOWHERE, "-", status, headers, request_id, "", client)

    def _note_after(
        self, seconds: float, route: str, method: str, status: int, headers: Headers, request_id: bytes, key: str,
        client: tuple[str, int] | None,
    ) -> None:  # fmt: skip
        self._requests.note(route, method, status, seconds)
        if self._access.wants(status):
            peer = client[0] if client else ""
            self._access.write(headers, request_id, method, route, status, seconds, key, peer)

    def short(self, head: Head, connection: Connection) -> bool:
        """Take a request the short way, if it may go there, and if nothing is wrong with it."""
        path, _, query = head.target.partition(b"?")
        route, hot, raw = self._find(path)
        if hot is None or hot.begin is None or self._room.is_full:
            return False
        key = self._guard.name_of(self._needs[route]["GET"], head.headers.get(b"x-api-key"))
        if key is None:
            return False
        self._room.busy += 1
        try:
            hot.begin(raw, query, _Turn(self, connection, route, head.headers, key))
        except Exception:
            self._room.busy -= 1
            return False  # the long way finds the same, and tells it
        return True

    def told(self, turn: "_Turn", body: bytes) -> None:
        """Answer a request that came the short way."""
        self._room.busy -= 1
        request_id = request_id_of(turn.headers)
        turn.connection.answer(body, request_id)
        self._note(turn.route, "GET", 200, turn.start_s, turn.headers, request_id, turn.key, turn.connection.client)

    def given_up(self, turn: "_Turn") -> None:
        """Let a request that came the short way go the long one."""
        self._room.busy -= 1
        turn.connection.go_long()

    def _find(self, path: bytes) -> tuple[str, HotRoute | None, bytes]:
        """Return the route's template, the route if it is a hot one, and the id in the path."""
        for route in self._spans:
            if path.startswith(route.head) and path.endswith(route.tail):
                raw = path[len(route.head) : len(path) - len(route.tail)]
                # A bare "/" belongs to a longer path, and nothing between is no id.
                if raw and b"/" not in raw:
                    return route.template, route, raw
        template, hot = self._exact.get(path, (_NOWHERE, None))
        return template, hot, b""

    def _check(self, route: str, method: str) -> int:
        """Return what a route asks for; raise if there is none, or no room for another request."""
        if route not in _ALWAYS:
            self._room.check(route in _STREAMS)
        if route == _NOWHERE:
            raise ProblemError(NOT_FOUND, "no route has this path")
        need = self._needs[route].get(method)
        if need is None:
            allow = ", ".join(self._needs[route])
            raise ProblemError(NOT_ALLOWED, f"{route} has {allow}", {"allow": allow})
        return need

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, route: str, request_id: bytes) -> int:
        """Let the framework answer; return the status it answered with."""
        status = 0
        scope["request_id"] = request_id.decode()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_REQUEST_ID, request_id)]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:
            if not status:
                raise
            # The framework's own answer to a defect is out already, and it raised on, to be noted.
            _note_defect(scope, route, request_id)
        return status


def _note_defect(scope: Scope, route: str, request_id: bytes) -> None:
    """Write down the exception that is being dealt with."""
    trace = trace_of(dict(scope["headers"]))
    fields = {"route": route, "method": scope["method"], "request_id": request_id.decode(), **trace}
    _LOG.exception("request failed", extra={"fields": fields})


async def _send(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def _send_problem(send: Send, error: ProblemError, request_id: bytes) -> None:
    own = [(b"content-type", MEDIA_TYPE.encode()), _NO_STORE, (_REQUEST_ID, request_id)]
    headers = [(name.encode(), value.encode()) for name, value in (error.headers or {}).items()]
    await _send(send, error.status_code, error.body(request_id.decode()), [*own, *headers])
