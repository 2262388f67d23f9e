"""Protobuf's wire format, byte by byte: the smallest pieces of the decoder.

Every function takes a span [at, end) of the buffer and reads nothing outside it. Where the bytes are wrong the place it
returns is negative: BAD, or GROUP for a group, which no message of ours has. Limits are those of protobuf's own
decoder: a tag or a length takes at most five bytes, a number ten.
"""

from saros.core.jit import U8, as_int, merged_kernel

BAD, GROUP = -1, -2
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_START_GROUP, _END_GROUP = 3, 4
_LENGTH_MAX = 0x7FFFFFFF
_TAG_MAX = 0xFFFFFFFF


@merged_kernel
def varint(buffer: U8, at: int, end: int) -> tuple[int, int, int]:
    """Return a number of 64 bits, as its low 63 and its highest, and the place behind it."""
    low = 0
    for k in range(10):
        if at >= end:
            return 0, 0, BAD
        byte = as_int(buffer[at])
        at += 1
        if k == 9:
            return low, byte & 1, at if byte < 128 else BAD
        low |= (byte & 127) << (7 * k)
        if byte < 128:
            return low, 0, at
    return 0, 0, BAD


@merged_kernel
def _short_varint(buffer: U8, at: int, end: int) -> tuple[int, int]:
    """Return a number of at most five bytes, and the place behind it."""
    value = 0
    for k in range(5):
        if at >= end:
            return 0, BAD
        byte = as_int(buffer[at])
        at += 1
        value |= (byte & 127) << (7 * k)
        if byte < 128:
            return value, at
    return 0, BAD


@merged_kernel
def tag(buffer: U8, at: int, end: int) -> tuple[int, int, int]:
    """Return the number and the wire type of a field, and the place behind its tag."""
    value, at = _short_varint(buffer, at, end)
    if at < 0 or value > _TAG_MAX or value >> 3 == 0:
        return 0, 0, BAD
    return value >> 3, value & 7, at


@merged_kernel
def span(buffer: U8, at: int, end: int) -> tuple[int, int]:
    """Return where the bytes of a field begin and end; its length stands at `at`."""
    length, at = _short_varint(buffer, at, end)
    if at < 0 or length > _LENGTH_MAX or length > end - at:
        return 0, BAD
    return at, at + length


@merged_kernel
def skip(buffer: U8, at: int, end: int, wire: int) -> int:
    """Return the place behind the value of a field that nobody knows."""
    if wire == VARINT:
        return varint(buffer, at, end)[2]
    if wire == LENGTH:
        return span(buffer, at, end)[1]
    if wire == _START_GROUP or wire == _END_GROUP:
        return GROUP
    size = 8 if wire == FIXED64 else 4 if wire == FIXED32 else -1
    return at + size if 0 < size <= end - at else BAD


@merged_kernel
def skip_all(buffer: U8, at: int, end: int) -> int:
    """Return `end` if a message of fields that nobody knows is well formed."""
    while at < end:
        _, wire, at = tag(buffer, at, end)
        if at < 0:
            return BAD
        at = skip(buffer, at, end, wire)
        if at < 0:
            return at
    return at


@merged_kernel
def is_utf8(buffer: U8, at: int, end: int) -> bool:
    """True if the bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."""
    while at < end:
        byte = as_int(buffer[at])
        at += 1
        if byte < 0x80:
            continue
        if 0xC2 <= byte <= 0xDF:
            more, least, most = 1, 0x80, 0xBF
        elif 0xE0 <= byte <= 0xEF:
            more, least, most = 2, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF
        elif 0xF0 <= byte <= 0xF4:
            more, least, most = 3, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF
        else:
            return False
        if more > end - at or not least <= as_int(buffer[at]) <= most:
            return False
        for k in range(1, more):
            if not 0x80 <= as_int(buffer[at + k]) <= 0xBF:
                return False
        at += more
    return True
