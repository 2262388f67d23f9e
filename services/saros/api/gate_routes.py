"""The gate: how it stands, how it is changed, and what other bounds would do.

A change is an event, sent to every partition: the settings as a whole, with a revision. The highest wins, so partitions
come to the same whatever order changes reach them in; `saros.wire.rare` says what happens to two of one revision. What
is not given is taken from the highest revision that is known here, or that was sent from here.

A request that names a revision may come again, as where only a part of the partitions took its change: it is known by
what it makes of that revision, and its change is sent once more as it was.
"""

import asyncio
import time

from fastapi import APIRouter, Request, Response

from saros.api import openapi_data as docs
from saros.api.bodies import BodyRoute
from saros.api.data_schemas import GateChangeBody, GateChanged, GateTold, Simulated
from saros.api.desk import SLICE_S, give_way
from saros.api.gates import changed, settings_of
from saros.api.problems import CONFLICT, ProblemError, invalid
from saros.api.queries import read_query, tables_of
from saros.api.replies import json_response
from saros.api.service import Service
from saros.wire.rare import gate_change, gate_rules, is_gate_change, supersedes
from saros.wire.v1.events_pb2 import Event, GateChange


def gate_routers(service: Service) -> tuple[APIRouter, APIRouter]:
    """Return the routes about the gate: that with a body, and the others."""
    return _body_router(service), _plain_router(service)


def _body_router(service: Service) -> APIRouter:
    router, one_by_one = APIRouter(route_class=BodyRoute), asyncio.Lock()
    sent = GateChange()  # the last one that Kafka took from here: the log has it a moment later
    used = 0  # the last revision from here, whatever became of it
    tried: tuple[dict[str, object], GateChange] | None = None  # the last request that Kafka did not take, or in part
    log_id = 0  # of the log that both are of: another one begins anew

    @router.patch("/v1/gate", status_code=202, response_model=GateChanged, **docs.GATE_PATCH)
    async def patch_gate(body: GateChangeBody) -> Response:
        service.check_ready()
        async with one_by_one:
            return await change(body)

    async def change(body: GateChangeBody) -> Response:
        nonlocal sent, used, log_id, tried
        gates = service.model.gates()
        if gates.log_id != log_id:
            sent, used, log_id, tried = GateChange(), 0, gates.log_id, None
        latest = sent if supersedes(sent, gates.highest) else gates.highest
        asked = body.model_dump(exclude_none=True)
        given = {name: value for name, value in asked.items() if name != "revision"}
        if body.revision is None or body.revision == latest.revision:
            if not given:
                raise invalid("body", "", "names nothing to change")
            try:
                rules = changed(gate_rules(latest), given)
            except ValueError as error:
                raise invalid("body", "", str(error)) from None
            used = max(used, latest.revision) + 1
            made = gate_change(rules, used)
        elif (tried is not None and tried == (asked, latest)) or gates.is_made_of(latest, body.revision, given):
            made = latest
        else:
            raise ProblemError(CONFLICT, f"the gate is at revision {latest.revision}", revision=latest.revision)
        assert is_gate_change(made), "trainers take what was checked"
        tried = asked, made
        token = await service.ingest.broadcast(Event(gate_change=made), service.partitions())
        sent, tried = made, None
        told = {"revision": made.revision, "settings": settings_of(gate_rules(made)), "token": token}
        return json_response(told, 202)

    return router


def _plain_router(service: Service) -> APIRouter:
    router, tables = APIRouter(), tables_of(service.limits)

    @router.get("/v1/gate", response_model=GateTold, **docs.gate_get(tables.gate))
    async def get_gate(request: Request) -> Response:
        service.check_ready()
        reached = await service.reach(read_query(tables.gate, request.scope["query_string"]))
        return json_response(service.model.gates().told() | reached)

    @router.get("/v1/gate/simulate", response_model=Simulated, **docs.gate_simulate(tables.simulate))
    async def simulate_gate(request: Request) -> Response:
        service.check_ready()
        given = read_query(tables.simulate, request.scope["query_string"])
        low, high = given["blocks_min"], given["blocks_max"]
        if low > high:
            raise invalid("query", "blocks_min", "is above blocks_max: nothing would be left")
        begun_s = time.perf_counter()
        for found in service.model.gates().simulate(low, high):  # noqa: B007  # the last one is of all partitions
            if time.perf_counter() - begun_s > SLICE_S:
                begun_s = await give_way(begun_s)
        blocks, each = _share(found.blocks, found.blocks_dropped, found.blocks_exact), service.model.clicks_per_block()
        return json_response({
            "blocks_min": low,
            "blocks_max": high,
            "users": _share(found.users, found.users_dropped, found.users_exact),
            "blocks": blocks,
            "clicks": {
                # The histogram knows no clicks. Blocks are taken to have as many as those that were closed since
                # this process began to listen, each alike.
                "total": None if each is None else round(each * found.blocks),
                "dropped": None if each is None else round(each * found.blocks_dropped),
                "share": blocks["share"],
                "exact": False,
            },
        })  # fmt: skip

    return router


def _share(total: int, dropped: int, exact: bool) -> dict[str, object]:
    return {"total": total, "dropped": dropped, "share": dropped / total if total else 0.0, "exact": exact}
