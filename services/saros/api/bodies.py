"""How a body comes in: of a known type, not compressed, not too large, not too slow."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message

from saros.api.limits import Limits
from saros.api.problems import MEDIA, TIMEOUT, TOO_LARGE, ProblemError

JSON, LINES, PROTOBUF = "application/json", "application/x-ndjson", "application/x-protobuf"
# What is left of the body would be taken for the next request.
_CLOSE = {"connection": "close"}


def media_type(request: Request) -> str:
    """Return what type a body is of."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_head(request: Request, types: tuple[str, ...], limits: Limits) -> None:
    """Raise if the headers already say that the body cannot be taken."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise ProblemError(MEDIA, "compressed bodies are not taken", _CLOSE)
    if media_type(request) not in types:
        raise ProblemError(
            MEDIA, f"Content-Type has to be {' or '.join(types)}", {"accept": ", ".join(types), **_CLOSE}
        )
    size = request.headers.get("content-length", "0")
    if not size.isdecimal() or int(size[:12]) > limits.body_max_bytes:
        raise _too_large(limits)


def _too_large(limits: Limits) -> ProblemError:
    return ProblemError(TOO_LARGE, f"the body has more than {limits.body_max_bytes} bytes", _CLOSE)


def _bounded(request: Request, limits: Limits) -> Request:
    """Return the request with a body that raises where it is too large or too slow."""
    size, until = 0, asyncio.get_running_loop().time() + limits.body_timeout_s

    async def receive() -> Message:
        nonlocal size
        try:
            async with asyncio.timeout_at(until):
                message = await request.receive()
        except TimeoutError:
            raise ProblemError(TIMEOUT, f"the body took more than {limits.body_timeout_s:g} s", _CLOSE) from None
        size += len(message.get("body", b""))
        if size > limits.body_max_bytes:
            raise _too_large(limits)
        return message

    return Request(request.scope, receive)


class BodyRoute(APIRoute):
    """A route with a body of JSON."""

    types: ClassVar[tuple[str, ...]] = (JSON,)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the framework's handler behind the checks."""
        handler = super().get_route_handler()

        async def checked(request: Request) -> Response:
            limits: Limits = request.app.state.limits
            _check_head(request, self.types, limits)
            return await handler(_bounded(request, limits))

        return checked


class EventsRoute(BodyRoute):
    """A route with a body of events."""

    types = (JSON, LINES, PROTOBUF)
