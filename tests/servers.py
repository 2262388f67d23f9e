"""Servers for the tests: containers, child processes that do not outlive them, free ports, and last words."""

import gc
import random
import signal
import socket
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from saros import children

START_S = 60
ENGINE_S = 2
TAIL_LINES = 40


class UnavailableError(Exception):
    """This kind of server is not to be had here."""


class BrokerError(Exception):
    """A server that should be here does not work."""


@contextmanager
def container(
    image: str, ports: tuple[int, int], ready: str, environ: Mapping[str, str] = {}, command: str | None = None
) -> Iterator[None]:
    """Run a container until its log has said that it is ready; a port inside is one of this machine's."""
    ask_engine()
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    running = DockerContainer(image).with_bind_ports(*ports)
    for name, value in environ.items():
        running.with_env(name, value)
    if command is not None:
        running.with_command(command)
    running.waiting_for(LogMessageWaitStrategy(ready).with_startup_timeout(START_S))
    try:
        try:
            running.start()
        except DockerException as error:
            raise UnavailableError(f"docker: {image} cannot be run: {error}") from None
        except (RuntimeError, TimeoutError) as error:
            log = b"".join(running.get_logs()).decode(errors="replace")
            raise BrokerError(obituary(f"{image} did not start", log)) from error
        yield
    finally:
        running.stop()


def ask_engine() -> None:
    """Return when a Docker engine answers."""
    from docker.errors import DockerException
    from testcontainers.core.docker_client import DockerClient

    reason = ""
    # Where nobody listens, docker leaves its socket to the garbage collector, and that would warn in some later test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            engine = DockerClient(timeout=ENGINE_S).client
            engine.ping()
            engine.close()
        except (DockerException, OSError) as error:
            reason = f"docker: no engine answers ({_cause(error)})"
        if reason:
            gc.collect()
            raise UnavailableError(reason)


def _cause(error: BaseException) -> BaseException:
    """Return the error that all began with."""
    return error if error.__context__ is None else _cause(error.__context__)


@contextmanager
def spawned(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that ends when the `with` block does, and also when this process dies without reaching its end."""
    with log.open("ab") as output:
        process = children.start(command, output)
    try:
        yield process
    finally:
        # As in a crash: whoever wants it to end in order has done so before.
        children.end(process, signal.SIGKILL, START_S)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, from below those that systems hand out to whoever asks for just any: there
    is a while until a server takes them."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(20_000, 32_000), 1_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise BrokerError("no free port")


def obituary(what: str, log: str) -> str:
    return children.last_words(what, log, TAIL_LINES)
