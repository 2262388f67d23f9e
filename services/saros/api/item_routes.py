"""Items as their keepers see them: read, replaced, changed, deleted.

Whatever is written is an event, and counts in the order of the log: an item stands in one partition. A change names
only what it changes, and whoever folds the log puts it together with what was there (`saros.wire.item`): two who change
different fields at the same time both succeed, and of two who change the same the later one in the log does. A deleted
item leaves a tombstone, which a change does not touch and a put takes away.
"""

import asyncio

from fastapi import APIRouter, Request, Response

from saros.api import openapi_data as docs
from saros.api.bodies import BodyRoute
from saros.api.data_schemas import DeleteItem, ItemBatch, ItemBody, ItemChange, ItemTold, PatchItem, PutItem, Written
from saros.api.problems import TOO_LARGE, UNKNOWN_ITEM, ProblemError
from saros.api.queries import Table, read_query, tables_of
from saros.api.replies import json_response
from saros.api.schemas import Accepted
from saros.api.service import Service
from saros.api.views import ItemView
from saros.wire.item import CATEGORIES, EXPIRES_AT, HIDDEN, PROPERTIES
from saros.wire.objects import BadObjectError, time_ms_of
from saros.wire.v1.events_pb2 import Event, ItemUpsert

_CHANGES = {"categories": CATEGORIES, "hidden": HIDDEN, "expires_at": EXPIRES_AT, "properties": PROPERTIES}
_SLICE = 32  # items of a batch that are looked at before others have their turn
_UNKNOWN = "the item is not known, or was deleted: a put makes it"


def upsert_of(item_id: str, body: ItemBody) -> Event:
    """Return the event that replaces all that is known of an item."""
    return Event(
        item_upsert=ItemUpsert(
            item_id=item_id,
            categories=body.categories,
            hidden=body.hidden,
            expires_at_ms=time_ms_of(body.expires_at or 0.0),
            properties=body.properties,
        )
    )


def change_of(item_id: str, body: ItemBody) -> Event:
    """Return the event that changes what is given of an item."""
    event = upsert_of(item_id, body)
    event.item_upsert.changes = sum(_CHANGES[name] for name in body.model_fields_set & _CHANGES.keys())
    return event


def tombstone_of(item_id: str) -> Event:
    """Return the event that deletes an item."""
    return Event(item_upsert=ItemUpsert(item_id=item_id, deleted=True))


def items_routers(service: Service) -> tuple[APIRouter, APIRouter]:
    """Return the routes about items: those with a body, and the others."""
    tables = tables_of(service.limits)
    return _body_router(service, tables.item_write), _plain_router(service, tables.item, tables.item_write)


def _body_router(service: Service, table: Table) -> APIRouter:
    router = APIRouter(route_class=BodyRoute)

    @router.put("/v1/items", status_code=202, response_model=Written, **docs.item_put(table))
    async def put_item(request: Request, body: ItemBody) -> Response:
        item_id = read_query(table, request.scope["query_string"])["item_id"]
        return await _write(service, upsert_of(item_id, body))

    @router.patch("/v1/items", status_code=202, response_model=Written, **docs.item_patch(table))
    async def patch_item(request: Request, body: ItemChange) -> Response:
        service.check_ready()
        item_id = read_query(table, request.scope["query_string"])["item_id"]
        if service.model.item(item_id) is None:
            raise ProblemError(UNKNOWN_ITEM, _UNKNOWN)
        return await _write(service, change_of(item_id, body))

    @router.post("/v1/items:batch", status_code=202, response_model=Accepted, **docs.ITEM_BATCH)
    async def batch_items(body: ItemBatch) -> Response:
        service.check_ready()
        if len(body.items) > service.limits.events_max:
            raise ProblemError(TOO_LARGE, f"more than {service.limits.events_max} items in one request")
        there = dict[str, bool]()  # what this very batch puts, and what it deletes
        events: list[object] = []
        for place, action in enumerate(body.items):
            if place % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            if action.op != "patch":
                there[action.item_id] = action.op == "put"
            elif not there.get(action.item_id, service.model.item(action.item_id) is not None):
                events.append(BadObjectError("unknown_item", _UNKNOWN))
                continue
            events.append(_event_of(action).SerializeToString())
        receipt = await service.ingest.take(events, service.partitions(), admin=True)
        rejected = [one.told() for one in receipt.rejected]
        return json_response({"accepted": receipt.accepted, "rejected": rejected, "token": receipt.token}, 202)

    return router


def _plain_router(service: Service, reading: Table, writing: Table) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/items", response_model=ItemTold, **docs.item_get(reading))
    async def get_item(request: Request) -> Response:
        service.check_ready()
        given = read_query(reading, request.scope["query_string"])
        reached = await service.reach(given)
        found = service.model.item(given["item_id"])
        if found is None:
            raise ProblemError(UNKNOWN_ITEM, "the item is not known, or was deleted")
        return json_response(_told(found) | reached)

    @router.delete("/v1/items", status_code=202, response_model=Written, **docs.item_delete(writing))
    async def delete_item(request: Request) -> Response:
        item_id = read_query(writing, request.scope["query_string"])["item_id"]
        return await _write(service, tombstone_of(item_id))

    return router


def _event_of(action: PutItem | PatchItem | DeleteItem) -> Event:
    if isinstance(action, DeleteItem):
        return tombstone_of(action.item_id)
    return (upsert_of if isinstance(action, PutItem) else change_of)(action.item_id, action)


async def _write(service: Service, event: Event) -> Response:
    """Send what is to be known of an item."""
    receipt = await service.ingest.take([event.SerializeToString()], service.partitions(), admin=True)
    return json_response({"item_id": event.item_upsert.item_id, "token": receipt.token}, 202)


def _told(item: ItemView) -> dict[str, object]:
    found = item._asdict()
    return found | {"expires_at": found.pop("expires_at_ms") or None}
