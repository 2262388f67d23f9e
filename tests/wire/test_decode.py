"""The decoder against protobuf's own: both make the same of every message, or both refuse it."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from saros.core.events import KINDS
from saros.core.ids import derive_key, joined
from saros.wire.columns import GATE, REASONS, UPSERT, Decoded
from saros.wire.decode import Decoder
from saros.wire.rare import read_rare
from saros.wire.v1.events_pb2 import Event, EventBatch
from tests.naive import wire as naive
from tests.wire.strategies import PIECES, events, messages

KEY = derive_key(7)
WORDS = (int(KEY[0]), int(KEY[1]))
NAMES = {number: name for name, number in KINDS.items()}
NAMES |= {KINDS["erase"]: "user_erase", UPSERT: "item_upsert", GATE: "gate_change"}
BAD_ITEMS = ("id_missing", "id_too_long", "too_many_items")
# Names that are told apart: of one length and alike but for the last byte, one within another, not ASCII, the longest.
SCENARIOS = ("home", "homf", "hom", "é", "a" * 64, "a" * 63)


def decode(data: list[bytes], partitions: int = 0, partition: int = 0) -> Decoded:
    buffer, bounds = joined(data)
    found = Decoder(KEY, partitions, SCENARIOS).decode(buffer, bounds, np.full(len(data), partition, np.int32))
    read_rare(buffer, found, np.full(len(data), partition, np.int32), partitions)
    return found


def rows_of(data: list[bytes], found: Decoded) -> list[tuple[int, naive.Decoded]]:
    """The rows in the words of the twin, with the message of each."""
    whole, rows = b"".join(data), []
    for row in range(len(found.kind)):
        spans = [slice(found.item_first[k], found.item_end[k]) for k in range(found.start[row], found.start[row + 1])]
        if found.reason[row]:
            rows.append((int(found.message[row]), naive.Decoded(REASONS[found.reason[row]])))
            continue
        decoded = naive.Decoded(
            "",
            NAMES[int(found.kind[row])],
            int(found.user[row]),
            int(found.time_ms[row]),
            int(found.event_id[row]),
            int(found.session[row]),
            float(found.weight[row]),
            bool(found.bot[row]),
            tuple(whole[part].decode() for part in spans),
            int(found.scenario[row]),
        )
        rows.append((int(found.message[row]), decoded))
    return rows


def agree(mine: naive.Decoded, other: naive.Decoded) -> bool:
    """True if they are equal, or both refuse.

    Protobuf does not say what is broken, and of what is broken the kernel may find another fault first. Of several bad
    items any may be named.
    """
    if other.reason == naive.BROKEN:
        return bool(mine.reason)
    if other.reason == "bad_items":
        return mine.reason in BAD_ITEMS
    return mine == other


def check(data: list[bytes], partitions: int = 0) -> None:
    twin, found = naive.Wire(WORDS, partitions, SCENARIOS), decode(data, partitions)
    wanted = [(k, row) for k, message in enumerate(data) for row in twin.message(message)]
    rows = rows_of(data, found)
    assert [message for message, _ in rows] == [message for message, _ in wanted]
    for (_, mine), (_, other) in zip(rows, wanted, strict=True):
        assert agree(mine, other), (mine, other)
    for row in np.flatnonzero(found.reason == 0):
        keys = found.item[found.start[row] : found.start[row + 1]].tolist()
        assert keys == [twin.hash(item) for item in rows[row][1].items]


@settings(max_examples=600)
@given(st.lists(messages(), max_size=4), st.sampled_from([0, 0, 1, 2]))
@example([b""], 0)
@example([b"\x0a\x00"], 0)
def test_any_bytes_are_taken_as_protobuf_takes_them(data: list[bytes], partitions: int) -> None:
    check(data, partitions)


@pytest.mark.parametrize("piece", PIECES, ids=bytes.hex)
def test_every_piece_anywhere_in_a_good_event(piece: bytes) -> None:
    good = Event(user_id="ann", event_time_ms=5)
    good.impression.items.add(item_id="alien")
    whole = good.SerializeToString()
    check([whole[:at] + piece + whole[at:] for at in range(len(whole) + 1)])
    check([piece])


@settings(max_examples=60)
@given(st.lists(events(), min_size=1, max_size=8))
def test_a_batch_is_its_events_one_by_one(made: list[Event]) -> None:
    alone = [event.SerializeToString() for event in made]
    together = [EventBatch(events=made).SerializeToString()]
    one, other = rows_of(alone, decode(alone)), rows_of(together, decode(together))
    assert [row for _, row in one] == [row for _, row in other]


def test_an_answer_stays_while_the_next_one_is_made() -> None:
    decoder = Decoder(KEY)
    one, other = ([many(count)] for count in (3, 5))

    def answer(data: list[bytes]) -> Decoded:
        return decoder.decode(*joined(data), np.zeros(len(data), np.int32))

    first = answer(one)
    assert len(answer([]).kind) == len(answer([]).kind) == 0
    wanted = first.item.tolist()
    assert len(answer(other).item) == 5
    assert first.item.tolist() == wanted


def many(count: int) -> bytes:
    batch = EventBatch()
    for k in range(count):
        batch.events.add(user_id="ann").click.item_id = f"item {k}"
    return batch.SerializeToString()


@pytest.mark.parametrize(
    ("data", "reason", "rows"),
    [
        (many(1000), "", 1000),
        (many(1001), "too_many_events", 1),
        (Event(user_id="ann", scenario="x" * 999_000).SerializeToString(), "no_kind", 1),
        (b"\xfa\x07\xc1\x84\x3d" + b"x" * 1_000_001, "message_too_large", 1),
    ],
)
def test_limits_of_a_message(data: bytes, reason: str, rows: int) -> None:
    found = decode([b"", data])
    assert [REASONS[code] for code in found.reason.tolist()] == ["no_kind"] + [reason] * rows
    assert found.message.tolist() == [0] + [1] * rows


def test_a_bad_event_of_a_batch_is_refused_alone() -> None:
    batch = EventBatch()
    batch.events.add(user_id="ann").click.item_id = "alien"
    batch.events.add(user_id="ann").click.item_id = ""
    batch.events.add(user_id="ann").click.item_id = "brazil"
    data = batch.SerializeToString()
    found = decode([data])
    assert [REASONS[code] for code in found.reason.tolist()] == ["", "id_missing", ""]
    assert Event.FromString(data[found.first[1] : found.end[1]]) == batch.events[1]


def test_columns_grow() -> None:
    data = [many(700)] * 9
    found = decode(data)
    assert len(found.kind) == 6300
    assert found.start.tolist() == list(range(6301))
    names = [b"".join(data)[a:b].decode() for a, b in zip(found.item_first, found.item_end, strict=True)]
    assert names == [f"item {k}" for k in range(700)] * 9


@pytest.mark.parametrize("bounds", [[], [1, 0], [-1, 2], [0, 4]])
def test_bounds_outside_the_buffer_are_refused(bounds: list[int]) -> None:
    with pytest.raises(ValueError, match="bounds"):
        Decoder(KEY).decode(np.zeros(3, np.uint8), np.array(bounds, np.int64), np.zeros(1, np.int32))


def hashed(text: str) -> int:
    return naive.Wire(WORDS).hash(text)


# A change of these is a new version of the format: what stands in a topic must stay readable.
IMPRESSION = (
    "12026531 1a03616e6e 22027331 2880a0fce9d631 32027231 3a04686f6d65 4001 5210 0a090a05616c69656e1001 0a030a0162"
)
FROZEN = {
    IMPRESSION: naive.Decoded(
        "", "impression", hashed("ann"), 1_706_934_865_920, hashed("e1") & 0xFFFFFFFF, hashed("s1"), 1.0, True,
        ("alien", "b"), 1,
    ),
    "1a03616e6e 5a05 0a0162 1003": naive.Decoded("", "click", hashed("ann"), weight=1.0, items=("b",)),
    "1a03616e6e 620a 0a0162 1001 1d00002040": naive.Decoded("", "negative", hashed("ann"), weight=2.5, items=("b",)),
    "1a03616e6e 7200": naive.Decoded("", "user_erase", hashed("ann"), weight=1.0),
    "2805 820100": naive.Decoded("", "tick", 0, 5, weight=1.0),
}  # fmt: skip


@pytest.mark.parametrize("text", FROZEN)
def test_version_1_stays_readable(text: str) -> None:
    data = [bytes.fromhex(text)]
    [(_, row)] = rows_of(data, decode(data))
    assert row == FROZEN[text]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1aff", "bad_protobuf"),  # cut off
        ("1a01ff 5a030a0161", "bad_utf8"),
        ("1a0161 0b0c 5a030a0161", "bad_protobuf"),  # a group
        ("1a0161", "no_kind"),
        ("5a030a0161", "id_missing"),
        ("1a0161 5a00", "id_missing"),
        ("1a0161 5200", "no_items"),
        ("1a0161 28ffffffffffffffffff01 5a030a0161", "bad_time"),
        ("1a0161 62030a0161", "bad_sign"),
        ("1a0161 620a0a016110021d00003041", "bad_weight"),
        ("1a0161 6a00", "bad_item"),
        ("7a00", "bad_gate_change"),
        ("0aff", "bad_protobuf"),  # a batch that is cut off
    ],
)
def test_what_is_wrong_has_a_name(text: str, reason: str) -> None:
    assert [REASONS[code] for code in decode([bytes.fromhex(text)]).reason.tolist()] == [reason]
    assert reason in REASONS


def test_events_of_another_partition_are_refused() -> None:
    event = Event(user_id="ann")
    event.click.item_id = "alien"
    home = (naive.murmur2(b"ann") & 0x7FFFFFFF) % 5
    found = [decode([event.SerializeToString()], 5, partition).reason.tolist() for partition in range(5)]
    assert [REASONS[code] for [code] in found] == ["" if p == home else "misrouted" for p in range(5)]


@pytest.mark.parametrize("kind", ["impression", "click"])
def test_scenarios_are_told_apart_by_all_of_their_bytes(kind: str) -> None:
    texts = ["", "home", "homf", "homg", "hom", "ho", "homes", "é", "e", "a" * 64, "a" * 63, "b" * 64, "home"]
    made = [Event(user_id="ann", scenario=text) for text in texts]
    for event in made:
        getattr(event, kind).SetInParent()
        if kind == "click":
            event.click.item_id = "alien"
        else:
            event.impression.items.add(item_id="alien")
    wanted = [0, 1, 2, 0, 3, 0, 0, 4, 0, 5, 6, 0, 1]
    alone = [event.SerializeToString() for event in made]
    assert decode(alone).scenario.tolist() == wanted
    assert decode([EventBatch(events=made).SerializeToString()]).scenario.tolist() == wanted
    none = Decoder(KEY).decode(*joined(alone), np.zeros(len(alone), np.int32))
    assert none.scenario.tolist() == [0] * len(wanted), "nobody named any"
    again = alone[1] + alone[2] + alone[0]
    assert decode([again, again + b"\x3a\x00"]).scenario.tolist() == [2, 0], "of a field given twice the last counts"


@pytest.mark.parametrize("names", [[""], ["a" * 65], ["é" * 33], [f"s{k}" for k in range(33)]])
def test_names_of_scenarios_have_limits(names: list[str]) -> None:
    with pytest.raises(ValueError, match="32 names of scenarios, of 1 to 64 bytes"):
        Decoder(KEY, 0, names)
    assert Decoder(KEY, 0, [f"s{k}" for k in range(32)])
