"""saros.core.rows: start rows are a pure function of (seed, key), to the bit, on every machine."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from saros.core.items import Items
from saros.core.rows import ONE, RowRules, live_rows, paper_rows, row_rules, start_item, start_user
from tests.naive import step as naive

KEYS = st.integers(0, 2**64 - 1)
SEEDS = st.integers(0, 2**63 - 1)
SCALES = st.floats(0, 8)


def item_row(rules: RowRules, key: int) -> list[int]:
    """The start row of an item, written over junk."""
    rows = np.full((3, rules.dim), 77, np.int32)
    start_item(rows, 1, np.uint64(key), rules)
    assert (rows[[0, 2]] == 77).all(), "the neighbours are not touched"
    return [int(word) for word in rows[1]]


def user_row(rules: RowRules, key: int) -> list[float]:
    """The start row of a user, written over junk."""
    rows = np.full((3, rules.dim), 77, np.float32)
    start_user(rows, 1, np.uint64(key), rules)
    assert (rows[[0, 2]] == 77).all(), "the neighbours are not touched"
    return [float(x) for x in rows[1]]


@given(seed=SEEDS, key=KEYS, dim=st.integers(1, 40), item=SCALES, user=SCALES, first=SCALES)
@example(seed=2**63 - 1, key=2**64 - 1, dim=40, item=8.0, user=8.0, first=8.0)
@example(seed=0, key=0, dim=40, item=8.0, user=0.0, first=0.0)
def test_start_rows_equal_the_twin_to_the_bit(
    seed: int, key: int, dim: int, item: float, user: float, first: float
) -> None:
    rules = row_rules(dim, seed, item_scale=item, user_scale=user, user_start=first)
    assert item_row(rules, key) == naive.item_start(seed, key, dim, round(item * ONE))
    assert user_row(rules, key) == naive.user_start(seed, key, dim, round(user * ONE), round(first * ONE))


# No model survives a change of these: rows in a store are kept as the difference from them.
FROZEN_ITEMS = {
    (0, 0): [0, -3553653, -2702224, 899897, 1431886, 2632959],
    (0, 1): [0, -3908052, 418098, -680971, 180674, -2137339],
    (1, 0): [0, -31040, 2590580, 1618230, -617062, -4311153],
    (2**63 - 1, 2**64 - 1): [0, 4023642, -516601, -1236058, 882365, 938984],
    (20260101, 0x9E3779B97F4A7C15): [0, 2042835, -3420140, -1847215, -597884, 3241556],
}
FROZEN_USERS = {
    (0, 0): [16777216, 3617358, -4293300, 1302682, 53530, -638080],
    (7, 2**64 - 1): [16777216, -500480, 1256960, 3110068, -1822285, -2353409],
}


@pytest.mark.parametrize(("seed", "key"), FROZEN_ITEMS)
def test_items_start_where_they_always_did(seed: int, key: int) -> None:
    assert item_row(live_rows(6, seed), key) == FROZEN_ITEMS[seed, key]


@pytest.mark.parametrize(("seed", "key"), FROZEN_USERS)
def test_users_of_the_paper_start_where_they_always_did(seed: int, key: int) -> None:
    assert [round(x * ONE) for x in user_row(paper_rows(6, seed), key)] == FROZEN_USERS[seed, key]


@pytest.mark.parametrize("dim", [1, 2, 16, 64])
def test_the_two_recipes(dim: int) -> None:
    live, paper = live_rows(dim, 3), paper_rows(dim, 3)
    assert (live.dim, live.seed, paper.dim, paper.seed) == (dim, 3, dim, 3)
    assert live.item_scale == pytest.approx(0.25 / math.sqrt(dim) * ONE, abs=0.5)
    assert paper.item_scale == paper.user_scale == pytest.approx(0.1 * ONE, abs=0.5)
    for key in (0, 1, 2**64 - 1):
        assert user_row(live, key) == [np.float32(round(0.05 * ONE) / ONE)] + [0.0] * (dim - 1), (
            "no noise in a live user"
        )
        noisy = user_row(paper, key)
        assert noisy[0] == 1.0
        assert all(0 < abs(x) < 0.7 for x in noisy[1:])
        assert item_row(live, key)[0] == item_row(paper, key)[0] == 0


@settings(max_examples=30)
@given(seed=SEEDS, key=KEYS)
def test_rows_differ_between_keys_seeds_users_and_items(seed: int, key: int) -> None:
    rules = paper_rows(8, seed)
    row = item_row(rules, key)[1:]
    others = [
        item_row(rules, key ^ 1)[1:],
        item_row(rules, (key + 1) % 2**64)[1:],
        item_row(paper_rows(8, seed ^ 1), key)[1:],
        [round(x * ONE) for x in user_row(rules, key)[1:]],
    ]
    assert row not in others
    assert len(set(row)) == 7, "no coordinate repeats another"


@pytest.mark.parametrize("scale", [0.05, 1.0])
def test_noise_is_normal_enough(scale: float) -> None:
    rules = row_rules(17, 5, item_scale=scale, user_scale=scale, user_start=0.0)
    items = Items(rules, 20_000)
    slots = items.intern(np.arange(20_000, dtype=np.uint64))  # neighbouring keys: the worst that ids could be
    noise = items.arrays.rows[slots, 1:] / ONE / scale
    n = noise.size
    assert abs(noise.mean()) < 5 / math.sqrt(n)
    assert noise.std() == pytest.approx(1, abs=5 / math.sqrt(2 * n))
    assert np.abs(noise.mean(axis=0)).max() < 5 / math.sqrt(len(noise))
    assert np.abs(noise.std(axis=0) - 1).max() < 5 / math.sqrt(2 * len(noise))
    # The twelve-fold sum has thinner tails than a normal: kurtosis 3 - 0.1.
    assert (noise**4).mean() == pytest.approx(2.9, abs=0.1)
    assert np.abs(noise).max() <= 6
    correlation = np.corrcoef(noise.T) - np.eye(16)
    assert np.abs(correlation).max() < 5 / math.sqrt(len(noise))


@pytest.mark.parametrize(
    ("dim", "seed", "scale"), [(0, 0, 0.1), (-1, 0, 0.1), (4, -1, 0.1), (4, 0, -0.1), (4, 0, 8.5), (4, 0, math.nan)]
)
@pytest.mark.parametrize("name", ["item_scale", "user_scale", "user_start"])
def test_rules_that_make_no_sense_are_refused(name: str, dim: int, seed: int, scale: float) -> None:
    scales = {"item_scale": 0.1, "user_scale": 0.1, "user_start": 0.1, name: scale}
    with pytest.raises(ValueError, match="rows need"):
        row_rules(dim, seed, **scales)
