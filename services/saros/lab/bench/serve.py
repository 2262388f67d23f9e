"""The bench of serving: exact top-K beside others who do the same, and how its cost and memory grow.

Rows are as learning leaves them: items N(0, (0.4/√d)²), users of length about 1. Priors are N(-2, 1), as where some
items are liked far better than others; and, harder for us, all equal: then nothing is ruled out before its codes are
read. The others get the prior as one more coordinate. Everything runs in one thread, each query with another user.

With a broker: how an API boots (`saros.lab.bench.boots`), requests to a real one, beside other servers, and how soon an
event is served (`requests` and `servable`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from saros.adapters.kafka import Cluster
from saros.adapters.redis import Address
from saros.core.catalogue import Catalogue
from saros.core.items import CLICKED, SHOWN, Items
from saros.core.jit import F32, I32
from saros.core.rows import ONE, live_rows
from saros.core.topk import top_k
from saros.lab.bench import shapes
from saros.lab.bench.boots import boot_lines
from saros.lab.bench.measure import Row, Run, race, row
from saros.lab.bench.requests import request_lines
from saros.lab.bench.servable import servable_lines, slice_lines
from saros.lab.bench.stage import staged
from saros.lab.bench.train import Case

LIVE = ("boot", "requests", "servable")
GROUPS = ("topk", "growth", *LIVE)
K, DIM = 10, 64
FAISS_GOAL, FAISS_GOAL_ITEMS, NUMPY_GOAL = 3.0, 1_000_000, 1.0
USERS = 64  # different ones that ask
_REFRESHED = 1000  # slots in one call
_ROUNDS = 30
_ASKS = 8  # queries in a round, where sizes are compared
# A round of requests is a sixth of the users: each is asked for once.
CASE = Case("", 24_000, 100, slates=True, events=576_000)
QUICK_CASE = Case("", 400, 100, slates=True, events=4_000)
PRIORS = {"priors as learned": 1.0, "priors all equal": 0.0}  # their standard deviation

Query = Callable[[F32], I32]  # takes a user row with a 1 behind it, gives the items it finds, the best first


class Live(NamedTuple):
    """What an API needs."""

    cluster: Cluster
    store: Address


class Peer(NamedTuple):
    """Something that finds the best of all items, too."""

    name: str
    make: Callable[[F32], Query]  # from item rows with the prior as their last coordinate
    package: str  # that it needs; empty: none
    note: str


def faiss_flat(rows: F32) -> Query:
    """faiss's exact index by inner product."""
    import faiss

    faiss.omp_set_num_threads(1)
    index: Any = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    return lambda u: index.search(u[None], K)[1][0]


def implicit_topk(rows: F32) -> Query:
    """What implicit's models recommend with."""
    from implicit.cpu.topk import topk

    return lambda u: topk(rows, u[None], K, num_threads=1)[0][0]


def numpy_partition(rows: F32) -> Query:
    """A product of matrix and vector, the k best split off, and these sorted."""

    def query(u: F32) -> I32:
        scores = rows @ u
        best = np.argpartition(scores, -K)[-K:]
        return np.asarray(best[np.argsort(-scores[best])], np.int32)

    return query


PEERS = (
    Peer("faiss IndexFlatIP", faiss_flat, "faiss-cpu", "1 thread, float32"),
    Peer("implicit's topk", implicit_topk, "implicit", "1 thread, float32"),
    Peer("numpy argpartition", numpy_partition, "", "float32; its product uses as many threads as BLAS is allowed"),
)


class Subject(NamedTuple):
    """A catalogue, and the same rows as others take them."""

    catalogue: Catalogue
    users: F32  # [64, d]

    def rows(self) -> F32:
        """Item rows with the prior behind them."""
        size = self.catalogue.items.table.size
        numbers = self.catalogue.items.arrays.rows[:size] * np.float32(1 / ONE)
        return np.concatenate([numbers, self.catalogue.arrays.prior[:size, None]], axis=1, dtype=np.float32)

    def asked(self) -> F32:
        """User rows with a 1 behind them."""
        return np.concatenate([self.users, np.ones((len(self.users), 1), np.float32)], axis=1)


def make_subject(count: int, prior_spread: float, dim: int = DIM) -> Subject:
    """Return a catalogue of so many items."""
    rng = np.random.default_rng(0)
    items = Items(live_rows(dim), count)
    slots = items.intern(rng.permutation(shapes.keys(count, 0)))
    for first in range(0, count, 1 << 16):  # in pieces: normal deviates are eight bytes each
        some = slots[first : first + (1 << 16)]
        items.arrays.rows[some] = np.rint(rng.normal(0.0, 0.4 / dim**0.5, (len(some), dim)) * ONE)
    shown = rng.integers(500, 1000, count) if prior_spread else np.full(count, 1000)
    items.arrays.counters[slots, SHOWN] = shown
    items.arrays.counters[slots, CLICKED] = np.rint(shown * np.exp(rng.normal(-2.0, prior_spread, count)))
    items.arrays.totals[:] = items.arrays.counters[slots][:, [CLICKED, SHOWN]].sum(axis=0)
    catalogue = Catalogue(items, prior=4.0)
    catalogue.refresh(slots)
    return Subject(catalogue, rng.normal(0.0, dim**-0.5, (USERS, dim)).astype(np.float32))


def run_serve(
    *,
    quick: bool = False,
    only: str | None = None,
    live: Live | None = None,
    on_row: Callable[[Row], None] = lambda _: None,
) -> list[Row]:
    """Measure one of `GROUPS`, or all; tell each row as it comes, and return them all. `LIVE` ones need `live`."""
    if only is not None and only not in GROUPS:
        raise ValueError(f"{only!r} is none of {', '.join(GROUPS)}")
    found = []
    for group, lines in {"topk": topk_lines(quick), "growth": growth_lines(quick)}.items():
        for line in lines if only in (None, group) else ():
            on_row(line)
            found.append(line)
    for line in live_lines(live, [group for group in LIVE if only in (None, group)], quick):
        on_row(line)
        found.append(line)
    return found


def live_lines(live: Live | None, groups: Sequence[str], quick: bool) -> Iterator[Row]:
    """What takes an API that runs; requests and events with one model."""
    if live is None:
        for group in groups:
            yield row(group, "", None, note="needs a broker in SAROS_KAFKA__BOOTSTRAP; `make bench` starts one")
        return
    if "boot" in groups:
        yield from boot_lines(live.cluster, live.store, quick=quick)
    if "requests" in groups or "servable" in groups:
        with staged(live.cluster, live.store, QUICK_CASE if quick else CASE) as stage:
            if "requests" in groups:
                yield from request_lines(live.cluster, stage, quick=quick)
            if "servable" in groups:
                yield from servable_lines(live.cluster, stage, quick=quick)
                yield from slice_lines(live.cluster, stage, quick=quick)


def topk_lines(quick: bool) -> Iterator[Row]:
    """Milliseconds a query, beside each peer."""
    rounds = 2 if quick else _ROUNDS
    for count in (500, 1_000) if quick else (10_000, 100_000, 1_000_000):
        for priors, prior_spread in PRIORS.items():
            subject = make_subject(count, prior_spread)
            yield from _topk_lines(f"top-{K} of {count:,} × {DIM}, {priors}", count, subject, rounds)
            del subject  # a million items are some hundred megabytes: they go before the next come


def _ours(subject: Subject, asks: int) -> Run:
    """Return a round of so many queries."""
    catalogue, users = subject.catalogue, subject.users
    return lambda turn: [top_k(catalogue, users[(asks * turn + k) % USERS], K) for k in range(asks)]


def _theirs(query: Query, asked: F32, asks: int) -> Run:
    """Return a round of as many queries of a peer."""
    return lambda turn: [query(asked[(asks * turn + k) % USERS]) for k in range(asks)]


def _topk_lines(name: str, count: int, subject: Subject, rounds: int) -> Iterator[Row]:
    asks = max(1, min(USERS // 2, 1_000_000 // count))  # queries in a round
    rows, asked = subject.rows(), subject.asked()
    for peer in PEERS:
        goal = {"faiss-cpu": FAISS_GOAL if count == FAISS_GOAL_ITEMS else None, "": NUMPY_GOAL}.get(peer.package)
        try:
            query = peer.make(rows)
        except ImportError:
            note = f'{peer.package} is not installed: make bench PEERS="{peer.package}"'
            yield row(name, "ms/query", None, against=peer.name, goal=goal, note=note)
            continue
        seconds = race(rounds, [_ours(subject, asks), _theirs(query, asked, asks)])
        mine, theirs = (1e3 * spent / asks for spent in seconds)
        ratio = theirs / mine
        yield row(name, "ms/query", mine, against=peer.name, peer=theirs, ratio=ratio, goal=goal, note=peer.note)


def growth_lines(quick: bool) -> Iterator[Row]:
    """What a query and a refresh cost, and what a catalogue weighs, from few items to many."""
    rounds = 2 if quick else _ROUNDS
    for count in (100, 1_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        for priors, prior_spread in PRIORS.items():
            subject = make_subject(count, prior_spread)
            seconds = race(rounds, [_ours(subject, _ASKS)])[0]
            yield row(f"query, {count:,} items, {priors}", "µs/query", 1e6 * seconds / _ASKS)
            if prior_spread:
                yield from _upkeep_lines(f"{count:,} items", subject.catalogue, rounds)
            del subject


def _upkeep_lines(size: str, catalogue: Catalogue, rounds: int) -> Iterator[Row]:
    """What it costs to keep entries right, and their bytes."""
    count = catalogue.items.table.size
    slots = np.random.default_rng(1).integers(0, count, (rounds + 1, min(count, _REFRESHED))).astype(np.int32)
    refresh, rebuild = race(rounds, [lambda turn: catalogue.refresh(slots[turn]), lambda _: catalogue.rebuild(count)])
    yield row(f"refresh, {size}", "ns/item", 1e9 * refresh / slots.shape[1], note=f"{_REFRESHED:,} at random in a call")
    yield row(f"another p0, {size}", "ns/item", 1e9 * rebuild / count, note="all priors, in one slice")
    note = "codes, lengths and priors; the item table is beside it"
    yield row(f"catalogue, {size}", "MB", catalogue.nbytes / 1e6, note=note)
    table = sum(column.nbytes for column in catalogue.items.arrays)
    yield row(f"item table, {size}", "MB", table / 1e6, note="rows, counters and daily buckets")
