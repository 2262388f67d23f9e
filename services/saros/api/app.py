"""The FastAPI app: its routes, its errors, and its life."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from saros.api import openapi, scopes
from saros.api.access import AccessLog, Headers
from saros.api.aliases import ALIASES, Aliased
from saros.api.door import Door
from saros.api.gate_routes import gate_routers
from saros.api.guard import Guard
from saros.api.hot import HotRoutes
from saros.api.item_routes import items_routers
from saros.api.live_routes import live_router
from saros.api.metrics import Requests
from saros.api.problems import INTERNAL, ProblemError, answer_error, response_of, validation_problem
from saros.api.routes import body_router, events_router, plain_router
from saros.api.service import Service
from saros.api.short import Connection, Head
from saros.api.user_routes import users_router


class App(FastAPI):
    """FastAPI with the door around all that it does to a request."""

    def __init__(
        self, service: Service, on_ready: Callable[[BaseException | None], None], guard: Guard | None = None,
        access: AccessLog | None = None,
    ) -> None:  # fmt: skip
        """`on_ready` is called when the model is first ready, or cannot be loaded and why. No guard asks nobody."""
        self._service, self._requests = service, Requests()
        self._guard, self._access = guard or Guard(), access or AccessLog()
        self._door: Door | None = None  # until the framework has begun

        @asynccontextmanager
        async def life(_: FastAPI) -> AsyncIterator[None]:
            service.start(on_ready)
            self._guard.start()
            yield
            await self._guard.close()
            await service.close()

        super().__init__(
            lifespan=life,
            openapi_url=None,  # served by a route of ours, and /docs by a page that needs nothing from elsewhere
            redirect_slashes=False,
            # What is measured is told on /metrics.
            telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
            exception_handlers={
                HTTPException: answer_error,
                RequestValidationError: _answer_invalid,
                Exception: _answer_defect,
            },
        )
        self.state.limits = service.limits
        self._routers = (
            events_router(service), body_router(service), plain_router(service, self._requests),
            *items_routers(service), users_router(service), *gate_routers(service), live_router(service),
        )  # fmt: skip
        for router in self._routers:
            self.include_router(router)
        self._hot = HotRoutes(service).all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request straight to the door; the framework's own way there is for what we have turned off."""
        if scope["type"] == "http" and self.middleware_stack is not None:
            scope["app"] = self
            await self.middleware_stack(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def short(self, head: Head, connection: Connection) -> bool:
        """Take a request the short way, from our own server; False: it is to go the long way."""
        return self._door is not None and self._door.short(head, connection)

    def refused(
        self, status: int, seconds: float, headers: Headers, request_id: bytes, client: tuple[str, int] | None
    ) -> None:
        """Hear of bytes that our own server has answered with an error, as they became no request."""
        if self._door is not None:
            self._door.refused(status, seconds, headers, request_id, client)

    def build_middleware_stack(self) -> ASGIApp:
        """Return the framework's stack with the door before it: the hot routes need nothing of the stack."""
        stack = Aliased(super().build_middleware_stack())
        room = self._service.room
        self._door = Door(stack, self._hot, self.needs, room, self._requests, self._guard, self._access)
        return self._door

    @property
    def needs(self) -> dict[tuple[str, str], int]:
        """Return what each route asks for, by method and path."""
        hot = [route.template for route in self._hot if route.endpoint is not None]
        found = {("GET", template): self._guard.need("GET", template) for template in hot}
        for route in (route for router in self._routers for route in router.routes):
            assert isinstance(route, APIRoute), route
            found |= {(method, route.path): self._guard.need(method, route.path) for method in route.methods or ()}
        for alias in ALIASES:
            methods = [method for method, path in found if path == alias.path]
            found |= {(method, alias.template): self._guard.need(method, alias.template) for method in methods}
        return found

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.document(self, self._service.limits)
            scopes.declare(self.openapi_schema, self.needs, asked=self._guard.asks)
        return self.openapi_schema


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return response_of(request, validation_problem(list(error.errors())))


async def _answer_defect(request: Request, error: Exception) -> Response:
    return response_of(request, ProblemError(INTERNAL, "the log of the service says more"))
