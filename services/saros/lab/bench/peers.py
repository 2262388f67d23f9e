"""What the step is measured against: the plain step without our guarantees, and how others learn from pairs.

Each peer is made from blocks and a dimension, and is then a `Learn`: called, it learns all of its blocks once, or an
epoch of its own, and returns the number of pairs. Packages
that Saros does not need are imported only here and only when asked for; where one is missing, ImportError says so.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from saros.core.jit import F32, I64, fast_kernel
from saros.core.settle import Blocks
from saros.lab.bench.shapes import ITEMS, USERS, draw_items, draw_users, pairs_of

Learn = Callable[[], int]
_RATE = 0.05
_REG = 0.01
_BATCH_PAIRS = 1024
LIKES_DRAWN = 630_000  # of them 575,000 are different: the ratings of 4 and 5 in ML-1M


class Peer(NamedTuple):
    """Something to run beside the step."""

    name: str
    make: Callable[[Blocks, int], Learn]
    blocks: int  # how many of a call's it can learn in a fraction of a second; 0: all of all calls
    package: str  # that it needs; empty: none
    note: str


def rows(count: int, dim: int, seed: int = 0) -> F32:
    """Return start rows."""
    return np.random.default_rng(seed).normal(0.0, 0.1, (count, dim)).astype(np.float32)


@fast_kernel
def plain_step(blocks: Blocks, user_rows: F32, item_rows: F32, a: F32, rate: float) -> None:
    """The paper's step and nothing else: float32 rows, the mean logistic loss of a block's pairs, one rate.

    user_rows, item_rows: float32[n, d]; a: float32[w], scratch. All moves are from the rows before the block.
    """
    dim = user_rows.shape[1]
    for b in range(blocks.user.shape[0]):
        u, first, negatives = user_rows[blocks.user[b]], blocks.start[b], blocks.negatives[b]
        count = negatives + blocks.positives[b]
        dots, pulls = a[0], a[1]
        for k in range(count):
            v, total = item_rows[blocks.slots[first + k]], np.float32(0.0)
            for d in range(dim):
                total += u[d] * v[d]
            dots[k], pulls[k] = total, 0.0
        scale = np.float32(rate / (negatives * blocks.positives[b]))
        for i in range(negatives, count):
            for j in range(negatives):
                g = scale / (np.float32(1.0) + math.exp(dots[i] - dots[j]))
                pulls[i] += g
                pulls[j] -= g
        move = a[2]
        for d in range(dim):
            move[d] = 0.0
        for k in range(count):
            v, pull = item_rows[blocks.slots[first + k]], pulls[k]
            for d in range(dim):
                move[d] += pull * v[d]
                v[d] += pull * u[d]
        for d in range(dim):
            u[d] += move[d]


def plain(blocks: Blocks, dim: int) -> Learn:
    """The plain step, compiled."""
    users, items, room = rows(USERS, dim), rows(ITEMS, dim, 1), np.zeros((3, max(dim, 256)), np.float32)

    def learn() -> int:
        plain_step(blocks, users, items, room, _RATE)
        return pairs_of(blocks)

    return learn


class RiverStyle:
    """One block at a time in plain Python, a dict of numpy vectors per id: how river's recommenders hold a model."""

    def __init__(self, dim: int, rate: float = _RATE, seed: int = 0) -> None:
        self.rate = rate
        self._dim, self._rng = dim, np.random.default_rng(seed)
        self.users: dict[int, F32] = {}
        self.items: dict[int, F32] = {}

    def _row(self, rows: dict[int, F32], name: int) -> F32:
        if name not in rows:
            rows[name] = self._rng.normal(0.0, 0.1, self._dim).astype(np.float32)
        return rows[name]

    def learn_one(self, user: int, negatives: list[int], positives: list[int]) -> float:
        """Move along the gradient of the block's mean pair loss; return that loss as it was before."""
        u, loss = self._row(self.users, user), 0.0
        names = [*negatives, *positives]
        rows = [self._row(self.items, name) for name in names]
        dots, pulls = [float(u @ v) for v in rows], [0.0] * len(rows)
        pairs = len(negatives) * len(positives)
        for i in range(len(negatives), len(names)):
            for j in range(len(negatives)):
                small = math.exp(-abs(dots[i] - dots[j]))
                g = (small if dots[i] > dots[j] else 1.0) / (1.0 + small) / pairs
                pulls[i] += g
                pulls[j] -= g
                loss += (math.log1p(small) + max(0.0, dots[j] - dots[i])) / pairs
        move = np.zeros(self._dim, np.float32)
        for name, v, pull in zip(names, rows, pulls, strict=True):
            move += pull * v
            self.items[name] = v + self.rate * pull * u
        self.users[user] = u + self.rate * move
        return loss


def as_lists(blocks: Blocks) -> list[tuple[int, list[int], list[int]]]:
    """Return (user, negatives, positives) of each block."""
    slots, found = blocks.slots.tolist(), []
    for b in range(len(blocks.user)):
        first, middle = int(blocks.start[b]), int(blocks.start[b] + blocks.negatives[b])
        found.append((int(blocks.user[b]), slots[first:middle], slots[middle : middle + int(blocks.positives[b])]))
    return found


def river_style(blocks: Blocks, dim: int) -> Learn:
    """`RiverStyle` on blocks that are lists already."""
    model, lists = RiverStyle(dim), as_lists(blocks)

    def learn() -> int:
        for user, negatives, positives in lists:
            model.learn_one(user, negatives, positives)
        return pairs_of(blocks)

    return learn


def pairs_as_columns(blocks: Blocks) -> tuple[I64, I64, I64]:
    """Return user, liked and disliked item of every pair."""
    user, liked, disliked = [], [], []
    for name, negatives, positives in as_lists(blocks):
        for item in positives:
            user += [name] * len(negatives)
            liked += [item] * len(negatives)
            disliked += negatives
    return np.array(user), np.array(liked), np.array(disliked)


def _implicit(dim: int, verify: bool) -> Learn:
    """One epoch of implicit's BPR over as many likes as ML-1M has, without the set-up of its `fit`."""
    from implicit.cpu.bpr import RNGVector, bpr_update

    rng = np.random.default_rng(0)
    drawn = draw_users(rng, LIKES_DRAWN, USERS).astype(np.int64) * ITEMS + draw_items(rng, LIKES_DRAWN, ITEMS)
    likes = np.unique(drawn)
    user, item = (likes // ITEMS).astype(np.int32), (likes % ITEMS).astype(np.int32)
    starts = np.searchsorted(user, np.arange(USERS + 1)).astype(np.int32)
    # As its `fit` makes them: one more column, a bias that is 1 for users.
    user_rows, item_rows = rows(USERS, dim + 1), rows(ITEMS, dim + 1, 1)
    user_rows[:, dim] = 1.0
    draws = RNGVector(1, len(likes) - 1, np.array([7], np.int64))

    def learn() -> int:
        _, skipped = bpr_update(draws, user, item, starts, user_rows, item_rows, _RATE, _REG, 1, verify)
        return len(likes) - int(skipped)

    return learn


def implicit_bpr(_: Blocks, dim: int) -> Learn:
    """As it comes: a pair whose disliked item the user has liked is drawn and dropped."""
    return _implicit(dim, verify=True)


def implicit_unverified(_: Blocks, dim: int) -> Learn:
    """With `verify_negative_samples` off: every pair drawn is learned."""
    return _implicit(dim, verify=False)


def _torch_step(torch: Any, dim: int) -> Callable[[Any, Any, Any], None]:
    """Return one step of sparse SGD on (user, liked, disliked)."""
    torch.set_num_threads(1)
    users, items = (torch.nn.Embedding(count, dim, sparse=True) for count in (USERS, ITEMS))
    optimizer = torch.optim.SGD([users.weight, items.weight], lr=_RATE)

    def step(user: Any, liked: Any, disliked: Any) -> None:
        optimizer.zero_grad()
        margin = (users(user) * (items(liked) - items(disliked))).sum(1)
        torch.nn.functional.softplus(-margin).mean().backward()
        optimizer.step()

    return step


def _torch(blocks: Blocks, dim: int, ends: list[int]) -> Learn:
    """One step for the pairs up to each of the given ends."""
    import torch

    step, columns = _torch_step(torch, dim), [torch.from_numpy(column) for column in pairs_as_columns(blocks)]
    pieces = [[column[a:b] for column in columns] for a, b in zip([0, *ends], ends, strict=False)]

    def learn() -> int:
        for user, liked, disliked in pieces:
            step(user, liked, disliked)
        return pairs_of(blocks)

    return learn


def torch_blocks(blocks: Blocks, dim: int) -> Learn:
    """Torch embeddings, a step for each block, as learning online demands."""
    return _torch(blocks, dim, np.cumsum(blocks.negatives * blocks.positives).tolist())


def torch_batches(blocks: Blocks, dim: int) -> Learn:
    """Torch embeddings, a step for each 1,024 pairs."""
    pairs = pairs_of(blocks)
    return _torch(blocks, dim, [*range(_BATCH_PAIRS, pairs, _BATCH_PAIRS), pairs])


PEERS = (
    Peer("plain float32 step", plain, 0, "", "compiled too; no fixed point, prior, scoring, counters or falling rates"),
    Peer("implicit BPR", implicit_bpr, 1, "implicit", "as it comes, 1 thread, an epoch over likes in ML-1M's shape"),
    Peer("implicit, unverified", implicit_unverified, 1, "implicit", "the same with verify_negative_samples off"),
    Peer("river-style step", river_style, 300, "", "plain Python, a dict of numpy vectors, a block at a time"),
    Peer("torch, a block a step", torch_blocks, 100, "torch", "sparse embeddings and SGD, 1 thread"),
    Peer("torch, 1,024 pairs a step", torch_batches, 3000, "torch", "in batches, which is not learning online"),
)
