"""The gate under attack: bots promote poor items in the middle of a log, and honest users' lists are watched.

A bot is shown a few popular items and clicks a target; that is one block. Five campaigns, of as many blocks in all:

- `fast`: each bot has its blocks within an hour.
- `slow`: each block is a session of its own, as close together as sessions can be.
- `under-b`: more bots, each of which stays just under B.
- `one-block`: each block is a bot of its own.
- `click-only`: as `fast`, but nothing is ever shown.

Harm is the share of honest users who have a target in their top ten: taken again and again while the campaign runs
(its peak), and when the log ends (final). What a gate costs is how much MAP@5 it loses on the same log without bots,
in the mean of three seeds.
Batches are small while bots are at work, as in a live system: one that held all of a bot would hide it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from saros.core.events import CLICK, IMPRESSION
from saros.core.gate import MODES, GateRules
from saros.core.jit import I32, I64
from saros.lab.baselines import clicked_and_shown
from saros.lab.log import Log, ToRank
from saros.lab.model import Model, evaluate
from saros.lab.replay import BATCH, NO_GATE, Plan, Replay

ATTACKS = ("fast", "slow", "under-b", "one-block", "click-only")
REPEATS = {"learn": False, "ignore": True}
_TOP = 10
_POPULAR, _SHOWN = 50, 3  # a bot is shown so few of so many popular items
_KNOWN = 20  # users a target has had: promoting what nobody has seen would be easy
_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
_WATCHED = 500  # honest users
_LOOKS, _LATER_LOOKS = 60, 30  # at their lists while bots are at work, and afterwards
_BATCH = 64  # events, while bots are at work
_CLEAN_SEEDS = 3  # one alone says little of a few thousandths
_SCORES = 1 << 22  # held at a time


class Trial(NamedTuple):
    """One campaign against one gate."""

    attack: str
    mode: str  # of the gate, or none
    repeat_clicks: str
    bots: int
    blocks: int  # of each bot
    peak: float
    final: float
    clean_cost: float
    curve: list[tuple[float, float]]  # hours since bots came, share of users with a target


class Campaign(NamedTuple):
    """What the bots do."""

    bots: int
    blocks: int  # of each bot
    between_ms: int  # two blocks of a bot
    shows: bool = True


def try_all(
    train: Log, test: ToRank, plan: Plan, attacks: Sequence[str], modes: Sequence[str], like: Campaign, targets: int
) -> Iterator[Trial]:
    """Try every attack against every mode, with repeated clicks learned and ignored; `like` is the `slow` campaign."""
    poor, clean = poorest(train, targets), {}
    gates = {(mode, repeats): _gate(plan.gate, mode, repeats) for mode in modes for repeats in REPEATS}
    best = map_at_5(train, test, plan._replace(gate=NO_GATE))
    for attack in attacks:
        campaign = campaign_of(attack, like, plan.gate)
        log = with_bots(train, campaign, poor, plan.rows.seed)
        for (mode, repeats), gate in gates.items():
            if gate not in clean:
                clean[gate] = best - map_at_5(train, test, plan._replace(gate=gate))
            curve = watch(log, len(train.users), poor, plan._replace(gate=gate))
            peak, final = max(share for _, share in curve), curve[-1][1]
            yield Trial(attack, mode, repeats, campaign.bots, campaign.blocks, peak, final, clean[gate], curve)


def _gate(gate: GateRules, mode: str, repeats: str) -> GateRules:
    gate = NO_GATE if mode == "none" else gate._replace(mode=MODES[mode])
    return gate._replace(ignore_repeats=REPEATS[repeats])


def campaign_of(attack: str, like: Campaign, gate: GateRules) -> Campaign:
    """Return the campaign of an attack, with as many blocks in all as `like`, which is the slow one."""
    bots, blocks = like.bots, like.blocks
    if attack == "slow":
        return like
    if attack == "under-b":
        few = max(1, min(blocks, (gate.blocks_max or gate.blocks_max_floor) - 1))
        return Campaign(bots * blocks // few, few, _HOUR_MS // few)
    if attack == "one-block":
        return Campaign(bots * blocks, 1, _HOUR_MS)
    return Campaign(bots, blocks, _HOUR_MS // blocks, shows=attack != "click-only")


def poorest(train: Log, count: int) -> I64:
    """Return the items that the fewest of their users clicked."""
    clicked, shown = clicked_and_shown(train)
    known = clicked + shown >= _KNOWN
    rate = clicked / np.maximum(clicked + shown, 1)
    return np.lexsort((np.arange(len(rate)), rate, ~known))[:count]


def with_bots(log: Log, plan: Campaign, targets: I64, seed: int) -> Log:
    """Return the log, in time order, with a campaign that begins in its middle."""
    rng, many = np.random.default_rng(seed), plan.bots * plan.blocks
    by_clicks = np.argsort(-np.bincount(log.item[log.clicked()], minlength=len(log.items)), kind="stable")
    popular = by_clicks[~np.isin(by_clicks, targets)][:_POPULAR]
    bot, turn = np.divmod(np.arange(many), plan.blocks)
    begin = log.time_ms[len(log.user) // 2] + rng.integers(0, min(plan.between_ms, _HOUR_MS), plan.bots)
    at = begin[bot] + turn * plan.between_ms
    items = targets[(bot + turn) % len(targets)][:, None]
    kinds, sizes = [CLICK], [1]
    if plan.shows:
        shown = popular[rng.random((many, len(popular))).argsort(axis=1)[:, :_SHOWN]]
        items, kinds, sizes = np.hstack((shown, items)), [IMPRESSION, CLICK], [shown.shape[1], 1]
    taken, prefix = set(log.users), "bot-"
    while any(f"{prefix}{k}" in taken for k in range(plan.bots)):
        prefix += "-"
    return Log(
        name=log.name,
        users=log.users + [f"{prefix}{k}" for k in range(plan.bots)],
        items=log.items,
        user=np.concatenate((log.user, np.repeat(len(log.users) + bot, len(kinds)))).astype(np.int32),
        kind=np.concatenate((log.kind, np.tile(kinds, many))).astype(np.uint8),
        time_ms=np.concatenate((log.time_ms, np.repeat(at, len(kinds)))),
        start=np.concatenate(([0], np.cumsum(np.concatenate((np.diff(log.start), np.tile(sizes, many)))))),
        item=np.concatenate((log.item, items.ravel())).astype(np.int32),
        sessions=log.sessions,
    ).by_time()


def watch(log: Log, honest: int, targets: I64, plan: Plan) -> list[tuple[float, float]]:
    """Learn a log whose users from `honest` on are bots; return what share of the others had a target, and when."""
    replay = Replay(log, plan)
    bots = np.flatnonzero(log.user >= honest)
    first, last = int(bots[0]), int(bots[-1]) + 1
    replay.advance(first)
    watched = np.random.default_rng(plan.rows.seed).permutation(np.unique(log.user[:first]))[:_WATCHED]
    curve = []

    def look(end: int, batch: int) -> None:
        replay.advance(end, batch)
        if end == len(log.user):
            replay.finish()
        hours = float(log.time_ms[end - 1] - log.time_ms[first]) / _HOUR_MS
        curve.append((hours, share_reached(replay.model(), watched, targets)))

    for end in np.unique(np.linspace(first, last, _LOOKS + 1).astype(int)[1:]).tolist():
        look(end, _BATCH)
    for end in _later(log.time_ms, first, last):
        look(end, BATCH)
    return curve


def _later(time_ms: I64, first: int, last: int) -> list[int]:
    """Return places after `last`, the end among them, ever farther apart in time since `first`."""
    since = time_ms - time_ms[first] + 1
    times = np.geomspace(since[last - 1], since[-1], _LATER_LOOKS + 1)[1:]
    marks = np.unique(np.append(np.searchsorted(since, times), len(since)))
    return [int(mark) for mark in marks if mark > last]


def share_reached(model: Model, users: I32, targets: I64) -> float:
    """Return the share of the given users who have a target in their top ten."""
    prior, reached = model.prior.astype(np.float32), 0
    for some in np.array_split(users, 1 + len(users) * len(prior) // _SCORES):
        scores = model.users[some] @ model.items.T + prior
        best = scores[:, targets].max(axis=1, keepdims=True)
        reached += int(((scores > best).sum(axis=1) < _TOP).sum())
    return reached / max(1, len(users))


def map_at_5(train: Log, test: ToRank, plan: Plan) -> float:
    """Return the MAP@5 of a log without bots, the mean of a few seeds."""
    found = []
    for seed in range(plan.rows.seed, plan.rows.seed + _CLEAN_SEEDS):
        replay = Replay(train, plan._replace(rows=plan.rows._replace(seed=seed % 2**63)))
        replay.advance()
        replay.finish()
        found.append(evaluate(replay.model(), test).authors.map_at[5])
    return sum(found) / len(found)
