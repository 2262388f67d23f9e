"""The blocks of a log: each one's user, items and final sign."""

from typing import NamedTuple

from saros.core.jit import I32, I64


class BlockTable(NamedTuple):
    """n blocks in the order they closed; the items of block b are [start[b], start[b + 1]), negatives first."""

    user: I32  # [n] index into the log's users
    number: I32  # [n] of the block among its user's, from 0
    time_ms: I64  # [n]
    sign: I32  # [n] as it stands at the end: 1 added, -1 taken back, 0 never added
    negatives: I32  # [n]
    start: I64  # [n + 1]
    item: I32  # [m] index into the log's items
