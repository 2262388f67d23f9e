"""Users read in an event loop: what `Store.read_many` reads, on one server and on a cluster, and what goes wrong."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
import uvloop

from saros.adapters.redis import Address, EmbeddedStore, Store, UserReads, Users
from saros.errors import RefusedError, StoreError
from tests.adapters.test_store import ODD, SHARDS, fence, put, u64
from tests.store import StoreServer, connect

TIMEOUT_S = 0.5


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store that a test may stop."""
    with EmbeddedStore(tmp_path / "store") as server:
        yield server


def keys_of(*keys: int) -> list[bytes]:
    return [key.to_bytes(8, "little") for key in keys]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_what_is_read_is_what_the_store_reads(server: StoreServer, model_name: str, run: object) -> None:
    store = Store(Address(server.url), model_name, SHARDS)
    for partition in (1, 3, 7):
        written = b"".join(put(key, bytes([partition]) * 700) for key in (partition, *ODD))
        assert store.flush(partition, b"", fence(partition) + b"state", written, 0) is None
    asked = {1: [1, 5, *ODD], 7: [7], 2: [1], 3: []}

    async def work() -> None:
        reads = UserReads(Address(server.url), model_name, SHARDS)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(reads.close)
            wanted = {partition: keys_of(*keys) for partition, keys in asked.items()}
            expected = store.read_many({partition: u64(*keys) for partition, keys in asked.items()})
            assert expected[7] == Users(fence(7), [b"\7" * 700])
            # Several at once: each gets its own.
            found = await asyncio.gather(*(reads.read(wanted) for _ in range(5)), reads.read({7: keys_of(7, 9)}))
            assert found[:5] == [expected] * 5
            assert found[5] == {7: Users(fence(7), [b"\7" * 700, None])}
            assert await reads.read({}) == {}
            many = np.random.default_rng(0).integers(0, 2**63, 3000).tolist()
            assert (await reads.read({1: keys_of(*many, 1)}))[1].values[-1] == b"\1" * 700

    try:
        run(work())  # type: ignore[operator]
    finally:
        store.wipe()
        store.close()


def test_a_store_that_goes_away_is_told_and_found_again(own_store: EmbeddedStore) -> None:
    store = Store(Address(own_store.address), "m", SHARDS)
    assert store.flush(0, b"", fence(1), put(1, b"v"), 0) is None
    good = {0: Users(fence(1), [b"v"])}

    async def work() -> None:
        reads = UserReads(Address(own_store.address, timeout_s=TIMEOUT_S, retries=0), "m", SHARDS)
        wanted = {0: keys_of(1)}
        assert await reads.read(wanted) == good
        own_store.kill()
        for _ in range(3):
            with pytest.raises(StoreError, match="the store does not answer"):
                await reads.read(wanted)
        await asyncio.to_thread(own_store.restart)
        assert await reads.read(wanted) == good
        # It hangs: whoever waits is told in time, and answers that come late are nobody's.
        os.kill(own_store.pid, signal.SIGSTOP)
        begun_s = asyncio.get_running_loop().time()
        late = await asyncio.gather(*(reads.read({0: keys_of(k)}) for k in range(3)), return_exceptions=True)
        assert all(isinstance(each, StoreError) for each in late), late
        assert asyncio.get_running_loop().time() - begun_s < 5 * TIMEOUT_S
        os.kill(own_store.pid, signal.SIGCONT)
        assert await reads.read(wanted) == good
        await reads.close()

    asyncio.run(work())
    store.close()


def test_what_the_store_refuses_is_an_error_of_ours(own_store: EmbeddedStore) -> None:
    async def work() -> None:
        with connect(own_store.address) as client:
            client.hset("{m:0}:pf:0", "not", "text")
            client.set("{m:1}:pf:1", bytes(32))
        reads = UserReads(Address(own_store.address, timeout_s=TIMEOUT_S, retries=0), "m", SHARDS)
        with pytest.raises(StoreError, match="the store refuses: WRONGTYPE"):
            await reads.read({0: keys_of(1)})
        with pytest.raises(RefusedError, match="between two logs"):
            await reads.read({1: keys_of(1)})
        assert await reads.read({2: keys_of(1)}) == {2: Users(b"", [None])}, "the connection is as good as before"
        with connect(own_store.address) as client:
            client.config_set("requirepass", "hunter2")
        await reads.close()
        shut = UserReads(Address(own_store.address, timeout_s=TIMEOUT_S, retries=0), "m", SHARDS)
        with pytest.raises(StoreError, match="the store does not let us in"):
            await shut.read({2: keys_of(1)})
        await shut.close()
        let_in = UserReads(Address(own_store.address, password="hunter2"), "m", SHARDS)
        assert await let_in.read({2: keys_of(1)}) == {2: Users(b"", [None])}
        await let_in.close()

    asyncio.run(work())
