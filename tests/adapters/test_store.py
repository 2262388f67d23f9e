"""The store adapter against real servers, one and a cluster: what is written is there with its fence or not at all."""

import asyncio
import itertools
import re
import shutil
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saros.adapters.redis import Address, EmbeddedStore, Keys, Shard, Store, UserReads, Users, check_server
from saros.adapters.redis.checks import judge
from saros.core.jit import U64
from saros.errors import InputError, RefusedError, StoreError
from tests.store import Proxy, StoreServer, connect, contents

SHARDS = 5
WIDTH = 364
# Bytes that mean something to a pattern, to the protocol, or to a name.
ODD = [int.from_bytes(raw, "little") for raw in (b"\0" * 8, b"\xff" * 8, b"}*?[]\\{:", b"\r\n$8\r\n\0\n", b":u:3:*}{")]


@pytest.fixture
def store(server: StoreServer, model_name: str) -> Iterator[Store]:
    made = Store(Address(server.url), model_name, SHARDS)
    yield made
    made.wipe()
    made.close()


@pytest.fixture
def held(server: StoreServer, model_name: str) -> Callable[[], dict[bytes, Any]]:
    """All that the store holds of this test's model."""
    return lambda: contents(server, model_name)


def fence(number: int) -> bytes:
    return struct.pack("<QqqQ", 9, number, 10 * number, 7 * number)


def u64(*keys: int) -> U64:
    return np.array(keys, np.uint64)


def put(user: int, value: bytes) -> bytes:
    return struct.pack("<BQI", 1, user, len(value)) + value


def enter(user: int, number: int, entry: bytes) -> bytes:
    return struct.pack("<BQiI", 2, user, number, len(entry)) + entry


def strike(user: int, number: int) -> bytes:
    return struct.pack("<BQi", 3, user, number)


def clear(user: int) -> bytes:
    return struct.pack("<BQ", 4, user)


def erase(user: int) -> bytes:
    return struct.pack("<BQ", 5, user)


def keep(user: int, value: bytes) -> bytes:
    return struct.pack("<BQI", 6, user, len(value)) + value


def rows(count: int, seed: int = 0) -> tuple[U64, Any]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**64, count, np.uint64), rng.integers(0, 256, (count, WIDTH), np.uint8)


def same(one: Shard, keys: U64, values: Any) -> bool:
    """Are these the rows, in any order?"""
    order, wanted = np.argsort(one.keys), np.argsort(keys)
    return np.array_equal(one.keys[order], keys[wanted]) and np.array_equal(one.values[order], values[wanted])


def test_names_are_those_of_the_design() -> None:
    keys = Keys("saros", 16)
    assert [keys.meta(7), keys.items(7), keys.names(7), keys.vector(7)] == [
        b"{saros:7}:meta", b"{saros:7}:item", b"{saros:7}:name", b"{saros:7}:ivec",
    ]  # fmt: skip
    assert [keys.head(23), keys.users(23), keys.ledgers(23), keys.seen(23)] == [
        b"{saros:7}:pf:23", b"{saros:7}:u:23:", b"{saros:7}:l:23:", b"{saros:7}:s:23:",
    ]  # fmt: skip
    assert keys.shards_of(u64(0, 17, 2**64 - 1)).tolist() == [0, 1, 15]


def test_the_first_genesis_stays(store: Store) -> None:
    for shard in range(SHARDS):
        assert store.read_meta(shard) is None
        assert store.write_meta(shard, b"first") == b"first"
        assert store.write_meta(shard, b"second") == b"first"
        assert store.read_meta(shard) == b"first"


def test_a_shard_is_read_as_it_was_written(store: Store) -> None:
    for shard in range(SHARDS):
        empty = store.read_shard(shard)
        assert (empty.vector, empty.keys.shape, empty.values.shape, empty.names) == (b"", (0,), (0, 0), {})
        keys, values = rows(2500, shard)
        keys[: len(ODD)] = ODD
        names = {int(key): b"item %d \xff\0" % key for key in keys[:1500]} | {ODD[0]: b""}
        assert store.write_shard(shard, b"", b"one", keys, values, names, whole=False) is None
        found = store.read_shard(shard)
        assert (found.vector, found.names) == (b"one", names)
        assert (found.keys.dtype.str, found.values.dtype.str) == ("<u8", "|u1")
        assert found.values.flags.c_contiguous
        assert found.values.flags.writeable
        assert same(found, keys, values)
        assert store.read_vector(shard) == b"one"


def test_rows_are_written_over_and_a_whole_shard_replaces_all(store: Store) -> None:
    keys, values = rows(10)
    names = {int(keys[0]): b"old", int(keys[9]): b"gone"}
    assert store.write_shard(3, b"", b"one", keys, values, names, whole=True) is None
    values[:4] += 1
    assert store.write_shard(3, b"one", b"two", keys[:4], values[:4], {int(keys[0]): b"new"}, whole=False) is None
    found = store.read_shard(3)
    assert same(found, keys, values)
    assert found.names == {int(keys[0]): b"new", int(keys[9]): b"gone"}
    assert store.write_shard(3, b"two", b"three", keys[:2], values[:2], {int(keys[1]): b"b"}, whole=True) is None
    found = store.read_shard(3)
    assert same(found, keys[:2], values[:2])
    assert (found.vector, found.names) == (b"three", {int(keys[1]): b"b"})
    assert store.write_shard(3, b"three", b"four", u64(), np.empty((0, WIDTH), np.uint8), {}, whole=True) is None
    assert store.read_shard(3).keys.shape == (0,)


def test_items_are_not_written_over_another_vector(store: Store, held: Callable[[], dict[bytes, Any]]) -> None:
    keys, values = rows(10)
    assert store.write_shard(1, b"one", b"two", keys, values, {}, whole=True) == b""
    assert held() == {}
    store.write_shard(1, b"", b"one", keys, values, {5: b"five"}, whole=False)
    before = held()
    assert len(before) == 3
    for expected in (b"", b"on", b"one ", b"two"):
        for whole in (False, True):
            assert store.write_shard(1, expected, b"new", keys, values + 1, {5: b"six"}, whole=whole) == b"one"
    assert held() == before


def test_rows_of_different_lengths_are_told(store: Store) -> None:
    keys, values = rows(2)
    store.write_shard(0, b"", b"one", keys[:1], values[:1], {}, whole=False)
    store.write_shard(0, b"one", b"two", keys[1:], values[1:, 1:], {}, whole=False)
    with pytest.raises(StoreError, match=r"shard 0 holds rows of different lengths: \[363, 364\] bytes"):
        store.read_shard(0)


def test_users_and_ledgers_are_read_as_they_were_flushed_with_their_fence(store: Store) -> None:
    for partition in (0, 3, 7, 12):
        users = [*ODD, *range(1000 * partition, 1000 * partition + 1000)]
        assert store.read_users(partition, u64(*users[:2])) == Users(b"", [None, None])
        assert (store.read_head(partition), store.read_ledgers(partition, u64()).fence) == (b"", b"")
        operations = b"".join(put(user, b"\0%d" % user) + enter(user, -user % 99, b"e%d" % user) for user in users)
        assert store.flush(partition, b"", fence(1) + b"state", operations, 0) is None
        assert store.read_head(partition) == fence(1) + b"state"
        found = store.read_users(partition, u64(*users, 77777))
        assert found == (fence(1), [b"\0%d" % user for user in users] + [None])
        ledgers = store.read_ledgers(partition, u64(*users, 77777))
        assert ledgers == (fence(1), [{-user % 99: b"e%d" % user} for user in users] + [{}])
        assert store.read_users(partition, u64()) == Users(fence(1), [])


def test_each_operation_does_its_own(store: Store, held: Callable[[], dict[bytes, Any]]) -> None:
    head, users, ledgers, seen = (
        getattr(store.keys, name)(7) for name in ("head", "users", "ledgers", "seen")
    )  # fmt: skip
    one, two, three = (struct.pack("<Q", user) for user in (1, 2, 3))
    for user in (one, two):
        store._client._redis.rpush(seen + user, b"x")
    first = b"".join(
        [enter(3, -1, b"last"), enter(3, 2**31 - 1, b"first"), *(put(k, b"v") + enter(k, 0, b"e") for k in (1, 2))]
    )
    assert store.flush(7, b"", fence(1), first, 0) is None
    assert store.flush(7, fence(1), fence(2) + b"s", strike(3, -1) + clear(1) + erase(2) + strike(9, 9), 0) is None
    found = held()
    assert found == {
        seen + one: (b"list", False),
        head: (fence(2) + b"s", False),
        users + one: (b"v", False),
        ledgers + three: ({struct.pack("<i", 2**31 - 1): b"first"}, False),
    }
    assert store.flush(7, fence(2), fence(3), put(1, b"w") + put(1, b"x") + erase(3) + enter(3, 4, b"n"), 0) is None
    assert store.read_users(7, u64(1)) == (fence(3), [b"x"]), "in order"
    assert store.read_ledgers(7, u64(1, 2, 3)) == (fence(3), [{}, {}, {4: b"n"}])
    assert store.read_head(7) == fence(3)


def test_users_are_not_flushed_over_another_fence(store: Store, held: Callable[[], dict[bytes, Any]]) -> None:
    assert store.flush(2, fence(1), fence(2), put(1, b"v"), 0) == b""
    assert held() == {}
    store.flush(2, b"", fence(1) + b"state", put(1, b"v") + enter(1, 1, b"e"), 0)
    before = held()
    for expected in (b"", fence(0), fence(2)):
        assert store.flush(2, expected, fence(3), put(1, b"w") + enter(1, 2, b"f") + erase(2), 9) == fence(1)
    assert store.flush(3, fence(1), fence(2), put(1, b"v"), 0) == b"", "each partition has its own"
    assert held() == before


MALFORMED = {
    "code 0": b"\0" + bytes(40),
    "code 7": b"\7" + bytes(40),
    "a user kept with no flags": struct.pack("<BQI", 6, 2, 0),
    "no user": b"\5" + bytes(7),
    "no number": b"\3" + bytes(11),
    "no length": b"\1" + bytes(11),
    "no entry's length": b"\2" + bytes(15),
    "a value too short": put(2, b"value")[:-1],
    "a length of 4 GB": struct.pack("<BQI", 1, 2, 2**32 - 1),
    "bytes behind": clear(2) + b"\1",
}


@pytest.mark.parametrize("wrong", MALFORMED)
def test_malformed_operations_are_refused_before_anything_is_written(
    store: Store, held: Callable[[], dict[bytes, Any]], wrong: str
) -> None:
    store.flush(2, b"", fence(1), put(1, b"v") + enter(1, 1, b"e"), 0)
    before = held()
    with pytest.raises(StoreError, match=r"the store refuses: malformed operation at byte (9|18)"):
        store.flush(2, fence(1), fence(2), erase(1) + MALFORMED[wrong], 0)
    assert held() == before


@pytest.mark.parametrize(
    ("expected", "head", "ttl_s", "text"),
    [
        (fence(1)[1:], fence(2), 0, "a fence has 32 bytes"),
        (fence(1), fence(2)[1:], 0, "a fence has 32 bytes"),
        (fence(1), fence(2), -1, "no number of seconds"),
        (fence(1), fence(2), 10**9, "no number of seconds"),
    ],
)
def test_a_wrong_call_is_refused(
    store: Store, held: Callable[[], dict[bytes, Any]], expected: bytes, head: bytes, ttl_s: int, text: str
) -> None:
    store.flush(2, b"", fence(1), put(1, b"v"), 0)
    before = held()
    with pytest.raises(StoreError, match=text):
        store.flush(2, expected, head, erase(1), ttl_s)
    assert held() == before


@pytest.mark.parametrize(
    ("width", "items", "rows", "names", "text"),
    [
        (4, bytes(7), bytes(4), b"", "malformed rows"),
        (4, bytes(8), bytes(3), b"", "malformed rows"),
        (4, bytes(16), bytes(4), b"", "malformed rows"),
        (-1, bytes(16), b"", b"", "malformed rows"),
        ("x", b"", b"", b"", "malformed rows"),
        (4, bytes(8), bytes(4), bytes(11), "malformed name at byte 0"),
        (4, bytes(8), bytes(4), bytes(12) + struct.pack("<QI", 1, 3) + b"ab", "malformed name at byte 12"),
    ],
)
def test_malformed_items_are_refused_before_anything_is_written(
    store: Store, held: Callable[[], dict[bytes, Any]], width: object, items: bytes, rows: bytes, names: bytes,
    text: str,
) -> None:  # fmt: skip
    """`write_shard` makes none of them; the script does not rely on that."""
    store.write_shard(1, b"", b"one", u64(1), np.ones((1, 4), np.uint8), {1: b"a"}, whole=False)
    before, keys = held(), store.keys
    with pytest.raises(StoreError, match=text):
        store._write_items(
            [keys.vector(1), keys.items(1), keys.names(1)], [b"one", b"two", 1, width, items, rows, names]
        )  # fmt: skip
    with pytest.raises(StoreError, match="no vector"):
        store.write_shard(1, b"one", b"", u64(), np.ones((0, 4), np.uint8), {}, whole=True)
    assert held() == before


def test_a_row_that_did_not_change_stays(store: Store) -> None:
    row = struct.pack("<H", 8) + b"row \0row"
    assert store.flush(1, b"", fence(1), put(1, b"\1" + row + b"state") + put(3, b"x"), 0) is None
    assert store.flush(1, fence(1), fence(2), keep(1, b"\0new") + keep(2, b"\1first") + keep(3, b"\1odd"), 0) is None
    values = [b"\0" + row + b"new", b"\1\0\0first", b"\1\0\0odd"]
    assert store.read_users(1, u64(1, 2, 3)) == (fence(2), values)
    assert store.flush(1, fence(2), fence(3), keep(1, b"\1"), 60) is None
    assert store.read_users(1, u64(1)).values == [b"\1" + row]


def naive(operations: list[tuple[Any, ...]]) -> tuple[dict[int, bytes], dict[int, dict[int, bytes]]]:
    """Users and ledgers after these operations."""
    users: dict[int, bytes] = {}
    ledgers: dict[int, dict[int, bytes]] = {}
    for do, user, *rest in operations:
        if do is put:
            users[user] = rest[0]
        elif do is keep:
            before = users.get(user, b"")
            row = before[1 : 3 + int.from_bytes(before[1:3], "little")] if len(before) > 2 else bytes(2)
            users[user] = rest[0][:1] + row + rest[0][1:]
        elif do is enter:
            ledgers.setdefault(user, {})[rest[0]] = rest[1]
        elif do is strike:
            ledgers.get(user, {}).pop(rest[0], None)
        else:
            ledgers.pop(user, None)
            if do is erase:
                users.pop(user, None)
    return users, ledgers


_USER, _NUMBER, _VALUE = st.integers(0, 3), st.integers(-2, 2), st.binary(max_size=20)
_OPERATION = st.one_of(
    st.tuples(st.just(put), _USER, _VALUE),
    st.tuples(st.just(put), _USER, st.binary(min_size=5, max_size=20).map(lambda raw: raw[:1] + b"\2\0" + raw[1:])),
    st.tuples(st.just(keep), _USER, st.binary(min_size=1, max_size=20)),
    st.tuples(st.just(enter), _USER, _NUMBER, _VALUE),
    st.tuples(st.just(strike), _USER, _NUMBER),
    st.tuples(st.sampled_from([clear, erase]), _USER),
)
_partitions = itertools.count()


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_OPERATION, max_size=12), st.integers(0, 400), st.sampled_from([0, 1000]))
def test_operations_are_those_of_the_oracle_and_a_part_of_them_is_refused(
    store: Store, operations: list[tuple[Any, ...]], cut: int, ttl_s: int
) -> None:
    partition = next(_partitions)
    parts = [do(*arguments) for do, *arguments in operations]
    blob, ends = b"".join(parts), {0, *itertools.accumulate(map(len, parts))}
    if cut < len(blob) and cut not in ends:
        with pytest.raises(StoreError, match="malformed"):
            store.flush(partition, b"", fence(1), blob[:cut], ttl_s)
        assert store.read_users(partition, u64(0, 1, 2, 3)) == Users(b"", [None] * 4)
    assert store.flush(partition, b"", fence(1), blob, ttl_s) is None
    users, ledgers = naive(operations)
    assert store.read_users(partition, u64(*range(4))) == (fence(1), [users.get(k) for k in range(4)])
    assert store.read_ledgers(partition, u64(*range(4))) == (fence(1), [ledgers.get(k, {}) for k in range(4)])


def test_users_expire_and_ledgers_with_them(store: Store, held: Callable[[], dict[bytes, Any]]) -> None:
    def expiring() -> list[bytes]:
        names = {store.keys.users(4): b"u", store.keys.ledgers(4): b"l"}
        return sorted(names[key[:-8]] + key[-8:-7] for key, (_, expires) in held().items() if expires)

    store.flush(4, b"", fence(1), put(65, b"v") + enter(65, 1, b"e") + enter(66, 1, b"e") + put(67, b"v"), 0)
    assert expiring() == []
    store.flush(4, fence(1), fence(2), put(65, b"v") + put(67, b"v"), 1000)
    assert expiring() == [b"lA", b"uA", b"uC"], "a user that is set takes its ledger with it"
    store.flush(4, fence(2), fence(3), enter(66, 2, b"e") + keep(67, b"s"), 1000)
    assert expiring() == [b"lA", b"lB", b"uA", b"uC"], "and so does an entry"
    store.flush(4, fence(3), fence(4), put(65, b"v") + enter(66, 3, b"e"), 0)
    assert expiring() == [b"uC"]
    store.flush(4, fence(4), fence(5), put(65, b"v") + enter(65, 2, b"e"), 1)
    until = time.monotonic() + 10
    while store.read_users(4, u64(65)).values != [None] or store.read_ledgers(4, u64(65)).entries != [{}]:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert store.read_head(4) == fence(5), "a fence never expires"


def test_large_values(store: Store) -> None:
    entries = {number: bytes([number % 256]) * 391 for number in range(1340)}
    operations = b"".join(enter(1, *entry) for entry in entries.items()) + enter(2, 0, b"x" * 524_288)
    state = np.random.default_rng(0).bytes(100_000)
    assert store.flush(6, b"", fence(1) + state, operations + put(3, b"y" * 524_288), 60) is None
    assert store.read_ledgers(6, u64(1, 2)) == (fence(1), [entries, {0: b"x" * 524_288}])
    assert store.read_users(6, u64(3)) == (fence(1), [b"y" * 524_288])
    assert store.read_head(6) == fence(1) + state


def test_all_users_of_a_partition_are_found(store: Store) -> None:
    users = {partition: {*ODD, *range(partition, 4000, 7)} for partition in (1, 11, 6)}
    for partition, keys in users.items():
        operations = b"".join(put(key, b"v") + (enter(key, 0, b"e") if key % 2 else b"") for key in keys)
        store.flush(partition, b"", fence(1), operations, 0)
    for partition, keys in users.items():
        chunks = list(store.users_of(partition))
        assert {chunk.dtype for chunk in chunks} == {np.dtype(np.uint64)}
        assert {int(key) for chunk in chunks for key in chunk} == keys
        assert {int(key) for chunk in store.ledger_keys(partition) for key in chunk} == {k for k in keys if k % 2}
    assert list(store.users_of(16)) == []


def test_a_wipe_removes_this_model_and_no_other(server: StoreServer, store: Store, model_name: str) -> None:
    other = Store(Address(server.url), model_name + "2", SHARDS)
    for each, shard in itertools.product((store, other), range(SHARDS)):
        each.write_meta(shard, b"genesis")
        each.write_shard(shard, b"", b"one", *rows(3), {1: b"a"}, whole=True)
        each.flush(shard, b"", fence(1), b"".join(put(k, b"v") + enter(k, 0, b"e") for k in range(30)), 0)
    assert len(contents(server, model_name)) == SHARDS * (4 + 1 + 60)
    store.wipe()
    assert contents(server, model_name) == {}
    assert len(contents(server, model_name + "2")) == SHARDS * (4 + 1 + 60)
    other.wipe()
    other.close()


def test_connections_that_the_server_closed_are_opened_again(server: StoreServer, store: Store) -> None:
    def cut() -> None:
        for url in server.urls:
            with connect(url) as client:
                client.execute_command("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes")

    keys, values = rows(3)
    for number, partition in enumerate(range(SHARDS)):
        cut()
        assert store.flush(partition, b"", fence(1), put(number, b"v"), 0) is None
        cut()
        assert store.read_users(partition, u64(number)).values == [b"v"]
        cut()
        assert store.write_shard(partition, b"", b"one", keys, values, {}, whole=True) is None
        cut()
        assert len(store.read_shard(partition).keys) == 3


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A server that a test may do anything to."""
    with EmbeddedStore(tmp_path / "store") as server:
        yield server


def test_a_call_that_was_cut_off_counts_once(lone: EmbeddedStore) -> None:
    proxy = Proxy(lone.address)
    store = Store(Address(f"redis://127.0.0.1:{proxy.port}"), "m", SHARDS)
    store.flush(0, b"", fence(1), put(1, b"v"), 0)
    store.write_shard(0, b"", b"one", *rows(3), {}, whole=True)
    with connect(lone.address) as client:
        client.config_resetstat()
        proxy.cuts = 1
        assert store.flush(0, fence(1), fence(2) + b"state", put(1, b"w") + enter(1, 1, b"e"), 0) is None
        proxy.cuts = 1
        assert store.write_shard(0, b"one", b"two", *rows(4), {}, whole=True) is None
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 4, "each was sent twice"
        assert client.info("commandstats")["cmdstat_hset"]["calls"] == 2, "and carried out once"
    assert store.read_users(0, u64(1)) == (fence(2), [b"w"])
    assert store.read_ledgers(0, u64(1)) == (fence(2), [{1: b"e"}])
    assert len(store.read_shard(0).keys) == 4
    proxy.cuts = 10**9
    with pytest.raises(StoreError, match="the store does not answer"):
        store.flush(0, fence(2), fence(3), b"", 0)
    proxy.cuts = 0
    assert store.flush(0, fence(2), fence(3), b"", 0) is None, "it was carried out, and the caller learns it now"
    store.close()
    proxy.close()


def test_what_was_on_the_disk_is_there_after_a_crash(lone: EmbeddedStore) -> None:
    store = Store(Address(lone.address, retries=0), "m", SHARDS)
    operations = b"".join(put(k, b"v%d" % k) + enter(k, 1, b"e") for k in range(500))
    store.flush(3, b"", fence(1), operations, 1000)
    store.write_shard(3, b"", b"one", *rows(50), {1: b"a"}, whole=True)
    before = contents(StoreServer("embedded", (lone.address,)), "m")
    with connect(lone.address) as client:
        assert client.execute_command("WAITAOF", 1, 0, 5000)[0] == 1
    lone.kill()
    with pytest.raises(StoreError, match=r"the store does not answer: .*connecting"):
        store.read_head(3)
    lone.restart()
    assert contents(StoreServer("embedded", (lone.address,)), "m") == before
    assert store.read_head(3) == fence(1), "the same client goes on"
    store.close()


def test_a_node_of_a_cluster_that_was_away_is_found_again(store_cluster: StoreServer, model_name: str) -> None:
    store = Store(Address(store_cluster.url, retries=10), model_name, SHARDS)
    for partition in range(SHARDS):
        store.flush(partition, b"", fence(1), put(1, b"v"), 0)
    store_cluster.nodes[0].restart()
    for partition in range(SHARDS):
        assert store.read_users(partition, u64(1)) == (fence(1), [b"v"])
    for partition in range(SHARDS):
        assert store.flush(partition, fence(1), fence(2), put(1, b"w"), 0) is None
    store.wipe()
    store.close()


def test_where_memory_is_full_nothing_is_written(lone: EmbeddedStore) -> None:
    store, all_of_it = Store(Address(lone.address), "m", SHARDS), StoreServer("embedded", (lone.address,))
    store.flush(0, b"", fence(1), put(1, b"v") + enter(1, 1, b"e"), 0)
    store.write_shard(0, b"", b"one", *rows(3), {1: b"a"}, whole=True)
    before = contents(all_of_it, "m")
    with connect(lone.address) as client:
        client.config_set("maxmemory", 1)
        # To remove is allowed when memory is full, and it comes first here.
        with pytest.raises(StoreError, match=r"the store refuses: .*maxmemory"):
            store.flush(0, fence(1), fence(2), clear(1) + put(1, b"w"), 0)
        with pytest.raises(StoreError, match=r"the store refuses: .*maxmemory"):
            store.write_shard(0, b"one", b"two", *rows(3), {}, whole=True)
        assert contents(all_of_it, "m") == before
        client.config_set("maxmemory", 0)
    assert store.flush(0, fence(1), fence(2), clear(1) + put(1, b"w"), 0) is None
    store.close()


def test_a_server_of_the_right_kind_passes(server: StoreServer, store: Store) -> None:
    if server.kind == "given":
        pytest.skip("the store was given, so it is as it is")
    assert check_server(store) == []
    assert len(store.server_info()) == len(server.urls)  # every node


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_is_refused(server: StoreServer, store: Store, policy: str) -> None:
    with connect(server.urls[-1]) as client:
        before = client.config_get("maxmemory-policy")["maxmemory-policy"]
        client.config_set("maxmemory-policy", policy)
        try:
            with pytest.raises(RefusedError, match=rf"throws keys away .*\(maxmemory-policy {policy}\)") as caught:
                check_server(store)
        finally:
            client.config_set("maxmemory-policy", before)
    assert "CONFIG SET maxmemory-policy noeviction" in caught.value.hint


def test_a_server_without_aof_is_warned_of(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path, {"appendonly": "no"}) as server:
        store = Store(Address(server.address), "m", SHARDS)
        assert check_server(store) == ["the store has AOF off: a restart loses what it holds; set appendonly yes"]
        store.close()


def test_versions_and_what_is_not_told() -> None:
    good = {"redis_version": "6.2.0", "maxmemory_policy": "noeviction", "aof_enabled": 1}
    assert judge("one", good) == []
    assert judge("one", good | {"redis_version": "10.0"}) == []
    for old in ("6.0.16", "5.2"):
        with pytest.raises(RefusedError, match=f"one is version {old}: use Redis 6.2 or newer, or Valkey"):
            judge("one", good | {"redis_version": old})
    assert judge("one", {}) == [
        "one does not tell its version, maxmemory-policy (it must be noeviction), whether AOF is on: not checked"
    ]
    assert judge("one", good | {"redis_version": "unstable"}) == ["one does not tell its version: not checked"]


def test_a_store_that_is_away_or_shut_is_told_without_the_password(lone: EmbeddedStore) -> None:
    def complaint(address: Address) -> str:
        with pytest.raises(StoreError) as caught:
            Store(address, "m", SHARDS)
        assert "hunter" not in f"{caught.value!r} {caught.value.__cause__!r} {address!r}"
        return str(caught.value)

    away = Address("redis://ann:hunter2@127.0.0.1:1/0", password="hunter2", retries=1)
    assert re.match(r"the store does not answer: Error \d+ connecting to 127\.0\.0\.1:1\.", complaint(away))
    with connect(lone.address) as client:
        client.config_set("requirepass", "hunter2")
    began = time.monotonic()
    assert complaint(Address(lone.address, retries=20)) == "the store does not let us in: Authentication required."
    for wrong in (Address(lone.address, password="hunter3"), Address(lone.address, "ann", "hunter2")):
        assert complaint(wrong).startswith("the store does not let us in: invalid username-password pair")
    assert time.monotonic() - began < 5, "it is not tried again"
    store = Store(Address(lone.address, password="hunter2"), "m", SHARDS)
    assert store.read_head(0) == b""
    with connect(lone.address + "?password=hunter2") as client:
        client.execute_command("ACL SETUSER", "ann", "on", ">hunter3", "~*", "+@all", "-evalsha")
    barred = Store(Address(lone.address, "ann", "hunter3"), "m", SHARDS)
    with pytest.raises(StoreError, match=r"the store refuses: .*no permissions to run the 'evalsha'"):
        barred.flush(0, b"", fence(1), b"", 0)
    for each in (store, barred):
        each.close()


@pytest.mark.parametrize(
    "url", ["", "hunter2", "http://:hunter2@host", "redis://ann:hunter2/x@host", "redis://h?x=hunter2"]
)
def test_a_url_that_is_not_understood_is_not_repeated(url: str) -> None:
    with pytest.raises(InputError, match="SAROS_REDIS__URL is not understood: give redis://host:6379") as caught:
        Store(Address(url), "m", SHARDS)
    assert "hunter" not in repr(caught.value)
    assert caught.value.__suppress_context__


def test_files_of_tls_are_looked_at_before_a_connection_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="SAROS_REDIS__CA_FILE is set, and SAROS_REDIS__URL is without TLS"):
        Store(Address("redis://127.0.0.1:1", ca_file=__file__), "m", SHARDS)
    with pytest.raises(InputError, match=r"SAROS_REDIS__KEY_FILE=.*absent is not a file"):
        Store(Address("rediss://127.0.0.1:1", key_file=str(tmp_path / "absent")), "m", SHARDS)


async def read_once(address: Address) -> dict[int, Users]:
    reads = UserReads(address, "m", SHARDS)
    try:
        return await reads.read({0: [(1).to_bytes(8, "little")]})
    finally:
        await reads.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, to make a certificate")
def test_tls_with_certificates_of_both_sides(lone: EmbeddedStore, tmp_path: Path) -> None:
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=saros"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*make, *names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(cert)
    context.verify_mode = ssl.CERT_REQUIRED
    proxy = Proxy(lone.address, context)
    good = Address(f"rediss://127.0.0.1:{proxy.port}", "", "", cert, cert, key, retries=0)
    store = Store(good, "m", SHARDS)
    assert store.flush(0, b"", fence(1), put(1, b"v"), 0) is None
    for run in (asyncio.run, uvloop.run):
        assert run(read_once(good)) == {0: Users(fence(1), [b"v"])}
    for wrong in (good._replace(ca_file=""), good._replace(cert_file="", key_file="")):
        with pytest.raises(StoreError, match=r"the store does not answer"):
            Store(wrong, "m", SHARDS)
    store.close()
    proxy.close()


def test_users_of_many_partitions_come_with_their_fences(store: Store) -> None:
    for partition in (1, 3, 7):
        written = put(partition, b"user %d" % partition) + put(99, b"of %d" % partition)
        assert store.flush(partition, b"", fence(partition) + b"state", written, 0) is None
    asked = {1: u64(1, 99, 5), 7: u64(7), 2: u64(1), 3: u64()}
    assert store.read_many(asked) == {
        1: Users(fence(1), [b"user 1", b"of 1", None]),
        7: Users(fence(7), [b"user 7"]),
        2: Users(b"", [None]),
        3: Users(fence(3), []),
    }
    assert store.read_many({}) == {}
