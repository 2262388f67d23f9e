"""Trainers are killed at every named point of the commit, and anywhere, or stopped for long; the store forgets."""

import re
import signal
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import pytest

from saros.trainer import points
from tests.broker import Broker
from tests.store import StoreServer, await_whole, connect
from tests.trainer.faults import LONG, ONLY_LONG, SEED, aof_of, forget
from tests.trainer.runs import SHARDS, Model, running

KILLS = 5  # at each point
# Each is reached by whoever starts, but for the last: then the one before has to have died with something in hand.
POINTS = (
    "learned",
    "sent",
    "accepted",
    "flushed",
    "between",
    "shard",
    "committing",
    "committed",
    "following",
    "mending",
)
SOURCES = ("loop.py", "share.py", "shards.py", "users.py")
# Some are reached once by who starts, others once a second.
MOST = {"following": 2, "mending": 2, "between": 4, "committing": 4, "committed": 4}
IN_VAIN_S = 30  # for a point that is not reached
STORM_S = 1500


def test_every_point_is_known() -> None:
    assert points.__file__ is not None
    texts = [(Path(points.__file__).parent / name).read_text() for name in SOURCES]
    assert sorted(re.findall(r'reach\("(\w+)"\)', "".join(texts))) == sorted(POINTS)
    assert re.findall(r"^    (\w+)  ", points.__doc__ or "", flags=re.MULTILINE) == list(POINTS)


@pytest.mark.parametrize(
    "at", ["learned:3 sent:2 following:1 flushed:3 between:2", "accepted:2 mending:1 shard:7 committing:2 committed:2"]
)
def test_killed_at_each_point(
    real_broker: Broker, store_server: StoreServer, model_name: str, tmp_path: Path, at: str
) -> None:
    model, users = Model(model_name, real_broker.address, store_server.url, tmp_path), list[str]()
    for point in at.split():
        model.cross(users)
        users = model.approach()
        model.send(150)
        # A name that stays: its partitions are its own again at once.
        victim = model.trainer(SAROS_TEST_KILL=point, SAROS_TRAINER__INSTANCE="one")
        with running([victim]):
            assert victim.wait(60) == -signal.SIGKILL, f"{point} was not reached\n{model.logs()}"
    model.drain()
    model.check()


class Storm:
    """Trainers in their places, each with a name that stays and with points to die at, one after the other."""

    def __init__(self, model: Model, store: StoreServer, trainers: int, stack: ExitStack) -> None:
        self.model, self._store, self._rng, self._stack = model, store, Random(SEED), stack
        pairs = [["accepted", "mending"] for _ in range(KILLS)]
        self._todo = [[point] for point in POINTS if point not in pairs[0] for _ in range(KILLS)] + pairs
        self._rng.shuffle(self._todo)
        self.hit: Counter[str] = Counter()
        self._places: list[list[str]] = [[] for _ in range(trainers)]
        self._alive: list[subprocess.Popen[bytes] | None] = [None] * trainers
        self._since = [0.0] * trainers
        self._sizes = [0] * len(store.nodes)

    @property
    def over(self) -> bool:
        """True if all points were hit."""
        return not self._todo and not any(self._places)

    def turn(self) -> None:
        """Look after all places, then break something or not."""
        for place in range(len(self._places)):
            self._look_after(place)
        self._break_something()

    def _look_after(self, place: int) -> None:
        process, points_left = self._alive[place], self._places[place]
        if process is not None and process.poll() is not None:
            self._alive[place] = None
            if process.returncode == -signal.SIGKILL and points_left:
                self.hit[points_left.pop(0)] += 1
                print(f"hit: {dict(self.hit)}", flush=True)  # noqa: T201
            else:
                assert process.returncode == 1, self.model.logs()  # its store was away
        elif process is not None and points_left and time.monotonic() > self._since[place] + IN_VAIN_S:
            self._give_up(place)
        if self._alive[place] is None:
            if not self._places[place] and self._todo:
                self._places[place] = self._todo.pop()
            self._start(place)

    def _start(self, place: int) -> None:
        more = {"SAROS_TRAINER__INSTANCE": f"place-{place}"}
        if self._places[place]:
            point = self._places[place][0]
            times = self._rng.randrange(1, MOST.get(point, 8))
            more["SAROS_TEST_KILL"] = f"{point}:{times}"
        process = self.model.trainer(**more)
        self._stack.enter_context(running([process]))
        self._alive[place], self._since[place] = process, time.monotonic()

    def _give_up(self, place: int) -> None:
        """Kill a trainer wherever it is; its points are for another."""
        process = self._alive[place]
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
            self._alive[place] = None
            left, self._places[place] = self._places[place], []
            if left:
                self._todo.insert(0, ["accepted", "mending"] if left == ["mending"] else left)

    def _break_something(self) -> None:
        chance, place = self._rng.random(), self._rng.randrange(len(self._places))
        process = self._alive[place]
        if chance < 0.03 and process is not None:
            process.send_signal(signal.SIGSTOP)
            with suppress(subprocess.TimeoutExpired):
                process.wait(7)  # past the session's timeout
            process.send_signal(signal.SIGCONT)
        elif chance < 0.06:
            node = self._rng.randrange(len(self._store.nodes))
            forget(self._store.nodes[node], self._sizes[node] + self._rng.randrange(2000))
            await_whole(self._store.urls)
        elif chance < 0.08:
            with connect(self._rng.choice(self._store.urls)) as redis:
                redis.flushall()
        elif chance < 0.1:
            self.model.wipe(self._rng.randrange(SHARDS), self._store.urls)
        elif chance < 0.13:
            self._give_up(place)
        elif chance < 0.3:
            self._sizes = [aof_of(node).stat().st_size for node in self._store.nodes]
        elif process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)

    def end(self) -> None:
        """Let all that are left end in order."""
        left = [process for process in self._alive if process is not None]
        for process in left:
            process.send_signal(signal.SIGTERM)
        for process in left:
            # One that was just started does not listen yet.
            assert process.wait(30) in (0, 1, -signal.SIGTERM), self.model.logs()


@pytest.mark.skipif(not LONG, reason=ONLY_LONG)
@pytest.mark.timeout(STORM_S + 300)
@pytest.mark.parametrize("trainers", [1, 3])
def test_storm(real_broker: Broker, own_store: StoreServer, model_name: str, tmp_path: Path, trainers: int) -> None:
    model, users = Model(model_name, real_broker.address, own_store.url, tmp_path), list[str]()
    with ExitStack() as stack:
        storm, until = Storm(model, own_store, trainers, stack), time.monotonic() + STORM_S
        while not storm.over:
            assert time.monotonic() < until, (storm.hit, model.logs())
            model.cross(users)
            users = model.approach()
            model.send(100, SEED)
            storm.turn()
        storm.end()
    model.drain()
    model.check()
    assert all(storm.hit[point] >= KILLS for point in POINTS), storm.hit
