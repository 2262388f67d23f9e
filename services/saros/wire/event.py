"""One event of the wire: its fields, noted as places in the buffer and as numbers, before anybody judges them.

What is read is what protobuf's own decoder makes of the bytes: unknown fields and fields of another type are skipped;
of a field given twice the last one counts; two parts of one kind are merged, and another kind replaces the first.
"""

from saros.core.events import SLATE_MAX
from saros.core.jit import I64, U8, as_int, merged_kernel
from saros.wire.columns import BAD_UTF8, ID_MAX, ID_MISSING, ID_TOO_LONG, SCRATCH, TOO_MANY_ITEMS, Decoded
from saros.wire.fields import BAD, FIXED32, LENGTH, VARINT, is_utf8, skip, skip_all, span, tag, varint

# Numbers of fields in events.proto.
EVENTS = 1
EVENT_ID, USER_ID, SESSION_ID, _TIME, RECOMMENDATION_ID, SCENARIO, _BOT = 2, 3, 4, 5, 6, 7, 8
OF_IMPRESSION, OF_CLICK, OF_FEEDBACK, OF_UPSERT, OF_ERASE, OF_GATE, OF_TICK = 10, 11, 12, 13, 14, 15, 16
_SHOWN, _ITEM_ID, _SIGN, _WEIGHT = 1, 1, 2, 3

# Places in `Decoded.fields`: what is known of the event in work. Texts have a first and an end.
TEXTS = 2  # text of field n stands at 2·(n − 2), for the fields 2 to 7
KIND, AT, TOP, IS_BOT, RARE, ITEM, SIGN_GIVEN, COUNT, FAULT, WEIGHT_BITS = 12, 13, 14, 15, 16, 17, 19, 20, 21, 22


@merged_kernel
def _text(buffer: U8, at: int, end: int, fields: I64, place: int) -> int:
    """Note where the text of a field stands; return the place behind it, BAD, or -BAD_UTF8 - 1."""
    first, last = span(buffer, at, end)
    if last < 0:
        return last
    if not is_utf8(buffer, first, last):
        return -BAD_UTF8 - 1
    fields[place], fields[place + 1] = first, last
    return last


@merged_kernel
def _read_opinion(buffer: U8, at: int, end: int, fields: I64) -> int:
    """Read what names one item: a click, an item of a slate, or feedback, which has a sign and a weight.

    The others have a position where feedback has its sign; nobody asks for a sign there.
    """
    while at < end:
        number, wire, at = tag(buffer, at, end)
        if at < 0:
            return BAD
        if number == _ITEM_ID and wire == LENGTH:
            at = _text(buffer, at, end, fields, ITEM)
        elif number == _SIGN and wire == VARINT:
            low, _, at = varint(buffer, at, end)
            fields[SIGN_GIVEN] = low & 0xFFFFFFFF
        elif number == _WEIGHT and wire == FIXED32 and end - at >= 4:
            fields[WEIGHT_BITS] = 0
            for k in range(4):
                fields[WEIGHT_BITS] |= as_int(buffer[at + k]) << (8 * k)
            at += 4
        else:
            at = skip(buffer, at, end, wire)
        if at < 0:
            return at
    return at


@merged_kernel
def _read_shown(buffer: U8, at: int, end: int, out: Decoded) -> int:
    """Read one item of a slate."""
    fields = out.fields
    fields[ITEM], fields[ITEM + 1] = 0, 0
    at = _read_opinion(buffer, at, end, fields)
    if at < 0:
        return at
    length = fields[ITEM + 1] - fields[ITEM]
    if length == 0 or length > ID_MAX:
        fields[FAULT] = ID_MISSING if length == 0 else ID_TOO_LONG
    elif fields[COUNT] == SLATE_MAX:
        fields[FAULT] = TOO_MANY_ITEMS
    else:
        place = out.used[1] + fields[COUNT]
        out.item_first[place], out.item_end[place] = fields[ITEM], fields[ITEM + 1]
        fields[COUNT] += 1
    return at


@merged_kernel
def _read_impression(buffer: U8, at: int, end: int, out: Decoded) -> int:
    """Read the items of a slate."""
    while at < end:
        number, wire, at = tag(buffer, at, end)
        if at < 0:
            return BAD
        if number == _SHOWN and wire == LENGTH:
            first, last = span(buffer, at, end)
            at = last if last < 0 else _read_shown(buffer, first, last, out)
        else:
            at = skip(buffer, at, end, wire)
        if at < 0:
            return at
    return at


@merged_kernel
def _read_kind(buffer: U8, number: int, at: int, end: int, out: Decoded) -> int:
    """Read the part of an event that says what happened; another kind replaces what was there."""
    fields = out.fields
    if fields[KIND] != number:
        fields[KIND] = number
        for place in range(ITEM, SCRATCH):
            fields[place] = 0
    if number == OF_IMPRESSION:
        return _read_impression(buffer, at, end, out)
    if number == OF_CLICK or number == OF_FEEDBACK:
        return _read_opinion(buffer, at, end, fields)
    if number == OF_ERASE or number == OF_TICK:
        return skip_all(buffer, at, end)
    fields[RARE] = 1  # also where another kind replaces it: its bytes may be broken
    return end


@merged_kernel
def read_event(buffer: U8, at: int, end: int, out: Decoded) -> int:
    """Note all fields of an event; return `end`, or what is wrong as a negative number."""
    fields = out.fields
    for place in range(SCRATCH):
        fields[place] = 0
    while at < end:
        number, wire, at = tag(buffer, at, end)
        if at < 0:
            return BAD
        if wire == LENGTH and (number <= SCENARIO and number != _TIME and number >= EVENT_ID):
            at = _text(buffer, at, end, fields, TEXTS * (number - EVENT_ID))
        elif wire == LENGTH and OF_IMPRESSION <= number <= OF_TICK:
            first, last = span(buffer, at, end)
            at = last if last < 0 else _read_kind(buffer, number, first, last, out)
        elif wire == VARINT and number == _TIME:
            fields[AT], fields[TOP], at = varint(buffer, at, end)
        elif wire == VARINT and number == _BOT:
            low, top, at = varint(buffer, at, end)
            fields[IS_BOT] = low != 0 or top != 0
        else:
            at = skip(buffer, at, end, wire)
        if at < 0:
            return at
    return at
