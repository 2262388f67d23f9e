"""The fold: signed blocks applied to the item table.

Integers only, so folding commutes: blocks folded in any order and interleaving give the same bits, and a block folded
with +1 and with -1 leaves rows, counters and totals as they were. (What others learned in between had seen the block:
their coefficients stay as they are.) A daily bucket sits in slot day mod 8 with its day: a newer day resets the slot,
an older one is ignored. So buckets agree when they are read at one day that no folded day lies beyond (`buckets_at`),
though the stored words may differ.

The fold never clamps; int32 wraps and sums stay exact.
"""

from typing import NamedTuple

import numpy as np

from saros.core.items import CLICKED, DAYS, SHOWN, UPDATES, ItemArrays
from saros.core.jit import F32, I32, I64, kernel, merged_kernel
from saros.core.lanes import prefetch
from saros.core.rowmath import add_row


class SignedBlocks(NamedTuple):
    """What a fold needs to know of n blocks with m items: a redo record, a ledger and a step all give this."""

    sign: I32  # [n] +1 adds, -1 takes back, 0 waits
    day: I32  # [n] UTC day of the block
    start: I64  # [n] into slots and coefs
    negatives: I32  # [n] come first
    positives: I32  # [n]
    rows: F32  # [n, d] the user row u the coefficients belong to
    slots: I32  # [m] item slots
    coefs: F32  # [m]

    def cut(self, first: int, end: int) -> "SignedBlocks":
        """Return the blocks [first, end)."""
        return SignedBlocks._make([*(column[first:end] for column in self[:6]), self.slots, self.coefs])

    def slots_of(self) -> I32:
        """Return the slots of all signed blocks, each once; of blocks that stand one after another."""
        if not len(self.start):
            return self.slots[:0]
        end = int(self.start[-1]) + int(self.negatives[-1]) + int(self.positives[-1])
        slots: I32 = np.unique(self.slots[int(self.start[0]) : end])
        return slots[slots >= 0]


@merged_kernel
def ask_for_items(items: ItemArrays, slots: I32, start: int, count: int) -> None:
    """Ask for the rows and counters of a block that comes soon."""
    for k in range(start, start + count):
        slot = max(0, slots[k])  # -1: not in the table
        prefetch(items.rows, slot)
        prefetch(items.counters, slot)


@merged_kernel
def fold_counters(items: ItemArrays, blocks: SignedBlocks, b: int, direction: int) -> None:
    """Count block b on its items and in the totals."""
    sign, first, middle = blocks.sign[b] * direction, blocks.start[b], blocks.start[b] + blocks.negatives[b]
    for k in range(first, middle + blocks.positives[b]):
        slot = blocks.slots[k]
        items.counters[slot, UPDATES] += sign
        items.counters[slot, SHOWN if k < middle else CLICKED] += sign
    items.totals[SHOWN] += sign * blocks.negatives[b]
    items.totals[CLICKED] += sign * blocks.positives[b]


@kernel
def fold_block(items: ItemArrays, blocks: SignedBlocks, b: int, direction: int) -> int:
    """Fold rows, counters and totals of block b; return how often a row lay beyond ±64."""
    far, sign = 0, blocks.sign[b] * direction
    for k in range(blocks.start[b], blocks.start[b] + blocks.negatives[b] + blocks.positives[b]):
        far += add_row(items.rows, blocks.slots[k], blocks.rows, b, np.float32(sign) * blocks.coefs[k])
    fold_counters(items, blocks, b, direction)
    return far


@merged_kernel
def fold_rows(items: ItemArrays, blocks: SignedBlocks, direction: int) -> int:
    """Fold rows, counters and totals; direction -1 undoes a fold. Return how often a row lay beyond ±64."""
    far = 0
    for b in range(blocks.sign.shape[0]):
        if b + 1 < blocks.sign.shape[0]:
            ask_for_items(items, blocks.slots, blocks.start[b + 1], blocks.negatives[b + 1] + blocks.positives[b + 1])
        if blocks.sign[b] != 0:
            far += fold_block(items, blocks, b, direction)
    return far


@kernel
def fold_buckets(items: ItemArrays, blocks: SignedBlocks) -> None:
    """Fold the daily buckets: only what is accepted belongs there, so it is a fold of its own."""
    for b in range(blocks.sign.shape[0]):
        day, middle = blocks.day[b], blocks.start[b] + blocks.negatives[b]
        if blocks.sign[b] == 0:
            continue
        place = day & (DAYS - 1)
        for k in range(blocks.start[b], middle + blocks.positives[b]):
            slot = blocks.slots[k]
            if items.bucket_day[slot, place] > day:
                continue
            if items.bucket_day[slot, place] < day:
                items.bucket_day[slot, place] = day
                items.bucket_clicked[slot, place] = 0
                items.bucket_shown[slot, place] = 0
            if k < middle:
                items.bucket_shown[slot, place] += blocks.sign[b]
            else:
                items.bucket_clicked[slot, place] += blocks.sign[b]


def buckets_at(items: ItemArrays, day: int) -> tuple[I32, I32]:
    """Return clicked and shown [n, 8] by age in days at a day that no folded day lies beyond: column 0 is that day."""
    days = day - np.arange(DAYS, dtype=np.int64)
    places = days & (DAYS - 1)
    current = items.bucket_day[:, places] == days
    return np.where(current, items.bucket_clicked[:, places], 0), np.where(current, items.bucket_shown[:, places], 0)


def fold(items: ItemArrays, blocks: SignedBlocks) -> int:
    """Fold accepted blocks: rows, counters, totals and buckets. Return how often a row lay beyond ±64."""
    far = fold_rows(items, blocks, 1)
    fold_buckets(items, blocks)
    return far
