"""saros.core.ranking against plain loops, and against rankings whose numbers are known by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saros.core.jit import I64
from saros.core.ranking import Ranking, rank
from tests.naive import ids as naive

# Few distinct values, so that ties are common; any float; infinities, as callers mask items with them.
SCORES = st.sampled_from([-1.0, 0.0, 0.5, 2.0]) | st.floats(-50, 50) | st.floats(allow_nan=False)
USERS = st.lists(st.lists(st.tuples(SCORES, st.integers(0, 1)), max_size=25), max_size=8)
User = tuple[list[float], list[int]]


def ranked(users: list[User], cutoffs: tuple[int, ...] = (5, 10), dtype: Any = np.float64) -> Ranking:
    """Call `rank` with users given one by one."""
    scores = np.array([score for scores, _ in users for score in scores], dtype)
    labels = np.array([label for _, labels in users for label in labels], np.uint8)
    return rank(scores, labels, starts_of(users), cutoffs)


def starts_of(users: list[User]) -> I64:
    """Where each user's items start."""
    return np.cumsum([0] + [len(labels) for _, labels in users], dtype=np.int64)


@given(users=USERS, cutoffs=st.lists(st.integers(1, 20), min_size=1, max_size=4, unique=True))
def test_metrics_equal_the_twin(users: list[list[tuple[float, int]]], cutoffs: list[int]) -> None:
    split = [([score for score, _ in user], [label for _, label in user]) for user in users]
    result = ranked(split, tuple(cutoffs))
    for means, twin in ((result.authors, naive.authors_metrics), (result.standard, naive.standard_metrics)):
        assert list(means.map_at) == list(means.ndcg_at) == cutoffs
        for cutoff in cutoffs:
            expected_map, expected_ndcg, counted = twin(split, cutoff)
            assert means.map_at[cutoff] == pytest.approx(expected_map, rel=1e-12)
            assert means.ndcg_at[cutoff] == pytest.approx(expected_ndcg, rel=1e-12)
            assert means.users == counted
            assert 0 <= means.map_at[cutoff] <= 1
            assert 0 <= means.ndcg_at[cutoff] <= 1
    expected_loss, counted = naive.pair_loss(split)
    assert result.loss == pytest.approx(expected_loss, rel=1e-12)
    assert result.loss_users == counted
    assert not math.isnan(result.loss)


def test_the_two_readings_by_hand() -> None:
    # Ranked: miss, hit, miss, hit, miss, hit; six items, three positives.
    result = ranked([([6, 5, 4, 3, 2, 1], [0, 1, 0, 1, 0, 1])], (2, 5))
    assert result.authors.map_at[2] == pytest.approx(1 / 2)
    assert result.authors.map_at[5] == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert result.standard.map_at[2] == pytest.approx((1 / 2) / 2)
    assert result.standard.map_at[5] == pytest.approx((1 / 2 + 2 / 4) / 3)
    # The authors' ranks 1 and 2 both gain 1, rank 4 gains 1/2; all three positives are in the top 10.
    assert result.authors.ndcg_at[2] == pytest.approx(1 / 2)
    assert result.authors.ndcg_at[5] == pytest.approx(1.5 / (2 + 1 / math.log2(3)))
    ideal = 1 + 1 / math.log2(3)
    assert result.standard.ndcg_at[2] == pytest.approx((1 / math.log2(3)) / ideal)
    assert result.standard.ndcg_at[5] == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / (ideal + 1 / 2))


def test_the_authors_ideal_knows_the_top_ten_only() -> None:
    # Positives at ranks 1, 8 and 12: the one at 12 counts in the standard ideal alone, the one at 8 in both.
    labels = [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    result = ranked([([float(-i) for i in range(12)], labels)], (5,))
    assert result.authors.ndcg_at[5] == pytest.approx(1 / 2)
    assert result.standard.ndcg_at[5] == pytest.approx(1 / (1 + 1 / math.log2(3) + 1 / 2))


def test_no_hit_within_the_cutoff_is_zero_and_counts() -> None:
    result = ranked([([3, 2, 1], [0, 0, 1]), ([2, 1], [1, 0])], (2,))
    assert result.authors == ({2: 0.5}, {2: 0.5}, 2)
    assert result.standard == ({2: 0.5}, {2: 0.5}, 2)


def test_who_is_skipped() -> None:
    single, none, all_positive, mixed = ([1.0], [1]), ([1.0, 2.0], [0, 0]), ([1.0, 2.0], [1, 1]), ([2.0, 1.0], [1, 0])
    result = ranked([single, none, all_positive, mixed, ([], [])])
    assert result.authors.users == 2
    assert result.standard.users == 3
    assert result.loss_users == 1
    assert result.authors.map_at == result.standard.ndcg_at == {5: 1.0, 10: 1.0}


def test_ties_keep_their_input_order() -> None:
    assert ranked([([1.0, 1.0, 1.0], [1, 0, 0])]).standard.map_at[5] == 1.0
    assert ranked([([1.0, 1.0, 1.0], [0, 0, 1])]).standard.map_at[5] == pytest.approx(1 / 3)
    assert ranked([([0.0, -0.0], [0, 1])]).standard.map_at[5] == 0.5
    # Enough items that a sort which is stable only for short lists would show.
    assert ranked([([0.0] * 300, [0] * 299 + [1])], (300,)).standard.map_at[300] == pytest.approx(1 / 300)


def test_the_loss_is_stable_for_large_margins() -> None:
    assert ranked([([0.0, 0.0], [1, 0])]).loss == pytest.approx(math.log(2))
    assert ranked([([-5000.0, 5000.0], [1, 0])]).loss == 10_000
    assert ranked([([40.0, 0.0], [1, 0])]).loss == pytest.approx(math.exp(-40), rel=1e-12)
    assert ranked([([5000.0, -5000.0], [1, 0])]).loss == 0
    infinite = math.inf
    assert ranked([([-infinite, -infinite], [1, 0])]).loss == pytest.approx(math.log(2))
    assert ranked([([-infinite, infinite], [1, 0])]).loss == infinite


def test_the_loss_weighs_users_not_pairs() -> None:
    many = ([1.0] * 10 + [0.0] * 10, [1] * 10 + [0] * 10)
    one = ([0.0, 1.0], [1, 0])
    expected = (math.log1p(math.exp(-1)) + math.log1p(math.exp(1))) / 2
    assert ranked([many, one]).loss == pytest.approx(expected)


def test_float32_bool_and_strided_columns_rank_alike() -> None:
    users: list[User] = [([0.25, 1.5, -2.0, 0.5], [1, 0, 1, 0]), ([3.0, 1.0], [0, 1])]
    expected = ranked(users)
    assert ranked(users, dtype=np.float32) == expected
    scores = np.array([0.25, 9, 1.5, 9, -2.0, 9, 0.5, 9, 3.0, 9, 1.0, 9])[::2]
    labels = np.array([1, 0, 1, 0, 0, 1], np.bool_)
    assert rank(scores, labels, starts_of(users)) == expected


@pytest.mark.parametrize("starts", [[0], [0, 0], [0, 0, 0]])
def test_no_items_give_zeros_over_no_users(starts: list[int]) -> None:
    zeros = ({5: 0.0, 10: 0.0}, {5: 0.0, 10: 0.0}, 0)
    assert rank(np.zeros(0), np.zeros(0, np.uint8), np.array(starts)) == (zeros, zeros, 0.0, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scores": np.array([1, 2, 3])}, "scores must be"),
        ({"scores": np.zeros((3, 1))}, "scores must be"),
        ({"scores": np.array([0, np.nan, np.nan])}, "score 1 is NaN"),
        ({"labels": np.array([1, 0, 0])}, "labels must be"),
        ({"labels": np.zeros(2, np.uint8)}, "labels must be"),
        ({"labels": np.array([1, 0, 2], np.uint8)}, "label 2 is neither"),
        ({"starts": np.array([0, 3], np.int32)}, "starts must be"),
        ({"starts": np.zeros(0, np.int64)}, "starts must be"),
        ({"starts": np.array([1, 3])}, "starts must rise"),
        ({"starts": np.array([0, 2])}, "starts must rise"),
        ({"starts": np.array([0, 2, 1, 3])}, "starts must rise"),
        ({"starts": np.array([0, 4, 3])}, "starts must rise"),
        ({"cutoffs": ()}, "cutoffs must be"),
        ({"cutoffs": (5, 0)}, "cutoffs must be"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change: dict[str, Any], reason: str) -> None:
    columns: dict[str, Any] = {"scores": np.zeros(3), "labels": np.zeros(3, np.uint8), "starts": np.array([0, 3])}
    with pytest.raises(ValueError, match=reason):
        rank(**(columns | change))
