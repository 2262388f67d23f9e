"""saros.core.step where numbers are large: far-apart scores, rows at the limit, absurd rates. Nothing breaks."""

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from saros.core.items import CLICKED, SHOWN, UPDATES
from saros.core.jit import F32, I32
from saros.core.rows import ONE, live_rows
from saros.core.settle import ADD, MOVE, SCORE
from saros.core.step import LIVE, PAPER, PRIOR_MIN, StepRules, live_step, paper_step
from saros.core.users import HIGH, LEVEL_MAX, LOW, MOVED
from tests.core.handmade import Bench, Order, Twin
from tests.naive import step as naive

USER = 5
LIMIT = 32 * ONE
EDGE = 2**31 - 1


def bench_of(rules: StepRules, dim: int, items: int) -> Bench:
    return Bench(live_rows(dim), rules, [USER], range(items))


def block_of(items: int, negatives: int, weights: list[float] | None = None) -> naive.Block:
    return naive.Block(USER, list(range(items)), negatives, weights or [1.0] * items)


def put(bench: Bench, rows: I32, u: F32) -> None:
    """Set the rows of all items and of the user."""
    bench.items.arrays.rows[[bench.slot(key) for key in range(len(rows))]] = rows
    bench.users.arrays.rows[bench.slot_of_user[USER]] = u


def row_of(bench: Bench) -> F32:
    return np.asarray(bench.users.arrays.rows[bench.slot_of_user[USER]])


@given(
    kind=st.sampled_from([LIVE, PAPER]),
    dim=st.integers(1, 8),
    seed=st.integers(0, 10**6),
    negatives=st.integers(1, 5),
    positives=st.integers(1, 3),
    reach=st.sampled_from([3.0, 6.0, 12.0, 31.5]),
    twins=st.booleans(),
)
def test_far_apart_scores_agree_with_the_twin(
    kind: int, dim: int, seed: int, negatives: int, positives: int, reach: float, twins: bool
) -> None:
    rng, items = np.random.default_rng(seed), negatives + positives
    bench = bench_of(
        StepRules(
            kind, 1e-3, 1e-3, 0.0, 0.0, 0.75 if kind == LIVE else 1.0, 4.0, 1.5 * (kind == LIVE), 1.0 * (kind == LIVE)
        ),
        dim,
        items,
    )
    bench.scatter(rng, items=1.0, users=1.0, counts=300)
    rows = np.rint(rng.uniform(-reach, reach, (items, dim)) * ONE).astype(np.int32)
    if twins:  # the last positive equals the first negative in everything: they tie
        rows[-1] = rows[0]
        bench.items.arrays.counters[bench.slot(items - 1)] = bench.items.arrays.counters[bench.slot(0)]
    put(bench, rows, rng.uniform(-reach, reach, dim).astype(np.float32))
    order, twin = Order(block_of(items, negatives), SCORE | ADD | MOVE), Twin(bench)
    u = np.array(twin.model.users[USER].row)
    scores = twin.model.scores(order.block, u.tolist())
    # A float32 sum of d products is off by d ulps of the sum of their sizes, at most: a margin by twice that.
    slack = 2 * (dim + 4) * 2.0**-24 * float(np.abs(rows / ONE * u).sum(axis=1).max())
    assume(all(x == y or abs(x - y) > 2 * slack for x in scores for y in scores))
    scored = twin.step(order)
    done = bench.run([order])
    assert done.count("clamped") == done.count("non_finite") == 0
    assert done.blocks.coefs == pytest.approx(np.array(order.block.coefs), rel=1e-5 + 2 * slack, abs=1e-30)
    moved = twin.model.users[USER].row
    assert row_of(bench) == pytest.approx(np.array(moved), rel=1e-6, abs=1e-5 + 0.1 * slack)
    loss, *rest = done.progressive[order.decision, 1:]
    assert loss == pytest.approx(scored[1], rel=1e-6, abs=1e-6 + slack)
    assert rest == pytest.approx(scored[2:], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kind", [LIVE, PAPER])
def test_ties_count_half_however_far_other_scores_lie(kind: int) -> None:
    bench = bench_of(live_step() if kind == LIVE else paper_step(), 2, 3)
    wrong = []
    for k in range(200):
        # Negatives 0 and 1, positive 2. Item 2 equals item 0 in everything; item 1 lies hundreds below.
        put(bench, np.array([[1, 20], [0, -20], [1, 20]], np.int32) * ONE, np.array([0.37 * k % 7, 9.3], np.float32))
        for key in range(3):
            bench.items.arrays.counters[bench.slot(key), [CLICKED, SHOWN]] = 3 * k % 17, 5 * k % 23
        bench.items.arrays.totals[[CLICKED, SHOWN]] = 100, 300
        done = bench.run([Order(block_of(3, 2), SCORE)])
        if done.progressive[1, 2] != 0.75 or done.progressive[1, 3] != 1 / 1.5:
            wrong.append((k, done.progressive[1, 2:4].tolist()))
    assert not wrong, f"{len(wrong)} of 200, such as {wrong[0]}"


_RATES = st.floats(-30, 30).map(lambda exponent: 10.0**exponent) | st.floats(0, 300) | st.sampled_from([1e-30, 1e30])
_WORDS = st.integers(-LIMIT, LIMIT) | st.sampled_from([LIMIT, -LIMIT, LIMIT - 1, 1 - LIMIT, LIMIT // 2, -LIMIT // 2, 0])
_FAR_WORDS = _WORDS | st.integers(-EDGE - 1, EDGE) | st.sampled_from([EDGE, -EDGE - 1, -33 * ONE, 33 * ONE, 96 * ONE])
_COORDINATES = st.floats(-32, 32, width=32) | st.sampled_from([32.0, -32.0, 0.0, 1e-38, -1e-44, 0.25, 16.0])
_WEIGHTS = st.sampled_from([1.0, 10.0, 1 / 4096]) | st.integers(1, 40960).map(lambda weight: weight / 4096)


@st.composite
def extremes(draw: st.DrawFn, words: st.SearchStrategy[int]) -> tuple[Bench, list[Order]]:
    """A bench at its limits and a few blocks."""
    dim, items = draw(st.integers(1, 4)), draw(st.integers(2, 5))
    rules = StepRules(
        draw(st.sampled_from([LIVE, PAPER])),
        draw(_RATES),
        draw(_RATES),
        draw(st.sampled_from([0.0, 30.0, 1e-30, 1e30])),
        draw(st.sampled_from([0.0, 100.0, 1e-30, 1e30])),
        draw(st.sampled_from([0.0, 0.75, 1.0, 2.0, 300.0])),
        draw(st.sampled_from([PRIOR_MIN, 4.0, 1e9])),
        draw(st.sampled_from([0.0, 1.5, 1e-30, 1e30])),
        draw(st.sampled_from([0.0, 1.0, 1e-30, 1e30])),
    )
    bench = bench_of(rules, dim, items)
    rows = draw(st.lists(words, min_size=items * dim, max_size=items * dim))
    u = draw(st.lists(_COORDINATES, min_size=dim, max_size=dim))
    put(bench, np.array(rows, np.int32).reshape(items, dim), np.array(u, np.float32))
    counter = st.sampled_from([0, 1, 2**31 - 100])
    counters = draw(st.lists(counter, min_size=3 * items, max_size=3 * items))
    bench.items.arrays.counters[[bench.slot(key) for key in range(items)]] = np.reshape(counters, (items, 3))
    bench.items.arrays.totals[:] = draw(st.lists(st.sampled_from([0, 5, 2**40]), min_size=2, max_size=2))
    level = st.sampled_from([0, 1, LEVEL_MAX, -LEVEL_MAX])
    bench.users.arrays.gate[bench.slot_of_user[USER], [MOVED, LOW, HIGH]] = draw(counter), draw(level), draw(level)
    what = st.sampled_from([SCORE | ADD | MOVE, ADD, MOVE, SCORE])
    orders = []
    for flags in draw(st.lists(what, min_size=1, max_size=4)):
        weights = draw(st.lists(_WEIGHTS, min_size=items, max_size=items))
        orders.append(Order(block_of(items, draw(st.integers(1, items - 1)), weights), flags))
    return bench, orders


def check_bounds(bench: Bench, orders: list[Order]) -> None:
    """Run the orders one by one; after each, nothing has left its limits and the fold is the twin's."""
    arrays = bench.items.arrays
    for order in orders:
        slots = [bench.slot(key) for key in order.block.items]
        before, twin = arrays.rows[slots].astype(np.int64), bench.twin().items
        done = bench.run([order])
        emitted = done.emitted(0, order.block)
        assert np.isfinite(emitted.coefs).all()
        assert np.isfinite(emitted.u).all()
        assert np.isfinite(done.progressive).all()
        assert (np.abs(row_of(bench)) <= 32).all(), "and so neither NaN nor infinite"
        assert (np.abs(bench.users.arrays.gate[bench.slot_of_user[USER], [LOW, HIGH]]) <= LEVEL_MAX).all()
        for coef in emitted.coefs:
            assert all(abs(move) <= 64 * ONE for move in naive.moves(coef, emitted.u)), "the fold's own limit"
        twin.fold(emitted)
        for key, slot, row in zip(order.block.items, slots, before, strict=True):
            assert arrays.rows[slot].tolist() == twin.of[key].row
            assert arrays.counters[slot].tolist() == [
                naive.wrapped(count) for count in (twin.of[key].clicked, twin.of[key].shown, twin.of[key].updates)
            ]
            after = np.abs(arrays.rows[slot].astype(np.int64))
            assert (after <= np.maximum(LIMIT, np.abs(row))).all(), "no further out than 32, or than it was"


@settings(max_examples=300)
@given(case=extremes(_WORDS))
def test_nothing_leaves_its_limits_whatever_the_rates(case: tuple[Bench, list[Order]]) -> None:
    check_bounds(*case)


@settings(max_examples=300)
@given(case=extremes(_FAR_WORDS))
def test_rows_that_the_fold_took_beyond_32_go_no_further_and_do_no_harm(case: tuple[Bench, list[Order]]) -> None:
    check_bounds(*case)


@pytest.mark.parametrize("alpha", [1e-3, 1e-10, 1e-20, 1e-30, 1e-40, 1e-50, 5e-324])
@pytest.mark.parametrize("counters", [((3, 0), (0, 3)), ((0, 3), (3, 0)), ((0, 0), (0, 0))])
def test_a_prior_is_refused_or_leaves_numbers_finite_however_weak(
    alpha: float, counters: tuple[tuple[int, int], ...]
) -> None:
    try:
        rules = live_step(prior=alpha)
    except ValueError:
        assert alpha < 1e-3
        return
    bench = bench_of(rules, 2, 2)
    for key, pair in enumerate(counters):
        bench.items.arrays.counters[bench.slot(key), [CLICKED, SHOWN]] = pair
    bench.items.arrays.totals[:] = 3
    check_bounds(bench, [Order(block_of(2, 1), SCORE | ADD | MOVE)])


@given(gap=st.floats(70, 130), alpha=st.sampled_from([1e-20, 1e-10, 1e-3, 4.0]))
@example(gap=110.0, alpha=1e-20)
@example(gap=90.0, alpha=1e-6)
def test_a_strong_prior_against_a_strong_dot_product(gap: float, alpha: float) -> None:
    # The positive has the counters, the negative the dot product: the margin is the difference of two large numbers.
    try:
        rules = live_step(prior=alpha)
    except ValueError:
        assert alpha < 1e-3
        return
    bench = bench_of(rules, 2, 2)
    put(bench, np.array([[gap / 10 * ONE, 0], [0, 0]]).astype(np.int32), np.array([10, 0], np.float32))
    many = 2**31 - 100
    bench.items.arrays.counters[bench.slot(0), [CLICKED, SHOWN]] = 0, many
    bench.items.arrays.counters[bench.slot(1), [CLICKED, SHOWN]] = many, 0
    bench.items.arrays.totals[:] = many
    order, twin = Order(block_of(2, 1), SCORE | ADD), Twin(bench)
    scored = twin.step(order)
    done = bench.run([order])
    assert done.progressive[1, 1] == pytest.approx(scored[1], rel=1e-4, abs=1e-6)
    assert done.blocks.coefs == pytest.approx(np.array(order.block.coefs), rel=1e-3)


@pytest.mark.parametrize(
    ("negative", "positive", "u", "coef"),
    [
        ([0, -31.5], [0, 31.5], [-1, 1e-3], 10.0),  # the coordinate at the edge moves little
        ([0, -31.5], [0, 31.5], [-1e-3, 1], 0.0),  # as far apart as they should be: no pull is left
        ([0, 31.5], [0, -31.5], [1e-3, 1], 20.0),  # toward the middle there is room
    ],
)
def test_a_coefficient_with_room_is_left_alone(
    negative: list[float], positive: list[float], u: list[float], coef: float
) -> None:
    bench = bench_of(StepRules(PAPER, 0.0, 20.0, 0.0, 0.0, 1.0, 4.0, 0.0, 0.0), 2, 2)
    put(bench, (np.array([negative, positive]) * ONE).astype(np.int32), np.array(u, np.float32))
    done = bench.run([Order(block_of(2, 1), ADD)])
    assert done.count("clamped") == 0
    assert done.blocks.coefs == pytest.approx([-coef, coef], rel=0.05, abs=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("room", [0.0, 2.0**-24, 0.3125, 5.0, 15.5, 16.5, 18.0])
def test_a_cut_uses_the_room_there_is(sign: int, room: float) -> None:
    # Scores tie by coordinate 0, so the pull is large; coordinate 1 of the positive (sign 1) has little room.
    bench = bench_of(StepRules(PAPER, 0.0, 40.0, 0.0, 0.0, 1.0, 4.0, 0.0, 0.0), 2, 2)
    at = sign * (32 - room)
    rows = np.array([[-at, at], [0, 0]] if sign < 0 else [[0, 0], [-at, at]]) * ONE
    put(bench, rows.astype(np.int32), np.array([1, 1], np.float32))
    order, twin = Order(block_of(2, 1), ADD), Twin(bench)
    twin.step(order)
    wanted = order.block.coefs
    before = bench.items.arrays.rows[[bench.slot(key) for key in range(2)]].astype(np.int64)
    done = bench.run([order])
    place = 0 if sign < 0 else 1
    assert done.count("clamped") == 1
    assert done.blocks.coefs[1 - place] == pytest.approx(wanted[1 - place], rel=1e-6), "the other one is whole"
    assert abs(wanted[place]) == pytest.approx(room)
    assert 0.7 * room <= abs(done.blocks.coefs[place]) <= room * (1 + 1e-6)
    moved = bench.items.arrays.rows[bench.slot(place)] - before[place]
    assert (np.abs(moved) <= room * ONE).all()
    assert sign * done.blocks.coefs[place] >= 0


def test_a_user_row_is_clamped_and_counted() -> None:
    bench = bench_of(StepRules(PAPER, 1e6, 0.0, 0.0, 0.0, 1.0, 4.0, 0.0, 0.0), 3, 2)
    put(bench, np.array([[ONE, 0, 0], [0, ONE, 0]], np.int32), np.array([0.5, 0.5, 0.5], np.float32))
    done = bench.run([Order(block_of(2, 1), MOVE)])
    assert row_of(bench).tolist() == [-32.0, 32.0, 0.5]
    assert done.count("clamped") == 2
    assert bench.users.arrays.gate[bench.slot_of_user[USER], MOVED] == 1
    assert not bench.items.arrays.counters[:, UPDATES].any()
