"""Ids: text of any length becomes a 64-bit keyed hash, once, where it enters the core.

SipHash-2-4 (Aumasson and Bernstein, 2012) under a key that stands in genesis, so that nobody outside can choose ids
that collide; SplitMix64 (Steele, Lea and Flood, 2014) wherever a number must be spread over 64 bits.

Invariants: the same key and bytes give the same hash on every machine; a hash never depends on the bytes around its
span; no byte outside the buffer is read. All arithmetic is uint64 with uint64 constants: numba turns int64 mixed with
uint64 into float64.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saros.core.jit import I64, U8, U64, kernel

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

_SIP_0 = np.uint64(0x736F6D6570736575)  # "somepseudorandomlygeneratedbytes", as the standard has it
_SIP_1 = np.uint64(0x646F72616E646F6D)
_SIP_2 = np.uint64(0x6C7967656E657261)
_SIP_3 = np.uint64(0x7465646279746573)

_SEED_END = 1 << 64


@kernel
def splitmix64(x: np.uint64) -> np.uint64:
    """Return the SplitMix64 output that follows state x (uint64 to uint64, a bijection)."""
    z = np.uint64(x) + _GAMMA
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@kernel
def _rotate(x: np.uint64, bits: int) -> np.uint64:
    """Rotate a uint64 left by 1 to 63 bits."""
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@kernel
def _round(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Apply one SipRound to the four uint64 words of the state."""
    v0 += v1
    v2 += v3
    v1 = _rotate(v1, 13) ^ v0
    v3 = _rotate(v3, 16) ^ v2
    v0 = _rotate(v0, 32)
    v2 += v1
    v0 += v3
    v1 = _rotate(v1, 17) ^ v2
    v3 = _rotate(v3, 21) ^ v0
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


@kernel
def _word(buffer: U8, at: np.uint64) -> np.uint64:
    """Read buffer[at : at + 8] (uint8[:], contiguous) as one little-endian uint64."""
    # LLVM folds these eight loads into one unaligned load; the unsigned index spares the test for negative ones.
    low = (
        np.uint64(buffer[at])
        | np.uint64(buffer[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(buffer[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(buffer[at + np.uint64(3)]) << np.uint64(24)
    )
    high = (
        np.uint64(buffer[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(buffer[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(buffer[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(buffer[at + np.uint64(7)]) << np.uint64(56)
    )
    return low | high


@kernel
def _tail(buffer: U8, end: np.uint64, count: np.uint64) -> np.uint64:
    """Read the `count` (0 to 7) bytes before `end` (uint8[:], contiguous) as one little-endian uint64."""
    word = np.uint64(0)
    left = count
    if end >= np.uint64(8):
        # One load that starts before the span: it stays inside the buffer, and the shifts drop what is not ours.
        word = _word(buffer, end - np.uint64(8)) >> np.uint64(8) >> (np.uint64(56) - (count << np.uint64(3)))
        left = np.uint64(0)
    for back in range(left):
        word = (word << np.uint64(8)) | np.uint64(buffer[end - np.uint64(back) - np.uint64(1)])
    return word


@kernel
def siphash(k0: np.uint64, k1: np.uint64, buffer: U8, start: int, end: int) -> np.uint64:
    """Return the SipHash-2-4 of buffer[start:end] under the key (k0, k1).

    k0, k1: uint64; buffer: uint8[:], contiguous; 0 <= start <= end <= len(buffer), checked by the caller.
    """
    v0 = k0 ^ _SIP_0
    v1 = k1 ^ _SIP_1
    v2 = k0 ^ _SIP_2
    v3 = k1 ^ _SIP_3
    at = np.uint64(start)
    length = np.uint64(end) - at
    for _ in range(length >> np.uint64(3)):
        word = _word(buffer, at)
        at += np.uint64(8)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    word = length << np.uint64(56)
    word |= _tail(buffer, np.uint64(end), length & np.uint64(7))
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xFF)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@kernel
def _hash_spans(key: U64, buffer: U8, starts: I64, ends: I64, hashes: U64) -> int:
    """Fill hashes[i] with the SipHash of span i; return the first span outside the buffer, or -1.

    key: uint64[2]; buffer: uint8[:]; starts, ends: int64[n]; hashes: uint64[n].
    """
    for i in range(len(starts)):
        if starts[i] < 0 or starts[i] > ends[i] or ends[i] > len(buffer):
            return i
        hashes[i] = siphash(key[0], key[1], buffer, starts[i], ends[i])
    return -1


@kernel
def _fill_splitmix(seed: U64, outputs: U64) -> None:
    """Fill outputs (uint64[n]) with the first n SplitMix64 outputs of seed (uint64[1])."""
    state = seed[0]
    for i in range(len(outputs)):
        outputs[i] = splitmix64(state)
        state += _GAMMA


def _check(name: str, array: NDArray[np.generic], dtype: type[np.generic]) -> None:
    """Refuse what is not a contiguous one-dimensional array of this dtype."""
    if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} must be a contiguous one-dimensional {dtype.__name__} array, "
            f"not {array.dtype} of shape {array.shape}"
        )


def hash_spans(key: U64, buffer: U8, starts: I64, ends: I64) -> U64:
    """Return the SipHash-2-4 of each buffer[starts[i]:ends[i]] under a key of two words."""
    _check("key", key, np.uint64)
    _check("buffer", buffer, np.uint8)
    _check("starts", starts, np.int64)
    _check("ends", ends, np.int64)
    if len(key) != 2:
        raise ValueError(f"key must have two words, not {len(key)}")
    if len(starts) != len(ends):
        raise ValueError(f"starts and ends must be of one length, not {len(starts)} and {len(ends)}")
    hashes = np.empty(len(starts), np.uint64)
    wrong = _hash_spans(key, buffer, starts, ends, hashes)
    if wrong >= 0:
        raise ValueError(
            f"span {wrong} is [{starts[wrong]}, {ends[wrong]}), which does not lie in a buffer of {len(buffer)} bytes"
        )
    return hashes


def joined(values: Sequence[bytes]) -> tuple[U8, I64]:
    """Return all values end to end, and the n + 1 places where they meet."""
    bounds = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=bounds[1:])
    return np.frombuffer(bytearray().join(values), np.uint8), bounds


def hash_texts(key: U64, texts: Sequence[str]) -> U64:
    """Return the SipHash-2-4 of each text's UTF-8 bytes; for offline use."""
    buffer, bounds = joined([text.encode() for text in texts])
    return hash_spans(key, buffer, bounds[:-1], bounds[1:])


def derive_key(seed: int) -> U64:
    """Return a hash key: the first two SplitMix64 outputs of a seed below 2**64."""
    if not 0 <= seed < _SEED_END:
        raise ValueError(f"seed must lie in [0, 2**64), not {seed}")
    key = np.empty(2, np.uint64)
    _fill_splitmix(np.array([seed], np.uint64), key)
    return key
