"""Deadlines against a dictionary: whatever is put in place of whatever, each slot is due once, and in time."""

from hypothesis import given
from hypothesis import strategies as st

from saros.api import deadlines
from saros.api.deadlines import Deadlines


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20), st.integers(0, 2)), max_size=200))
def test_each_slot_is_due_once_and_in_time(steps: list[tuple[int, int, int]]) -> None:
    found, naive, now_ms = Deadlines(), dict[int, int](), 0
    for slot, at_ms, later_ms in steps:
        found.put(slot, at_ms)
        naive[slot] = at_ms
        now_ms += later_ms
        over = {each for each, moment in naive.items() if 0 < moment <= now_ms}
        assert set(found.due(now_ms).tolist()) == over
        naive = {each: moment for each, moment in naive.items() if each not in over}


def test_what_was_replaced_does_not_pile_up() -> None:
    found = Deadlines()
    for k in range(10 * deadlines._SPARE):
        found.put(k % 3, 1000 + k)
    assert found._filed <= deadlines._SPARE + 20
    assert len(found._moments) <= deadlines._SPARE + 20
    assert found.due(999).tolist() == []
    assert set(found.due(1000 + 10 * deadlines._SPARE - 3).tolist()) == {1}
    assert set(found.due(10**9).tolist()) == {0, 2}
    assert found.due(10**9).tolist() == []
