"""saros.core.events: what `check` refuses, with row and reason, before anything has changed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from saros.core.events import BATCH_MAX, CLICK, ERASE, IMPRESSION, SLATE_MAX, TICK, TIME_MAX_MS, Events, check
from saros.core.jit import U8
from saros.core.learner import Learner
from tests.core.drive import Run, columns
from tests.core.scripts import events_of
from tests.naive import gate as naive_gate
from tests.naive import sessions as naive_sessions

USERS = (1, 2)
GOOD = "show ab, click c, hate d user=2, tick, erase user=2"


def good() -> Events:
    """Columns that nobody objects to."""
    return columns(events_of(GOOD), {1: 0, 2: 1})


def with_cell(name: str, row: int, value: float) -> Events:
    """Good columns but for one cell."""
    events = good()
    column = getattr(events, name).copy()
    column[row] = value
    return events._replace(**{name: column})


def slate_of(count: int) -> Events:
    """One impression of so many items."""
    return Events.of([0], [IMPRESSION], np.arange(count), [1], start=[0, count])


def read_only(count: int) -> U8:
    """A column that kernels would have to be compiled for anew."""
    column = np.zeros(count, np.uint8)
    column.flags.writeable = False
    return column


def all_of(learner: Learner) -> list[NDArray[Any]]:
    """A copy of everything a learner knows."""
    table = (*learner.users.table.arrays(), *learner.items.table.arrays())
    state = (*learner.users.arrays, *learner.timeline, *learner.gate, *learner.ledger.arrays, *learner.items.arrays)
    return [array.copy() for array in (*table, *state)]


BAD: list[tuple[str, Callable[[], Events], str]] = [
    ("kind 0", lambda: with_cell("kind", 1, 0), r"event 1: kind 0 is unknown"),
    ("kind 7", lambda: with_cell("kind", 0, 7), r"event 0: kind 7 is unknown"),
    ("no such user", lambda: with_cell("user", 2, 2), r"event 2: user slot 2 belongs to nobody"),
    ("a slot that nobody has", lambda: with_cell("user", 0, 5), r"event 0: user slot 5 belongs to nobody"),
    ("no user", lambda: with_cell("user", 4, -1), r"event 4: user slot -1 "),
    ("negative time", lambda: with_cell("time_ms", 0, -1), r"event 0: time -1 "),
    ("year 10000", lambda: with_cell("time_ms", 2, TIME_MAX_MS + 1), r"event 2: time "),
    ("negative log time", lambda: with_cell("log_ms", 3, -1), r"event 3: time "),
    ("log time beyond 9999", lambda: with_cell("log_ms", 3, TIME_MAX_MS + 1), r"event 3: time "),
    ("weight 0", lambda: with_cell("weight", 2, 0.0), r"event 2: weight 0.0 "),
    ("weight above 10", lambda: with_cell("weight", 2, 10.001), r"event 2: weight 10.00"),
    ("weight NaN", lambda: with_cell("weight", 2, float("nan")), r"event 2: weight nan "),
    ("weight infinite", lambda: with_cell("weight", 2, float("inf")), r"event 2: weight inf "),
    ("a click on two items", lambda: with_cell("kind", 0, CLICK), r"event 0: a click or feedback names exactly one"),
    ("a tick with an item", lambda: with_cell("kind", 1, TICK), r"event 1: .* an erase or tick none"),
    ("an erase with items", lambda: with_cell("kind", 0, ERASE), r"event 0: .* an erase or tick none"),
    ("an impression of nothing", lambda: slate_of(0), r"event 0: .* an impression 1 to 200"),
    ("an impression of 201", lambda: slate_of(SLATE_MAX + 1), r"event 0: .* an impression 1 to 200"),
    ("offsets fall", lambda: with_cell("start", 1, 4), r"event \d: item offsets fall"),
    ("an offset far away", lambda: with_cell("start", 2, 1 << 40), r"event 1: item offsets fall or leave"),
    ("a negative offset", lambda: with_cell("start", 1, -5), r"event 0: item offsets fall"),
    ("offsets do not begin at 0", lambda: with_cell("start", 0, 1), r"start must begin with 0"),
    ("offsets do not reach the end", lambda: with_cell("start", 5, 3), r"start must begin with 0 and end"),
    ("a short column", lambda: good()._replace(bot=np.zeros(4, np.uint8)), r"events.bot has 4 rows, not 5"),
    ("a long column", lambda: good()._replace(start=np.zeros(9, np.int64)), r"events.start has 9 rows, not 6"),
    ("another type", lambda: good()._replace(user=np.zeros(5, np.int64)), r"events.user must be .* int32"),
    ("two dimensions", lambda: good()._replace(kind=np.ones((5, 1), np.uint8)), r"events.kind must be "),
    ("too many", lambda: good()._replace(user=np.zeros(BATCH_MAX + 1, np.int32)), r"4194305 events are too many"),
    ("read-only", lambda: good()._replace(bot=read_only(5)), r"events.bot must be a contiguous, writeable column"),
    ("every second cell", lambda: good()._replace(kind=np.ones(10, np.uint8)[::2]), r"events.kind must be "),
]


@pytest.mark.parametrize(("make", "reason"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input_is_refused_with_row_and_reason_and_changes_nothing(make: Callable[[], Events], reason: str) -> None:
    run = Run(naive_sessions.Rules(), naive_gate.Rules(mode="session"), USERS)
    run.learn(events_of("show ab, click b, show c user=2, click a user=2, show ef"))
    before = all_of(run.learner)
    with pytest.raises(ValueError, match=reason):
        run.learner.learn(make())
    for one, other in zip(before, all_of(run.learner), strict=True):
        np.testing.assert_array_equal(one, other)


def test_good_input_passes() -> None:
    check(good(), np.ones(2, np.uint8))
    check(slate_of(SLATE_MAX), np.ones(1, np.uint8))
    check(with_cell("time_ms", 0, 0), np.ones(2, np.uint8))
    check(with_cell("time_ms", 0, TIME_MAX_MS), np.ones(2, np.uint8))
    check(with_cell("weight", 2, 10.0), np.ones(2, np.uint8))
    check(with_cell("user", 3, -1), np.ones(2, np.uint8))
    check(Events.of([], [], [], []), np.ones(0, np.uint8))


def test_cut_gives_columns_of_their_own() -> None:
    events = good()
    parts = [events.cut(0, 2), events.cut(2, 2), events.cut(2, 5)]
    for part in parts:
        check(part, np.ones(2, np.uint8))
    for name in Events._fields:
        if name != "start":
            whole = np.concatenate([getattr(part, name) for part in parts])
            np.testing.assert_array_equal(whole, getattr(events, name))
    slates = [part.items[part.start[e] : part.start[e + 1]].tolist() for part in parts for e in range(len(part.user))]
    assert slates == [events.items[events.start[e] : events.start[e + 1]].tolist() for e in range(5)]
