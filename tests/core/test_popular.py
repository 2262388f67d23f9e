"""saros.core.popular: the decayed positive rate of daily buckets, against the slow twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saros.core.catalogue import Catalogue
from saros.core.fold import fold
from saros.core.items import DAYS, Items
from saros.core.popular import newest_day, popular, positive_rates
from saros.core.rows import live_rows
from tests.core.handmade import signed_blocks
from tests.core.shelf import mask_of
from tests.naive import step
from tests.naive import topk as naive

KEYS = [50, 40, 30, 20, 10, 2**64 - 1]
DIM = 2


@st.composite
def blocks(draw: st.DrawFn) -> list[step.Block]:
    """A few blocks on some days; some are taken back, perhaps before they come."""
    found = []
    for _ in range(draw(st.integers(0, 12))):
        items = draw(st.permutations(KEYS))[: draw(st.integers(2, 4))]
        sign = draw(st.sampled_from([1, 1, 1, -1]))
        day = draw(st.integers(0, 20))
        found.append(step.Block(0, items, 1, [1.0] * len(items), day, sign, [0.0] * DIM, [0.0] * len(items)))
    return found


def shelf(folded: list[step.Block]) -> Catalogue:
    items = Items(live_rows(DIM), 64)
    slots = items.intern(np.array(KEYS, np.uint64))
    fold(items.arrays, signed_blocks(folded, dict(zip(KEYS, slots.tolist(), strict=True)), DIM))
    catalogue = Catalogue(items, 4.0)
    catalogue.refresh(slots)
    return catalogue


@given(
    folded=blocks(),
    half_life=st.sampled_from([0.5, 3.0, 100.0]),
    later=st.integers(0, 3),
    k=st.integers(0, 9),
    hidden=st.sets(st.integers(0, 5)),
)
def test_popular_is_a_full_sort_of_decayed_rates(
    folded: list[step.Block], half_life: float, later: int, k: int, hidden: set[int]
) -> None:
    catalogue = shelf(folded)
    newest = max((block.day for block in folded), default=0)
    assert newest_day(catalogue.items) == newest
    day, arrays = newest + later, catalogue.items.arrays
    rates = positive_rates(catalogue, day, 4.0, half_life)
    expected = np.array(
        [
            naive.rate(
                zip(*(arrays[column][slot].tolist() for column in (2, 3, 4)), strict=True),
                day,
                catalogue.p0,
                4.0,
                half_life,
            )
            for slot in range(len(KEYS))
        ]
    )
    assert rates[: len(KEYS)].tolist() == expected.tolist()
    found = popular(catalogue, rates, k, without=[mask_of(sorted(hidden))], exclude=[0])
    order = naive.best(expected, KEYS, sorted(set(range(len(KEYS))) - hidden - {0}), k)
    assert found.slots.tolist() == order
    assert found.scores.tolist() == expected[order].tolist()


def test_newer_days_count_more_and_old_ones_not_at_all() -> None:
    def one(day: int, clicked: int, shown: int) -> step.Block:
        return step.Block(0, [shown, clicked], 1, [1.0, 1.0], day, 1, [0.0] * DIM, [0.0, 0.0])

    catalogue = shelf([one(20, 50, 10), one(15, 40, 10), one(20 - DAYS, 30, 10)])
    rates = positive_rates(catalogue, 20, 4.0)
    assert rates[0] > rates[1] > rates[2] == rates[3] == np.float32(catalogue.p0) > rates[4]
    # Ties go to the lower key: 20, 30 and the last.
    assert popular(catalogue, rates, 6).slots.tolist() == [0, 1, 3, 2, 5, 4]


@given(seed=st.integers(0, 2**32), levels=st.integers(1, 40), k=st.integers(1, 60))
def test_ties_go_by_key_over_many_tiles(seed: int, levels: int, k: int) -> None:
    rng, items = np.random.default_rng(seed), Items(live_rows(DIM), 1000)
    keys = rng.permutation(np.arange(200, dtype=np.uint64))
    catalogue = Catalogue(items, 4.0)
    catalogue.refresh(items.intern(keys))
    rates = np.zeros(len(catalogue.arrays.prior), np.float32)
    rates[:200] = rng.integers(0, levels, 200)
    assert popular(catalogue, rates, k).slots.tolist() == naive.best(rates, keys.tolist(), range(200), k)


def test_rates_may_be_older_than_the_catalogue() -> None:
    catalogue = shelf([])
    rates = positive_rates(catalogue, 0, 4.0)
    slots = catalogue.items.intern(np.arange(100, 102, dtype=np.uint64))
    catalogue.refresh(slots)
    assert popular(catalogue, rates, 9).slots.tolist() == [4, 3, 2, 1, 0, 6, 7, 5]
    assert popular(catalogue, rates[:0], 9).slots.tolist() == []


def test_what_makes_no_sense_is_refused() -> None:
    catalogue = shelf([])
    for weight, half_life in ((0.0, 1.0), (np.nan, 1.0), (4.0, 0.0)):
        with pytest.raises(ValueError, match="above 0"):
            positive_rates(catalogue, 0, weight, half_life)
    with pytest.raises(ValueError, match="negative"):
        popular(catalogue, positive_rates(catalogue, 0, 4.0), -1)
