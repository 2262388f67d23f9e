"""Corners of the gate where one rule meets another, each as small as it can be."""

from dataclasses import replace

import numpy as np
import pytest

from saros.core.events import Events
from saros.core.items import Items
from saros.core.learner import Learner
from saros.core.rows import live_rows
from saros.core.step import live_step
from saros.errors import LimitError
from tests.core.drive import Run
from tests.core.scripts import events_of
from tests.core.strategies import GAP_MS, HUGE, TTL_MS
from tests.naive import sessions as naive_sessions
from tests.naive.gate import Rules

SESSIONS = naive_sessions.Rules(gap_ms=GAP_MS)
OPEN = Rules(blocks_min=1, blocks_max=HUGE)


def learned(rules: Rules, *scripts: str, sessions: naive_sessions.Rules = SESSIONS) -> Run:
    """A run after these batches; time goes on from one to the next."""
    run, done = Run(sessions, rules, (1, 2)), 0
    for k in range(len(scripts)):
        events = events_of(", ".join(scripts[: k + 1]))
        run.learn(events[done:])
        done = len(events)
    return run


def words(run: Run) -> str:
    """The gate's words."""
    return " ".join(decision.word for decision in run.decisions)


def test_a_block_that_lost_its_clicks_is_not_scored() -> None:
    """It has no pair: a mean over none would be NaN, and stay in the sums for good."""
    run = learned(replace(OPEN, ignore_repeats=True), "block ab", "block cb")
    assert words(run) == "learn repeat"
    assert np.isfinite(run.progressive).all()


def test_a_block_that_lost_its_clicks_moves_no_row() -> None:
    """Above B, with a row that may go on learning: there is nothing to learn, and n_u counts moves."""
    run = learned(replace(OPEN, blocks_max=1, own_row=True, ignore_repeats=True), "block ab", "block cb")
    assert words(run) == "learn over"
    assert run.moves() == {1: 1}
    assert np.isfinite(run.progressive).all()


def test_what_an_expired_user_taught_is_vested() -> None:
    """It leaves the ledger for good, and nothing leaves without a counter."""
    run = learned(OPEN, "block ab", "wait 41s, show c", sessions=replace(SESSIONS, ttl_ms=TTL_MS))
    assert run.ledgers() == {}
    assert sum(row.sign for row in run.rows) == 1
    assert run.counts()["vested"] == 1


def test_a_user_that_expires_within_a_batch_learns_at_its_own_rate_until_then() -> None:
    """n_u is forgotten when the row is, not when the gate decides: nothing is taken back, so every bit is equal."""
    early, late, gone = "block ab, block cd", "block ef, block gh", "wait 41s, show i"
    sessions = replace(SESSIONS, ttl_ms=TTL_MS)
    at_once = learned(OPEN, early, f"{late}, {gone}", sessions=sessions)
    apart = learned(OPEN, early, late, gone, sessions=sessions)
    assert at_once.item_rows() == apart.item_rows()


SHADOW = replace(OPEN, blocks_max=1, mode="shadow")


def test_an_erase_in_a_shadow_does_not_depend_on_batches() -> None:
    """In a shadow the second block ends the ledger and takes nothing back, so the erase does not find the first."""
    story = ("block ab", "block cd", "erase")
    assert learned(SHADOW, ", ".join(story)).item_counters() == learned(SHADOW, *story).item_counters()


def test_an_erase_in_a_shadow_within_a_batch_counts_the_same() -> None:
    """In a shadow nothing waits, whatever the word on it."""
    rules = replace(SHADOW, blocks_min=2, blocks_max=2)
    one, other = learned(rules, "block ab, erase"), learned(rules, "block ab", "erase")
    assert words(one) == words(other) == "wait"
    assert one.counts()["waiting_dropped"] == other.counts()["waiting_dropped"] == 0


def test_an_erase_in_a_shadow_takes_back_all_of_the_window() -> None:
    """An erase is no matter of bounds: what the gate would have refused was added, and has to go as well."""
    story = ("block ab", "block cd", "erase")
    assert learned(SHADOW, *story).item_counters() == learned(OPEN, *story).item_counters() == {}


def test_repeats_cost_no_ledger_bytes_in_a_shadow() -> None:
    """Three new clicks: 60 + 48 + 48 bytes. With the repeated b counted in, the third block would not fit."""
    rules = replace(OPEN, ignore_repeats=True, ledger_max_bytes=200)
    story = ("block ab", "click x, click b, block cy", "block de")
    assert words(learned(rules, *story)) == "learn learn learn"
    assert words(learned(replace(rules, mode="shadow"), *story)) == "learn learn learn"


def test_a_refused_block_gives_back_only_the_bytes_it_had() -> None:
    """In a shadow a block may be refused for its new items that had no room in the ledger anyway."""
    rules = replace(OPEN, ledger_max_bytes=70, items_max=3, mode="shadow")
    run = learned(rules, "block ab", "block cd", "block ab")
    assert words(run) == "learn items_full ledger_full"


def test_a_longer_window_does_not_bring_back_what_has_left_the_ledger() -> None:
    """Two blocks are vested under a window of one day; a window of eight days must not count their bytes again."""
    rules = replace(OPEN, window_days=1, ledger_max_bytes=130)
    run, events = Run(SESSIONS, rules, (1,)), events_of("block ab, block cd, wait 1d, block ef, wait 1d, block gh")
    run.learn(events[:-2])
    assert [len(ledger) for ledger in run.ledgers().values()] == [1]
    run.change_gate(replace(rules, window_days=8))
    run.learn(events[-2:])
    assert words(run) == "learn learn learn learn"


def test_too_many_users() -> None:
    learner = Learner(Items(live_rows(4), 16), live_step(), users_max=2)
    assert learner.intern(np.array([7, 8], np.uint64)).tolist() == [0, 1]
    with pytest.raises(LimitError, match="USERS_MAX"):
        learner.intern(np.array([8, 9], np.uint64))
    assert learner.intern(np.array([8, 7], np.uint64)).tolist() == [1, 0]


def test_too_much_in_the_ledgers() -> None:
    learner = Learner(Items(live_rows(4), 16), live_step(), ledger_items_max=1)
    slot = int(learner.intern(np.array([7], np.uint64))[0])
    one = Events.of([slot, slot], [1, 2], [5, 6], [1, 2])
    learner.learn(one)
    head = learner.users.arrays.head.copy()
    with pytest.raises(LimitError, match="ledgers"):
        learner.learn(one)
    np.testing.assert_array_equal(learner.users.arrays.head, head)
