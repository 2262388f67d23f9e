"""The blocks of a log, with their signs as they stand at the end, and how many each user has.

The count of a user is what the gate judges: its blocks in the log, or with a window of days the most that ever fell
into such a window. Users without a block have nothing a gate could drop; they are told apart and counted nowhere else.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from saros.core.events import DAY_MS, spans
from saros.core.gate import LEARN
from saros.core.jit import I32, I64, U64
from saros.core.learner import Batch
from saros.core.settle import RESET, SCORE
from saros.lab.log import Log

PERCENTILES = (90, 95, 99)
_TAKEN_BACK = -1


class BlockTable(NamedTuple):
    """n blocks in the order they closed; the items of block b are [start[b], start[b + 1]), negatives first."""

    user: I32  # [n] index into the log's users
    number: I32  # [n] of the block among its user's, from 0
    time_ms: I64  # [n]
    sign: I32  # [n] as it stands at the end: 1 added, -1 taken back, 0 never added
    negatives: I32  # [n]
    start: I64  # [n + 1]
    item: I32  # [m] index into the log's items


class Collector:
    """A watcher of batches that keeps every block and follows its sign."""

    def __init__(self, owners: list[I32], item_keys: U64) -> None:
        """`owners[p][slot]` is the user that has the slot in partition p."""
        self._owners = owners
        self._order = np.argsort(item_keys)
        self._keys = item_keys[self._order]
        self._columns: list[tuple[I32, I32, I64, I32, I32, I32]] = []
        self._signs: list[int] = []
        self._latest: dict[tuple[int, int], int] = {}

    def __call__(self, partition: int, batch: Batch) -> None:
        blocks = batch.blocks
        user = self._owners[partition][blocks.user]
        closed = np.flatnonzero(blocks.flags & SCORE)
        # A learned block that is not added was doomed in its own batch: added and taken back in one go.
        doomed = (blocks.decision == LEARN) & (blocks.sign == 0)
        signs = np.where(doomed, _TAKEN_BACK, blocks.sign).tolist()
        rows = zip(user.tolist(), blocks.number.tolist(), signs, blocks.flags.tolist(), strict=True)
        for owner, number, sign, flags in rows:
            if flags & RESET:
                continue
            if flags & SCORE:
                # After an erase or an expiry numbers start anew: the newest block of a number is the one that is meant.
                self._latest[owner, number] = len(self._signs)
                self._signs.append(sign)
            else:
                self._signs[self._latest[owner, number]] = sign
        sizes = (blocks.negatives + blocks.positives)[closed]
        items = blocks.items[spans(blocks.start[closed], sizes)]
        index = self._order[np.searchsorted(self._keys, items)].astype(np.int32)
        self._columns.append(
            (user[closed], blocks.number[closed], blocks.time_ms[closed], blocks.negatives[closed], sizes, index)
        )

    def table(self) -> BlockTable:
        """Return all blocks seen so far."""
        user, number, time_ms, negatives, sizes, items = (
            np.concatenate(column) if column else np.zeros(0, np.int32)
            for column in (zip(*self._columns, strict=True) if self._columns else [()] * 6)
        )
        start = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        return BlockTable(
            user, number, time_ms.astype(np.int64), np.array(self._signs, np.int32), negatives, start, items
        )


def block_lines(log: Log, table: BlockTable) -> Iterator[str]:
    """Yield each block as a line of JSON."""
    columns = (table.user, table.number, table.sign, table.start[:-1], table.negatives, table.start[1:])
    names = [log.items[k] for k in table.item.tolist()]
    for user, number, sign, first, negatives, end in zip(*(column.tolist() for column in columns), strict=True):
        middle = first + negatives
        block = {
            "user": log.users[user],
            "block": number,
            "positives": names[middle:end],
            "negatives": names[first:middle],
            "sign": sign,
        }
        yield json.dumps(block, ensure_ascii=False)


class Distribution(NamedTuple):
    """Blocks and clicks of each user that has a block."""

    counts: I64  # what the gate judges
    blocks: I64
    clicks: I64

    def percentile(self, percent: float) -> int:
        """Return the least count that so many percent of the users do not exceed."""
        return int(np.percentile(self.counts, percent, method="inverted_cdf")) if len(self.counts) else 0

    def mean(self) -> float:
        return float(self.counts.mean()) if len(self.counts) else 0.0

    def dropped(self, blocks_min: int, blocks_max: int) -> dict[str, int]:
        """Return how many users, blocks and clicks the gate [blocks_min, blocks_max] would drop."""
        out = (self.counts < blocks_min) | (self.counts > blocks_max)
        return {
            "users_dropped": int(out.sum()),
            "blocks_dropped": int(self.blocks[out].sum()),
            "clicks_dropped": int(self.clicks[out].sum()),
        }

    def histogram(self) -> list[tuple[int, int, int]]:
        """Return (lowest, highest, users) of bins that double: 1, 2–3, 4–7, …"""
        highest = int(self.counts.max(initial=0))
        bins = [(1 << k, (2 << k) - 1) for k in range(highest.bit_length())]
        return [(low, high, int(((self.counts >= low) & (self.counts <= high)).sum())) for low, high in bins]


def distribution(table: BlockTable, window_days: int = 0) -> Distribution:
    """Return the blocks of each user; `window_days` 0 counts over the whole log."""
    users, owner = np.unique(table.user, return_inverse=True)
    blocks = np.bincount(owner, minlength=len(users))
    positives = np.diff(table.start) - table.negatives
    clicks = np.bincount(np.repeat(owner, positives), minlength=len(users))
    counts = _most_in_window(owner, table.time_ms // DAY_MS, window_days) if window_days else blocks
    return Distribution(counts, blocks, clicks)


def describe(spread: Distribution) -> dict[str, Any]:
    """Return the numbers of a distribution, and what the paper's bounds and those of percentiles would drop."""
    counts, mean = spread.counts, spread.mean()
    least, most = int(counts.min(initial=int(counts.max(initial=0)))), int(counts.max(initial=0))
    highs = {f"p{percent}": spread.percentile(percent) for percent in PERCENTILES}
    bounds = [("paper", least, int(mean)), *((name, 1, high) for name, high in highs.items())]
    return {
        "users": len(counts),
        "blocks": int(spread.blocks.sum()),
        "clicks": int(spread.clicks.sum()),
        "min": least,
        "median": float(np.median(counts)) if len(counts) else 0.0,
        "mean": mean,
        "max": most,
        **highs,
        "histogram": [{"from": low, "to": high, "users": users} for low, high, users in spread.histogram()],
        "estimates": [{"name": name, "b": b, "B": B, **spread.dropped(b, B)} for name, b, B in bounds],
    }


def _most_in_window(owner: I64, day: I64, window_days: int) -> I64:
    """Return the most blocks each owner has in so many consecutive days."""
    span = int(day.max(initial=0)) + window_days + 1  # keys of one owner never reach the next one's
    keys = np.sort(owner * span + day)
    begin = np.searchsorted(keys, keys - window_days, side="right")
    inside = np.arange(1, len(keys) + 1) - begin
    most = np.zeros(int(owner.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, keys // span, inside)
    return most
