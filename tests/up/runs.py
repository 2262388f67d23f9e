"""`saros up` as a user runs it: the installed script in its own process, on a free port, in its own directory."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers import free_ports
from tests.trainer.runs import SAROS

START_S = 90
END_S = 10
CLEAN = {name: text for name, text in os.environ.items() if not name.startswith("SAROS_")}


class Run:
    """One `saros up` that runs."""

    def __init__(self, process: subprocess.Popen[bytes], data_dir: Path, port: int, errors: Path) -> None:
        self.process, self.data_dir, self.port, self._errors = process, data_dir, port, errors

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def errors(self) -> str:
        """All that stands on standard error."""
        return self._errors.read_text()

    def log(self, name: str) -> str:
        return (self.data_dir / "logs" / f"{name}.log").read_text()

    def ask(self, path: str, key: str = "") -> Any:
        request = urllib.request.Request(f"{self.url}{path}", headers={"x-api-key": key} if key else {})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def pulse(self) -> dict[str, Any]:
        """Return the next pulse of the API."""
        with urllib.request.urlopen(f"{self.url}/v1/live", timeout=10) as answer:
            event = b""
            for line in answer:
                name, _, value = line.rstrip().partition(b":")
                event = value.strip() if name == b"event" else event
                if name == b"data" and event == b"pulse":
                    found: dict[str, Any] = json.loads(value)
                    return found
        raise AssertionError("the stream ended")

    def traffic(self) -> dict[str, Any]:
        """Return what the simulator said last; nothing: it said nothing yet."""
        lines = self.log("traffic").splitlines(keepends=True)
        told = [line for line in lines if line.startswith("{") and line.endswith("}\n")]
        return json.loads(told[-1]) if told else {}

    def until(self, true: Callable[[], object], timeout_s: float) -> None:
        """Wait until something is so, while it runs."""
        end_s = time.monotonic() + timeout_s
        while not true():
            assert self.process.poll() is None, self.errors()
            assert time.monotonic() < end_s, f"{self.errors()}\n{self.traffic() if self.has('traffic') else ''}"
            time.sleep(0.2)

    def has(self, name: str) -> bool:
        return (self.data_dir / "logs" / f"{name}.log").exists()

    def await_url(self) -> None:
        """Wait until it has said its address, which is all that it says there."""
        said = self.data_dir / "said.txt"
        self.until(lambda: said.read_text().endswith("\n"), START_S)
        assert said.read_text() == f"SAROS_UP_URL={self.url}\n"

    def children(self) -> dict[int, str]:
        """Return all processes below this one, guards too, by id: when each was started, as ids come again."""
        below, found = {self.process.pid}, dict[int, str]()
        stats = {int(path.parent.name): stat for path in Path("/proc").glob("[0-9]*/stat") if (stat := _read(path))}
        for _ in range(3):
            below |= {pid for pid, stat in stats.items() if int(_fields(stat)[1]) in below}
        for pid in below - {self.process.pid}:
            found[pid] = _fields(stats[pid])[19]
        return found

    def child(self, command: str) -> int:
        """Return the process that runs a command, not its guard."""
        lines = {pid: _read(Path(f"/proc/{pid}/cmdline")).split("\0") for pid in self.children()}
        (found,) = [pid for pid, line in lines.items() if command in line and line[0] != "/bin/sh"]
        return found

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, and return the exit code; all children have to be gone within ten seconds."""
        children, begun_s = self.children(), time.monotonic()
        assert len(children) >= 4
        self.process.send_signal(number)
        code = self.process.wait(END_S)
        while left := {pid for pid, started in children.items() if is_alive(pid, started)}:
            assert time.monotonic() - begun_s < END_S, f"{left} live on"
            time.sleep(0.05)
        return code


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _fields(stat: str) -> list[str]:
    """Return what stands behind the name, which may hold anything: state, parent, …"""
    return stat.rpartition(")")[2].split()


def is_alive(pid: int, started: str) -> bool:
    stat = _read(Path(f"/proc/{pid}/stat"))
    return bool(stat) and _fields(stat)[19] == started and _fields(stat)[0] != "Z"


@contextmanager
def running(
    data_dir: Path, *options: str, port: int = 0, ready: bool = True, environ: Mapping[str, str] = {}
) -> Iterator[Run]:
    """Run it, on a free port if none is given; it is ready when this yields, and gone at the end."""
    port = port or free_ports(1)[0]
    data_dir.mkdir(parents=True, exist_ok=True)
    errors = data_dir / "errors.txt"
    command = [SAROS, "up", "--port", str(port), "--data-dir", str(data_dir), *options]
    with (
        errors.open("w") as output,
        (data_dir / "said.txt").open("w") as said,
        subprocess.Popen(command, env={**CLEAN, **environ}, stdout=said, stderr=output) as process,
    ):
        run = Run(process, data_dir, port, errors)
        try:
            if ready:
                run.await_url()
            yield run
        finally:
            if process.poll() is None:
                process.kill()
