"""Messages of the input topic to columns: one kernel over one buffer, no Python object per event.

The messages of a `consume` stand end to end in a buffer. `decode` fills one row for each event, in order, with the
reason why it is refused, or GOOD. A bad event of a batch is refused alone; where the batch itself is broken there is
one row for the whole message. Strings become keyed hashes; where the text stands is kept, for names and dead letters.
Of scenarios only the few that are told apart are known, by their number.

Invariants: every length is checked before use, so no byte outside the buffer is read. What protobuf's own decoder makes
of the same bytes is what is made of them here, or they are refused. Item upserts and gate changes are rare and rich: of
these the kernel reads what all events have, and `saros.wire.rare` the rest.
"""

from collections.abc import Sequence

import numpy as np

from saros.core.events import CLICK, ERASE, IMPRESSION, NEGATIVE, POSITIVE, SLATE_MAX, TICK, TIME_MAX_MS, WEIGHT_MAX
from saros.core.ids import derive_key, joined, siphash
from saros.core.jit import I32, I64, U8, U64, as_int, copy_columns, kernel, merged_kernel
from saros.wire.columns import (
    BAD_PROTOBUF,
    BAD_SIGN,
    BAD_TIME,
    BAD_UTF8,
    BAD_WEIGHT,
    BUFFER_MAX,
    EVENTS_MAX,
    GATE,
    GOOD,
    ID_MAX,
    ID_MISSING,
    ID_TOO_LONG,
    MESSAGE_MAX,
    MESSAGE_TOO_LARGE,
    MISROUTED,
    NO_ITEMS,
    NO_KIND,
    SCENARIO_MAX,
    TOO_MANY_EVENTS,
    UPSERT,
    Decoded,
    Scenarios,
)
from saros.wire.event import (
    AT,
    COUNT,
    EVENT_ID,
    EVENTS,
    FAULT,
    IS_BOT,
    ITEM,
    KIND,
    OF_CLICK,
    OF_ERASE,
    OF_FEEDBACK,
    OF_IMPRESSION,
    OF_TICK,
    OF_UPSERT,
    RARE,
    RECOMMENDATION_ID,
    SCENARIO,
    SESSION_ID,
    SIGN_GIVEN,
    TEXTS,
    TOP,
    USER_ID,
    WEIGHT_BITS,
    read_event,
)
from saros.wire.fields import LENGTH, skip, span, tag
from saros.wire.partitions import murmur2_of


@merged_kernel
def _length(fields: I64, number: int) -> int:
    """Return how many bytes the text of a field has."""
    place = TEXTS * (number - EVENT_ID)
    return as_int(fields[place + 1] - fields[place])


@merged_kernel
def _is_personal(kind: int) -> bool:
    """True if an event of this kind is some user's."""
    return kind == OF_IMPRESSION or kind == OF_CLICK or kind == OF_FEEDBACK or kind == OF_ERASE


@merged_kernel
def _ids_fault(fields: I64) -> int:
    """Return what is wrong with the ids, or GOOD."""
    longest = max(_length(fields, EVENT_ID), _length(fields, USER_ID), _length(fields, SESSION_ID))
    if max(longest, _length(fields, RECOMMENDATION_ID)) > ID_MAX or _length(fields, SCENARIO) > SCENARIO_MAX:
        return ID_TOO_LONG
    kind = fields[KIND]
    if _is_personal(kind) and _length(fields, USER_ID) == 0:
        return ID_MISSING
    if kind == OF_CLICK or kind == OF_FEEDBACK:
        length = fields[ITEM + 1] - fields[ITEM]
        return ID_MISSING if length == 0 else ID_TOO_LONG if length > ID_MAX else GOOD
    return GOOD


@merged_kernel
def _weight_of(bits: int) -> np.float32:
    """Return a weight from the bits on the wire; none given is 1."""
    weight = np.uint32(bits).view(np.float32)
    return np.float32(1.0) if weight == 0 else weight


@merged_kernel
def _fault(fields: I64) -> int:
    """Return why the event that was read is refused, or GOOD."""
    kind = fields[KIND]
    if kind == 0:
        return NO_KIND
    fault = _ids_fault(fields)
    if fault != GOOD:
        return fault
    if fields[TOP] != 0 or fields[AT] > TIME_MAX_MS:
        return BAD_TIME
    if fields[FAULT] != GOOD:
        return as_int(fields[FAULT])
    if kind == OF_IMPRESSION and fields[COUNT] == 0:
        return NO_ITEMS
    if kind == OF_FEEDBACK:
        if fields[SIGN_GIVEN] != 1 and fields[SIGN_GIVEN] != 2:
            return BAD_SIGN
        if not 0 < _weight_of(fields[WEIGHT_BITS]) <= WEIGHT_MAX:
            return BAD_WEIGHT
    return GOOD


@merged_kernel
def _hash_of(buffer: U8, key: U64, fields: I64, place: int) -> np.uint64:
    """Return the keyed hash of a text, 0 for none."""
    if fields[place] == fields[place + 1]:
        return np.uint64(0)
    return siphash(key[0], key[1], buffer, fields[place], fields[place + 1])


@merged_kernel
def _scenario_of(buffer: U8, fields: I64, names: Scenarios) -> int:
    """Return which of the names an event's scenario is, from 1; 0: none of them. Its bytes lie in the buffer."""
    length, first = _length(fields, SCENARIO), fields[TEXTS * (SCENARIO - EVENT_ID)]
    if length > 0:
        for which in range(names.start.shape[0] - 1):
            begin = names.start[which]
            if names.start[which + 1] - begin == length:
                same = 0
                while same < length and as_int(buffer[first + same]) == as_int(names.text[begin + same]):
                    same += 1
                if same == length:
                    return which + 1
    return 0


@merged_kernel
def _put_event(buffer: U8, key: U64, names: Scenarios, partition: int, partitions: int, row: int, out: Decoded) -> int:
    """Fill the columns of an event that was read; return why it is refused, or GOOD."""
    fields = out.fields
    fault = _fault(fields)
    if fault != GOOD:
        return fault
    kind, user = fields[KIND], TEXTS * (USER_ID - EVENT_ID)
    if _is_personal(kind) and partitions > 0:
        hashed = as_int(murmur2_of(buffer, fields[user], fields[user + 1])) & 0x7FFFFFFF
        if hashed % partitions != partition:
            return MISROUTED
    out.user[row] = _hash_of(buffer, key, fields, user)
    out.time_ms[row], out.bot[row], out.rare[row] = fields[AT], fields[IS_BOT], fields[RARE]
    out.session[row] = _hash_of(buffer, key, fields, TEXTS * (SESSION_ID - EVENT_ID))
    out.event_id[row] = 0
    if _length(fields, EVENT_ID) > 0:
        out.event_id[row] = max(as_int(_hash_of(buffer, key, fields, 0) & np.uint64(0xFFFFFFFF)), 1)
    out.weight[row], out.scenario[row] = 1.0, _scenario_of(buffer, fields, names)
    if kind == OF_IMPRESSION:
        out.kind[row] = IMPRESSION
    elif kind == OF_CLICK:
        out.kind[row] = CLICK
    elif kind == OF_FEEDBACK:
        out.kind[row], out.weight[row] = (
            NEGATIVE if fields[SIGN_GIVEN] == 1 else POSITIVE,
            _weight_of(fields[WEIGHT_BITS]),
        )
    else:
        out.kind[row] = (
            ERASE if kind == OF_ERASE else TICK if kind == OF_TICK else UPSERT if kind == OF_UPSERT else GATE
        )
    count, place = as_int(fields[COUNT]), out.used[1]
    if kind == OF_CLICK or kind == OF_FEEDBACK:
        out.item_first[place], out.item_end[place], count = fields[ITEM], fields[ITEM + 1], 1
    for k in range(place, place + count):
        out.item[k] = siphash(key[0], key[1], buffer, out.item_first[k], out.item_end[k])
    out.used[1] = place + count
    return GOOD


@merged_kernel
def _put_row(message: int, first: int, end: int, reason: int, out: Decoded) -> None:
    """Append a row."""
    row = out.used[0]
    out.message[row], out.first[row], out.end[row], out.reason[row] = message, first, end, reason
    if reason != GOOD:
        out.kind[row], out.user[row], out.time_ms[row], out.event_id[row], out.session[row] = 0, 0, 0, 0, 0
        out.weight[row], out.bot[row], out.rare[row], out.scenario[row] = 0, 0, 0, 0
    out.start[row + 1] = out.used[1]
    out.used[0] = row + 1


@merged_kernel
def _decode_event(
    buffer: U8, key: U64, names: Scenarios, partition: int, partitions: int, message: int, first: int, end: int,
    out: Decoded,
) -> None:  # fmt: skip
    """Decode one event into the next row."""
    at, row = read_event(buffer, first, end, out), out.used[0]
    reason = BAD_UTF8 if at == -BAD_UTF8 - 1 else BAD_PROTOBUF
    if at >= 0:
        reason = _put_event(buffer, key, names, partition, partitions, row, out)
    _put_row(message, first, end, reason, out)


@merged_kernel
def _batch_size(buffer: U8, at: int, end: int) -> int:
    """Return how many events a message has: of a batch so many, else -1; -2 where the batch is broken."""
    if at == end:
        return -1
    number, wire, _ = tag(buffer, at, end)
    if number != EVENTS or wire != LENGTH:
        return -1
    count = 0
    while at < end:
        number, wire, at = tag(buffer, at, end)
        if at < 0:
            return -2
        count += number == EVENTS and wire == LENGTH
        at = skip(buffer, at, end, wire)
        if at < 0:
            return -2
    return count


@kernel
def _decode(
    buffer: U8, bounds: I64, key: U64, names: Scenarios, partition: I32, partitions: int, out: Decoded, begin: int
) -> int:
    """Decode messages [begin, n); return n, or the message before which a column ran out of room."""
    for message in range(begin, bounds.shape[0] - 1):
        at, end, home = bounds[message], bounds[message + 1], as_int(partition[message])
        if end - at > MESSAGE_MAX:
            size, reason = -2, MESSAGE_TOO_LARGE
        else:
            size, reason = _batch_size(buffer, at, end), BAD_PROTOBUF
        if size > EVENTS_MAX:
            size, reason = -2, TOO_MANY_EVENTS
        rows, items = max(size, 1), min((end - at) // 2 + 1, max(size, 1) * SLATE_MAX)
        if out.used[0] + rows > out.kind.shape[0] or out.used[1] + items > out.item.shape[0]:
            return message
        if size == -2:
            _put_row(message, at, end, reason, out)
        elif size == -1:
            _decode_event(buffer, key, names, home, partitions, message, at, end, out)
        else:
            while at < end:
                number, wire, at = tag(buffer, at, end)
                if number == EVENTS and wire == LENGTH:
                    first, last = span(buffer, at, end)
                    _decode_event(buffer, key, names, home, partitions, message, first, last, out)
                at = skip(buffer, at, end, wire)
    return bounds.shape[0] - 1


class Decoder:
    """Decodes buffer after buffer into columns that it keeps and makes longer where they are short."""

    def __init__(self, key: U64, partitions: int = 0, scenarios: Sequence[str] = ()) -> None:
        """`partitions` 0: nobody asks whether an event stands where it belongs. `scenarios` are told apart."""
        self._key, self.partitions, self._names = key, partitions, Scenarios.of(scenarios)
        self._out, self._other = Decoded.empty(1024, 4096), Decoded.empty(1024, 4096)
        self._nothing = Decoded.empty(0, 0).filled()

    def decode(self, buffer: U8, bounds: I64, partition: I32) -> Decoded:
        """Decode the messages buffer[bounds[i]:bounds[i + 1]], which came from these partitions.

        The answer is valid until the call after the next one that has a message.
        """
        buffer = np.require(buffer, np.uint8, ["C", "W"])  # a read-only one would be compiled for anew
        if len(bounds) < 1 or bounds[0] < 0 or bounds[-1] > len(buffer) or (np.diff(bounds) < 0).any():
            raise ValueError("bounds must rise within the buffer")
        if len(buffer) > BUFFER_MAX:
            raise ValueError(f"a buffer of {len(buffer)} bytes is too large: poll fewer messages")
        if len(partition) != len(bounds) - 1:
            raise ValueError("each message needs its partition")
        if len(bounds) == 1:
            return self._nothing
        self._out, self._other = self._other, self._out
        self._out.used[:] = 0
        self._out.start[0] = 0
        done = 0
        while True:
            done = _decode(buffer, bounds, self._key, self._names, partition, self.partitions, self._out, done)
            if done == len(bounds) - 1:
                return self._out.filled()
            bigger = Decoded.empty(2 * len(self._out.kind), 2 * len(self._out.item))
            copy_columns(bigger, self._out)
            self._out = bigger


def warm() -> None:
    """Compile the decoder."""
    Decoder(derive_key(0), 1).decode(*joined([b""]), np.zeros(1, np.int32))
