"""One experiment: learn the train part of a log, rank the test part, and keep what there is to tell.

One pass is live learning, block by block as a service does it. Several passes collect the blocks that the gate lets
stand at the end of such a pass and go over them again and again, offline.
"""

import time
from typing import NamedTuple

import numpy as np

from saros.core.counts import named
from saros.core.ranking import Ranking
from saros.lab.blocks import BlockTable, Collector
from saros.lab.log import Log, ToRank
from saros.lab.model import evaluate
from saros.lab.passes import PassRules, fit
from saros.lab.progressive import Progressive
from saros.lab.replay import BATCH, Plan, Replay

_COMPILE_EVENTS = 2000  # enough to run through everything once


class Outcome(NamedTuple):
    """What an experiment found."""

    ranking: Ranking
    seconds: float  # of training
    counts: dict[str, int]
    highs: list[list[int]]  # B of each partition from its start on, one entry for each time it moved
    curve: list[tuple[float, float]]  # seconds of training, test loss
    progressive: Progressive | None


def collect(log: Log, plan: Plan) -> tuple[BlockTable, Replay]:
    """Return the blocks of a log, and the replay that closed them."""
    replay = Replay(log, plan)
    collector = Collector(replay.owners(), replay.item_keys)
    replay.watchers = (collector,)
    replay.advance()
    replay.finish()
    return collector.table(), replay


def one_pass(train: Log, test: ToRank, plan: Plan, *, points: int = 0, progressive: bool = False) -> Outcome:
    """Learn live; the test loss is taken at so many points on the way, off the clock."""
    replay, judge = Replay(train, plan), None
    if progressive:
        judge = Progressive(len(train.items), plan.session.negatives_max + plan.session.carried_max + 1)
        replay.watchers = (judge,)
    curve = [(0.0, evaluate(replay.model(), test).loss)] if points else []
    # Closer together at the start, where the loss falls fastest.
    for mark in (len(train.user) * (np.arange(1, max(points, 1) + 1) / max(points, 1)) ** 2).astype(int).tolist():
        while replay.done < mark:
            replay.advance(min(mark, replay.done + (min(BATCH, judge.left) if judge else mark)))
        if points:
            curve.append((replay.seconds, evaluate(replay.model(), test).loss))
    replay.finish()
    ranking = evaluate(replay.model(), test)
    return Outcome(ranking, replay.seconds, named(replay.counts), replay.highs, curve, judge)


def several_passes(train: Log, test: ToRank, plan: Plan, rules: PassRules, passes: int) -> Outcome:
    """Collect the blocks, then go over them; the test loss is taken after each pass, off the clock."""
    table, replay = collect(train, plan)
    seconds, curve, ranking = replay.seconds, [], None
    models = fit(table, replay.user_keys, replay.item_keys, plan.rows, rules, passes)
    for _ in range(passes):
        start = time.perf_counter()
        model = next(models)
        seconds += time.perf_counter() - start
        ranking = evaluate(model, test)
        curve.append((seconds, ranking.loss))
    assert ranking is not None, "no passes"
    return Outcome(ranking, seconds, named(replay.counts), replay.highs, curve, None)


def compile_ahead(train: Log, test: ToRank, plan: Plan, rules: PassRules | None) -> None:
    """Run through everything with a few events, so that no compiler runs on the clock."""
    few = train.take(np.arange(min(len(train.user), _COMPILE_EVENTS)))
    if rules is None:
        one_pass(few, test, plan, progressive=True)
    else:
        several_passes(few, test, plan, rules, passes=2)
