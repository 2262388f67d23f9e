"""The door: every request comes in here, before the framework and inside its app.

It finds the route on the raw path, sends away what is too much and who may not, serves the hot routes, leaves the rest
to the framework, counts, and turns whatever went wrong into a problem. Every answer bears the id of its request.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from saros.api.access import AccessLog, request_id_of, trace_of
from saros.api.guard import Guard
from saros.api.hot import Endpoint, HotRoute
from saros.api.metrics import BUSY, SHED, Requests
from saros.api.problems import INTERNAL, MEDIA_TYPE, NOT_ALLOWED, NOT_FOUND, OVERLOADED, ProblemError

_LOG = logging.getLogger("saros.api")
_NOWHERE = "other"  # the route of all paths that are none: whoever looks for holes must not make metrics
# Answered however much is in work: whoever watches over the process must see it then, too.
_ALWAYS = frozenset(("/livez", "/readyz", "/metrics"))
# An answer is a user's own, and old when the next click comes.
_NO_STORE = (b"cache-control", b"no-store")
_REQUEST_ID = b"x-request-id"
JSON_HEADERS = ((b"content-type", b"application/json"), _NO_STORE)
# What our server offers beside `send` (`saros.api.server`): bytes go out as an answer in JSON, unless it says False.
WHOLE = "saros.whole"
_NO_EXTENSIONS: dict[str, Any] = {}


class Door:
    """An ASGI app around the framework's."""

    def __init__(
        self, app: ASGIApp, hot: Sequence[HotRoute], needs: Mapping[tuple[str, str], int], concurrency_max: int,
        requests: Requests, guard: Guard, access: AccessLog,
    ) -> None:  # fmt: skip
        """`needs`: what every route asks for, by method and path."""
        self._app, self._concurrency_max, self._requests = app, concurrency_max, requests
        self._guard, self._access = guard, access
        self._busy = 0
        self._exact: dict[bytes, tuple[str, Endpoint | None]] = {path.encode(): (path, None) for _, path in needs}
        self._exact |= {route.head: (route.template, route.endpoint) for route in hot if not route.spans}
        self._needs: dict[str, dict[str, int]] = {}
        for (method, path), need in sorted(needs.items()):
            self._needs.setdefault(path, {})[method] = need
        self._spans = [route for route in hot if route.spans]
        BUSY.set_function(lambda: self._busy)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        method: str = scope["method"]
        route, endpoint, raw = self._find(scope["raw_path"])
        headers = dict(scope["headers"])
        request_id, key = request_id_of(headers), ""
        status = 500
        self._busy += 1
        try:
            key = self._guard.admit(self._check(route, method), headers.get(b"x-api-key"))
            if endpoint is not None and method == "GET":
                body = await endpoint(raw, scope["query_string"])
                status = 200
                whole = scope.get("extensions", _NO_EXTENSIONS).get(WHOLE)
                if whole is None or not whole(body, request_id):
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
            self._busy -= 1
            seconds = time.perf_counter() - start
            self._requests.note(route, method, status, seconds)
            if self._access.wants(status):
                peer = (scope.get("client") or ("",))[0]
                self._access.write(headers, request_id, method, route, status, seconds, key, peer)

    def _find(self, path: bytes) -> tuple[str, Endpoint | None, bytes]:
        """Return the route's template, its endpoint if it is a hot one, and the id in the path."""
        for route in self._spans:
            if path.startswith(route.head) and path.endswith(route.tail):
                raw = path[len(route.head) : len(path) - len(route.tail)]
                # A bare "/" belongs to a longer path, and nothing between is no id.
                if raw and b"/" not in raw:
                    return route.template, route.endpoint, raw
        template, endpoint = self._exact.get(path, (_NOWHERE, None))
        return template, endpoint, b""

    def _check(self, route: str, method: str) -> int:
        """Return what a route asks for; raise if there is none, or no room for another request."""
        if self._busy > self._concurrency_max and route not in _ALWAYS:
            SHED.inc()
            raise ProblemError(OVERLOADED, f"{self._concurrency_max} requests are in work")
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
