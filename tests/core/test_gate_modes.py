"""What the gate promises: no trace above B, a shadow that changes nothing, sessions that wait for their end."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core.ledger import ENTRIES, ITEMS
from tests.core.drive import Run, compare, told_alike
from tests.core.scripts import key_of
from tests.core.strategies import (
    GAP_MS,
    HUGE,
    USERS,
    batches,
    both_rules,
    crossing,
    cuts,
    gate_rules,
    pools,
    session_rules,
    streams,
)
from tests.naive import sessions as naive_sessions
from tests.naive.gate import Partition, Rules
from tests.naive.sessions import DAY_MS, Block, Event, SessionEnd

BothRules = tuple[naive_sessions.Rules, Rules]
Pool = dict[int, list[int]]
BOT = USERS[1]
# Streams that end within the window, so that nothing is vested, and nobody is away for long.
SHORT = streams(days=False)


def in_window(rules: Rules, bound: int = 3) -> Rules:
    """The same rules with fixed bounds, and a window that nothing leaves."""
    low = max(1, rules.blocks_min)
    return replace(rules, blocks_min=low, blocks_max=max(bound, low), window_days=8)


@settings(max_examples=100)
@given(session_rules(hold=True, ttl=False), gate_rules(modes=("immediate", "session")), cuts(),
       streams(users=(BOT,), days=False))  # fmt: skip
def test_alone_above_the_bound_leaves_no_trace(
    sessions: naive_sessions.Rules, rules: Rules, sizes: list[int], events: list[Event]
) -> None:
    """A single user that ends above B: all counters are 0, and every item row is the row it started with."""
    rules = in_window(rules)
    events = [*events, *crossing(BOT, rules.blocks_max + 1, events[-1].log_ms)]
    run = Run(sessions, rules, USERS)
    for batch in batches(events, sizes):
        run.learn(batch)
    assert run.decisions[-1].word == "over"
    assert run.ledgers() == {}
    assert run.item_counters() == {}
    assert run.totals() == (0, 0)
    assert run.item_buckets(events[-1].log_ms // DAY_MS) == {}
    assert run.item_rows() == run.folded() == Run(sessions, rules, USERS).start_rows(run.item_slots())


@settings(max_examples=100)
@given(session_rules(ttl=False), gate_rules(modes=("immediate",)), cuts(), SHORT, pools())
def test_among_others_above_the_bound_leaves_no_trace_on_counters(
    sessions: naive_sessions.Rules, rules: Rules, sizes: list[int], events: list[Event], pool: Pool
) -> None:
    """What the others decide, count and how often their rows move is as if the user had never been."""
    rules = in_window(rules)
    with_bot = [*events, *crossing(BOT, rules.blocks_max + 1, events[-1].log_ms)]
    without = [event for event in events if event.user != BOT]
    one, other = Run(sessions, rules, USERS, pool), Run(sessions, rules, USERS, pool)
    for batch in batches(with_bot, sizes):
        one.learn(batch)
    for batch in batches(without, sizes):
        other.learn(batch)
    assert [d for d in one.decisions if d.user != BOT] == other.decisions
    assert one.ledgers() == other.ledgers()
    assert one.item_counters() == other.item_counters()
    assert one.totals() == other.totals()
    assert {user: n for user, n in one.moves().items() if user != BOT} == other.moves()


@settings(max_examples=100)
@given(session_rules(ttl=False), gate_rules(modes=("immediate",)), SHORT, pools())
def test_above_the_bound_within_a_batch_leaves_no_trace_to_the_bit(
    sessions: naive_sessions.Rules, rules: Rules, events: list[Event], pool: Pool
) -> None:
    """Where one batch holds all of the user's blocks, others never learn on top of them: every bit is the same."""
    rules = in_window(rules)
    with_bot = [*events, *crossing(BOT, rules.blocks_max + 1, events[-1].log_ms)]
    one, other = Run(sessions, rules, USERS, pool), Run(sessions, rules, USERS, pool)
    one.learn(with_bot)
    other.learn([event for event in events if event.user != BOT])
    assert one.item_rows() == other.item_rows()
    assert one.totals() == other.totals()
    rows, others = one.user_rows(), other.user_rows()
    assert {user: rows[user] for user in USERS if user != BOT} == {user: others[user] for user in USERS if user != BOT}


def all_in_the_ledger(rules: Rules) -> Rules:
    """A shadow adds even what its ledger has no room for: give it room, so that an erase finds everything."""
    return replace(rules, ledger_max_bytes=HUGE) if rules.mode == "shadow" else rules


@settings(max_examples=100)
@given(both_rules(ttl=False), SHORT, pools(), cuts())
def test_item_rows_are_what_the_ledgers_hold(
    rules: BothRules, events: list[Event], pool: Pool, sizes: list[int]
) -> None:
    """While nothing is vested, rows are their start plus the added blocks of the ledgers: taking back is exact."""
    run = Run(rules[0], all_in_the_ledger(replace(rules[1], window_days=8)), USERS, pool)
    for batch in batches(events, sizes):
        run.learn(batch)
        assert run.item_rows() == run.folded()
    assert run.counts()["vested"] == 0


def everything_learned(rules: Rules) -> Rules:
    """No bounds at all."""
    return replace(rules, blocks_min=1, blocks_max=HUGE, mode="immediate", ignore_repeats=False, ledger_max_bytes=HUGE)


@settings(max_examples=100)
@given(both_rules(modes=("shadow",)), streams(), pools(), cuts())
def test_a_shadow_changes_nothing(rules: BothRules, events: list[Event], pool: Pool, sizes: list[int]) -> None:
    """Rows, counters and users are, to the bit, those of a gate that lets everything through."""
    gate = all_in_the_ledger(rules[1]) if any(event.kind == "erase" for event in events) else rules[1]
    run, free = Run(rules[0], gate, USERS, pool), Run(rules[0], everything_learned(gate), USERS, pool)
    for batch in batches(events, sizes):
        run.learn(batch)
        free.learn(batch)
    assert run.item_rows() == free.item_rows()
    assert run.item_counters() == free.item_counters()
    assert run.totals() == free.totals()
    assert run.user_rows() == free.user_rows()
    assert run.moves() == free.moves()


@settings(max_examples=100)
@given(both_rules(modes=("shadow",)), streams(), pools(), cuts())
def test_a_shadow_decides_what_the_gate_would(
    rules: BothRules, events: list[Event], pool: Pool, sizes: list[int]
) -> None:
    run, real = Run(*rules, USERS, pool), Run(rules[0], replace(rules[1], mode="immediate"), USERS, pool)
    for batch in batches(events, sizes):
        run.learn(batch)
        real.learn(batch)
    assert run.decisions == real.decisions
    assert run.bounds() == real.bounds()
    words = ("learned", "waited", "over", "ledger_full", "repeat", "repeat_clicks", "crossed")
    assert [run.counts()[word] for word in words] == [real.counts()[word] for word in words]


@settings(max_examples=150)
@given(both_rules(modes=("session",)), streams(), pools())
def test_sessions_wait_for_their_end(rules: BothRules, events: list[Event], pool: Pool) -> None:
    """Nothing is added before a session's end; at its end all of it, if the count lies within the bounds."""
    run, twin = Run(*rules, USERS, pool), Partition(*rules, pool)
    for event in events:
        first, (low, high) = len(run.ops), run.bounds()  # a new day's bounds come after the ends of sessions
        rows = run.learn([event])
        twin.learn([event])
        ended = {op.user: op for op in run.ops[first:] if isinstance(op, SessionEnd)}
        assert {row.user for row in rows if row.sign == 1} <= ended.keys()
        closed = {op.user for op in run.ops[first:] if isinstance(op, Block)}
        for user, end in ended.items():
            if user not in closed and any(entry.sign == 0 for entry in run.ledgers().get(user, ())):
                assert not low <= twin.gate.count(user, end.clock_ms) <= high


@settings(max_examples=150)
@given(both_rules(modes=("immediate", "shadow")), streams(), st.integers(1, 6))
def test_a_full_item_table_refuses_blocks_whole(rules: BothRules, events: list[Event], limit: int) -> None:
    gate = replace(rules[1], items_max=limit)
    run, twin = Run(rules[0], gate, USERS), Partition(rules[0], gate)
    for event in events:
        assert told_alike(run.learn([event])) == told_alike(twin.learn([event]))
        assert run.item_slots().keys() == twin.gate.items
        assert len(twin.gate.items) <= limit
    compare(run, twin)


@settings(max_examples=100)
@given(both_rules(modes=("session",)), streams(without=("erase",)), st.integers(1, 6))
def test_a_full_item_table_refuses_blocks_on_release_too(rules: BothRules, events: list[Event], limit: int) -> None:
    gate = replace(rules[1], items_max=limit)
    run, twin = Run(rules[0], gate, USERS), Partition(rules[0], gate)
    for event in events:
        assert told_alike(run.learn([event])) == told_alike(twin.learn([event]))
        assert run.item_slots().keys() == twin.gate.items
    compare(run, twin)


def busy_stream(seed: int, users: int, count: int) -> list[Event]:
    """Days of many users who see slates of ten and click: ledgers grow, and what leaves the window is garbage."""
    draw, log_ms, events = random.Random(seed), 10 * DAY_MS, list[Event]()
    letters = [key_of(chr(k)) for k in range(ord("A"), ord("z"))]
    for _ in range(count):
        user, slate = draw.randrange(users), tuple(draw.sample(letters, 10))
        log_ms += draw.choice((0, 1_000, 200_000))
        events.append(Event(user, "impression", slate, log_ms, log_ms))
        events.append(Event(user, "click", (draw.choice(slate),), log_ms, log_ms))
        if draw.random() < 0.04:
            events.append(Event(user, "erase", (), log_ms, log_ms))
    return events


@pytest.mark.parametrize(
    ("mode", "window_days"), [("immediate", 1), ("immediate", 8), ("session", 1), ("session", 8), ("shadow", 1)]
)
@pytest.mark.parametrize("sizes", [[60], [7, 500]])
def test_ledgers_that_grow_and_are_compacted(mode: str, window_days: int, sizes: list[int]) -> None:
    sessions = naive_sessions.Rules(gap_ms=100 * GAP_MS)
    rules = Rules(blocks_min=2, blocks_max=16, window_days=window_days, mode=mode)
    run, twin = Run(sessions, rules, range(80)), Partition(sessions, rules)
    ledger, before, compacted = run.learner.ledger, 0, False
    for batch in batches(busy_stream(4, 80, 4_000), sizes):
        assert told_alike(run.learn(batch)) == told_alike(twin.learn(batch))
        assert run.ledgers() == twin.ledgers()
        if window_days == 8:
            assert run.item_rows() == run.folded(), "coefficients have moved with their items"
        compacted |= ledger.arrays.used[ITEMS] < before
        before = int(ledger.arrays.used[ITEMS])
    compare(run, twin)
    assert compacted
    assert len(ledger.arrays.number) > 256, "entries have grown"
    assert ledger.arrays.used[ENTRIES] < len(run.decisions), "entries are used again"
