"""Batches cut into events and put together again: by protobuf's rules, within the limits of a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saros.wire.columns import EVENTS_MAX, MESSAGE_MAX
from saros.wire.encode import events_in
from saros.wire.split import messages_of, split_batch, wrapped
from saros.wire.v1.events_pb2 import Event, EventBatch


def click(user: str) -> Event:
    event = Event(user_id=user)
    event.click.item_id = "x"
    return event


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=300), max_size=20))
def test_cutting_and_wrapping_are_what_protobuf_does(users: list[str]) -> None:
    events = [click(user) for user in users]
    body = EventBatch(events=events).SerializeToString()
    parts = split_batch(body, 100)
    assert [Event.FromString(part) for part in parts] == events
    assert b"".join(map(wrapped, parts)) == body


def test_fields_that_nobody_knows_are_left_out() -> None:
    unknown = b"\x10\x05" + b"\x1a\x03abc" + b"\x25\x00\x00\x00\x00"
    body = wrapped(b"one") + unknown + wrapped(b"two") + unknown
    assert split_batch(body, 2) == [b"one", b"two"]


def test_one_event_is_itself() -> None:
    assert split_batch(click("ann").SerializeToString(), 1) == [click("ann").SerializeToString()]


@pytest.mark.parametrize(
    "body", [b"\x0a", b"\x0a\x05abc", b"\x0a\x00\x0b", b"\x0a\x00\xff", b"\x0a\xff\xff\xff\xff\xff\x01"]
)
def test_broken_batches_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="EventBatch"):
        split_batch(body, 10)


def test_too_many_events_are_refused() -> None:
    with pytest.raises(OverflowError):
        split_batch(b"\x0a\x00" * 11, 10)


@given(st.binary(max_size=60))
def test_any_bytes_are_cut_within_their_bounds(body: bytes) -> None:
    try:
        parts = split_batch(b"\x0a" + body, 5)
    except (ValueError, OverflowError):
        return
    assert sum(map(len, parts)) < len(body) + 1


def test_messages_keep_to_the_limits() -> None:
    batches = [wrapped(click(f"user {k}").SerializeToString()) for k in range(2 * EVENTS_MAX + 1)]
    found = list(messages_of(batches))
    assert [count for _, count in found] == [EVENTS_MAX, EVENTS_MAX, 1]
    assert [event.user_id for value, _ in found for event in events_in(value)] == [f"user {k}" for k in range(2001)]
    large = [wrapped(b"x" * size) for size in (400_000, 500_000, 99_990, 5, 999_990)]
    found = list(messages_of(large))
    assert b"".join(value for value, _ in found) == b"".join(large)
    assert [count for _, count in found] == [2, 2, 1]
    assert all(len(value) <= MESSAGE_MAX for value, _ in found)
    assert list(messages_of([])) == []
