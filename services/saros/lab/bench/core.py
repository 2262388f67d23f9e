"""The bench of the core: step, feed with gate, fold, and how cost grows with users and items.

Everything runs in one thread on data in the shape of ML-1M, compiled before the clock starts.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from saros.core.events import Events
from saros.core.fold import SignedBlocks, fold_rows
from saros.core.gate import GateRules
from saros.core.items import Items
from saros.core.jit import I32, kernel
from saros.core.learner import Learner
from saros.core.rows import live_rows
from saros.core.sessions import SessionRules
from saros.core.settle import Blocks
from saros.core.step import Work, live_step, step
from saros.lab.bench import objects, peers, shapes
from saros.lab.bench.growth import BATCH_EVENTS, grow
from saros.lab.bench.measure import Row, Run, race, row
from saros.lab.bench.peers import Peer

GROUPS = ("step", "feed", "fold", "growth")
DIMS = (16, 64)
STEP_GOAL, STEP_GOAL_DIM = 6.0, 64
FEED_GOAL = 10.0


class Size(NamedTuple):
    """How much is measured."""

    rounds: int
    calls: int  # of the step in a round
    blocks: int  # in each
    events: int  # fed in a round


# A call learns what a micro-batch of 4,096 events closes: a slate and a click for each block.
FULL, QUICK = Size(rounds=9, calls=16, blocks=2048, events=60_000), Size(rounds=2, calls=1, blocks=200, events=2_000)


def run_core(
    *, quick: bool = False, only: str | None = None, on_row: Callable[[Row], None] = lambda _: None
) -> list[Row]:
    """Measure one of `GROUPS`, or all; tell each row as it comes, and return them all."""
    if only is not None and only not in GROUPS:
        raise ValueError(f"{only!r} is none of {', '.join(GROUPS)}")
    size, found = QUICK if quick else FULL, []
    groups = {"step": step_lines(size), "feed": feed_lines(size), "fold": fold_lines(size), "growth": grow(quick)}
    for group, lines in groups.items():
        for line in lines if only in (None, group) else ():
            on_row(line)
            found.append(line)
    return found


def step_lines(size: Size) -> Iterator[Row]:
    """Pairs per second of the kernel that the service calls, with all it does, beside each peer."""
    for dim in DIMS:
        for peer in peers.PEERS:
            yield _step_line(peer, dim, size)


def _step_line(peer: Peer, dim: int, size: Size) -> Row:
    name, unit = f"step, d {dim}", "pairs/s"
    goal = STEP_GOAL if peer.name == "implicit BPR" and dim == STEP_GOAL_DIM else None
    works = shapes.make_works(size.calls, size.blocks, dim)
    try:
        other = [peer.make(_some(work.blocks, peer.blocks), dim) for work in works[: 1 if peer.blocks else None]]
    except ImportError:
        note = f'{peer.package} is not installed: make bench PEERS="{peer.package}"'
        return row(name, unit, None, against=peer.name, goal=goal, note=note)
    ours, theirs = sum(shapes.pairs_of(work.blocks) for work in works), sum(learn() for learn in other)
    runs: list[Run] = [lambda _: _each(works), lambda _: [learn() for learn in other]]
    seconds = race(size.rounds, runs)
    mine, peer_value = ours / seconds[0], theirs / seconds[1]
    return row(name, unit, mine, against=peer.name, peer=peer_value, ratio=mine / peer_value, goal=goal, note=peer.note)


def _some(blocks: Blocks, count: int) -> Blocks:
    """Return the first so many blocks, or all for 0."""
    if count == 0 or count >= len(blocks.user):
        return blocks
    fewer = Blocks._make([*(column[:count] for column in blocks[:12]), *blocks[12:]])
    end = int(fewer.start[-1] + fewer.negatives[-1] + fewer.positives[-1])
    return Blocks._make([*fewer[:12], *(column[:end] for column in fewer[12:16]), fewer.used])


def _each(works: list[Work]) -> None:
    for work in works:
        step(work)


@kernel
def read_columns(events: Events) -> int:
    """Read every column of every event once and add all up: the least that anyone who looks at events must do."""
    total = 0
    for e in range(events.user.shape[0]):
        total += events.user[e] + events.kind[e] + events.time_ms[e] + events.log_ms[e] + events.bot[e]
        total += np.int64(events.event_id[e]) + np.int64(events.session[e]) + np.int64(events.weight[e])
        for k in range(events.start[e], events.start[e + 1]):
            total += np.int64(events.items[k])
    return total


def feed_lines(size: Size) -> Iterator[Row]:
    """Nanoseconds per event of feed and gate, as `Learner.open` does them."""
    keys, count = shapes.keys(shapes.ITEMS, 0), (size.rounds + 1) * size.events
    yield from _feed_lines("slates", shapes.slates(count // 2, shapes.USERS, keys), SessionRules(), size)
    yield from _feed_lines("ratings", shapes.ratings(count, shapes.USERS, keys), SessionRules(gap_ms=0), size)


def _feed_lines(shape: str, events: Events, rules: SessionRules, size: Size) -> Iterator[Row]:
    gate = GateRules(blocks_max=50)
    learner = Learner(Items(live_rows(DIMS[0]), shapes.ITEMS), live_step(), rules, gate)
    learner.intern(shapes.keys(shapes.USERS, 1))
    partition, pieces = objects.Partition(rules, gate), shapes.pieces(events, size.rounds + 1)
    unpacked, batches = [objects.unpacked(piece) for piece in pieces], [_batches(piece) for piece in pieces]
    runs: list[Run] = [
        lambda turn: [learner.open(batch) for batch in batches[turn]],
        lambda turn: partition.learn(unpacked[turn]),
        lambda turn: read_columns(pieces[turn]),
    ]
    mine, plain, bare = (1e9 * seconds / len(pieces[0].user) for seconds in race(size.rounds, runs))
    for against, peer, goal, note in (
        ("Python objects", plain, FEED_GOAL, "the same blocks and decisions from dicts and objects, which do less"),
        ("a bare pass", bare, None, "reads every column once and adds up"),
    ):
        name, ratio = f"feed + gate, {shape}", peer / mine
        yield row(name, "ns/event", mine, against=against, peer=peer, ratio=ratio, goal=goal, note=note)


def _batches(events: Events) -> list[Events]:
    """Cut events into micro-batches."""
    ends = [*range(BATCH_EVENTS, len(events.user), BATCH_EVENTS), len(events.user)]
    return [events.cut(a, b) for a, b in zip([0, *ends], ends, strict=False)]


@kernel
def add_rows(rows: I32, blocks: SignedBlocks) -> None:
    """Read and write the same rows as a fold, with nothing to compute."""
    for b in range(blocks.sign.shape[0]):
        for k in range(blocks.start[b], blocks.start[b] + blocks.negatives[b] + blocks.positives[b]):
            row = rows[blocks.slots[k]]
            for d in range(rows.shape[1]):
                row[d] += 1


def fold_lines(size: Size) -> Iterator[Row]:
    """Microseconds per block of the fold that an API or a recovery does: rows, counters and totals."""
    for dim in DIMS:
        yield _fold_line(dim, size)


def _fold_line(dim: int, size: Size) -> Row:
    works = shapes.make_works(size.calls, size.blocks, dim)
    _each(works)  # fills in the coefficients
    other = np.zeros_like(works[0].items.rows)
    runs: list[Run] = [
        # Every other round takes back, so that rows stay where they are.
        lambda turn: [fold_rows(work.items, work.signed, 1 - 2 * (turn & 1)) for work in works],
        lambda _: [add_rows(other, work.signed) for work in works],
    ]
    mine, bare = (1e6 * seconds / (size.calls * size.blocks) for seconds in race(size.rounds, runs))
    note = "adds 1 to every word of the same rows"
    return row(f"fold, d {dim}", "µs/block", mine, against="a bare pass", peer=bare, ratio=bare / mine, note=note)
