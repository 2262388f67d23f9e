"""The bench measures what it says it measures. Nothing here looks at a time."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core.events import CLICK, DAY_MS, IMPRESSION, NEGATIVE, Events
from saros.core.gate import GateRules
from saros.core.items import Items
from saros.core.learner import Learner
from saros.core.rows import live_rows
from saros.core.sessions import SessionRules
from saros.core.settle import Blocks
from saros.core.step import live_step
from saros.core.timeline import BLOCK
from saros.lab.bench import objects, peers, shapes
from saros.lab.bench.core import DIMS, GROUPS, run_core
from saros.lab.bench.measure import Row, race, row
from tests.naive import step as naive

GAP_MS = 10_000


# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `import implicit` and `import torch` fail, installed or not."""
    for package in ("implicit", "implicit.cpu.bpr", "torch"):
        monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.usefixtures("no_peers")
def test_a_quick_run_gives_every_row_and_says_which_peers_are_missing() -> None:
    told: list[Row] = []
    found = run_core(quick=True, on_row=told.append)
    assert found == told
    names = [line.name for line in found]
    for dim in DIMS:
        assert names.count(f"step, d {dim}") == len(peers.PEERS)
        assert names.count(f"fold, d {dim}") == 1
    for shape in ("slates", "ratings"):
        assert names.count(f"feed + gate, {shape}") == 2
    assert sum(name.endswith(" users") for name in names) == sum(name.endswith(" items") for name in names) == 4
    for line in found:
        missing = "not installed" in line.note
        assert missing == (line.against in {peer.name for peer in peers.PEERS if peer.package})
        assert (line.value is None) == missing
        assert (line.ratio is None) == (missing or not line.against)
        assert (line.met is None) == (line.ratio is None or line.goal is None)
        assert line.better in ("higher", "lower")
        if missing:
            assert "make bench PEERS=" in line.note
    assert [line.goal for line in found if line.name == "step, d 64" and line.against == "implicit BPR"] == [6.0]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.usefixtures("no_peers")
def test_one_group_can_be_asked_for(group: str) -> None:
    names = {line.name.split(",")[0] for line in run_core(quick=True, only=group)}
    assert names == {"growth": {"learn", "open"}, "feed": {"feed + gate"}}.get(group, {group})


def test_a_group_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="none of step, feed"):
        run_core(quick=True, only="feet")


@pytest.mark.parametrize(
    ("ratio", "better", "goal", "met"),
    [
        (6.0, "higher", 6.0, True),
        (5.9, "higher", 6.0, False),
        (3.0, "lower", 3.0, True),
        (3.1, "lower", 3.0, False),
        (3.1, "lower", None, None),
        (None, "higher", 6.0, None),
    ],
)
def test_a_goal_is_met_from_the_better_side(
    ratio: float | None, better: str, goal: float | None, met: bool | None
) -> None:
    assert row("x", "s", 1.0, ratio=ratio, better=better, goal=goal).met is met


def test_a_race_runs_all_in_turn_and_warms_up_first() -> None:
    order: list[tuple[str, int]] = []
    race(2, [lambda turn: order.append(("a", turn)), lambda turn: order.append(("b", turn))])
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]


# --- shapes ----------------------------------------------------------------------------------------------------------


def test_popularity_and_activity_are_those_of_ml_1m() -> None:
    rng = np.random.default_rng(0)
    shown = np.sort(np.bincount(shapes.draw_items(rng, 1_000_000, shapes.ITEMS), minlength=shapes.ITEMS))[::-1]
    acts = np.sort(np.bincount(shapes.draw_users(rng, 1_000_000, shapes.USERS), minlength=shapes.USERS))[::-1]
    # In the file the first tenth of the items has 44 % of the ratings, and the first tenth of the users 38 %.
    assert 0.40 < shown[: shapes.ITEMS // 10].sum() / 1_000_000 < 0.50
    assert 0.34 < acts[: shapes.USERS // 10].sum() / 1_000_000 < 0.42


def test_blocks_have_one_positive_and_about_ten_negatives() -> None:
    [work] = shapes.make_works(1, 500, 16)
    assert 9.5 < work.blocks.negatives.mean() < 10.5
    assert (work.blocks.positives == 1).all()
    for _, negatives, positives in peers.as_lists(work.blocks):
        assert len({*negatives, *positives}) == len(negatives) + 1
    assert shapes.pairs_of(work.blocks) == work.blocks.negatives.sum()


def test_a_log_of_slates_is_in_the_order_of_time_and_clicks_follow_what_was_shown() -> None:
    events, item_keys = shapes.slates(300, 20, shapes.keys(50, 0)), set(shapes.keys(50, 0).tolist())
    assert (np.diff(events.time_ms) >= 0).all()
    assert set(events.items.tolist()) <= item_keys
    shown: dict[int, set[int]] = {}
    for event in objects.unpacked(events):
        if event.kind == IMPRESSION:
            shown.setdefault(event.user, set()).update(event.items)
        else:
            assert set(event.items) <= shown[event.user]


def test_of_a_crowd_everybody_has_an_event_and_some_pass_b() -> None:
    users = 20_000
    events = shapes.crowd(60_000, users, shapes.keys(50, 0))
    assert (np.diff(events.time_ms) >= 0).all()
    assert abs(len(events.user) - 60_000) < 600
    assert len(np.unique(events.user)) == users
    assert (np.bincount(events.user[events.kind == CLICK]) > 100).any()
    seen = shapes.once(users, shapes.keys(50, 0))
    assert sorted(seen.user.tolist()) == list(range(users))
    assert set(seen.kind.tolist()) == {IMPRESSION}


# --- sessions and gate as objects ------------------------------------------------------------------------------------

_EVENT = st.tuples(
    st.integers(0, 2),  # user
    st.sampled_from((IMPRESSION, IMPRESSION, CLICK, CLICK, NEGATIVE)),
    st.lists(st.integers(0, 7), min_size=1, max_size=6),
    st.sampled_from((0, 0, 0, 1, 2_000, 2_000, -3_000, GAP_MS, GAP_MS + 1, DAY_MS, 2 * DAY_MS)),
)
_GATES = st.builds(
    lambda low, high, days, once: GateRules(blocks_min=low, blocks_max=high, window_days=days, ignore_repeats=once),
    st.integers(1, 2),
    st.sampled_from((2, 3, 5, 1000)),
    st.sampled_from((1, 2, 3, 8)),
    st.booleans(),
)
_SESSIONS = st.builds(
    lambda gap_ms, *limits: SessionRules(0, gap_ms, *limits),
    st.sampled_from((0, GAP_MS)),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 3),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_EVENT, max_size=60), _SESSIONS, _GATES)
def test_objects_give_the_blocks_and_decisions_of_the_core(
    drawn: list[tuple[int, int, list[int], int]], sessions: SessionRules, gate: GateRules
) -> None:
    users, kinds = [event[0] for event in drawn], [event[1] for event in drawn]
    slates = [event[2] if event[1] == IMPRESSION else event[2][:1] for event in drawn]
    times = np.maximum.accumulate(np.cumsum([event[3] for event in drawn], dtype=np.int64) + 10 * DAY_MS)
    events = Events.of(
        users,
        kinds,
        np.array([item for slate in slates for item in slate], np.uint64),
        # A user's clock never goes back, whatever its events say.
        times + np.array([min(0, event[3]) for event in drawn], np.int64),
        log_ms=times,
        start=np.concatenate(([0], np.cumsum([len(slate) for slate in slates], dtype=np.int64))),
    )
    assert objects.Partition(sessions, gate).learn(objects.unpacked(events)) == core_blocks(events, sessions, gate)


def core_blocks(events: Events, sessions: SessionRules, gate: GateRules) -> list[objects.Block]:
    """The same from `Learner.open`."""
    learner = Learner(Items(live_rows(2), 100), live_step(), sessions, gate)
    learner.intern(shapes.keys(3, 1))
    learner.open(events)
    closed, decided, found = learner._closed, learner._decided, []
    for r in np.flatnonzero(closed.op[: closed.used[0]] == BLOCK):
        first, middle = closed.start[r], closed.start[r] + closed.negatives[r]
        found.append(
            objects.Block(
                int(closed.user[r]),
                int(closed.time_ms[r]),
                closed.items[first:middle].tolist(),
                closed.items[middle : middle + closed.positives[r]].tolist(),
                int(decided.decision[r]),
            )
        )
    return found


# --- peers of the step -----------------------------------------------------------------------------------------------


def small_blocks(count: int) -> Blocks:
    [work] = shapes.make_works(1, count, 4)
    return work.blocks


def test_the_river_style_step_follows_the_gradient_of_the_papers_loss() -> None:
    model = peers.RiverStyle(dim=4, rate=0.5)
    model.learn_one(1, [10, 11, 12], [13, 14])
    u, rows = model.users[1].tolist(), [model.items[name].tolist() for name in (10, 11, 12, 13, 14)]
    a = naive.pulls([naive.dot(u, v) for v in rows], [1.0] * 5, 3, naive.paper(0.5), naive.LEVELS)
    loss = naive.paper_loss(u, rows[:3], rows[3:])
    assert model.learn_one(1, [10, 11, 12], [13, 14]) == pytest.approx(loss, rel=1e-5)
    for name, v, pull in zip((10, 11, 12, 13, 14), rows, a, strict=True):
        assert model.items[name] == pytest.approx([x + 0.5 * pull * y for x, y in zip(v, u, strict=True)], rel=1e-5)
    moved = [x + 0.5 * sum(pull * v[k] for pull, v in zip(a, rows, strict=True)) for k, x in enumerate(u)]
    assert model.users[1] == pytest.approx(moved, rel=1e-5)


def test_the_river_style_step_learns() -> None:
    model, blocks = peers.RiverStyle(dim=4, rate=0.5), peers.as_lists(small_blocks(50))
    losses = [sum(model.learn_one(*block) for block in blocks) for _ in range(10)]
    assert losses[-1] < 0.8 * losses[0]


def test_the_plain_step_is_the_river_style_step() -> None:
    blocks, model = small_blocks(50), peers.RiverStyle(dim=4)
    users, items = peers.rows(shapes.USERS, 4), peers.rows(shapes.ITEMS, 4, 1)
    model.users, model.items = dict(enumerate(users.copy())), dict(enumerate(items.copy()))
    for user, negatives, positives in peers.as_lists(blocks):
        model.learn_one(user, negatives, positives)
    peers.plain_step(blocks, users, items, np.zeros((3, 256), np.float32), model.rate)
    assert users == pytest.approx(np.array(list(model.users.values())), abs=1e-5)


@pytest.mark.parametrize("peer", [peer for peer in peers.PEERS if peer.package], ids=lambda peer: peer.name)
def test_peers_that_are_installed_learn(peer: peers.Peer) -> None:
    pytest.importorskip(peer.package)
    learn = peer.make(small_blocks(20), 4)
    learn()
    learn()


def test_pairs_as_columns_hold_every_pair() -> None:
    blocks = small_blocks(20)
    user, liked, disliked = peers.pairs_as_columns(blocks)
    assert len(user) == len(liked) == len(disliked) == shapes.pairs_of(blocks)
    first = int(blocks.negatives[0])
    assert disliked[:first].tolist() == blocks.slots[:first].tolist()
    assert set(liked[:first].tolist()) == {int(blocks.slots[first])}
