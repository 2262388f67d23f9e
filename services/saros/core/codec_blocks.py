"""Blocks to and from bytes, as a ledger and a redo record hold them.

Header of 20 bytes: version u8, flags u8, negatives u16, positives u16, row u16 (0 or d), time i64, number i32. Then the
user row f32 (absent while a block waits and has not moved it), the items u64, negatives first, and per item its
coefficient f32 if the block was added or is taken back, else its weight u16 where flagged.
"""

from typing import NamedTuple

import numpy as np

from saros.core.codec import (
    BAD_COUNT,
    BAD_FOLD,
    BAD_LENGTH,
    BAD_ROW,
    BAD_VALUE,
    BAD_VERSION,
    GOOD,
    VERSION,
    WEIGHTED,
    get,
    get_i32,
    pieces,
    put,
    refuse,
)
from saros.core.codec_users import WEIGHT_LIMIT
from saros.core.events import TIME_MAX_MS, WEIGHT_ONE
from saros.core.gate import ENTRY_BYTES
from saros.core.jit import F32, I32, I64, U8, U16, U64, as_int, kernel, line_zeros
from saros.core.ledger import Ledger, LedgerArrays, append, forget
from saros.core.settle import MOVE, STORED, Blocks

_ADDED, _MOVED = 1, 2  # flags
_COUNT_MAX = 2048  # items of a block
_REACH_MAX = 64.0  # of |coef · u|, in a block that can be folded


@kernel
def _shape(blocks: Blocks, b: int) -> tuple[int, int, int]:
    """Return (flags, row width, length) of block b's bytes."""
    first, count = blocks.start[b], blocks.negatives[b] + blocks.positives[b]
    added, moved = blocks.sign[b] != 0, blocks.flags[b] & (MOVE | STORED) != 0
    weighted = False
    for k in range(first, first + count):
        weighted |= blocks.weights[k] != WEIGHT_ONE
    weighted = weighted and not added
    width = blocks.rows.shape[1] if added or moved else 0
    flags = (_ADDED if added else 0) | (_MOVED if moved else 0) | (WEIGHTED if weighted else 0)
    return flags, width, ENTRY_BYTES + 4 * width + (12 if added else (10 if weighted else 8)) * count


@kernel
def _measure(blocks: Blocks, which: I64, starts: I64) -> None:
    """Fill starts [n + 1] with where each block's bytes begin."""
    for k in range(which.shape[0]):
        starts[k + 1] = starts[k] + _shape(blocks, which[k])[2]


@kernel
def _write(blocks: Blocks, which: I64, buffer: U8, starts: I64) -> None:
    """Write the given blocks one after another."""
    for k in range(which.shape[0]):
        b, at = which[k], starts[k]
        flags, width, _ = _shape(blocks, b)
        first, end = blocks.start[b], blocks.start[b] + blocks.negatives[b] + blocks.positives[b]
        at = put(buffer, at, np.uint64(VERSION), 1)
        at = put(buffer, at, np.uint64(flags), 1)
        at = put(buffer, at, np.uint64(blocks.negatives[b]), 2)
        at = put(buffer, at, np.uint64(blocks.positives[b]), 2)
        at = put(buffer, at, np.uint64(width), 2)
        at = put(buffer, at, np.uint64(blocks.time_ms[b]), 8)
        at = put(buffer, at, np.uint64(blocks.number[b]), 4)
        for d in range(width):
            at = put(buffer, at, np.uint64(np.float32(blocks.rows[b, d]).view(np.uint32)), 4)
        for i in range(first, end):
            at = put(buffer, at, blocks.items[i], 8)
        for i in range(first, end):
            if flags & _ADDED:
                at = put(buffer, at, np.uint64(np.float32(blocks.coefs[i]).view(np.uint32)), 4)
            elif flags & WEIGHTED:
                at = put(buffer, at, np.uint64(blocks.weights[i]), 2)


def pack_blocks(blocks: Blocks, which: I64) -> tuple[U8, I64]:
    """Return the given blocks in one buffer, and where each begins (n + 1 offsets)."""
    starts = np.zeros(len(which) + 1, np.int64)
    _measure(blocks, which, starts)
    buffer = np.zeros(int(starts[-1]), np.uint8)
    _write(blocks, which, buffer, starts)
    return buffer, starts


@kernel
def _get_f32(buffer: U8, at: int) -> np.float32:
    """Read a float32."""
    return np.uint32(get(buffer, at, 4)).view(np.float32)


@kernel
def _values_fault(buffer: U8, at: int, width: int, count: int, flags: int) -> int:
    """Check rows and coefficients (finite, and their products within what a fold takes) or weights."""
    reach, largest = 0.0, 0.0
    for d in range(width):
        value = abs(np.float64(_get_f32(buffer, at + 4 * d)))
        reach = max(reach, value)
        if not np.isfinite(value):
            return BAD_FOLD
    at += 4 * width + 8 * count
    for k in range(count):
        if flags & _ADDED:
            value = abs(np.float64(_get_f32(buffer, at + 4 * k)))
            largest = max(largest, value)
            if not np.isfinite(value):
                return BAD_FOLD
        elif flags & WEIGHTED and not 1 <= get(buffer, at + 2 * k, 2) <= WEIGHT_LIMIT:
            return BAD_VALUE
    return GOOD if reach * largest <= _REACH_MAX * 1.001 else BAD_FOLD


@kernel
def _fault(buffer: U8, first: int, end: int, dim: int) -> int:
    """Return what is wrong with one block's bytes, or GOOD."""
    if end - first < ENTRY_BYTES:
        return BAD_LENGTH
    if buffer[first] != VERSION:
        return BAD_VERSION
    flags, width = as_int(buffer[first + 1]), as_int(get(buffer, first + 6, 2))
    negatives, positives = as_int(get(buffer, first + 2, 2)), as_int(get(buffer, first + 4, 2))
    count = negatives + positives
    if negatives < 1 or positives < 1 or count > _COUNT_MAX:
        return BAD_COUNT
    if flags & ~(_ADDED | _MOVED | WEIGHTED) or (flags & _ADDED and flags & WEIGHTED):
        return BAD_VALUE
    if width != (dim if flags & (_ADDED | _MOVED) else 0):
        return BAD_ROW
    each = 12 if flags & _ADDED else (10 if flags & WEIGHTED else 8)
    if end - first != ENTRY_BYTES + 4 * width + each * count:
        return BAD_LENGTH
    if not 0 <= as_int(get(buffer, first + 8, 8)) <= TIME_MAX_MS or get_i32(buffer, first + 16) < 0:
        return BAD_VALUE
    return _values_fault(buffer, first + ENTRY_BYTES, width, count, flags)


@kernel
def _first_fault(buffer: U8, starts: I64, dim: int, ordered: bool) -> tuple[int, int]:
    """Return (index, fault) of the first block that cannot be read or is out of order, or (-1, GOOD)."""
    before = -1
    for k in range(starts.shape[0] - 1):
        if not ordered and starts[k] == starts[k + 1]:
            continue
        fault = _fault(buffer, starts[k], starts[k + 1], dim)
        if ordered and fault == GOOD and get_i32(buffer, starts[k] + 16) <= before:
            fault = BAD_VALUE
        if fault != GOOD:
            return k, fault
        before = get_i32(buffer, starts[k] + 16)
    return -1, GOOD


@kernel
def _read(ledger: LedgerArrays, user: int, buffer: U8, starts: I64, items: U64, weights: U16) -> None:
    """Fill a user's empty ledger with blocks that have no fault; items and weights are room for one block."""
    for k in range(starts.shape[0] - 1):
        first = starts[k]
        flags, width = buffer[first + 1], as_int(get(buffer, first + 6, 2))
        negatives, positives = as_int(get(buffer, first + 2, 2)), as_int(get(buffer, first + 4, 2))
        at = first + ENTRY_BYTES + 4 * width
        values = at + 8 * (negatives + positives)
        for i in range(negatives + positives):
            items[i] = get(buffer, at + 8 * i, 8)
            weights[i] = get(buffer, values + 2 * i, 2) if flags & WEIGHTED else WEIGHT_ONE
        number, time_ms = get_i32(buffer, first + 16), as_int(get(buffer, first + 8, 8))
        sign, moved = as_int(flags & _ADDED != 0), flags & _MOVED != 0
        entry = append(ledger, user, number, time_ms, sign, moved, negatives, positives, items, weights, 0)
        for d in range(width):
            ledger.rows[entry, d] = _get_f32(buffer, first + ENTRY_BYTES + 4 * d)
        if flags & _ADDED:
            for i in range(negatives + positives):
                ledger.coefs[ledger.start[entry] + i] = _get_f32(buffer, values + 4 * i)


def unpack_ledger(ledger: Ledger, user: int, data: bytes | U8, starts: I64) -> None:
    """Replace a user's ledger in memory by blocks in ascending number."""
    buffer = pieces(data, starts, len(starts) - 1)
    refuse("block", *_first_fault(buffer, starts, ledger.arrays.rows.shape[1], True))
    ledger.reserve(0, len(starts) - 1, len(buffer) // 8)
    forget(ledger.arrays, np.array([user], np.int32))
    _read(ledger.arrays, user, buffer, starts, np.zeros(_COUNT_MAX, np.uint64), np.zeros(_COUNT_MAX, np.uint16))


class Unpacked(NamedTuple):
    """Columns of n blocks with m items, as `SignedBlocks` takes them once its items have slots."""

    number: I32
    time_ms: I64
    start: I64
    negatives: I32
    positives: I32
    rows: F32  # [n, d]
    items: U64  # [m]
    coefs: F32  # [m] 0 where a block was not added


@kernel
def _count_items(buffer: U8, starts: I64, out: Unpacked) -> int:
    """Fill in where the items of each block will stand, and return how many there are."""
    total = 0
    for k in range(starts.shape[0] - 1):
        out.start[k] = total
        if starts[k] < starts[k + 1]:
            out.negatives[k] = as_int(get(buffer, starts[k] + 2, 2))
            out.positives[k] = as_int(get(buffer, starts[k] + 4, 2))
            total += out.negatives[k] + out.positives[k]
    return total


@kernel
def _fill(buffer: U8, starts: I64, out: Unpacked) -> None:
    """Fill the other columns."""
    for k in range(starts.shape[0] - 1):
        if starts[k] == starts[k + 1]:
            continue
        first, count = starts[k], out.negatives[k] + out.positives[k]
        flags, width = buffer[first + 1], as_int(get(buffer, first + 6, 2))
        out.time_ms[k], out.number[k] = as_int(get(buffer, first + 8, 8)), get_i32(buffer, first + 16)
        at = first + ENTRY_BYTES
        for d in range(width):
            out.rows[k, d] = _get_f32(buffer, at + 4 * d)
        at += 4 * width
        for i in range(count):
            out.items[out.start[k] + i] = get(buffer, at + 8 * i, 8)
            if flags & _ADDED:
                out.coefs[out.start[k] + i] = _get_f32(buffer, at + 8 * count + 4 * i)


def unpack_blocks(data: bytes | U8, starts: I64, dim: int) -> Unpacked:
    """Return blocks of any users as columns; one of no bytes is a block of no items."""
    n = len(starts) - 1
    buffer = pieces(data, starts, n)
    refuse("block", *_first_fault(buffer, starts, dim, False))
    zeros = np.zeros
    out = Unpacked(
        number=zeros(n, np.int32),
        time_ms=zeros(n, np.int64),
        start=zeros(n, np.int64),
        negatives=zeros(n, np.int32),
        positives=zeros(n, np.int32),
        rows=line_zeros((n, dim), np.float32),
        items=zeros(0, np.uint64),
        coefs=zeros(0, np.float32),
    )
    count = _count_items(buffer, starts, out)
    out = out._replace(items=zeros(count, np.uint64), coefs=zeros(count, np.float32))
    _fill(buffer, starts, out)
    return out
