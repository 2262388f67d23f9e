"""The hot GET beside servers that send the same answer and have no model: requests a second, CPU, and p99.

Each request is for another user, whose row is read from the store, as the API's memory is smaller than the users are
many; no answer is kept. Meanwhile a trainer moves rows by 1 k events a second and the API follows, which is in its CPU.
All servers are asked in turn, round by round, by a client that is a process of its own.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from saros.adapters.kafka import Cluster
from saros.errors import SarosError
from saros.lab.bench.answering import rows_of
from saros.lab.bench.measure import Row, row
from saros.lab.bench.stage import Stage, Traffic, asked, port_of

RAW_GOAL, RAW_AIM, FASTAPI_GOAL = 0.4, 0.6, 3.0
RATE = 1000  # events a second
_CONNECTIONS = 32
_CLIENT_S = 90
_READ = re.compile(r"^saros_api_users_read_total (\S+)", re.MULTILINE)

_CPU = "CPU of the whole process, threads and kernel, over all rounds"
_CLOCK = "the best round by the clock; servers, client, trainer, broker and store share the cores"
_NOTES = {
    "raw": f"an ASGI app that sends the same bytes, whatever is asked; the aim is {RAW_AIM:g}×",
    "fastapi": "its cheapest form: an async route with checked parameters and a response model that sends one answer",
    "model": "a route in a thread: the row by redis-py, 10,000 items scored by numpy, a response model",
}
_NAMES = {"raw": "a raw ASGI app", "fastapi": "empty FastAPI", "model": "plain FastAPI"}


class Measured:
    """What rounds against one server have taken."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid
        self.best_s, self.requests, self.modelled = float("inf"), 0, 0
        self.cpu_s: float | None = 0.0
        self.client_s, self.took_ms = 0.0, list[float]()

    def ask(self, first: int, count: int, *, counts: bool) -> None:
        """Ask for so many users; a round that warms up does not count."""
        words = [str(value) for value in (self.port, first, count, _CONNECTIONS)]
        with subprocess.Popen(
            [sys.executable, "-m", "saros.lab.bench.load", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as client:  # fmt: skip
            assert client.stdin is not None and client.stdout is not None  # noqa: PT018
            client.stdout.readline()  # it is connected
            before = cpu_seconds(self.pid)
            client.stdin.write("\n")
            client.stdin.flush()
            output = client.stdout.readline()
            after = cpu_seconds(self.pid)
            _, errors = client.communicate(timeout=_CLIENT_S)
        if client.returncode:
            raise SarosError(f"the client ended with {client.returncode}:\n{errors[-2000:]}")
        if not counts:
            return
        told = json.loads(output)
        self.best_s, self.requests = min(self.best_s, told["seconds"] / count), self.requests + count
        self.cpu_s = None if self.cpu_s is None or before is None or after is None else self.cpu_s + after - before
        self.client_s, self.modelled = self.client_s + told["cpu_s"], self.modelled + told["modelled"]
        self.took_ms += told["took_ms"]

    def percentile(self, which: float) -> float:
        """Return that of the milliseconds of an answer."""
        return float(np.percentile(self.took_ms, which))

    @property
    def cpu_us(self) -> float | None:
        """CPU microseconds a request; None: not known here."""
        return None if self.cpu_s is None else 1e6 * self.cpu_s / self.requests

    @property
    def client_us(self) -> float:
        """CPU microseconds a request of the client."""
        return 1e6 * self.client_s / self.requests


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of a process so far; None where the system does not tell as Linux does."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request_lines(cluster: Cluster, stage: Stage, *, quick: bool) -> Iterator[Row]:
    """Ask all servers in turn; each user is asked for once."""
    rounds = 2 if quick else 6
    count = stage.users // rounds
    users, store = [f"user-{user}" for user in range(stage.users)], stage.trainers.store
    with tempfile.TemporaryDirectory() as scratch, Traffic(cluster, stage, RATE, 120), rows_of(users, store):
        ours, peers = Measured(stage.port, stage.api.pid), _peers(stage, Path(scratch))
        read, idle_s, idle_cpu_s = _users_read(stage), 0.0, 0.0
        for turn in range(rounds):
            ours.ask(turn * count, count, counts=turn > 0)
            start, before = time.perf_counter(), cpu_seconds(stage.api.pid)
            for peer in peers.values():
                peer.ask(turn * count, count, counts=turn > 0)
            idle_s += time.perf_counter() - start
            idle_cpu_s += (cpu_seconds(stage.api.pid) or 0.0) - (before or 0.0)
        read = _users_read(stage) - read
    items = asked(stage.port, "GET", "/v1/stats")[1]["items"]
    yield from _lines(f"hot GET, {items:,} items", ours, peers)
    yield row("users read from the store", "% of requests", 100 * read / (rounds * count))
    yield row("answers by the user's own row", "% of requests", 100 * ours.modelled / ours.requests)
    if ours.cpu_s is not None:
        note = f"CPU of the API while nobody asks; it is in its CPU a request, too, at {RATE:,} events/s"
        yield row("following the log", "ms/s", 1e3 * idle_cpu_s / idle_s, note=note)
    raw = peers["raw"]
    yield row("the client", "CPU µs/request", raw.client_us, against="the server it asks", peer=raw.cpu_us,
              note="while it asks the raw ASGI app")  # fmt: skip


def _peers(stage: Stage, scratch: Path) -> dict[str, Measured]:
    """Start the others, with an answer of ours."""
    status, answer = asked(stage.port, "GET", "/v1/users/user-0/recommendations?k=10")
    assert status == 200, answer
    file = scratch / "answer.json"
    file.write_text(json.dumps(answer, separators=(",", ":"), ensure_ascii=False))
    command = [sys.executable, "-m", "saros.lab.bench.answering"]
    started = {kind: stage.trainers.launch([*command, kind, str(file), stage.trainers.store.url]) for kind in _NAMES}
    return {kind: Measured(port_of(process), process.pid) for kind, process in started.items()}


def _users_read(stage: Stage) -> float:
    found = _READ.search(asked(stage.port, "GET", "/metrics")[1])
    assert found is not None, "the API counts them"
    return float(found[1])


def _lines(name: str, ours: Measured, peers: dict[str, Measured]) -> Iterator[Row]:
    goals = {"raw": RAW_GOAL, "model": FASTAPI_GOAL}
    for kind, peer in peers.items():
        ratio = peer.cpu_us / ours.cpu_us if peer.cpu_us and ours.cpu_us else None  # 0: less than a tick
        note = f"{_NOTES[kind]}; {_CPU if ours.cpu_us is not None else 'CPU is told on Linux only'}"
        yield row(name, "CPU µs/request", ours.cpu_us, against=_NAMES[kind], peer=peer.cpu_us, ratio=ratio,
                  goal=goals.get(kind), note=note)  # fmt: skip
    for kind, peer in peers.items():
        yield row(name, "requests/s", 1 / ours.best_s, against=_NAMES[kind], peer=1 / peer.best_s,
                  ratio=peer.best_s / ours.best_s, goal=goals.get(kind), note=f"{_NOTES[kind]}; {_CLOCK}")  # fmt: skip
    for which in (50, 99):
        for kind, peer in peers.items():
            mine, theirs = ours.percentile(which), peer.percentile(which)
            note = f"{_CONNECTIONS} connections, each with a request on its way at all times"
            yield row(
                f"{name}, p{which}", "ms", mine, against=_NAMES[kind], peer=theirs, ratio=theirs / mine, note=note
            )
