"""Exact top-K: the best k of all items for a user row, as a full sort by (score, key) would give them.

The score of an item is fl(u·v) + π: `rowmath.dot_row`, one float32 addition, one order on every machine; ties go to the
lower key. `similar` takes fl(u·v)·1/|v| for it, u being an item's own row at length 1, both without coordinate 0.

A scan keeps the best k so far. A tile of sixteen rows is looked at in up to three steps, each dearer than the last:
1. fl(u·v) is at most |u|·|v| and rounding. Prior and length alone rule out most of a catalogue whose priors differ.
2. With int16 codes of u and int8 codes of v, what the codes miss being r_u and r_v, and both lengths known,
       fl(u·v) <= code_u·code_v·scale_u·scale_v + |u|·|r_v| + |r_u|·|scale_v·code_v| + rounding.
3. What is left is scored.
An item is left out only where its bound is below the k-th best score so far, which only rises: so the answer is exact,
however loose the bounds are. (docs/core.md has the whole argument, rounding included.) Where they rule out too little,
codes are only a detour, and stretches of rows are scored as they come.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from saros.core.best import Best, arrange, offer
from saros.core.catalogue import CODE_MAX, Catalogue, CatalogueArrays, inverse_of, unpack_row
from saros.core.jit import F32, I8, I32, I64, U16, U64, as_int, kernel, merged_kernel
from saros.core.lanes import LANES, as_f32, load, prefetch, spread
from saros.core.masks import Mask, as_slots, combine
from saros.core.rowmath import dot_row, lies_within
from saros.core.tiles import PAIR, TILE_BITS, add_pairs, bits, lowest_bit

USER_MAX = np.float32(2.0**64)  # the step keeps user rows within ±32; beyond this a sum could become infinite
_USER_MIN = 2.0**-60  # below it u gets no codes, so that no scale is ever denormal
_CODE_USER_MAX, _SUM_MAX = 32767, 2**31 - 1
_ROUND = 2.0**-24
_ROUND_UP = 1.0 + 2.0**-20  # outweighs the roundings of a bound itself
_TINY = np.float32(2.0**-100)  # outweighs all that is lost to denormal numbers
_WINDOW = 64  # tiles; how often it is asked whether codes help
_AHEAD = 8  # tiles between the one in work and the one whose codes are asked for
_PLAIN = 8  # windows that are scored without codes where they did not
_NOWHERE: I32 = np.zeros(0, np.int32)
SCALE, REST, WHOLE, LENGTH = 0, 1, 2, 3  # places in `Aim.terms`
CODED, SCORED, PLAIN = 0, 1, 2  # places in `Search.counts`


class Aim(NamedTuple):
    """A row that scores are computed with."""

    u: F32  # [1, d]
    v: F32  # [1, w] scratch, zeros from d on
    pairs: I32  # [w/2] codes of u, two int16 each
    terms: F32  # [4] the scale of the codes, and what err, norm (with codes) and norm (alone) are multiplied by
    cosine: bool


class Search(NamedTuple):
    """All that a search reads and writes."""

    c: CatalogueArrays
    rows: I32  # [n, d] of the item table
    keys: U64  # [n]
    allowed: U16  # [t]
    aim: Aim
    best: Best
    counts: I64  # [3] tiles whose codes were read, rows scored, and those of them that no bound was asked about


class Found(NamedTuple):
    """The best items in order, and what finding them took."""

    slots: I32
    scores: F32
    coded: int  # rows whose codes were read
    scored: int  # rows that were scored
    plain: int  # of these, the ones scored without asking a bound, because bounds had not helped shortly before


@merged_kernel
def _take_aim(aim: Aim) -> None:
    """Fill pairs and terms from u."""
    dim, width = aim.u.shape[1], 2 * aim.pairs.shape[0]
    most, square, missed = np.float64(0.0), np.float64(0.0), np.float64(0.0)
    for k in range(dim):
        x = np.float64(aim.u[0, k])  # not float(): of a float32 that is one
        most, square = max(most, abs(x)), square + x * x
    top = min(_CODE_USER_MAX, _SUM_MAX // (CODE_MAX * width))  # so that no sum of products leaves int32
    scale = np.float32(most / top) if most >= _USER_MIN else np.float32(0.0)
    for p in range(aim.pairs.shape[0]):
        word = 0
        for half in range(PAIR):
            k = PAIR * p + half
            x = np.float64(aim.u[0, k]) if k < dim else np.float64(0.0)
            code = int(np.rint(x / scale)) if scale > 0.0 else 0
            missed += (x - code * np.float64(scale)) ** 2
            word |= (code & 0xFFFF) << (16 * half)
        aim.pairs[p] = np.int32(word)
    length, rest = math.sqrt(square), math.sqrt(missed)
    rounding = (dim + 64) * _ROUND
    aim.terms[SCALE] = scale
    aim.terms[REST] = length * _ROUND_UP
    aim.terms[WHOLE] = (rest + rounding * (length + rest)) * _ROUND_UP
    aim.terms[LENGTH] = length * (1.0 + rounding) * _ROUND_UP


@merged_kernel
def _tile_dots(codes: I8, tile: int, pairs: I32) -> Any:
    """Return code_u·code_v of the sixteen rows of a tile, as int32 lanes."""
    a, b, c, d = spread(np.int32(0)), spread(np.int32(0)), spread(np.int32(0)), spread(np.int32(0))
    step = PAIR * LANES
    for p in range(0, pairs.shape[0], 4):
        at = step * p
        a = add_pairs(a, codes, tile, at, pairs[p])
        b = add_pairs(b, codes, tile, at + step, pairs[p + 1])
        c = add_pairs(c, codes, tile, at + 2 * step, pairs[p + 2])
        d = add_pairs(d, codes, tile, at + 3 * step, pairs[p + 3])
    return (a + b) + (c + d)


@merged_kernel
def _below_by_length(s: Search, tile: int, bar: np.float32) -> int:
    """Return, as bits, the rows of a tile that cannot reach the bar by their prior and their length."""
    at = tile << TILE_BITS
    bound = load(s.c.norm, 0, at) * s.aim.terms[LENGTH] + _TINY
    return bits(bound + load(s.c.prior, 0, at) < bar)


@merged_kernel
def _below_by_codes(s: Search, tile: int, bar: np.float32) -> int:
    """Return, as bits, the rows of a tile that cannot reach the bar by their codes."""
    at, terms = tile << TILE_BITS, s.aim.terms
    prefetch(s.c.codes, tile + _AHEAD)  # one core reads memory a fifth faster for it
    dots = as_f32(_tile_dots(s.c.codes, tile, s.aim.pairs)) * (load(s.c.scale, 0, at) * terms[SCALE])
    slack = load(s.c.err, 0, at) * terms[REST] + load(s.c.norm, 0, at) * terms[WHOLE] + _TINY
    if s.aim.cosine:
        return bits((dots + slack) * load(s.c.inverse, 0, at) < bar)
    return bits((dots + slack) + load(s.c.prior, 0, at) < bar)


@merged_kernel
def score_row(c: CatalogueArrays, rows: I32, slot: int, aim: Aim) -> np.float32:
    """Return the score of a slot."""
    dot, _ = dot_row(rows, slot, aim.u)
    if aim.cosine:
        # From the row: the catalogue's inverse may wait for a refresh.
        unpack_row(rows, slot, aim.v)
        return dot * inverse_of(aim.v)
    return dot + c.prior[slot]


@merged_kernel
def _score_tile(s: Search, tile: int, live: int, size: int) -> int:
    """Score the rows of a tile whose bits are set; return how many of the best are kept now."""
    while live != 0:
        slot = (tile << TILE_BITS) + lowest_bit(live)
        live &= live - 1
        size = offer(s.best, size, score_row(s.c, s.rows, slot, s.aim), s.keys[slot], slot)
        s.counts[SCORED] += 1
    return size


@merged_kernel
def _look_at(s: Search, first: int, end: int, size: int) -> int:
    """Score what no bound rules out of some tiles; return how many of the best are kept now."""
    k, coded, bar = s.best.score.shape[0], 0, s.best.score[0]
    for tile in range(first, end):
        live = as_int(s.allowed[tile])
        if live != 0 and size == k:
            if not s.aim.cosine:
                live &= ~_below_by_length(s, tile, bar)
            fewer = live & (live - 1)
            # Up to two rows are read sooner than the codes of sixteen.
            if fewer & (fewer - 1) != 0:
                coded += LANES
                live &= ~_below_by_codes(s, tile, bar)
        if live != 0:
            size, bar = _score_tile(s, tile, live, size), s.best.score[0]
    s.counts[CODED] += coded
    return size


@merged_kernel
def _score_first(s: Search, first: I32) -> int:
    """Score some slots before all others, as far as they are allowed, and take them out; return how many are kept.

    Which ones they are changes nothing but how soon the bar is high.
    """
    size = 0
    for k in range(first.shape[0]):
        tile, bit = first[k] >> TILE_BITS, np.uint16(1 << (first[k] & (LANES - 1)))
        if s.allowed[tile] & bit:
            s.allowed[tile] &= ~bit
            size = offer(s.best, size, score_row(s.c, s.rows, first[k], s.aim), s.keys[first[k]], first[k])
            s.counts[SCORED] += 1
    return size


@kernel
def search(s: Search, first: I32) -> int:
    """Fill `best`, beginning with some slots; return how many were found, or -1 where the row is not finite or too
    long."""
    if not lies_within(s.aim.u, 0, USER_MAX):
        return -1
    _take_aim(s.aim)
    tile, plain, size = 0, 0, _score_first(s, first)
    while tile < s.allowed.shape[0]:
        end, full, before = min(tile + _WINDOW, s.allowed.shape[0]), size == s.best.score.shape[0], s.counts[SCORED]
        if plain > 0:
            plain -= 1
            for t in range(tile, end):
                size = _score_tile(s, t, as_int(s.allowed[t]), size)
            s.counts[PLAIN] += s.counts[SCORED] - before
        else:
            size = _look_at(s, tile, end, size)
            if full and 2 * (s.counts[SCORED] - before) > _WINDOW * LANES:
                plain = _PLAIN
        tile = end
    arrange(s.best, size)
    return size


@kernel
def _score_all(c: CatalogueArrays, rows: I32, slots: I32, aim: Aim, scores: F32) -> bool:
    """Fill scores; False where the row is not finite or too long."""
    if not lies_within(aim.u, 0, USER_MAX):
        return False
    for k in range(slots.shape[0]):
        scores[k] = score_row(c, rows, slots[k], aim)
    return True


@kernel
def _own_row(rows: I32, slot: int, v: F32, u: F32) -> None:
    """Set u[0] (float32[1, d]) to a row at length 1, without coordinate 0; v is scratch."""
    unpack_row(rows, slot, v)
    inverse = inverse_of(v)
    for k in range(u.shape[1]):
        u[0, k] = v[0, k] * inverse if k > 0 else np.float32(0.0)


def aim_at(catalogue: Catalogue, u: F32, cosine: bool) -> Aim:
    """Return room for a query with a row; raise ValueError unless it has the catalogue's dimension."""
    dim, width = catalogue.items.rules.dim, catalogue.width
    row = np.ascontiguousarray(u, np.float32).reshape(1, -1)
    if row.shape[1] != dim:
        raise ValueError(f"the row has {row.shape[1]} coordinates, the catalogue's have {dim}")
    pairs, terms = np.empty(width // PAIR, np.int32), np.empty(4, np.float32)
    return Aim(row, np.zeros((1, width), np.float32), pairs, terms, cosine)


def _find(catalogue: Catalogue, aim: Aim, k: int, allowed: U16) -> Found:
    """Search, and raise ValueError for a row that cannot be searched with."""
    if k < 0:
        raise ValueError(f"k must not be negative, not {k}")
    items = catalogue.items
    best, counts = Best.empty(min(k, items.table.size)), np.zeros(3, np.int64)
    request = Search(catalogue.arrays, items.arrays.rows, items.table.keys, allowed, aim, best, counts)
    size = search(request, _NOWHERE) if len(best.slot) else 0
    if size < 0:
        raise ValueError(f"a row must be finite and within ±{USER_MAX:g}")
    return Found(best.slot[:size], best.score[:size], *counts.tolist())


def top_k(
    catalogue: Catalogue,
    u: F32,
    k: int,
    *,
    within: Sequence[Mask] = (),
    without: Sequence[Mask] = (),
    exclude: I32 | Sequence[int] = (),
) -> Found:
    """Return the best k items for a user row, of those in all of `within`, in none of `without` and not excluded."""
    allowed = combine(catalogue.arrays.known, within, without, as_slots(exclude))
    return _find(catalogue, aim_at(catalogue, u, False), k, allowed)


def similar(
    catalogue: Catalogue,
    slot: int,
    k: int,
    *,
    within: Sequence[Mask] = (),
    without: Sequence[Mask] = (),
    exclude: I32 | Sequence[int] = (),
) -> Found:
    """Return the k items most similar to another by the cosine of their rows, coordinate 0 and prior left out."""
    own = catalogue.checked([slot])
    allowed = combine(catalogue.arrays.known, within, without, np.append(as_slots(exclude), own))
    aim = aim_at(catalogue, np.empty(catalogue.items.rules.dim, np.float32), True)
    _own_row(catalogue.items.arrays.rows, slot, aim.v, aim.u)
    return _find(catalogue, aim, k, allowed)


def scores_of(catalogue: Catalogue, u: F32, slots: I32 | Sequence[int]) -> F32:
    """Return the scores of given items for a user row, to the bit those of `top_k`."""
    aim, found = aim_at(catalogue, u, False), catalogue.checked(slots)
    scores = np.empty(len(found), np.float32)
    if not _score_all(catalogue.arrays, catalogue.items.arrays.rows, found, aim, scores):
        raise ValueError(f"a row must be finite and within ±{USER_MAX:g}")
    return scores
