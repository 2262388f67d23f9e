"""saros.core.sessions: the blocks of each rule written out, and the state machine against its slow twin."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core import counts as c
from saros.core import sessions as core
from saros.core.jit import I64
from saros.core.sessions import Feed, SessionRules, feed
from saros.core.timeline import OPS_PER_EVENT, Closed
from tests.core.drive import Run, columns, pool_of
from tests.core.scripts import events_of, key_of, told
from tests.core.strategies import (
    AHEAD_MS,
    GAP_MS,
    USERS,
    batches,
    cuts,
    pools,
    session_rules,
    streams,
)
from tests.naive import gate as naive_gate
from tests.naive.sessions import Block, Event, NewDay, Op, Rules, Sessions

NO_GATE = naive_gate.Rules(blocks_max=1 << 20)
SMALL = Rules(gap_ms=GAP_MS, ahead_ms=AHEAD_MS)
Pool = dict[int, list[int]]


def play(script: str, rules: Rules, pool: Pool | None = None) -> list[str]:
    """What a script leads to; the core and its twin agree on it."""
    events = events_of(script)
    mode = "session" if rules.hold else "immediate"
    run, twin = Run(rules, replace(NO_GATE, mode=mode), (1, 2, 3), pool), Sessions(rules, pool)
    run.learn(events)
    assert run.ops == [op for event in events for op in twin.feed(event)]
    return told(run.ops)


EXAMPLES: list[tuple[str, Rules, str, list[str]]] = [
    # `click`: a click takes its item out of what was shown, and the rest are the negatives it won against.
    ("shown, then clicked", SMALL, "show abc, click b", ["ac|b"]),
    ("a block uses its negatives up", SMALL, "show abc, click b, click a", ["ac|b"]),
    ("clicks without negatives are carried", SMALL, "click x, click y, show ab, click b", ["a|xyb"]),
    ("the only item shown is clicked", SMALL, "show a, click a, show b, click c", ["b|ac"]),
    ("shown twice, listed once, where it stood first", SMALL, "show ab, show ca, click d", ["abc|d"]),
    ("clicked twice, listed once", SMALL, "click x, click x, show a, click x", ["a|x"]),
    ("clicked in this session: no negative", SMALL, "show ab, click b, show bc, click d", ["a|b", "c|d"]),
    # `algorithm`, the paper's box: a negative after a click closes a block too.
    ("algorithm: as click, when clicks come last", replace(SMALL, rule="algorithm"), "show ab, click c", ["ab|c"]),
    ("algorithm: negative after clicks", replace(SMALL, rule="algorithm"), "click x, click y, show ab", ["a|xy"]),
    (
        "algorithm: the rest of a slate waits for the next click",
        replace(SMALL, rule="algorithm"),
        "click x, show abc, click d",
        ["a|x", "bc|d"],
    ),
    # `authors`, their released code: every click closes a block, and clicks in a row reuse the negatives.
    ("authors: the last run is reused", replace(SMALL, rule="authors"), "show ab, click c, click d", ["ab|c", "ab|d"]),
    (
        "authors: a new run begins after a click",
        replace(SMALL, rule="authors"),
        "show ab, click x, show c, click y, click z",
        ["ab|x", "c|y", "c|z"],
    ),
    ("authors: nothing to draw from", replace(SMALL, rule="authors"), "click x, show a, click y", ["a|y"]),
    # Feedback.
    ("disliked: a negative of that weight", SMALL, "hate a weight=2.5, click b", ["a*2.5|b"]),
    ("liked: a click of that weight", SMALL, "show a, like b weight=0.5", ["a|b*0.5"]),
    ("disliked after the click: the click is withdrawn", SMALL, "click a, hate a, click b", ["a|b"]),
    ("disliked after its block: a negative all the same", SMALL, "show a, click b, hate b, click c", ["a|b", "b|c"]),
    ("shown and disliked: the weight changes", SMALL, "show ab, hate a weight=2, click c", ["a*2b|c"]),
    ("the last weight counts", SMALL, "like a weight=3, like a weight=2, show b, click c", ["b|a*2c"]),
    ("a weight is never 0", SMALL, "hate a weight=0.0000001, click b", ["a*0.000244141|b"]),
    # Limits: the oldest goes, except that the click that closes a block always has a place.
    ("most negatives", replace(SMALL, negatives_max=2), "show abc, click d", ["bc|d"]),
    ("most carried clicks", replace(SMALL, carried_max=2), "click x, click y, click z, show a, click b", ["a|yzb"]),
    (
        "most clicks remembered",
        replace(SMALL, clicked_max=1),
        "show a, click x, show a, click y, show xy, click z",
        ["a|x", "a|y", "x|z"],
    ),
    (
        "a carried click is remembered anyway",
        replace(SMALL, clicked_max=1),
        "click x, click y, show xa, click b",
        ["a|xyb"],
    ),
    # Time.
    ("a pause of the gap", SMALL, "show a, wait 10s, click b", ["a|b"]),
    ("a longer pause ends the session", SMALL, "click x, wait 10001ms, show b, click c", ["b|c"]),
    ("and what was clicked may be a negative again", SMALL, "click x, wait 11s, show x, click y", ["x|y"]),
    ("no gap, no end", replace(SMALL, gap_ms=0), "show a, wait 99d, click b", ["a|b"]),
    ("late events do not turn back the clock", SMALL, "wait 9s, show a, show b at=-9s, wait 9s, click c", ["ab|c"]),
    ("nor do they end a session", SMALL, "show a, wait 30s, show b at=-30s, click c at=-20s", ["ab|c"]),
    ("an event ahead of the log counts 5 s ahead", SMALL, "show a at=1d, wait 15s, click b", ["a|b"]),
    ("no more", SMALL, "show a at=1d, wait 15001ms, click b", []),
    ("no time: the log's", SMALL, "show a untimed, wait 11s, click b untimed", []),
    ("session ids split if they are to", replace(SMALL, split_on_id=True), "show a session=1, click b session=2", []),
    ("else they do not", SMALL, "show a session=1, click b session=2", ["a|b"]),
    ("no id, same session", replace(SMALL, split_on_id=True), "show a session=1, show b, click c session=1", ["ab|c"]),
    ("idle for too long: a new user", replace(SMALL, ttl_ms=40_000), "show a, wait 41s, click b", ["expired"]),
    # What does not reach a session.
    ("a duplicate", SMALL, "show a id=7, click b id=8, show c id=7, click d", ["a|b"]),
    ("a known bot", SMALL, "show a bot, click b, click c bot, show d, click e", ["d|be"]),
    ("another user's", SMALL, "show a, click b user=2, click c", ["a|c"]),
    ("an erase", SMALL, "show a, erase, click b", ["erased"]),
    # In the gate's session mode the end of a session with blocks is told: when the watermark passes its deadline.
    ("its own next event", replace(SMALL, hold=True), "show a, click b, wait 11s, show c", ["a|b", "end"]),
    ("another's event", replace(SMALL, hold=True), "show a, click b, wait 11s, show c user=2", ["a|b", "end"]),
    ("a tick", replace(SMALL, hold=True), "show a, click b, wait 11s, tick", ["a|b", "end"]),
    ("not at the deadline, but past it", replace(SMALL, hold=True), "show a, click b, wait 10s, tick", ["a|b"]),
    ("each event moves it", replace(SMALL, hold=True), "show a, click b, wait 9s, show c, wait 9s, tick", ["a|b"]),
    ("no block, nobody waits", replace(SMALL, hold=True), "show a, wait 11s, tick", []),
    (
        "the earliest deadline first, then the lowest key; before the event",
        replace(SMALL, hold=True),
        "show a user=3, click b user=3, wait 1s, show a user=2, click b user=2, show a, click b, wait 5s, "
        "show c user=3, wait 99s, show e user=3",
        ["3:a|b", "2:a|b", "a|b", "end", "2:end", "3:end"],
    ),
]


@pytest.mark.parametrize(("rules", "script", "expected"), [e[1:] for e in EXAMPLES], ids=[e[0] for e in EXAMPLES])
def test_blocks_written_out(rules: Rules, script: str, expected: list[str]) -> None:
    assert play(script, rules) == expected


def test_authors_draws_one_negative_for_clicks_before_any() -> None:
    rules = replace(SMALL, rule="authors", seed=3)
    pool = {1: [key_of("p"), key_of("q")], 2: [key_of("x")]}
    first, second, *later = play("click x, click y, click p, click q, show a, click z", rules, pool)
    assert (first[2:], second[2:], later) == ("x", "y", ["q|p", "p|q", "a|z"])
    assert first[0] == second[0], "the draw is a function of seed and user"
    assert first[0] in "pq"
    assert play("click x user=2, click y user=2", rules, pool) == ["2:x|y"], "never the clicked item"
    draws = {play("click x", replace(rules, seed=seed), pool)[0] for seed in range(20)}
    assert draws == {"p|x", "q|x"}, "another seed draws another"


def test_the_last_16_event_ids_are_remembered() -> None:
    fresh = "".join(f", show b id={100 + k}" for k in range(15))
    assert play(f"show a id=7{fresh}, show c id=7, click d", SMALL) == ["ab|d"]
    assert play(f"show a id=7{fresh}, show b id=200, show c id=7, click d", SMALL) == ["abc|d"]


@settings(max_examples=150)
@given(st.booleans().flatmap(lambda hold: session_rules(hold=hold).map(lambda rules: replace(rules, hold=hold))),
       streams(), pools(), cuts())  # fmt: skip
def test_kernel_equals_twin(rules: Rules, events: list[Event], pool: Pool, sizes: list[int]) -> None:
    run = Run(rules, replace(NO_GATE, mode="session" if rules.hold else "immediate"), USERS, pool)
    twin, expected = Sessions(rules, pool), list[Op]()
    for batch in batches(events, sizes):
        run.learn(batch)
        for event in batch:
            expected += twin.feed(event)
        assert run.ops == expected
        assert {name: n for name, n in run.counts().items() if name in twin.counts} == +twin.counts
        assert run.pending() == twin.pending()


def fed_with_little_room(run: Run, events: list[Event], pool: Pool, rows: int, items: int) -> tuple[list[Op], I64]:
    """The ops and counters of `feed` when its output columns are this short and are emptied each time they are full."""
    learner, counts, ops, done = run.learner, c.zeros(), list[Op](), 0
    widest = learner.session_rules.negatives_max + learner.session_rules.carried_max + 1
    closed = Closed.empty(OPS_PER_EVENT + rows, widest + items)
    inputs = columns(events, run.slots)
    while done < len(events):
        before, closed.used[:] = done, 0
        parts = (learner.users.arrays, learner.timeline, learner.session_rules, pool_of(pool, run.slots))
        done = feed(Feed(*parts, closed, counts), inputs, done)
        assert done > before or closed.used[0] > 0, "no way forward"
        ops += run.told_by(closed)
    return ops, counts


@settings(max_examples=100)
@given(session_rules(hold=True), streams(), pools(), st.integers(0, 3), st.integers(0, 3))
def test_feed_goes_on_where_it_ran_out_of_room(
    rules: Rules, events: list[Event], pool: Pool, rows: int, items: int
) -> None:
    run = Run(rules, replace(NO_GATE, mode="session"), USERS, pool)
    twin = Sessions(replace(rules, hold=True), pool)
    expected = [op for event in events for op in twin.feed(event)]
    ops, counts = fed_with_little_room(run, events, pool, rows, items)
    assert ops == expected
    assert {name: n for name, n in c.named(counts).items() if n} == +twin.counts


@settings(max_examples=100)
@given(session_rules(), streams(), pools(), cuts())
def test_nothing_is_lost_nor_doubled(rules: Rules, events: list[Event], pool: Pool, sizes: list[int]) -> None:
    run = Run(rules, NO_GATE, USERS, pool)
    for batch in batches(events, sizes):
        run.learn(batch)
    n = run.counts()
    shown, carried = run.pending()
    kinds = ("impressions", "clicks", "negatives", "positives", "erases", "ticks", "bots", "duplicates")
    assert len(events) == sum(n[kind] for kind in kinds)
    assert n["carried"] == n["clicks"] + n["positives"]
    left = ("carried_again", "carried_capped", "carried_expired", "carried_erased", "carried_retracted")
    assert n["carried"] == sum(n[name] for name in left) + n["block_positives"] + n["clicks_alone"] + carried
    if rules.rule == "authors":
        assert n["blocks"] + n["clicks_alone"] == n["clicks"] + n["positives"]
        return
    left = ("negatives_clicked", "negatives_capped", "negatives_expired", "negatives_erased", "block_negatives")
    assert n["shown"] == n["shown_again"] + n["shown_clicked"] + sum(n[name] for name in left) + shown
    assert n["clicks_alone"] == 0


@settings(max_examples=100)
@given(session_rules(), streams(), pools())
def test_an_item_stands_in_one_set_of_a_block_and_once(rules: Rules, events: list[Event], pool: Pool) -> None:
    run = Run(rules, NO_GATE, USERS, pool)
    run.learn(events)
    for block in run.ops:
        if isinstance(block, Block):
            items = [item for item, _ in (*block.negatives, *block.positives)]
            assert len(set(items)) == len(items)
            assert 1 <= len(block.negatives) <= rules.negatives_max
            assert 1 <= len(block.positives) <= rules.carried_max + 1


@settings(max_examples=60)
@given(session_rules(hold=True), streams(), pools(), st.permutations(USERS))
def test_slots_decide_nothing(rules: Rules, events: list[Event], pool: Pool, keys: list[int]) -> None:
    mode = replace(NO_GATE, mode="session")
    one, other = Run(rules, mode, USERS, pool), Run(rules, mode, keys, pool)
    one.learn(events)
    other.learn(events)
    assert one.ops == other.ops
    assert one.counts() == other.counts()


@settings(max_examples=60)
@given(session_rules(hold=True), streams())
def test_a_late_tick_ends_every_session(rules: Rules, events: list[Event]) -> None:
    run = Run(rules, replace(NO_GATE, mode="session"), USERS)
    run.learn(events)
    far = int(run.learner.timeline.at[0]) + rules.gap_ms + 1
    run.learn([Event(0, "tick", time_ms=far, log_ms=far)])
    assert run.learner.timeline.at[1] == 0
    assert not run.learner.users.arrays.pins.any(), "whoever waits for nothing may be evicted"
    last = {op.user: op for op in run.ops if not isinstance(op, NewDay)}
    assert not any(isinstance(op, Block) for op in last.values())


BAD_RULES: list[tuple[SessionRules, str]] = [
    (SessionRules(rule=3), "rule"),
    (SessionRules(negatives_max=0), "at least one"),
    (SessionRules(carried_max=0), "at least one"),
    (SessionRules(clicked_max=0), "at least one"),
    (SessionRules(gap_ms=-1), "negative"),
    (SessionRules(ahead_ms=-1), "negative"),
    (SessionRules(ttl_ms=-1), "negative"),
    (SessionRules(seed=-1), "negative"),
    (SessionRules(hold=True, gap_ms=0), "gap"),
]


@pytest.mark.parametrize(("rules", "reason"), BAD_RULES)
def test_rules_that_make_no_sense_are_refused(rules: SessionRules, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        core.check_rules(rules)
