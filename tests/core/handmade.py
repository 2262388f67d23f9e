"""A bench for the step's tests: hand-made blocks through the real kernels, and the twin at any moment's state."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saros.core import counts as c
from saros.core.fold import SignedBlocks
from saros.core.gate import DECISIONS, LEARN
from saros.core.items import CLICKED, SHOWN, UPDATES, ItemArrays, Items
from saros.core.jit import F64, I64
from saros.core.ledger import Ledger
from saros.core.rows import ONE, RowRules
from saros.core.scoring import PROGRESSIVE, scratch
from saros.core.settle import ADD, KEEP, MOVE, RESET, SCORE, STORED, Blocks
from saros.core.step import LIVE, StepRules, Work, step
from saros.core.users import HIGH, LEVEL_ONE, LOW, MOVED, Users
from tests.naive import step as naive

WEIGHT_ONE = 4096
ARENA = 7  # items of the first hand-made ledger entry start here, so that a forgotten offset shows


def signed_blocks(blocks: Sequence[naive.Block], slot_of: dict[int, int], dim: int) -> SignedBlocks:
    """The fold's columns of blocks that carry u and coefficients."""
    sizes = [len(block.items) for block in blocks]
    rows = np.array([block.u for block in blocks], np.float32).reshape(len(blocks), dim)
    return SignedBlocks(
        sign=np.array([block.sign for block in blocks], np.int32),
        day=np.array([block.day for block in blocks], np.int32),
        start=(np.cumsum(sizes, dtype=np.int64) - np.array(sizes, np.int64)),
        negatives=np.array([block.negatives for block in blocks], np.int32),
        positives=np.array([block.positives for block in blocks], np.int32),
        rows=rows,
        slots=np.array([slot_of[key] for block in blocks for key in block.items], np.int32),
        coefs=np.array([coef for block in blocks for coef in block.coefs], np.float32),
    )


def naive_items(table: Items) -> naive.Items:
    """The twin of an item table as it stands, without buckets."""
    rules, arrays = table.rules, table.arrays
    twin = naive.Items(rules.seed, rules.dim, rules.item_scale)
    for slot in table.table.slots():
        row = [int(word) for word in arrays.rows[slot]]
        clicked, shown, updates = (int(arrays.counters[slot, column]) for column in (CLICKED, SHOWN, UPDATES))
        twin.of[int(table.table.keys[slot])] = naive.Item(row, clicked, shown, updates)
    twin.clicked, twin.shown = int(arrays.totals[CLICKED]), int(arrays.totals[SHOWN])
    return twin


def words(arrays: ItemArrays, slots: Sequence[int] | slice = slice(None)) -> bytes:
    """Every bit of rows, counters and totals: what a take-back restores."""
    return arrays.rows[slots].tobytes() + arrays.counters[slots].tobytes() + arrays.totals.tobytes()


@dataclass
class Order:
    """A block for the step, and what to do with it."""

    block: naive.Block
    flags: int
    decision: int = LEARN
    entry: int = -1  # in the ledger


@dataclass
class Done:
    """What one call of `step` left behind besides the tables."""

    blocks: Blocks
    progressive: F64
    counts: I64

    def count(self, name: str) -> int:
        return int(self.counts[c.NAMES.index(name)])

    def emitted(self, n: int, block: naive.Block) -> naive.Block:
        """Block n with the u and the coefficients the kernel gave it."""
        first, end = int(self.blocks.start[n]), int(self.blocks.start[n]) + len(block.items)
        coefs = [float(coef) for coef in self.blocks.coefs[first:end]]
        u = [float(x) for x in self.blocks.rows[n]]
        return naive.Block(
            block.user, block.items, block.negatives, block.weights, block.day, int(self.blocks.sign[n]), u, coefs
        )


class Bench:
    """A few users and items, their ledger, and the step over hand-made blocks."""

    def __init__(self, rows: RowRules, rules: StepRules, users: Sequence[int], items: Sequence[int]) -> None:
        self.rows, self.rules = rows, rules
        self.items = Items(rows, 4096)
        self.items.intern(np.array(items, np.uint64))
        self.users = Users(rows, negatives_max=1, carried_max=1, clicked_max=1, limit=64, evict=False)
        slots, _ = self.users.intern(np.array(users, np.uint64))
        self.slot_of_user = {key: int(slot) for key, slot in zip(users, slots, strict=True)}
        self.ledger = Ledger(rows.dim, 64)

    def slot(self, item: int) -> int:
        """The slot of an item key, -1 if the table has it not."""
        return int(self.items.table.find(np.array([item], np.uint64))[0])

    def run(self, orders: Sequence[Order]) -> Done:
        """One call of `step`; an item that is not in the table must not be added."""
        blocks = Blocks.empty(len(orders), sum(len(order.block.items) for order in orders), self.rows.dim)
        for n, order in enumerate(orders):
            block, at = order.block, int(blocks.used[1])
            blocks.user[n], blocks.time_ms[n] = self.slot_of_user[block.user], block.day * 86_400_000
            blocks.sign[n], blocks.flags[n] = block.sign if block.sign < 0 else order.flags & ADD != 0, order.flags
            blocks.decision[n], blocks.entry[n] = order.decision, order.entry
            blocks.arena[n] = ARENA + 64 * order.entry
            blocks.start[n], blocks.negatives[n], blocks.positives[n] = at, block.negatives, block.positives
            end = at + len(block.items)
            blocks.items[at:end] = block.items
            blocks.slots[at:end] = [self.slot(key) for key in block.items]
            blocks.weights[at:end] = [round(weight * WEIGHT_ONE) for weight in block.weights]
            if block.sign < 0:
                blocks.rows[n], blocks.coefs[at:end] = block.u, block.coefs
            blocks.used[:] = n + 1, end
        filled, progressive, counts = blocks.filled(), np.zeros((len(DECISIONS), len(PROGRESSIVE))), c.zeros()
        room = scratch(max(len(order.block.items) for order in orders), self.rows.dim)
        arrays = self.users.arrays, self.items.arrays, self.ledger.arrays
        step(Work(*arrays, filled, filled.signed(), self.rules, self.rows, room, progressive, counts))
        return Done(filled, progressive, counts)

    def scatter(self, rng: np.random.Generator, *, items: float, users: float, counts: int) -> None:
        """Put every row and counter somewhere: rows by their standard deviations, counters up to `counts`."""
        arrays, rows = self.items.arrays, self.users.arrays.rows
        slots = self.items.table.slots()
        arrays.rows[slots] = np.rint(rng.normal(0, items, (len(slots), self.rows.dim)).clip(-31, 31) * ONE)
        arrays.counters[slots] = rng.integers(0, counts + 1, (len(slots), 3))
        arrays.totals[:] = arrays.counters[slots].sum(axis=0)[[CLICKED, SHOWN]] + rng.integers(100, 101 + counts, 2)
        rows[:] = rng.normal(0, users, rows.shape).clip(-31, 31)
        self.users.arrays.gate[:, MOVED] = rng.integers(0, counts + 1, len(rows))
        self.users.arrays.gate[:, [LOW, HIGH]] = rng.integers(-LEVEL_ONE, LEVEL_ONE, (len(rows), 2))
        self.ledger.arrays.rows[:] = rng.normal(0, users, self.ledger.arrays.rows.shape).clip(-31, 31)

    def twin(self) -> naive.Model:
        """The twin at the state of now."""
        rules, arrays = self.rules, self.users.arrays
        recipe = naive.Recipe(rules.kind == LIVE, *rules[1:])
        users = {
            key: naive.User([float(x) for x in arrays.rows[slot]], *map(int, arrays.gate[slot, [MOVED, LOW, HIGH]]))
            for key, slot in self.slot_of_user.items()
        }
        return naive.Model(recipe, naive_items(self.items), users)

    def kept(self, entry: int, count: int) -> list[float]:
        """The coefficients that stand in the ledger for an entry."""
        first = ARENA + 64 * entry
        return [float(coef) for coef in self.ledger.arrays.coefs[first : first + count]]


class Twin:
    """The twin of a bench from its state of now on: a model, and the ledger's rows and coefficients by entry."""

    def __init__(self, bench: Bench) -> None:
        self.rules, self.model = bench.rows, bench.twin()
        self.rows = {entry: [float(x) for x in row] for entry, row in enumerate(bench.ledger.arrays.rows[:32])}
        self.coefs: dict[int, list[float]] = {}

    def step(self, order: Order) -> list[float]:
        """Do what the step does with an order; return its progressive numbers, or none where it is not scored."""
        block, model, rules = order.block, self.model, self.rules
        if order.flags & RESET:
            row = naive.user_start(rules.seed, block.user, rules.dim, rules.user_scale, rules.user_start)
            model.users[block.user] = naive.User(row)
            return []
        if block.sign < 0:
            model.items.fold(block)
            return []
        u = self.rows[order.entry] if order.flags & STORED else model.users[block.user].row
        if order.entry >= 0:
            self.rows[order.entry] = u
        scored = model.judge(block, u) if order.flags & SCORE else []
        model.learn(block, u, add=bool(order.flags & ADD), move=bool(order.flags & MOVE))
        if order.flags & KEEP:
            self.coefs[order.entry] = block.coefs
        return scored
