"""A replay is the core fed by hand; how it is cut and watched changes nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core.gate import SESSION, GateRules
from saros.core.ids import derive_key, hash_texts
from saros.core.items import CLICKED, SHOWN, Items
from saros.core.learner import Learner
from saros.core.rows import ONE, live_rows, paper_rows
from saros.core.sessions import RULES, SessionRules
from saros.core.step import live_step, paper_step
from saros.lab.model import Model
from saros.lab.progressive import Progressive
from saros.lab.replay import NO_GATE, RATING_SESSIONS, Plan, Replay
from tests.lab.logs import Line, lines, log_of

ROWS = live_rows(4, seed=7)
PLAN = Plan(ROWS, live_step(), SessionRules())


def bits(model: Model) -> tuple[bytes, bytes, bytes]:
    return model.users.tobytes(), model.items.tobytes(), model.prior.tobytes()


@settings(max_examples=40)
@given(lines())
def test_a_replay_is_the_learner_fed_by_hand(made: list[Line]) -> None:
    log = log_of(made)
    replay = Replay(log, PLAN)
    replay.advance()
    key = derive_key(7)
    items = Items(ROWS, limit=100)
    learner = Learner(items, live_step(), SessionRules(), NO_GATE)
    slots = learner.intern(hash_texts(key, log.users))
    keys = hash_texts(key, log.items)
    learner.learn(log.events(slots, keys))
    found = items.intern(keys)
    model = replay.model()
    assert model.users.tobytes() == learner.users.arrays.rows[slots].tobytes()
    assert (model.items * ONE).astype(np.int32).tolist() == items.arrays.rows[found].tolist()
    clicked, shown = items.arrays.counters[found, CLICKED], items.arrays.counters[found, SHOWN]
    p0 = (clicked.sum() + 1) / (clicked.sum() + shown.sum() + 2)
    np.testing.assert_allclose(model.prior, np.log((clicked + 4 * p0) / (shown + 4 * (1 - p0))), rtol=1e-12)


@settings(max_examples=40)
@given(lines(), st.integers(1, 30), st.sampled_from(("click", "algorithm", "authors")))
def test_batches_and_watchers_change_no_bit(made: list[Line], batch: int, rule: str) -> None:
    log, plan = log_of(made), PLAN._replace(session=SessionRules(rule=RULES[rule]))
    whole, cut = Replay(log, plan), Replay(log, plan)
    cut.watchers = (Progressive(len(log.items), 100, window=3),)
    whole.advance()
    cut.advance(len(made) // 2, batch)
    cut.advance(batch=batch)
    assert bits(whole.model()) == bits(cut.model())


def test_each_partition_has_a_gate_of_its_own() -> None:
    made = [
        (f"user {k % 50}", ("negative", "click")[k // 50 % 2], (f"item {k % 7}",), k * 3_600_000) for k in range(3000)
    ]
    gate = GateRules(blocks_max=0, percentile=0.0, blocks_max_floor=1)
    replay = Replay(log_of(made, sessions=False), Plan(ROWS, live_step(), RATING_SESSIONS, gate, partitions=4))
    replay.advance()
    assert len(replay.highs) == 4
    assert all(highs[0] == 1 and len(highs) > 1 for highs in replay.highs)
    counted = [int(part.learner.gate.users.sum()) for part in replay.parts]
    assert sum(counted) > 0
    assert all(count <= own for count, own in zip(counted, np.bincount(replay.partition), strict=True))


def test_what_waits_for_a_deadline_is_let_go_at_the_end() -> None:
    made: list[Line] = [("ann", "impression", ("a", "b"), 1000), ("ann", "click", ("b",), 2000)]
    replay = Replay(log_of(made), PLAN._replace(gate=GateRules(mode=SESSION)))
    replay.advance()
    assert replay.counts.sum() > 0
    before = replay.items.arrays.totals.sum()
    replay.finish()
    assert (before, replay.items.arrays.totals.tolist()) == (0, [1, 1])


def test_what_nobody_taught_is_at_its_start() -> None:
    log = log_of([("ann", "click", ("a",), 1000), ("bob", "click", ("b",), 2000)])
    replay = Replay(log.take(np.zeros(0, np.int64)), PLAN)
    replay.advance()
    model = replay.model()
    assert model.users.tolist() == [[round(0.05 * ONE) / ONE, 0.0, 0.0, 0.0]] * 2
    assert (model.items[:, 0] == 0).all()
    assert (model.items[:, 1:] != 0).all()
    assert model.prior.tolist() == [0.0, 0.0]


def test_the_paper_s_step_has_no_prior() -> None:
    log = log_of([("ann", "impression", ("a", "b"), 1000), ("ann", "click", ("b",), 2000)])
    replay = Replay(log, Plan(paper_rows(4), paper_step(), SessionRules()))
    replay.advance()
    assert (replay.model().prior == 0).all()
    assert replay.items.arrays.totals.tolist() == [1, 1]


def test_the_hash_key_comes_from_the_seed() -> None:
    log = log_of([("ann", "click", ("a",), 1000)])
    keys = [Replay(log, PLAN._replace(rows=live_rows(4, seed))).user_keys[0] for seed in (0, 1)]
    assert keys[0] == hash_texts(derive_key(0), ["ann"])[0]
    assert keys[0] != keys[1]


@settings(max_examples=40)
@given(lines(most=90), st.integers(1, 7))
def test_windows_hold_just_so_many_blocks(made: list[Line], window: int) -> None:
    log = log_of(made)
    replay, judge = Replay(log, PLAN), Progressive(len(log.items), 100, window)
    replay.watchers = (judge,)
    while replay.done < len(made):
        replay.advance(min(len(made), replay.done + judge.left))
    sizes = [row["blocks"] for row in judge.windows()]
    assert all(size == window for size in sizes[:-1])
    assert sum(sizes) == judge.total()["blocks"]


@settings(max_examples=40)
@given(lines(most=90))
def test_popularity_is_judged_before_it_counts(made: list[Line]) -> None:
    log = log_of(made)
    replay, judge = Replay(log, PLAN), Progressive(len(log.items), 100)
    seen: list[tuple[list[int], list[int]]] = []

    def watch(partition: int, batch: object) -> None:
        blocks = replay.parts[0].learner._blocks.filled()
        for b in range(len(blocks.user)):
            own = blocks.items[blocks.start[b] :][: blocks.negatives[b] + blocks.positives[b]].tolist()
            seen.append((own[: blocks.negatives[b]], own[blocks.negatives[b] :]))

    replay.watchers = (judge, watch)
    replay.advance(batch=9)
    clicks: dict[int, int] = {}
    accuracy = rank = 0.0
    for negatives, positives in seen:
        of = {item: clicks.get(item, 0) for item in (*negatives, *positives)}
        right = [(of[i] > of[j]) + (of[i] == of[j]) / 2 for i in positives for j in negatives]
        best = max(of[i] for i in positives)
        accuracy += sum(right) / len(right)
        rank += 1 / (1 + sum((of[j] > best) + (of[j] == best) / 2 for j in negatives))
        for item in positives:
            clicks[item] = of[item] + 1
    total = judge.total()
    assert total["blocks"] == len(seen)
    assert total["popularity_accuracy"] * max(len(seen), 1) == pytest.approx(accuracy, abs=1e-5)
    assert total["popularity_reciprocal_rank"] * max(len(seen), 1) == pytest.approx(rank, abs=1e-5)
