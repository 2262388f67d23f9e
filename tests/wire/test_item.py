"""What is told of an item, through bytes and back, and in the order of the log; and which change of the gate wins."""

from hypothesis import given
from hypothesis import strategies as st

from saros.core.gate import GateRules
from saros.wire.item import is_upsert, pack_upsert, read_item, text_of, upserted
from saros.wire.rare import gate_change, gate_rules, supersedes
from saros.wire.v1.events_pb2 import GateChange, ItemUpsert

FIELDS = ("categories", "hidden", "expires_at_ms", "properties")  # in the order of their bits
FROZEN_UPSERT = "ff0a04c3a92f3112017812077368656c66207918012080d095ffbc312a070a01701202c3bc2a060a0171120132380f"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(TEXT)
def test_a_text_is_a_text(text: str) -> None:
    told = text.encode()
    assert not is_upsert(told), "no text begins as an upsert does"
    assert text_of(told) == text
    assert read_item(told) == ItemUpsert(item_id=text)


@given(TEXT, st.lists(TEXT, max_size=3), st.booleans(), st.integers(0, 2**50), st.dictionaries(TEXT, TEXT, max_size=4))
def test_an_upsert_is_the_same_bytes_in_whatever_order(
    text: str, categories: list[str], hidden: bool, expires_at_ms: int, properties: dict[str, str]
) -> None:
    turned = dict(reversed(properties.items()))
    one, other = (
        ItemUpsert(item_id=text, categories=categories, hidden=hidden, expires_at_ms=expires_at_ms, properties=each)
        for each in (properties, turned)
    )
    assert pack_upsert(one) == pack_upsert(other)
    assert is_upsert(pack_upsert(one))
    assert read_item(pack_upsert(one)) == one
    assert text_of(pack_upsert(one)) == text


def test_what_the_store_has_of_an_item_stays_as_it_is() -> None:
    """Frozen bytes: a change here is a new format."""
    told = ItemUpsert(
        item_id="é/1", categories=["x", "shelf y"], hidden=True, expires_at_ms=1_700_000_000_000,
        properties={"q": "2", "p": "ü"}, changes=15,
    )  # fmt: skip
    assert pack_upsert(told).hex() == FROZEN_UPSERT
    assert read_item(bytes.fromhex(FROZEN_UPSERT)) == told
    assert pack_upsert(ItemUpsert(item_id="a", deleted=True)).hex() == "ff0a01613001"


@st.composite
def upserts(draw: st.DrawFn) -> ItemUpsert:
    """An upsert of one item: all of it, some of it, or its end."""
    if draw(st.integers(0, 9)) == 0:
        return ItemUpsert(item_id="a", deleted=True)
    return ItemUpsert(
        item_id="a",
        categories=draw(st.lists(st.sampled_from("xyz"), max_size=2)),
        hidden=draw(st.booleans()),
        expires_at_ms=draw(st.integers(0, 3)),
        properties=draw(st.dictionaries(st.sampled_from("pq"), st.sampled_from("12"), max_size=2)),
        changes=draw(st.integers(0, 15)),
    )


def plain(upsert: ItemUpsert) -> dict[str, object]:
    told: dict[str, object] = {name: getattr(upsert, name) for name in ("hidden", "expires_at_ms", "deleted")}
    return told | {"categories": list(upsert.categories), "properties": dict(upsert.properties)}


@given(st.lists(upserts(), max_size=8), st.data())
def test_upserts_count_in_their_order_and_a_second_reading_ends_the_same(
    log: list[ItemUpsert], data: st.DataObject
) -> None:
    known, told = plain(ItemUpsert()), b"a"
    for upsert in log:
        told = upserted(told, upsert)
        given_of = [name for bit, name in enumerate(FIELDS) if not upsert.changes or upsert.changes & 1 << bit]
        known |= {name: plain(upsert)[name] for name in given_of + ["deleted"] * (not upsert.changes)}
        assert plain(read_item(told)) == known
        assert read_item(told).changes == 0, "what is stored is all of it"
    assert text_of(told) == "a"
    again = told
    for upsert in log[data.draw(st.integers(0, len(log))) :]:
        again = upserted(again, upsert)
    assert again == told, "whoever boots from the store, and reads the log from before it"


def test_of_two_changes_of_the_gate_one_wins_everywhere() -> None:
    first, second = (gate_change(GateRules(blocks_max=most), 3) for most in (40, 60))
    later, none = gate_change(GateRules(blocks_max=7), 4), GateChange()
    assert supersedes(first, second) != supersedes(second, first)
    assert not supersedes(first, first)
    for change in (first, second):
        assert supersedes(later, change)
        assert not supersedes(change, later)
        assert supersedes(change, none)
    assert gate_rules(first) == GateRules(blocks_max=40)
