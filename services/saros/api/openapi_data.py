"""What the OpenAPI document says of the routes about items, users and the gate, beyond what the framework sees.

Routes with an id have two forms, see `saros.api.aliases`: here is the one with the id in the query, and the document
has both.
"""

from typing import Any

from saros.api import problems as p
from saros.api.openapi import BODY, example, parameter_of, route
from saros.api.queries import Table

_WRITING = (p.QUEUE_FULL, p.OVERLOADED, p.NOT_READY, p.KAFKA_AWAY)
_WRITTEN = {"item_id": "alien", "token": "2:1042"}
_ITEM = {
    "item_id": "alien", "categories": ["horror"], "hidden": False, "expires_at": None,
    "properties": {"title": "Alien"}, "served": True, "updates": 41, "clicked": 12, "shown": 29,
}  # fmt: skip
_USER = {
    "user_id": "ann", "partition": 2, "blocks": 31, "blocks_in_window": 14, "band": "in_band",
    "last_seen": "2026-01-31T12:00:00.250Z", "held": 0, "learned": 11, "taken_back": 9, "taken_back_in_window": 2,
    "left_out": 1, "shown": 4, "moved": 30,
}  # fmt: skip
_ERASED = {
    "user_id": "ann", "token": "2:1043", "erased": ["its row, which its recommendations come from"],
    "not_erased": [{"what": "its events on Kafka", "until": "the retention of the events' topic"}],
}  # fmt: skip
_SETTINGS = {
    "blocks_min": 1, "blocks_max": 60, "blocks_max_floor": 50, "blocks_max_ceiling": 100, "window_days": 7,
    "mode": "immediate", "own_row": "freeze", "repeat_clicks": "ignore",
}  # fmt: skip
_GATE = {
    "revision": 5, "in_force": True, "settings": _SETTINGS,
    "partitions": [{"partition": 0, "revision": 5, "blocks_min": 1, "blocks_max": 60}],
}  # fmt: skip
_SHARE = {"total": 400, "dropped": 12, "share": 0.03, "exact": True}
_SIMULATED = {
    "blocks_min": 1, "blocks_max": 60, "users": _SHARE, "blocks": {**_SHARE, "total": 5000, "dropped": 900,
    "share": 0.18}, "clicks": {"total": 6500, "dropped": 1170, "share": 0.18, "exact": False},
}  # fmt: skip


def _asked(table: Table, status: str, value: object) -> dict[str, Any]:
    """Return what a query may say, and an example of the answer."""
    return {"parameters": [parameter_of(one, "query") for one in table.values()], **example(status, value)}


def item_get(table: Table) -> dict[str, Any]:
    """Return what is said of reading an item."""
    return route(
        "items", "What is known of an item", "As it is now, in this process; with a token, at least as new as that.",
        p.UNKNOWN_ITEM, p.INVALID, p.OVERLOADED, p.NOT_READY, openapi_extra=_asked(table, "200", _ITEM),
    )  # fmt: skip


def item_put(table: Table) -> dict[str, Any]:
    """Return what is said of replacing an item."""
    return route(
        "items", "Say what is to be known of an item",
        "All of it, in place of what was known; what is left out is as for a new item. One that was deleted is there "
        "again. What was learned of it stays. It is in force when the token is reached.",
        *BODY, *_WRITING, openapi_extra=_asked(table, "202", _WRITTEN),
    )  # fmt: skip


def item_patch(table: Table) -> dict[str, Any]:
    """Return what is said of changing an item."""
    return route(
        "items", "Change some of what is known of an item",
        "Only what is given changes, in the order in which changes come to the log: two who change different fields at "
        "the same time both succeed. An item that is not known here, or was deleted, is 404.",
        p.UNKNOWN_ITEM, *BODY, *_WRITING, openapi_extra=_asked(table, "202", _WRITTEN),
    )  # fmt: skip


def item_delete(table: Table) -> dict[str, Any]:
    """Return what is said of deleting an item."""
    return route(
        "items", "Delete an item",
        "It is in no answer any more, whatever comes of it later, until somebody puts it again. So is one that nobody "
        "has heard of yet. What was learned of it stays, unseen.",
        p.INVALID, *_WRITING, openapi_extra=_asked(table, "202", _WRITTEN),
    )  # fmt: skip


ITEM_BATCH = route(
    "items", "Put, change and delete many items",
    "They count in the order in which they are given. A change of an item that is not known is refused alone; where "
    "nothing is left it is 422.",
    *BODY, *_WRITING, openapi_extra=example("202", {"accepted": 3, "rejected": [], "token": "0:12,2:1042"}),
)  # fmt: skip


def user_get(table: Table) -> dict[str, Any]:
    """Return what is said of looking at a user."""
    return route(
        "users", "What is known of a user", "As the store has it; with a token, at least as new as that.",
        p.UNKNOWN_USER, p.INVALID, p.OVERLOADED, p.NOT_READY, p.STORE_AWAY,
        openapi_extra=_asked(table, "200", _USER),
    )  # fmt: skip


def user_delete(table: Table) -> dict[str, Any]:
    """Return what is said of erasing a user."""
    return route(
        "users", "Erase a user",
        "Its row, state, clicks and ledger go, and what it taught within the gate's window is taken back. The answer "
        "says what that does not reach. Its count starts anew: a bot that goes on begins again below B.",
        p.INVALID, *_WRITING, openapi_extra=_asked(table, "202", _ERASED),
    )  # fmt: skip


def gate_get(table: Table) -> dict[str, Any]:
    """Return what is said of looking at the gate."""
    return route(
        "gate", "How the gate stands", "Its settings, and in each partition their revision and the bounds in force.",
        p.INVALID, p.OVERLOADED, p.NOT_READY, openapi_extra=_asked(table, "200", _GATE),
    )  # fmt: skip


GATE_PATCH = route(
    "gate", "Change the gate",
    "What is not given stays as it is. The settings go to every partition as a whole, under the next revision; "
    "`GET /v1/gate` shows where they are in force. Where Kafka did not take all of them it is 503: send it again.",
    *BODY, p.CONFLICT, *_WRITING,
    openapi_extra=example("202", {"revision": 6, "settings": _SETTINGS, "token": "0:11,1:13,2:1044"}),
)  # fmt: skip


def gate_simulate(table: Table) -> dict[str, Any]:
    """Return what is said of trying bounds."""
    return route(
        "gate", "What other bounds would drop",
        "Of the users whose last block lies in the window: those with fewer blocks than b or more than B, and their "
        "blocks. From the histogram that the gate keeps; users with 64 blocks and more are known to an eighth. It "
        "holds no clicks: each block is taken to have as many as those had that were closed of late.",
        p.INVALID, p.OVERLOADED, p.NOT_READY, openapi_extra=_asked(table, "200", _SIMULATED),
    )  # fmt: skip
