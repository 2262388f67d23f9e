"""The blocks of a log and their signs, against the twin; how many users have, against loops."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core.rows import live_rows
from saros.core.sessions import SessionRules
from saros.core.step import live_step
from saros.lab.blocks import BlockTable, Collector, Distribution, block_lines, describe, distribution
from saros.lab.log import Log
from saros.lab.replay import Plan, Replay
from tests.core.drive import gate_rules, session_rules
from tests.lab.logs import Line, lines, log_of, twin_events
from tests.naive import gate as naive_gate
from tests.naive import sessions as naive_sessions
from tests.naive.sessions import DAY_MS

GATES = st.builds(
    naive_gate.Rules,
    blocks_min=st.integers(1, 3),
    blocks_max=st.integers(3, 5),
    window_days=st.sampled_from((1, 2, 7)),
    mode=st.sampled_from(("immediate", "session", "shadow")),
    dim=st.just(2),
)


def collected(log: Log, plan: Plan, batch: int) -> tuple[BlockTable, Replay]:
    """Return the blocks of a log learned in batches of so many events."""
    replay = Replay(log, plan)
    collector = Collector(replay.owners(), replay.item_keys)
    replay.watchers = (collector,)
    replay.advance(batch=batch)
    return collector.table(), replay


@settings(max_examples=60)
@given(lines(), GATES, st.sampled_from((DAY_MS, 1_800_000)), st.sampled_from((1, 7, 1000)))
def test_blocks_and_signs_are_the_twin_s(made: list[Line], gate: naive_gate.Rules, gap_ms: int, batch: int) -> None:
    log, sessions = log_of(made), naive_sessions.Rules(gap_ms=gap_ms, ttl_ms=2 * DAY_MS)
    plan = Plan(live_rows(2), live_step(), session_rules(sessions), gate_rules(gate))
    table, replay = collected(log, plan, batch)
    twin, wanted = naive_gate.Partition(sessions, gate), {}
    # One event at a time: nothing is doomed, so a sign tells all that happened to a block.
    for event in twin_events(log, replay.user_keys, replay.item_keys):
        for row in twin.learn([event]):
            if "RESET" not in row.flags:
                items = tuple(item for item, _ in (*row.negatives, *row.positives))
                wanted[row.user, row.life, row.number] = (row.sign, len(row.negatives), items)
    keys = [tuple(replay.item_keys[items].tolist()) for items in np.split(table.item, table.start[1:-1])]
    found = list(zip(table.sign.tolist(), table.negatives.tolist(), keys[: len(table.user)], strict=True))
    assert found == list(wanted.values())
    assert replay.user_keys[table.user].tolist() == [user for user, _, _ in wanted]
    assert table.number.tolist() == [number for _, _, number in wanted]


@given(lines(users=9, most=80), st.sampled_from((2, 3, 8)))
def test_partitions_close_the_same_blocks(made: list[Line], partitions: int) -> None:
    log = log_of(made)
    plan = Plan(live_rows(2), live_step(), SessionRules())
    one, _ = collected(log, plan, 10)
    many, replay = collected(log, plan._replace(partitions=partitions), 10)
    assert len(replay.parts) == partitions
    assert sorted(block_lines(log, one)) == sorted(block_lines(log, many))


def test_lines_name_users_and_items() -> None:
    log = log_of([("ann", "impression", ("à", "b"), 1000), ("ann", "click", ("b",), 2000)])
    table, _ = collected(log, Plan(live_rows(2), live_step(), SessionRules()), 10)
    [line] = block_lines(log, table)
    assert json.loads(line) == {"user": "ann", "block": 0, "positives": ["b"], "negatives": ["à"], "sign": 1}
    assert "à" in line


def table_of(user: list[int], day: list[int]) -> BlockTable:
    """Return blocks of one click against one negative."""
    n = len(user)
    return BlockTable(
        np.array(user, np.int32),
        np.zeros(n, np.int32),
        np.array(day, np.int64) * DAY_MS,
        np.ones(n, np.int32),
        np.ones(n, np.int32),
        2 * np.arange(n + 1),
        np.zeros(2 * n, np.int32),
    )


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), min_size=1), st.integers(1, 9))
def test_the_most_blocks_in_a_window(made: list[tuple[int, int]], window: int) -> None:
    spread = distribution(table_of([user for user, _ in made], [day for _, day in made]), window)
    wanted = [
        max(
            sum(1 for other, when in made if other == user and first <= when < first + window)
            for first in range(-9, 13)
        )
        for user in sorted({user for user, _ in made})
    ]
    assert spread.counts.tolist() == wanted
    total = Counter(user for user, _ in made)
    assert spread.blocks.tolist() == [total[user] for user in sorted(total)]


def test_what_a_gate_drops() -> None:
    spread = Distribution(np.array([1, 2, 3, 30]), np.array([1, 2, 3, 30]), np.array([1, 2, 4, 90]))
    answer = describe(spread)
    assert (answer["users"], answer["blocks"], answer["clicks"], answer["min"], answer["max"]) == (4, 36, 97, 1, 30)
    assert (answer["median"], answer["mean"]) == (2.5, 9.0)
    paper = {"name": "paper", "b": 1, "B": 9, "users_dropped": 1, "blocks_dropped": 30, "clicks_dropped": 90}
    assert answer["estimates"][0] == paper
    assert [(row["from"], row["to"], row["users"]) for row in answer["histogram"]] == [
        (1, 1, 1), (2, 3, 2), (4, 7, 0), (8, 15, 0), (16, 31, 1),
    ]  # fmt: skip
    assert spread.dropped(2, 3) == {"users_dropped": 2, "blocks_dropped": 31, "clicks_dropped": 91}


@pytest.mark.parametrize("percent", [50, 90, 95, 99])
def test_a_percentile_is_the_least_count_that_covers_so_many_users(percent: int) -> None:
    counts = np.array([1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
    spread = Distribution(counts, counts, counts)
    covering = [count for count in counts.tolist() if (counts <= count).mean() * 100 >= percent]
    assert spread.percentile(percent) == covering[0]


def test_no_blocks_at_all() -> None:
    answer = describe(distribution(table_of([], [])))
    assert (answer["users"], answer["blocks"], answer["mean"], answer["max"], answer["p95"]) == (0, 0, 0.0, 0, 0)
