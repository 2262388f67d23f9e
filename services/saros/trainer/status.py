"""How a model stands: who reads what, how far behind, and how far the store was folded."""

import time
from typing import NamedTuple

from saros.adapters.kafka import Admin, Reader
from saros.adapters.names import topics_of
from saros.adapters.redis import Store
from saros.redo.fence import Fence
from saros.trainer.plan import Plan, group_of
from saros.trainer.start import find_log, item_fences, user_fences


class PartitionStatus(NamedTuple):
    """One partition."""

    partition: int
    owner: str  # empty: nobody
    next: int  # the first event that is not in the store
    end: int  # behind the last event
    lag: int  # messages between the two
    redo_offset: int  # of the last record in the store; -1: none
    redo_end: int
    items_offset: int  # the lowest that an item shard was folded to
    incoming_per_s: float  # messages, while it was looked at
    learned_per_s: float


class Status(NamedTuple):
    """A model."""

    model: str
    shards: int
    dim: int
    partitions: list[PartitionStatus]


def status_of(plan: Plan, over_s: float = 1.0) -> Status:
    """Look at topics, group and store, twice for the rates; nothing is changed."""
    names = topics_of(plan.model)
    redo, genesis = find_log(plan)
    reader, store = Reader(plan.cluster, f"{plan.model}-status"), Store(plan.store, plan.model, genesis.shards)

    def look() -> tuple[list[Fence], list[int]]:
        """Return how far the users of each partition are, and where its events end."""
        ends = [reader.watermarks(names.events, p)[1] for p in range(genesis.partitions)]
        return user_fences(store, genesis), ends

    before, ends_before = look()
    start = time.monotonic()
    time.sleep(over_s)
    fences, ends = look()
    passed_s = time.monotonic() - start
    owners = Admin(plan.cluster).owners(group_of(plan), names.events)
    vectors = item_fences(store, genesis)
    found = [
        PartitionStatus(
            p,
            owners.get(p, ""),
            fences[p].next,
            ends[p],
            ends[p] - fences[p].next,
            fences[p].offset,
            redo.end(p),
            min(vector[p].offset for vector in vectors),
            round((ends[p] - ends_before[p]) / passed_s, 1),
            round((fences[p].next - before[p].next) / passed_s, 1),
        )
        for p in range(genesis.partitions)
    ]
    for client in (reader, redo, store):
        client.close()
    return Status(plan.model, genesis.shards, genesis.rows.dim, found)
