"""A model as it is served, for a bench: a broker's backlog is learned, a trainer and an API run, events come in.

Trainer, API and whatever is measured beside them are processes of their own, at loopback only.
"""

import http.client
import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from saros.adapters.kafka import Cluster, Writer
from saros.adapters.names import topics_of
from saros.adapters.redis import Address
from saros.children import SAROS
from saros.errors import SarosError
from saros.lab.bench import shapes, train
from saros.lab.bench.train import DIM, ITEMS, PARTITIONS, Case, values_of
from saros.lab.bench.trainers import Trainers, await_until
from saros.lab.sending import Pace
from saros.wire.partitions import partitions_of

_LISTENING = re.compile(r"is listening .*?port=(\d+)")
_TIMEOUT_S = 30
_TURNS = 100  # times a second that events are sent


class Stage(NamedTuple):
    """What runs."""

    trainers: Trainers
    model: str
    users: int
    port: int  # of the API
    api: "subprocess.Popen[str]"


@contextmanager
def staged(cluster: Cluster, store: Address, case: Case) -> Iterator[Stage]:
    """Let a backlog be learned, and run a trainer and an API; in the end all of it is removed."""
    with Trainers(cluster, store, DIM, PARTITIONS) as trainers:
        backlog = train.fill(cluster, case)
        started: list[subprocess.Popen[str]] = []
        try:
            trainers.learn(backlog.model)
            started.append(trainers.start(backlog.model))
            # A cache of 0 is one of 4,096 users, the least it can be.
            settings = {"SAROS_API__HOST": "127.0.0.1", "SAROS_API__PORT": "0", "SAROS_API__CACHE_USERS": "0"}
            started.append(trainers.launch([*SAROS, "api"], SAROS_MODEL__NAME=backlog.model, **settings))
            port = port_of(started[-1])
            await_until(lambda: asked(port, "GET", "/readyz")[0] == 200)
            yield Stage(trainers, backlog.model, case.users, port, started[-1])
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                process.wait(_TIMEOUT_S)
            trainers.remove(backlog.model)


def port_of(process: "subprocess.Popen[str]") -> int:
    """Wait until a server says where it listens, and answers there."""
    found: list[int] = []

    def is_listening() -> bool:
        text = Path(str(process.args)).read_text(errors="replace")
        if process.poll() is not None:
            raise SarosError(f"a server ended with {process.returncode}:\n{text[-2000:]}")
        found[:] = map(int, _LISTENING.findall(text))
        return bool(found)

    await_until(is_listening)
    await_until(lambda: asked(found[0], "GET", "/livez")[0] != 0)
    return found[0]


def asked(
    port: int, method: str, path: str, body: object = None, connection: http.client.HTTPConnection | None = None
) -> tuple[int, Any]:
    """Ask a server; return status and what its JSON says, or its text. Status 0: it does not answer."""
    used = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        headers = {} if body is None else {"content-type": "application/json"}
        used.request(method, path, None if body is None else json.dumps(body), headers)
        answer = used.getresponse()
        data, kind = answer.read(), answer.getheader("content-type", "")
        return answer.status, json.loads(data) if "json" in kind else data.decode()
    except ConnectionRefusedError:
        return 0, None
    finally:
        if connection is None:
            used.close()


class Traffic:
    """Sends events at a rate, one in a message, as long as it is entered."""

    def __init__(self, cluster: Cluster, stage: Stage, rate: int, seconds: int) -> None:
        """`seconds` is how long there are other events; after that they come again."""
        self._topic, self._writer, self._rate = topics_of(stage.model).events, Writer(cluster), rate
        names = [f"user-{k}" for k in range(stage.users)]
        home = partitions_of(names, PARTITIONS).tolist()
        events = shapes.singles(max(1, rate * seconds // 12), stage.users, shapes.keys(ITEMS, 2), seed=rate)
        self._values = [(home[user], value) for user, value in values_of(events, names, live=True)]
        self._stop, self._failed = threading.Event(), list[BaseException]()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def _run(self) -> None:
        try:
            values, pace, some = cycle(self._values), Pace(self._rate), max(1, self._rate // _TURNS)
            while not self._stop.is_set():
                pace.wait(some)
                for partition, value in islice(values, some):
                    self._writer.send(self._topic, partition, value)
            self._writer.flush()
        except SarosError as error:
            self._failed.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        if self._failed and error is None:
            raise self._failed[0]
