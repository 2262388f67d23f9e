"""saros.core.rerank: what is mixed in, moved down and explained is what plain loops say."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core import rerank
from saros.core.items import UPDATES
from saros.core.masks import combine
from saros.core.topk import scores_of, top_k
from tests.core.shelf import Shelf, make_rows, make_user, mask_of, shelves
from tests.naive import rerank as naive
from tests.naive import topk as naive_topk

_SEEDS = st.integers(0, 2**64 - 1)
_SHARES = st.sampled_from([0.0, 0.1, 0.5, 1.0]) | st.floats(0, 1)


@given(shelf=shelves(least=1, most=60), share=_SHARES, k=st.integers(0, 30))
def test_diversity_is_maximal_marginal_relevance(shelf: Shelf, share: float, k: int) -> None:
    found = top_k(shelf.catalogue, make_user("learned", shelf.dim, shelf.rng), 4 * k)
    units = rerank.units_of(shelf.catalogue, found.slots)
    order = rerank.diversify(units, found.scores, share, k)
    assert order.tolist() == naive.marginal(units, found.scores, share, k)
    if share == 0.0:
        assert order.tolist() == list(range(min(k, len(found.slots)))), "without it nothing moves"


@given(shelf=shelves(least=1))
def test_units_are_rows_of_length_one_without_the_first_coordinate(shelf: Shelf) -> None:
    slots = np.arange(shelf.size, dtype=np.int32)
    units = rerank.units_of(shelf.catalogue, slots)
    wanted = naive_topk.unbiased(shelf.rows) * naive_topk.inverses(shelf.rows)[:, None]
    assert units.tolist() == wanted[:, : shelf.dim].tolist()
    assert not units[:, 0].any()


def test_items_that_are_alike_do_not_stand_together() -> None:
    shelf = Shelf(16, np.random.default_rng(3))
    two = make_rows("learned", 2, 16, shelf.rng)
    two[:, 0] = 0
    rows = two[[0, 0, 0, 1]]  # three alike, and another
    shelf.catalogue.refresh(shelf.add(rows, np.zeros((4, 2), np.int64)))
    units = rerank.units_of(shelf.catalogue, np.arange(4, dtype=np.int32))
    scores = np.array([4, 3, 2, 1], np.float32)
    assert rerank.diversify(units, scores, 0.0, 4).tolist() == [0, 1, 2, 3]
    assert rerank.diversify(units, scores, 0.9, 4).tolist()[:2] == [0, 3]


@settings(max_examples=150)
@given(shelf=shelves(least=1), seed=_SEEDS, count=st.integers(0, 40), data=st.data())
def test_a_draw_is_a_function_of_its_seed(shelf: Shelf, seed: int, count: int, data: st.DataObject) -> None:
    hidden = data.draw(st.sets(st.integers(0, shelf.size - 1)))
    shelf.items.arrays.counters[: shelf.size, UPDATES] = shelf.rng.integers(-1, 50, shelf.size)
    known = shelf.catalogue.arrays.known
    allowed = combine(known, [], [mask_of(sorted(hidden))], np.zeros(0, np.int32))
    drawn = rerank.draw(shelf.catalogue, allowed, count, seed)
    keys = [int(key) for key in shelf.items.table.keys[: shelf.size]]
    updates = shelf.items.arrays.counters[: shelf.size, UPDATES].tolist()
    free = [slot for slot in range(shelf.size) if slot not in hidden]
    assert drawn.tolist() == naive.draw(updates, keys, free, count, seed)
    assert rerank.draw(shelf.catalogue, allowed, count, seed).tolist() == drawn.tolist()


def test_the_fewer_updates_the_likelier() -> None:
    shelf = Shelf(2, np.random.default_rng(0))
    shelf.catalogue.refresh(shelf.add(make_rows("learned", 4, 2, shelf.rng), np.zeros((4, 2), np.int64)))
    shelf.items.arrays.counters[:4, UPDATES] = [0, 1, 3, 7]
    known, rounds = shelf.catalogue.arrays.known, 20_000
    first = Counter(int(rerank.draw(shelf.catalogue, known, 1, seed)[0]) for seed in range(rounds))
    weights = [1, 1 / 2, 1 / 4, 1 / 8]
    for slot, weight in enumerate(weights):
        assert abs(first[slot] / rounds - weight / sum(weights)) < 0.02, first


def make_large(count: int) -> Shelf:
    shelf = Shelf(2, np.random.default_rng(1))
    shelf.catalogue.refresh(shelf.add(make_rows("learned", count, 2, shelf.rng), np.zeros((count, 2), np.int64)))
    return shelf


def test_a_large_catalogue_is_looked_at_in_part_and_nothing_is_drawn_twice() -> None:
    count = rerank.POOL + 5000
    shelf = make_large(count)
    known = shelf.catalogue.arrays.known
    seen: set[int] = set()
    for seed in range(20):
        drawn = rerank.draw(shelf.catalogue, known, 2000, seed).tolist()
        assert len(set(drawn)) == len(drawn) == 2000
        seen |= set(drawn)
    assert len(seen) > 0.9 * count, "every part of it has its turn"


def test_of_a_large_catalogue_what_is_not_allowed_uses_up_no_looks() -> None:
    count = 8 * rerank.POOL
    shelf = make_large(count)
    shelf.items.arrays.counters[:count, UPDATES] = shelf.rng.integers(-1, 50, count)
    keys = [int(key) for key in shelf.items.table.keys[:count]]
    updates = shelf.items.arrays.counters[:count, UPDATES].tolist()
    for share in (50, rerank.POOL - 1, rerank.POOL, rerank.POOL + 1, count // 3):
        some = np.sort(shelf.rng.choice(count, share, replace=False)).tolist()
        allowed = combine(shelf.catalogue.arrays.known, [mask_of(some)], [], np.zeros(0, np.int32))
        for seed in (0, 5, 2**64 - 1):
            drawn = rerank.draw(shelf.catalogue, allowed, 60, seed).tolist()
            assert drawn == naive.draw(updates, keys, some, 60, seed)
            assert len(drawn) == min(60, share), "a narrow category is explored as a small catalogue is"


@given(
    best=st.lists(st.integers(0, 50), unique=True), drawn=st.lists(st.integers(51, 99), unique=True), share=_SHARES,
    seed=_SEEDS, k=st.integers(0, 60),
)  # fmt: skip
def test_places_are_given_away(best: list[int], drawn: list[int], share: float, seed: int, k: int) -> None:
    slots, marks = rerank.mix(np.array(best, np.int32), np.array(drawn, np.int32), share, seed, k)
    assert list(zip(slots.tolist(), marks.tolist(), strict=True)) == naive.mix(best, drawn, share, seed, k)
    if share == 0.0:
        assert slots.tolist() == best[:k]


@given(shelf=shelves(least=1), data=st.data())
def test_the_nearest_and_the_parts(shelf: Shelf, data: st.DataObject) -> None:
    some = st.lists(st.integers(0, shelf.size - 1), unique=True)
    slots, clicks = (np.array(data.draw(some), np.int32) for _ in range(2))
    units, others = rerank.units_of(shelf.catalogue, slots), rerank.units_of(shelf.catalogue, clicks)
    which, near = rerank.nearest(units, others)
    wanted = naive.nearest(units, others)
    assert which.tolist() == [place for place, _ in wanted]
    assert near.tolist() == [float(np.float32(cosine)) for _, cosine in wanted]
    u = make_user("learned", shelf.dim, shelf.rng)
    parts = rerank.parts_of(shelf.catalogue, u, slots)
    assert (parts.vector + parts.prior).tolist() == scores_of(shelf.catalogue, u, slots).tolist(), "to the bit"
    assert parts.prior.tolist() == shelf.priors()[slots].tolist()
