"""What may break, broken under load: the store forgets or goes away, the broker goes away, trainers come and go.

Each run has users that pass B while it happens, and ends with the audit. The long forms run in `make test-faults`.
"""

import json
import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from random import Random
from urllib.request import urlopen

import pytest

from saros.adapters.redis import EmbeddedStore
from tests.broker import SOON, Broker, java_site, serving
from tests.servers import UnavailableError, free_ports
from tests.store import StoreServer, await_whole, connect
from tests.trainer.faults import LONG, SEED, aof_of, ended, forget
from tests.trainer.runs import PARTITIONS, RECONNECT, SHARDS, Model, await_until, running

COUNTS = [1, 3] if LONG else [1]  # of trainers


def end(model: Model, trainers: list[subprocess.Popen[bytes]]) -> None:
    """Let trainers end in order, unless their store was away for too long."""
    left = [trainer for trainer in trainers if not ended(trainer)]
    for trainer in left:
        trainer.send_signal(signal.SIGTERM)
    for trainer in left:
        code = trainer.wait(30)
        # A signal meets whoever is just giving up without its handlers.
        assert code in (0, 1) or (code == -signal.SIGTERM and "\nsaros: the store" in model.logs()), model.logs()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("meanwhile", ["stopped", "running"] if LONG else ["stopped"])
def test_the_store_forgets_what_it_acknowledged(
    real_broker: Broker, own_store: StoreServer, model_name: str, tmp_path: Path, count: int, meanwhile: str
) -> None:
    """Trainers that run see a store that is away, and then one that forgot; stopped ones see only that it forgot."""
    model, rng = Model(model_name, real_broker.address, own_store.url, tmp_path), Random(SEED)
    stopped = meanwhile == "stopped"
    if stopped:
        # They are to keep their partitions, and to mend the store themselves.
        model.settings["SAROS_KAFKA__OPTIONS"] = json.dumps({"session.timeout.ms": 30_000, **RECONNECT})
    for _ in range(5 if LONG else 1):
        trainers = [model.trainer() for _ in range(count)]
        with running(trainers), model.flowing(SEED):
            model.await_learned()
            sizes = {node: aof_of(node).stat().st_size for node in own_store.nodes}
            users = model.approach()
            model.await_learned()
            node = rng.choice(own_store.nodes)
            if stopped:
                lost = forget_beside(model, trainers, own_store, node, sizes[node] + rng.randrange(2000))
                model.cross(users)
                model.await_learned()
                assert [trainer.poll() for trainer in trainers] == [None] * count, model.logs()
                for name, told in (("users", "store fell back"), ("items", "shard fell back")):
                    assert told in model.logs(1000) or not any(what.startswith(name) for what in lost), told
            else:
                forget(node, sizes[node] + rng.randrange(2000))
                model.cross(users)
                await_whole(own_store.urls)
            end(model, trainers)
    model.drain()
    model.check()


def forget_beside(
    model: Model, trainers: list[subprocess.Popen[bytes]], store: StoreServer, node: EmbeddedStore, size: int
) -> list[str]:
    """Let a node forget while trainers are stopped; return what the store has less of."""
    for trainer in trainers:
        trainer.send_signal(signal.SIGSTOP)
    before = model.fences()
    forget(node, size)
    await_whole(store.urls)
    after = model.fences()
    lost = [name for name in after if after[name] < before[name]]
    assert lost, "something was forgotten"
    for trainer in trainers:
        trainer.send_signal(signal.SIGCONT)
    return lost


@pytest.mark.parametrize("own_store", ["alone"], indirect=True)
def test_while_the_store_is_slow_partitions_pause(
    real_broker: Broker, own_store: StoreServer, model_name: str, tmp_path: Path
) -> None:
    model, (port,) = Model(model_name, real_broker.address, own_store.url, tmp_path), free_ports(1)
    trainer = model.trainer(SAROS_TRAINER__METRICS_PORT=str(port))

    def paused() -> bool:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return "\nsaros_pauses_total 0.0" not in answer.read().decode()

    with running([trainer]), model.flowing(SEED):
        users = model.approach()
        model.await_learned()
        assert not paused()
        os.kill(own_store.nodes[0].pid, signal.SIGSTOP)
        model.cross(users)
        await_until(paused, timeout_s=4, what=model.logs)  # a call to the store is given up after five seconds
        os.kill(own_store.nodes[0].pid, signal.SIGCONT)
        model.await_learned()
        assert model.begun() == PARTITIONS, "it kept what it had"
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(20) == 0, model.logs()
    model.drain()
    model.check()


@pytest.mark.parametrize(("count", "what"), [(1, "all"), (1, "shard"), (3, "all"), *([(3, "shard")] if LONG else [])])
def test_the_store_is_flushed(
    real_broker: Broker, own_store: StoreServer, model_name: str, tmp_path: Path, count: int, what: str
) -> None:
    """All of it, or a shard that holds users and items."""
    model, rng = Model(model_name, real_broker.address, own_store.url, tmp_path), Random(SEED)
    trainers = [model.trainer() for _ in range(count)]
    with running(trainers), model.flowing(SEED):
        # Whoever has not written a shard yet cannot know that it fell back.
        await_until(lambda: model.owners() == count, what=model.logs)
        for _ in range(5 if LONG else 1):
            users = model.approach()
            model.await_learned()
            if what == "all":
                for url in own_store.urls:
                    with connect(url) as redis:
                        redis.flushall()
            else:
                model.wipe(rng.randrange(PARTITIONS), own_store.urls)
            model.cross(users)
            model.await_learned()  # all of it is there again
            assert [trainer.poll() for trainer in trainers] == [None] * count, model.logs()
        assert "store fell back" in model.logs(1000)
        assert model.logs(1000).count("shard fell back") >= (SHARDS if what == "all" else 1)
        end(model, trainers)
    model.drain()
    model.check()


def test_a_node_is_restarted_and_a_trainer_is_killed(
    real_broker: Broker, own_store: StoreServer, model_name: str, tmp_path: Path
) -> None:
    model, rng = Model(model_name, real_broker.address, own_store.url, tmp_path), Random(SEED)
    for _ in range(5 if LONG else 1):
        # A name that stays: its partitions are its own again at once.
        first = model.trainer(SAROS_TRAINER__INSTANCE="one")
        with running([first]), model.flowing(SEED):
            users = model.approach()
            model.await_learned()
            node = rng.choice(own_store.nodes)
            node.kill()
            node.restart()
            model.cross(users)
            await_whole(own_store.urls)
        second = model.trainer(SAROS_TRAINER__INSTANCE="one")
        with running([second]), model.flowing(SEED):
            model.await_learned()
            end(model, [second])
    model.drain()
    model.check()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.timeout(600 if LONG else 90)
def test_the_broker_is_restarted(store_server: StoreServer, model_name: str, tmp_path: Path, count: int) -> None:
    with ExitStack() as site_stack, ExitStack() as broker:
        try:
            site = site_stack.enter_context(java_site(tmp_path, SOON))
        except UnavailableError as error:
            pytest.skip(f"needs a broker of its own: {error}")
        broker.enter_context(serving(site))
        model = Model(model_name, site.address, store_server.url, tmp_path)
        trainers = [model.trainer() for _ in range(count)]
        with running(trainers), model.flowing(SEED):
            for _ in range(5 if LONG else 1):
                users = model.approach()
                model.await_learned()
                broker.close()  # as in a crash
                broker.enter_context(serving(site))
                model.cross(users)
                model.await_learned()
                assert [trainer.poll() for trainer in trainers] == [None] * count, model.logs()
            end(model, trainers)
        model.drain()
        model.check()


def test_trainers_come_and_go(real_broker: Broker, store_server: StoreServer, model_name: str, tmp_path: Path) -> None:
    """A storm of rebalances: one joins and one leaves as soon as the last one is there."""
    model, rounds = Model(model_name, real_broker.address, store_server.url, tmp_path), 30 if LONG else 5
    with ExitStack() as stack, model.flowing(SEED):
        alive: list[subprocess.Popen[bytes]] = []
        users: list[str] = []
        for _ in range(rounds):
            before = model.logs(1000).count("trainer was started")
            newest = model.trainer()
            stack.enter_context(running([newest]))
            alive.append(newest)
            await_until(lambda b=before: model.logs(1000).count("trainer was started") > b, what=model.logs)  # type: ignore[misc]
            if len(alive) > 2:
                oldest = alive.pop(0)
                oldest.send_signal(signal.SIGTERM)
            if users:
                model.cross(users)
            users = model.approach()
        model.await_learned()
        end(model, alive)
    assert "fell back" not in model.logs(1000), "nothing was forgotten"
    model.drain()
    model.check()
