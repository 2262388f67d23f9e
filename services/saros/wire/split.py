"""A batch of any size cut into its events' bytes, and such bytes put into messages that keep to the limits.

Cutting goes by the decoder's own rules: what it takes for the events of a message is what is cut out here.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from saros.core.jit import I64, U8, kernel
from saros.wire.columns import EVENTS_MAX, MESSAGE_MAX
from saros.wire.event import EVENTS
from saros.wire.fields import LENGTH, skip, span, tag

_EVENT_TAG = b"\x0a"  # field 1 of a batch, with a length


@kernel
def _split(buffer: U8, places: I64) -> int:
    """Note where events begin and end; return how many there are (more than have room are counted), -1: broken."""
    at, end, count = 0, buffer.shape[0], 0
    while at < end:
        number, wire, at = tag(buffer, at, end)
        if at < 0:
            return -1
        if number == EVENTS and wire == LENGTH:
            first, last = span(buffer, at, end)
            if last < 0:
                return -1
            if count < places.shape[0]:
                places[count, 0], places[count, 1] = first, last
            count += 1
        at = skip(buffer, at, end, wire)
        if at < 0:
            return -1
    return count


def split_batch(body: bytes, most: int) -> list[bytes]:
    """Return the bytes of each event of a batch, or those of a single event as they are.

    ValueError where the batch is broken, OverflowError where it has more than `most` events.
    """
    if body and body[:1] != _EVENT_TAG:
        return [body]
    places = np.zeros((most, 2), np.int64)
    count = _split(np.frombuffer(bytearray(body), np.uint8), places)
    if count < 0:
        raise ValueError("not an EventBatch")
    if count > most:
        raise OverflowError(f"{count} events")
    return [body[first:last] for first, last in places[:count].tolist()]


def wrapped(event: bytes) -> bytes:
    """Return an event as a batch of one; batches of one end to end are a batch of all."""
    size, length = len(event), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return _EVENT_TAG + bytes(length) + event


def messages_of(batches: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield messages, with how many events each has, from batches of one that are good on their own."""
    first = size = 0
    for k, batch in enumerate(batches):
        if k > first and (size + len(batch) > MESSAGE_MAX or k - first == EVENTS_MAX):
            yield b"".join(batches[first:k]), k - first
            first, size = k, 0
        size += len(batch)
    if first < len(batches):
        yield b"".join(batches[first:]), len(batches) - first


def warm() -> None:
    """Compile what is compiled."""
    split_batch(b"", 1)
