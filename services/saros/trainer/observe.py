"""What a trainer tells Prometheus, besides what is counted where it happens: per micro-batch, or about once a second.

Every name that a micro-batch counts by (`saros.core.counts`) has its metric here. Partitions that this process owns no
longer are no longer told of: another process does, and sums over all of them must stay right.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from saros import telemetry as t
from saros.core import scoring
from saros.core.bounds import bins
from saros.core.counts import NAMES
from saros.core.events import KINDS
from saros.core.gate import DECISIONS, GateState
from saros.core.items import Items
from saros.core.jit import F64, I64
from saros.core.learner import Batch
from saros.core.rows import ONE
from saros.redo.fence import Fence
from saros.redo.record import scenario_counts
from saros.trainer.share import Share
from saros.wire.columns import GATE, REASONS, UPSERT
from saros.wire.v1 import redo_pb2 as pb

BANDS = ("below", "in_band", "above")
_SAMPLE = 256  # item rows that are measured
_KINDS: Mapping[int, Any] = {
    **{code: t.EVENTS.labels(kind) for kind, code in KINDS.items()},
    UPSERT: t.EVENTS.labels("item_upsert"),
    GATE: t.EVENTS.labels("gate_change"),
}
_PENDING = (
    "shown", "shown_again", "shown_clicked", "negatives_clicked", "negatives_expired", "negatives_erased", "carried",
    "carried_again", "carried_expired", "carried_erased", "carried_retracted", "clicks_alone",
)  # fmt: skip
_OUTCOMES = {
    "learned": "learn", "waited": "wait", "held": "hold", "over": "over", "ledger_full": "ledger_full",
    "repeat": "repeat", "items_full": "items_full",
}  # fmt: skip
_COUNTERS: Mapping[str, Any] = {
    "bots": t.BOTS,
    "duplicates": t.DUPLICATES,
    "late": t.LATE,
    "ahead": t.AHEAD,
    **{what: t.PENDING.labels(what) for what in _PENDING},
    **{f"{name}_capped": t.CAPPED.labels(name) for name in ("negatives", "carried", "clicked")},
    "sessions_ended": t.SESSIONS_ENDED,
    "users_expired": t.USERS_EXPIRED,
    "blocks": t.BLOCKS_CLOSED,
    **{f"block_{side}": t.BLOCK_ITEMS.labels(side) for side in ("negatives", "positives")},
    **{name: t.DECISIONS.labels(outcome) for name, outcome in _OUTCOMES.items()},
    "released": t.RELEASED,
    "crossed": t.CROSSINGS,
    "taken_back": t.TAKEN_BACK,
    "waiting_expired": t.WAITING_LOST.labels("expired"),
    "waiting_dropped": t.WAITING_LOST.labels("dropped"),
    "repeat_clicks": t.REPEAT_CLICKS,
    "clamped": t.CLAMPED,
    "non_finite": t.NON_FINITE,
    "far": t.FAR,
}
# Kinds are told as they come in, those of bots and duplicates too. Blocks that vest do so in the store, unseen.
_NOT_SO = ("impressions", "clicks", "negatives", "positives", "erases", "ticks", "vested")
assert {*_COUNTERS, *_NOT_SO} == set(NAMES), "whatever is counted is told"
_BY_INDEX = [(k, _COUNTERS[name]) for k, name in enumerate(NAMES) if name in _COUNTERS]
# A mean over the rows is that of the model beside that of the item's positive rate alone.
_SUMS = [
    (metric, by, first + place)
    for by, first in (("model", scoring.LOSS), ("positive_rate", scoring.BASE_LOSS))
    for place, metric in enumerate((t.PROGRESSIVE_LOSS, t.PROGRESSIVE_ACCURACY, t.PROGRESSIVE_RANK))
]
# Series that are there from the start can be rated from their first event on.
for _reason in REASONS[1:]:
    t.DEAD_LETTERS.labels(_reason)
for _kind in ("users", "items"):
    for _metric in (t.FLUSH_SECONDS, t.MISMATCHES, t.REPAIRS):
        _metric.labels(_kind)


def observe_batch(kinds: I64, batch: Batch) -> None:
    """Count what a micro-batch did; `kinds`: its events by kind."""
    t.BATCH_EVENTS.observe(int(kinds.sum()))
    for kind in np.flatnonzero(kinds).tolist():
        _KINDS[kind].inc(int(kinds[kind]))
    counts = batch.counts.tolist()
    for k, counter in _BY_INDEX:
        if counts[k]:
            counter.inc(counts[k])
    added = batch.blocks.sign > 0
    t.PAIRS.inc(int((batch.blocks.negatives[added].astype(np.int64) * batch.blocks.positives[added]).sum()))
    _observe_progressive(batch.progressive)


def expect_scenarios(names: Iterable[str]) -> None:
    """Let the series of all scenarios be there from the start."""
    for name in names:
        t.SCENARIO_ITEMS.labels(name)
        t.SCENARIO_CLICKS.labels(name)


def observe_scenarios(stats: pb.Stats) -> None:
    """Count what a micro-batch showed and clicked in each scenario."""
    for name, shown, clicked in scenario_counts(stats):
        t.SCENARIO_ITEMS.labels(name).inc(shown)
        t.SCENARIO_CLICKS.labels(name).inc(clicked)


def _observe_progressive(sums: F64) -> None:
    for row in np.flatnonzero(sums[:, scoring.BLOCKS]).tolist():
        decision = DECISIONS[row]
        t.PROGRESSIVE_BLOCKS.labels(decision).inc(float(sums[row, scoring.BLOCKS]))
        for metric, by, column in _SUMS:
            metric.labels(decision, by).inc(max(0.0, float(sums[row, column])))


class Tables:
    """Tells about once a second what a trainer holds, and how far behind it is."""

    def __init__(self) -> None:
        self._told: set[int] = set()  # partitions
        self._next: dict[int, int] = {}  # of each: where it was at the last look
        bins()

    def observe(self, items: Items, shares: Iterable[Share], fences: Sequence[Fence], ends: Mapping[int, int]) -> None:
        """Tell it; `fences` are how far partitions are learned, `ends` how far there is something to learn."""
        t.ITEMS.set(items.table.size)
        _observe_rows(items)
        users = ledgers = 0
        owned = set()
        for share in shares:
            learner = share.learner
            owned.add(share.partition)
            users += sum(column.nbytes for column in (*learner.users.arrays, *learner.users.table.arrays()))
            ledgers += sum(column.nbytes for column in learner.ledger.arrays)
            self._observe_share(share, fences[share.partition].next, ends[share.partition])
        for partition in self._told - owned:
            self._forget(partition)
        self._told = owned
        for name, size in (("items", _bytes_of(items)), ("users", users), ("ledgers", ledgers)):
            t.MEMORY.labels(name).set(size)

    def _observe_share(self, share: Share, learned: int, end: int) -> None:
        learner, partition = share.learner, share.partition
        t.USERS_IN_MEMORY.labels(partition).set(learner.users.table.size)
        t.WAITING.labels(partition).set(int(learner.ledger.arrays.waiting.sum()))
        for name, bound in zip("bB", learner.gate.bounds.tolist(), strict=True):
            t.BOUND.labels(partition, name).set(bound)
        for band, count in users_by_band(learner.gate, learner.gate_rules.window_days).items():
            t.USERS.labels(partition, band).set(count)
        # Whoever has learned something since the last look may not be at the end, though it has learned all it read.
        behind = learned < max(share.taken, end) or self._next.get(partition, learned) != learned
        self._next[partition] = learned
        t.LAG_SECONDS.labels(partition).set(max(0.0, time.time() - share.newest_ms / 1000) if behind else 0.0)

    def _forget(self, partition: int) -> None:
        self._next.pop(partition, None)
        for metric in (t.USERS_IN_MEMORY, t.WAITING, t.LAG_SECONDS):
            metric.remove(partition)
        for bound in "bB":
            t.BOUND.remove(partition, bound)
        for band in BANDS:
            t.USERS.remove(partition, band)


def users_by_band(state: GateState, window_days: int) -> dict[str, int]:
    """Return the users of a partition by band, as far as the gate's histogram tells them apart."""
    (b, most), newest, (low, top) = state.bounds.tolist(), int(state.day.max()), bins()
    users = state.users[state.day > newest - window_days].sum(axis=0)
    below, above = int(users[top < b].sum()), int(users[low > most].sum())
    return dict(zip(BANDS, (below, int(users.sum()) - below - above, above), strict=True))


def _observe_rows(items: Items) -> None:
    """Measure some rows: slots are given in order and never taken back, so every n-th is a fair sample."""
    size = items.table.size
    if size:
        rows = items.arrays.rows[: size : max(1, size // _SAMPLE)] / ONE
        norms = np.sqrt((rows * rows).sum(axis=1))
        t.ROW_NORM.labels("mean").set(float(norms.mean()))
        t.ROW_NORM.labels("max").set(float(norms.max()))


def _bytes_of(items: Items) -> int:
    return sum(column.nbytes for column in (*items.arrays, *items.table.arrays()))
