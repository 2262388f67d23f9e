"""saros.core.step against its twin: coefficients, rows, counters and progressive sums, block by block."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from saros.core.gate import DECISIONS
from saros.core.items import CLICKED, SHOWN, UPDATES
from saros.core.rows import ONE, live_rows, paper_rows
from saros.core.settle import ADD, KEEP, MOVE, RESET, SCORE, STORED
from saros.core.step import StepRules, live_step, paper_step
from saros.core.users import MOVED
from tests import naive_step as naive
from tests.handmade import Bench, Done, Order, twin_step

USERS = [3, 2**64 - 5, 77]
ITEMS = [1000 + k for k in range(8)]
STRANGERS = [1, 2]  # items that the table has not
WHAT = [SCORE | ADD | MOVE, SCORE | ADD | MOVE | KEEP, SCORE | MOVE, SCORE, ADD | MOVE | KEEP, ADD | STORED | KEEP, MOVE]


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
    if flags & (STORED | KEEP) or (flags == MOVE and draw(st.booleans())):
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


def check_state(bench: Bench, model: naive.Model) -> None:
    """Rows near the twin's, counters exactly."""
    arrays, users = bench.items.arrays, bench.users.arrays
    for key in ITEMS:
        slot, item = bench.slot(key), model.items.of[key]
        assert arrays.rows[slot] / ONE == pytest.approx(np.array(item.row) / ONE, rel=1e-5, abs=1e-5)
        assert arrays.counters[slot, [CLICKED, SHOWN, UPDATES]].tolist() == [item.clicked, item.shown, item.updates]
    assert arrays.totals[[CLICKED, SHOWN]].tolist() == [model.items.clicked, model.items.shown]
    for key, user in model.users.items():
        slot = bench.slot_of_user[key]
        assert users.rows[slot] == pytest.approx(np.array(user.row), rel=1e-5, abs=1e-5)
        assert users.gate[slot, MOVED] == user.moved


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


@settings(deadline=None)
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
    model, sums = bench.twin(), np.zeros((len(DECISIONS), 7))
    before = model.copy().items
    for order in orders:
        assume(not near_tie(model, order))
        scored = twin_step(model, order, bench)
        if scored:
            sums[order.decision] += scored
    done = bench.run(orders)
    check_state(bench, model)
    check_blocks(bench, orders, done, before)
    assert done.progressive == pytest.approx(sums, rel=1e-6, abs=1e-6)
    assert done.count("clamped") == done.count("non_finite") == done.count("far") == 0
    assert math.isfinite(done.progressive.sum())
