"""saros.core.fold: signed blocks in any order give the same bits, and taking back restores them."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from saros.core.fold import buckets_at, fold, fold_buckets, fold_rows
from saros.core.items import CLICKED, DAYS, SHOWN, UPDATES, Items
from saros.core.jit import I32
from saros.core.rows import ONE, live_rows
from tests import naive_step as naive
from tests.handmade import signed_blocks, words

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
    """A small item table with given rows, and the fold of blocks into it."""

    def __init__(self, rows: I32) -> None:
        self.items = Items(live_rows(rows.shape[1]), 64)
        self.slots = self.items.intern(np.array(KEYS, np.uint64))
        self.items.arrays.rows[self.slots] = rows

    def columns(self, blocks: Sequence[naive.Block]) -> "naive.Sequence[object]":
        raise NotImplementedError
