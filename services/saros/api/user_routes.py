"""Users as operators see them: what is known of one, and its erasure.

An erasure is an event like any other: it is in force when its partition comes to it. The answer says what goes then,
and what it does not reach.
"""

import logging

from fastapi import APIRouter, Request, Response

from saros.api import openapi_data as docs
from saros.api.data_schemas import Erased, UserTold
from saros.api.plan import TokenError
from saros.api.problems import STORE_AWAY, UNKNOWN_USER, ProblemError, bad_token
from saros.api.queries import read_query, tables_of
from saros.api.replies import TIMES, json_response
from saros.api.service import Service
from saros.errors import SarosError
from saros.telemetry import log
from saros.wire.v1.events_pb2 import Event

ERASED = (
    "its row, which its recommendations come from",
    "its state: pending items, sessions, counts, the place in the gate's band",
    "what it has clicked",
    "its ledger; the blocks in it that were learned are taken back from all items",
)
NOT_ERASED = (
    ("what it taught before the gate's window: it stays in the rows and counts of items, with nobody's name", "ever"),
    ("its events on Kafka, with the user's id, and the event that erases it", "the retention of the events' topic"),
    (
        "events of it that could not be understood, in the topic of dead letters, with the user's id",
        "the retention of that topic, 30 days unless it was set otherwise",
    ),
    ("records of the model's log that held it, under a keyed hash of its id", "the log is trimmed"),
    ("snapshots, and backups of the store, from before", "they are deleted"),
)


def users_router(service: Service) -> APIRouter:
    """Return the routes about users."""
    router, tables = APIRouter(), tables_of(service.limits)

    @router.get("/v1/users", response_model=UserTold, **docs.user_get(tables.user))
    async def get_user(request: Request) -> Response:
        service.check_ready()
        given = read_query(tables.user, request.scope["query_string"])
        user_id, token = given["user_id"], given.get("min_token", "")
        try:
            found, reached = await service.model.person(user_id, token, service.wait_ms(given))
        except SarosError as error:
            log("user could not be read", logging.WARNING, error=str(error))
            raise ProblemError(STORE_AWAY, "the store does not answer, or not as it should") from None
        except TokenError as error:
            raise bad_token(error, "query") from error
        if found is None:
            raise ProblemError(UNKNOWN_USER, "nothing is known of this user, or its events are still on their way")
        told = {
            "user_id": user_id,
            "partition": found.partition,
            "blocks": found.blocks,
            "blocks_in_window": found.counted,
            "band": found.band,
            "last_seen": TIMES.text(max(0, found.last_seen_ms)),
            "held": found.waiting,
            "learned": found.added,
            "taken_back": found.taken_back,
            "taken_back_in_window": found.recently_taken,
            "left_out": found.left_out,
            "shown": found.shown,
            "moved": found.moved,
        }
        return json_response(told | ({"token_reached": reached} if reached is not None else {}))

    @router.delete("/v1/users", status_code=202, response_model=Erased, **docs.user_delete(tables.user_write))
    async def delete_user(request: Request) -> Response:
        user_id = read_query(tables.user_write, request.scope["query_string"])["user_id"]
        event = Event(user_id=user_id)
        event.user_erase.SetInParent()
        receipt = await service.ingest.take([event.SerializeToString()], service.partitions(), admin=True)
        left = [{"what": what, "until": until} for what, until in NOT_ERASED]
        return json_response({"user_id": user_id, "token": receipt.token, "erased": ERASED, "not_erased": left}, 202)

    return router
