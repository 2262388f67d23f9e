"""Operations of several records as one: what a later one overwrites is left out, and each user's stand together.

A store that is behind has less to do so, and its script one call where there were several. What comes out is again
operations (`saros.wire.operations`) and leaves a store as those that went in do, one after the other:

- of a user's values the last one stays; where it leaves the row as it is, it takes the row of the last that had one;
- of a ledger's entry the last word stays;
- what stands before a ledger's or a user's end goes with it.
"""

from typing import NamedTuple

import numpy as np

from saros.core import cells
from saros.core.cells import TableArrays
from saros.core.codec import get, put
from saros.core.jit import I32, I64, U8, U64, as_int, kernel
from saros.wire import operations
from saros.wire.operations import CLEAR, DROP, ERASE, KEEP, PUT, SET, copy

_HEAD, _NUMBER, _LENGTH = 9, 4, 4
_NONE = -1


class _Index(NamedTuple):
    """Operations as they were found: those of each user are a chain, from the last to the first."""

    at: I64  # [n + 1] where each begins
    before: I32  # [n] the one before it in its chain
    last: I32  # [users] where each chain begins; users in the order of their first operation


@kernel
def _end_of(data: U8, at: int) -> int:
    """Return where the operation at `at` ends."""
    code = data[at]
    at += _HEAD
    if code == PUT or code == DROP:
        at += _NUMBER
    if code == SET or code == PUT or code == KEEP:
        at += _LENGTH + as_int(get(data, at, 4))
    return at


@kernel
def _count(data: U8) -> int:
    """Return how many operations there are."""
    at = count = 0
    while at < len(data):
        at = _end_of(data, at)
        count += 1
    return count


@kernel
def _chain(data: U8, users: TableArrays, index: _Index) -> int:
    """Fill the index; return how many users there are."""
    at, found = 0, 0
    for k in range(len(index.before)):
        index.at[k] = at
        key = get(data, at + 1, 8)
        cell = cells.locate(users, key)
        slot = as_int(users.cells[cell, 1]) - 1
        if slot < 0:
            slot, found = found, found + 1
            users.cells[cell, 0], users.cells[cell, 1] = key, np.uint64(found)
            index.last[slot] = _NONE
        index.before[k], index.last[slot] = index.last[slot], k
        at = _end_of(data, at)
    index.at[len(index.before)] = at
    return found


@kernel
def _is_new(entries: TableArrays, user: int, number: np.uint64) -> bool:
    """Note an entry of a user's ledger; True if it was not noted before."""
    key = (np.uint64(user) << np.uint64(32)) | number
    cell = cells.locate(entries, key)
    new = entries.cells[cell, 1] == 0
    entries.cells[cell, 0], entries.cells[cell, 1] = key, np.uint64(1)
    return bool(new)


@kernel
def _write_value(out: U8, to: int, data: U8, index: _Index, value: int, row: int) -> int:
    """Write a user's last value, with the row of another one where it has none."""
    first, end = index.at[value], index.at[value + 1]
    if data[first] == SET or row == _NONE:
        return copy(out, to, data, first, end)
    behind = _HEAD + _LENGTH
    begin = index.at[row] + behind + 1
    row_end = begin + 2 + as_int(get(data, begin, 2))
    length = (end - first - behind) + (row_end - begin)
    to = put(out, to, np.uint64(SET), 1)
    to = copy(out, to, data, first + 1, first + _HEAD)
    to = put(out, to, np.uint64(length), _LENGTH)
    to = copy(out, to, data, first + behind, first + behind + 1)
    to = copy(out, to, data, begin, row_end)
    return copy(out, to, data, first + behind + 1, end)


@kernel
def _write_user(out: U8, to: int, data: U8, index: _Index, entries: TableArrays, user: int) -> int:
    """Write what is left of a user's operations; return where it ends."""
    value = row = wiped = _NONE
    k = index.last[user]
    while k != _NONE and (wiped == _NONE or data[index.at[wiped]] != ERASE):
        code = data[index.at[k]]
        if code == CLEAR or code == ERASE:
            wiped = k
        elif code == SET or code == KEEP:
            value = k if value == _NONE else value
            row = k if row == _NONE and code == SET else row
        k = index.before[k]
    if wiped != _NONE:
        to = copy(out, to, data, index.at[wiped], index.at[wiped + 1])
    k = index.last[user]
    while k != _NONE:
        code = data[index.at[k]]
        if code == CLEAR or code == ERASE:
            break
        if (code == PUT or code == DROP) and _is_new(entries, user, get(data, index.at[k] + _HEAD, _NUMBER)):
            to = copy(out, to, data, index.at[k], index.at[k + 1])
        k = index.before[k]
    return to if value == _NONE else _write_value(out, to, data, index, value, row)


@kernel
def _write(out: U8, data: U8, index: _Index, entries: TableArrays, users: int) -> int:
    to = 0
    for user in range(users):
        to = _write_user(out, to, data, index, entries, user)
    return to


def _table(count: int) -> TableArrays:
    """Return an empty table of which only the cells are used."""
    bits = max(1, (2 * count - 1).bit_length())
    none: U64 = np.zeros(0, np.uint64)
    counters = np.zeros(cells.COUNTERS, np.int64)
    counters[cells.SHIFT] = 64 - bits
    little: I32 = np.zeros(0, np.int32)
    return TableArrays(np.zeros((1 << bits, 2), np.uint64), none, little, np.zeros(0, np.uint8), little, counters)


def coalesced(data: bytes) -> bytes:
    """Return operations that do the same; `data` was written by `saros.wire.operations`."""
    buffer = np.frombuffer(bytearray(data), np.uint8)
    count = _count(buffer)
    index = _Index(np.empty(count + 1, np.int64), np.empty(count, np.int32), np.empty(count, np.int32))
    users = _chain(buffer, _table(count), index)
    out = np.empty(len(buffer), np.uint8)
    end = _write(out, buffer, index, _table(count), users)
    return out[:end].tobytes()


def warm() -> None:
    """Compile what writes operations and what makes them one."""
    operations.warm()
    coalesced(b"")
