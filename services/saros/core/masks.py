"""Sets of slots as bits: hidden, expired, a category. A query combines them before it scans, sixteen slots a word."""

from collections.abc import Sequence

import numpy as np

from saros.core.jit import I32, U16, kernel
from saros.core.lanes import LANES
from saros.core.tiles import TILE_BITS


@kernel
def set_bits(words: U16, slots: I32, first: int, end: int, on: bool) -> None:
    """Set or clear the bits of slots[first:end]; those beyond the words have none."""
    for k in range(first, end):
        tile, bit = slots[k] >> TILE_BITS, np.uint16(1 << (slots[k] & (LANES - 1)))
        if tile < words.shape[0]:
            words[tile] = words[tile] | bit if on else words[tile] & ~bit


def as_slots(slots: I32 | Sequence[int]) -> I32:
    """Return slots as a kernel takes them; raise ValueError where one is negative."""
    found = np.ascontiguousarray(slots, np.int32)
    if found.ndim != 1 or (len(found) and found.min() < 0):
        raise ValueError("slots must be one column of numbers from 0 up")
    return found


class Mask:
    """A set of slots that grows as it must."""

    def __init__(self) -> None:
        self.words: U16 = np.zeros(0, np.uint16)  # bit r of word t: slot 16·t + r is in the set

    def put(self, slots: I32 | Sequence[int], inside: bool = True) -> None:
        """Put slots into the set, or take them out."""
        found = as_slots(slots)
        needed = int(found.max()) // LANES + 1 if len(found) and inside else 0
        if needed > len(self.words):
            words = np.zeros(max(needed, 2 * len(self.words)), np.uint16)
            words[: len(self.words)] = self.words
            self.words = words
        set_bits(self.words, found, 0, len(found), inside)

    def slots(self) -> I32:
        """Return the slots of the set in ascending order."""
        return np.flatnonzero(np.unpackbits(self.words.view(np.uint8), bitorder="little")).astype(np.int32)


def any_of(masks: Sequence[Mask]) -> Mask:
    """Return the slots that are in one of the sets at least."""
    union = Mask()
    union.words = np.zeros(max((len(mask.words) for mask in masks), default=0), np.uint16)
    for mask in masks:
        union.words[: len(mask.words)] |= mask.words
    return union


def combine(known: U16, within: Sequence[Mask], without: Sequence[Mask], exclude: I32) -> U16:
    """Return the bits of `known` that are in all of `within`, in none of `without`, and not excluded."""
    allowed = known.copy()
    for mask in within:
        words = mask.words[: len(allowed)]
        allowed[: len(words)] &= words
        allowed[len(words) :] = 0
    for mask in without:
        words = mask.words[: len(allowed)]
        allowed[: len(words)] &= ~words
    if len(exclude):
        set_bits(allowed, exclude, 0, len(exclude), False)
    return allowed
