"""The stack of docker-compose.yml for a test: a project of its own, with ports of its own, of which nothing is left."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

from saros.client import Client
from tests.servers import UnavailableError, ask_engine, free_ports

ROOT = Path(__file__).parents[2]
PORTS = ("KAFKA_PORT", "API_PORT", "API_1_PORT", "API_2_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
IMAGE = "saros"
BUILD_S, UP_S, CALL_S = 1800, 600, 120


def ask_compose() -> None:
    """Return if an engine answers, and `docker compose` is there."""
    ask_engine()
    try:
        run("docker", "compose", "version")
    except (FileNotFoundError, subprocess.CalledProcessError):
        raise UnavailableError("docker: there is no `docker compose`") from None


def run(*command: str, environ: Mapping[str, str] = {}, timeout_s: float = CALL_S) -> str:
    """Run a command and return what it printed; where it fails, the error has its last words."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SAROS_")}
    done = subprocess.run(command, cwd=ROOT, env={**own, **environ}, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        error.add_note("\n".join([*done.stdout.splitlines()[-20:], *done.stderr.splitlines()[-20:]]))
        raise error
    return done.stdout


class Stack:
    """Containers of one project."""

    def __init__(self) -> None:
        self.project = f"saros-test-{uuid4().hex[:8]}"
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))

    def compose(self, *arguments: str, timeout_s: float = CALL_S) -> str:
        """Run `docker compose` for this project."""
        environ = {name: str(port) for name, port in self.ports.items()}
        command = ("docker", "compose", "--profile", "*", "--project-name", self.project, *arguments)
        return run(*command, environ=environ, timeout_s=timeout_s)

    def up(self, *services: str) -> None:
        """Start services with all that they need, and return when they are healthy."""
        self.compose("up", "--detach", *services, timeout_s=UP_S)
        for service in services:
            self.await_healthy(service)

    def execute(self, service: str, *command: str) -> str:
        """Run a command in a container that runs, and return what it printed."""
        return self.compose("exec", "--no-TTY", service, *command)

    def inspect(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of a service's container."""
        container = self.compose("ps", "--all", "--quiet", service).strip()
        found: dict[str, Any] = json.loads(run("docker", "inspect", container))[0]
        return found

    def await_healthy(self, service: str, restarts: int = 0) -> None:
        """Wait until a service is well, having been started again so often."""

        def healthy() -> bool:
            found = self.inspect(service)
            is_well = found["State"].get("Health", {}).get("Status") == "healthy"
            return is_well and int(found["RestartCount"]) >= restarts

        await_until(healthy, UP_S, lambda: self.logs(service))

    def kill(self, service: str) -> int:
        """Kill the process of a container as a crash would, with no word to the engine, which is to start it again;
        return how often that will have been. (`docker kill` is taken for the operator's wish, and it stays down.)"""
        found = self.inspect(service)
        slay = f"import os; os.kill({found['State']['Pid']}, 9)"
        run("docker", "run", "--rm", "--pid", "host", "--user", "0", "--entrypoint", "python", IMAGE, "-c", slay)
        return int(found["RestartCount"]) + 1

    def key(self, name: str) -> str:
        """Return one of the keys that were made at the first start."""
        told = self.compose("run", "--rm", "--no-deps", "--no-TTY", "keys", f"cat {name}")
        found = re.search(r"^key +(\S+)$", told, flags=re.MULTILINE)
        assert found is not None, told
        return found[1]

    def client(self, port: str = "API_PORT", key: str | None = None) -> Client:
        """Return a client of an API, from outside."""
        return Client(f"http://127.0.0.1:{self.ports[port]}", key=key)

    def get_json(self, port: str, path: str) -> Any:
        """Return what a service answers, from outside."""
        with urlopen(f"http://127.0.0.1:{self.ports[port]}{path}", timeout=10) as answer:
            return json.load(answer)

    def targets(self) -> list[tuple[str, str, str]]:
        """Return what Prometheus looks at, in order: job, model, and 1 where it answers."""
        rows = self.get_json("PROMETHEUS_PORT", "/api/v1/query?query=up")["data"]["result"]
        return sorted((row["metric"]["job"], row["metric"].get("model", ""), row["value"][1]) for row in rows)

    def audit(self, service: str) -> dict[str, Any]:
        """Return what `saros audit` finds in the container of a trainer."""
        found: dict[str, Any] = json.loads(self.execute(service, "sh", "-c", "saros audit --json || true"))
        return found

    def await_counted(self, service: str, events: int) -> dict[str, Any]:
        """Wait until the store has so many events, and return what the audit finds then."""
        found: dict[str, Any] = {}

        def counted() -> bool:
            found.update(self.audit(service))
            return bool(found["differences"]) or found["events"] >= events

        await_until(counted, 120, lambda: f"{found}, and {events} were sent\n{self.logs(service)}")
        return found

    def logs(self, *services: str) -> str:
        """Return the last words of services."""
        return self.compose("logs", "--no-color", "--tail", "40", *services)


@contextmanager
def new_stack() -> Iterator[Stack]:
    """Yield a stack, and remove all of it: containers, networks, volumes. The image stays."""
    stack = Stack()
    try:
        yield stack
    finally:
        stack.compose("down", "--volumes", "--timeout", "5", timeout_s=UP_S)


def await_until(true: Callable[[], bool], timeout_s: float, what: Callable[[], str] = lambda: "") -> None:
    """Wait until something is so."""
    until = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until, what()
        time.sleep(0.5)
