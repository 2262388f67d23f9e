"""Fences: how far a fold of the log has come in one partition.

A fence is (log id, redo offset, next, nonce): the last offset that was read, the input offset that the next accepted
record has to begin at, and the nonce of the last accepted one. It is always stored and never derived from the record at
that offset, which may be one that was rejected (rule 4). With the id of its log no fence of another log is ever taken
for one of ours, not even where both stand at their beginning (rule 38).
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

_FENCE = struct.Struct("<QqqQ")
FENCE_BYTES = _FENCE.size


class Fence(NamedTuple):
    """How far a fold has come."""

    log_id: int  # never 0: a fence of no log is the mark of a rebase
    offset: int  # of the redo partition, the last one read; -1: none
    next: int  # of the events' partition
    nonce: int  # of the last accepted record; 0: none yet

    def pack(self) -> bytes:
        """Return the fence as it is stored."""
        return _FENCE.pack(*self)


def unpack_fence(data: bytes) -> Fence:
    """Return a stored fence; what follows it in `data` is not looked at."""
    return Fence(*_FENCE.unpack_from(data))


def pack_vector(fences: Sequence[Fence]) -> bytes:
    """Return the fences of all partitions, as a shard of items stores them."""
    return b"".join(fence.pack() for fence in fences)


def unpack_vector(data: bytes, partitions: int) -> list[Fence]:
    """Return a stored vector; ValueError unless it has so many fences."""
    if len(data) != partitions * FENCE_BYTES:
        raise ValueError(f"a vector of {len(data)} bytes has not {partitions} fences")
    return [Fence(*values) for values in _FENCE.iter_unpack(data)]
