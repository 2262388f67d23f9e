"""A copy of a store, and what the records behind it make of it: the oracle where a log does not begin with nothing."""

from typing import NamedTuple

from saros.adapters.kafka import Admin
from saros.adapters.redis import MarkedStore
from saros.adapters.redo import RedoLog
from saros.core.codec_items import pack_items, unpack_items
from saros.core.items import Items
from saros.redo.fence import Fence, unpack_fence, unpack_vector
from saros.redo.genesis import Genesis, read_genesis
from saros.redo.record import operations
from saros.redo.replica import Replica
from saros.trainer.stored import apply
from saros.wire.operations import StoredUser, read_user
from tests.trainer.runs import PARTITIONS, Model

SHARDS = 16
Entries = dict[int, dict[int, bytes]]


class Copy(NamedTuple):
    """All that a store held at a moment when nobody wrote to it."""

    genesis: Genesis
    vectors: list[list[Fence]]
    fences: list[Fence]
    items: Items
    names: dict[int, bytes]
    users: list[dict[int, StoredUser]]
    ledgers: list[Entries]


def copy_of(held: MarkedStore) -> Copy:
    """Return all that a store holds; all of its shards have to be on one log."""
    seen = [held.standing(shard) for shard in range(SHARDS)]
    metas = [read_genesis(standing.meta) for standing in seen]
    assert all(meta == metas[0] for meta in metas), "all shards are on one log"
    items, names = Items(metas[0].rows, 5000), dict[int, bytes]()
    users: list[dict[int, StoredUser]] = [{} for _ in range(PARTITIONS)]
    ledgers: list[Entries] = [{} for _ in range(PARTITIONS)]
    for shard in range(SHARDS):
        found = held.read_shard(shard)
        if len(found.keys):
            unpack_items(items, found.keys, found.values)
        names |= found.names
    for partition in range(PARTITIONS):
        for keys in held.users_of(partition):
            values = held.read_users(partition, keys).values
            users[partition] |= {key: read_user(v) for key, v in zip(keys.tolist(), values, strict=True) if v}
        for keys in held.ledger_keys(partition):
            entries = held.read_ledgers(partition, keys).entries
            ledgers[partition] |= dict(zip(keys.tolist(), entries, strict=True))
    heads = [seen[partition].heads[0] for partition in range(PARTITIONS)]
    vectors = [unpack_vector(standing.vector, PARTITIONS) for standing in seen]
    return Copy(metas[0], vectors, [unpack_fence(head) for head in heads], items, names, users, ledgers)


def rows_of(items: Items) -> dict[int, bytes]:
    """Every row, counter and bucket; what was taken back to nothing is as if it had never been."""
    slots = items.table.slots()
    packed = pack_items(items, slots)
    return {key: row.tobytes() for key, row in zip(items.table.keys[slots].tolist(), packed, strict=True) if row.any()}


def check_folded(before: Copy, held: MarkedStore, model: Model) -> None:
    """The store is the copy and the records behind it, to the bit; all events are in records."""
    after = copy_of(held)
    topic = Admin(model.cluster).find(model.topics.redo)
    assert topic is not None
    redo = RedoLog(model.cluster, topic)
    assert redo.genesis() == after.genesis == before.genesis
    replica = Replica(before.genesis, before.items)
    replica.boot(before.vectors)
    for partition in range(PARTITIONS):
        end = redo.end(partition)
        for fence, record in redo.accepted(partition, before.fences[partition], end):
            replica.fences[partition] = fence
            replica.fold(partition, fence.offset, record)
            apply(operations(record, before.genesis.rows.dim), before.users[partition], before.ledgers[partition])
        assert after.fences[partition][1:3] == replica.fences[partition][1:3]
    redo.close()
    assert rows_of(after.items) == rows_of(replica.items)
    assert after.names == {**before.names, **replica.names}
    assert after.users == before.users
    for now, then in zip(after.ledgers, before.ledgers, strict=True):
        assert now == {key: entries for key, entries in then.items() if entries}


def waiting(ledgers: list[Entries]) -> list[Entries]:
    """Ledgers without what was added."""
    kept = [{key: {n: e for n, e in book.items() if not e[1] & 1} for key, book in each.items()} for each in ledgers]
    return [{key: book for key, book in each.items() if book} for each in kept]
