"""Partitions are those that Kafka's own clients choose."""

import numpy as np
import pytest

from saros.wire.partitions import murmur2, partitions_of

# From Kafka's own test of Utils.murmur2.
KAFKA = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize("text", KAFKA)
def test_murmur2_is_kafka_s(text: str) -> None:
    assert murmur2([text]).astype(np.int32).tolist() == [KAFKA[text]]


def test_texts_do_not_see_each_other() -> None:
    assert murmur2(list(KAFKA)).astype(np.int32).tolist() == list(KAFKA.values())


def test_partitions_drop_the_sign_bit() -> None:
    assert partitions_of(list(KAFKA), 7).tolist() == [(value & 0x7FFFFFFF) % 7 for value in KAFKA.values()]


def test_users_spread_evenly() -> None:
    sizes = np.bincount(partitions_of([f"user-{k}" for k in range(10_000)], 4))
    assert sizes.min() > 2300
    assert sizes.max() < 2700
