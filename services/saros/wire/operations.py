"""What a store has to do for a record, as one buffer of operations: the store's script walks it once.

Little-endian, each begins with its code u8 and the user's key u64:

    1 SET    u32 length, value     the user: u8 flags (1: has blocks that wait, 2: has a ledger), u16 bytes of its row,
                                   row f32, state
    2 PUT    i32 number, u32 length, bytes    a block of its ledger
    3 DROP   i32 number            that block is gone
    4 CLEAR                        the whole ledger is gone
    5 ERASE                        all that is known of the user is gone
    6 KEEP   u32 length, value     the user, whose row stays as it is: u8 flags, state

The order is that of the events: erasing comes first, ledgers change in the order of their blocks, users come last.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from saros.core.codec import GOOD, get, put
from saros.core.codec_users import user_fault
from saros.core.glance import NOTHING, WHOLE, GlanceArrays, blank, glance_arrays, read_state
from saros.core.jit import F32, I32, I64, U8, U64, as_int, kernel
from saros.core.sessions import SessionRules

SET, PUT, DROP, CLEAR, ERASE, KEEP = 1, 2, 3, 4, 5, 6
_HEAD, _NUMBER = struct.Struct("<BQ"), struct.Struct("<i")
HAS_WAITING, HAS_LEDGER = 1, 2  # flags of a user's value
_CLEAR, _BOOK, _DELETE = 1, 2, 4  # flags of a record's blocks
_ERASED, _WAITING, _ROW, _UNSEEN, _LEDGER = 1, 2, 4, 8, 16  # flags of a record's users


@kernel
def _begin(out: U8, at: int, code: int, user: np.uint64) -> int:
    return put(out, put(out, at, np.uint64(code), 1), user, 8)


@kernel
def copy(out: U8, at: int, data: U8, first: int, end: int) -> int:
    """Write bytes from elsewhere; return the place behind them."""
    # Unsigned, so that nobody tests each index for being negative: then this is one copy of memory, 40 times as fast.
    to, begin = np.uint64(at), np.uint64(first)
    for k in range(np.uint64(end - first)):
        out[to + k] = data[begin + k]
    return at + end - first


@kernel
def _write_blocks(out: U8, at: int, user: U64, number: I32, flags: U8, starts: I64, data: U8) -> int:
    """Write what becomes of ledgers; return the place behind it."""
    for b in range(user.shape[0]):
        if flags[b] & _CLEAR:
            at = _begin(out, at, CLEAR, user[b])
        if flags[b] & _BOOK:
            at = put(out, _begin(out, at, PUT, user[b]), np.uint64(np.uint32(number[b])), 4)
            at = put(out, at, np.uint64(starts[b + 1] - starts[b]), 4)
            at = copy(out, at, data, starts[b], starts[b + 1])
        elif flags[b] & _DELETE:
            at = put(out, _begin(out, at, DROP, user[b]), np.uint64(np.uint32(number[b])), 4)
    return at


@kernel
def _write_users(out: U8, at: int, user: U64, flags: U8, starts: I64, data: U8, rows: F32, vested: I32) -> int:
    """Write users as they are now; return the place behind it."""
    row = 0
    for u in range(user.shape[0]):
        for number in range(vested[u, 0], vested[u, 1]):
            at = put(out, _begin(out, at, DROP, user[u]), np.uint64(number), 4)
        if flags[u] & _UNSEEN:
            continue
        has_row, length = flags[u] & _ROW != 0, starts[u + 1] - starts[u]
        at = _begin(out, at, SET if has_row else KEEP, user[u])
        at = put(out, at, np.uint64(1 + length + (2 + 4 * rows.shape[1] if has_row else 0)), 4)
        told = (HAS_WAITING if flags[u] & _WAITING else 0) + (HAS_LEDGER if flags[u] & _LEDGER else 0)
        at = put(out, at, np.uint64(told), 1)
        if has_row:
            at = put(out, at, np.uint64(4 * rows.shape[1]), 2)
            for d in range(rows.shape[1]):
                at = put(out, at, np.uint64(np.float32(rows[row, d]).view(np.uint32)), 4)
            row += 1
        at = copy(out, at, data, starts[u], starts[u + 1])
    return at


@kernel
def _write_erased(out: U8, at: int, user: U64, flags: U8) -> int:
    for u in range(user.shape[0]):
        if flags[u] & _ERASED:
            at = _begin(out, at, ERASE, user[u])
    return at


def ledger_operations(user: U64, number: I32, flags: U8, starts: I64, data: U8) -> U8:
    """Return what becomes of ledgers with these blocks, which stand in `data` from starts[b] to starts[b + 1]."""
    sizes = 9 * (flags & _CLEAR != 0) + (17 + np.diff(starts)) * (flags & _BOOK != 0) + 13 * (flags & _DELETE != 0)
    out = np.empty(int(sizes.sum()), np.uint8)
    end = _write_blocks(out, 0, user, number, flags, starts, data)
    return out[:end]


def user_operations(user: U64, flags: U8, starts: I64, data: U8, rows: F32, vested: I32) -> tuple[U8, U8]:
    """Return what is erased, and users as they are now; those with a row have it in `rows`, in order."""
    erased = np.empty(9 * int((flags & _ERASED != 0).sum()), np.uint8)
    _write_erased(erased, 0, user, flags)
    sizes = 14 + np.diff(starts) + (2 + 4 * rows.shape[1]) * (flags & _ROW != 0) + 13 * (vested[:, 1] - vested[:, 0])
    out = np.empty(int(sizes.sum()), np.uint8)
    end = _write_users(out, 0, user, flags, starts, data, rows, vested)
    return erased, out[:end]


def drop_operations(entries: Mapping[int, Iterable[int]]) -> bytes:
    """Return what takes blocks out of ledgers, by user and number."""
    return b"".join(
        _HEAD.pack(DROP, user) + _NUMBER.pack(number) for user, numbers in entries.items() for number in numbers
    )


class StoredUser(NamedTuple):
    """A user's value in the store."""

    waiting: bool  # has blocks that wait in its ledger
    row: bytes  # empty: as it started
    state: bytes


def read_user(value: bytes) -> StoredUser:
    """Return the parts of a user's value; ValueError where it is too short."""
    if len(value) < 3 or len(value) < 3 + int.from_bytes(value[1:3], "little"):
        raise ValueError(f"a user's value of {len(value)} bytes is cut off")
    end = 3 + int.from_bytes(value[1:3], "little")
    return StoredUser(bool(value[0] & HAS_WAITING), value[3:end], value[end:])


@kernel
def _read_glances(
    users: GlanceArrays, which: I32, homes: I32, buffer: U8, sizes: I64, at: I64, damaged: I32
) -> int:  # fmt: skip
    """Fill users from their values, one behind the other, sizes[k] -1 being none; return how many are `damaged`: k."""
    end, count, dim = 0, 0, users.rows.shape[1]
    for k in range(sizes.shape[0]):
        user = which[k]
        as_of = at[homes[user]]
        if sizes[k] < 0:
            blank(users, user, as_of)
            continue
        first, end = end, end + sizes[k]
        row = as_int(get(buffer, first + 1, 2)) if sizes[k] >= 3 else 0
        state = first + 3 + row
        if state > end or (row != 0 and row != 4 * dim) or user_fault(buffer, state, end) != GOOD:
            users.known[user] = NOTHING
            damaged[count] = k
            count += 1
            continue
        read_state(users, user, buffer, state)
        users.known[user], users.at[user] = WHOLE, as_of
        for d in range(row // 4):
            users.rows[user, d] = np.uint32(get(buffer, first + 3 + 4 * d, 4)).view(np.float32)
    return count


def read_glances(
    users: GlanceArrays, which: I32, homes: I32, values: Sequence[bytes | None], at: I64
) -> I32:  # fmt: skip
    """Fill the users at `which`, of whom nothing is known, from the store's values; None: there is no such user.

    homes: the partition of each of `users`; at: the redo offset of the fence that was found in each partition. Return
    the places in `which` of those whose value is damaged: they stay as unknown as they were.
    """
    sizes = np.fromiter([-1 if value is None else len(value) for value in values], np.int64, len(values))
    buffer: U8 = np.frombuffer(bytearray().join([value for value in values if value]), np.uint8)
    assert len(sizes) == len(which), "a value for each"
    damaged = np.empty(len(which), np.int32)
    return damaged[: _read_glances(users, which, homes, buffer, sizes, at, damaged)]


def read_operations(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the operations one by one: code, user, number of a block (or 0), value (or none)."""
    at = 0
    while at < len(data):
        code, user = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        number, value = 0, b""
        if code in (PUT, DROP):
            (number,) = _NUMBER.unpack_from(data, at)
            at += _NUMBER.size
        if code in (SET, PUT, KEEP):
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            value, at = data[at + 4 : end], end
        yield code, user, number, value


def warm() -> None:
    """Compile what writes operations, and what reads users' values."""
    one, no_bytes = np.zeros(1, np.uint64), np.zeros(0, np.uint8)
    starts, flags = np.zeros(2, np.int64), np.zeros(1, np.uint8)
    ledger_operations(one, np.zeros(1, np.int32), flags, starts, no_bytes)
    user_operations(one, flags, starts, no_bytes, np.zeros((0, 2), np.float32), np.zeros((1, 2), np.int32))
    zero = np.zeros(1, np.int32)
    read_glances(glance_arrays(1, 2, SessionRules()), zero, zero, [None], np.zeros(1, np.int64))
