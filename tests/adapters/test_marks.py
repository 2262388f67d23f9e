"""A marked shard: nothing is read or written under its fences but by a rebase, and what they hide stays."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saros.adapters.redis import Address, EmbeddedStore, MarkedStore, Standing, Store, mark_for
from saros.core.jit import U64
from saros.errors import RefusedError, StoreError
from saros.redo.fence import FENCE_BYTES, Fence
from saros.wire.operations import drop_operations
from tests.store import Proxy, StoreServer, connect, contents

SHARDS, PARTITIONS = 3, 5
NONE = np.zeros(0, np.uint64)
ROWS: tuple[U64, Any] = np.array([4], np.uint64), np.ones((1, 8), np.uint8)
USER = b"\1" + (7).to_bytes(8, "little") + (3).to_bytes(4, "little") + b"abc"
ENTRY = b"\2" + (7).to_bytes(8, "little") + (2).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"\1\1x"


@pytest.fixture
def store(server: StoreServer, model_name: str) -> Iterator[Store]:
    """A store with something in each shard but the last."""
    made = Store(Address(server.url), model_name, SHARDS)
    for partition in (0, 1, 3):
        assert made.flush(partition, b"", fence(partition) + b"state", USER + ENTRY, 0) is None
    for shard in (0, 1):
        made.write_meta(shard, b"genesis")
        assert made.write_shard(shard, b"", vector(shard), *ROWS, {}, whole=True) is None
    yield made
    made.wipe()
    made.close()


@pytest.fixture
def marked(server: StoreServer, store: Store) -> Iterator[MarkedStore]:
    """The same store as a rebase sees it, marked."""
    made = MarkedStore(Address(server.url), store.keys.model, SHARDS, PARTITIONS)
    for shard in range(SHARDS):
        seen = made.standing(shard)
        assert made.swap(shard, seen, seen.marked("topic"))
    yield made
    made.close()


def fence(number: int) -> bytes:
    return Fence(9, number, 10 * number, 7).pack()


def vector(number: int) -> bytes:
    return fence(number) * PARTITIONS


def calls(store: Store) -> Iterator[Callable[[], object]]:
    """All that a trainer does with a store that it believes to be as it was."""
    users = np.array([7], np.uint64)
    for partition in range(PARTITIONS):
        there = fence(partition) if partition in (0, 1, 3) else b""
        yield partial(store.read_head, partition)
        yield partial(store.read_users, partition, NONE)
        yield partial(store.read_ledgers, partition, users)
        yield partial(store.flush, partition, there, fence(9), USER, 0)
    for shard in range(SHARDS):
        there = vector(shard) if shard < 2 else b""
        yield partial(store.read_shard, shard)
        yield partial(store.read_vector, shard)
        for whole in (False, True):
            yield partial(store.write_shard, shard, there, vector(9), *ROWS, {}, whole=whole)


def test_a_mark_fails_every_write_and_every_fenced_read(server: StoreServer, store: Store, marked: MarkedStore) -> None:
    before = contents(server, store.keys.model)
    for call in calls(store):
        with pytest.raises(RefusedError, match=r"shard \d of the store is between two logs") as caught:
            call()
        assert "saros rebase" in caught.value.hint
    assert contents(server, store.keys.model) == before


def test_what_is_marked_is_still_there_and_comes_back(server: StoreServer, store: Store, marked: MarkedStore) -> None:
    seen = [marked.standing(shard) for shard in range(SHARDS)]
    assert all(standing.is_marked and standing.is_marked_for("topic") for standing in seen)
    assert not any(standing.is_marked_for("another") for standing in seen)
    assert [standing.bare() for standing in seen] == [
        Standing(b"genesis", vector(0), (fence(0) + b"state", fence(3) + b"state")),
        Standing(b"genesis", vector(1), (fence(1) + b"state", b"")),
        Standing(b"", b"", (b"",)),
    ]
    again = seen[0].marked("another")
    assert (again.bare(), again.is_marked_for("another")) == (seen[0].bare(), True), "one mark, not two"
    bare = Standing(b"new", vector(0), (fence(0), fence(3)))
    assert marked.swap(0, seen[0], bare)
    assert store.read_head(3) == fence(3)
    assert store.read_meta(0) == b"new"
    assert store.read_users(0, np.array([7], np.uint64)) == (fence(0), [b"abc"])


def test_a_shard_is_changed_only_as_it_was_seen(server: StoreServer, marked: MarkedStore) -> None:
    before, seen = contents(server, marked.keys.model), marked.standing(0)
    other = Standing(b"new", b"new", (b"new", b"new"))
    for k, wrong in enumerate((seen._replace(meta=b""), seen._replace(vector=vector(0)),
                               seen._replace(heads=(seen.heads[0], b"")), seen.marked("topic"))):  # fmt: skip
        assert not marked.swap(0, wrong, other), k
    assert contents(server, marked.keys.model) == before


def test_ledgers_are_cleared_under_the_mark_that_was_seen(marked: MarkedStore) -> None:
    head, key = marked.read_head(3), np.array([7], np.uint64)
    assert marked.read_ledgers(3, key) == (head[:FENCE_BYTES], [{2: b"\1\1x"}])
    after = mark_for("topic") + head[FENCE_BYTES:]
    drop = drop_operations({7: [2]})
    assert marked.flush(3, mark_for("topic"), after, drop, 0) == head[:FENCE_BYTES], "each mark is its own"
    assert marked.flush(3, head[:FENCE_BYTES], after, drop, 0) is None
    assert marked.read_ledgers(3, key) == (after[:FENCE_BYTES], [{}])
    assert marked.standing(0).bare().heads[1] == fence(3) + b"state"


def test_what_is_settled_survives_a_crash(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path / "store") as server:
        store = MarkedStore(Address(server.address), "m", SHARDS, PARTITIONS)
        seen = store.standing(1)
        assert store.swap(1, seen, seen.marked("topic"))
        assert store.settle() == ""
        server.kill()
        server.restart()
        assert store.standing(1).is_marked_for("topic")
        store.close()


def test_every_server_of_a_cluster_settles(store_cluster: StoreServer, model_name: str) -> None:
    store = MarkedStore(Address(store_cluster.url), model_name, 16, PARTITIONS)
    before = [waits(url) for url in store_cluster.urls]
    assert store.settle() == ""
    assert [waits(url) - old for url, old in zip(store_cluster.urls, before, strict=True)] == [1, 1, 1]
    store.wipe()
    store.close()


def waits(url: str) -> int:
    with connect(url) as client:
        return int(client.info("commandstats").get("cmdstat_waitaof", {"calls": 0})["calls"])


def test_where_nobody_can_tell_the_reason_is_said(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path / "store", {"appendonly": "no"}) as server:
        store = MarkedStore(Address(server.address), "m", SHARDS, PARTITIONS)
        assert "appendonly is disabled" in store.settle()
        store.close()


def test_a_store_that_is_away_is_no_reason(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path / "store") as server:
        proxy = Proxy(server.address)
        store = MarkedStore(Address(f"redis://127.0.0.1:{proxy.port}", retries=1), "m", SHARDS, PARTITIONS)
        proxy.cuts = 10**9
        with pytest.raises(StoreError, match="the store does not answer"):
            store.settle()
        store.close()
        proxy.close()
