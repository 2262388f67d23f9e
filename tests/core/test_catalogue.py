"""saros.core.catalogue: what stands there is what the item table says, however it came there."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core.catalogue import P0_DRIFT, Catalogue, logit, share_of_clicks
from saros.core.items import Items
from saros.core.jit import I32
from saros.core.rows import live_rows
from saros.core.topk import top_k
from tests.core.shelf import ROWS, Shelf, counters, make_rows, make_user, shelves
from tests.naive import topk as naive


def codes_of(catalogue: Catalogue) -> I32:
    """The codes by slot and coordinate."""
    tiles = catalogue.arrays.codes
    by_rows = tiles.reshape(len(tiles), catalogue.width // 2, 16, 2).transpose(0, 2, 1, 3)
    return by_rows.reshape(-1, catalogue.width).astype(np.int32)


def square(numbers: list[Fraction]) -> Fraction:
    return sum((x * x for x in numbers), Fraction(0))


@settings(max_examples=60)
@given(shelf=shelves(least=1, most=40))
def test_codes_come_within_their_error_and_lengths_are_not_too_short(shelf: Shelf) -> None:
    arrays, codes = shelf.catalogue.arrays, codes_of(shelf.catalogue)
    assert (np.abs(codes) <= 127).all()
    assert not codes[:, shelf.dim :].any()
    assert arrays.inverse[: shelf.size].tobytes() == naive.inverses(shelf.rows).tobytes()
    assert arrays.prior[: shelf.size].tobytes() == shelf.priors().tobytes()
    for slot in range(shelf.size):
        scale = Fraction(float(arrays.scale[slot]))
        row = [Fraction(float(np.float32(word))) / 2**24 for word in shelf.rows[slot]]
        coded = [scale * int(code) for code in codes[slot]]
        missed = square([x - y for x, y in zip(row, coded, strict=False)])
        assert missed <= Fraction(float(arrays.err[slot])) ** 2
        assert max(square(row), square(coded)) <= Fraction(float(arrays.norm[slot])) ** 2
        # Nor much too long, or the bounds would be worth nothing.
        assert float(arrays.err[slot]) <= 0.51 * float(scale) * shelf.dim**0.5 + 1e-6 * float(arrays.norm[slot])
        assert float(arrays.norm[slot]) ** 2 <= 1.02 * float(max(square(row), square(coded)))


def same_bits(one: Catalogue, other: Catalogue) -> None:
    """Every column of two catalogues of one item table, as far as slots are in use."""
    size = one.items.table.size
    assert one.p0 == other.p0
    assert one.arrays.known.tobytes() == other.arrays.known.tobytes()
    assert codes_of(one)[:size].tobytes() == codes_of(other)[:size].tobytes()
    for name in ("scale", "err", "norm", "prior", "inverse"):
        assert getattr(one.arrays, name)[:size].tobytes() == getattr(other.arrays, name)[:size].tobytes(), name


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), steps=st.lists(st.sampled_from(["add", "move", "mark", "slice"]), max_size=12))
def test_refreshing_what_changed_equals_building_anew(seed: int, steps: list[str]) -> None:
    rng = np.random.default_rng(seed)
    shelf, waiting = Shelf(17, rng), np.zeros(0, np.int32)
    for what in steps:
        if what == "slice":
            shelf.catalogue.rebuild(int(rng.integers(1, 900)))
        elif what == "add":
            n = int(rng.integers(0, 900))  # the first table has 1,024 slots: it grows now and then
            shelf.catalogue.refresh(shelf.add(make_rows("mixed", n, 17, rng), counters(n, 9, rng)))
        elif shelf.size:
            slots = np.unique(rng.integers(0, shelf.size, 60)).astype(np.int32)
            shelf.move(slots, make_rows(str(rng.choice(ROWS)), len(slots), 17, rng), counters(len(slots), 9, rng))
            if what == "move":
                shelf.catalogue.refresh(slots)
                waiting = np.setdiff1d(waiting, slots)
            else:
                shelf.catalogue.mark(slots)
                waiting = np.union1d(waiting, slots).astype(np.int32)
        u = make_user("learned", 17, rng)
        found = top_k(shelf.catalogue, u, 20)
        assert found.slots.tolist() == shelf.best(shelf.scores(u), 20), "exact at every moment, also under way"
    assert np.isinf(shelf.catalogue.arrays.norm[waiting]).all()
    shelf.catalogue.refresh(waiting)
    while shelf.catalogue.rebuilding:
        shelf.catalogue.rebuild(700)
    while not shelf.catalogue.rebuild(700):
        pass
    anew = Catalogue(shelf.items, shelf.prior)
    anew.refresh(np.arange(shelf.size, dtype=np.int32))
    same_bits(shelf.catalogue, anew)


def test_priors_under_another_p0_come_into_force_all_at_once() -> None:
    rng = np.random.default_rng(1)
    shelf = Shelf(4, rng)
    shelf.catalogue.refresh(shelf.add(make_rows("learned", 100, 4, rng), counters(100, 0, rng)))
    assert (shelf.catalogue.p0, shelf.catalogue.drift()) == (0.5, 0.0)
    shelf.move(np.arange(50, dtype=np.int32), shelf.rows[:50], np.full((50, 2), [1, 9]))
    shelf.catalogue.refresh(range(50))
    p0 = share_of_clicks(shelf.items.arrays)
    assert p0 == 51 / 502
    assert shelf.catalogue.drift() == pytest.approx(abs(logit(p0) - logit(0.5)))
    assert shelf.catalogue.drift() > P0_DRIFT
    before = shelf.priors(0.5)
    assert not shelf.catalogue.rebuild(60)
    # What changes meanwhile is right under both, wherever the rebuild has come to.
    moved = np.array([3, 99], np.int32)
    shelf.move(moved, shelf.rows[moved], np.full((2, 2), [7, 1]))
    shelf.catalogue.refresh(moved[:1])
    shelf.catalogue.mark(moved[1:])
    assert shelf.catalogue.rebuilding
    assert shelf.catalogue.p0 == 0.5
    assert shelf.catalogue.arrays.prior[:100].tobytes() == shelf.priors(0.5).tobytes() != before.tobytes()
    assert shelf.catalogue.rebuild(60)
    assert not shelf.catalogue.rebuilding
    assert shelf.catalogue.p0 == p0
    assert shelf.catalogue.arrays.prior[:100].tobytes() == shelf.priors(p0).tobytes()


@pytest.mark.parametrize("limit", [5000, 900])
def test_where_memory_was_set_aside_growing_copies_nothing_and_changes_nothing(limit: int) -> None:
    """Also beyond the limit, where it has to be copied after all."""
    shelves = [Shelf(4, np.random.default_rng(1)) for _ in range(2)]
    ahead = shelves[0].items = Items(live_rows(4), limit, ahead=True)
    shelves[0].catalogue = Catalogue(ahead, shelves[0].prior)
    begun = [*ahead.arrays, *ahead.table.arrays(), *shelves[0].catalogue.arrays]
    assert len(ahead.arrays.rows) == min(limit, 1024), "what walks the capacity walks no more than before"
    for _ in range(4):
        for shelf in shelves:
            rows, counts = make_rows("learned", 1000, 4, shelf.rng), counters(1000, 50, shelf.rng)
            shelf.catalogue.refresh(shelf.add(rows, counts))
            assert shelf.catalogue.rebuild(10_000)
    grown = [*ahead.arrays, *ahead.table.arrays(), *shelves[0].catalogue.arrays]
    moved = [not np.shares_memory(*pair) for pair in zip(begun, grown, strict=True)]
    # Of four rebuilds each swaps the priors with those to come.
    assert any(moved) == (limit == 900)
    first, second = (shelf.items for shelf in shelves)
    for name in first.arrays._fields:
        assert getattr(first.arrays, name)[:4000].tobytes() == getattr(second.arrays, name)[:4000].tobytes(), name
    for name in ("scale", "err", "norm", "prior", "inverse"):
        one, other = (getattr(shelf.catalogue.arrays, name)[:4000] for shelf in shelves)
        assert one.tobytes() == other.tobytes(), name
    assert codes_of(shelves[0].catalogue)[:4000].tobytes() == codes_of(shelves[1].catalogue)[:4000].tobytes()
    row = make_user("learned", 4, np.random.default_rng(2))
    lists = [top_k(shelf.catalogue, row, 50) for shelf in shelves]
    assert lists[0].slots.tolist() == lists[1].slots.tolist()


def test_without_weight_there_are_no_priors() -> None:
    rng = np.random.default_rng(1)
    shelf = Shelf(4, rng, prior=0.0)
    shelf.catalogue.refresh(shelf.add(make_rows("learned", 10, 4, rng), counters(10, 50, rng)))
    assert not shelf.catalogue.arrays.prior.any()


def test_what_makes_no_sense_is_refused() -> None:
    shelf = Shelf(4, np.random.default_rng(1))
    for weight in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="weight must be finite"):
            Catalogue(shelf.items, weight)
    with pytest.raises(ValueError, match="not in use"):
        shelf.catalogue.refresh([0])
    with pytest.raises(ValueError, match="from 0 up"):
        shelf.catalogue.mark([-1])
    with pytest.raises(ValueError, match="at least one slot"):
        shelf.catalogue.rebuild(0)


def test_bytes_are_counted() -> None:
    catalogue = Shelf(64, np.random.default_rng(1)).catalogue
    assert catalogue.nbytes == 1024 * (64 + 6 * 4) + 1024 // 16 * 2
