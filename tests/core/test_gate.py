"""saros.core.gate: decisions and ledgers written out, and against the slow twin, whatever the batches."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core import gate as core
from saros.core.gate import GateRules
from tests.core.drive import Run, compare, told_alike
from tests.core.scripts import events_of
from tests.core.strategies import GAP_MS, HUGE, USERS, batches, both_rules, cuts, gate_rules, pools, streams
from tests.naive import gate as naive_gate
from tests.naive import sessions as naive_sessions
from tests.naive.gate import Partition, Rules
from tests.naive.sessions import DAY_MS, Event

SESSIONS = naive_sessions.Rules(gap_ms=GAP_MS)
BAND = Rules(blocks_min=2, blocks_max=3, window_days=2)  # b = 2, B = 3
SLOW = replace(BAND, blocks_min=1, blocks_max=9, mode="session", wait_ms=20_000)
BothRules = tuple[naive_sessions.Rules, Rules]
Pool = dict[int, list[int]]


def play(script: str, rules: Rules, sessions: naive_sessions.Rules = SESSIONS) -> tuple[str, dict[int, str], Run]:
    """The gate's words on the blocks of a script, and the signs in each ledger; one event per batch."""
    run, twin = Run(sessions, rules, (1, 2, 3)), Partition(sessions, rules)
    for event in events_of(script):
        assert told_alike(run.learn([event])) == told_alike(twin.learn([event]))
    compare(run, twin)
    words = " ".join(decision.word for decision in run.decisions)
    return words, {user: "".join(f"{e.sign:+d}" for e in ledger) for user, ledger in run.ledgers().items()}, run


LONG_AGO = "block ab, wait 1d, block cd, wait 1d, block ef"
EXAMPLES: list[tuple[str, Rules, str, str, dict[int, str]]] = [
    # Below b a block waits; reaching b releases what waits; up to B blocks are learned.
    ("below b", BAND, "block ab", "wait", {1: "+0"}),
    ("reaching b", BAND, "block ab, block cd", "wait learn", {1: "+1+1"}),
    ("up to B", BAND, "block ab, block cd, block ef", "wait learn learn", {1: "+1+1+1"}),
    ("each user has its own count", BAND, "block ab, block cd user=2", "wait wait", {1: "+0", 2: "+0"}),
    # Passing B takes back what was taught, and nothing more is learned.
    ("passing B", BAND, "block ab, block cd, block ef, block gh", "wait learn learn over", {}),
    ("above B", BAND, "block ab, block cd, block ef, block gh, block ij", "wait learn learn over over", {}),
    # The window: 2 days here. Older blocks are vested, and no longer count.
    ("a day later both count", BAND, "block ab, wait 1d, block cd", "wait learn", {1: "+1+1"}),
    ("two days later the first is gone", BAND, "block ab, wait 2d, block cd", "wait wait", {1: "+0"}),
    ("vested, not taken back", BAND, f"{LONG_AGO}, block gh, block ij", "wait learn learn learn over", {}),
    (
        "back at B: new blocks count, what was taken back stays out",
        replace(BAND, blocks_min=1, blocks_max=1, window_days=1),
        "block ab, block cd, wait 1d, block ef",
        "learn over learn",
        {1: "+1"},
    ),
    # An erase starts the count anew.
    ("an erase", BAND, "block ab, block cd, erase, block ef", "wait learn wait", {1: "+0"}),
    # Session mode: from b on, blocks are held until the session ends.
    ("held", replace(BAND, mode="session"), "block ab, block cd, block ef", "wait hold hold", {1: "+0+0+0"}),
    (
        "and added when it ends",
        replace(BAND, mode="session"),
        "block ab, block cd, wait 11s, tick",
        "wait hold",
        {1: "+1+1"},
    ),
    ("unless that is below b", replace(BAND, mode="session"), "block ab, wait 11s, tick", "wait", {1: "+0"}),
    (
        "or above B",
        replace(BAND, mode="session"),
        "block ab, block cd, block ef, block gh, wait 11s, tick",
        "wait hold hold over",
        {},
    ),
    (
        "an earlier session is taken back",
        replace(BAND, mode="session"),
        "block ab, block cd, wait 11s, block ef, block gh",
        "wait hold hold over",
        {},
    ),
    # ... and for longer where they came faster than one in each wait: 11 s of silence end a session, and 20 s a block
    # make 40 s for two of them.
    ("waited for", SLOW, "block ab, block cd, wait 11s, tick", "hold hold", {1: "+0+0"}),
    ("until the pace is met", SLOW, "block ab, block cd, wait 40s, tick, wait 1s, tick", "hold hold", {1: "+1+1"}),
    ("one block waits for less", SLOW, "block ab, wait 21s, tick", "hold", {1: "+1"}),
    ("blocks at the pace are added", SLOW, "block ab, wait 21s, block cd, wait 21s, tick", "hold hold", {1: "+1+1"}),
    ("tiny sessions do not help", SLOW, "block ab, wait 11s, block cd, wait 11s, tick", "hold hold", {1: "+0+0"}),
    (
        "nor does a long wait before",
        SLOW,
        "block ab, wait 1d, block cd, block ef, wait 41s, tick",
        "hold hold hold",
        {1: "+1+1+1"},
    ),
    (
        "an erase ends the wait",
        SLOW,
        "block ab, block cd, erase, block ef, wait 21s, tick",
        "hold hold hold",
        {1: "+1"},
    ),
    # Shadow mode: the same words, but every block is added.
    (
        "shadow",
        replace(BAND, mode="shadow"),
        "block ab, block cd, block ef, block gh",
        "wait learn learn over",
        {1: "+1+1+1+1"},
    ),
    # Repeated clicks on an item.
    ("repeats may teach", BAND, "block ab, block cb", "wait learn", {1: "+1+1"}),
    ("or not", replace(BAND, ignore_repeats=True), "block ab, block cb, block de", "wait repeat learn", {1: "+1+1"}),
    (
        "all clicks are remembered",
        replace(BAND, ignore_repeats=True),
        "click x, block ay, block by",
        "wait repeat",
        {1: "+0"},
    ),
    # A full ledger: 20 bytes, 16 for the row and 24 for two items make 60 a block.
    (
        "ledger full",
        replace(BAND, blocks_max=9, ledger_max_bytes=120),
        "block ab, block cd, block ef, wait 2d, block gh",
        "wait learn ledger_full wait",
        {1: "+0"},
    ),
    # A full item table.
    (
        "items full: refused whole",
        replace(BAND, blocks_min=1, items_max=3),
        "block ab, block cd, block ac, block ad",
        "learn items_full learn over",
        {},
    ),
]


@pytest.mark.parametrize(
    ("rules", "script", "words", "ledgers"), [e[1:] for e in EXAMPLES], ids=[e[0] for e in EXAMPLES]
)
def test_decisions_written_out(rules: Rules, script: str, words: str, ledgers: dict[int, str]) -> None:
    said, signs, _ = play(script, rules)
    assert said == words
    assert signs == ledgers


PAST_B = "block ab, block cd, block ef, block gh"
TAKEN: list[tuple[str, Rules, str, tuple[int, dict[int, int]] | None]] = [
    ("up to B nothing is", BAND, "block ab, block cd, block ef", None),
    ("passing B", BAND, PAST_B, (3, {0: 3})),
    ("beyond B there is nothing more to take", BAND, f"{PAST_B}, block ij", (3, {0: 3})),
    ("not what is vested", BAND, f"{LONG_AGO}, block gh, block ij", (3, {1: 1, 2: 2})),
    ("nor what waits", replace(BAND, ignore_repeats=True), "block ab, block cb, block db, block eb", None),
    ("nor repeats", replace(BAND, ignore_repeats=True), "block ab, block cb, block de, block fg", (2, {0: 2})),
    ("it leaves the window, and stays counted", BAND, f"{PAST_B}, wait 2d, block ij", (3, {})),
    ("and grows when B is passed again", BAND, f"{PAST_B}, wait 2d, {PAST_B}", (6, {2: 3})),
    ("held blocks are dropped", replace(BAND, mode="session"), PAST_B, None),
    (
        "those of an earlier session are taken back",
        replace(BAND, mode="session"),
        "block ab, block cd, wait 11s, block ef, block gh",
        (2, {0: 2}),
    ),
    ("a shadow takes nothing back", replace(BAND, mode="shadow"), PAST_B, None),
    ("an erase forgets it", BAND, f"{PAST_B}, erase, block ij", None),
]


@pytest.mark.parametrize(("rules", "script", "taken"), [e[1:] for e in TAKEN], ids=[e[0] for e in TAKEN])
def test_what_was_taken_back_written_out(rules: Rules, script: str, taken: tuple[int, dict[int, int]] | None) -> None:
    """One event a batch, and all in one: then most of it is never added."""
    _, _, run = play(script, rules)
    whole = Run(SESSIONS, rules, (1, 2, 3))
    whole.learn(events_of(script))
    first = min((event.log_ms for event in events_of(script)), default=0) // DAY_MS
    expected = {} if taken is None else {1: (taken[0], {first + day: n for day, n in taken[1].items()})}
    assert run.taken() == expected
    assert whole.taken() == expected


def test_what_had_no_room_in_the_item_table_is_not_taken_back() -> None:
    """Once the table is full, it is full for every cut."""
    rules, script = replace(BAND, blocks_min=1, items_max=3), "block ab, block cd, block ac, block ad"
    _, _, run = play(script, rules)
    assert run.taken() == {1: (2, {100: 2})}
    halves = Run(SESSIONS, rules, (1, 2, 3))
    events = [*events_of("block ab user=2, show c user=2, click a user=2"), *events_of(script)]
    halves.learn(events[:4])
    halves.learn(events[4:])
    assert halves.taken() == {1: (2, {100: 2})}


def test_the_users_own_row() -> None:
    def moves(script: str, rules: Rules) -> int:
        """How often it has moved."""
        return play(script, rules)[2].moves().get(1, 0)

    one, two, four = "block ab", "block ab, block cd", "block ab, block cd, block ef, block gh"
    learns, session = replace(BAND, own_row=True), replace(BAND, mode="session")
    assert moves(one, BAND) == 0, "below b it does not move"
    assert moves(two, BAND) == 2, "on release every block moves it"
    assert moves(four, BAND) == 3, "above B it stays as it is"
    assert (moves(one, learns), moves(four, learns)) == (1, 4), "unless it may go on learning"
    assert moves(two, learns) == 2, "and then a release does not move it again"
    assert moves(two, session) == 1, "a held block moves it at once, one below b does not"
    assert moves(f"{two}, wait 11s, tick", session) == 2, "but does on release"
    assert moves(f"{four}, erase", learns) == 0, "an erase makes it new"


@pytest.mark.parametrize(("others", "word"), [(127, "repeat"), (128, "learn")])
def test_the_last_128_clicked_items_are_remembered(others: int, word: str) -> None:
    sessions = replace(SESSIONS, rule="authors")  # every click closes a block
    rules = Rules(blocks_max=HUGE, ignore_repeats=True)
    run, twin = Run(sessions, rules, (1,)), Partition(sessions, rules)
    clicks = [(k << 32 | k << 8,) for k in range(1, others + 2)]
    events = [Event(1, "impression", (7,), 1, 1), *(Event(1, "click", item, 1, 1) for item in [*clicks, clicks[0]])]
    run.learn(events)
    twin.learn(events)
    compare(run, twin)
    assert [decision.word for decision in run.decisions] == ["learn"] * (others + 1) + [word]


@settings(max_examples=200)
@given(both_rules(), streams(), pools(), cuts())
def test_kernel_equals_twin(rules: BothRules, events: list[Event], pool: Pool, sizes: list[int]) -> None:
    run, twin = Run(*rules, USERS, pool), Partition(*rules, pool)
    for batch in batches(events, sizes):
        assert told_alike(run.learn(batch)) == told_alike(twin.learn(batch))
        compare(run, twin)
    if not rules[1].ignore_repeats:  # else the gate has changed what `feed` told it
        assert run.ops == twin.ops


@settings(max_examples=150)
@given(both_rules(), streams(), pools(), cuts())
def test_batches_decide_nothing(rules: BothRules, events: list[Event], pool: Pool, sizes: list[int]) -> None:
    """Cut in any way, the same events give the same; where nothing is taken back in its own batch, to the bit."""
    one, other = Run(*rules, USERS, pool), Run(*rules, USERS, pool)
    spared = Partition(*rules, pool)
    for event in events:
        one.learn([event])
    for batch in batches(events, sizes):
        other.learn(batch)
        spared.learn(batch)
    assert one.ops == other.ops
    assert one.decisions == other.decisions
    assert one.bounds() == other.bounds()
    assert one.ledgers() == other.ledgers()
    assert one.moves() == other.moves()
    assert one.taken() == other.taken()
    assert one.states() == other.states()
    assert one.item_counters() == other.item_counters()
    assert one.totals() == other.totals()
    counts, others = one.counts(), other.counts()
    del counts["taken_back"], others["taken_back"]  # a batch that takes back what it would add does neither
    assert counts == others
    if spared.spared == 0:
        assert one.item_rows() == other.item_rows()
        assert one.user_rows() == other.user_rows()


@settings(max_examples=60)
@given(both_rules(), streams(), pools(), cuts(), st.permutations(USERS))
def test_replays_and_slots_decide_nothing(
    rules: BothRules, events: list[Event], pool: Pool, sizes: list[int], keys: list[int]
) -> None:
    """A second run, with the users' slots in another order, does the same to the bit."""
    one, other = Run(*rules, USERS, pool), Run(*rules, keys, pool)
    for batch in batches(events, sizes):
        assert one.learn(batch) == other.learn(batch)
    assert one.decisions == other.decisions
    assert one.ledgers() == other.ledgers()
    assert one.counts() == other.counts()
    assert one.item_rows() == other.item_rows()
    assert one.user_rows() == other.user_rows()


@settings(max_examples=100)
@given(both_rules(modes=("immediate", "session")), streams(), pools(), cuts())
def test_every_block_of_a_ledger_is_accounted_for(
    rules: BothRules, events: list[Event], pool: Pool, sizes: list[int]
) -> None:
    run = Run(*rules, USERS, pool)
    for batch in batches(events, sizes):
        run.learn(batch)
    n, signs = run.counts(), [entry.sign for ledger in run.ledgers().values() for entry in ledger]
    words = ("learned", "waited", "held", "over", "ledger_full", "repeat")
    assert n["blocks"] == sum(n[word] for word in words)
    waited = n["released"] + n["waiting_expired"] + n["waiting_dropped"] + signs.count(0)
    assert n["waited"] + n["held"] == waited
    added = sum(row.sign == 1 for row in run.rows)
    assert added == n["taken_back"] + n["vested"] + signs.count(1)
    assert added <= n["learned"] + n["released"]


@settings(max_examples=100)
@given(both_rules(), st.lists(gate_rules(), min_size=1, max_size=4), streams(), cuts())
def test_the_gate_may_change_between_batches(
    rules: BothRules, changes: list[Rules], events: list[Event], sizes: list[int]
) -> None:
    sessions, gate = replace(rules[0], gap_ms=GAP_MS), rules[1]
    run, twin = Run(sessions, gate, USERS), Partition(sessions, gate)
    for turn, batch in enumerate(batches(events, sizes)):
        assert told_alike(run.learn(batch)) == told_alike(twin.learn(batch))
        assert run.decisions == twin.gate.decisions
        assert run.ledgers() == twin.ledgers()
        assert run.taken() == twin.taken()
        change = changes[turn % len(changes)]
        run.change_gate(change)
        twin.change_gate(change)
        assert run.bounds() == twin.gate.bounds


@settings(max_examples=100)
@given(
    both_rules(modes=("immediate", "shadow")), streams(days=False), cuts(), st.lists(st.sets(st.sampled_from(USERS)))
)
def test_who_was_in_memory_as_the_gate_changed_decides_nothing(
    rules: BothRules, events: list[Event], sizes: list[int], away: list[set[int]]
) -> None:
    """What is remembered of clicks stays while repeats teach, in memory as in the bytes of a store."""
    run, twin = Run(*rules, USERS), Partition(*rules)
    for turn, batch in enumerate(batches(events, sizes)):
        run.learn(batch)
        twin.learn(batch)
        compare(run, twin)
        change = replace(rules[1], ignore_repeats=turn % 3 != 1)
        run.change_gate(change)
        twin.change_gate(change)
        run.come_back(away[turn % len(away)] if away else ())


def test_clicks_are_remembered_while_repeats_teach() -> None:
    ignores = replace(BAND, blocks_min=1, blocks_max=9, ignore_repeats=True)
    run, twin = Run(SESSIONS, ignores, (1, 2, 3)), Partition(SESSIONS, ignores)
    for script, learns in (("block ab", False), ("block cb, block cd", True), ("block eb, block ed", False)):
        for each in (run, twin):
            each.change_gate(replace(ignores, ignore_repeats=not learns))
            each.learn(events_of(script))
        run.come_back((1,))
    compare(run, twin)
    words = [decision.word for decision in run.decisions]
    assert words == ["learn", "learn", "learn", "repeat", "learn"], "what is clicked meanwhile is not added"


def test_bins_of_the_histogram() -> None:
    edges = naive_gate.bin_edges()
    assert [core.bin_top(place) for place in range(core.BINS)] == [high for _, high in edges]
    for count in [*range(2_000), *(edge for pair in edges for edge in pair), edges[-1][1] + 1, 1 << 30]:
        assert core.bin_of(count) == naive_gate.bin_of(count), count


@pytest.mark.parametrize("percentile", [0.0, 25.0, 50.0, 80.0, 95.0, 99.9])
@pytest.mark.parametrize("counts", [(1, 2, 3), (5, 70, 300), (64, 64, 1), (63, 127, 128), (1100, 1, 1)])
def test_estimates_of_users_with_many_blocks(percentile: float, counts: tuple[int, int, int]) -> None:
    """A new day's bounds are those of the twin, and follow from the counts as the settings say."""
    rules = Rules(blocks_min=0, blocks_max=0, blocks_max_floor=2, percentile=percentile, window_days=8)
    story = "".join(f"show a user={1 + k}, " + f"click b user={1 + k}, " * n for k, n in enumerate(counts))
    sessions = replace(SESSIONS, rule="authors")  # every click closes a block
    run, twin = Run(sessions, rules, (1, 2, 3)), Partition(sessions, rules)
    for part in (story, "wait 1d, tick"):
        run.learn(events_of(part))
        twin.learn(events_of(part))
    assert run.bounds() == twin.gate.bounds
    low, high = run.bounds()
    assert low == min(counts)
    if percentile == 0:
        assert high == max(2, sum(counts) // 3)
    else:
        least = next(n for k, n in enumerate(sorted(counts)) if (k + 1) * 100 >= percentile * 3)
        assert max(2, least) <= high <= max(2, least * 9 // 8), "a bin is at most an eighth wide"


def test_an_estimate_stays_below_its_ceiling() -> None:
    """Most users are bots with 300 blocks: B does not follow them."""
    story = "".join(f"show a user={1 + k}, " + f"click b user={1 + k}, " * n for k, n in enumerate((5, 300, 300)))
    sessions = replace(SESSIONS, rule="authors")
    for ceiling, high in ((HUGE, 319), (100, 100)):
        _, _, run = play(f"{story} wait 1d, tick", Rules(blocks_max_floor=2, blocks_max_ceiling=ceiling), sessions)
        assert run.bounds() == (1, high)


BAD_RULES: list[tuple[GateRules, str]] = [
    (GateRules(blocks_min=-1), "bounds"),
    (GateRules(blocks_max=-1), "bounds"),
    (GateRules(blocks_max_floor=0), "bounds"),
    (GateRules(blocks_max_floor=101), "ceiling 100"),
    (GateRules(wait_ms=-1), "wait"),
    (GateRules(blocks_min=51), "above 50"),
    (GateRules(blocks_min=4, blocks_max=3), "above 3"),
    (GateRules(window_days=0), "window_days"),
    (GateRules(window_days=9), "window_days"),
    (GateRules(percentile=100.0), "percentile"),
    (GateRules(percentile=-1.0), "percentile"),
    (GateRules(mode=3), "mode"),
]


@pytest.mark.parametrize(("rules", "reason"), BAD_RULES)
def test_rules_that_make_no_sense_are_refused(rules: GateRules, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        core.check_rules(rules)
    core.check_rules(GateRules(blocks_max=HUGE))
