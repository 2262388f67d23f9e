"""Trainers as processes of their own, for a bench: started, watched, killed, and what they made removed."""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from saros.adapters.kafka import Admin, Cluster, Reader
from saros.adapters.names import topics_of
from saros.adapters.redis import Address, Store
from saros.children import SAROS
from saros.errors import SarosError

_TOLD = re.compile(r"what was taken is learned (.*)")
_PEAK = re.compile(r"^VmHWM:\s*(\d+) kB", re.MULTILINE)
_WAIT_S = 120.0
_LOOK_S = 0.02


class Told(NamedTuple):
    """What trainers said when they stopped."""

    events: int
    seconds: float  # from the first event taken until the last one was in the store
    records: int
    redo_bytes: int
    crossed: int  # times that a user passed B with blocks to be taken back
    memory_mb: float | None  # most that one of them held; None where the system does not tell as Linux does


class Trainers:
    """Runs trainers of any model."""

    def __init__(self, cluster: Cluster, store: Address, dim: int, partitions: int) -> None:
        self.cluster, self.store, self._stack = cluster, store, ExitStack()
        self._settings = {
            "SAROS_MODEL__DIM": str(dim),
            "SAROS_KAFKA__PARTITIONS": str(partitions),
            "SAROS_KAFKA__BOOTSTRAP": cluster.bootstrap,
            "SAROS_REDIS__URL": store.url,
            "SAROS_LOG__FORMAT": "text",  # which is read here
        }

    def __enter__(self) -> Self:
        self._scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def start(self, model: str, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Start a trainer; it does not outlive us."""
        return self.launch([*SAROS, "trainer", *arguments], SAROS_MODEL__NAME=model, **more)

    def launch(self, command: Sequence[str], **more: str) -> subprocess.Popen[str]:
        """Start a process with the settings of trainers; it does not outlive us. `args` is the file it writes to."""
        with tempfile.NamedTemporaryFile("w", dir=self._scratch, suffix=".log", delete=False) as output:
            process = subprocess.Popen(
                command, env={**os.environ, **self._settings, **more},
                stdout=output, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        process.args = output.name
        self._stack.callback(_end, process)
        return process

    def learn(self, model: str, count: int = 1, more: Mapping[str, str] = {}) -> Told:
        """Let so many trainers learn all that there is."""
        processes = [self.start(model, "--until-drained", **more) for _ in range(count)]
        ended = [_wait(process) for process in processes]
        tallies = [tally for tally, _ in ended if tally["events"]]
        return Told(
            int(sum(tally["events"] for tally in tallies)),
            max(tally["ended_s"] for tally in tallies) - min(tally["begun_s"] for tally in tallies),
            int(sum(tally["records"] for tally in tallies)),
            int(sum(tally["redo_bytes"] for tally in tallies)),
            int(sum(tally["crossed"] for tally in tallies)),
            max((memory_mb for _, memory_mb in ended if memory_mb is not None), default=None),
        )

    def remove(self, model: str) -> None:
        """Remove what is there of a model."""
        admin = Admin(self.cluster)
        for name in topics_of(model):
            if admin.find(name) is not None:
                admin.delete(name)
        store = Store(self.store, model, 1)
        store.wipe()
        store.close()

    def has_log(self, model: str) -> bool:
        """True if the model's log is there."""
        return Admin(self.cluster).find(topics_of(model).redo) is not None

    def redo_ends(self, model: str, partitions: int) -> list[int]:
        """Return where the log ends now."""
        reader = Reader(self.cluster, f"{model}-bench")
        ends = [reader.watermarks(topics_of(model).redo, partition)[1] for partition in range(partitions)]
        reader.close()
        return ends


def await_until(true: Callable[[], bool]) -> float:
    """Wait until something is so; return the seconds it took."""
    start = time.monotonic()
    while not true():
        if time.monotonic() - start > _WAIT_S:
            raise SarosError("a process did not come on")
        time.sleep(_LOOK_S)
    return time.monotonic() - start


def _wait(process: subprocess.Popen[str]) -> tuple[dict[str, float], float | None]:
    """Wait for a trainer that stops by itself; return its tally, and the most memory it held."""
    peak_mb = None
    while process.poll() is None:
        peak_mb = _peak_mb(process.pid) or peak_mb
        time.sleep(_LOOK_S)
    text = Path(str(process.args)).read_text(errors="replace")
    told = _TOLD.search(text)
    if process.returncode != 0 or told is None:
        raise SarosError(f"a trainer ended with {process.returncode}:\n{text[-2000:]}")
    tally = {name: float(value) for name, value in (part.split("=") for part in told[1].split())}
    return tally, peak_mb


def _peak_mb(pid: int) -> float | None:
    """Return the most memory that a process has held so far. (What `wait4` tells is at least what its parent had as it
    was started.)"""
    try:
        found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
    except OSError:  # no Linux, or it has just ended
        return None
    return int(found[1]) / 1024 if found else None


def _end(process: subprocess.Popen[str]) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)
        process.wait()
