"""Which items upserts may name: what is told of an item stays in every process and in the store, so it is bounded where
it enters the log. Every reader folds what the log says; only a trainer decides what goes into its records."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from saros.adapters.intake import Taken
from saros.core.ids import hash_texts
from saros.core.jit import I64
from saros.redo.replica import Replica
from saros.trainer.share import Share


class Named(NamedTuple):
    """What upserts of a micro-batch do."""

    fresh: frozenset[int]  # keys of items that they name, and nobody did before
    refused: I64  # rows of upserts that find no room


def named_by(taken: Taken, messages: I64, replica: Replica, shares: Iterable[Share]) -> Named:
    """Return what the upserts of these messages name, behind what records of the shares in flight do.

    No more items are named than may be let in, but one that was let in has room for its name in any case.
    """
    fresh, refused = set[int](), list[int]()
    rows = [row for row in taken.rare_rows(messages).tolist() if taken.rare[row].HasField("item_upsert")]
    if rows:
        names, flying = replica.names, {key for share in shares for flight in share.flights for key in flight.named}
        keys = hash_texts(replica.genesis.key(), [taken.rare[row].item_upsert.item_id for row in rows])
        room = replica.items.limit - len(names) - len(flying)
        for row, key, slot in zip(rows, keys.tolist(), replica.items.table.find(keys).tolist(), strict=True):
            if slot >= 0 or key in names or key in flying or key in fresh:
                continue
            if len(fresh) < room:
                fresh.add(key)
            else:
                refused.append(row)
    return Named(frozenset(fresh), np.array(refused, np.int64))
