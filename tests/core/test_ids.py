"""saros.core.ids against published vectors and its slow twin."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saros.core import ids
from saros.core.jit import U64
from tests.naive import ids as naive

WORDS = st.integers(0, 2**64 - 1)

# SipHash-2-4 of the bytes 00 01 .. n-1 under the key 00 .. 0f, as the packages siphash24 1.9 and siphashc 2.9.1 give
# them; 15 bytes is the example of the SipHash paper's appendix.
VECTORS = {
    0: 0x726FDB47DD0E0E31,
    1: 0x74F839C593DC67FD,
    7: 0xAB0200F58B01D137,
    8: 0x93F5F5799A932462,
    9: 0x9E0082DF0BA9E4B0,
    15: 0xA129CA6149BE45E5,
    16: 0x3F2ACC7F57C29BDB,
    63: 0x958A324CEB064572,
}


def key_of(k0: int, k1: int) -> U64:
    """A key of two words."""
    return np.array([k0, k1], np.uint64)


@pytest.mark.parametrize(("length", "expected"), VECTORS.items())
def test_siphash_gives_the_published_vectors(length: int, expected: int) -> None:
    key = np.frombuffer(bytes(range(16)), "<u8").astype(np.uint64)
    message = np.arange(length, dtype=np.uint8)
    assert ids.hash_spans(key, message, np.array([0]), np.array([length])).tolist() == [expected]
    assert naive.siphash(int(key[0]), int(key[1]), bytes(range(length))) == expected


@given(k0=WORDS, k1=WORDS, data=st.data(), buffer=st.binary(max_size=80))
def test_every_span_of_a_buffer_hashes_as_the_twin_says(k0: int, k1: int, data: st.DataObject, buffer: bytes) -> None:
    bound = st.integers(0, len(buffer))
    spans = [(min(a, b), max(a, b)) for a, b in data.draw(st.lists(st.tuples(bound, bound), max_size=20))]
    starts = np.array([start for start, _ in spans], np.int64)
    ends = np.array([end for _, end in spans], np.int64)
    hashes = ids.hash_spans(key_of(k0, k1), np.frombuffer(buffer, np.uint8), starts, ends)
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == [naive.siphash(k0, k1, buffer[start:end]) for start, end in spans]


SHORT_SPANS = """
import numpy as np
from saros.core import ids
spans = np.array([(start, end) for end in range(20) for start in range(end + 1)])
starts, ends = spans.T.copy()
print(*ids.hash_spans(np.array([3, 4], np.uint64), np.arange(1, 20, dtype=np.uint8), starts, ends).tolist())
"""


def test_short_spans_at_the_start_of_a_buffer_do_not_read_before_it(tmp_path: Path) -> None:
    # The tail of a span is read as eight bytes that end with it, unless the buffer starts later than that. A byte too
    # early would be shifted out and never show: here numba checks every index. (Its cache knows no such difference.)
    checking = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    printed = subprocess.run([sys.executable, "-c", SHORT_SPANS], env=checking, capture_output=True, check=True).stdout
    spans = [(start, end) for end in range(20) for start in range(end + 1)]
    message = bytes(range(1, 20))
    assert list(map(int, printed.split())) == [naive.siphash(3, 4, message[start:end]) for start, end in spans]


@given(k0=WORDS, k1=WORDS, texts=st.lists(st.text(max_size=30), max_size=20))
def test_texts_hash_as_their_utf8_bytes(k0: int, k1: int, texts: list[str]) -> None:
    expected = [naive.siphash(k0, k1, text.encode()) for text in texts]
    assert ids.hash_texts(key_of(k0, k1), texts).tolist() == expected


def test_a_text_without_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        ids.hash_texts(key_of(0, 0), ["\ud800"])


@given(WORDS)
@example(2**64 - 1)
def test_splitmix64_and_derived_keys_equal_the_twin(seed: int) -> None:
    assert ids.splitmix64(np.uint64(seed)) == naive.splitmix64(seed)
    following = (seed + 0x9E3779B97F4A7C15) % 2**64
    assert ids.derive_key(seed).tolist() == [naive.splitmix64(seed), naive.splitmix64(following)]


def test_derived_keys_are_the_published_splitmix64_sequence() -> None:
    assert ids.derive_key(0).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    assert ids.derive_key(1234567).tolist() == [6457827717110365317, 3203168211198807973]


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_outside_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="seed"):
        ids.derive_key(seed)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (2, 1), (0, 11), (11, 11), (-(2**63), 2**63 - 1)])
def test_a_span_outside_the_buffer_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="span 1 is"):
        ids.hash_spans(key_of(0, 0), np.zeros(10, np.uint8), np.array([0, start]), np.array([10, end]))


def test_arrays_of_the_wrong_kind_are_refused() -> None:
    key, buffer, at = key_of(0, 0), np.zeros(10, np.uint8), np.array([0, 1])
    with pytest.raises(ValueError, match="two words"):
        ids.hash_spans(np.zeros(3, np.uint64), buffer, at, at)
    with pytest.raises(ValueError, match="key must be a contiguous one-dimensional uint64"):
        ids.hash_spans(key.astype(np.int64), buffer, at, at)
    with pytest.raises(ValueError, match="buffer must be"):
        ids.hash_spans(key, buffer[::2], at, at)
    with pytest.raises(ValueError, match="starts must be"):
        ids.hash_spans(key, buffer, at.reshape(1, 2), at)
    with pytest.raises(ValueError, match="ends must be"):
        ids.hash_spans(key, buffer, at, at.astype(np.int32))
    with pytest.raises(ValueError, match="one length"):
        ids.hash_spans(key, buffer, at, at[:1])
