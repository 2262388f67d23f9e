"""Events as JSON objects, the same names as in files of events: to protobuf, or refused with a reason.

    {"kind": "impression", "user": "ann", "items": ["alien", "brazil"], "time": 1700000000}
    {"kind": "click", "user": "ann", "item": "brazil"}
    {"kind": "negative", "user": "ann", "item": "alien", "weight": 2}
    {"kind": "item", "item": "alien", "categories": ["horror"], "hidden": false, "expires_at": 0, "properties": {}}
    {"kind": "erase", "user": "ann"}

Here it is only asked whether fields are of the right type, and fit where protobuf puts them. All limits are the
decoder's to check, so that there is one place which knows what a trainer takes.
"""

from collections.abc import Mapping
from reprlib import repr as short
from typing import Any

from saros.core.events import TIME_MAX_MS
from saros.wire.v1.events_pb2 import Event, Feedback

# Times from here on are milliseconds. No log is in doubt: as seconds this is the year 5138, as milliseconds it is 1973.
# Microseconds of our days lie beyond the year 9999 and are refused.
_MS_FROM = 1e11
_POSITION_MAX = 2**32 - 1
_SIGNS = {"negative": Feedback.SIGN_NEGATIVE, "positive": Feedback.SIGN_POSITIVE}
_TEXTS = ("event_id", "session_id", "recommendation_id", "scenario")
OBJECT_KINDS = ("impression", "click", "negative", "positive", "item", "erase")
# Reasons that only JSON can give, beside the decoder's.
NOT_JSON, BAD_FIELD = "not_json", "bad_field"


class BadObjectError(Exception):
    """An object that is no event: the reason in one word, and in a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def time_ms_of(time: float) -> int:
    """Return milliseconds since 1970 of a time in seconds or milliseconds; ValueError if it is out of all years."""
    # Asked this way round, NaN is refused too.
    if not 0 <= time <= TIME_MAX_MS:
        raise ValueError(f"time {short(time)} is not within the years 1970 to 9999")
    return round(time * 1000) if time < _MS_FROM else round(time)


def event_of_object(value: object) -> Event:
    """Return an event from parsed JSON; raises BadObjectError."""
    if not isinstance(value, dict):
        raise BadObjectError(NOT_JSON, "not a JSON object")
    kind = value.get("kind")
    if kind not in OBJECT_KINDS:
        raise BadObjectError("no_kind", f"kind {short(kind)} is none of {', '.join(OBJECT_KINDS)}")
    if "weight" in value and kind not in _SIGNS:
        raise BadObjectError("bad_weight", "only negative and positive have a weight")
    event = Event()
    if value.get("user") is not None:
        event.user_id = _id(value, "user")
    for name in _TEXTS:
        if value.get(name) is not None:
            setattr(event, name, _text(name, value[name]))
    if value.get("time") is not None:
        event.event_time_ms = _time(value, "time")
    if value.get("known_bot") is not None:
        event.known_bot = _flag(value, "known_bot")
    _fill(event, kind, value)
    return event


def _fill(event: Event, kind: str, value: Mapping[str, Any]) -> None:
    """Put in what the kind has."""
    if kind == "impression":
        items = value.get("items")
        if not isinstance(items, list):
            raise BadObjectError("no_items", "an impression needs a list of items")
        event.impression.SetInParent()
        for place, item in enumerate(items, start=1):
            event.impression.items.add(item_id=_id_text("item", item), position=place)
    elif kind == "click":
        event.click.item_id = _id(value, "item")
        if value.get("position") is not None:
            event.click.position = _position(value["position"])
    elif kind in _SIGNS:
        event.feedback.item_id, event.feedback.sign = _id(value, "item"), _SIGNS[kind]
        if value.get("weight") is not None:
            event.feedback.weight = _number(value, "weight", "bad_weight")
    elif kind == "erase":
        event.user_erase.SetInParent()
    else:
        _fill_item(event, value)


def _fill_item(event: Event, value: Mapping[str, Any]) -> None:
    item = event.item_upsert
    item.item_id = _id(value, "item")
    categories, properties = value.get("categories") or [], value.get("properties") or {}
    if not isinstance(categories, list) or not isinstance(properties, dict):
        raise BadObjectError(BAD_FIELD, "categories is a list of texts, properties an object of texts")
    item.categories.extend(_text("category", category) for category in categories)
    for name, text in properties.items():
        item.properties[_text("property", name)] = _text("property", text)
    for flag in ("hidden", "deleted"):
        if value.get(flag) is not None:
            setattr(item, flag, _flag(value, flag))
    if value.get("expires_at") is not None:
        item.expires_at_ms = _time(value, "expires_at")


def _id(value: Mapping[str, Any], name: str) -> str:
    if value.get(name) is None:
        raise BadObjectError("id_missing", f"no {name}")
    return _id_text(name, value[name])


def _id_text(what: str, value: object) -> str:
    """Return an id; files often have whole numbers for one."""
    whole = _whole(value)
    return _text(what, value if whole is None else str(whole))


def _whole(value: object) -> int | None:
    """Return a whole number, None of all else. 5.0 is one, too: JSON has but one kind of numbers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    # Compared by type, because a bool is an int to isinstance.
    return value if type(value) is int else None


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadObjectError(BAD_FIELD, f"{what} {short(value)} is no text")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can spell half a character
        raise BadObjectError("bad_utf8", f"{what} {short(value)!a} is not UTF-8") from None
    return value


def _flag(value: Mapping[str, Any], name: str) -> bool:
    flag = value[name]
    if not isinstance(flag, bool):
        raise BadObjectError(BAD_FIELD, f"{name} {short(flag)} is neither true nor false")
    return flag


def _number(value: Mapping[str, Any], name: str, reason: str) -> float:
    number = value[name]
    if type(number) not in (int, float):
        raise BadObjectError(reason, f"{name} {short(number)} is not a number")
    try:
        return float(number)
    except OverflowError:
        raise BadObjectError(reason, f"{name} {short(number)} is too large") from None


def _time(value: Mapping[str, Any], name: str) -> int:
    try:
        return time_ms_of(_number(value, name, "bad_time"))
    except ValueError as error:
        raise BadObjectError("bad_time", str(error)) from None


def _position(value: object) -> int:
    whole = _whole(value)
    if whole is None or not 0 <= whole <= _POSITION_MAX:
        raise BadObjectError(BAD_FIELD, f"position {short(value)} is no whole number from 0 to {_POSITION_MAX}")
    return whole
