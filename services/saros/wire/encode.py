"""Events to bytes, one Python object each: for senders, not for the hot path."""

from collections.abc import Iterable, Sequence

from saros.core.events import CLICK, IMPRESSION, NEGATIVE
from saros.wire.v1.events_pb2 import Event, EventBatch, Feedback, ShownItem


def event_of(user: str, kind: int, items: Sequence[str], time_ms: int, weight: float = 0.0) -> Event:
    """Return an impression, a click or feedback; a weight of 0 is none."""
    event = Event(user_id=user, event_time_ms=time_ms)
    if kind == IMPRESSION:
        shown = (ShownItem(item_id=item, position=place) for place, item in enumerate(items, start=1))
        event.impression.items.extend(shown)
    elif kind == CLICK:
        event.click.item_id = items[0]
    else:
        sign = Feedback.SIGN_NEGATIVE if kind == NEGATIVE else Feedback.SIGN_POSITIVE
        event.feedback.CopyFrom(Feedback(item_id=items[0], sign=sign, weight=weight))
    return event


def message_of(events: Sequence[Event]) -> bytes:
    """Return the value of a message: one event as it is, more as a batch."""
    return events[0].SerializeToString() if len(events) == 1 else EventBatch(events=events).SerializeToString()


def events_in(value: bytes) -> Iterable[Event]:
    """Return the events of a message; raises protobuf's DecodeError where it is broken."""
    batch = value[:1] == b"\x0a"
    return EventBatch.FromString(value).events if batch else [Event.FromString(value)]
