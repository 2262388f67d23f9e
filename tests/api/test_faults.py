"""Serving while things go wrong: the store lags, is away or falls back, the log is trimmed or made anew."""

import asyncio
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from math import nan
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client import REGISTRY

from saros.adapters.kafka import Admin
from saros.adapters.redis import EmbeddedStore
from saros.adapters.redo import Message, RedoLog
from saros.adapters.shards import boot
from saros.api.model import Answer, Wish
from saros.api.model import Model as Served
from saros.api.observe import API_BOOTS
from saros.api.shelf import Shelf
from saros.core.catalogue import Catalogue
from saros.core.ids import hash_texts
from saros.core.items import Items
from saros.core.jit import I32
from saros.core.topk import top_k
from saros.redo.fence import FENCE_BYTES
from saros.redo.replica import Replica
from saros.wire.v1.events_pb2 import Event, ItemUpsert
from tests.api.runs import PATIENCE_S, Sender, plan_of, reached, run, serving, trim_all, until, written
from tests.api.test_end_to_end import started
from tests.broker import Broker
from tests.store import connect
from tests.trainer.copies import rows_of
from tests.trainer.runs import PARTITIONS, SAROS, Model, await_until, running


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store that a test may stop."""
    with EmbeddedStore(tmp_path / "store") as server:
        yield server


@pytest.fixture
def trained(real_broker: Broker, own_store: EmbeddedStore, model_name: str, tmp_path: Path) -> Model:
    return Model(model_name, real_broker.address, own_store.address, tmp_path)


def sample(name: str, **labels: str) -> float:
    """Return what a metric says."""
    found = REGISTRY.get_sample_value(name, labels)
    return nan if found is None else found


def replayed(trained: Model) -> Replica:
    """Return what the log makes of nothing."""
    topic = Admin(trained.cluster).find(trained.topics.redo)
    assert topic is not None
    redo = RedoLog(trained.cluster, topic)
    genesis = redo.genesis()
    assert genesis is not None
    replica = Replica(genesis, Items(genesis.rows, 5000))
    for partition in range(PARTITIONS):
        for fence, record in redo.accepted(partition, genesis.start(partition), redo.end(partition)):
            replica.fold(partition, fence.offset, record)
            replica.fences[partition] = fence
    redo.close()
    return replica


def test_booted_while_three_trainers_work_it_equals_a_replay(trained: Model) -> None:
    async def work() -> None:
        trained.send(400)
        with running([trained.trainer() for _ in range(3)]):
            await asyncio.sleep(0)
            async with serving(trained, ready=False) as early:
                await until(lambda: not early.why_not_ready(), trained.logs, 2 * PATIENCE_S)
                for seed in range(4):
                    await asyncio.to_thread(trained.send, 400, seed)
                async with serving(trained) as late:
                    for model in (early, late):
                        await asyncio.to_thread(trained.send, 200)
                        await reached(model, trained)
                    await reached(early, trained)
                    await compare([early, late])

    async def compare(models: list[Served]) -> None:
        replica = await asyncio.to_thread(replayed, trained)
        for model in models:
            world = model._world
            assert world is not None
            assert [fence.next for fence in replica.fences] == world.reached
            assert rows_of(world.replica.items) == rows_of(replica.items)
            assert world.replica.items.arrays.totals.tolist() == replica.items.arrays.totals.tolist()
            assert world.replica.names == replica.names
            # The p0 in force is that of when priors were last made anew: both make them now.
            catalogue, own = Catalogue(replica.items, 4.0), world.shelf.catalogue
            catalogue.refresh(replica.items.table.slots())
            assert own.rebuild(10_000)
            for row in np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32):
                theirs, ours = top_k(catalogue, row, 10), top_k(own, row, 10)
                assert catalogue.keys[theirs.slots].tolist() == own.keys[ours.slots].tolist()
                assert theirs.scores.tobytes() == ours.scores.tobytes()
            fresh = Catalogue(world.replica.items, 4.0)
            fresh.refresh(world.replica.items.table.slots())
            for name in ("codes", "scale", "err", "norm", "inverse", "known"):
                assert np.array_equal(getattr(fresh.arrays, name), getattr(world.shelf.catalogue.arrays, name)), name

    run(work())


async def asked_all_along(model: Served, wishes: list[Wish], stop: asyncio.Event) -> list[Answer]:
    """Ask again and again; an error ends it."""
    answers = []
    while not stop.is_set():
        answers += await model.recommend(wishes)
        await asyncio.sleep(0.005)
    return answers


def test_the_store_is_stopped_and_started_under_load(trained: Model, own_store: EmbeddedStore) -> None:
    async def work() -> None:
        trained.send(300)
        await asyncio.to_thread(trained.drain)
        users = [Wish(f"user-{k}", k=5) for k in range(30)] + [Wish("nobody"), Wish(session=(("item/1", True),))]
        async with serving(trained) as model:
            (warm,), stop = await model.recommend(users[:1]), asyncio.Event()
            load = asyncio.create_task(asked_all_along(model, users, stop))
            errors = sample("saros_api_store_errors_total")
            own_store.kill()
            await until(lambda: model.stats()["stale"])
            await until(lambda: sample("saros_api_stale", because="store") == 1)
            (away, stranger, guest) = await model.recommend([users[0], Wish("user-59"), users[-1]])
            assert away == warm._replace(stale=True), "from memory"
            assert (stranger.source, stranger.user_state, stranger.stale) == ("popular", "cold", True)
            assert stranger.items
            assert (guest.source, guest.stale) == ("session", False), "a guest needs no store"
            assert not model.why_not_ready()
            await asyncio.to_thread(own_store.restart)
            await until(lambda: not model.stats()["stale"])
            await until(lambda: sample("saros_api_stale", because="store") == 0)
            assert sample("saros_api_store_errors_total") > errors
            (back,) = await model.recommend(users[:1])
            assert back == warm
            stop.set()
            answers = await load
            assert {answer.stale for answer in answers} == {True, False}
            assert all(answer.items for answer in answers)

    run(work())


# More than the 4,096 that are kept in memory at least.
CROWD = 4500


def asked_over_http(url: str, worker: int, stop: threading.Event, found: list[tuple[str, int, bool]]) -> None:
    """Ask for lists in all ways, of users that have no room in memory together; note status and whether it is stale."""
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        for k in count(20 * worker):
            if stop.is_set():
                return
            user, others = f"user-{k % 60}", [f"user-{(100 * k + n) % CROWD}" for n in range(100)]
            ranked = {"user_id": user, "candidates": ["item/1", "item/2", "nobody knows it"]}
            for what, answer in (
                ("get", client.get(f"/v1/users/{user}/recommendations?k=5")),
                ("post", client.post("/v1/recommendations", json={"users": others, "k": 5})),
                ("rank", client.post("/v1/rank", json=ranked)),
            ):
                told = answer.json()
                results = told.get("results", [told])
                found.append((what, answer.status_code, any(one.get("stale") for one in results)))


def test_the_store_is_stopped_and_started_under_load_over_http(trained: Model, own_store: EmbeddedStore) -> None:
    trained.send(300)
    trained.drain()
    found, stop = list[tuple[str, int, bool]](), threading.Event()

    def ways(since: int, stale: bool) -> set[str]:
        return {what for what, _, was_stale in found[since:] if was_stale is stale}

    def await_answers(more: int) -> None:
        until = len(found) + more
        await_until(lambda: len(found) >= until, PATIENCE_S, api.words)

    def await_stale() -> None:
        since = len(found)
        await_until(lambda: ways(since, True) == {"get", "post", "rank"}, PATIENCE_S, api.words)

    with started(trained, SAROS_API__CACHE_USERS="8") as api, ThreadPoolExecutor(3) as pool:
        api.await_ready()
        asking = [pool.submit(asked_over_http, str(api.client.base_url), worker, stop, found) for worker in range(3)]
        try:
            await_until(lambda: api.client.get("/v1/stats").json()["users_in_memory"] == 4096, PATIENCE_S, api.words)
            await_answers(200)
            assert ways(0, True) == set()
            for _ in range(2):
                own_store.kill()
                await_stale()
                await_answers(100)
                assert api.client.get("/readyz").status_code == 200, "it answers from memory"
                own_store.restart()
                await_until(lambda: not ways(len(found) - 100, True), PATIENCE_S, api.words)
        finally:
            stop.set()
        for one in asking:
            one.result()
        assert {status for _, status, _ in found} == {200}
        assert "Traceback" not in api.words()


def test_what_the_store_has_not_got_is_served_from_memory(trained: Model, own_store: EmbeddedStore) -> None:
    async def work() -> None:
        sender = Sender(trained)
        with running([trained.trainer()]):
            async with serving(trained) as model:
                token = sender.learn("zoe", 3)
                (before,) = await model.recommend([Wish("zoe", k=50, token=token, wait_ms=9000)])
                await written(trained)
                # The server's own process: what was started is a shell that guards it.
                os.killpg(own_store.pid, signal.SIGSTOP)
                try:
                    sender.show("zoe", before.items[0][0], "passed/over")
                    token = sender.click("zoe", before.items[0][0])
                    (lagging,) = await model.recommend([Wish("zoe", k=50, token=token, wait_ms=9000)])
                    assert lagging.token_reached, "the log does not wait for the store"
                    assert lagging.source == "model"
                    assert before.items[0][0] not in dict(lagging.items)
                finally:
                    os.killpg(own_store.pid, signal.SIGCONT)
                await until(lambda: not model.stats()["stale"])
                (after,) = await model.recommend([Wish("zoe", k=50)])
                assert after == lagging._replace(stale=False, token_reached=None)

    run(work())


def test_a_store_that_fell_back_is_never_believed(trained: Model, own_store: EmbeddedStore) -> None:
    async def work() -> None:
        sender, redis = Sender(trained), connect(own_store.address)
        pattern = f"{{{trained.name}:*}}:*"
        with running([trained.trainer()]):
            sender.learn("zoe", 3)
            async with serving(trained) as model:
                await reached(model, trained)
                await written(trained)
                keys = [key for key in redis.scan_iter(pattern) if b":u:" in key or b":pf:" in key]
                old = {key: redis.get(key) or b"" for key in keys}
                token = sender.learn("zoe", 4)
                (known,) = await model.recommend([Wish("zoe", k=50, token=token, wait_ms=9000)])
                await written(trained)
        # Nobody is left to mend it.
        async with serving(trained) as late, serving(trained) as other:
            (whole,) = await late.recommend([Wish("zoe", k=50)])
            assert whole == known._replace(token_reached=None)
            redis.mset(old)
            (cached,), (read,) = await late.recommend([Wish("zoe", k=50)]), await other.recommend([Wish("zoe", k=50)])
            assert cached == whole, "what is in memory is right"
            assert read.stale, "the store has had more than that"
            (again,) = await other.recommend([Wish("zoe", k=50)])
            assert again.stale, "and it was not kept"
        redis.close()

    run(work())


def test_a_user_whose_value_is_damaged_is_unknown_and_nobody_else_is(trained: Model) -> None:
    async def work() -> None:
        sender, redis = Sender(trained), connect(trained.settings["SAROS_REDIS__URL"])
        with running([trained.trainer()]):
            for user in ("ann", "zoe"):
                sender.learn(user, 3)
            async with serving(trained) as model:
                await reached(model, trained)
                await written(trained)
        async with serving(trained) as model:
            assert model.world is not None
            (own,) = hash_texts(model.world.hash_key, ["zoe"])
            keys = redis.scan_iter(f"{{{trained.name}:*}}:u:*")
            (key,) = [key for key in keys if key.endswith(b":" + own.tobytes())]
            whole, before = redis.get(key) or b"", sample("saros_api_store_errors_total")
            redis.set(key, whole[:-1])
            for _ in range(2):
                ann, zoe = await model.recommend([Wish("ann"), Wish("zoe")])
                assert (ann.source, ann.user_state, ann.stale) == ("model", "in_band", False)
                assert (zoe.source, zoe.user_state, zoe.stale) == ("popular", "cold", True)
            assert sample("saros_api_store_errors_total") == before + 2
            assert not model.stats()["stale"], "the store is there"
            redis.set(key, whole)
            (zoe,) = await model.recommend([Wish("zoe")])
            assert (zoe.source, zoe.stale) == ("model", False)
        redis.close()

    run(work())


def test_it_boots_again_where_its_place_was_trimmed_away(trained: Model) -> None:
    async def work() -> None:
        trained.send(300)
        with running([trained.trainer()]):
            async with serving(trained, lag_max_s=2.5) as model:
                await reached(model, trained)
                boots = API_BOOTS._value.get()
                # It reads nothing while the log goes on, as a process that was stopped.
                with stopped():
                    trained.send(300, 1)
                    await until(lambda: model.why_not_ready(), timeout_s=10)
                    assert "behind" in model.why_not_ready()[0]
                    (stale,) = await model.recommend([Wish("user-1")])
                    assert stale.stale
                    assert stale.items
                    await written(trained)
                    trim_all(trained)
                await until(lambda: API_BOOTS._value.get() > boots, lambda: str(model.why_not_ready()))
                await until(lambda: not model.why_not_ready(), lambda: str(model.why_not_ready()))
                trained.send(50, 2)
                await reached(model, trained)
                (fresh,) = await model.recommend([Wish("user-1")])
                assert not fresh.stale
                assert fresh.items

    run(work())


@contextmanager
def stopped() -> Iterator[None]:
    """Let no feed read on; what was fetched ahead is thrown away, as a process has it that was stopped for long."""
    poll, go_on = RedoLog.poll, threading.Event()

    def wait(redo: RedoLog, timeout_s: float, count: int = 100, linger_s: float = 0.0) -> list[Message]:
        redo._reader.pause()
        go_on.wait()
        redo._reader.resume()
        return poll(redo, timeout_s, count, linger_s)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RedoLog, "poll", wait)
            yield
    finally:
        go_on.set()


def test_a_record_that_cannot_be_folded_is_not_folded_in_part(trained: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        sender = Sender(trained)
        sender.learn("ann", 3)
        with running([trained.trainer()]):
            async with serving(trained) as model:
                await reached(model, trained)
                broken, refresh = model._world, Shelf.refresh

                def fail(shelf: Shelf, slots: I32, day: int) -> None:
                    monkeypatch.setattr(Shelf, "refresh", refresh)
                    raise ValueError("damaged")

                monkeypatch.setattr(Shelf, "refresh", fail)
                token = sender.learn("ann", 4)
                await until(lambda: model._world is not broken, lambda: str(model.why_not_ready()))
                assert broken is not None
                assert broken.broken
                (answer,) = await model.recommend([Wish("ann", token=token, wait_ms=9000)])
                assert (answer.token_reached, answer.stale) == (True, False)
                assert model._world is not None
                assert rows_of(model._world.replica.items) == rows_of(replayed(trained).items)

    run(work())


def upserts_of(redis: Any, model: str) -> list[tuple[bytes, bytes, bytes]]:
    """Return what the store has of items beyond their texts: key, field and value."""
    keys = redis.scan_iter(f"{{{model}:*}}:name")
    return [(key, *pair) for key in keys for pair in redis.hgetall(key).items() if pair[1].startswith(b"\xff")]


@pytest.mark.parametrize("what", ["name", "head"])
def test_a_store_whose_messages_are_damaged_is_told_and_read_again(trained: Model, what: str) -> None:
    async def work() -> None:
        redis: Any = connect(trained.settings["SAROS_REDIS__URL"])
        sender = Sender(trained)
        with running([trained.trainer()]):
            sender.learn("ann", 3)
            sender.send(Event(item_upsert=ItemUpsert(item_id="told", categories=["red"])))
            async with serving(trained) as model:
                await reached(model, trained)
                await written(trained)
        if what == "name":
            ((key, field, whole),) = upserts_of(redis, trained.name)
            redis.hset(key, field, b"\xff\xff\xff")
        else:
            key = next(redis.scan_iter(f"{{{trained.name}:*}}:pf:*"))
            whole = redis.get(key) or b""
            redis.set(key, whole[:FENCE_BYTES] + b"\xff\xff")
        async with serving(trained, ready=False) as model:
            await until(lambda: "damaged" in model.why_not_ready()[0], lambda: str(model.why_not_ready()))
            assert model.why_dead() == ""
            if what == "name":
                redis.hset(key, field, whole)
            else:
                redis.set(key, whole)
            await until(lambda: not model.why_not_ready(), lambda: str(model.why_not_ready()))
        redis.close()

    run(work())


def test_a_defect_in_folding_or_in_the_feed_is_told_where_processes_are_watched(
    trained: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("of the test")

    async def work() -> None:
        Sender(trained).learn("ann", 3)
        with running([trained.trainer()]):
            async with serving(trained) as model:
                await reached(model, trained)
                assert model.why_dead() == ""
                with monkeypatch.context() as patch:
                    patch.setattr(Shelf, "tend", fail)
                    await until(model.why_dead)
                assert model.why_dead() == "folding has ended: LookupError('of the test')"
                assert model.why_not_ready() == [model.why_dead()]
                (answer,) = await model.recommend([Wish("ann")])
                assert answer.items, "it answers on from what it has"
            async with serving(trained) as model:
                with monkeypatch.context() as patch:
                    patch.setattr(RedoLog, "poll", fail)
                    await until(model.why_dead)
                assert model.why_dead() == "the feed has ended: LookupError('of the test')"
                assert model.why_not_ready() == [model.why_dead()]

    run(work())


def test_without_a_log_it_is_alive_and_says_why(trained: Model) -> None:
    async def work() -> None:
        async with serving(trained, ready=False) as model:
            assert model.why_not_ready()
            await until(lambda: model.why_not_ready() == ["no genesis yet"])
            assert (model.partitions, model.p0, model.popular(10), model.similar("x", 10)) == (0, 0.0, [], None)
            (answer,) = await model.recommend([Wish("ann", token="2:7")])
            assert answer == Answer([], "popular", "cold", 0, True, False)
            assert model.stats()["ready"] is False
            Sender(trained).learn("ann")
            with running([trained.trainer()]):
                await until(lambda: not model.why_not_ready(), trained.logs)
                await reached(model, trained)
                (answer,) = await model.recommend([Wish("ann")])
                assert (answer.source, model.partitions) == ("model", PARTITIONS)

    run(work())


def test_events_can_be_taken_while_the_model_is_still_loaded(trained: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def slowly(*given: Any) -> None:
        go_on.wait()
        boot(*given)

    async def work() -> None:
        trained.send(50)
        await asyncio.to_thread(trained.drain)
        monkeypatch.setattr("saros.api.feed.boot", slowly)
        async with serving(trained, ready=False) as model:
            try:
                await until(lambda: model.partitions == PARTITIONS, lambda: str(model.why_not_ready()))
                assert model.world is None
                assert model.why_not_ready()
            finally:
                go_on.set()
            await until(lambda: not model.why_not_ready(), lambda: str(model.why_not_ready()))

    run(work())


def test_what_was_loaded_and_its_memory_stand_in_the_log(trained: Model, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        trained.send(300)
        await asyncio.to_thread(trained.drain)
        with caplog.at_level(logging.INFO, "saros"):
            async with serving(trained) as model:
                assert model.world is not None
                size, shelf = model.world.replica.items.table.size, model.world.shelf
        (line,) = [one.__dict__["fields"] for one in caplog.records if one.getMessage() == "catalogue was loaded"]
        assert (line["items"], line["items_most"]) == (size, 2 * plan_of(trained).items_max)
        assert line["seconds"] > 0
        assert line["process_mb"] > 0
        assert line["users_mb"] == round(model.world.people.nbytes / 2**20)
        assert line["catalogue_mb"] == round(shelf.nbytes / 2**20)
        slot = 8 * 4 + 12 + 96 + 16 + 6 * 4 + 17 + 8  # numbers of an item: row, counters, buckets, codes, table, rates
        assert line["catalogue_most_mb"] >= line["items_most"] * slot / 2**20

    run(work())


def test_another_log_of_the_same_name_is_booted(trained: Model) -> None:
    async def work() -> None:
        trained.send(300)
        await asyncio.to_thread(trained.drain)
        async with serving(trained) as model:
            log_id = model.stats()["log_id"]
            Admin(trained.cluster).delete(trained.topics.redo)
            saros = subprocess.run([SAROS, "rebase"], env=trained.environ(), capture_output=True, check=False)
            assert saros.returncode == 0, saros.stdout + saros.stderr
            await until(lambda: model.stats()["log_id"] != log_id, lambda: str(model.stats()))
            await until(lambda: not model.why_not_ready(), lambda: str(model.why_not_ready()))
            (answer,) = await model.recommend([Wish("user-1")])
            assert answer.items
            assert not answer.stale
            await until(lambda: sample("saros_api_stale", because="store") == 0)

    run(work())
