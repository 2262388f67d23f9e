"""The stream for those who watch: what was, and a pulse each second (`saros.api.live`)."""

from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from saros.api import openapi_live as docs
from saros.api.queries import read_query, tables_of
from saros.api.service import Service

# A proxy that gathers answers would hold pulses back.
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class EventStream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], status_code: int = 200) -> None:
        """The framework looks here for the status that it documents."""
        super().__init__(events, status_code, _HEADERS)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until there are no more, or the caller is gone: the events learn of it at once."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()


def live_router(service: Service) -> APIRouter:
    """Return the route. It answers before there is a model, too, and says so."""
    router, table = APIRouter(), tables_of(service.limits).live

    @router.get("/v1/live", response_class=EventStream, **docs.live_get(table))
    async def get_live(request: Request) -> EventStream:
        given = read_query(table, request.scope["query_string"])
        return EventStream(service.live.events(given.get("count")))

    return router
