"""The learner's item table is a fold of what it emits; taking back leaves no trace; and it learns."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core import counts as c
from saros.core import ledger as ledger_columns
from saros.core.events import CLICK, ERASE, IMPRESSION, NEGATIVE, POSITIVE, Events
from saros.core.fold import buckets_at, fold
from saros.core.gate import IMMEDIATE, SESSION, SHADOW, GateRules
from saros.core.items import CLICKED, SHOWN, UPDATES, Items
from saros.core.jit import F64, U64
from saros.core.learner import Batch, Learner
from saros.core.rows import ONE, RowRules, live_rows, paper_rows
from saros.core.sessions import SessionRules
from saros.core.step import StepRules, live_step, paper_step
from saros.core.users import CLOCK, MOVED
from tests.core.handmade import naive_items, signed_blocks
from tests.naive import step as naive

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
KEYS = [(0x9E3779B97F4A7C15 * k) % 2**64 for k in range(1, 13)]  # of items


def emitted(batch: Batch, keys: U64) -> list[naive.Block]:
    """The signed blocks of a batch, copied: its columns are good only until the next one."""
    blocks, found = batch.blocks, []
    for b in np.flatnonzero(batch.blocks.sign):
        first, negatives = int(blocks.start[b]), int(blocks.negatives[b])
        end = first + negatives + int(blocks.positives[b])
        block = naive.Block(
            user=int(keys[blocks.user[b]]),
            items=[int(key) for key in blocks.items[first:end]],
            negatives=negatives,
            weights=[float(weight) / 4096 for weight in blocks.weights[first:end]],
            day=int(blocks.time_ms[b]) // DAY_MS,
            sign=int(blocks.sign[b]),
            u=[float(x) for x in blocks.rows[b]],
            coefs=[float(coef) for coef in blocks.coefs[first:end]],
        )
        found.append(block)
    return found


class Partition:
    """A learner, its clock and everything it emitted."""

    def __init__(self, items: Items, users: Sequence[int], gate: GateRules, step: StepRules | None = None) -> None:
        self.learner = Learner(items, step or live_step(), SessionRules(), gate)
        self.slots = self.learner.intern(np.array(users, np.uint64))
        self.blocks: list[naive.Block] = []
        self.counts = c.zeros()
        self.progressive: F64 = np.zeros(7)
        self.finite = True  # every progressive sum so far

    def learn(self, rows: Sequence[tuple[int, int, list[int], int]], weight: float = 1.0) -> list[naive.Block]:
        """Learn and accept a batch of (user index, kind, items, time); return the blocks it emitted."""
        starts = np.cumsum([0] + [len(items) for _, _, items, _ in rows])
        events = Events.of(
            user=[self.slots[user] for user, _, _, _ in rows],
            kind=[kind for _, kind, _, _ in rows],
            items=np.array([item for _, _, items, _ in rows for item in items], np.uint64),
            time_ms=[time_ms for _, _, _, time_ms in rows],
            start=starts,
            weight=[weight] * len(rows),
        )
        batch = self.learner.learn(events)
        self.learner.accept(batch)
        self.counts += batch.counts
        self.progressive = batch.progressive.sum(axis=0)
        self.finite &= bool(np.isfinite(batch.progressive).all())
        new = emitted(batch, self.learner.users.arrays.keys)
        self.blocks += new
        return new

    def count(self, name: str) -> int:
        return int(self.counts[c.NAMES.index(name)])

    def block(self, user: int, shown: list[int], clicked: int, time_ms: int) -> list[naive.Block]:
        """One impression and one click, in a batch of their own."""
        return self.learn([(user, IMPRESSION, shown, time_ms), (user, CLICK, [clicked], time_ms)])


def scenes(rng: random.Random, users: int, count: int) -> list[tuple[int, int, list[int], int]]:
    """Random events of some users over some days: slates, clicks, feedback, now and then an erase."""
    rows, now = [], 5 * DAY_MS
    for _ in range(count):
        now += rng.choice([1, 1000, 60_000, 600_000, 2 * HOUR_MS])
        user, kind = (
            rng.randrange(users),
            rng.choices([IMPRESSION, CLICK, NEGATIVE, POSITIVE, ERASE], [9, 9, 1, 1, 0.3])[0],
        )
        size = {IMPRESSION: rng.randint(1, 4), ERASE: 0}.get(kind, 1)
        rows.append((user, kind, rng.sample(KEYS, size), now))
    return rows


def check_table(items: Items, blocks: Sequence[naive.Block]) -> None:
    """The table equals the start rows plus the twin's fold of the blocks, to the bit."""
    expected = naive.Items(items.rules.seed, items.rules.dim, items.rules.item_scale)
    for block in blocks:
        expected.fold(block)
    found = naive_items(items)
    assert (found.clicked, found.shown) == (expected.clicked, expected.shown)
    for key, item in found.of.items():
        assert item == expected.get(key)
    assert set(expected.of) <= set(found.of)


def check_coefficients(rules: RowRules, blocks: Sequence[naive.Block]) -> None:
    """Each added block has the coefficients that the twin computes from the blocks before it and its own u.

    Without virtual opponents, whose level depends on blocks that were not added too.
    """
    model = naive.Model(replace(naive.LIVE, opponent=0.0), naive.Items(rules.seed, rules.dim, rules.item_scale), {})
    for block in blocks:
        if block.sign > 0:
            assert block.coefs == pytest.approx(model.coefficients(block, block.u), rel=1e-5)
        model.items.fold(block)


def without_taken_back(blocks: Sequence[naive.Block]) -> list[naive.Block]:
    """The blocks that remain; each -1 must repeat an earlier +1 that still stood, word for word."""
    standing: list[naive.Block] = []
    for block in blocks:
        if block.sign > 0:
            standing.append(block)
            continue
        same = [
            other
            for other in standing
            if (other.user, other.items, other.negatives, other.day, other.u, other.coefs)
            == (block.user, block.items, block.negatives, block.day, block.u, block.coefs)
        ]
        assert same, "taken back what was never added"
        standing.remove(same[0])
    return standing


_MODES = st.sampled_from([IMMEDIATE, SESSION, SHADOW])
GATES = st.tuples(st.integers(1, 3), st.integers(3, 6), st.integers(1, 3), _MODES, st.booleans()).map(
    lambda drawn: GateRules(
        blocks_min=drawn[0], blocks_max=drawn[1], window_days=drawn[2], mode=drawn[3], own_row=drawn[4]
    )
)


@settings(max_examples=40)
@given(gate=GATES, seed=st.integers(0, 10**9), dim=st.sampled_from([1, 3, 8]))
def test_two_partitions_on_one_table_are_a_fold_of_their_blocks_in_any_order(
    gate: GateRules, seed: int, dim: int
) -> None:
    rng, items = random.Random(seed), Items(live_rows(dim, seed=3), 64)
    alone = live_step(opponent=0.0)
    pair = [Partition(items, [10 * p + k for k in range(3)], gate, alone) for p in range(2)]
    feeds = [scenes(rng, 3, 90) for _ in pair]
    log: list[naive.Block] = []
    while any(feeds):
        turn, size = rng.randrange(2), rng.randint(1, 25)
        log += pair[turn].learn(feeds[turn][:size])
        feeds[turn] = feeds[turn][size:]
    assert all(partition.finite for partition in pair)
    check_coefficients(items.rules, log)
    check_table(items, log)
    check_table(items, without_taken_back(log))
    # A follower that met the items in another order, and the partitions' blocks in another interleaving.
    other = Items(items.rules, 64)
    slots = other.intern(np.array(rng.sample(KEYS, len(KEYS)), np.uint64))
    slot_of = {int(other.table.keys[slot]): int(slot) for slot in slots}
    queues = [list(partition.blocks) for partition in pair]
    while any(queues):
        turn, size = rng.randrange(2), rng.randint(1, 5)
        fold(other.arrays, signed_blocks(queues[turn][:size], slot_of, dim))
        queues[turn] = queues[turn][size:]
    check_table(other, log)
    check_buckets([items, other], log)


def check_buckets(tables: Sequence[Items], blocks: Sequence[naive.Block]) -> None:
    """At the newest folded day every table tells what was clicked and shown on each of the last eight days."""
    day = max((block.day for block in blocks), default=0)
    for table in tables:
        clicked, shown = buckets_at(table.arrays, day)
        for slot in table.table.slots():
            counted = naive.counted(blocks, int(table.table.keys[slot]), day)
            assert (clicked[slot].tolist(), shown[slot].tolist()) == counted


def test_those_runs_take_back_release_and_vest() -> None:
    # Else the test above would say little.
    seen: defaultdict[str, int] = defaultdict(int)
    for mode in (IMMEDIATE, SESSION):
        gate = GateRules(blocks_min=2, blocks_max=4, window_days=2, mode=mode)
        partition = Partition(Items(live_rows(3), 64), range(3), gate)
        feed = scenes(random.Random(1), 3, 400)
        for first in range(0, 400, 7):
            partition.learn(feed[first : first + 7])
        for name in ("learned", "waited", "released", "taken_back", "vested", "held", "erases"):
            seen[name] += partition.count(name)
    assert min(seen.values()) >= 3, seen


def test_taking_back_restores_every_bit_when_nobody_learned_in_between() -> None:
    items = Items(live_rows(8), 64)
    partition = Partition(items, range(2), GateRules(blocks_max=4))
    now = DAY_MS
    for k in range(4):
        partition.block(0, KEYS[k : k + 3], KEYS[k], now + k * HOUR_MS)
    before = naive_items(items)
    for k in range(4):
        (block,) = partition.block(1, KEYS[k + 3 : k + 7], KEYS[k + 4], now + k * HOUR_MS)
        assert block.sign == 1
    assert naive_items(items).of[KEYS[4]].row != before.of[KEYS[4]].row
    row = partition.learner.users.arrays.rows[partition.slots[1]].copy()
    back = partition.block(1, KEYS[:3], KEYS[1], now + 5 * HOUR_MS)
    assert [block.sign for block in back] == [-1] * 4
    after = naive_items(items)
    assert (after.clicked, after.shown) == (before.clicked, before.shown)
    assert len(after.of) > len(before.of)
    for key, item in after.of.items():
        assert item == before.get(key), "an item that came with those blocks is new again"
    assert (partition.learner.users.arrays.rows[partition.slots[1]] == row).all(), "its own row keeps what it holds"
    assert partition.block(1, KEYS[:3], KEYS[1], now + 6 * HOUR_MS) == [], "and nothing more is learned"


def test_what_others_learned_in_between_stays_as_it_was_computed() -> None:
    items = Items(live_rows(8), 64)
    partition = Partition(items, range(3), GateRules(blocks_max=4))
    now = DAY_MS
    for k in range(4):
        partition.block(0, KEYS[k : k + 3], KEYS[k + 1], now + k * HOUR_MS)
        partition.block(1, KEYS[k : k + 3], KEYS[k + 2], now + k * HOUR_MS)
    learned = [block for block in partition.blocks if block.user == 1]
    back = partition.block(0, KEYS[:3], KEYS[0], now + 5 * HOUR_MS)
    assert [(block.user, block.sign) for block in back] == [(0, -1)] * 4
    assert len(learned) == 4
    check_table(items, learned)
    # It is not what user 1 would have taught alone: its coefficients had seen the blocks of user 0.
    alone = Partition(Items(live_rows(8), 64), range(3), GateRules(blocks_max=4))
    for k in range(4):
        alone.block(1, KEYS[k : k + 3], KEYS[k + 2], now + k * HOUR_MS)
    assert naive_items(items).of[KEYS[2]] != naive_items(alone.learner.items).of[KEYS[2]]
    assert naive_items(items).of[KEYS[2]].updates == naive_items(alone.learner.items).of[KEYS[2]].updates


def test_an_erase_takes_back_and_starts_the_row_anew() -> None:
    items = Items(paper_rows(4, seed=9), 64)
    partition = Partition(items, [77], GateRules(), paper_step(0.3))
    rules = items.rules
    start = naive.user_start(9, 77, 4, rules.user_scale, rules.user_start)
    for k in range(3):
        partition.block(0, KEYS[k : k + 3], KEYS[k], DAY_MS + k * HOUR_MS)
    assert partition.learner.users.arrays.rows[partition.slots[0]].tolist() != start
    partition.learn([(0, ERASE, [], DAY_MS + 9 * HOUR_MS)])
    assert partition.learner.users.arrays.rows[partition.slots[0]].tolist() == start
    check_table(items, [])


@pytest.mark.parametrize("mode", [IMMEDIATE, SESSION])
def test_an_erase_leaves_nothing_of_the_user_in_memory(mode: int) -> None:
    """No item it was shown or clicked, no row, no time: not even where nobody looks any more."""
    gate = GateRules(blocks_min=2, blocks_max=4, mode=mode, ignore_repeats=True)
    partition = Partition(Items(live_rows(4), 64), [77, 78], gate)
    learner, (slot, other) = partition.learner, partition.slots
    theirs, own = KEYS[:6], KEYS[6:]

    def everything() -> list[int]:
        """All items that stand somewhere, as keys and as the halves that are kept of clicked ones."""
        users, ledger = learner.users.arrays, learner.ledger.arrays
        return [*users.sets[slot].tolist(), *users.repeats[slot].tolist(), *ledger.items.tolist()]

    traces = {*own, *((key ^ key >> 32) & 0xFFFFFFFF for key in own)}
    for k in range(3):
        partition.block(1, theirs[k : k + 3], theirs[k], DAY_MS + k * HOUR_MS)
        partition.block(0, own[k : k + 3], own[k + 1], DAY_MS + k * HOUR_MS)
    partition.learn([(0, IMPRESSION, own[:4], DAY_MS + 3 * HOUR_MS)], weight=2.0)
    assert traces & set(everything())
    row = learner.users.arrays.rows[slot].copy()
    partition.learn([(0, ERASE, [], DAY_MS + 4 * HOUR_MS)])
    assert not traces & set(everything())
    users, ledger = learner.users.arrays, learner.ledger.arrays
    for column in (users.ring, users.sets, users.weights, users.taken, users.repeats):
        assert not column[slot].any()
    assert set(users.head[slot].tolist()) <= {0, int(users.head[slot, CLOCK])}
    assert (users.rows[slot] != row).any() or mode == SESSION, "a new one"
    dead = ledger.sign[: ledger.used[ledger_columns.ENTRIES]] == ledger_columns._DEAD
    assert dead.any()
    for told in (ledger.rows, ledger.number, ledger.time_ms, ledger.start, ledger.negatives, ledger.positives):
        assert not told[: len(dead)][dead].any()
    assert set(theirs) & {*ledger.items.tolist(), *users.sets[other].tolist()}, "others keep theirs"


def repeated_clicks() -> Partition:
    """A user that clicks one item four times, an hour apart: learned, repeated, over, over."""
    partition = Partition(Items(live_rows(4), 64), [1], GateRules(ignore_repeats=True, blocks_max=2, own_row=True))
    for k in range(4):
        partition.block(0, KEYS[k : k + 3], KEYS[0], DAY_MS + k * HOUR_MS)
    assert [partition.count(name) for name in ("learned", "repeat", "over", "repeat_clicks")] == [1, 1, 2, 3]
    return partition


def test_a_block_of_nothing_but_repeated_clicks_leaves_the_sums_finite() -> None:
    assert repeated_clicks().finite


def test_a_block_of_nothing_but_repeated_clicks_is_no_move_of_the_row() -> None:
    partition = repeated_clicks()
    assert partition.learner.users.arrays.gate[partition.slots[0], MOVED] == 1


# --- a data set whose right answer is known by construction ----------------------------------------------------------


def scores(items: Items, rows: F64, live: bool) -> F64:
    """What every user gives every item of KEYS."""
    slots = items.table.find(np.array(KEYS, np.uint64))
    counters, totals = items.arrays.counters[slots].astype(float), items.arrays.totals
    p0 = (totals[CLICKED] + 1) / (totals[CLICKED] + totals[SHOWN] + 2)
    prior = np.log((counters[:, CLICKED] + 4 * p0) / (counters[:, SHOWN] + 4 * (1 - p0)))
    return np.asarray(rows @ (items.arrays.rows[slots] / ONE).T + live * prior)


@pytest.mark.parametrize(("kind", "passes"), [("live", 30), ("paper", 60)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_checkerboard_is_learned(kind: str, passes: int, seed: int) -> None:
    # Even users click even items, odd users odd ones; both are shown.
    rules, step = (live_rows, live_step()) if kind == "live" else (paper_rows, paper_step(0.2))
    rows: RowRules = rules(8, seed)
    items, rng, users = Items(rows, 64), random.Random(seed), 16
    gate = GateRules(blocks_max=1_000_000, ignore_repeats=False, ledger_max_bytes=1 << 30)
    partition = Partition(items, range(users), gate, step)
    mine = np.array([[user % 2 == item % 2 for item in range(len(KEYS))] for user in range(users)])
    now, accuracy = DAY_MS, []
    for _ in range(passes):
        batch = []
        for user in rng.sample(range(users), users):
            own, other = ([KEYS[k] for k in np.flatnonzero(side)] for side in (mine[user], ~mine[user]))
            clicked = rng.choice(own)
            batch.append((user, IMPRESSION, rng.sample([*rng.sample(other, 3), clicked], 4), now))
            batch.append((user, CLICK, [clicked], now + 1))
            now += 2
        partition.learn(batch)
        accuracy.append(partition.progressive[2] / partition.progressive[0])
    found = scores(items, partition.learner.users.arrays.rows[partition.slots].astype(float), kind == "live")
    worst_own, best_other = np.where(mine, found, np.inf).min(axis=1), np.where(mine, -np.inf, found).max(axis=1)
    assert (worst_own > best_other).all()
    assert np.mean(accuracy[:2]) < 0.7, "nothing was known at first"
    assert np.mean(accuracy[-5:]) > 0.99
    assert items.arrays.counters[:, UPDATES].sum() == 4 * users * passes
