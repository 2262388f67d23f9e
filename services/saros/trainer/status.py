"""How a model stands: who reads what, how far behind, and how far the store was folded."""

from typing import NamedTuple

from saros.adapters.kafka import Admin, Reader
from saros.adapters.names import topics_of
from saros.adapters.redis import Store
from saros.redo.fence import FENCE_BYTES
from saros.trainer.plan import Plan, group_of
from saros.trainer.start import find_log


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


class Status(NamedTuple):
    """A model."""

    model: str
    shards: int
    dim: int
    partitions: list[PartitionStatus]


def status_of(plan: Plan) -> Status:
    """Look at topics, group and store; nothing is changed."""
    names = topics_of(plan.model)
    redo, genesis = find_log(plan)
    reader = Reader(plan.cluster, f"{plan.model}-status")
    store, owners = (
        Store(plan.store, plan.model, genesis.shards),
        Admin(plan.cluster).owners(group_of(plan), names.events),
    )
    stored = [store.read_vector(shard) for shard in range(genesis.shards)]
    vectors = [
        genesis.found(vector, genesis.starts(), f"shard {shard} of the store") for shard, vector in enumerate(stored)
    ]
    found = []
    for partition in range(genesis.partitions):
        head, (_, end) = store.read_head(partition), reader.watermarks(names.events, partition)
        (fence,) = genesis.found(
            head[:FENCE_BYTES], [genesis.start(partition)], f"partition {partition} of the store"
        )  # fmt: skip
        found.append(
            PartitionStatus(
                partition,
                owners.get(partition, ""),
                fence.next,
                end,
                end - fence.next,
                fence.offset,
                redo.end(partition),
                min(vector[partition].offset for vector in vectors),
            )
        )
    for client in (reader, redo, store):
        client.close()
    return Status(plan.model, genesis.shards, genesis.rows.dim, found)
