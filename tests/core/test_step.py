"""saros.core.step against its twin: coefficients, rows, counters and progressive sums, block by block."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from saros.core.gate import DECISIONS
from saros.core.items import CLICKED, SHOWN, UPDATES
from saros.core.jit import F32, F64, kernel
from saros.core.lanes import LANES, load, store
from saros.core.rows import ONE, live_rows, paper_rows
from saros.core.scoring import exp32, log1p32, log32
from saros.core.settle import ADD, KEEP, MOVE, RESET, SCORE, STORED
from saros.core.step import StepRules, live_step, paper_step
from saros.core.users import HIGH, LEVEL_ONE, LOW, MOVED
from tests.core.handmade import Bench, Done, Order, Twin, words
from tests.naive import step as naive

USERS = [3, 2**64 - 5, 77]
ITEMS = [1000 + k for k in range(8)]
STRANGERS = [1, 2]  # items that the table has not
WHAT = [
    SCORE | ADD | MOVE,
    SCORE | ADD | MOVE | KEEP,
    SCORE | MOVE,
    SCORE,
    ADD | MOVE | KEEP,
    ADD | STORED | KEEP,
    MOVE,
]


def bench_of(kind: str, dim: int, seed: int = 0, rules: StepRules | None = None) -> Bench:
    """A bench with the rows that belong to a kind of step."""
    rows = live_rows(dim, seed) if kind == "live" else paper_rows(dim, seed)
    return Bench(rows, rules or (live_step() if kind == "live" else paper_step(0.2)), USERS, ITEMS)


@st.composite
def orders_of(draw: st.DrawFn, dim: int, back: bool) -> Order:
    """A block and what to do with it, such as the gate makes them."""
    user, entry = draw(st.sampled_from(USERS)), -1
    kind = draw(st.sampled_from(["learn"] * 8 + ["reset"] + ["back"] * back))
    if kind == "reset":
        return Order(naive.Block(user, [], 0, []), RESET)
    flags = draw(st.sampled_from(WHAT)) if kind == "learn" else 0
    known = ITEMS if flags & ADD or kind == "back" else ITEMS + STRANGERS
    items = list(draw(st.permutations(known))[: draw(st.integers(2, len(known)))])
    weights = [draw(st.just(1.0) | st.integers(1, 8192).map(lambda w: w / 4096)) for _ in items]
    block = naive.Block(user, items, draw(st.integers(1, len(items) - 1)), weights)
    if kind == "back":
        block.sign = -1
        block.u = draw(st.lists(st.floats(-1, 1, width=32), min_size=dim, max_size=dim))
        block.coefs = draw(st.lists(st.floats(-0.25, 0.25, width=32), min_size=len(items), max_size=len(items)))
    if flags & (STORED | KEEP) or (flags in (MOVE, SCORE) and draw(st.booleans())):
        entry = draw(st.integers(0, 9))
    return Order(block, flags, draw(st.integers(0, len(DECISIONS) - 1)), entry)


def near_tie(model: naive.Model, order: Order) -> bool:
    """True if two scores lie so close that float32 may order them otherwise."""
    if not order.flags & SCORE:
        return False
    u = model.users[order.block.user].row
    for scores in (model.scores(order.block, u), model.priors(order.block)):
        gaps = [abs(x - y) for x in scores for y in scores if x != y]
        if min(gaps, default=1.0) < 1e-4:
            return True
    return False


def check_state(bench: Bench, twin: Twin) -> None:
    """Rows near the twin's, counters exactly."""
    arrays, users, model = bench.items.arrays, bench.users.arrays, twin.model
    for key in ITEMS:
        slot, item = bench.slot(key), model.items.of[key]
        assert arrays.rows[slot] / ONE == pytest.approx(np.array(item.row) / ONE, rel=1e-5, abs=1e-5)
        assert arrays.counters[slot, [CLICKED, SHOWN, UPDATES]].tolist() == [item.clicked, item.shown, item.updates]
    assert arrays.totals[[CLICKED, SHOWN]].tolist() == [model.items.clicked, model.items.shown]
    for key, user in model.users.items():
        slot = bench.slot_of_user[key]
        assert users.rows[slot] == pytest.approx(np.array(user.row), rel=1e-5, abs=1e-5)
        assert users.gate[slot, MOVED] == user.moved
        assert users.gate[slot, [LOW, HIGH]] == pytest.approx(np.array([user.low, user.high]), abs=LEVEL_ONE // 5000)
    for entry, row in twin.rows.items():
        assert bench.ledger.arrays.rows[entry] == pytest.approx(np.array(row), rel=1e-5, abs=1e-5)
        coefs = twin.coefs.get(entry, [])
        assert bench.kept(entry, len(coefs)) == pytest.approx(coefs, rel=1e-5)
    assert not any(bench.kept(entry, 1)[0] for entry in twin.rows if entry not in twin.coefs), "kept without KEEP"


def check_blocks(bench: Bench, orders: list[Order], done: Done, before: naive.Items) -> None:
    """Coefficients near the twin's, and the item table exactly what the fold of the emitted blocks gives."""
    for n, order in enumerate(orders):
        emitted = done.emitted(n, order.block)
        assert emitted.sign == (order.block.sign if order.block.sign < 0 else order.flags & ADD != 0)
        if order.flags & ADD:
            assert emitted.coefs == pytest.approx(order.block.coefs, rel=1e-5)
            assert emitted.u == pytest.approx(order.block.u, rel=1e-5, abs=1e-5)
        elif order.block.sign > 0:
            assert not any(emitted.coefs)
        before.fold(emitted)
    arrays = bench.items.arrays
    for key in ITEMS:
        assert arrays.rows[bench.slot(key)].tolist() == before.of[key].row
    assert len(before.of) == bench.items.table.size == len(ITEMS), "a stranger stays one"


@given(
    kind=st.sampled_from(["live", "paper"]),
    dim=st.integers(1, 20),
    seed=st.integers(0, 1000),
    counts=st.sampled_from([0, 1, 300]),
    data=st.data(),
)
def test_a_batch_does_what_the_twin_does_block_by_block(
    kind: str, dim: int, seed: int, counts: int, data: st.DataObject
) -> None:
    bench = bench_of(kind, dim, seed)
    scattered = seed % 4 > 0  # else all are new: scores tie, and there is nothing to take back
    if scattered:
        bench.scatter(np.random.default_rng(seed), items=0.5, users=0.5, counts=counts)
    orders = data.draw(st.lists(orders_of(dim, scattered), min_size=1, max_size=8))
    twin, before, sums = Twin(bench), bench.twin().items, np.zeros((len(DECISIONS), 7))
    for order in orders:
        assume(not near_tie(twin.model, order))
        scored = twin.step(order)
        if scored:
            sums[order.decision] += scored
    done = bench.run(orders)
    check_state(bench, twin)
    check_blocks(bench, orders, done, before)
    assert done.progressive == pytest.approx(sums, rel=1e-6, abs=1e-6)
    assert done.count("clamped") == done.count("non_finite") == done.count("far") == 0
    assert math.isfinite(done.progressive.sum())


def slopes(function: Callable[[list[list[float]]], float], at: list[list[float]], h: float = 1e-4) -> list[list[float]]:
    """The central differences of a function of several rows, in every coordinate."""
    found: list[list[float]] = []
    for row in at:
        found.append([])
        for k, x in enumerate(row):
            ends = []
            for moved in (x + h, x - h):
                row[k] = moved
                ends.append(function(at))
            row[k] = x
            found[-1].append((ends[0] - ends[1]) / (2 * h))
    return found


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["live", "paper"]),
    dim=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    negatives=st.integers(1, 6),
    positives=st.integers(1, 3),
    weighted=st.booleans(),
)
def test_a_step_goes_down_the_gradient_of_the_loss(
    kind: str, dim: int, seed: int, negatives: int, positives: int, weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    bench = Bench(
        live_rows(dim), live_step() if kind == "live" else paper_step(0.3), USERS, range(negatives + positives)
    )
    bench.scatter(rng, items=0.6, users=0.6, counts=50)
    weights = rng.integers(1, 4 * 4096, negatives + positives) / 4096 if weighted else np.ones(negatives + positives)
    block = naive.Block(USERS[0], list(range(negatives + positives)), negatives, weights.tolist())
    model = bench.twin()
    user, rows = model.users[USERS[0]], model.rows(block)
    if kind == "live":
        priors = model.priors(block)
        fall = slopes(
            lambda at: naive.weighted_loss(at[0], at[1:], priors, block.weights, negatives, naive.LIVE, user.levels()),
            [user.row, *rows],
        )
        pace_user = 0.45 / math.sqrt(1 + user.moved / 30)
        slower = 1 + naive.dot(user.row, user.row)
        pace_item = [0.5 / slower / math.sqrt(1 + model.items.of[key].updates / 100) for key in block.items]
    else:
        block.weights = [1.0] * len(rows)
        fall = slopes(lambda at: naive.paper_loss(at[0], at[1 : 1 + negatives], at[1 + negatives :]), [user.row, *rows])
        pace_user, pace_item = 0.3, [0.3] * len(rows)
    before = [np.array(row) for row in (user.row, *rows)]
    done = bench.run([Order(block, ADD | MOVE)])
    moved = bench.users.arrays.rows[bench.slot_of_user[USERS[0]]] - before[0]
    assert moved == pytest.approx(-pace_user * np.array(fall[0]), rel=1e-5, abs=1e-6)
    for place, (key, pace) in enumerate(zip(block.items, pace_item, strict=True)):
        expected = -pace * np.array(fall[1 + place])
        assert done.blocks.coefs[place] * before[0] == pytest.approx(expected, rel=1e-5, abs=1e-7)
        moved = bench.items.arrays.rows[bench.slot(key)] / ONE - before[1 + place]
        assert moved == pytest.approx(expected, rel=1e-5, abs=2e-7)


@pytest.mark.parametrize("kind", ["live", "paper"])
def test_a_block_as_large_as_they_come(kind: str) -> None:
    rows = live_rows(64) if kind == "live" else paper_rows(64)
    bench = Bench(rows, live_step() if kind == "live" else paper_step(), USERS, range(81))
    bench.scatter(np.random.default_rng(1), items=0.2, users=0.3, counts=500)
    order = Order(naive.Block(USERS[1], list(range(81)), 64, [1.0] * 81), SCORE | ADD | MOVE)
    twin = Twin(bench)
    scored = twin.step(order)
    done = bench.run([order])
    assert done.blocks.coefs == pytest.approx(np.array(order.block.coefs), rel=1e-5)
    assert done.progressive[order.decision] == pytest.approx(np.array(scored), rel=1e-6)
    assert done.progressive.sum() == done.progressive[order.decision].sum()
    slot = bench.slot_of_user[USERS[1]]
    assert bench.users.arrays.rows[slot] == pytest.approx(np.array(twin.model.users[USERS[1]].row), rel=1e-5, abs=1e-5)


def test_progressive_numbers_by_hand() -> None:
    # New users see only coordinate 0 of an item, and new items have none of it: everything ties.
    bench = bench_of("live", 8)
    done = bench.run([Order(naive.Block(USERS[0], ITEMS[:4], 3, [1.0] * 4), SCORE)])
    half = [1.0, math.log(2), 0.5, 1 / (1 + 1.5), math.log(2), 0.5, 1 / (1 + 1.5)]
    assert done.progressive[1] == pytest.approx(np.array(half))
    # Scores 2 and 0 against 1, -1 and 0, from coordinate 0 alone; counters still tie.
    for key, score in zip(ITEMS[:5], [1, -1, 0, 2, 0], strict=True):
        bench.items.arrays.rows[bench.slot(key), 0] = score * 20 * ONE
    done = bench.run([Order(naive.Block(USERS[0], ITEMS[:5], 3, [1.0] * 5), SCORE)])
    losses = [math.log(1 + math.exp(-x)) for x in (1, 3, 2, -1, 1, 0)]
    assert done.progressive[1, :4] == pytest.approx(np.array([1, sum(losses) / 6, (3 + 1 + 0.5) / 6, 1.0]))
    assert done.progressive[1, 4:] == pytest.approx(np.array([math.log(2), 0.5, 1 / (1 + 1.5)]))
    # The baseline knows the counters only: 3 clicks of 3, against 1 of 3 twice, with p0 = 6/11.
    for key, clicked, shown in ((ITEMS[0], 1, 2), (ITEMS[1], 1, 2), (ITEMS[3], 3, 0)):
        bench.items.arrays.counters[bench.slot(key), [CLICKED, SHOWN]] = clicked, shown
    bench.items.arrays.totals[[CLICKED, SHOWN]] = 5, 4
    done = bench.run([Order(naive.Block(USERS[0], [ITEMS[0], ITEMS[1], ITEMS[3]], 2, [1.0] * 3), SCORE)])
    ratio = (1 + 24 / 11) / (2 + 20 / 11) / ((3 + 24 / 11) / (0 + 20 / 11))
    assert done.progressive[1, 4:] == pytest.approx(np.array([math.log(1 + ratio), 1.0, 1.0]))


def test_scoring_changes_nothing() -> None:
    bench = bench_of("live", 8)
    bench.scatter(np.random.default_rng(0), items=0.5, users=0.5, counts=9)
    before = words(bench.items.arrays) + b"".join(column.tobytes() for column in bench.users.arrays)
    done = bench.run([Order(naive.Block(USERS[0], ITEMS, 5, [1.0] * 8), SCORE)])
    assert words(bench.items.arrays) + b"".join(column.tobytes() for column in bench.users.arrays) == before
    assert not done.blocks.coefs.any()
    assert not done.counts.any()


@pytest.mark.parametrize(
    "broken",
    [
        {"lr_user": -0.1},
        {"lr_item": math.nan},
        {"decay_user": math.inf},
        {"exponent": -1.0},
        {"prior": 0.0},
        {"opponent": -1.0},
    ],
)
def test_rates_that_make_no_sense_are_refused(broken: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"step rates|prior"):
        live_step(**broken)


def test_the_recipe_is_the_twin_s() -> None:
    assert naive.Recipe(True, *live_step()[1:]) == naive.LIVE
    assert naive.Recipe(False, *paper_step(0.3)[1:]) == naive.paper(0.3)


@kernel
def _exp32(x: F32) -> None:
    """Put exp32 of each number (a multiple of 16 of them) in its place."""
    for at in range(0, x.shape[0], LANES):
        store(x, 0, at, exp32(load(x, 0, at)))


@kernel
def _largest_error(x: F32, found: F32, errors: F64) -> None:
    """Put the largest relative error of `found` as exp(x), and its x, into errors."""
    for k in range(x.shape[0]):
        error = abs(np.float64(found[k]) / math.exp(np.float64(x[k])) - 1.0)
        if error > errors[0] or not np.isfinite(error):
            errors[0], errors[1] = error, x[k]


def _check_exp32(first: int, count: int, errors: F64) -> None:
    """Look at the float32 words [first, first + count)."""
    x = np.arange(first, first + count + -count % LANES, dtype=np.uint32).view(np.float32)[:count]
    found = np.resize(x, count + -count % LANES)
    _exp32(found)
    _largest_error(x, found[:count], errors)


def test_exp32_keeps_its_promise() -> None:
    errors = np.zeros(2)
    # Every exponent from 2^-30 to 80, both signs, and densely where the rounding of n changes.
    for sign in (0, 1 << 31):
        for top in range(0x30800000, 0x42A00000, 1 << 16):
            _check_exp32(sign | (top + top % 4093), 512, errors)
        for x in (0.0, 80.0, 0.34657359, 1.0, 79.7):
            bits = int(np.float32(x).view(np.uint32))
            _check_exp32(sign | max(0, bits - 20_000), 20_001 if bits else 1, errors)
    # It says 2 units in the last place; over all float32 in its range it was 0.99 of one, 8.23e-8 of the value.
    assert 7e-8 < errors[0] < 8.3e-8, errors
    zeros = np.zeros(LANES, np.float32)
    _exp32(zeros)
    assert (zeros == 1.0).all(), "equal scores stay equal to the prior alone"


@kernel
def _log32(x: F32) -> None:
    """Put log32 of each number (a multiple of 16 of them) in its place."""
    for at in range(0, x.shape[0], LANES):
        store(x, 0, at, log32(load(x, 0, at)))


@kernel
def _log1p32(x: F32) -> None:
    """The same with log1p32."""
    for at in range(0, x.shape[0], LANES):
        store(x, 0, at, log1p32(load(x, 0, at)))


@pytest.mark.parametrize(
    ("ours", "exact", "words", "zero_at", "least"),
    [
        (_log1p32, np.log1p, (0x21800000, 0x7149F2C9), 0.0, 0.0),  # from 2^-60 to 1e30
        (_log32, np.log, (0x02081CEA, 0x7E967699), 1.0, 0.5),  # from 1e-37 to 1e38; near 1, to the last place of x
    ],
)
def test_logarithms_keep_their_promise(
    ours: Callable[[F32], None], exact: Callable[[F64], F64], words: tuple[int, int], zero_at: float, least: float
) -> None:
    # Every exponent, and densely around 1, where adding 1 cuts most and where a logarithm is small.
    some = np.arange(*words, 7919, dtype=np.uint32)
    x = np.concatenate((some, np.arange(0x3F000000, 0x40000000, 61, dtype=np.uint32))).view(np.float32)
    x = x[: len(x) & -LANES]
    found = x.copy()
    ours(found)
    right = exact(x.astype(np.float64))
    assert (abs(found - right) / np.maximum(abs(right), max(least, 1e-30))).max() < 3e-7
    zeros = np.full(LANES, zero_at, np.float32)
    ours(zeros)
    assert (zeros == 0.0).all()
