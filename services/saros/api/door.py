"""The door: every request comes in here, before the framework and inside its app.

It finds the route on the raw path, sends away what is too much, serves the hot routes, leaves the rest to the
framework, counts, and turns whatever went wrong into a problem.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from saros.api.hot import Endpoint, HotRoute
from saros.api.metrics import BUSY, SHED, Requests
from saros.api.problems import INTERNAL, MEDIA_TYPE, NOT_ALLOWED, NOT_FOUND, OVERLOADED, ProblemError

_LOG = logging.getLogger("saros.api")
_NOWHERE = "other"  # the route of all paths that are none: whoever looks for holes must not make metrics
# Answered however much is in work: whoever watches over the process must see it then, too.
_ALWAYS = frozenset(("/livez", "/readyz", "/metrics"))
# An answer is a user's own, and old when the next click comes.
_NO_STORE = (b"cache-control", b"no-store")
JSON_HEADERS = ((b"content-type", b"application/json"), _NO_STORE)
# What our server offers beside `send` (`saros.api.server`): bytes go out as an answer in JSON, unless it says False.
WHOLE = "saros.whole"
_NO_EXTENSIONS: dict[str, Any] = {}


class Door:
    """An ASGI app around the framework's."""

    def __init__(
        self, app: ASGIApp, hot: Sequence[HotRoute], paths: Mapping[str, Sequence[str]], concurrency_max: int,
        requests: Requests,
    ) -> None:  # fmt: skip
        """`paths`: the methods of each path that the framework serves."""
        self._app, self._concurrency_max, self._requests = app, concurrency_max, requests
        self._busy = 0
        self._exact: dict[bytes, tuple[str, Endpoint | None]] = {path.encode(): (path, None) for path in paths}
        self._exact |= {route.head: (route.template, route.endpoint) for route in hot if not route.tail}
        self._methods = {path: sorted(methods) for path, methods in paths.items()}
        for route in hot:
            self._methods[route.template] = sorted({"GET", *self._methods.get(route.template, ())})
        self._spans = [route for route in hot if route.tail]
        BUSY.set_function(lambda: self._busy)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        method: str = scope["method"]
        route, endpoint, raw = self._find(scope["raw_path"])
        status = 500
        self._busy += 1
        try:
            self._check(route, method)
            if endpoint is not None and method == "GET":
                body = await endpoint(raw, scope["query_string"])
                status = 200
                whole = scope.get("extensions", _NO_EXTENSIONS).get(WHOLE)
                if whole is None or not whole(body):
                    await _send(send, status, body, JSON_HEADERS)
            else:
                status = await self._pass_on(scope, receive, send)
        except ProblemError as error:
            status = error.status_code
            await _send_problem(send, error)
        except Exception:
            _LOG.exception("request failed", extra={"fields": {"route": route, "method": method}})
            await _send_problem(send, ProblemError(INTERNAL, "the log of the service says more"))
        finally:
            self._busy -= 1
            self._requests.note(route, method, status, time.perf_counter() - start)

    def _find(self, path: bytes) -> tuple[str, Endpoint | None, bytes]:
        """Return the route's template, its endpoint if it is a hot one, and the id in the path."""
        for route in self._spans:
            if path.startswith(route.head) and path.endswith(route.tail):
                raw = path[len(route.head) : -len(route.tail)]
                # A bare "/" belongs to a longer path, and nothing between is no id.
                if raw and b"/" not in raw:
                    return route.template, route.endpoint, raw
        template, endpoint = self._exact.get(path, (_NOWHERE, None))
        return template, endpoint, b""

    def _check(self, route: str, method: str) -> None:
        """Raise if there is no such route, or no room for another request."""
        if self._busy > self._concurrency_max and route not in _ALWAYS:
            SHED.inc()
            raise ProblemError(OVERLOADED, f"{self._concurrency_max} requests are in work")
        if route == _NOWHERE:
            raise ProblemError(NOT_FOUND, "no route has this path")
        if method not in self._methods[route]:
            allow = ", ".join(self._methods[route])
            raise ProblemError(NOT_ALLOWED, f"{route} has {allow}", {"allow": allow})

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Let the framework answer; return the status it answered with."""
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:
            if not status:
                raise
            # The framework's own answer to a defect is out already, and it raised on, to be noted.
            _LOG.exception("request failed", extra={"fields": {"route": scope["path"], "method": scope["method"]}})
        return status


async def _send(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def _send_problem(send: Send, error: ProblemError) -> None:
    headers = [(name.encode(), value.encode()) for name, value in (error.headers or {}).items()]
    await _send(send, error.status_code, error.body(), [(b"content-type", MEDIA_TYPE.encode()), _NO_STORE, *headers])
