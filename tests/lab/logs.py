"""Logs by hand and at random, and the same events in the words of the twin."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from saros.core.events import KINDS
from saros.core.jit import U64
from saros.lab.log import Log
from tests.naive.sessions import DAY_MS, Event

Line = tuple[str, str, tuple[str, ...], int]  # user, kind, items, time in milliseconds

_STEPS_MS = (0,) * 8 + (1, 1_000, 60_000, 1_800_000, 1_800_001, DAY_MS, 3 * DAY_MS)


def log_of(lines: Sequence[Line], *, sessions: bool = True, name: str = "log") -> Log:
    """Return a log of these lines, users and items numbered as they come."""
    users = list(dict.fromkeys(user for user, _, _, _ in lines))
    items = list(dict.fromkeys(item for _, _, slate, _ in lines for item in slate))
    return Log(
        name=name,
        users=users,
        items=items,
        user=np.array([users.index(user) for user, _, _, _ in lines], np.int32),
        kind=np.array([KINDS[kind] for _, kind, _, _ in lines], np.uint8),
        time_ms=np.array([time_ms for _, _, _, time_ms in lines], np.int64),
        start=np.cumsum([0, *(len(slate) for _, _, slate, _ in lines)]),
        item=np.array([items.index(item) for _, _, slate, _ in lines for item in slate], np.int32),
        sessions=sessions,
    )


def lines(*, users: int = 3, items: int = 6, most: int = 60) -> st.SearchStrategy[list[Line]]:
    """Events of a few users on a few items, in time order."""
    slates = st.lists(st.integers(1, items).map(lambda k: f"item {k}"), min_size=1, max_size=3, unique=True)
    kinds = st.sampled_from(("impression", "impression", "click", "click", "negative"))
    draw = st.tuples(st.integers(1, users), kinds, slates, st.sampled_from(_STEPS_MS))

    def build(draws: list[tuple[int, str, list[str], int]]) -> list[Line]:
        time_ms, made = 20 * DAY_MS, []
        for user, kind, slate, step_ms in draws:
            time_ms += step_ms
            made.append((f"user {user}", kind, tuple(slate if kind == "impression" else slate[:1]), time_ms))
        return made

    return st.lists(draw, min_size=1, max_size=most).map(build)


def twin_events(log: Log, user_keys: U64, item_keys: U64) -> list[Event]:
    """Return the log as the twin takes it."""
    names = {number: name for name, number in KINDS.items()}
    slates = [tuple(item_keys[slate].tolist()) for slate in np.split(log.item, log.start[1:-1])]
    columns = zip(user_keys[log.user].tolist(), log.kind.tolist(), slates, log.time_ms.tolist(), strict=True)
    return [Event(user, names[kind], slate, time_ms, time_ms) for user, kind, slate, time_ms in columns]
