"""What the OpenAPI document says of the stream for those who watch."""

from typing import Any

from saros.api import problems as p
from saros.api.openapi import example, parameter_of, route
from saros.api.queries import Table
from saros.api.replies import to_json

POINT = {
    "time": 1769860800.25, "events_per_s": 812.4, "lag_s": 0.0, "p50": 31.2, "p99": 80.4, "accuracy": 0.71,
    "baseline": 0.65, "scenarios": {"model": 0.14, "random": 0.09}, "taken_back": 12,
}  # fmt: skip
PULSE = {
    "time": 1769860801.25, "model": "saros", "version": "0.1.0", "ready": True, "why_not_ready": [], "stale": False,
    "uptime_s": 312.5, "embedded": False,
    "events": {
        "per_s": 812.4, "total": 123456,
        "kinds": {
            "impression": 61000, "click": 62000, "negative": 20, "positive": 11, "erase": 1, "tick": 0, "bot": 300,
            "duplicate": 4, "item_upsert": 120,
        },
    },
    "lag": {"messages": 0, "seconds": 0.0},
    "servable_ms": {"p50": 31.2, "p99": 80.4},
    "learning": {"blocks": 812, "accuracy": 0.71, "baseline": 0.65, "loss": 0.55, "baseline_loss": 0.58},
    "scenarios": [{
        "scenario": "model", "shown": 1000, "clicked": 120, "rate": 0.12, "recent_shown": 100, "recent_clicked": 14,
        "recent_rate": 0.14,
    }],
    "gate": {
        "mode": "immediate", "blocks_min": 1, "blocks_max": 50, "window_days": 7, "revision": 0,
        "histogram": [{"blocks": 1, "to": 1, "users": 40}, {"blocks": 64, "to": 71, "users": 3}],
        "bands": {"below": 0, "in_band": 40, "above": 3},
        "decisions": {
            "learn": 812, "wait": 0, "hold": 0, "over": 31, "ledger_full": 0, "repeat": 5, "items_full": 0,
        },
        "taken_back": 12, "released": 0,
    },
    "dead": {"bad_protobuf": 1}, "items": 1000, "users_in_memory": 320, "top": [{"item_id": "alien", "rate": 0.31}],
}  # fmt: skip
# One event. As in OpenAPI 3.2, `itemSchema` is of each, and `schema` of all of them.
_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["history", "pulse"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
_MEDIA = "text/event-stream"
_EXAMPLE = "".join(
    f"event: {name}\ndata: {to_json(data).decode()}\n\n"
    for name, data in (("history", {"step_s": 1.0, "points": [POINT]}), ("pulse", PULSE))
)


def live_get(table: Table) -> dict[str, Any]:
    """Return what is said of the stream."""
    told = example("200", _EXAMPLE, _MEDIA)
    told["responses"]["200"]["content"][_MEDIA] |= {"schema": {"type": "array"}, "itemSchema": _EVENT}
    return route(
        "service", "Watch the model live",
        "Server-sent events. One `history` comes first: a point for each second, of the last 15 minutes at most. Then "
        "a `pulse` each second, until you hang up, the server ends, or `count` have come. The data of each is one line "
        "of JSON. All numbers are of what this process has folded from the model's log since it started, whoever sent "
        "the events; `null` is what is not known yet. It answers before there is a model, with `ready` false.",
        p.INVALID, p.OVERLOADED,
        openapi_extra={
            "parameters": [parameter_of(one, "query") for one in table.values()],
            **told,
        },
    )  # fmt: skip
