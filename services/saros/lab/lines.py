"""One line of a file to one entry of a log: an event as JSON, or a rating as separated cells.

Invariants:

- A parser takes a line without its end and returns an entry, or None for a header. A bad line is a ValueError whose
  text is the reason; no other exception leaves a parser, whatever the line holds.
- In a rating file the first line that makes sense settles the separator and the columns for all others.
"""

import csv
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite, nan
from operator import itemgetter
from reprlib import repr as short
from typing import Any

from saros.core.events import IMPRESSION, KINDS, POSITIVE, SLATE_MAX
from saros.errors import InputError
from saros.wire.columns import ID_MAX
from saros.wire.objects import time_ms_of

# User, kind of an event or else the rating, time in milliseconds, items.
Entry = tuple[str, float, int, Sequence[str]]
Parser = Callable[[str], Entry | None]

_SECONDS_DIGITS = 11  # whole seconds, as nearly all rating files have them, need no more and are read the short way
# A line this short holds no id that is too long: a character has at most four bytes.
_SHORT = ID_MAX // 4
_EVENT_KINDS = {name: kind for name, kind in KINDS.items() if kind <= POSITIVE}
_NAMES = {
    "user": {"user", "userid"},
    "item": {"item", "itemid", "movieid"},
    "rating": {"rating", "score", "stars"},
    "time": {"timestamp", "time", "ts"},
}


def parse_event(text: str) -> Entry:
    """Parse one JSON object with user, kind, time, and item or items; other keys are ignored."""
    event = _json_object(text)
    name = _field(event, "kind")
    kind = _EVENT_KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"kind {short(name)} is none of {', '.join(_EVENT_KINDS)}")
    if ("item" in event) == ("items" in event):
        raise ValueError("both item and items" if "item" in event else "neither item nor items")
    items = event["items"] if "items" in event else [event["item"]]
    if not isinstance(items, list):
        raise ValueError("items is not a list")
    most = SLATE_MAX if kind == IMPRESSION else 1
    if not 1 <= len(items) <= most:
        raise ValueError(f"{len(items)} items, not {f'1 to {most}' if most > 1 else '1'}")
    time = _field(event, "time")
    # Compared by type, because a bool is an int to isinstance.
    if type(time) not in (int, float):
        raise ValueError(f"time {short(time)} is not a number")
    return _id("user", _field(event, "user")), kind, time_ms_of(time), [_id("item", item) for item in items]


def _json_object(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except ValueError:  # Python reads no whole number of thousands of digits
        raise ValueError("not JSON: a number is too long") from None
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    if not isinstance(event, dict):
        raise ValueError("not a JSON object")
    return event


def _field(event: dict[str, Any], name: str) -> Any:
    if name not in event:
        raise ValueError(f"no {name}")
    return event[name]


def _id(what: str, value: Any) -> str:
    text = str(value) if type(value) is int else value
    if not isinstance(text, str):
        raise ValueError(f"{what} {short(value)} is neither text nor a whole number")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # JSON can spell half a character
        raise ValueError(f"{what} {short(value)} is not UTF-8") from None
    if not 1 <= size <= ID_MAX:
        raise ValueError(f"{what} has {size} bytes, not 1 to {ID_MAX}")
    return text


class RatingParser:
    """Parses the lines of one rating file. Without a header the columns are user, item, rating and maybe time."""

    def __init__(self, called: str, ending: str) -> None:
        self._called, self._ending = called, ending
        self._parse: Callable[[str], Entry] | None = None

    def __call__(self, text: str) -> Entry | None:
        if self._parse is not None:
            return self._parse(text)
        separator = "::" if self._ending == ".dat" or "::" in text else "\t" if "\t" in text else ","
        cells = _split(text, separator)
        parse = _cells_parser(separator, 3, (0, 1, 2)) if len(cells) == 3 else _cells_parser(separator, 4, (0, 1, 2, 3))
        try:
            entry = parse(text)
        except ValueError:
            # Asked only now, so that a user may be called "user".
            columns = _columns(cells, self._called)
            if columns is None:
                raise
            self._parse = _cells_parser(separator, len(cells), columns)
            return None
        self._parse = parse
        return entry


def _columns(cells: list[str], called: str) -> tuple[int, ...] | None:
    """Return where user, item, rating and maybe time stand, or None when the cells name neither user nor item."""
    # RecBole writes a type after the name: "user_id:token".
    names = [cell.split(":")[0].strip().lower().replace("_", "") for cell in cells]
    found = {
        what: next(place for place, name in enumerate(names) if name in known)
        for what, known in _NAMES.items()
        if not known.isdisjoint(names)
    }
    if "user" not in found and "item" not in found:
        return None
    for what in ("user", "item", "rating"):
        if what not in found:
            message = f"the header of {called} names no {what}, only {', '.join(map(short, cells[:20]))}"
            raise InputError(message, "name the columns user, item, rating and, if there is one, timestamp")
    return tuple(found.values())


def _cells_parser(separator: str, width: int, columns: tuple[int, ...]) -> Callable[[str], Entry]:
    """Return the parser of a line of `width` cells; `columns` are the places of user, item, rating and maybe time."""
    timed = len(columns) == 4
    pick = itemgetter(*columns[:3], columns[-1])
    # A file has few different ratings.
    rating_of = lru_cache(maxsize=1024)(lambda text: _number("rating", text))

    def parse(text: str) -> Entry:
        # Quotes mean something in CSV only, and few lines hold any: no call for the others.
        cells = _split(text, separator) if '"' in text else text.split(separator)
        if len(cells) != width:
            raise ValueError(f"{len(cells)} column{'' if len(cells) == 1 else 's'}, not {width}")
        user, item, rating, time = pick(cells)
        if not user or not item or len(text) > _SHORT:
            _id("user", user)
            _id("item", item)
        if not timed:
            time_ms = 0
        elif len(time) <= _SECONDS_DIGITS and time.isdecimal():
            time_ms = int(time) * 1000
        else:
            time_ms = time_ms_of(_number("time", time))
        return user, rating_of(rating), time_ms, (item,)

    return parse


def _split(text: str, separator: str) -> list[str]:
    if separator != ",":
        return text.split(separator)
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from None


def _number(what: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = nan
    # Python would read 1_0 as ten.
    if not isfinite(number) or "_" in text:
        raise ValueError(f"{what} {short(text)} is not a number")
    return number
