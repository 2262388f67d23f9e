"""saros.lab.passes against its twin, against Eq. 3 itself and against the live step; and what it learns."""

import math
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core.jit import I64, U64
from saros.core.rows import ONE, RowRules, live_rows, paper_rows
from saros.lab.blocks import BlockTable
from saros.lab.model import Model
from saros.lab.passes import PassRules, fit, offline_rules, paper_passes
from tests.naive import passes as naive
from tests.naive import step as live

USERS = np.array([3, 2**64 - 5, 77, 12], np.uint64)
ITEMS = np.arange(1000, 1009, dtype=np.uint64)
KINDS: dict[str, tuple[Callable[..., PassRules], Callable[[int, int], RowRules]]] = {
    "offline": (offline_rules, live_rows),
    "paper": (paper_passes, paper_rows),
}


def table_of(blocks: list[naive.Block]) -> BlockTable:
    """The blocks as columns, in the given order."""
    sizes = [len(b.negatives) + len(b.positives) for b in blocks]
    return BlockTable(
        user=np.array([b.user for b in blocks], np.int32),
        number=np.array([b.number for b in blocks], np.int32),
        time_ms=np.array([1000 * (5 * b.number % 7) for b in blocks], np.int64),  # numbers rule, whatever the time
        sign=np.array([b.sign for b in blocks], np.int32),
        negatives=np.array([len(b.negatives) for b in blocks], np.int32),
        start=np.cumsum([0, *sizes], dtype=np.int64),
        item=np.array([item for b in blocks for item in (*b.negatives, *b.positives)], np.int32),
    )


def starts(rows: RowRules, users: U64, items: U64) -> tuple[naive.Matrix, naive.Matrix]:
    """The start rows, from the twin of saros.core.rows."""
    u = [live.user_start(rows.seed, int(key), rows.dim, rows.user_scale, rows.user_start) for key in users]
    v = [live.item_start(rows.seed, int(key), rows.dim, rows.item_scale) for key in items]
    return np.array(u), np.array(v) / ONE


def last(models: Iterator[Model]) -> Model:
    *_, model = models
    return model


def bits(model: Model) -> tuple[bytes, bytes, bytes]:
    return model.users.tobytes(), model.items.tobytes(), model.prior.tobytes()


@st.composite
def tables(draw: st.DrawFn) -> list[naive.Block]:
    """Blocks of every sign, some with one side only, in any order."""
    numbers, blocks = [0] * len(USERS), []
    for _ in range(draw(st.integers(0, 12))):
        user = draw(st.integers(0, len(USERS) - 2))  # the last user has no block
        items = draw(st.permutations(range(len(ITEMS) - 1)))  # nor has the last item
        size = draw(st.integers(1, len(items)))
        middle = draw(st.integers(0, size))
        sign = draw(st.sampled_from([1, 1, 1, 0, -1]))
        blocks.append(naive.Block(user, numbers[user], sign, items[:middle], items[middle:size]))
        numbers[user] += 1
    return list(draw(st.permutations(blocks)))


RATES = st.floats(0, 1)
MUS = st.floats(0, 0.2) | st.just(3.0)
RULES = st.one_of(
    st.builds(
        offline_rules,
        lr_user=RATES,
        lr_item=RATES,
        mu_user=MUS,
        mu_item=MUS,
        exponent=st.floats(0.5, 1),
        decay_user=st.sampled_from([0.0, 3.0]),
        prior=st.sampled_from([0.5, 4.0]),
        power=st.floats(0, 1),
    ),
    st.builds(paper_passes, lr=RATES, mu=MUS),
)


@settings(max_examples=80)
@given(tables(), RULES, st.integers(1, 5), st.booleans(), st.integers(0, 9))
def test_every_pass_is_the_twins(blocks: list[naive.Block], rules: PassRules, dim: int, plain: bool, seed: int) -> None:
    rows = (paper_rows if plain else live_rows)(dim, seed)
    models = list(fit(table_of(blocks), USERS, ITEMS, rows, rules, passes=3))
    twins = naive.fit(naive.Recipe(*rules), blocks, *starts(rows, USERS, ITEMS), passes=3)
    for model, (users, items, prior) in zip(models, twins, strict=True):
        assert model.users.dtype == model.items.dtype == np.float32
        np.testing.assert_allclose(model.users, users, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(model.items, items, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(model.prior, prior, rtol=1e-12, atol=1e-12)


@given(st.integers(1, 4), st.integers(1, 4), st.floats(0, 0.1), st.integers(0, 9))
def test_the_papers_step_is_the_gradient_of_eq_3(negatives: int, positives: int, mu: float, seed: int) -> None:
    rows, lr = paper_rows(3, seed), 1.0
    block = naive.Block(0, 0, 1, list(range(negatives)), list(range(negatives, negatives + positives)))
    model = last(fit(table_of([block]), USERS, ITEMS, rows, paper_passes(lr, mu), passes=1))
    users, items = starts(rows, USERS, ITEMS)
    for matrix, learned in ((users, model.users), (items, model.items)):
        for place in np.ndindex(matrix.shape):
            kept, ends = matrix[place], []
            for by in (1e-5, -1e-5):
                matrix[place] = kept + by
                ends.append(naive.eq3(block, users, items, mu))
            matrix[place] = kept
            slope = (ends[0] - ends[1]) / 2e-5
            assert learned[place] - matrix[place] == pytest.approx(-lr * slope, abs=2e-6)


@settings(max_examples=30)
@given(tables(), st.integers(0, 9))
def test_the_first_pass_is_the_live_step(blocks: list[naive.Block], seed: int) -> None:
    rows, rules = live_rows(4, seed), offline_rules(0.5, 0.25, mu_user=0.0, mu_item=0.0)
    model = last(fit(table_of(blocks), USERS, ITEMS, rows, rules, passes=1))
    recipe = live.Recipe(True, 0.5, 0.25, decay_user=30.0, decay_item=0.0, exponent=0.7, alpha=4.0)
    row_of = {u: live.user_start(seed, int(key), 4, 0, rows.user_start) for u, key in enumerate(USERS)}
    items = live.Items(seed, 4, rows.item_scale)
    twin = live.Model(recipe, items, {u: live.User(row) for u, row in row_of.items()})
    for b in sorted((b for b in blocks if b.sign == 1 and b.pairs), key=lambda b: (b.user, b.number)):
        keys = [int(ITEMS[item]) for item in (*b.negatives, *b.positives)]
        made = live.Block(b.user, keys, len(b.negatives), [1.0] * len(keys))
        twin.learn(made, twin.users[b.user].row, add=True, move=True)
    for u, row in enumerate(model.users):
        assert row == pytest.approx(twin.users[u].row, rel=1e-4, abs=1e-5)
    for key, row in zip(ITEMS, model.items, strict=True):
        assert row == pytest.approx(np.array(items.get(int(key)).row) / ONE, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(tables(), st.randoms(use_true_random=False))
def test_blocks_that_do_not_stand_leave_no_trace_and_order_does_not_matter(
    kind: str, blocks: list[naive.Block], shuffler: Random
) -> None:
    make, rows = KINDS[kind]
    kept = [b for b in blocks if b.sign == 1 and b.pairs]
    shuffler.shuffle(kept)
    all_of = last(fit(table_of(blocks), USERS, ITEMS, rows(4, 1), make(), passes=2))
    kept_of = last(fit(table_of(kept), USERS, ITEMS, rows(4, 1), make(), passes=2))
    assert bits(all_of) == bits(kept_of)


def test_blocks_of_one_number_are_told_apart_by_time() -> None:
    table = table_of([naive.Block(0, 0, 1, [0], [1]), naive.Block(0, 0, 1, [1], [2, 3])])
    table.time_ms[:] = [5, 4]
    there = last(fit(table, USERS, ITEMS, live_rows(4, 0), offline_rules(), passes=1))
    table = table_of([naive.Block(0, 0, 1, [1], [2, 3]), naive.Block(0, 1, 1, [0], [1])])
    assert bits(there) == bits(last(fit(table, USERS, ITEMS, live_rows(4, 0), offline_rules(), passes=1)))


def checkerboard(users: int, items: int, seed: int) -> list[naive.Block]:
    """Users like the items of their own parity; each meets about half of them, three of each kind at a time."""
    rng, blocks = np.random.default_rng(seed), []
    for user in range(users):
        for number in range(4):
            own, other = (
                rng.choice(np.arange((user + side) % 2, items, 2), 3, replace=False).tolist() for side in (0, 1)
            )
            blocks.append(naive.Block(user, number, 1, other, own))
    return blocks


def keys(count: int, seed: int) -> U64:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_checkerboard_is_learned_also_where_nobody_looked(kind: str, seed: int) -> None:
    make, rows = KINDS[kind]
    rules, users, items = make()._replace(lr_user=0.4, lr_item=0.4), 60, 40
    blocks = checkerboard(users, items, seed)
    model = last(fit(table_of(blocks), keys(users, 1), keys(items, 2), rows(8, seed), rules, passes=20))
    scores = model.users @ model.items.T + model.prior
    same: I64 = (np.arange(users)[:, None] + np.arange(items)) % 2
    for user in range(users):
        met = {item for b in blocks if b.user == user for item in (*b.negatives, *b.positives)}
        unseen = np.array([item not in met for item in range(items)])
        liked, others = scores[user, (same[user] == 0) & unseen], scores[user, (same[user] == 1) & unseen]
        assert len(liked) > 0
        assert len(others) > 0
        assert liked.min() > others.max()


@pytest.mark.parametrize("kind", KINDS)
def test_runs_repeat_to_the_bit_and_seeds_differ(kind: str) -> None:
    make, rows = KINDS[kind]
    table = table_of(checkerboard(20, 12, seed=0))
    runs = [last(fit(table, keys(20, 1), keys(12, 2), rows(4, seed), make(), passes=3)) for seed in (5, 5, 6)]
    assert bits(runs[0]) == bits(runs[1]) != bits(runs[2])


def test_a_model_is_not_changed_by_the_passes_after_it() -> None:
    models = fit(table_of(checkerboard(20, 12, seed=0)), keys(20, 1), keys(12, 2), live_rows(4, 0), offline_rules(), 3)
    first = next(models)
    before = bits(first)
    assert bits(last(models)) != before == bits(first)


RATES_AND_MUS = "lr_user lr_item mu_user mu_item"
WILD = ["lr_user lr_item", "mu_user mu_item", RATES_AND_MUS, f"{RATES_AND_MUS} exponent", "exponent", "prior", "power"]


@pytest.mark.parametrize("rows", [live_rows(4, 0), paper_rows(4, 0)], ids=["live", "paper"])
@pytest.mark.parametrize("huge", [1e2, 1e9, 1e308])
@pytest.mark.parametrize("fields", WILD)
def test_nothing_is_nan_or_infinite_whatever_the_rates(rows: RowRules, huge: float, fields: str) -> None:
    table = table_of(checkerboard(20, 12, seed=0))
    for rules in (offline_rules(), paper_passes()):
        wild = rules._replace(**dict.fromkeys(fields.split(), huge))
        for model in fit(table, keys(20, 1), keys(12, 2), rows, wild, passes=3):
            assert np.isfinite(model.prior).all()
            for learned in (model.users, model.items):
                assert np.isfinite(learned).all()
                assert np.abs(learned).max() <= 32


@pytest.mark.parametrize("kind", KINDS)
def test_without_rates_rows_stay_where_they_start(kind: str) -> None:
    make, rows = KINDS[kind]
    still = make()._replace(lr_user=0.0, lr_item=0.0, mu_user=1e308, mu_item=1e308)
    model = last(fit(table_of(checkerboard(4, 8, seed=0)), USERS, ITEMS, rows(4, 3), still, passes=2))
    users, items = starts(rows(4, 3), USERS, ITEMS)
    assert model.users.tolist() == users.astype(np.float32).tolist()
    assert model.items.tolist() == items.astype(np.float32).tolist()


def test_no_blocks_no_users_and_no_items_are_fine() -> None:
    nothing = last(fit(table_of([]), USERS[:0], ITEMS[:0], live_rows(4, 0), offline_rules(), passes=2))
    assert nothing.users.shape == nothing.items.shape == (0, 4)
    start = last(fit(table_of([]), USERS, ITEMS, live_rows(4, 0), offline_rules(), passes=2))
    assert start.prior.tolist() == [0.0] * len(ITEMS)


@pytest.mark.parametrize(
    "wrong", [{"lr_user": -1.0}, {"mu_item": math.nan}, {"power": math.inf}, {"prior": 1e-9}, {"anchor": 1.5}]
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    if "anchor" not in wrong:
        with pytest.raises(ValueError, match="must be"):
            offline_rules(**wrong)
    with pytest.raises(ValueError, match="must be"):
        fit(table_of([]), USERS, ITEMS, live_rows(4, 0), offline_rules()._replace(**wrong), passes=1)


def test_blocks_of_strangers_are_refused() -> None:
    table = table_of([naive.Block(0, 0, 1, [1], [2])])
    with pytest.raises(ValueError, match="user outside"):
        fit(table, USERS[:0], ITEMS, live_rows(4, 0), offline_rules(), passes=1)
    with pytest.raises(ValueError, match="item outside"):
        fit(table, USERS, ITEMS[:2], live_rows(4, 0), offline_rules(), passes=1)
