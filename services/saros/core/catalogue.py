"""The catalogue: what top-K reads beside the item table, one entry per slot.

Item rows themselves are not copied. A score is computed from the table's int32 rows by `rowmath.dot_row`, the step's
own arithmetic, so what is served is what would be learned from. Beside the rows stand int8 codes, with which most of
them are ruled out unseen (`saros.core.topk` holds the bound), and the items' priors under one p0 that is in force for
all of them, however the totals move meanwhile.

Invariants, for every known slot, v being its row as float32 numbers (`unpack_row`):
- prior is that of the counters under the p0 in force.
- |v - scale·code| <= err, |v| <= norm and |scale·code| <= norm, and inverse is 1/|v| without coordinate 0; or the slot
  is marked: norm is infinite, nothing is claimed about the rest, and every query scores the row itself.
Whoever changes rows or counters marks or refreshes the slots before the next query.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saros.core.items import CLICKED, SHOWN, ItemArrays, Items
from saros.core.jit import F32, I8, I32, U16, U64, copy_columns, kernel, line_zeros, merged_kernel
from saros.core.lanes import LANES, as_f32, highest, load, nearest, prefetch, prefetch_at, spread, store, total, where
from saros.core.masks import as_slots
from saros.core.rowmath import DOWN, square_row
from saros.core.tiles import PAIR, TILE_BITS

CODE_MAX = 127
P0_DRIFT = 0.01  # how far the logit of p0 may move before all priors are computed anew
# Lengths are summed in float32: (d/16 + 21) roundings of 2^-24, which this outweighs up to d = 7,000.
_ROUND_UP = np.float32(1.0 + 2.0**-16)
_ROUNDED = np.float32(2.0**-23)  # twice what scale·code may be off by, as a share of it
_AHEAD = 4  # slots between the one in work and the one whose row is asked for


class CatalogueArrays(NamedTuple):
    """Columns of n slots, n = 16·t, t being the number of tiles; w is the dimension, padded to a multiple of 16."""

    codes: I8  # [t, 16·w] in the order of `saros.core.tiles`
    scale: F32  # [n] of the codes
    err: F32  # [n]
    norm: F32  # [n]
    prior: F32  # [n]
    inverse: F32  # [n]
    known: U16  # [t] bit r of tile t: slot 16·t + r is in the catalogue


class PriorRules(NamedTuple):
    """What priors are made of: α (0: there are none, as in the paper's step), the p0 in force, and the one to come."""

    weight: float
    p0: float
    p0_next: float


def share_of_clicks(items: ItemArrays) -> float:
    """Return p0 of now as the step takes it: the share of positives in all that was learned."""
    clicked, shown = (max(0, int(items.totals[column])) for column in (CLICKED, SHOWN))
    return (clicked + 1.0) / (clicked + shown + 2.0)


def logit(p: float) -> float:
    """Return ln(p/(1 - p))."""
    return math.log(p) - math.log1p(-p)


@merged_kernel
def unpack_row(rows: I32, slot: int, v: F32) -> None:
    """Set v[0] (float32[1, w], zeros from d on) to rows[slot] as numbers: the one place where words become float32."""
    dim = rows.shape[1]
    whole = dim & -LANES
    for at in range(0, whole, LANES):
        store(v, 0, at, as_f32(load(rows, slot, at)) * DOWN)
    for k in range(whole, dim):
        v[0, k] = np.float32(rows[slot, k]) * DOWN


@merged_kernel
def inverse_of(v: F32) -> np.float32:
    """Return 1/|v| without coordinate 0, or 0 where nothing is left."""
    bias = v[0, 0]
    v[0, 0] = 0.0
    square = np.float64(square_row(v, 0))
    v[0, 0] = bias
    return np.float32(1.0 / math.sqrt(square)) if square > 0.0 else np.float32(0.0)


@merged_kernel
def prior_of(items: ItemArrays, slot: int, weight: float, p0: float) -> np.float32:
    """Return π = ln[(C + α·p0) / (S + α·(1 - p0))] from the counters of a slot."""
    if weight <= 0.0:
        return np.float32(0.0)
    clicked, shown = max(0, items.counters[slot, CLICKED]), max(0, items.counters[slot, SHOWN])
    return np.float32(math.log((clicked + weight * p0) / (shown + weight * (1.0 - p0))))


@merged_kernel
def _quantise(c: CatalogueArrays, slot: int, v: F32, codes: I32) -> None:
    """Write codes, scale, err, norm and inverse of a slot from its row v[0]; codes (int32[w]) is scratch."""
    width = v.shape[1]
    sizes = spread(np.float32(0.0))
    for at in range(0, width, LANES):
        x = load(v, 0, at)
        x = where(x > 0.0, x, x * np.float32(-1.0))
        sizes = where(x > sizes, x, sizes)
    most = highest(sizes)
    scale = most / np.float32(CODE_MAX)
    per_scale = np.float32(CODE_MAX) / most if most > 0.0 else np.float32(0.0)
    squares, coded, missed = spread(np.float32(0.0)), spread(np.float32(0.0)), spread(np.float32(0.0))
    for at in range(0, width, LANES):
        x = load(v, 0, at)
        whole = nearest(x * per_scale)
        store(codes, 0, at, whole)
        y = as_f32(whole) * scale
        squares, coded, missed = squares + x * x, coded + y * y, missed + (x - y) * (x - y)
    norm = np.float32(math.sqrt(max(total(squares), total(coded)))) * _ROUND_UP
    c.scale[slot], c.norm[slot] = scale, norm
    c.err[slot] = np.float32(math.sqrt(total(missed))) * _ROUND_UP + norm * _ROUNDED
    c.inverse[slot] = inverse_of(v)
    tile, at = slot >> TILE_BITS, PAIR * (slot & (LANES - 1))
    for k in range(0, width, PAIR):
        c.codes[tile, at], c.codes[tile, at + 1] = codes[k], codes[k + 1]
        at += PAIR * LANES


@merged_kernel
def _set_prior(c: CatalogueArrays, upcoming: F32, items: ItemArrays, slot: int, rules: PriorRules) -> None:
    """Write the prior of a slot, also under the p0 to come; the slot is known from here on."""
    c.prior[slot] = prior_of(items, slot, rules.weight, rules.p0)
    upcoming[slot] = prior_of(items, slot, rules.weight, rules.p0_next) if rules.p0 != rules.p0_next else c.prior[slot]
    c.known[slot >> TILE_BITS] |= np.uint16(1 << (slot & (LANES - 1)))


@kernel
def _refresh(
    c: CatalogueArrays, upcoming: F32, items: ItemArrays, slots: I32, rules: PriorRules, v: F32, codes: I32
) -> None:
    """Make the entries of slots anew from the item table. v: float32[1, w], codes: int32[w], both scratch."""
    last = slots.shape[0] - 1
    for k in range(last + 1):
        ahead = slots[min(k + _AHEAD, last)]
        prefetch(items.rows, ahead)
        prefetch(items.counters, ahead)
        prefetch(c.codes, ahead >> TILE_BITS)
        for column in (c.scale, c.err, c.norm, c.prior, c.inverse, upcoming):
            prefetch_at(column, 0, ahead)
        unpack_row(items.rows, slots[k], v)
        _quantise(c, slots[k], v, codes)
        _set_prior(c, upcoming, items, slots[k], rules)


@kernel
def _mark(c: CatalogueArrays, upcoming: F32, items: ItemArrays, slots: I32, rules: PriorRules) -> None:
    """Say that rows have moved away from their codes; priors are made anew at once."""
    for k in range(slots.shape[0]):
        c.norm[slots[k]] = np.inf
        _set_prior(c, upcoming, items, slots[k], rules)


@kernel
def _set_upcoming(upcoming: F32, items: ItemArrays, first: int, end: int, rules: PriorRules) -> None:
    """Fill the priors under the p0 to come for the slots [first, end)."""
    for slot in range(first, end):
        upcoming[slot] = prior_of(items, slot, rules.weight, rules.p0_next)


class Catalogue:
    """Codes and priors of an item table that others fold into.

    One thread: updates and queries take turns, and each call is short enough for that (`refresh` and `rebuild` as short
    as their slices are).
    """

    def __init__(self, items: Items, prior: float) -> None:
        """Begin without entries: `refresh` brings them in. `prior` is the step's α; 0 serves without priors."""
        if not (math.isfinite(prior) and prior >= 0.0):
            raise ValueError(f"the prior's weight must be finite and not negative, not {prior}")
        self.items = items
        p0 = share_of_clicks(items.arrays)
        self._rules = PriorRules(prior, p0, p0)
        self._done = -1  # slots whose prior under the p0 to come is computed; -1: none is to come
        self.width = -(-items.rules.dim // LANES) * LANES
        self._row: F32 = line_zeros((1, self.width), np.float32)
        self._codes: I32 = line_zeros(self.width, np.int32)
        self._columns = self._allocate()
        self._use()

    def _allocate(self) -> tuple[CatalogueArrays, F32]:
        """Return empty columns for as many slots as the item table has memory for."""
        tiles = -(-self.items.room // LANES)
        codes: I8 = line_zeros((tiles, LANES * self.width), np.int8)
        scale, err, norm, prior, inverse, upcoming = (line_zeros(LANES * tiles, np.float32) for _ in range(6))
        return CatalogueArrays(codes, scale, err, norm, prior, inverse, np.zeros(tiles, np.uint16)), upcoming

    def _grow(self) -> None:
        """Follow the item table where it has grown."""
        if LANES * len(self.arrays.known) < self.items.table.capacity:
            arrays, upcoming = self._columns
            if LANES * len(arrays.known) < self.items.table.capacity:
                self._columns = self._allocate()
                copy_columns((*self._columns[0], self._columns[1]), (*arrays, upcoming))
            self._use()

    def _use(self) -> None:
        """Take the columns at the item table's capacity."""
        arrays, upcoming = self._columns
        tiles = -(-self.items.table.capacity // LANES)
        slots = LANES * tiles
        columns = [column[:slots] for column in arrays[1:6]]
        self.arrays = CatalogueArrays._make((arrays.codes[:tiles], *columns, arrays.known[:tiles]))
        self._upcoming: F32 = upcoming[:slots]

    @property
    def keys(self) -> U64:
        """The key of each slot."""
        return self.items.table.keys

    @property
    def p0(self) -> float:
        """The p0 in force."""
        return self._rules.p0

    @property
    def nbytes(self) -> int:
        """Bytes of all columns; the item table is not ours."""
        return sum(column.nbytes for column in self.arrays) + self._upcoming.nbytes

    def checked(self, slots: I32 | Sequence[int]) -> I32:
        """Return slots as a kernel takes them; raise ValueError where one is not in use."""
        found = as_slots(slots)
        if len(found) and found.max() >= self.items.table.size:
            raise ValueError(f"slot {found.max()} is not in use: there are {self.items.table.size}")
        return found

    def refresh(self, slots: I32 | Sequence[int]) -> None:
        """Make entries anew, or for the first time, after rows or counters have changed."""
        found = self.checked(slots)
        self._grow()
        _refresh(self.arrays, self._upcoming, self.items.arrays, found, self._rules, self._row, self._codes)

    def mark(self, slots: I32 | Sequence[int]) -> None:
        """Say that rows or counters have changed, where `refresh` has to wait: queries stay exact, and are slower."""
        found = self.checked(slots)
        self._grow()
        _mark(self.arrays, self._upcoming, self.items.arrays, found, self._rules)

    def drift(self) -> float:
        """Return how far the logit of p0 has moved from the one in force; beyond `P0_DRIFT`, `rebuild`."""
        return abs(logit(share_of_clicks(self.items.arrays)) - logit(self._rules.p0))

    @property
    def rebuilding(self) -> bool:
        """True between the first slice of a rebuild and its last."""
        return self._done >= 0

    def rebuild(self, slots: int) -> bool:
        """Compute so many more priors under the p0 of when it began; after the last they are in force, and it is True.

        The rows need nothing: a prior is all that p0 is part of.
        """
        if slots < 1:
            raise ValueError(f"a slice has at least one slot, not {slots}")
        self._grow()
        if self._done < 0:
            self._rules = self._rules._replace(p0_next=share_of_clicks(self.items.arrays))
            self._done = 0
        end = min(self._done + slots, self.items.table.size)
        _set_upcoming(self._upcoming, self.items.arrays, self._done, end, self._rules)
        self._done = end
        if end < self.items.table.size:
            return False
        arrays, upcoming = self._columns
        self._columns = arrays._replace(prior=upcoming), arrays.prior
        self._use()
        self._rules, self._done = self._rules._replace(p0=self._rules.p0_next), -1
        return True
