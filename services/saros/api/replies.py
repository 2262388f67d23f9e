"""Answers as JSON bytes."""

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count

import orjson
from starlette.responses import Response

from saros.api.plan import Answer
from saros.core.events import TIME_MAX_MS

# A process's own beginning and a number: unique like a random id, and made in no time.
_PREFIX, _NUMBERS = secrets.token_hex(8), count(1)


def new_id() -> str:
    """Return the id of another answer."""
    return f"{_PREFIX}-{next(_NUMBERS):x}"


def items_of(items: Iterable[tuple[str, float]]) -> list[dict[str, object]]:
    """Return items with their scores and ranks."""
    return [{"item_id": item, "score": score, "rank": rank} for rank, (item, score) in enumerate(items, start=1)]


class Times:
    """Times as text; the last one is kept, as many answers in a row have the same."""

    def __init__(self) -> None:
        self._ms, self._text = 0, ""

    def text(self, ms: int) -> str | None:
        """Return a time as RFC 3339 has it; 0 is none. A topic may hold anything: what is later is the last of 9999."""
        if ms == 0:
            return None
        if ms != self._ms:
            shown = min(ms, TIME_MAX_MS)
            whole = datetime.fromtimestamp(shown // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._ms, self._text = ms, f"{whole}.{shown % 1000:03}Z"
        return self._text


TIMES = Times()


def answer_object(answer: Answer, scenario: str, took_s: float, own_id: str = "") -> dict[str, object]:
    """Return one answer as it is told, under an id of its own unless it has one."""
    listed = answer.listed
    found: dict[str, object] = {
        "recommendation_id": own_id or new_id(),
        "items": orjson.Fragment(listed) if isinstance(listed, bytes) else items_of(listed),
        "source": answer.source,
        "user_state": answer.user_state,
        "model_time": TIMES.text(answer.model_time_ms),
        "stale": answer.stale,
        "took_ms": round(1000 * took_s, 3),
    }
    if answer.notes is not None:
        found["items"] = [{**item, **note} for item, note in zip(items_of(answer.items), answer.notes, strict=True)]
    if answer.token_reached is not None:
        found["token_reached"] = answer.token_reached
    if scenario:
        found["scenario"] = scenario
    return found


def to_json(value: object) -> bytes:
    """Return a value as JSON; numbers of numpy are numbers."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def json_response(value: object, status: int = 200) -> Response:
    """Return a value as the framework sends it."""
    return Response(to_json(value), status, {"cache-control": "no-store"}, "application/json")
