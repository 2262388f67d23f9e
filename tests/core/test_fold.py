"""saros.core.fold: signed blocks in any order give the same bits, and taking back restores them."""

import dataclasses
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saros.core.fold import SignedBlocks, buckets_at, fold, fold_buckets, fold_rows
from saros.core.items import CLICKED, DAYS, SHOWN, UPDATES, Items
from saros.core.jit import I32
from saros.core.rows import ONE, live_rows
from tests.core.handmade import signed_blocks, words
from tests.naive import step as naive

KEYS = [11, 12, 13, 2**64 - 1, 0]
FAR = 64 * ONE
EDGE = 2**31 - 1

_NUMBERS = st.floats(-32, 32, width=32) | st.sampled_from([0.0, 32.0, -32.0, 2.0**-24, 1e-40, 0.25])


@st.composite
def blocks_of(draw: st.DrawFn, dim: int, signs: Sequence[int] = (-1, 0, 1), days: int = 20) -> naive.Block:
    """A block that the step or the codec would let through: |coef·u| is at most 64."""
    items = draw(st.permutations(KEYS))[: draw(st.integers(2, len(KEYS)))]
    u = draw(st.lists(_NUMBERS, min_size=dim, max_size=dim))
    most = min(1e9, 64 / max(1e-30, *map(abs, u)))
    shares = draw(st.lists(st.floats(-1, 1), min_size=len(items), max_size=len(items)))
    return naive.Block(
        user=0,
        items=list(items),
        negatives=draw(st.integers(1, len(items) - 1)),
        weights=[1.0] * len(items),
        day=draw(st.integers(0, days)),
        sign=draw(st.sampled_from(signs)),
        u=u,
        coefs=[float(np.float32(share * most)) for share in shares],
    )


@st.composite
def folds(draw: st.DrawFn, signs: Sequence[int] = (-1, 0, 1), most: int = 10) -> tuple[I32, list[naive.Block]]:
    """Rows to begin with, some of them at the edge of int32, and a few blocks."""
    dim = draw(st.integers(1, 4))
    word = st.sampled_from([0, EDGE, -EDGE - 1, FAR - 1, -FAR, 3]) | st.integers(-EDGE - 1, EDGE)
    rows = draw(st.lists(word, min_size=dim * len(KEYS), max_size=dim * len(KEYS)))
    blocks = draw(st.lists(blocks_of(dim, signs), max_size=most))
    return np.array(rows, np.int32).reshape(len(KEYS), dim), blocks


class Table:
    """A small item table that begins with given rows."""

    def __init__(self, rows: I32) -> None:
        self.dim = rows.shape[1]
        self.items = Items(live_rows(self.dim), 64)
        slots = self.items.intern(np.array(KEYS, np.uint64))
        self.slot_of = {key: int(slot) for key, slot in zip(KEYS, slots, strict=True)}
        self.items.arrays.rows[slots] = rows

    def columns(self, blocks: Sequence[naive.Block]) -> SignedBlocks:
        return signed_blocks(blocks, self.slot_of, self.dim)

    def fold(self, blocks: Sequence[naive.Block]) -> "Table":
        """Fold everything, in one call."""
        fold(self.items.arrays, self.columns(blocks))
        return self

    def bits(self) -> bytes:
        return words(self.items.arrays)

    def buckets(self, day: int) -> dict[int, tuple[list[int], list[int]]]:
        """Clicked and shown of each item, by age at a day."""
        clicked, shown = buckets_at(self.items.arrays, day)
        return {key: (clicked[slot].tolist(), shown[slot].tolist()) for key, slot in self.slot_of.items()}

    def stored(self) -> dict[int, list[tuple[int, int, int]]]:
        """The words behind the buckets."""
        arrays = self.items.arrays
        columns = arrays.bucket_day, arrays.bucket_clicked, arrays.bucket_shown
        return {
            key: list(zip(*(column[slot].tolist() for column in columns), strict=True))
            for key, slot in self.slot_of.items()
        }


def negated(blocks: Sequence[naive.Block]) -> list[naive.Block]:
    """The same blocks with the other sign."""
    return [dataclasses.replace(block, sign=-block.sign) for block in blocks]


def last_day(blocks: Sequence[naive.Block]) -> int:
    return max((block.day for block in blocks), default=0)


@given(case=folds())
def test_a_fold_equals_the_twin_word_for_word(case: tuple[I32, list[naive.Block]]) -> None:
    rows, blocks = case
    table, twin = Table(rows), naive.Items(0, rows.shape[1], 0)
    twin.of = {key: naive.Item(rows[k].tolist()) for k, key in enumerate(KEYS)}
    table.fold(blocks)
    for block in blocks:
        twin.fold(block)
        twin.fold_buckets(block)
    arrays = table.items.arrays
    for key, slot in table.slot_of.items():
        item = twin.of[key]
        assert arrays.rows[slot].tolist() == item.row
        assert arrays.counters[slot, [CLICKED, SHOWN, UPDATES]].tolist() == [item.clicked, item.shown, item.updates]
        assert table.stored()[key] == item.buckets
    assert arrays.totals[[CLICKED, SHOWN]].tolist() == [twin.clicked, twin.shown]
    untouched = np.setdiff1d(np.arange(len(arrays.rows)), list(table.slot_of.values()))
    assert not any(column[untouched].any() for column in arrays[:5]), "only named slots change"


@given(case=folds(), shuffled=st.randoms(use_true_random=False), cuts=st.integers(1, 4))
def test_any_order_and_interleaving_gives_the_same_bits(
    case: tuple[I32, list[naive.Block]], shuffled: random.Random, cuts: int
) -> None:
    rows, blocks = case
    whole = Table(rows).fold(blocks)
    other = list(blocks)
    shuffled.shuffle(other)
    parts = Table(rows)
    for part in range(cuts):
        parts.fold(other[part::cuts])
    assert parts.bits() == whole.bits()
    day = last_day(blocks)
    assert parts.buckets(day) == whole.buckets(day)
    assert whole.buckets(day) == {key: naive.counted(blocks, key, day) for key in KEYS}
    assert whole.buckets(day + 3) == {key: naive.counted(blocks, key, day + 3) for key in KEYS}


@given(
    kept=folds(signs=[1], most=6),
    data=st.data(),
    shuffled=st.randoms(use_true_random=False),
)
def test_what_is_added_and_taken_back_was_never_there(
    kept: tuple[I32, list[naive.Block]], data: st.DataObject, shuffled: random.Random
) -> None:
    rows, blocks = kept
    gone = data.draw(st.lists(blocks_of(rows.shape[1], signs=[1]), min_size=1, max_size=6))
    never = Table(rows).fold(blocks)
    order = blocks + gone + negated(gone)
    shuffled.shuffle(order)
    table = Table(rows).fold(order)
    assert table.bits() == never.bits()
    # Every folded day counts, those of blocks that were taken back too.
    day = last_day(blocks + gone)
    assert table.buckets(day) == never.buckets(day)


@given(case=folds())
def test_direction_minus_one_undoes_a_fold_of_rows(case: tuple[I32, list[naive.Block]]) -> None:
    rows, blocks = case
    table = Table(rows)
    before = table.bits()
    fold_rows(table.items.arrays, table.columns(blocks), 1)
    assert table.bits() == Table(rows).fold(blocks).bits()
    fold_rows(table.items.arrays, table.columns(blocks), -1)
    assert table.bits() == before
    fold_rows(table.items.arrays, table.columns(blocks), -1)
    assert table.bits() == Table(rows).fold(negated(blocks)).bits()
    assert not table.items.arrays.bucket_day.any(), "buckets are a fold of their own"


def one(day: int, sign: int = 1, coef: float = 0.0) -> naive.Block:
    """A block of KEYS[0] shown and KEYS[1] clicked."""
    return naive.Block(0, KEYS[:2], 1, [1.0, 1.0], day, sign, [1.0], [coef, -coef])


def test_stored_bucket_words_depend_on_the_order_and_remember_what_was_taken_back() -> None:
    # Day 2 takes the place of nothing, day 10 that of day 2: with a +1 and a -1 of day 10 the place stays empty.
    never, back = Table(np.zeros((5, 1), np.int32)), Table(np.zeros((5, 1), np.int32))
    never.fold([one(2)])
    back.fold([one(2), one(10), one(10, -1)])
    assert never.stored()[KEYS[0]][2] == (2, 0, 1)
    assert back.stored()[KEYS[0]][2] == (10, 0, 0)
    assert never.buckets(10) == back.buckets(10), "read at a day that no folded day lies beyond they agree"
    assert never.buckets(9) != back.buckets(9), "read at an earlier day they need not"
    assert never.buckets(9)[KEYS[0]][1] == [0, 0, 0, 0, 0, 0, 0, 1]
    # A take-back that comes before its block leaves a negative word for a while, and never for good.
    early = Table(np.zeros((5, 1), np.int32)).fold([one(10, -1)])
    assert early.buckets(10)[KEYS[1]][0][0] == -1
    assert early.fold([one(10)]).buckets(10) == Table(np.zeros((5, 1), np.int32)).buckets(10)


def test_a_day_lasts_for_eight_days() -> None:
    table = Table(np.zeros((5, 1), np.int32)).fold([one(day) for day in range(20) for _ in range(day + 1)])
    clicked, shown = table.buckets(19)[KEYS[1]][0], table.buckets(19)[KEYS[0]][1]
    assert clicked == shown == [day + 1 for day in range(19, 19 - DAYS, -1)]
    assert table.buckets(22)[KEYS[1]][0] == [0, 0, 0, 20, 19, 18, 17, 16]
    assert table.buckets(27)[KEYS[1]][0] == [0] * DAYS


def test_blocks_that_wait_touch_nothing() -> None:
    table = Table(np.zeros((5, 1), np.int32)).fold([one(5, 0, coef=1.0)])
    assert not any(column.any() for column in table.items.arrays)


@pytest.mark.parametrize(
    ("at", "coef", "far"),
    [(60.0, 3.0, 0), (60.0, 5.0, 1), (-60.0, 5.0, 0), (-60.0, -5.0, 1), (100.0, 0.0, 1), (127.0, 64.0, 1), (0, 60, 0)],
)
def test_a_row_beyond_64_is_counted_and_not_clamped(at: float, coef: float, far: int) -> None:
    rows = np.zeros((5, 3), np.int32)
    rows[0, 1] = at * ONE
    table = Table(rows)
    block = naive.Block(0, KEYS[:2], 1, [1.0, 1.0], 0, 1, [0.0, 1.0, 0.0], [coef, 0.0])
    assert fold(table.items.arrays, table.columns([block])) == far
    moved = table.items.arrays.rows[table.slot_of[KEYS[0]]].tolist()
    assert moved == [0, naive.wrapped(int((at + coef) * ONE)), 0]


@given(dim=st.integers(1, 9), word=st.integers(-EDGE - 1, EDGE), k=st.integers(0, 8), sign=st.sampled_from([-1, 1]))
@example(dim=1, word=EDGE, k=0, sign=1)
@example(dim=1, word=-EDGE - 1, k=0, sign=-1)
def test_far_is_told_for_every_coordinate(dim: int, word: int, k: int, sign: int) -> None:
    rows = np.zeros((5, dim), np.int32)
    rows[0, k % dim] = word
    table = Table(rows)
    block = naive.Block(0, KEYS[:2], 1, [1.0, 1.0], 0, sign, [1.0] * dim, [0.0, 0.0])
    if abs(word) != FAR:  # exactly 64 is neither here nor there
        assert fold_rows(table.items.arrays, table.columns([block]), 1) == (abs(word) > FAR)


def test_the_product_is_one_float32_multiplication() -> None:
    coef, differ = float(np.float32(0.1)), 0
    for k in range(200):
        x = float(np.float32(0.3 + 0.15 * k))
        table = Table(np.zeros((5, 1), np.int32))
        table.fold([naive.Block(0, KEYS[:2], 1, [1.0, 1.0], 0, 1, [x], [coef, 0.0])])
        moved = int(table.items.arrays.rows[table.slot_of[KEYS[0]], 0])
        assert moved == int(np.rint(np.float32(coef) * np.float32(x * ONE)))
        differ += moved != round(coef * x * ONE)
    assert differ > 50, "a product in float64 would give other bits"


def test_buckets_alone() -> None:
    table = Table(np.zeros((5, 1), np.int32))
    fold_buckets(table.items.arrays, table.columns([one(3, coef=2.0)]))
    assert table.buckets(3)[KEYS[1]][0] == [1] + [0] * 7
    assert not table.items.arrays.rows[list(table.slot_of.values())].any()
    assert not table.items.arrays.counters.any()
    assert not table.items.arrays.totals.any()
