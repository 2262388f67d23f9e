"""What JSON Schema cannot say, for schemathesis: bytes of a text, tokens that there are, events in other forms."""

import json
from typing import Any

import schemathesis
from hypothesis import strategies as st

from saros.core.events import CLICK, IMPRESSION
from saros.wire.encode import event_of, message_of
from tests.trainer.runs import PARTITIONS

_CHARACTERS = st.characters(codec="utf-8", exclude_categories=["Cs"])


def texts(most: int) -> st.SearchStrategy[str]:
    """Texts of up to so many bytes."""
    return st.text(_CHARACTERS, max_size=most).map(lambda text: text.encode()[:most].decode(errors="ignore"))


for size in (64, 128, 256):
    schemathesis.openapi.format(f"utf8-{size}", texts(size))
places = st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, 10**18 - 1)).map(
    lambda place: f"{place[0]}:{place[1]}"
)
schemathesis.openapi.format("saros-token", st.lists(places, min_size=1, max_size=3).map(",".join))

ids = texts(256).filter(bool)
events = st.lists(st.tuples(ids, ids), min_size=1, max_size=5)


def _lines(pairs: list[tuple[str, str]]) -> str:
    return "\n".join(json.dumps({"kind": "click", "user": user, "item": item}) for user, item in pairs)


def _protobuf(pairs: list[tuple[str, str]]) -> bytes:
    shown: list[Any] = [event_of(user, IMPRESSION, [item], 0) for user, item in pairs]
    return message_of([*shown, *(event_of(user, CLICK, [item], 0) for user, item in pairs)])


@schemathesis.hook
def before_call(_: schemathesis.HookContext, case: schemathesis.Case[Any], __: dict[str, Any]) -> None:
    """Let streams end soon that would stay open."""
    if case.path == "/v1/live":
        count = str((case.query or {}).get("count", 1))
        if count.isascii() and count.isdecimal() and int(count) > 0:
            case.query = {**(case.query or {}), "count": 1}


@schemathesis.serializer("application/x-ndjson")
def as_it_is(_: schemathesis.SerializationContext, value: object) -> bytes:
    """Return a body of lines; what is wrong on purpose may be no text."""
    return (value if isinstance(value, str) else json.dumps(value)).encode()


schemathesis.openapi.format("ndjson", events.map(_lines))
schemathesis.openapi.media_type("application/x-protobuf", events.map(_protobuf))
