"""saros.core.guest: a session moves a guest's row as the step would, and moves nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saros.core.guest import EVENTS_MAX, NEGATIVES_MAX, Guest, session_blocks
from saros.core.jit import F32, U64
from saros.core.rows import live_rows, paper_rows
from saros.core.step import live_step, paper_step
from tests.core.handmade import Bench, words
from tests.naive import step as naive

ITEMS = list(range(1, 9))
STRANGER = 99


def bench(dim: int, live: bool = True) -> Bench:
    rules, rows = (live_step(), live_rows(dim)) if live else (paper_step(), paper_rows(dim))
    found = Bench(rows, rules, users=[0], items=ITEMS)
    return found


def keys(items: list[int]) -> U64:
    return np.array(items, np.uint64)


def twin_row(of: Bench, items: list[int], clicked: list[bool], passes: int = 1) -> list[float]:
    """The row by the slow step: each click a block that moves the row and adds nothing."""
    model = of.twin()
    first = naive.user_start(of.rows.seed, 0, of.rows.dim, of.rows.user_scale, of.rows.user_start)
    model.users[0] = naive.User(first)
    for block in passes * session_blocks(items, clicked):
        if len(block) > 1 or of.rules.opponent > 0:
            whole = naive.Block(0, block, len(block) - 1, [1.0] * len(block))
            model.learn(whole, model.users[0].row, add=False, move=True)
    return model.users[0].row


@given(
    events=st.lists(st.tuples(st.sampled_from([*ITEMS, STRANGER]), st.booleans()), max_size=30),
    dim=st.sampled_from([1, 5, 16, 70]),
    passes=st.integers(1, 3),
    live=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_guest_moves_as_the_step_moves_a_user(
    events: list[tuple[int, bool]], dim: int, passes: int, live: bool, seed: int
) -> None:
    of = bench(dim, live)
    of.scatter(np.random.default_rng(seed), items=0.5, users=0.5, counts=30)
    items, clicked = [item for item, _ in events], [click for _, click in events]
    before, guest = words(of.items.arrays), Guest(of.items, of.rules)
    guest.row(keys(ITEMS), [True, False] * 4)  # another guest before leaves nothing behind
    row = guest.row(keys(items), clicked, passes)
    assert row == pytest.approx(np.array(twin_row(of, items, clicked, passes), np.float32), rel=1e-4, abs=1e-5)
    assert words(of.items.arrays) == before
    assert of.items.table.size == len(ITEMS), "a stranger stays one"


def test_a_block_is_what_was_passed_over_since_the_last_click() -> None:
    events = [(1, 0), (2, 0), (1, 0), (3, 1), (4, 0), (3, 0), (5, 0), (4, 1), (6, 1), (7, 0)]
    assert session_blocks([item for item, _ in events], [click == 1 for _, click in events]) == [[1, 2, 3], [5, 4], [6]]
    many = [*range(100), 200]
    assert session_blocks(many, [False] * 100 + [True]) == [[*range(100 - NEGATIVES_MAX, 100), 200]]


def cosine(u: F32, v: F32) -> float:
    return float(u @ v / np.sqrt((u @ u) * (v @ v)))


def test_a_guest_leans_towards_what_it_clicked() -> None:
    of = bench(16)
    of.scatter(np.random.default_rng(1), items=0.3, users=0.0, counts=0)
    guest = Guest(of.items, of.rules)
    start = guest.row(keys([]), [])
    assert start.tolist() == pytest.approx([0.05] + [0.0] * 15)
    row, v = guest.row(keys([3]), [True]), of.items.arrays.rows[of.slot(3)].astype(np.float32)
    assert cosine(row - start, v) == pytest.approx(1.0, abs=1e-5), "alone, it is pulled to that item only"
    other = guest.row(keys([4, 3]), [False, True])
    away = of.items.arrays.rows[of.slot(4)].astype(np.float32)
    assert (other - row) @ away < 0, "and away from what it passed over"


def test_without_a_virtual_opponent_a_lone_click_says_nothing() -> None:
    of = bench(4, live=False)
    guest = Guest(of.items, of.rules)
    assert guest.row(keys([3]), [True]).tolist() == guest.row(keys([]), []).tolist()
    assert guest.row(keys([4, 3]), [False, True]).tolist() != guest.row(keys([]), []).tolist()


def test_what_makes_no_sense_is_refused() -> None:
    guest = Guest(bench(4).items, live_step())
    for items, clicked, passes in (
        ([1], [True, False], 1),
        ([1], [True], 0),
        ([1] * (EVENTS_MAX + 1), [True] * (EVENTS_MAX + 1), 1),
    ):
        with pytest.raises(ValueError, match="a session has at most"):
            guest.row(keys(items), clicked, passes)
