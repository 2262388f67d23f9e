"""Looking at what runs: ports, the API's answers, the numbers that it tells, what a store holds."""

import hashlib
import http.client
import json
import secrets
import socket
import threading
from contextlib import suppress
from typing import Any, NamedTuple, Self

from saros.adapters.redis import Address, Store
from saros.errors import InputError
from saros.redo.genesis import Genesis, read_genesis, shards_of

_ANSWER_S = 2.0
_STREAM_S = 5.0  # a pulse comes each second
_AGAIN_S = 0.5
_CLOSE_S = 1.0  # all of it is to end within ten seconds
_PORTS = 100  # that are tried

_Pulse = dict[str, Any]


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def is_free(host: str, port: int) -> bool:
    """True if an API could listen there."""
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)  # two may be bound to one port as long as nobody listens
        except OSError:
            return False
    return True


def free_port(host: str, port: int, *, given: bool) -> int:
    """Return the port, or the next one that is free; one that was asked for has to be. 0 asks for any."""
    for number in range(port, min(port + 1 if given else port + _PORTS, 65_536)):
        if is_free(host, number):
            return number or any_port(host)
    if given:
        raise InputError(f"port {port} of {host} is taken", "give another with --port, or none: then one is found")
    raise InputError(f"no port of {host} from {port} on is free", "give one with --port")


def any_port(host: str = "127.0.0.1") -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.create_server((host, 0), family=_family(host)) as probe:
        port: int = probe.getsockname()[1]
    return port


def genesis_of(store: Address, model: str, items_max: int) -> Genesis | None:
    """Return the genesis of the model that a store holds, or None where it holds none."""
    found = Store(store, model, shards_of(items_max))
    try:
        # A shard may be lost; a model has no fewer than these.
        metas = filter(None, map(found.read_meta, range(shards_of(0))))
        return next((read_genesis(meta) for meta in metas), None)
    finally:
        found.close()


class Place(NamedTuple):
    """Where the API is, and the key it asks for, if it does."""

    host: str
    port: int
    key: str = ""

    @classmethod
    def new(cls, host: str, port: int, asks_for_keys: bool) -> Self:
        """Return the place of an API that listens at an address; it is to know a key of ours if it asks for one."""
        # Who listens everywhere listens here, too.
        near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return cls(near, port, f"saros_{secrets.token_urlsafe(32)}" if asks_for_keys else "")

    @property
    def entry(self) -> str:
        """What the API has to know of the key, empty where there is none."""
        return f"up:admin:{hashlib.sha256(self.key.encode()).hexdigest()}" if self.key else ""

    @property
    def url(self) -> str:
        """What a browser is told."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """What a request has to say."""
        return {"x-api-key": self.key} if self.key else {}

    def ask(self, path: str) -> tuple[int, Any]:
        """Return status and JSON of an answer; status 0: nobody answers."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_ANSWER_S)
        try:
            connection.request("GET", path, headers=self.headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()

    def why_not_ready(self) -> list[str] | None:
        """Return what the API waits for, nothing where it is ready; None: it does not answer."""
        status, told = self.ask("/readyz")
        if status == 0:
            return None
        return [] if status == 200 else [str(reason) for reason in told.get("reasons", [told.get("detail", "")])]


class Pulses:
    """The API's stream of numbers, read by a thread for as long as this is open."""

    def __init__(self, place: Place) -> None:
        self._place, self._stop = place, threading.Event()
        self._socket: socket.socket | None = None
        self._latest: _Pulse | None = None
        self._thread = threading.Thread(target=self._run, name="pulses", daemon=True)
        self._thread.start()

    @property
    def latest(self) -> _Pulse | None:
        """The last that was told, or None."""
        return self._latest

    def _run(self) -> None:
        while not self._stop.is_set():
            # An API that is away, or breaks off: others see to that.
            with suppress(OSError, http.client.HTTPException, ValueError):
                self._listen()
            self._stop.wait(_AGAIN_S)

    def _listen(self) -> None:
        connection = http.client.HTTPConnection(self._place.host, self._place.port, timeout=_STREAM_S)
        try:
            connection.request("GET", "/v1/live", headers=self._place.headers)
            self._socket = connection.sock
            answer, event = connection.getresponse(), b""
            if answer.status != 200:
                return
            while not self._stop.is_set():
                line = answer.readline()
                if not line:
                    return
                name, _, value = line.rstrip(b"\r\n").partition(b":")
                if name == b"event":
                    event = value.strip()
                elif name == b"data" and event == b"pulse":
                    self._latest = json.loads(value)
        finally:
            connection.close()

    def close(self) -> None:
        """Let go of the stream, so that the API need not wait for us."""
        self._stop.set()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(_CLOSE_S)


def last_object(said: str) -> dict[str, Any] | None:
    """Return the last line that is a whole JSON object, or None."""
    for line in reversed(said.splitlines()):
        if line.startswith("{") and line.endswith("}"):
            with suppress(ValueError):
                found: dict[str, Any] = json.loads(line)
                return found
    return None
