"""The bots do what is said of them, the harm is counted right, and the gate keeps what it promises."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros import cli
from saros.core.events import CLICK, IMPRESSION
from saros.core.gate import MODES, GateRules
from saros.core.rows import live_rows
from saros.core.sessions import SessionRules
from saros.core.step import live_step
from saros.lab import commands
from saros.lab.attack import ATTACKS, Campaign, campaign_of, poorest, share_reached, watch, with_bots
from saros.lab.experiment import collect
from saros.lab.log import Log
from saros.lab.model import Model
from saros.lab.replay import NO_GATE, Plan
from tests.lab.logs import Line, lines, log_of

GAP_MS = 1_800_000
SLOW = Campaign(bots=4, blocks=30, between_ms=GAP_MS + 1)
GATE = GateRules(blocks_max=8)
PLAN = Plan(live_rows(4, seed=1), live_step(), SessionRules(), GATE)


def crowd(users: int = 60) -> Log:
    """Everybody clicks the good items; the first users were shown three poor ones too. A user every 20 minutes."""
    made: list[Line] = []
    for user in range(users):
        for k in range(4):
            shown = [f"good {(user + k) % 15}", f"fair {(user + k) % 40}"] + [f"poor {k}"] * (user < 25 and k < 3)
            time_ms = 1_200_000 * user + 1000 * k + 1
            made.append((f"user {user}", "impression", tuple(shown), time_ms))
            made.append((f"user {user}", "click", (shown[0],), time_ms + 500))
    return log_of(made)


def test_targets_are_what_many_have_seen_and_few_like() -> None:
    log = crowd(100)
    assert sorted(log.items[k] for k in poorest(log, 3)) == ["poor 0", "poor 1", "poor 2"]
    rest = [log.items[k] for k in poorest(log, len(log.items))]
    assert {name.split()[0] for name in rest[3:-40]} == {"good"}, "known to at least 20 users"
    assert {name.split()[0] for name in rest[-40:]} == {"fair"}, "as poor, but hardly known"


@pytest.mark.parametrize("attack", ATTACKS)
def test_campaigns_are_as_large_and_as_said(attack: str) -> None:
    log = crowd()
    plan = campaign_of(attack, SLOW, GATE)
    targets = poorest(log, 3)
    attacked = with_bots(log, plan, targets, seed=3)
    assert (np.diff(attacked.time_ms) >= 0).all()
    honest = attacked.user < len(log.users)
    assert attacked.take(np.flatnonzero(honest)).user.tolist() == log.user.tolist()
    assert attacked.take(np.flatnonzero(honest)).item.tolist() == log.item.tolist()
    bots = attacked.take(np.flatnonzero(~honest))
    assert bots.time_ms[0] >= log.time_ms[len(log.user) // 2]
    assert set(bots.item[bots.start[:-1][bots.kind == CLICK]]) == set(targets)
    assert (bots.kind == CLICK).sum() == pytest.approx(SLOW.bots * SLOW.blocks, abs=plan.blocks)
    shown = set(bots.item[np.repeat(bots.kind == IMPRESSION, np.diff(bots.start))])
    assert shown.isdisjoint(targets)
    assert bool(shown) == (attack != "click-only")
    table, _ = collect(attacked, PLAN._replace(gate=GATE._replace(ignore_repeats=False)))
    closed = np.bincount(table.user, minlength=len(attacked.users))[len(log.users) :]
    wanted = {"under-b": 7, "one-block": 1, "click-only": 0}.get(attack, 30)
    assert closed.tolist() == [wanted] * plan.bots
    if attack == "slow":
        own = bots.time_ms[(bots.user == len(log.users)) & (bots.kind == CLICK)]
        assert (np.diff(own) > GAP_MS).all(), "every block is a session of its own"
    else:
        assert bots.time_ms[-1] - bots.time_ms[0] <= 2 * 3_600_000


def test_the_command_knows_every_attack_and_every_mode() -> None:
    assert tuple(commands.Attack) == ATTACKS
    assert set(commands.Mode) == {"none", *MODES}


def test_bots_have_names_of_their_own() -> None:
    log = log_of([("bot-0", "impression", ("a", "b"), 1), ("bot-0", "click", ("a",), 2)])
    attacked = with_bots(log, Campaign(3, 1, 1000), np.array([1]), seed=0)
    assert len(set(attacked.users)) == 4


@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 2**32))
def test_the_share_is_that_of_lists_written_out(items: int, users: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    model = Model(
        chance.standard_normal((users, 3)).astype(np.float32),
        chance.standard_normal((items, 3)).astype(np.float32),
        chance.standard_normal(items),
    )
    targets = chance.permutation(items)[: 1 + items // 10]
    scores = model.users @ model.items.T + model.prior.astype(np.float32)
    reached = [bool(set(np.argsort(-row)[:10]) & set(targets)) for row in scores]
    assert share_reached(model, np.arange(users, dtype=np.int32), targets) == np.mean(reached)


@pytest.mark.parametrize(("mode", "peak", "final"), [(None, True, True), (0, True, False), (1, False, False)])
def test_what_the_modes_make_of_a_fast_attack(mode: int | None, peak: bool, final: bool) -> None:
    """Without a gate bots win for good; at once they win until B fires; with sessions they never do."""
    log = crowd(600)
    targets = poorest(log, 3)
    gate = NO_GATE if mode is None else GATE._replace(mode=mode)
    attacked = with_bots(log, Campaign(40, 60, 30_000), targets, seed=0)
    curve = watch(attacked, len(log.users), targets, PLAN._replace(gate=gate._replace(ignore_repeats=False, wait_ms=0)))
    assert (max(share for _, share in curve) > 0.2) == peak
    assert (curve[-1][1] > 0.2) == final
    if mode is not None:
        assert curve[-1][1] == 0


@settings(max_examples=30)
@given(lines(), st.sampled_from(ATTACKS), st.integers(1, 3))
def test_any_log_can_be_attacked(made: list[Line], attack: str, targets: int) -> None:
    log = log_of(made)
    if len(log.items) <= targets:
        return
    poor = poorest(log, targets)
    attacked = with_bots(log, campaign_of(attack, Campaign(2, 3, GAP_MS + 1), GATE), poor, seed=0)
    curve = watch(attacked, len(log.users), poor, PLAN)
    assert all(0 <= share <= 1 for _, share in curve)
    assert curve[-1][0] == (attacked.time_ms[-1] - attacked.time_ms[attacked.user >= len(log.users)][0]) / 3_600_000


@pytest.fixture
def attack(ml_1m: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `saros attack ml-1m` with more flags; the rows by attack, mode and repeat clicks."""

    def run(*flags: str) -> Any:
        assert cli.run(["attack", "ml-1m", "--json", *flags]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        return {(row["attack"], row["mode"], row["repeat_clicks"]): row for row in rows}

    return run


def test_goals_on_movielens(attack: Any) -> None:
    """Bots above B leave nothing behind; with sessions, fast and slow ones never get anywhere; little is lost."""
    rows = attack("--attack", "fast", "--attack", "slow", "--mode", "immediate", "--mode", "session")
    assert len(rows) == 8
    assert {row["final"] for row in rows.values()} == {0.0}
    for (_, mode, repeats), row in rows.items():
        assert row["clean_cost"] <= 0.003
        assert row["peak"] <= {"session": 0.01, "immediate": 0.5 if repeats == "ignore" else 1.0}[mode]


def test_what_is_not_stopped_on_movielens(attack: Any) -> None:
    """Known limits: many bots under B, and one-block bots unless b is 3."""
    under = attack("--attack", "under-b", "--attack", "one-block", "--mode", "immediate", "--bots", "20")
    assert under["under-b", "immediate", "learn"]["final"] > 0.5
    assert under["one-block", "immediate", "ignore"]["final"] > 0.5
