"""A store for the tests: the best server that can be had here, started once per run; and a cluster of three.

In this order:

1. given: the one whose URL is in SAROS_TEST_REDIS;
2. docker: a container of Redis, where a Docker engine answers;
3. embedded: the Valkey server that Saros itself starts where none is given. It is a real one.

The cluster is always of embedded servers. As for the broker, a kind that is not here falls through to the next and the
note says why, a kind that is here and does not start is an error, and no server outlives the tests.
"""

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from redis import Redis
from redis.exceptions import RedisError

from saros.adapters.redis import EmbeddedStore
from tests.servers import BrokerError, UnavailableError, container, free_ports

IMAGE = "redis:7"
READY = "Ready to accept connections"
SLOTS = 16384
NODES = 3
FORM_S = 30
GIVEN_S = 5

Kind = Literal["given", "docker", "embedded", "cluster"]


class StoreServer(NamedTuple):
    """A store that runs: the URLs of its servers, of which one is enough to find the others."""

    kind: Kind
    urls: tuple[str, ...]
    note: str = ""
    nodes: tuple[EmbeddedStore, ...] = ()

    @property
    def url(self) -> str:
        return self.urls[0]


@contextmanager
def start_store(scratch: Path) -> Iterator[StoreServer]:
    """Start the first kind that can be had, and end it. Its log and its data go to the directory `scratch`."""
    with ExitStack() as stack:
        yield _first(scratch, stack)


def _first(scratch: Path, stack: ExitStack) -> StoreServer:
    if url := os.environ.get("SAROS_TEST_REDIS"):
        return StoreServer("given", (_answering(url),))
    try:
        return StoreServer("docker", (stack.enter_context(docker()),))
    except UnavailableError as error:
        server = stack.enter_context(EmbeddedStore(scratch))
        return StoreServer("embedded", (server.address,), str(error), (server,))


def _answering(url: str) -> str:
    """Return the URL if a server answers there."""
    try:
        with connect(url) as client:
            client.ping()
    except RedisError as error:
        raise BrokerError(f"no store answers at SAROS_TEST_REDIS: {error}") from None
    return url


@contextmanager
def docker() -> Iterator[str]:
    """Run a container, and yield its URL."""
    (port,) = free_ports(1)
    with container(IMAGE, (6379, port), READY, command="redis-server --appendonly yes"):
        yield f"redis://127.0.0.1:{port}"


@contextmanager
def start_cluster(scratch: Path) -> Iterator[StoreServer]:
    """Run a cluster of embedded servers that share all slots."""
    ports, buses = (numbers := free_ports(2 * NODES))[:NODES], numbers[NODES:]
    with ExitStack() as stack:
        nodes = []
        for port, bus in zip(ports, buses, strict=True):
            options = {"port": str(port), "bind": "127.0.0.1", "cluster-enabled": "yes", "cluster-port": str(bus)}
            nodes.append(stack.enter_context(EmbeddedStore(scratch / str(port), options)))
        urls = tuple(f"redis://127.0.0.1:{port}" for port in ports)
        clients = [stack.enter_context(connect(url)) for url in urls]
        for k, client in enumerate(clients):
            client.execute_command(
                "CLUSTER ADDSLOTSRANGE", k * SLOTS // NODES, (k + 1) * SLOTS // NODES - 1
            )  # fmt: skip
            for port, bus in zip(ports, buses, strict=True):
                client.execute_command("CLUSTER MEET", "127.0.0.1", port, bus)
        await_whole(urls)
        yield StoreServer("cluster", urls, nodes=tuple(nodes))


def await_whole(urls: Sequence[str]) -> None:
    """Return when every node of a cluster says that all is well; a server on its own is well."""
    until = time.monotonic() + FORM_S
    whole = {"cluster_state": "ok", "cluster_known_nodes": str(NODES), "cluster_slots_ok": str(SLOTS)}
    for url in urls if len(urls) == NODES else ():
        with connect(url) as client:
            ask: Any = client.execute_command
            while not whole.items() <= (found := ask("CLUSTER INFO")).items():
                assert time.monotonic() < until, found
                time.sleep(0.02)


def connect(url: str) -> Redis:
    """Return a client of one server, beside all that is tested."""
    client: Redis = Redis.from_url(url, protocol=2, socket_timeout=GIVEN_S)
    return client


def contents(server: StoreServer, model: str) -> dict[bytes, Any]:
    """Return all that the store holds of a model: each key with its value, and whether it expires."""
    found: dict[bytes, Any] = {}
    for url in server.urls:
        with connect(url) as client:
            for key in client.scan_iter(b"{%s:*" % model.encode(), 1000):
                kind = client.type(key)
                value = client.hgetall(key) if kind == b"hash" else client.get(key) if kind == b"string" else kind
                found[key] = value, client.ttl(key) >= 0
    return found


class Proxy:
    """A port of this machine that leads to a server. It can cut a client off when the server has answered."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        self._to, self._context, self.cuts = urlsplit(url), context, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, self._server() as server:
            client = self._context.wrap_socket(client, server_side=True) if self._context else client
            with client:
                threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
                while answer := server.recv(1 << 16):
                    if self.cuts:
                        self.cuts -= 1
                        break
                    client.sendall(answer)
                client.shutdown(socket.SHUT_RDWR)

    def _server(self) -> socket.socket:
        if self._to.scheme != "unix":
            return socket.create_connection((self._to.hostname or "", self._to.port or 6379))
        server = socket.socket(socket.AF_UNIX)
        server.connect(unquote(self._to.path))
        return server

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while asked := client.recv(1 << 16):
                server.sendall(asked)
            server.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()
