"""What is told of an item, through bytes and back."""

from hypothesis import given
from hypothesis import strategies as st

from saros.wire.item import is_upsert, pack_upsert, read_item, text_of
from saros.wire.v1.events_pb2 import ItemUpsert

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
