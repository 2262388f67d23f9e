"""Hypothesis strategies of event streams and rules, small enough that everything happens often."""

import random
from dataclasses import dataclass
from itertools import product

from hypothesis import strategies as st

from tests.naive import gate as naive_gate
from tests.naive import sessions as naive_sessions
from tests.naive.sessions import DAY_MS, Event

USERS = (3, (1 << 63) + 1, 1 << 40)  # keys; their order is not that of the slots they get
ITEMS = tuple((k << 32) + 77 * k for k in (9, 2, 30, 4, 0x80000000))
GAP_MS, AHEAD_MS, TTL_MS = 10_000, 5_000, 40_000
HUGE = 1 << 20
STARTS = (0, 10 * DAY_MS - 20_000)  # the first event: at the beginning of time, and shortly before a day ends

# Mostly little time passes between two events; the edges of gap, ttl, day and window come often enough.
_STEPS = (0,) * 20 + (1, 500, 1_000, 1_000, 2_000, 2_000) * 3 + (GAP_MS, GAP_MS + 1, 3 * GAP_MS)
_STEPS_LONG = (*_STEPS, TTL_MS, TTL_MS + 1, DAY_MS, DAY_MS, 2 * DAY_MS, 8 * DAY_MS)
_KINDS = ("impression",) * 9 + ("click",) * 9 + ("negative", "negative", "positive", "positive", "erase", "tick")
_SLATES = tuple(slate for size in (1, 2, 3) for slate in product(ITEMS, repeat=size))


@dataclass(frozen=True)
class Manner:
    """What is odd about an event."""

    shift: int | None = 0  # of its time, from the log's time; None: it tells no time
    event_id: int = 0
    session: int = 0
    weight: float = 1.0
    bot: bool = False


def _manners() -> list[Manner]:
    """Many manners, the plain one first; drawn here once, since hypothesis takes its time for each draw."""
    odd = random.Random(5)
    shifts = (0,) * 12 + (None, -1, -GAP_MS - 1, -DAY_MS, AHEAD_MS, AHEAD_MS + 1, DAY_MS)
    sessions = (0, 0, 0, 1, 2, (1 << 64) - 1)
    weights = (1.0, 1.0, 0.5, 2.5, 10.0, 0.0001220703125, 2.0**-20, 0.30000001192092896)  # all of them float32 numbers
    manners = [Manner()] * 100
    for k in range(300):
        event_id = 1 + k % 20 if k % 2 else 0
        bot = odd.random() < 0.08
        manners.append(Manner(odd.choice(shifts), event_id, odd.choice(sessions), odd.choice(weights), bot))
    return manners


_Draw = tuple[int, str, tuple[int, ...], int, Manner]  # user, kind, items, step of time, manner


def _draws(users: tuple[int, ...], kinds: tuple[str, ...], steps: tuple[int, ...]) -> st.SearchStrategy[_Draw]:
    """One event before its time is known; the simplest is a plain impression at once."""
    return st.tuples(
        st.sampled_from(users),
        st.sampled_from(kinds),
        st.sampled_from(_SLATES),
        st.sampled_from(steps),
        st.sampled_from(_manners()),
    )


def _event(draw: _Draw, log_ms: int) -> Event:
    """The event at the log's time."""
    user, kind, slate, _, manner = draw
    items = {"impression": slate, "erase": (), "tick": ()}.get(kind, slate[:1])
    time_ms = 0 if manner.shift is None else max(0, log_ms + manner.shift)
    return Event(user, kind, items, time_ms, log_ms, manner.event_id, manner.session, manner.weight, manner.bot)


def _stream(draws: list[_Draw], start_ms: int) -> list[Event]:
    """The events one after another."""
    events, log_ms = [], start_ms
    for draw in draws:
        log_ms += draw[3]
        events.append(_event(draw, log_ms))
    return events


def streams(
    *,
    sizes: tuple[int, ...] = (10, 40, 80),
    users: tuple[int, ...] = USERS,
    without: tuple[str, ...] = (),
    days: bool = True,
) -> st.SearchStrategy[list[Event]]:
    """Streams of events of a few users on a few items, all of it legal, much of it odd; without `days` they are short.

    Left alone, hypothesis would mostly try streams of five events, in which no user comes near a bound.
    """
    kinds = tuple(kind for kind in _KINDS if kind not in without)
    draw = _draws(users, kinds, _STEPS_LONG if days else _STEPS)
    draws = st.sampled_from(sizes).flatmap(lambda size: st.lists(draw, min_size=size // 2, max_size=size))
    return st.builds(_stream, draws, st.sampled_from(STARTS))


def crossing(user: int, blocks: int, log_ms: int) -> list[Event]:
    """Events that close so many blocks, or more, of items that nobody has seen."""
    events = []
    for k in range(blocks):
        shown, clicked = ((1000 + 2 * k + side) << 32 | k for side in (0, 1))
        events.append(Event(user, "impression", (shown,), log_ms, log_ms))
        events.append(Event(user, "click", (clicked,), log_ms, log_ms))
    return events


def session_rules(*, hold: bool = False, ttl: bool = True) -> st.SearchStrategy[naive_sessions.Rules]:
    """Rules of sessions with tiny limits; with `hold` sessions end."""
    return st.builds(
        naive_sessions.Rules,
        rule=st.sampled_from(("click", "algorithm", "authors")),
        gap_ms=st.just(GAP_MS) if hold else st.sampled_from((GAP_MS, GAP_MS, 0)),
        negatives_max=st.integers(1, 3),
        carried_max=st.integers(1, 2),
        clicked_max=st.integers(1, 3),
        ahead_ms=st.sampled_from((AHEAD_MS, 0)),
        ttl_ms=st.sampled_from((0, 0, 0, TTL_MS, 2 * DAY_MS)) if ttl else st.just(0),
        split_on_id=st.booleans(),
        seed=st.sampled_from((0, 1, 2**62)),
    )


def gate_rules(*, modes: tuple[str, ...] = ("immediate", "session", "shadow")) -> st.SearchStrategy[naive_gate.Rules]:
    """Rules of the gate with tiny bounds."""
    return st.builds(
        naive_gate.Rules,
        blocks_min=st.integers(0, 3),
        blocks_max=st.sampled_from((0, 0, 1, 2, 3, 4, HUGE)),
        percentile=st.sampled_from((0.0, 50.0, 95.0)),
        blocks_max_floor=st.integers(1, 3),
        blocks_max_ceiling=st.sampled_from((3, 4, HUGE)),
        window_days=st.sampled_from((1, 2, 3, 8)),
        mode=st.sampled_from(modes),
        own_row=st.booleans(),
        ignore_repeats=st.booleans(),
        wait_ms=st.sampled_from((0, 0, GAP_MS // 2, GAP_MS, 3 * GAP_MS, DAY_MS)),
        ledger_max_bytes=st.sampled_from((HUGE, HUGE, 200, 76)),
    ).filter(lambda rules: rules.blocks_min <= (rules.blocks_max or rules.blocks_max_floor))


def both_rules(
    *, modes: tuple[str, ...] = ("immediate", "session", "shadow"), ttl: bool = True
) -> st.SearchStrategy[tuple[naive_sessions.Rules, naive_gate.Rules]]:
    """Rules of sessions and gate that go together."""
    return gate_rules(modes=modes).flatmap(
        lambda gate: st.tuples(session_rules(hold=gate.mode == "session", ttl=ttl), st.just(gate))
    )


def pools() -> st.SearchStrategy[dict[int, list[int]]]:
    """For the rule `authors`: what each user may be given as a negative, perhaps nothing."""
    return st.fixed_dictionaries({user: st.lists(st.sampled_from(ITEMS), max_size=3) for user in USERS})


def cuts() -> st.SearchStrategy[list[int]]:
    """Sizes of batches, to be used in turn; 0 is an empty batch."""
    return st.lists(st.sampled_from((1, 2, 3, 5, 8, 0, 60)), min_size=1, max_size=6).filter(any)


def batches(events: list[Event], sizes: list[int]) -> list[list[Event]]:
    """Cut a stream into batches of these sizes, again and again."""
    cut, first, turn = [], 0, 0
    while first < len(events):
        end = first + sizes[turn % len(sizes)]
        cut.append(events[first:end])
        first, turn = end, turn + 1
    return cut
