"""A model of its own for a test: topics, store, events that make everything happen, trainers as real processes, and the
audit at the end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from urllib.request import urlopen

import numpy as np

from saros.adapters.kafka import Admin, Cluster, Reader, Topic, Writer
from saros.adapters.names import EVENTS_SETTINGS, topics_of
from saros.adapters.redis import Store
from saros.core.counts import BOTS
from saros.core.events import CLICK, IMPRESSION, NEGATIVE, POSITIVE
from saros.core.ids import hash_texts
from saros.errors import InputError
from saros.redo.fence import unpack_fence, unpack_vector
from saros.redo.genesis import Genesis
from saros.settings import load
from saros.trainer.audit import Audit, audited
from saros.trainer.commands import plan_of
from saros.trainer.start import find_log
from saros.wire.encode import event_of, message_of
from saros.wire.item import CATEGORIES
from saros.wire.partitions import partitions_of
from saros.wire.v1 import redo_pb2 as pb
from saros.wire.v1.events_pb2 import Event, ItemUpsert
from tests.beside import repeated
from tests.store import connect

PARTITIONS, SHARDS = 3, 16
APPROACH = 8  # blocks: twice as many are beyond B
POLL = 40  # messages at once
SAROS = str(Path(sys.executable).parent / "saros")
START_MS = 1_700_000_000_000
RECONNECT = {"reconnect.backoff.max.ms": 500}  # to a broker that was away
SETTINGS = {
    "SAROS_KAFKA__PARTITIONS": str(PARTITIONS),
    "SAROS_MODEL__DIM": "8",
    "SAROS_MODEL__ITEMS_MAX": "5000",
    "SAROS_GATE__BLOCKS_MIN": "2",
    "SAROS_GATE__BLOCKS_MAX": "12",
    "SAROS_GATE__WINDOW_DAYS": "2",
    "SAROS_TRAINER__POLL_MESSAGES": str(POLL),
    "SAROS_KAFKA__OPTIONS": json.dumps({"session.timeout.ms": 6000, "heartbeat.interval.ms": 500, **RECONNECT}),
}

_WIPE = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end"


class Model:
    """A model with its own name, and the processes that work on it."""

    def __init__(self, name: str, bootstrap: str, store_url: str, scratch: Path) -> None:
        self.name, self.cluster, self.scratch = name, Cluster(bootstrap, RECONNECT), scratch
        self.settings = {
            **SETTINGS, "SAROS_MODEL__NAME": name, "SAROS_KAFKA__BOOTSTRAP": bootstrap, "SAROS_REDIS__URL": store_url
        }  # fmt: skip
        self.topics = topics_of(name)
        Admin(self.cluster).ensure(self.topics.events, PARTITIONS, 1, EVENTS_SETTINGS)
        self._writer, self.sent, self._starts = Writer(self.cluster), 0, 0
        self.someone: Callable[[Random], int] = lambda rng: min(rng.randrange(60), rng.randrange(60))
        self._rounds, self._round_ms, self._crossed, self._lock = 0, 0, list[str](), threading.Lock()
        self._tellings = 0

    def environ(self, **more: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("SAROS_")}
        return {**own, "PYTHONFAULTHANDLER": "1", **self.settings, **more}

    def send(self, count: int, seed: int = 0, *, singles: bool = True) -> None:
        """Send so many events more, of few users and items: sessions, crossings of b and B, erasures, odd bytes."""
        with self._lock:
            rng = Random(f"{seed} {self.sent}")
            for k in range(self.sent, self.sent + count):
                user = f"user-{self.someone(rng)}"
                home = int(partitions_of([user], PARTITIONS)[0])
                value = _event(rng, user, START_MS + 40_000 * k)
                self._writer.send(self.topics.events, home, value, key=user.encode())
                if rng.random() < 0.01:
                    self._writer.send(self.topics.events, home, b"\xff not an event", key=b"odd")
            self._writer.flush()
            self.sent += count

    def tell_items(self) -> None:
        """Say something of every item: first all of it, then changes, so that what is told depends on all before."""
        with self._lock:
            self._tellings += 1
            for k in range(40):
                told = ItemUpsert(item_id=f"item/{k}", categories=[f"shelf {self._tellings}"], properties={"k": str(k)})
                told.changes = CATEGORIES if self._tellings > 1 else 0
                home = int(partitions_of([told.item_id], PARTITIONS)[0])
                self.put(home, Event(item_upsert=told))

    def put(self, partition: int, event: Event) -> None:
        """Put an event that is not counted into a partition."""
        self._writer.send(self.topics.events, partition, event.SerializeToString())
        self._writer.flush()

    @contextmanager
    def flowing(self, seed: int = 0) -> Iterator[None]:
        """Let events come in all the while, some hundred a second."""
        with repeated(lambda: self.send(30, seed), 0.1):
            yield

    def approach(self) -> list[str]:
        """Let a new user of each partition close blocks, too few to pass B; return them, for `cross`."""
        self._rounds += 1
        names = [f"crosser-{self._rounds}-{k}" for k in range(50)]
        homes = partitions_of(names, PARTITIONS).tolist()
        users = [names[homes.index(partition)] for partition in range(PARTITIONS)]
        # They cross at the same time of theirs, or the window would pass over a test that takes long.
        self._round_ms = START_MS + 40_000 * self.sent
        self._close_blocks(users, 0)
        return users

    def cross(self, users: list[str]) -> None:
        """Let users pass B: what they taught has to be taken back, which `check` looks for."""
        with self._lock:
            # More than a trainer polls at once: what is added and taken back in one micro-batch is never added.
            for home, user in enumerate(users):
                for _ in range(POLL):
                    shown = event_of(user, IMPRESSION, ["item/39"], self._round_ms)
                    self._writer.send(self.topics.events, home, message_of([shown]), key=user.encode())
            self.sent += POLL * len(users)
        self._close_blocks(users, APPROACH)
        self._crossed += users

    def _close_blocks(self, users: list[str], first: int) -> None:
        with self._lock:
            for home, user in enumerate(users):
                for k in range(first, first + APPROACH):
                    shown_ids = [f"item/{(k + 20) % 40}", f"item/{(k + 21) % 40}"]
                    shown = event_of(user, IMPRESSION, shown_ids, self._round_ms)
                    clicked = event_of(user, CLICK, [f"item/{k}"], self._round_ms)
                    self._writer.send(self.topics.events, home, message_of([shown, clicked]), key=user.encode())
                    self.sent += 2
            self._writer.flush()

    def await_learned(self, what: Callable[[], str] | None = None) -> None:
        """Wait until all that was sent so far is in the store, users and items."""
        plan = plan_of(load(self.settings))
        reader, store = Reader(self.cluster, f"{self.name}-test"), Store(plan.store, self.name, SHARDS)
        ends = [reader.watermarks(self.topics.events, partition)[1] for partition in range(PARTITIONS)]

        def learned() -> bool:
            heads = [store.read_head(partition) for partition in range(PARTITIONS)]
            vectors = [store.read_vector(shard) for shard in range(SHARDS)]
            if not all(vectors) or not all(head for head, end in zip(heads, ends, strict=True) if end):
                return False
            users = [unpack_fence(head).next if head else 0 for head in heads]  # nothing is written where nothing came
            items = [[fence.next for fence in unpack_vector(vector, PARTITIONS)] for vector in vectors]
            return all(at >= end for each in (users, *items) for at, end in zip(each, ends, strict=True))

        await_until(learned, what=what or self.logs)
        reader.close()
        store.close()

    def trainer(self, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        """Start a trainer."""
        self._starts += 1
        with open(self.scratch / f"trainer-{self._starts}.log", "wb") as output:
            return subprocess.Popen(
                [SAROS, "trainer", *arguments],
                env=self.environ(**more), stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def drain(self, timeout_s: float = 90.0) -> None:
        """Let a trainer learn all there is."""
        process = self.trainer("--until-drained")
        with running([process]):
            assert process.wait(timeout_s) == 0, self.logs()

    def audit(self) -> Audit:
        """Return what the audit found."""
        return audited(plan_of(load(self.settings)))

    def check(self) -> None:
        """The promise: nothing differs, every event was counted, and from those who passed B all was taken back."""
        found = self.audit()
        assert found.differences == 0, "\n".join([*found.told, self.logs()])
        assert found.events == self.sent, f"{found.events} of {self.sent} events\n{self.logs()}"
        assert set(self._crossed) - set(self.taken_back()) == set(), "all that pass B are taken back"

    def _log(self) -> tuple[Genesis, list[pb.Record]]:
        """Return the records that count."""
        redo, genesis = find_log(plan_of(load(self.settings)))
        records = [
            record
            for partition in range(PARTITIONS)
            for _, record in redo.accepted(partition, genesis.start(partition), redo.end(partition))
        ]
        redo.close()
        return genesis, records

    def in_log(self) -> int:
        """Return how many events are in records that count."""
        return sum(int(np.frombuffer(record.stats.counts, np.int64)[:BOTS].sum()) for record in self._log()[1])

    def taken_back(self) -> list[str]:
        """Return those who passed B from whom, as the log says, blocks were taken back."""
        genesis, records = self._log()
        found: set[int] = set()
        for record in records:
            users, sign = np.frombuffer(record.blocks.user, np.uint64), np.frombuffer(record.blocks.sign, np.int8)
            found |= set(users[sign < 0].tolist())
        keys = hash_texts(genesis.key(), self._crossed).tolist() if self._crossed else []
        return [user for user, key in zip(self._crossed, keys, strict=True) if key in found]

    def beaten(self) -> int:
        """Return how many records stand in the log and do not count."""
        redo, genesis = find_log(plan_of(load(self.settings)))
        redo.follow(genesis.starts())
        ends = [redo.end(partition) for partition in range(PARTITIONS)]
        nonces, counting = set[int](), {record.nonce for record in self._log()[1]}
        at = [0] * PARTITIONS
        while any(have < end for have, end in zip(at, ends, strict=True)):
            for partition, offset, record in redo.poll(1.0):
                at[partition] = offset + 1
                nonces |= {record.nonce} if record is not None else set()
        redo.close()
        return len(nonces - counting)

    def fences(self) -> dict[str, int]:
        """Return how far the store has come: of each partition's users, and of each shard's items by partition."""
        store = Store(plan_of(load(self.settings)).store, self.name, SHARDS)
        heads = {f"users {p}": store.read_head(p) for p in range(PARTITIONS)}
        found = {name: unpack_fence(head).offset if head else -1 for name, head in heads.items()}
        for shard in range(SHARDS):
            vector = store.read_vector(shard)
            offsets = [fence.offset for fence in unpack_vector(vector, PARTITIONS)] if vector else [-1] * PARTITIONS
            found |= {f"items {shard}/{p}": offset for p, offset in enumerate(offsets)}
        store.close()
        return found

    def wipe(self, shard: int, urls: Sequence[str]) -> None:
        """Take a shard away at one blow, so that no write comes in between; each node has its own keys."""
        for url in urls:
            with connect(url) as redis:
                redis.eval(_WIPE, 0, f"{{{self.name}:{shard}}}*")

    def begun(self) -> int:
        """Return how often trainers have begun partitions."""
        return self.logs(1000).count("partition was begun")

    def owners(self) -> int:
        """Return how many trainers have begun a partition."""
        return sum("partition was begun" in path.read_text() for path in self.scratch.glob("trainer-*.log"))

    def logs(self, lines: int = 25) -> str:
        """Return the last words of all trainers."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
            for path in sorted(self.scratch.glob("trainer-*.log"))
        )


def lose(model: Model, topic: str) -> None:
    """Delete a topic."""
    admin = Admin(model.cluster)
    admin.delete(topic)
    await_until(lambda: admin.find(topic) is None)


def renew(model: Model, topic: str, settings: dict[str, str]) -> Topic:
    """Delete a topic and make it anew."""
    while True:
        lose(model, topic)
        # A trainer that asks for it meanwhile has the broker make it, with one partition.
        with suppress(InputError):
            return Admin(model.cluster).ensure(topic, PARTITIONS, 1, settings)


def _event(rng: Random, user: str, time_ms: int) -> bytes:
    """Return a message: mostly slates and clicks, some feedback, a few erasures, a few batches."""
    item = f"item/{rng.randrange(40)}"
    chance = rng.random()
    if chance < 0.01:
        erase = Event(user_id=user, event_time_ms=time_ms)
        erase.user_erase.SetInParent()
        return erase.SerializeToString()
    if chance < 0.45:
        return message_of([in_scenario(event_of(user, CLICK, [item], time_ms))])
    if chance < 0.5:
        return message_of([event_of(user, rng.choice((NEGATIVE, POSITIVE)), [item], time_ms)])
    slate = [f"item/{rng.randrange(40)}" for _ in range(rng.randrange(1, 5))]
    return message_of([in_scenario(event_of(user, IMPRESSION, slate, time_ms))])


def in_scenario(event: Event) -> Event:
    """Put an event into the scenario of its user: one that is counted, one that is not, or none."""
    event.scenario = (*["model"] * 5, *["random"] * 3, "elsewhere", "")[int(event.user_id[-1])]
    return event


def await_until(true: Callable[[], bool], timeout_s: float = 60.0, what: Callable[[], str] = lambda: "") -> None:
    """Wait until something is so."""
    until = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until, what()
        time.sleep(0.05)


def metric(port: int, name: str) -> float:
    """Return what a trainer counts: the sum over all labels, or that of the labels in the name."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """True of a process that was stopped by SIGSTOP; it must not have ended."""
    found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)
    assert found is None or found.si_code == os.CLD_STOPPED, "it has ended"
    return found is not None


@contextmanager
def running(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """End processes, however the test does; where it failed, each first says in its log where it is."""
    try:
        yield
    except BaseException:
        for process in processes:
            process.send_signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        raise
    finally:
        for process in processes:
            process.kill()
            process.wait()
