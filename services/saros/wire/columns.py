"""What the decoder makes of messages: a row for each event, with the reason why it is refused or none."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saros.core.ids import joined
from saros.core.jit import F32, I32, I64, U8, U32, U64

UPSERT, GATE = 7, 8  # kinds that the core does not know
MESSAGE_MAX = 1_000_000  # bytes
BUFFER_MAX = 2**31 - 1  # bytes of all messages of one poll: places are 32 bits wide
EVENTS_MAX = 1000  # of a message
ID_MAX, SCENARIO_MAX = 256, 64  # bytes
SCENARIOS_MAX = 32  # names that are told apart

REASONS = (
    "", "bad_protobuf", "bad_utf8", "message_too_large", "too_many_events", "no_kind", "id_missing", "id_too_long",
    "no_items", "too_many_items", "bad_time", "bad_weight", "bad_sign", "misrouted", "bad_item", "bad_gate_change",
    "items_full",
)  # fmt: skip
(
    GOOD, BAD_PROTOBUF, BAD_UTF8, MESSAGE_TOO_LARGE, TOO_MANY_EVENTS, NO_KIND, ID_MISSING, ID_TOO_LONG,
    NO_ITEMS, TOO_MANY_ITEMS, BAD_TIME, BAD_WEIGHT, BAD_SIGN, MISROUTED, BAD_ITEM, BAD_GATE_CHANGE,
    ITEMS_FULL,
) = range(len(REASONS))  # fmt: skip
SCRATCH = 23  # numbers that the decoder notes of the event in work


class Scenarios(NamedTuple):
    """The names of scenarios that are told apart, end to end."""

    text: U8
    start: I64  # [n + 1] where they meet

    @classmethod
    def of(cls, names: Sequence[str]) -> "Scenarios":
        """Return names as the decoder takes them."""
        texts = [name.encode() for name in names]
        if len(texts) > SCENARIOS_MAX or not all(1 <= len(text) <= SCENARIO_MAX for text in texts):
            raise ValueError(f"there may be {SCENARIOS_MAX} names of scenarios, of 1 to {SCENARIO_MAX} bytes")
        return cls(*joined(texts))


class Decoded(NamedTuple):
    """Columns of n events with m items; `used` says how many of each are filled."""

    message: I32  # [n] which one it came in
    first: I32  # [n] where its bytes stand
    end: I32
    reason: U8
    kind: U8
    user: U64
    time_ms: I64
    event_id: U32  # 0: none
    session: U64  # 0: none
    weight: F32
    bot: U8
    rare: U8  # 1: protobuf's own decoder has still to read it, see `saros.wire.rare`
    scenario: U8  # which of the names that are told apart, from 1; 0: none of them
    start: I64  # [n + 1] into the items
    item: U64  # [m]
    item_first: I32  # [m] where its text stands
    item_end: I32
    used: I64  # [2]
    fields: I64  # scratch

    @classmethod
    def empty(cls, events: int, items: int) -> "Decoded":
        """Return room for so many events and items."""
        dtypes = (np.int32, np.int32, np.int32, np.uint8, np.uint8, np.uint64, np.int64, np.uint32, np.uint64)
        return cls._make(
            [
                *(np.zeros(events, dtype) for dtype in dtypes),
                np.zeros(events, np.float32),
                *(np.zeros(events, np.uint8) for _ in range(3)),
                np.zeros(events + 1, np.int64),
                *(np.zeros(items, dtype) for dtype in (np.uint64, np.int32, np.int32)),
                np.zeros(2, np.int64),
                np.zeros(SCRATCH, np.int64),
            ]
        )

    def filled(self) -> "Decoded":
        """Return the filled part (views)."""
        rows, items = int(self.used[0]), int(self.used[1])
        columns = [column[:rows] for column in self[:13]]
        return Decoded._make(
            [*columns, self.start[: rows + 1], *(column[:items] for column in self[14:17]), self.used, self.fields]
        )
