"""What the byte formats of users, blocks and partitions share: version 1, little-endian, variable length.

Reading checks every length and range before it writes anything; bytes that do not fit are a ValueError that says which
one and why. Formats: `saros.core.codec_users`, `saros.core.codec_blocks`, and the partition's below.
"""

import struct
import sys

import numpy as np

from saros.core.gate import BINS, DAYS, GateState
from saros.core.jit import I64, U8, as_int, kernel
from saros.core.timeline import Timeline

assert sys.byteorder == "little", "rows and columns are stored as they stand in memory"

VERSION = 1
WEIGHTED = 8  # a flag of users and blocks: weights other than 1 follow

# What can be wrong with bytes; kernels answer with the index.
GOOD, BAD_VERSION, BAD_LENGTH, BAD_COUNT, BAD_VALUE, BAD_ROW, BAD_FOLD = 0, 1, 2, 3, 4, 5, 6
_FAULTS = (
    "", "is not of format version 1", "has the wrong length", "has more items than any set may hold",
    "has times, numbers or weights out of range", "has a row of another dimension", "has a product beyond ±64",
)  # fmt: skip


@kernel
def put(buffer: U8, at: int, value: np.uint64, size: int) -> int:
    """Write the low bytes of a value; return where the next one goes."""
    # An unsigned index spares the test for negative ones, and the bytes become one store: a tenth of the time.
    first = np.uint64(at)
    for k in range(size):
        buffer[first + np.uint64(k)] = (value >> np.uint64(8 * k)) & np.uint64(255)
    return at + size


@kernel
def get(buffer: U8, at: int, size: int) -> np.uint64:
    """Read an unsigned value."""
    value = np.uint64(0)
    for k in range(size):
        value |= np.uint64(buffer[at + k]) << np.uint64(8 * k)
    return value


@kernel
def get_i32(buffer: U8, at: int) -> int:
    """Read a signed 32-bit value."""
    return as_int(np.int32(np.uint32(get(buffer, at, 4))))


@kernel
def ones(mask: int) -> int:
    """Count the bits of a byte."""
    total = 0
    for k in range(8):
        total += (mask >> k) & 1
    return total


def refuse(what: str, index: int, fault: int) -> None:
    """Raise ValueError for the user or block that could not be read."""
    if fault != GOOD:
        raise ValueError(f"{what} {index} {_FAULTS[fault]}")


def pieces(data: bytes | U8, starts: I64, count: int) -> U8:
    """Return the bytes as a column that kernels take; ValueError unless starts cut it into so many pieces, in order."""
    buffer = (
        np.frombuffer(bytearray(data), np.uint8) if isinstance(data, bytes) else np.require(data, np.uint8, ["C", "W"])
    )
    if len(starts) != count + 1 or starts[0] != 0 or starts[-1] != len(buffer) or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"offsets of {count} pieces must rise from 0 to the buffer's length")
    return buffer


_PARTITION = struct.Struct("<B3xIqqq")  # version, bins that follow, watermark, b, B
_BIN = np.dtype([("place", "<u2"), ("users", "<i4")])


def pack_partition(timeline: Timeline, state: GateState) -> bytes:
    """Return a partition's watermark, bounds and histogram (only bins in use) as bytes."""
    flat = state.users.reshape(-1)
    places = np.flatnonzero(flat)
    bins = np.empty(len(places), _BIN)
    bins["place"], bins["users"] = places, flat[places]
    head = _PARTITION.pack(VERSION, len(places), int(timeline.at[0]), *map(int, state.bounds))
    return head + state.day.tobytes() + state.total.tobytes() + bins.tobytes()


def unpack_partition(data: bytes, timeline: Timeline, state: GateState) -> None:
    """Set a partition's watermark, bounds and histogram from bytes."""
    fixed = _PARTITION.size + 12 * DAYS
    if len(data) < fixed:
        refuse("partition state", 0, BAD_LENGTH)
    version, count, watermark, low, high = _PARTITION.unpack_from(data)
    if version != VERSION:
        refuse("partition state", 0, BAD_VERSION)
    if len(data) != fixed + count * _BIN.itemsize:
        refuse("partition state", 0, BAD_LENGTH)
    days = np.frombuffer(data, np.int32, DAYS, _PARTITION.size)
    totals = np.frombuffer(data, np.int64, DAYS, _PARTITION.size + 4 * DAYS)
    bins = np.frombuffer(data, _BIN, count, fixed)
    sane = watermark >= -1 and low >= 1 and high >= 1 and (days >= 0).all() and (totals >= 0).all()
    if not sane or (bins["place"] >= DAYS * BINS).any() or (bins["users"] <= 0).any():
        refuse("partition state", 0, BAD_VALUE)
    timeline.at[0] = watermark
    state.bounds[:] = low, high
    state.day[:], state.total[:], state.users[:] = days, totals, 0
    state.users.reshape(-1)[bins["place"]] = bins["users"]


def bounds_of(data: bytes) -> tuple[int, int]:
    """Return b and B in force out of a partition's bytes."""
    if len(data) < _PARTITION.size:
        refuse("partition state", 0, BAD_LENGTH)
    version, _, _, low, high = _PARTITION.unpack_from(data)
    if version != VERSION:
        refuse("partition state", 0, BAD_VERSION)
    return low, high
