"""saros.core.bounds: what bounds would drop is what counting users says, as far as the histogram can know."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from saros.core.bounds import Dropped, dropped
from saros.core.gate import GateRules, bin_of, bin_top, gate_state

TODAY = 20_000
USERS = st.lists(st.tuples(st.integers(TODAY - 9, TODAY), st.integers(1, 300) | st.integers(1, 20)), max_size=60)
BOUND = st.integers(1, 320)


@given(users=USERS, low=BOUND, high=BOUND, window_days=st.integers(1, 8))
def test_dropped_is_a_count(users: list[tuple[int, int]], low: int, high: int, window_days: int) -> None:
    rules = GateRules(window_days=window_days)
    state = gate_state(rules)
    for day, count in sorted(users):  # of each user, the day of its last block and its count then
        place = day & 7
        if state.day[place] < day:
            state.day[place], state.users[place], state.total[place] = day, 0, 0
        state.users[place, bin_of(count)] += 1
        state.total[place] += count
    inside = [count for day, count in users if TODAY - window_days < day]
    out = [count for count in inside if not low <= count <= high]
    found = dropped(state, rules, TODAY, low, high)
    assert (found.users, found.blocks) == (len(inside), sum(inside))
    if found.users_exact:
        assert found.users_dropped == len(out)
    if found.blocks_exact:
        assert found.blocks_dropped == sum(out)
    assert found.blocks_exact <= found.users_exact
    assert 0 <= found.users_dropped <= found.users
    assert 0 <= found.blocks_dropped <= found.blocks
    if low <= 64 and high < 64:
        assert found.users_exact
        assert found.blocks_exact, "below 64 all bins are exact"
    top = bin_top(bin_of(high))
    if low <= 64 and high == top:
        assert found.users_exact, "so do bounds that are those of a bin"
    # Whatever is not exact is off by what shares a bin with a bound, at most.
    border = [count for count in inside if bin_of(count) in (bin_of(low), bin_of(high))]
    assert abs(found.users_dropped - len(out)) <= len(border)


def test_partitions_add_up() -> None:
    one, other = Dropped(3, 9, 1, 4, True, True), Dropped(5, 7, 2, 3, True, False)
    assert one.plus(other) == Dropped(8, 16, 3, 7, True, False)
    empty = gate_state(GateRules())
    assert dropped(empty, GateRules(), TODAY, 1, 5) == Dropped(0, 0, 0, 0, True, True)
    assert np.array_equal(empty.users, gate_state(GateRules()).users)
