"""Slow, obvious twin of saros.wire.decode: protobuf's own decoder reads the bytes, plain Python applies the rules."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from saros.wire.v1.events_pb2 import Event
from tests.naive.ids import siphash

MESSAGE_MAX, EVENTS_MAX, SLATE_MAX = 1_000_000, 1000, 200
TIME_MAX_MS = 253_402_300_799_999
BROKEN = "broken"  # stands for bad_protobuf and bad_utf8: protobuf does not tell which comes first


@dataclass(frozen=True)
class Decoded:
    """What becomes of one event."""

    reason: str
    kind: str = ""
    user: int = 0
    time_ms: int = 0
    event_id: int = 0
    session: int = 0
    weight: float = 0.0
    bot: bool = False
    items: tuple[str, ...] = ()
    scenario: int = 0


def _raw_batch() -> Any:
    """EventBatch with its events as bytes: a bad event is refused alone."""
    file = descriptor_pb2.FileDescriptorProto(name="tests/raw.proto", package="tests", syntax="proto3")
    field = file.message_type.add(name="RawBatch").field.add(name="events", number=1)
    field.type, field.label = field.TYPE_BYTES, field.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.RawBatch"))


RawBatch = _raw_batch()

# Messages within messages that are read field by field, by number: a group anywhere in them is refused.
_SHOWN: dict[int, Any] = {}
_INSIDE: dict[int, Any] = {10: {1: _SHOWN}, 11: {}, 12: {}, 14: {}, 16: {}}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def has_group(data: bytes, inside: dict[int, Any]) -> bool:
    """True if bytes that protobuf took hold a group, at the top or in a message that is read field by field.

    Or a field number 0, which protobuf refuses too, but not in messages that have no fields.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire in (3, 4) or tag >> 3 == 0:
            return True
        if wire == 0:
            _, at = _varint(data, at)
        elif wire == 2:
            length, at = _varint(data, at)
            if tag >> 3 in inside and has_group(data[at : at + length], inside[tag >> 3]):
                return True
            at += length
        else:
            at += 8 if wire == 1 else 4
    return False


def _is_batch(data: bytes) -> bool:
    """A batch begins with its field 1."""
    if not data or all(byte >= 128 for byte in data[:5]):
        return False
    value, _ = _varint(data[:5], 0)
    return value == (1 << 3 | 2)


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key."""
    m, h, word = 0x5BD1E995, 0x9747B28C ^ len(data), 0xFFFFFFFF
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & word
        h = (h * m & word) ^ ((k ^ k >> 24) * m & word)
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & word
    h = (h ^ h >> 13) * m & word
    return h ^ h >> 15


class Wire:
    """Decodes messages one by one."""

    def __init__(self, key: tuple[int, int], partitions: int = 0, scenarios: Sequence[str] = ()) -> None:
        self.key, self.partitions, self.scenarios = key, partitions, ["", *scenarios]

    def message(self, data: bytes, partition: int = 0) -> list[Decoded]:
        """What becomes of each event of a message."""
        if len(data) > MESSAGE_MAX:
            return [Decoded("message_too_large")]
        if not _is_batch(data):
            return [self.event(data, partition)]
        try:
            events = list(RawBatch.FromString(data).events)
        except DecodeError:
            return [Decoded(BROKEN)]
        if has_group(data, {}):
            return [Decoded(BROKEN)]
        if len(events) > EVENTS_MAX:
            return [Decoded("too_many_events")]
        return [self.event(event, partition) for event in events]

    def hash(self, text: str) -> int:
        """The keyed hash of a text, 0 for none."""
        return siphash(*self.key, text.encode()) if text else 0

    def event(self, data: bytes, partition: int) -> Decoded:
        """What becomes of an event."""
        try:
            event = Event.FromString(data)
        except DecodeError:
            return Decoded(BROKEN)
        if has_group(data, _INSIDE):
            return Decoded(BROKEN)
        reason = self._fault(event, partition)
        if reason:
            return Decoded(reason)
        kind, weight = event.WhichOneof("kind"), 1.0
        if kind == "feedback":
            kind, weight = {1: "negative", 2: "positive"}[event.feedback.sign], event.feedback.weight or 1.0
        event_id = max(1, self.hash(event.event_id) & 0xFFFFFFFF) if event.event_id else 0
        return Decoded(
            "", kind, self.hash(event.user_id), event.event_time_ms, event_id, self.hash(event.session_id), weight,
            event.known_bot, tuple(_items(event)),
            self.scenarios.index(event.scenario) if event.scenario in self.scenarios else 0,
        )  # fmt: skip

    def _fault(self, event: Event, partition: int) -> str:
        """Why an event is refused; nothing if it is good."""
        kind = event.WhichOneof("kind")
        if kind is None:
            return "no_kind"
        ids = (event.event_id, event.user_id, event.session_id, event.recommendation_id)
        if max(len(text.encode()) for text in ids) > 256 or len(event.scenario.encode()) > 64:
            return "id_too_long"
        personal = kind in ("impression", "click", "feedback", "user_erase")
        if personal and not event.user_id:
            return "id_missing"
        single = kind in ("click", "feedback")
        sizes = [len(item.encode()) for item in _items(event)]
        if single and not 1 <= sizes[0] <= 256:
            return "id_too_long" if sizes[0] else "id_missing"
        if not 0 <= event.event_time_ms <= TIME_MAX_MS:
            return "bad_time"
        if kind == "impression":
            bad = [size for size in sizes if not 1 <= size <= 256]
            if bad or len(sizes) > SLATE_MAX:
                return "bad_items"
            if not sizes:
                return "no_items"
        if kind == "feedback":
            if event.feedback.sign not in (1, 2):
                return "bad_sign"
            weight = event.feedback.weight or 1.0
            if not (math.isfinite(weight) and 0 < weight <= 10):
                return "bad_weight"
        if kind in ("item_upsert", "gate_change"):
            return self._rare_fault(event, partition)
        if (
            personal
            and self.partitions
            and (murmur2(event.user_id.encode()) & 0x7FFFFFFF) % self.partitions != partition
        ):
            return "misrouted"
        return ""

    def _rare_fault(self, event: Event, partition: int) -> str:
        """What is wrong with an item upsert or a gate change."""
        item, gate = event.item_upsert, event.gate_change
        if event.WhichOneof("kind") == "gate_change":
            whole = (
                gate.revision > 0 and 1 <= gate.window_days <= 8 and gate.mode in (0, 2) and 0 <= gate.percentile < 100
            )
            band = gate.blocks_min <= (gate.blocks_max or gate.blocks_max_floor)
            limits = 1 <= gate.blocks_max_floor <= gate.blocks_max_ceiling and gate.wait_ms <= 8 * 86_400_000
            return "" if whole and band and limits and 4096 <= gate.ledger_max_bytes <= 1 << 24 else "bad_gate_change"
        sizes = [len(category.encode()) for category in item.categories]
        text = sum(len(name.encode()) + len(value.encode()) for name, value in item.properties.items())
        if not item.item_id or len(item.item_id.encode()) > 256 or len(item.categories) > 32 or text > 4096:
            return "bad_item"
        if not all(1 <= size <= 64 for size in sizes) or not 0 <= item.expires_at_ms <= TIME_MAX_MS:
            return "bad_item"
        if item.changes > 15 or (item.changes and item.deleted):
            return "bad_item"
        home = (murmur2(item.item_id.encode()) & 0x7FFFFFFF) % (self.partitions or 1)
        return "misrouted" if self.partitions and home != partition else ""


def _items(event: Event) -> list[str]:
    """The items an event names, upserts aside."""
    kind = event.WhichOneof("kind")
    if kind == "impression":
        return [shown.item_id for shown in event.impression.items]
    if kind in ("click", "feedback"):
        return [getattr(event, kind).item_id]
    return []
