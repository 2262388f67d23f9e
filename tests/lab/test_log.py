"""The paper's split and what is ranked, against loops that anybody can read."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from saros.lab.log import Log, items_to_rank, split
from tests.lab.logs import Line, lines, log_of


def back(log: Log) -> list[Line]:
    """Return the lines of a log."""
    names = {1: "impression", 2: "click", 3: "negative"}
    made = []
    for e in range(len(log.user)):
        slate = tuple(log.items[k] for k in log.item[log.start[e] : log.start[e + 1]])
        made.append((log.users[log.user[e]], names[int(log.kind[e])], slate, int(log.time_ms[e])))
    return made


@given(lines(), st.randoms(use_true_random=False))
def test_split_is_the_paper_s(made: list[Line], chance: Random) -> None:
    shuffled = list(made)
    chance.shuffle(shuffled)
    train, test = split(log_of(shuffled))
    wanted_train, wanted_test = [], []
    for user in dict.fromkeys(line[0] for line in shuffled):
        own = sorted(
            (line for line in shuffled if line[0] == user), key=lambda line: line[3]
        )  # stable, as time order is
        cut = int(0.8 * len(own))
        wanted_train += own[:cut]
        wanted_test += own[cut:]
    assert back(train) == wanted_train
    assert back(test) == wanted_test


@given(lines())
def test_items_to_rank_are_each_user_s_own_once(made: list[Line]) -> None:
    log = log_of(made)
    test = items_to_rank(log)
    for u, user in enumerate(log.users):
        wanted: dict[str, int] = {}
        for name, kind, slate, _ in made:
            for item in slate if name == user else ():
                wanted[item] = max(wanted.get(item, 0), int(kind == "click"))
        own = slice(test.starts[u], test.starts[u + 1])
        assert [log.items[k] for k in test.item[own]] == list(wanted)
        assert test.label[own].tolist() == list(wanted.values())
        assert (test.user[own] == u).all()


@given(lines())
def test_order_by_time_and_by_user_keeps_ties_as_they_are(made: list[Line]) -> None:
    reverse = made[::-1]
    assert back(log_of(reverse).by_time()) == sorted(reverse, key=lambda line: line[3])
    users = list(dict.fromkeys(line[0] for line in reverse))
    assert back(log_of(reverse).by_user()) == sorted(reverse, key=lambda line: (users.index(line[0]), line[3]))


def test_a_log_without_test_events_has_nothing_to_rank() -> None:
    log = log_of([("ann", "click", ("a",), 1)]).take(np.zeros(0, np.int64))
    assert items_to_rank(log).starts.tolist() == [0, 0]
