"""Events as the OpenAPI document has them: a schema for each kind, and the bodies that they come in."""

from typing import Any

from saros.api.bodies import LINES, PROTOBUF
from saros.api.limits import text_schema
from saros.core.events import TIME_MAX_MS
from saros.wire.columns import ID_MAX, SCENARIO_MAX
from saros.wire.rare import CATEGORIES_MAX, CATEGORY_MAX
from saros.wire.v1.events_pb2 import Click, Event, EventBatch

CLICK = {"kind": "click", "user": "ann", "item": "brazil", "time": 1700000007}
SLATE = {"kind": "impression", "user": "ann", "items": ["alien", "brazil", "clue"], "time": 1700000000}
ITEM = {"kind": "item", "item": "alien", "categories": ["horror"], "hidden": False}

_ITEMS_MAX = 200
_POSITION_MAX = 2**32 - 1
# Beyond these, readers of JSON do not agree on what a number is.
_WHOLE = {"type": "integer", "minimum": 1 - 2**53, "maximum": 2**53 - 1}
_ID = {"oneOf": [text_schema(ID_MAX), _WHOLE]}
_TEXT = text_schema(ID_MAX, 0)
_TIME = {"type": "number", "minimum": 0, "maximum": TIME_MAX_MS}


def _says(schema: dict[str, Any], words: str) -> dict[str, Any]:
    return {**schema, "description": words}


_COMMON = {
    "user": _says(_ID, "Who."),
    "time": _says(_TIME, "Seconds, or from 1e11 on milliseconds; none: when it is taken."),
    "event_id": _says(_TEXT, "Of two with one id the second is dropped."),
    "session_id": _TEXT,
    "recommendation_id": _says(_TEXT, "The answer that this comes of."),
    "scenario": text_schema(SCENARIO_MAX, 0),
    "known_bot": {"type": "boolean"},
}
_WEIGHT = {"weight": {"type": "number", "exclusiveMinimum": 0, "maximum": 10, "description": "1 unless it is given."}}
_NO_WEIGHT = {"not": {"required": ["weight"]}}


def _kind(kind: str, required: list[str], own: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object", "title": kind, "required": ["kind", *required],
        "properties": {"kind": {"const": kind}, **_COMMON, **own}, **more,
    }  # fmt: skip


_WHICH = {"item": _says(_ID, "Which item.")}
EVENT_SCHEMA: dict[str, Any] = {
    "title": "Event",
    "oneOf": [
        _kind("impression", ["user", "items"], {
            "items": {"type": "array", "items": _ID, "minItems": 1, "maxItems": _ITEMS_MAX,
                      "description": "What was shown together, in order."},
        }, **_NO_WEIGHT),
        _kind("click", ["user", "item"], {
            **_WHICH, "position": {"type": "integer", "minimum": 0, "maximum": _POSITION_MAX,
                                   "description": "Its place, from 1."},
        }, **_NO_WEIGHT),
        _kind("negative", ["user", "item"], {**_WHICH, **_WEIGHT}),
        _kind("positive", ["user", "item"], {**_WHICH, **_WEIGHT}),
        _kind("item", ["item"], {
            **_WHICH,
            "categories": {"type": "array", "items": text_schema(CATEGORY_MAX), "maxItems": CATEGORIES_MAX},
            "hidden": {"type": "boolean", "description": "Never recommended."},
            "deleted": {"type": "boolean", "description": "It is gone."},
            "expires_at": _says(_TIME, "Not recommended from this time on; 0: it stays."),
            "properties": {"type": "object", "additionalProperties": {"type": "string"},
                           "description": "Names and values have 4096 bytes at most."},
        }, **_NO_WEIGHT),
        _kind("erase", ["user"], {}, **_NO_WEIGHT),
    ],
}  # fmt: skip

EVENTS_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"oneOf": [EVENT_SCHEMA, {"type": "array", "items": EVENT_SCHEMA}]},
            "examples": {"one": {"value": CLICK}, "several": {"value": [SLATE, CLICK, ITEM]}},
        },
        LINES: {
            "schema": {"type": "string", "format": "ndjson", "description": "An event on each line."},
            "example": '{"kind":"click","user":"ann","item":"brazil"}\n{"kind":"click","user":"bob","item":"alien"}\n',
        },
        PROTOBUF: {
            "schema": {
                "type": "string",
                "format": "binary",
                # No `example`: bytes are none of what JSON can hold, and tools that read it as a text stumble.
                "description": "An EventBatch or an Event of proto/saros/wire/v1/events.proto; such as, in hex, "
                + EventBatch(events=[Event(user_id="ann", click=Click(item_id="brazil"))]).SerializeToString().hex(),
            },
        },
    },
}
