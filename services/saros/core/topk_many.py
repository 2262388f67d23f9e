"""Exact top-K for many users in one call of a kernel: what a call costs is more than many a search."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saros.core.best import Best
from saros.core.catalogue import Catalogue
from saros.core.jit import F32, I32, I64, U16, kernel
from saros.core.masks import as_slots, set_bits
from saros.core.topk import Search, aim_at, search


@kernel
def _search_many(
    s: Search, users: F32, which: I32, base: U16, exclude: I32, starts: I64, slots: I32, scores: F32, sizes: I32
) -> None:
    """Fill a row of slots and scores for each user row users[which[j]], without exclude[starts[j] : starts[j + 1]].

    base: uint16[t], what all of them may have; s.allowed, s.aim.u and s.best are scratch. sizes as `search` returns.
    What was best for one user is scored first for the next: much of it is good for others too.
    """
    for j in range(which.shape[0]):
        for k in range(users.shape[1]):
            s.aim.u[0, k] = users[which[j], k]
        for tile in range(base.shape[0]):
            s.allowed[tile] = base[tile]
        set_bits(s.allowed, exclude, starts[j], starts[j + 1], False)
        known = max(0, sizes[j - 1]) if j > 0 else 0
        sizes[j] = search(s, slots[max(0, j - 1), :known])
        for k in range(sizes[j]):
            slots[j, k], scores[j, k] = s.best.slot[k], s.best.score[k]


class FoundMany(NamedTuple):
    """The best items of each of n users, in order."""

    slots: I32  # [n, k]
    scores: F32  # [n, k]
    sizes: I32  # [n] how many of them there are, the rest being 0; -1: the user's row cannot be searched with


def top_k_many(
    catalogue: Catalogue, users: F32, which: I32 | Sequence[int], k: int, allowed: U16, exclude: I32, starts: I64
) -> FoundMany:
    """Return the best k items for each user row users[which[j]], of those allowed but exclude[starts[j] : starts[j+1]].

    To the bit what `top_k` returns one by one. A row that is not finite, or too long, is told of and stops nobody.
    """
    if k < 1:
        raise ValueError(f"k must be above 0, not {k}")
    rows, out = as_slots(which), as_slots(exclude)
    if users.dtype != np.float32 or (len(rows) and rows.max() >= len(users)):
        raise ValueError("there are no such user rows")
    if len(allowed) > len(catalogue.arrays.known):
        raise ValueError("slots are allowed that the catalogue does not have")
    if len(starts) != len(rows) + 1 or starts[0] != 0 or starts[-1] != len(out) or (starts[1:] < starts[:-1]).any():
        raise ValueError("what is excluded must be cut into a piece for each user")
    items, most = catalogue.items, min(k, catalogue.items.table.size)
    aim = aim_at(catalogue, np.empty(users.shape[1], np.float32), False)
    # Numbers behind the last one found, too: a caller may write all of them at once.
    found = FoundMany(
        np.zeros((len(rows), most), np.int32), np.zeros((len(rows), most), np.float32), np.zeros(len(rows), np.int32)
    )
    request = Search(
        catalogue.arrays, items.arrays.rows, items.table.keys, np.empty_like(allowed), aim, Best.empty(most),
        np.zeros(3, np.int64),
    )  # fmt: skip
    if most:
        _search_many(request, users, rows, allowed, out, starts, *found)
    return found
