"""How much better one arm's slates are clicked than the other's, and how sure that is. Pure: the clock comes in.

A rate is clicks over items shown. Its own bounds are Wilson's. The bound of the lift asks more: would it be above 0
with other films, too? A model that has learned nothing shows everybody the same few films, and these may happen to be
good ones; however often they are shown, they are ten films and no more. So the variance of a rate is counted by film,

    V = G/(G−1) · Σ (c_i − r·n_i)² / (Σ n_i)²,

c_i clicks on film i, n_i times shown, G films; and the quantile is Student's, with as many degrees as there are films
of equal weight, (Σ n_i)²/Σ n_i², less one (Welch).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from saros.lab.people import I64, NOBODY

ARMS = ("model", "random")
WINDOW_S = 60
_Z = 1.959963984540054  # of 95 %, two sides


class Rate(NamedTuple):
    """Clicks over items shown, with bounds of 95 %; None where nothing was shown."""

    shown: int
    clicked: int
    rate: float | None
    low95: float | None
    high95: float | None


class Lift(NamedTuple):
    """A rate less another, and its lower bound; None where there is nothing to compare."""

    lift: float | None
    low95: float | None


def wilson(clicked: int, shown: int) -> Rate:
    """Return a rate with Wilson's bounds."""
    if shown == 0:
        return Rate(0, 0, None, None, None)
    rate, z2 = clicked / shown, _Z * _Z
    middle = (rate + z2 / (2 * shown)) / (1 + z2 / shown)
    half = _Z * math.sqrt(rate * (1 - rate) / shown + z2 / (4 * shown * shown)) / (1 + z2 / shown)
    # At either end one bound is the rate itself, and rounding must not say otherwise.
    low, high = middle - half if clicked else 0.0, middle + half if clicked < shown else 1.0
    return Rate(clicked=clicked, shown=shown, rate=rate, low95=max(0.0, low), high95=min(1.0, high))


def student(degrees: float) -> float:
    """Return the quantile of 97.5 % of Student's distribution, by its series around the normal one; from 2 on."""
    v, z = max(2.0, degrees), _Z
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _spread(shown: I64, clicked: I64) -> tuple[float, float, float] | None:
    """Return rate, variance by film and degrees; None where there are less than two films."""
    films, total = int((shown > 0).sum()), int(shown.sum())
    if films < 2:
        return None
    rate = float(clicked.sum()) / total
    variance = films / (films - 1) * float(((clicked - rate * shown) ** 2).sum()) / total**2
    return rate, variance, total**2 / float((shown.astype(np.float64) ** 2).sum()) - 1.0


def lift_of(shown: I64, clicked: I64) -> Lift:
    """Return how much higher the first arm's rate is than the second's; both [2, films]."""
    one, other = _spread(shown[0], clicked[0]), _spread(shown[1], clicked[1])
    if one is None or other is None:
        return Lift(None, None)
    lift, variance = one[0] - other[0], one[1] + other[1]
    if variance == 0.0:
        return Lift(lift, None)  # nobody clicked: that says nothing
    degrees = variance**2 / sum(v * v / max(d, 1e-9) for _, v, d in (one, other))
    return Lift(lift, lift - student(degrees) * math.sqrt(variance))


class Tally:
    """Items shown and clicked by arm and film: over all, and over the last WINDOW_S seconds."""

    def __init__(self, films: int) -> None:
        """One more film stands for all that is not of this world."""
        self.shown: I64 = np.zeros((len(ARMS), films + 1), np.int64)
        self.clicked: I64 = np.zeros_like(self.shown)
        self._bins = np.zeros((WINDOW_S, 2, *self.shown.shape), np.int32)
        self._second = 0

    def add(self, now_s: float, arm: I64, shown: I64, clicked: I64) -> None:
        """Count slates: arms [n], films [n, k] with NOBODY where there is none, and the films clicked [n]."""
        self._turn(now_s)
        there = shown != NOBODY
        arms = np.broadcast_to(arm[:, None], shown.shape)
        fresh = np.zeros((2, *self.shown.shape), np.int32)
        np.add.at(fresh[0], (arms[there], shown[there]), 1)
        np.add.at(fresh[1], (arm[clicked != NOBODY], clicked[clicked != NOBODY]), 1)
        self.shown += fresh[0]
        self.clicked += fresh[1]
        self._bins[self._second % WINDOW_S] += fresh

    def _turn(self, now_s: float) -> None:
        """Empty the bins of the seconds that have begun since."""
        second = max(self._second, int(now_s))
        for each in range(max(self._second + 1, second - WINDOW_S + 1), second + 1):
            self._bins[each % WINDOW_S] = 0
        self._second = second

    def told(self, now_s: float) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        self._turn(now_s)
        recent = self._bins.sum(axis=0, dtype=np.int64)
        return {**_told(self.shown, self.clicked), "recent": {"seconds": WINDOW_S, **_told(recent[0], recent[1])}}

    def share_of(self, now_s: float, films: I64) -> float | None:
        """Return the share that these films have of all that the model's slates showed of late."""
        self._turn(now_s)
        of_late = self._bins[:, 0, 0].sum(axis=0, dtype=np.int64)
        return float(of_late[films].sum() / of_late.sum()) if of_late.any() else None


def _told(shown: I64, clicked: I64) -> dict[str, Any]:
    rates = {arm: wilson(int(clicked[k].sum()), int(shown[k].sum()))._asdict() for k, arm in enumerate(ARMS)}
    lift = lift_of(shown, clicked)
    return {**rates, "lift": lift.lift, "lift_low95": lift.low95}
