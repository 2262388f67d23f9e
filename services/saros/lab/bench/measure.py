"""What a bench says, and how it takes time: side by side, round by round, the best of each.

Other work on the machine only ever makes a run slower, so the least of several rounds is the run itself. Everything
that is compared runs in turn within each round, and so meets the same disturbances.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Run = Callable[[int], object]  # takes the round, so that each round can have data of its own


class Row(NamedTuple):
    """One line of a bench.

    `ratio` is held against `goal`: where `better` is "higher", `ratio` says how many times as fast as the other we
    are, and the goal is met from `goal` up; where it is "lower", how many times as much it costs as at the smallest
    size, or as it may, and the goal is met down from `goal`. What was not measured is None, and `note` says why.
    """

    name: str
    value: float | None  # ours
    unit: str
    against: str  # what it is compared with; empty: nothing
    peer: float | None  # the other's value, in the same unit
    ratio: float | None
    better: str  # "higher" or "lower": which ratios are good ones
    goal: float | None
    met: bool | None
    note: str


def row(
    name: str,
    unit: str,
    value: float | None,
    *,
    against: str = "",
    peer: float | None = None,
    ratio: float | None = None,
    better: str = "higher",
    goal: float | None = None,
    note: str = "",
) -> Row:
    """Return a row, with what follows from the ratio."""
    met = None if ratio is None or goal is None else (ratio >= goal if better == "higher" else ratio <= goal)
    return Row(name, value, unit, against, peer, ratio, better, goal, met, note)


def race(rounds: int, runs: Sequence[Run]) -> list[float]:
    """Run all in turn, round after round; return the least seconds of each. Round 0 warms up and does not count."""
    for run in runs:
        run(0)
    best = [float("inf")] * len(runs)
    for turn in range(1, rounds + 1):
        for k, run in enumerate(runs):
            start = time.perf_counter()
            run(turn)
            best[k] = min(best[k], time.perf_counter() - start)
    return best
