"""Storms: trainers are killed at named points and anywhere, stopped for long, and the store forgets, all under load.

The short form runs in `make test`; the long one in `make test-faults` (SAROS_TEST_FAULTS=1). SAROS_TEST_SEED repeats a
run: the choices are the same, though not the moments.
"""

import os
import secrets
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from saros.adapters.redis import EmbeddedStore
from tests.broker import Broker
from tests.store import StoreServer, start_cluster
from tests.trainer.runs import Model, await_until, running

LONG = os.environ.get("SAROS_TEST_FAULTS") == "1"
SEED = int(os.environ.get("SAROS_TEST_SEED") or (secrets.randbelow(1_000_000) if LONG else 0))
POINTS = ("learned", "sent", "flushed", "shard")
KILLS = 5 if LONG else 1  # at each point


@pytest.fixture(params=["alone", "cluster"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreServer]:
    """A store of its own, for the test to break."""
    with ExitStack() as stack:
        if request.param == "alone":
            node = stack.enter_context(EmbeddedStore(tmp_path / "store"))
            yield StoreServer("embedded", (node.address,), nodes=(node,))
        else:
            yield stack.enter_context(start_cluster(tmp_path / "store"))


def aof_of(node: EmbeddedStore) -> Path:
    """The file that a server appends its writes to."""
    return max((node.data_dir / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)


def forget(node: EmbeddedStore, size: int) -> None:
    """Kill a server and take away what it wrote behind a place in its file; start it again."""
    node.kill()
    with aof_of(node).open("r+b") as file:
        file.truncate(min(size, file.seek(0, os.SEEK_END)))
    node.restart()


def ended(process: subprocess.Popen[bytes]) -> bool:
    """True if a trainer has given up, which it may only do because its store was away."""
    code = process.poll()
    assert code in (None, 1), code
    return code is not None


def test_the_store_forgets_what_it_acknowledged(
    real_broker: Broker, store: StoreServer, model_name: str, tmp_path: Path
) -> None:
    model, rng = Model(model_name, real_broker.address, store.url, tmp_path), Random(SEED)
    for _ in range(3 if LONG else 1):
        model.send(400)
        trainer = model.trainer()
        with running([trainer]):
            begun = model.begun()
            await_until(lambda begun=begun: model.begun() > begun, what=model.logs)  # type: ignore[misc]
            sizes = {node: aof_of(node).stat().st_size for node in store.nodes}
            for _ in range(4):
                model.send(200)
                time.sleep(0.3)
            for node in rng.sample(store.nodes, 1):
                forget(node, sizes[node] + rng.randrange(2000))
            model.send(200)
            if not ended(trainer):
                trainer.send_signal(signal.SIGTERM)
                trainer.wait(30)
    model.drain()
    model.check()


@pytest.mark.skipif(not LONG, reason="the long form: SAROS_TEST_FAULTS=1, as `make test-faults` does")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("trainers", [1, 3])
def test_storm(real_broker: Broker, store: StoreServer, model_name: str, tmp_path: Path, trainers: int) -> None:
    model, rng = Model(model_name, real_broker.address, store.url, tmp_path), Random(SEED)
    todo = [f"{point}:{rng.randrange(1, 8)}" for point in POINTS for _ in range(KILLS)]
    rng.shuffle(todo)
    hit: Counter[str] = Counter()
    alive: list[subprocess.Popen[bytes]] = []
    victims: dict[subprocess.Popen[bytes], str] = {}
    sizes = [0] * len(store.nodes)
    with ExitStack() as stack:
        until = time.monotonic() + 1200
        while todo or victims:
            assert time.monotonic() < until, (todo, model.logs())
            while len(alive) < trainers:
                point = todo.pop() if todo else ""
                process = model.trainer(**({"SAROS_TEST_KILL": point} if point else {}))
                stack.enter_context(running([process]))
                alive.append(process)
                if point:
                    victims[process] = point
            model.send(100, SEED)
            time.sleep(0.5)
            chance = rng.random()
            if chance < 0.05:
                stopped = rng.choice(alive)
                stopped.send_signal(signal.SIGSTOP)
                time.sleep(7)  # past the session's timeout
                stopped.send_signal(signal.SIGCONT)
            elif chance < 0.1:
                node = rng.randrange(len(store.nodes))
                forget(store.nodes[node], sizes[node] + rng.randrange(2000))
            elif chance < 0.3:
                sizes = [aof_of(node).stat().st_size for node in store.nodes]
            for process in [process for process in alive if process.poll() is not None]:
                alive.remove(process)
                point = victims.pop(process, "")
                if process.returncode == -signal.SIGKILL:
                    hit[point.partition(":")[0]] += 1
                else:
                    assert process.returncode == 1, model.logs()  # its store was away
                    todo += [point] if point else []
        for process in alive:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    model.drain()
    model.check()
    assert all(hit[point] >= KILLS for point in POINTS), hit
