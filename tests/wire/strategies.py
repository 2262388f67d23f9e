"""Events at random, good ones and bad ones, and ways to spoil their bytes."""

from hypothesis import strategies as st

from saros.wire.v1.events_pb2 import Event, GateChange, ItemUpsert, ShownItem

_IDS = st.sampled_from(["ann", "bob/1", "é", "a" * 256, "日本語", "x\x00y"])
_ANY_ID = st.one_of(*[_IDS] * 6, st.sampled_from(["", "a" * 257, "é" * 129]), st.text(max_size=9))
_SCENARIOS = st.sampled_from(["", "home", "homf", "homg", "ho", "é", "a" * 63, "a" * 64, "b" * 64, "a" * 65])
_TIMES = st.sampled_from([0, 1, 1_700_000_000_000, 253_402_300_799_999, 253_402_300_800_000, -1, 2**63 - 1, -(2**63)])
_WEIGHTS = st.sampled_from([0.0, 1.0, 2.5, 10.0, 10.5, -1.0, float("nan"), float("inf"), 1e-30])


@st.composite
def events(draw: st.DrawFn) -> Event:
    """An event; most are good."""
    event = Event(user_id=draw(_ANY_ID), known_bot=draw(st.booleans()))
    if draw(st.booleans()):
        event.event_id, event.session_id = draw(_ANY_ID), draw(_ANY_ID)
        event.recommendation_id, event.scenario = draw(_ANY_ID), draw(_SCENARIOS)
    event.event_time_ms = draw(_TIMES)
    kind = draw(st.sampled_from(["impression", "click", "feedback", "user_erase", "tick", "none", "slate", "rare"]))
    if kind == "impression":
        for _ in range(draw(st.integers(0, 4))):
            event.impression.items.add(item_id=draw(_ANY_ID), position=draw(st.sampled_from([0, 1, 2**32 - 1])))
        event.impression.SetInParent()
    elif kind == "slate":
        size = draw(st.sampled_from([199, 200, 201]))
        event.impression.items.extend([ShownItem(item_id=f"i{k}") for k in range(size)])
    elif kind == "click":
        event.click.item_id, event.click.position = draw(_ANY_ID), draw(st.integers(0, 3))
        event.click.SetInParent()
    elif kind == "feedback":
        event.feedback.item_id, event.feedback.weight = draw(_ANY_ID), draw(_WEIGHTS)
        event.feedback.sign = draw(st.sampled_from([0, 1, 2, 2, 3]))  # type: ignore[assignment]
        event.feedback.SetInParent()
    elif kind == "rare":
        event.MergeFrom(draw(items() | gate_changes()))
    elif kind != "none":
        getattr(event, kind).SetInParent()
    return event


def items() -> st.SearchStrategy[Event]:
    """An item upsert, good or bad."""
    categories = st.lists(st.sampled_from(["film", "a" * 64, "a" * 65, "é" * 33, ""]), max_size=3)
    many = st.just([f"c{k}" for k in range(33)])
    properties = st.dictionaries(st.text(max_size=3), st.sampled_from(["", "x", "y" * 4090]), max_size=2)
    upserts = st.builds(
        ItemUpsert, item_id=_ANY_ID, categories=categories | many, hidden=st.booleans(), expires_at_ms=_TIMES,
        properties=properties, deleted=st.booleans(), changes=st.sampled_from([0, 0, 0, 1, 6, 15, 16, 2**32 - 1]),
    )  # fmt: skip
    return upserts.map(lambda item: Event(item_upsert=item))


def gate_changes() -> st.SearchStrategy[Event]:
    """A gate change, good or bad."""
    changes = st.builds(
        GateChange,
        revision=st.sampled_from([1, 1, 0, 2**64 - 1]),
        blocks_min=st.sampled_from([0, 1, 3, 51]),
        blocks_max=st.sampled_from([0, 50, 2]),
        percentile=st.sampled_from([97.0, 0.0, 100.0, -1.0, float("nan")]),
        blocks_max_floor=st.sampled_from([50, 0]),
        blocks_max_ceiling=st.sampled_from([100, 49]),
        window_days=st.sampled_from([7, 1, 8, 0, 9]),
        mode=st.sampled_from([0, 1, 2, 3]),
        wait_ms=st.sampled_from([0, 7_200_000, 691_200_000, 691_200_001]),
        ledger_max_bytes=st.sampled_from([524_288, 4096, 4095, 1 << 24, (1 << 24) + 1]),
    )
    return changes.map(lambda change: Event(gate_change=change))


# Pieces that protobuf knows how to take, or to refuse: fields that nobody knows, of every wire type, groups, numbers
# and lengths that are too long, parts of one kind and then another, wrong types, broken UTF-8.
PIECES = [
    bytes.fromhex(text)
    for text in (
        "0801", "f80701", "f90701020304050607ff", "fa070361626c", "fd0701020304", "0b0c", "fb07fc07", "0c",
        "1a01ff", "1a02c080", "1a03eda080", "1a04f4908080", "1a0161", "1801", "12ff", "1affffffff0f", "1affffffffff01",
        "28ffffffffffffffffff01", "28ffffffffffffffffff7f", "288080808080808080808001", "28808080808080808080808001",
        "4000", "4080808080808080808002", "4080808080808080808001",
        "52030a0161", "52050a030a0161", "52020a00", "5a030a0162", "5a021005",
        "62070a016310011d", "620c0a0163100215000000001d0000", "62050a01631002", "62051d00002041",
        "7200", "72020801", "72020b0c", "820100", "8a0100", "8a800100", "8080808010", "808080807f",
        "00", "06", "07", "0a00", "0a020a00", "0a",
    )
]  # fmt: skip


@st.composite
def spoiled(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of a message, perhaps cut, flipped, doubled, or with a piece put in."""
    data = draw(whole)
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 1, 2, 3]))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["cut", "flip", "piece", "piece", "front", "end", "twice", "other", "noise"]))
        if how == "cut":
            data = data[:at]
        elif how == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        elif how == "noise":
            data = data[:at] + draw(st.binary(max_size=4)) + data[at:]
        elif how == "twice":
            data = data + data[at:]
        elif how == "other":
            data = data + draw(events()).SerializeToString()
        elif how in ("piece", "front", "end"):
            at = {"piece": at, "front": 0, "end": len(data)}[how]
            data = data[:at] + draw(st.sampled_from(PIECES)) + data[at:]
    return data


def messages() -> st.SearchStrategy[bytes]:
    """Bytes of a message: one event, or a batch of spoiled events; spoiled themselves."""
    one = events().map(Event.SerializeToString)

    def batch(parts: list[bytes]) -> bytes:
        whole = b""
        for part in parts:
            whole += b"\x0a" + bytes([*_varint(len(part))]) + part
        return whole

    return spoiled(st.one_of(one, st.lists(spoiled(one), max_size=4).map(batch)))


def _varint(value: int) -> list[int]:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return [*parts, value]
