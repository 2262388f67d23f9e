"""A user's pending sets as small ordered lists: shown items, carried clicks, items clicked in this session.

They share one row of `UserArrays.sets`; the order of arrival is kept, so the oldest is the first.
"""

import numpy as np

from saros.core.jit import kernel
from saros.core.users import CLICKED, UserArrays


@kernel
def find(users: UserArrays, user: int, first: int, count: int, item: np.uint64) -> int:
    """Return where an item stands in users.sets[user, first:first + count], relative to first, or -1."""
    for k in range(count):
        if users.sets[user, first + k] == item:
            return k
    return -1


@kernel
def take_out(users: UserArrays, user: int, first: int, count: int, place: int, weighted: bool) -> None:
    """Close the gap that an item leaves in a set; the order of the others stays."""
    for k in range(first + place, first + count - 1):
        users.sets[user, k] = users.sets[user, k + 1]
        if weighted:
            users.weights[user, k] = users.weights[user, k + 1]


@kernel
def append(users: UserArrays, user: int, first: int, column: int, limit: int, item: np.uint64, weight: int) -> int:
    """Add an item to the set whose size stands in `column`; at the limit the oldest goes. Return how many went."""
    count, gone = users.head[user, column], 0
    if count == limit:
        take_out(users, user, first, count, 0, column != CLICKED)
        count, gone = count - 1, 1
    users.sets[user, first + count] = item
    if column != CLICKED:
        users.weights[user, first + count] = weight
    users.head[user, column] = count + 1
    return gone
