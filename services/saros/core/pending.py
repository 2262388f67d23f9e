"""A user's pending sets: shown items and carried clicks as ordered lists, items clicked in this session as a ring.

They share one row of `UserArrays.sets`. Lists keep the order of arrival, so the oldest is the first. Nothing is ever
taken out of the ring, so its column of `head` counts all that went in, and the oldest is overwritten.
"""

import numpy as np

from saros.core.jit import inline_kernel
from saros.core.users import CLICKED, UserArrays


@inline_kernel
def has(users: UserArrays, user: int, first: int, count: int, item: np.uint64) -> bool:
    """True if an item stands in users.sets[user, first:first + count]; no early exit, so that lanes go in parallel."""
    found = False
    for k in range(first, first + count):
        found |= users.sets[user, k] == item
    return found


@inline_kernel
def find(users: UserArrays, user: int, first: int, count: int, item: np.uint64) -> int:
    """Return where an item stands in users.sets[user, first:first + count], relative to first, or -1."""
    place = -1
    if has(users, user, first, count, item):
        place = 0
        while users.sets[user, first + place] != item:
            place += 1
    return place


@inline_kernel
def take_out(users: UserArrays, user: int, first: int, count: int, place: int) -> None:
    """Close the gap that an item leaves in a list; the order of the others stays."""
    for k in range(first + place, first + count - 1):
        users.sets[user, k] = users.sets[user, k + 1]
        users.weights[user, k] = users.weights[user, k + 1]


@inline_kernel
def append(users: UserArrays, user: int, first: int, column: int, limit: int, item: np.uint64, weight: int) -> int:
    """Add an item to the list whose size stands in `column`; at the limit the oldest goes. Return how many went."""
    count, gone = users.head[user, column], 0
    if count == limit:
        take_out(users, user, first, count, 0)
        count, gone = count - 1, 1
    users.sets[user, first + count] = item
    users.weights[user, first + count] = weight
    users.head[user, column] = count + 1
    return gone


@inline_kernel
def remember_click(users: UserArrays, user: int, first: int, limit: int, item: np.uint64) -> int:
    """Add an item to the ring of clicked ones, once; return how many it pushed out."""
    clicks = users.head[user, CLICKED]
    if has(users, user, first, min(clicks, limit), item):
        return 0
    users.sets[user, first + clicks % limit] = item
    users.head[user, CLICKED] = clicks + 1
    return 1 if clicks >= limit else 0
