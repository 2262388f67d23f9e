"""saros.core.topk: the same answer as a full sort, whatever the rows, and codes that are worth their bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core import topk
from saros.core.best import Best
from saros.core.catalogue import Catalogue
from saros.core.jit import F32, I64, kernel
from saros.core.masks import any_of, combine
from saros.core.tiles import TILE_BITS
from saros.core.topk import Aim, Found, Search, scores_of, similar, top_k
from saros.core.topk_many import top_k_many
from tests.core.shelf import DIMS, ROWS, USERS, Shelf, counters, make_rows, make_user, mask_of, shelves
from tests.naive import topk as naive

_KINDS = st.sampled_from(USERS)


def check(found: Found, expected: list[int], scores: F32) -> None:
    """The same slots in the same order, and scores to the bit."""
    assert found.slots.tolist() == expected
    assert found.scores.tobytes() == scores[expected].tobytes() or found.scores.tolist() == scores[expected].tolist()


@settings(max_examples=300)
@given(shelf=shelves(), kind=_KINDS, data=st.data())
def test_top_k_is_a_full_sort(shelf: Shelf, kind: str, data: st.DataObject) -> None:
    u, k = make_user(kind, shelf.dim, shelf.rng), data.draw(st.sampled_from([0, 1, 2, 10, 64, shelf.size + 5]))
    scores = shelf.scores(u)
    assert np.isfinite(scores).all()
    found = top_k(shelf.catalogue, u, k)
    check(found, shelf.best(scores, k), scores)
    assert len(found.slots) == min(k, shelf.size)


@settings(max_examples=150)
@given(shelf=shelves(least=1), kind=_KINDS, k=st.integers(1, 40), data=st.data())
def test_masks_and_exclusions_hold_inside_the_scan(shelf: Shelf, kind: str, k: int, data: st.DataObject) -> None:
    u, some = make_user(kind, shelf.dim, shelf.rng), st.sets(st.integers(0, shelf.size - 1))
    within, hidden, expired = (data.draw(some) for _ in range(3))
    exclude = data.draw(st.lists(st.integers(0, shelf.size + 40)))  # one may name what is not there, or name it twice
    masks = {"within": [mask_of(sorted(within))], "without": [mask_of(sorted(hidden)), mask_of(sorted(expired))]}
    allowed = sorted(within - hidden - expired - set(exclude))
    scores = shelf.scores(u)
    check(top_k(shelf.catalogue, u, k, **masks, exclude=exclude), shelf.best(scores, k, allowed), scores)
    alike, slot = naive.cosines(shelf.rows, min(within, default=0)), min(within, default=0)
    others = [other for other in allowed if other != slot]
    check(similar(shelf.catalogue, slot, k, **masks, exclude=exclude), shelf.best(alike, k, others), alike)
    everything = mask_of(range(shelf.size))
    assert len(top_k(shelf.catalogue, u, k, without=[everything]).slots) == 0
    union = any_of([mask_of(sorted(hidden)), mask_of(sorted(expired))])
    assert union.slots().tolist() == sorted(hidden | expired)
    check(top_k(shelf.catalogue, u, k, within=[union]), shelf.best(scores, k, sorted(hidden | expired)), scores)


@settings(max_examples=150)
@given(shelf=shelves(least=1), kinds=st.lists(_KINDS, min_size=1, max_size=6), k=st.integers(1, 40), data=st.data())
def test_many_users_get_what_each_would_get_alone(
    shelf: Shelf, kinds: list[str], k: int, data: st.DataObject
) -> None:  # fmt: skip
    users = np.stack(
        [make_user(kind, shelf.dim, shelf.rng) for kind in kinds] + [np.full(shelf.dim, np.nan, np.float32)]
    )
    which = data.draw(st.lists(st.integers(0, len(kinds)), max_size=8))
    out = [data.draw(st.lists(st.integers(0, shelf.size + 40), max_size=20)) for _ in which]
    hidden = mask_of(sorted(data.draw(st.sets(st.integers(0, shelf.size - 1)))))
    allowed = combine(shelf.catalogue.arrays.known, [], [hidden], np.zeros(0, np.int32))
    exclude, starts = np.array([slot for each in out for slot in each], np.int32), np.cumsum([0, *map(len, out)])
    found = top_k_many(shelf.catalogue, users, which, k, allowed, exclude, starts)
    for j, (user, without) in enumerate(zip(which, out, strict=True)):
        if user == len(kinds):
            assert found.sizes[j] == -1, "that is no row"
            continue
        alone = top_k(shelf.catalogue, users[user], k, without=[hidden], exclude=without)
        size = found.sizes[j]
        assert found.slots[j, :size].tolist() == alone.slots.tolist()
        assert found.scores[j, :size].tobytes() == alone.scores.tobytes()
        assert not found.scores[j, size:].any(), "what is not found is 0, never what was there before"


def test_what_is_asked_for_many_is_checked() -> None:
    rng = np.random.default_rng(0)
    shelf = Shelf(5, rng)
    shelf.catalogue.refresh(shelf.add(make_rows("learned", 20, 5, rng), counters(20, 3, rng)))
    catalogue, users, none = shelf.catalogue, np.zeros((2, 5), np.float32), np.zeros(0, np.int32)
    known, starts = catalogue.arrays.known, np.zeros(2, np.int64)
    wrong = [([0], 0, known, none, starts), ([2], 1, known, none, starts), ([-1], 1, known, none, starts),
             ([0], 1, np.ones(999, np.uint16), none, starts), ([0], 1, known, none, np.zeros(1, np.int64)),
             ([0], 1, known, none, np.array([0, 1]))]  # fmt: skip
    for which, k, allowed, exclude, at in wrong:
        with pytest.raises(ValueError, match=r"must be|no such|not have|cut"):
            top_k_many(catalogue, users, which, k, allowed, exclude, at)


@settings(max_examples=150)
@given(shelf=shelves(least=1), k=st.integers(0, 40), data=st.data())
def test_similar_is_a_full_sort_of_cosines(shelf: Shelf, k: int, data: st.DataObject) -> None:
    slot = data.draw(st.integers(0, shelf.size - 1))
    scores = naive.cosines(shelf.rows, slot)
    assert (np.abs(scores) < 1.0001).all()
    others = [other for other in range(shelf.size) if other != slot]
    check(similar(shelf.catalogue, slot, k), shelf.best(scores, k, others), scores)


@given(shelf=shelves(least=1), kind=_KINDS, data=st.data())
def test_scores_of_candidates_are_those_of_top_k(shelf: Shelf, kind: str, data: st.DataObject) -> None:
    u = make_user(kind, shelf.dim, shelf.rng)
    slots = data.draw(st.lists(st.integers(0, shelf.size - 1)))
    assert scores_of(shelf.catalogue, u, slots).tolist() == shelf.scores(u)[slots].tolist()


@kernel
def count_wrong(s: Search, scores: F32, wrong: I64) -> None:
    """Count the rows that a bound would rule out though they reach the bar: the bar is the row's own score."""
    for slot in range(scores.shape[0]):
        tile, place = slot >> TILE_BITS, slot & 15
        if not s.aim.cosine:
            wrong[0] += (topk._below_by_length(s, tile, scores[slot]) >> place) & 1
        wrong[1] += (topk._below_by_codes(s, tile, scores[slot]) >> place) & 1


@kernel
def take_aim(aim: Aim) -> None:
    topk._take_aim(aim)


@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("user", USERS)
def test_no_bound_lies_below_the_score(rows: str, user: str, cosine: bool) -> None:
    for dim in DIMS:
        rng = np.random.default_rng(dim)
        shelf = Shelf(dim, rng)
        shelf.catalogue.refresh(shelf.add(make_rows(rows, 96, dim, rng), counters(96, 9, rng)))
        for _ in range(3):
            u = make_user(user, dim, rng)
            aim = topk.aim_at(shelf.catalogue, u, cosine)
            take_aim(aim)
            scores = naive.dots(u, shelf.rows) * naive.inverses(shelf.rows) if cosine else shelf.scores(u)
            wrong = np.zeros(2, np.int64)
            table, known = shelf.items.table, shelf.catalogue.arrays.known
            count_wrong(
                Search(shelf.catalogue.arrays, shelf.rows, table.keys, known, aim, Best.empty(1), wrong), scores, wrong
            )
            assert wrong.tolist() == [0, 0], (dim, u)


def big(rows: str, n: int = 20_000, dim: int = 64, most: int = 0) -> Shelf:
    """A catalogue large enough for windows to matter."""
    rng = np.random.default_rng(7)
    shelf = Shelf(dim, rng)
    shelf.catalogue.refresh(shelf.add(make_rows(rows, n, dim, rng), counters(n, most, rng)))
    return shelf


def test_codes_are_used_on_ordinary_rows() -> None:
    # No priors to help: what is ruled out is ruled out by codes.
    shelf = big("learned")
    u = make_user("learned", 64, shelf.rng)
    found = top_k(shelf.catalogue, u, 10)
    check(found, shelf.best(shelf.scores(u), 10), shelf.scores(u))
    assert found.plain == 0
    assert found.coded > 0.99 * shelf.size
    assert found.scored < 200, "10·ln(20,000/10) = 76 rows were among the ten best when they came"
    alike = similar(shelf.catalogue, 5, 10)
    assert (alike.plain, alike.scored < 200) == (0, True)


def test_priors_that_differ_rule_out_tiles_without_their_codes() -> None:
    shelf = big("learned", most=1000)
    found = top_k(shelf.catalogue, make_user("learned", 64, shelf.rng), 10)
    assert found.coded < 0.2 * shelf.size
    assert found.scored < 400


@pytest.mark.parametrize(
    ("rows", "user"), [("offset", "learned"), ("learned", "1e-30"), ("equal", "learned"), ("zero", "zero")]
)
def test_rows_are_scored_as_they_come_where_codes_cannot_tell_them_apart(rows: str, user: str) -> None:
    shelf = big(rows)
    u = make_user(user, 64, shelf.rng)
    found = top_k(shelf.catalogue, u, 10)
    check(found, shelf.best(shelf.scores(u), 10), shelf.scores(u))
    assert found.plain > 0.8 * shelf.size
    assert found.scored > 0.99 * shelf.size


def test_codes_are_tried_again_after_a_stretch_that_they_could_not_help_with() -> None:
    shelf = Shelf(64, np.random.default_rng(3))
    rows = make_rows("learned", 40_000, 64, shelf.rng)
    rows[:2000] = make_rows("offset", 2000, 64, shelf.rng)
    rows[:, 0] = np.where(np.arange(len(rows)) < 2000, rows[:, 0], 0)
    shelf.catalogue.refresh(shelf.add(rows, np.zeros((len(rows), 2), np.int64)))
    u = make_user("learned", 64, shelf.rng)
    u[0] = abs(u[0])
    found = top_k(shelf.catalogue, u, 10)
    check(found, shelf.best(shelf.scores(u), 10), shelf.scores(u))
    assert 0 < found.plain < 10_000
    assert found.coded > 0 or found.scored < 20_000


def test_more_than_a_window_is_asked_for() -> None:
    shelf = big("learned", n=6000, dim=5, most=20)
    u = make_user("learned", 5, shelf.rng)
    scores = shelf.scores(u)
    for k in (1500, 5999, 6000, 7000):
        check(top_k(shelf.catalogue, u, k), shelf.best(scores, k), scores)


def test_marked_rows_count_as_they_are_now() -> None:
    shelf = big("learned", n=3000, most=50)
    u = make_user("learned", 64, shelf.rng)
    moved = shelf.rng.permutation(3000)[:100].astype(np.int32)
    shelf.move(moved, make_rows("spike", 100, 64, shelf.rng), counters(100, 900, shelf.rng))
    shelf.catalogue.mark(moved)
    check(top_k(shelf.catalogue, u, 50), shelf.best(shelf.scores(u), 50), shelf.scores(u))
    scores, slot = naive.cosines(shelf.rows, int(moved[0])), int(moved[0])
    others = [other for other in range(3000) if other != slot]
    check(similar(shelf.catalogue, slot, 50), shelf.best(scores, 50, others), scores)
    zero = np.zeros(64, np.float32)
    check(top_k(shelf.catalogue, zero, 50), shelf.best(shelf.scores(zero), 50), shelf.scores(zero))


def test_what_was_not_refreshed_is_not_found() -> None:
    shelf = big("learned", n=100)
    shelf.add(make_rows("learned", 5000, 64, shelf.rng), np.ones((5000, 2), np.int64))
    assert sorted(top_k(shelf.catalogue, make_user("learned", 64, shelf.rng), 9000).slots.tolist()) == list(range(100))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e19])
def test_rows_that_are_not_finite_or_too_long_are_refused(bad: float) -> None:
    shelf = big("learned", n=20, dim=17)
    for place in (0, 16):
        u = make_user("learned", 17, shelf.rng)
        u[place] = bad
        with pytest.raises(ValueError, match="must be finite"):
            top_k(shelf.catalogue, u, 3)
        with pytest.raises(ValueError, match="must be finite"):
            scores_of(shelf.catalogue, u, [1])


def test_what_makes_no_sense_is_refused() -> None:
    shelf = big("learned", n=20, dim=17)
    u = make_user("learned", 17, shelf.rng)
    with pytest.raises(ValueError, match="has 16 coordinates"):
        top_k(shelf.catalogue, u[:16], 3)
    with pytest.raises(ValueError, match="k must not be negative"):
        top_k(shelf.catalogue, u, -1)
    with pytest.raises(ValueError, match="from 0 up"):
        top_k(shelf.catalogue, u, 3, exclude=[-1])
    for slot in (20, -1):
        with pytest.raises(ValueError, match="slot"):
            similar(shelf.catalogue, slot, 3)
        with pytest.raises(ValueError, match="slot"):
            scores_of(shelf.catalogue, u, [slot])
    assert len(top_k(Catalogue(Shelf(17, shelf.rng).items, 4.0), u, 3).slots) == 0
