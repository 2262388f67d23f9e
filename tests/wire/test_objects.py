"""Events as JSON objects: what they become, and that nothing but a named reason comes of a bad one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saros.wire.columns import REASONS
from saros.wire.objects import BAD_FIELD, NOT_JSON, BadObjectError, event_of_object, time_ms_of
from saros.wire.v1.events_pb2 import Event, Feedback, ShownItem


def test_every_kind() -> None:
    common = {
        "user": 5, "time": 1700000000.25, "event_id": "e", "session_id": "s", "recommendation_id": "r",
        "scenario": "home", "known_bot": True, "something": "else",
    }  # fmt: skip
    base = Event(
        user_id="5", event_time_ms=1_700_000_000_250, event_id="e", session_id="s", recommendation_id="r",
        scenario="home", known_bot=True,
    )  # fmt: skip

    def made(kind: str, **more: Any) -> Event:
        return event_of_object({"kind": kind, **common, **more})

    expected = Event()
    expected.CopyFrom(base)
    expected.impression.items.extend([ShownItem(item_id="a", position=1), ShownItem(item_id="7", position=2)])
    assert made("impression", items=["a", 7]) == expected
    expected.CopyFrom(base)
    expected.click.item_id, expected.click.position = "a/é", 3
    assert made("click", item="a/é", position=3) == expected
    expected.CopyFrom(base)
    expected.feedback.item_id, expected.feedback.sign, expected.feedback.weight = "a", Feedback.SIGN_NEGATIVE, 2.5
    assert made("negative", item="a", weight=2.5) == expected
    expected.feedback.sign, expected.feedback.weight = Feedback.SIGN_POSITIVE, 0
    assert made("positive", item="a") == expected
    expected.CopyFrom(base)
    expected.user_erase.SetInParent()
    assert made("erase") == expected
    expected.CopyFrom(base)
    item = expected.item_upsert
    item.item_id, item.hidden, item.deleted, item.expires_at_ms = "a", True, True, 1_800_000_000_000
    item.categories.extend(["x", "y"])
    item.properties["p"] = "q"
    more = {"categories": ["x", "y"], "hidden": True, "deleted": True, "expires_at": 1.8e12, "properties": {"p": "q"}}
    assert made("item", item="a", **more) == expected


def test_what_is_null_is_not_there() -> None:
    nothing = dict.fromkeys(("time", "event_id", "session_id", "scenario", "known_bot", "position"))
    assert event_of_object({"kind": "click", "user": "a", "item": "b", **nothing}) == event_of_object(
        {"kind": "click", "user": "a", "item": "b"}
    )


@pytest.mark.parametrize(("time", "ms"), [(0, 0), (1.5, 1500), (99_999_999_999, 99_999_999_999_000), (1e11, 10**11)])
def test_times_are_seconds_or_milliseconds(time: float, ms: int) -> None:
    assert time_ms_of(time) == ms


@pytest.mark.parametrize("time", [-1, 1e15, float("nan"), float("inf")])
def test_times_of_no_year_are_refused(time: float) -> None:
    with pytest.raises(ValueError, match="1970"):
        time_ms_of(time)


_NAMES = st.sampled_from(
    ["kind", "user", "item", "items", "time", "weight", "position", "event_id", "scenario", "known_bot", "categories",
     "properties", "hidden", "deleted", "expires_at"]
)  # fmt: skip
_KINDS = st.sampled_from(["impression", "click", "negative", "positive", "item", "erase", "tick", ""])
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("\ud800") | _KINDS
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("\udfff"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=8), _KINDS)
def test_any_object_is_an_event_or_has_a_reason(value: dict[str, Any], kind: str) -> None:
    refused: BadObjectError | None = None
    try:
        event = event_of_object({"kind": kind, **value})
    except BadObjectError as error:
        refused = error
    if refused is None:
        assert Event.FromString(event.SerializeToString()) == event or "nan" in str(event)
    else:
        assert refused.reason in {*REASONS, NOT_JSON, BAD_FIELD}
        assert refused.detail.encode(), "it can be told"
