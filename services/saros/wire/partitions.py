"""Which Kafka partition a user's events go to: murmur2 of the user id, as Kafka's own clients hash keys.

The hash is Kafka's `Utils.murmur2` (seed 0x9747b28c), its sign bit dropped, modulo the number of partitions.
"""

from collections.abc import Sequence

import numpy as np

from saros.core.ids import joined
from saros.core.jit import I32, I64, U8, U32, kernel

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)


@kernel
def murmur2_of(buffer: U8, start: int, end: int) -> np.uint32:
    """Return the hash of buffer[start:end]. Numba widens uint32 to 64 bits, so every product is cut back."""
    h = np.uint32(_SEED ^ np.uint32(end - start))
    at = start
    while end - at >= 4:
        k = np.uint32(0)
        for byte in range(4):
            k |= np.uint32(buffer[at + byte]) << np.uint32(8 * byte)
        k = np.uint32(k * _M)
        k = np.uint32(np.uint32(k ^ (k >> np.uint32(24))) * _M)
        h = np.uint32(np.uint32(h * _M) ^ k)
        at += 4
    if at < end:
        for byte in range(end - at):
            h ^= np.uint32(buffer[at + byte]) << np.uint32(8 * byte)
        h = np.uint32(h * _M)
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * _M)
    return np.uint32(h ^ (h >> np.uint32(15)))


@kernel
def _murmur2_all(buffer: U8, bounds: I64, hashes: U32) -> None:
    """Hash the texts that stand one after the other in a buffer."""
    for k in range(hashes.shape[0]):
        hashes[k] = murmur2_of(buffer, bounds[k], bounds[k + 1])


def _murmur2_in(buffer: U8, bounds: I64) -> U32:
    hashes = np.zeros(len(bounds) - 1, np.uint32)
    _murmur2_all(buffer, bounds, hashes)
    return hashes


def murmur2(texts: Sequence[str]) -> U32:
    """Return the hash of each text's UTF-8 bytes."""
    return _murmur2_in(*joined([text.encode() for text in texts]))


def homes_of(buffer: U8, bounds: I64, partitions: int) -> I32:
    """Return the partition of each user id: id k is the UTF-8 bytes from bounds[k] to bounds[k + 1] of a buffer."""
    return ((_murmur2_in(buffer, bounds) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)


def partitions_of(texts: Sequence[str], partitions: int) -> I32:
    """Return the partition of each user id."""
    return homes_of(*joined([text.encode() for text in texts]), partitions)
