"""What the folded records say, summed up for those who watch: rates, latencies, quality, the gate's work.

One for a process, whatever worlds come and go: a world that boots again folds records that another one has folded, and
for a while two may fold the same log. Records of a log that count follow one another without a gap or an overlap, in
each partition, and are the same for every reader; so a record is new here if it begins no earlier than the last one
ended, and all others are left out.

A record costs a few additions. All sums stand in one row of numbers, and a copy of it is kept each second: what came in
within a window is a difference of two. Memory is bounded: copies of a minute, points of 15, a ring of latencies.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from saros.core import counts as c
from saros.core import scoring
from saros.core.counts import NAMES
from saros.core.gate import COUNTER_OF, DECISIONS
from saros.core.jit import F64
from saros.redo.record import scenario_counts
from saros.wire.columns import REASONS, SCENARIOS_MAX
from saros.wire.v1 import redo_pb2 as pb

STEP_S = 1.0
POINTS_MAX = 900
_EVENTS_S, _SERVABLE_S, _RECENT_S = 5.0, 30.0, 60.0  # windows
_LATENCIES = 8192  # of as many records at most
_COPIES = 128
_PLACES_MAX = 8192  # partitions of a few logs
_NAMES_MAX = 2 * SCENARIOS_MAX  # those of our setting, and as many of trainers that have another

# Where the sums stand.
_LEARN = DECISIONS.index("learn")
_DEAD = len(NAMES)
_SCORES = _DEAD + len(REASONS)
_UPSERTS = _SCORES + len(scoring.PROGRESSIVE)
_SHOWN = _UPSERTS + 1
_CLICKED = _SHOWN + _NAMES_MAX
_SIZE = _CLICKED + _NAMES_MAX
_KINDS = {
    "impression": c.IMPRESSIONS, "click": c.CLICKS, "negative": c.NEGATIVES, "positive": c.POSITIVES,
    "erase": c.ERASES, "tick": c.TICKS, "bot": c.BOTS, "duplicate": c.DUPLICATES, "item_upsert": _UPSERTS,
}  # fmt: skip
_OF_KINDS = list(_KINDS.values())


class Pulse:
    """Sums of what was folded, and the last minutes of them."""

    def __init__(
        self,
        scenarios: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`scenarios` come first, in this order; others behind them as they are met."""
        self._clock, self._wall, self._begun_s = clock, wall, clock()
        self._sums: F64 = np.zeros(_SIZE)
        self._copies = deque([(self._begun_s, self._sums.copy())], _COPIES)
        self._points: deque[dict[str, object]] = deque(maxlen=POINTS_MAX)
        self._next: dict[tuple[int, int], int] = {}  # of a log and a partition: where the last record ended
        self._scenarios = {name: place for place, name in enumerate(scenarios[:_NAMES_MAX])}
        self._took_s, self._took_at_s = np.zeros(_LATENCIES), np.full(_LATENCIES, -math.inf)
        self._took = 0

    # --- records -----------------------------------------------------------------------------------------------------

    def note(self, partition: int, record: pb.Record, servable_s: float | None) -> None:
        """Take what a record says, if it is new; `servable_s`: how old its oldest event was when it was folded."""
        place = record.log_id, partition
        if record.first < self._next.get(place, 0):
            return
        if place not in self._next and len(self._next) >= _PLACES_MAX:
            self._next.pop(next(iter(self._next)))
        self._next[place] = record.end
        stats, sums = record.stats, self._sums
        _add(sums, 0, stats.counts, np.int64, 0, len(NAMES))
        _add(sums, _DEAD, stats.dead, np.int64, 0, len(REASONS))
        width = len(scoring.PROGRESSIVE)
        _add(sums, _SCORES, stats.progressive, np.float64, _LEARN * width, width)
        if record.upserts:
            sums[_UPSERTS] += len(record.upserts)
        for name, shown, clicked in scenario_counts(stats):
            which = self._scenarios.setdefault(name, len(self._scenarios))
            if which < _NAMES_MAX:
                sums[_SHOWN + which] += shown
                sums[_CLICKED + which] += clicked
            else:
                del self._scenarios[name]
        if servable_s is not None:
            at = self._took % _LATENCIES
            self._took_s[at], self._took_at_s[at] = servable_s, self._clock()
            self._took += 1

    # --- each second -------------------------------------------------------------------------------------------------

    def sample(self, lag_s: float | None) -> None:
        """Note how things stand, as a point of the past. Without `lag_s` there is nothing yet that could be behind."""
        now_s, (p50, p99), learning = self._clock(), self._servable(), self._learning()
        self._points.append({
            "time": round(self._wall(), 3), "events_per_s": self._per_s(),
            "lag_s": None if lag_s is None else round(lag_s, 3), "p50": p50, "p99": p99,
            "accuracy": learning["accuracy"], "baseline": learning["baseline"],
            "scenarios": {one["scenario"]: one["recent_rate"] for one in self._by_scenario()},
            "taken_back": int(self._sums[c.TAKEN_BACK]),
        })  # fmt: skip
        copies = self._copies
        while len(copies) > 1 and copies[1][0] <= now_s - _RECENT_S - STEP_S:
            copies.popleft()
        copies.append((now_s, self._sums.copy()))

    def history(self) -> dict[str, object]:
        """Return the points of the past, the oldest first."""
        return {"step_s": STEP_S, "points": list(self._points)}

    def told(self) -> dict[str, object]:
        """Return what all records so far, and those of late, come to."""
        sums, (p50, p99) = self._sums, self._servable()
        dead = sums[_DEAD : _DEAD + len(REASONS)].tolist()
        return {
            "events": {
                "per_s": self._per_s(),
                "total": int(sums[_OF_KINDS].sum()),
                "kinds": {kind: int(sums[place]) for kind, place in _KINDS.items()},
            },
            "servable_ms": {"p50": p50, "p99": p99},
            "learning": self._learning(),
            "scenarios": self._by_scenario(),
            "dead": {reason: int(count) for reason, count in zip(REASONS, dead, strict=True) if count},
        }

    def clicks_per_block(self) -> float | None:
        """Return how many clicks, or other positives, a block had, of those that were closed; None before the first."""
        blocks, clicks = (int(self._sums[place]) for place in (c.BLOCKS, c.BLOCK_POSITIVES))
        return clicks / blocks if blocks else None

    def gate_work(self) -> dict[str, object]:
        """Return what the gate has decided so far."""
        sums = self._sums
        places = zip(DECISIONS[1:], COUNTER_OF[1:].tolist(), strict=True)
        return {
            "decisions": {decision: int(sums[place]) for decision, place in places},
            "taken_back": int(sums[c.TAKEN_BACK]),
            "released": int(sums[c.RELEASED]),
        }

    @property
    def time(self) -> float:
        """Now, in seconds since 1970."""
        return round(self._wall(), 3)

    @property
    def uptime_s(self) -> float:
        """Since when this is."""
        return round(self._clock() - self._begun_s, 1)

    # --- windows -----------------------------------------------------------------------------------------------------

    def _since(self, window_s: float) -> tuple[F64, float]:
        """Return what was added within about the last seconds, and how many these are; all, where it began later."""
        now_s = self._clock()
        old = (each for each in reversed(self._copies) if now_s - each[0] >= window_s - STEP_S / 2)
        at_s, copy = next(old, self._copies[0])
        return self._sums - copy, now_s - at_s

    def _per_s(self) -> float:
        added, passed_s = self._since(_EVENTS_S)
        return round(float(added[_OF_KINDS].sum()) / passed_s, 1) if passed_s > 0 else 0.0

    def _servable(self) -> tuple[float | None, float | None]:
        """Return the median and the 99th percentile in milliseconds, each that of a record."""
        took_s = np.sort(self._took_s[self._took_at_s > self._clock() - _SERVABLE_S])
        if not len(took_s):
            return None, None
        p50, p99 = (round(1000 * float(took_s[math.ceil(part * len(took_s)) - 1]), 1) for part in (0.5, 0.99))
        return p50, p99

    def _learning(self) -> dict[str, int | float | None]:
        """Return how blocks were scored as they closed, of those that were learned."""
        scores = self._since(_RECENT_S)[0][_SCORES : _SCORES + len(scoring.PROGRESSIVE)]
        blocks = round(float(scores[scoring.BLOCKS]))

        def mean(place: int) -> float | None:
            return round(float(scores[place]) / blocks, 4) if blocks else None

        return {
            "blocks": blocks,
            "accuracy": mean(scoring.ACCURACY),
            "baseline": mean(scoring.BASE_ACCURACY),
            "loss": mean(scoring.LOSS),
            "baseline_loss": mean(scoring.BASE_LOSS),
        }

    def _by_scenario(self) -> "list[dict[str, str | int | float | None]]":
        """Return the scenarios that were seen, from the start and of late."""
        recent, found = self._since(_RECENT_S)[0], list[dict[str, str | int | float | None]]()
        for name, which in self._scenarios.items():
            shown, clicked = (int(self._sums[first + which]) for first in (_SHOWN, _CLICKED))
            if shown or clicked:
                lately, clicks = (int(recent[first + which]) for first in (_SHOWN, _CLICKED))
                found.append({
                    "scenario": name, "shown": shown, "clicked": clicked, "rate": _rate(clicked, shown),
                    "recent_shown": lately, "recent_clicked": clicks, "recent_rate": _rate(clicks, lately),
                })  # fmt: skip
        return found


def _rate(clicked: int, shown: int) -> float | None:
    return round(clicked / shown, 5) if shown else None


def _add(sums: F64, place: int, data: bytes, dtype: type[np.generic], first: int, count: int) -> None:
    """Add numbers of a column to the sums: of records of other versions as many as they have."""
    there = min(count, len(data) // 8 - first)
    if there > 0:
        sums[place : place + there] += np.frombuffer(data, dtype, there, 8 * first)
