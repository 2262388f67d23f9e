"""Catalogues for the tests of top-K: rows, counters and user rows of every kind, the awkward ones too."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from saros.core.catalogue import Catalogue
from saros.core.items import CLICKED, SHOWN, Items
from saros.core.jit import F32, F64, I32, I64
from saros.core.masks import Mask
from saros.core.rows import ONE, live_rows
from tests.naive import topk as naive

DIMS = (1, 2, 5, 16, 17, 33, 64)
EDGE = 2**31 - 1
ROWS = ("learned", "equal", "zero", "grid", "edge", "tiny", "mixed", "offset", "spike")
USERS = ("learned", "zero", "start", "grid", "denormal", "1e-30", "1e-15", "1e10", "1e18", "spike", "one")
PRIOR = 4.0


def make_rows(kind: str, n: int, dim: int, rng: np.random.Generator) -> I32:
    """Item rows on the grid."""
    learned: F64 = rng.normal(0, 0.4 / dim**0.5, (n, dim)) * ONE
    first = (np.arange(dim) == 0) * ONE
    if kind == "edge":
        return rng.choice(np.array([EDGE, -EDGE - 1, 0, 1, -1, ONE], np.int32), (n, dim))
    if kind == "equal":
        learned = learned[np.zeros(n, np.int64)]
    elif kind == "zero":
        learned = 0 * learned
    elif kind == "grid":
        learned = 0.25 * ONE * rng.integers(-1, 2, (n, dim)).astype(np.float64)
    elif kind == "tiny":
        learned = rng.integers(-2, 3, (n, dim)).astype(np.float64)
    elif kind == "mixed":
        learned = learned * np.exp2(rng.integers(-24, 7, (n, 1)).astype(np.float64))
    elif kind == "offset":
        # All that tells rows apart is small beside what they share: no code of eight bits can see it.
        learned = learned * 1e-4 + 100.0 * first
    elif kind == "spike":
        learned = learned + rng.choice([0.0, 120.0], (n, 1)) * rng.permuted(np.tile(first, (n, 1)), axis=1)
    return np.rint(learned).astype(np.int32)


def make_user(kind: str, dim: int, rng: np.random.Generator) -> F32:
    """A user row."""
    u, places = rng.normal(0, 1 / dim**0.5, dim), np.arange(dim)
    shapes = {
        "learned": u,
        "zero": 0 * u,
        "start": 0.05 * (places == 0),
        "grid": rng.integers(-1, 2, dim),
        "denormal": np.sign(u) * rng.integers(1, 9, dim) * 2.0**-149,
        "spike": u * 1e-6 + 32.0 * (places == dim - 1),
        "one": 0 * u + 1.0,
    }
    return np.asarray(shapes[kind] if kind in shapes else u * float(kind), np.float32)


@dataclass
class Shelf:
    """A catalogue and the item table behind it."""

    dim: int
    rng: np.random.Generator
    prior: float = PRIOR
    items: Items = field(init=False)
    catalogue: Catalogue = field(init=False)

    def __post_init__(self) -> None:
        self.items = Items(live_rows(self.dim), 1 << 16)
        self.catalogue = Catalogue(self.items, self.prior)

    def add(self, rows: I32, counters: I64) -> I32:
        """Intern new items; keys are in no order. Nothing is refreshed."""
        keys = self.rng.integers(0, 2**64, len(rows), dtype=np.uint64)
        slots = self.items.intern(keys)
        self.move(slots, rows, counters)
        return slots

    def move(self, slots: I32, rows: I32, counters: I64) -> None:
        """Give slots other rows and counters, as a fold would."""
        arrays = self.items.arrays
        arrays.rows[slots], arrays.counters[slots, : counters.shape[1]] = rows, counters
        arrays.totals[:] = arrays.counters[: self.items.table.size, [CLICKED, SHOWN]].sum(axis=0)

    @property
    def size(self) -> int:
        return self.items.table.size

    @property
    def rows(self) -> I32:
        return self.items.arrays.rows[: self.size]

    def priors(self, p0: float | None = None) -> F32:
        """Priors of all slots, under the p0 in force unless another is given."""
        p0 = self.catalogue.p0 if p0 is None else p0
        counters = self.items.arrays.counters[: self.size]
        return np.array(
            [naive.prior(int(row[CLICKED]), int(row[SHOWN]), self.prior, p0) for row in counters], np.float32
        )

    def scores(self, u: F32) -> F32:
        """What all slots score."""
        return naive.dots(u, self.rows) + self.priors()

    def best(self, scores: F32, k: int, allowed: Sequence[int] | None = None) -> list[int]:
        """The best k of the allowed slots by a full sort."""
        keys = [int(key) for key in self.items.table.keys[: self.size]]
        return naive.best(scores, keys, range(self.size) if allowed is None else allowed, k)


def counters(n: int, most: int, rng: np.random.Generator) -> I64:
    """Clicked and shown of n items; a few below 0, as when a take-back comes before its block."""
    return rng.integers(-1, most + 1, (n, 2)) if most else np.zeros((n, 2), np.int64)


@st.composite
def shelves(draw: st.DrawFn, least: int = 0, most: int = 120) -> Shelf:
    """A shelf with some items, all refreshed, with priors that say much, little or nothing."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dim, n = draw(st.sampled_from(DIMS)), draw(st.integers(least, most))
    shelf = Shelf(dim, rng, draw(st.sampled_from([PRIOR, 0.0])))
    rows = make_rows(draw(st.sampled_from(ROWS)), n, dim, rng)
    slots = shelf.add(rows, counters(n, draw(st.sampled_from([0, 3, 1000])), rng))
    shelf.catalogue = Catalogue(shelf.items, shelf.prior)  # p0 of these totals
    shelf.catalogue.refresh(slots)
    return shelf


def mask_of(slots: Sequence[int] | I32) -> Mask:
    """The set of these slots."""
    mask = Mask()
    mask.put(slots)
    return mask
