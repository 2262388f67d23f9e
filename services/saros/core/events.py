"""Events as columns: what the decoder and the file readers make, and what `feed` eats.

One row per event; the items of event e are `items[start[e]:start[e + 1]]`. Users are slots of the partition's user
table, items are 64-bit keys. `check` is the only gate for bad input: the kernels behind it trust the columns.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from saros.core.jit import F32, I32, I64, U8, U32, U64, kernel

IMPRESSION, CLICK, NEGATIVE, POSITIVE, ERASE, TICK = 1, 2, 3, 4, 5, 6
KINDS = {"impression": IMPRESSION, "click": CLICK, "negative": NEGATIVE, "positive": POSITIVE, "erase": ERASE,
         "tick": TICK}  # fmt: skip

DAY_MS = 86_400_000
TIME_MAX_MS = 253_402_300_799_999  # the last millisecond of the year 9999
WEIGHT_MAX = 10.0
WEIGHT_ONE = 4096  # weights are kept as 16-bit fixed point, in steps of 1/4096
SLATE_MAX = 200  # items in one impression
BATCH_MAX = 1 << 22  # events in one call


class Events(NamedTuple):
    """Columns of n events with m items in all."""

    user: I32  # [n] slot in the user table; -1 for a tick
    kind: U8  # [n]
    time_ms: I64  # [n] event time; 0 means the log's time
    log_ms: I64  # [n] the log's own time of the message
    event_id: U32  # [n] hash of the event id; 0 means none, and no dedupe
    session: U64  # [n] hash of the session id; 0 means none
    weight: F32  # [n] of feedback, above 0 and up to 10
    bot: U8  # [n] 1: the caller knows that this is a bot
    start: I64  # [n + 1]
    items: U64  # [m]

    @classmethod
    def of(
        cls,
        user: ArrayLike,
        kind: ArrayLike,
        items: ArrayLike,
        time_ms: ArrayLike,
        *,
        start: ArrayLike | None = None,
        log_ms: ArrayLike | None = None,
        event_id: ArrayLike | None = None,
        session: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        bot: ArrayLike | None = None,
    ) -> "Events":
        """Fill in the columns a caller has no use for; without `start` every event has one item."""
        n = len(np.asarray(user))
        return cls(
            user=_column(user, np.int32),
            kind=_column(kind, np.uint8),
            time_ms=_column(time_ms, np.int64),
            log_ms=_column(time_ms if log_ms is None else log_ms, np.int64),
            event_id=_column(np.zeros(n) if event_id is None else event_id, np.uint32),
            session=_column(np.zeros(n) if session is None else session, np.uint64),
            weight=_column(np.ones(n) if weight is None else weight, np.float32),
            bot=_column(np.zeros(n) if bot is None else bot, np.uint8),
            start=_column(np.arange(n + 1) if start is None else start, np.int64),
            items=_column(items, np.uint64),
        )

    def cut(self, first: int, end: int) -> "Events":
        """Return the events [first, end) as columns of their own (views)."""
        low, high = self.start[first], self.start[end]
        columns = [column[first:end] for column in self[:8]]
        return Events._make([*columns, self.start[first : end + 1] - low, self.items[low:high]])


def spans(first: I64, sizes: I32 | I64) -> I64:
    """Return the places first[k], first[k] + 1, … of each span k, sizes[k] of them."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return np.repeat(first - ends + sizes, sizes) + np.arange(ends[-1] if len(ends) else 0)


def _column(values: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    """Return a column that kernels take as it is; a read-only one would be compiled for anew."""
    return np.require(np.asarray(values), dtype, ["C", "W"])


_DTYPES = (np.int32, np.uint8, np.int64, np.int64, np.uint32, np.uint64, np.float32, np.uint8, np.int64, np.uint64)

_FAULTS = {
    1: "kind {kind} is unknown",
    2: "user slot {user} belongs to nobody",
    3: "time {time} or the log's time {log} is negative or beyond the year 9999",
    4: "item offsets fall or leave the item column",
    5: "a click or feedback names exactly one item, an impression 1 to {slate}, an erase or tick none",
    6: "weight {weight} is not above 0 and at most 10",
}


@kernel
def _fault(events: Events, known: U8) -> tuple[int, int]:
    """Return (row, fault) of the first bad row, or (-1, 0)."""
    for e in range(events.user.shape[0]):
        kind, first, end = events.kind[e], events.start[e], events.start[e + 1]
        if kind < IMPRESSION or kind > TICK:
            return e, 1
        if kind != TICK and (events.user[e] < 0 or events.user[e] >= known.shape[0] or known[events.user[e]] == 0):
            return e, 2
        if not (0 <= events.time_ms[e] <= TIME_MAX_MS and 0 <= events.log_ms[e] <= TIME_MAX_MS):
            return e, 3
        if first > end or end > events.items.shape[0]:
            return e, 4
        count = end - first
        if kind == IMPRESSION:
            if count < 1 or count > SLATE_MAX:
                return e, 5
        elif count != (1 if kind <= POSITIVE else 0):
            return e, 5
        if not (0.0 < events.weight[e] <= WEIGHT_MAX):
            return e, 6
    return -1, 0


def check(events: Events, known: U8) -> None:
    """Raise ValueError with row and reason unless `feed` can take these columns; known[slot] is 0 where nobody is."""
    n = len(events.user)
    if n > BATCH_MAX:
        raise ValueError(f"{n} events are too many for one batch: cut them into batches of at most {BATCH_MAX}")
    columns: tuple[NDArray[Any], ...] = events
    for name, column, dtype in zip(Events._fields, columns, _DTYPES, strict=True):
        if column.dtype != dtype or column.ndim != 1 or not column.flags.carray:
            raise ValueError(f"events.{name} must be a contiguous, writeable column of {np.dtype(dtype).name}")
        wanted = {"start": n + 1, "items": len(events.items)}.get(name, n)
        if len(column) != wanted:
            raise ValueError(f"events.{name} has {len(column)} rows, not {wanted}")
    if events.start[0] != 0 or events.start[-1] != len(events.items):
        raise ValueError("events.start must begin with 0 and end with the number of items")
    row, fault = _fault(events, known)
    if fault:
        reason = _FAULTS[fault].format(
            kind=events.kind[row],
            user=events.user[row],
            time=events.time_ms[row],
            log=events.log_ms[row],
            weight=events.weight[row],
            slate=SLATE_MAX,
        )
        raise ValueError(f"event {row}: {reason}")
