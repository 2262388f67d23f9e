"""What other bounds of the gate would drop, from the histogram that a partition keeps.

The histogram has users by the day of their last block and the bin of their count then, and the exact sum of the counts
of each day. Counts below 64 have a bin of their own; above, a bin spans an eighth of its counts.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from saros.core.gate import BINS, GateRules, GateState, bin_top
from saros.core.jit import I64


class Dropped(NamedTuple):
    """What bounds would let through of a window, and what they would not."""

    users: int
    blocks: int
    users_dropped: int
    blocks_dropped: int
    users_exact: bool  # else a bound lies within a bin, whose users all count as inside it
    blocks_exact: bool  # else users have so many blocks that bins are not exact, and count with a bin's middle

    def plus(self, other: "Dropped") -> "Dropped":
        """Return the sums of two partitions."""
        return Dropped(
            self.users + other.users,
            self.blocks + other.blocks,
            self.users_dropped + other.users_dropped,
            self.blocks_dropped + other.blocks_dropped,
            self.users_exact and other.users_exact,
            self.blocks_exact and other.blocks_exact,
        )


@cache
def bins() -> tuple[I64, I64]:
    """Return the lowest and the highest count of each bin of the histogram."""
    top = np.array([bin_top(place) for place in range(BINS)], np.int64)
    return np.concatenate(([0], top[:-1] + 1)), top


def dropped(state: GateState, rules: GateRules, today: int, blocks_min: int, blocks_max: int) -> Dropped:
    """Return what other bounds would drop of the users whose last block lies in the window that ends today.

    A user is dropped whole, as by the paper: it has fewer blocks in the window than b, or more than B.
    """
    days = (state.day > today - rules.window_days) & (state.day <= today)
    users: I64 = state.users[days].sum(axis=0, dtype=np.int64)
    lows, tops = bins()
    kept = (tops >= blocks_min) & (lows <= blocks_max)
    blocks, middle = int(state.total[days].sum()), (users * (lows + tops)) // 2
    inside, outside = int(middle[kept].sum()), int(middle[~kept].sum())
    # The total is exact: so is what is dropped, where the bins of what is kept are, or those of what is dropped.
    rough = (tops > lows) & (users > 0)
    exact = not rough[kept].any() or not rough[~kept].any()
    if not rough[kept].any():
        outside = blocks - inside
    elif not exact:
        outside = round(blocks * outside / (inside + outside))
    cut = bool((kept & ((lows < blocks_min) | (tops > blocks_max)) & (users > 0)).any())
    return Dropped(int(users.sum()), blocks, int(users[~kept].sum()), outside, not cut, exact and not cut)
