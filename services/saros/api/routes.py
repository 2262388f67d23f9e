"""The routes that the framework serves."""

import time
from collections.abc import Sequence
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import ClientDisconnect

from saros.api import openapi
from saros.api.bodies import JSON, LINES, PROTOBUF, BodyRoute, EventsRoute, media_type
from saros.api.dashboard import dashboard
from saros.api.ingest import read_json, read_lines, read_protobuf
from saros.api.limits import WAIT_MS, K
from saros.api.metrics import Requests, exposed
from saros.api.plan import Extras, TokenError, Wish
from saros.api.problems import BAD_REQUEST, NOT_LIVE, NOT_READY, ProblemError, bad_token, invalid_all
from saros.api.queries import extras_of
from saros.api.replies import answer_object, to_json
from saros.api.replies import json_response as _json
from saros.api.schemas import (
    Accepted,
    ManyRecommendations,
    RankBody,
    Recommendations,
    RecommendBody,
    SessionEvent,
    beyond,
)
from saros.api.scopes import ADMIN
from saros.api.service import Service
from saros.api.service_schemas import Stats, Status

_READERS = {JSON: read_json, LINES: read_lines, PROTOBUF: read_protobuf}
_CLICKED = ("click", "positive")
# Nothing from elsewhere, whatever the page says.
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


def events_router(service: Service) -> APIRouter:
    """Return the way in for events."""
    router = APIRouter(route_class=EventsRoute)

    @router.post("/v1/events", status_code=202, response_model=Accepted, **openapi.EVENTS)
    async def post_events(request: Request) -> Response:
        partitions = service.partitions()
        try:
            body = await request.body()
        except ClientDisconnect:
            raise ProblemError(BAD_REQUEST, "the body ended too early") from None
        events = _READERS[media_type(request)](body, service.limits)
        admin = bool(request.scope["may"] & ADMIN)
        receipt = await service.ingest.take(events, partitions, admin=admin)
        rejected = [one.told() for one in receipt.rejected]
        return _json({"accepted": receipt.accepted, "rejected": rejected, "token": receipt.token}, 202)

    return router


def body_router(service: Service) -> APIRouter:
    """Return the routes that take a body and answer with items."""
    router = APIRouter(route_class=BodyRoute)

    @router.post("/v1/recommendations", response_model=Recommendations | ManyRecommendations, **openapi.RECOMMEND_POST)
    async def post_recommendations(body: RecommendBody) -> Response:
        start = time.perf_counter()
        service.check_ready()
        _check_limits(body, service)
        users = body.users if body.users is not None else [body.user_id or ""]
        wish = Wish(
            session=_session_of(body.session),
            k=body.k or min(K, service.limits.k_max),
            exclude=tuple(body.exclude),
            exclude_seen=body.exclude_seen,
            category=body.category or "",
            token=body.min_token or "",
            wait_ms=_wait_ms(body, service),
        )
        wishes = [wish._replace(user_id=user, extras=_extras_of(body, wish.k)) for user in users]
        try:
            answers = await service.model.recommend(wishes)
        except TokenError as error:
            raise bad_token(error, "body") from error
        took_s = time.perf_counter() - start
        found = [
            answer_object(answer, body.scenario or "", took_s, each.extras.own_id if each.extras else "")
            for each, answer in zip(wishes, answers, strict=True)
        ]
        if body.users is None:
            return _json(found[0])
        results = [{"user_id": user, **one} for user, one in zip(users, found, strict=True)]
        return _json({"results": results, "took_ms": round(1000 * took_s, 3)})

    @router.post("/v1/rank", response_model=Recommendations, **openapi.RANK)
    async def post_rank(body: RankBody) -> Response:
        start = time.perf_counter()
        service.check_ready()
        _check_limits(body, service)
        wish = Wish(
            user_id=body.user_id or "",
            session=_session_of(body.session),
            k=body.k or len(body.candidates),
            exclude_seen=body.exclude_seen,
            token=body.min_token or "",
            wait_ms=_wait_ms(body, service),
        )
        try:
            answer = await service.model.rank(wish, body.candidates)
        except TokenError as error:
            raise bad_token(error, "body") from error
        return _json(answer_object(answer, body.scenario or "", time.perf_counter() - start))

    return router


def _check_limits(body: RecommendBody | RankBody, service: Service) -> None:
    errors = beyond(body, service.limits)
    if errors:
        raise invalid_all(errors)


def _extras_of(body: RecommendBody, k: int) -> Extras | None:
    given = {"explore": body.explore, "diversity": body.diversity, "explain": body.explain, "seed": body.seed}
    return extras_of(given, "body", k)


def _session_of(session: Sequence[SessionEvent] | None) -> tuple[tuple[str, bool], ...]:
    return tuple((event.item, event.kind in _CLICKED) for event in session or ())


def _wait_ms(body: RecommendBody | RankBody, service: Service) -> int:
    if body.wait_ms is not None:
        return body.wait_ms
    return min(WAIT_MS, service.limits.wait_ms_max) if body.min_token else 0


def plain_router(service: Service, requests: Requests) -> APIRouter:
    """Return the routes about the service itself."""
    router = APIRouter()
    page, front, described = files("saros.api").joinpath("docs.html").read_text(), dashboard(service.limits), b""

    @router.get("/", include_in_schema=False)
    async def root() -> Response:
        return Response(front.text, headers=front.headers, media_type="text/html")

    @router.get("/v1/stats", response_model=Stats, **openapi.STATS)
    async def stats() -> Response:
        return _json(service.model.stats())

    @router.get("/livez", response_model=Status, **openapi.LIVE)
    async def livez() -> Response:
        if why := service.model.why_dead():
            raise ProblemError(NOT_LIVE, why)
        return _json({"status": "live"})

    @router.get("/readyz", response_model=Status, **openapi.READY)
    async def readyz() -> Response:
        reasons = service.model.why_not_ready()
        if reasons:
            raise ProblemError(NOT_READY, "; ".join(reasons), reasons=reasons)
        return _json({"status": "ready"})

    @router.get("/metrics", **openapi.METRICS)
    async def metrics() -> Response:
        return Response(exposed(requests), media_type=CONTENT_TYPE_LATEST)

    @router.get("/openapi.json", include_in_schema=False)
    async def document(request: Request) -> Response:
        nonlocal described
        described = described or to_json(request.app.openapi())
        return Response(described, media_type="application/json")

    @router.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(page, headers=_PAGE_HEADERS, media_type="text/html")

    return router
