"""Where the store is, how a client is made, and what its errors are called.

A standalone server and a cluster are used by the same code: which one it is, the server says at the start. Every call
goes through `Client._run`, which tries again where that may help, a bounded number of times, and then raises a
`StoreError`. A call may so be executed twice: whoever writes does it by compare-and-swap, or writes the same again.
Passwords stand in the address only, and no error repeats them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from redis import Redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    ConnectionError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)
from redis.retry import Retry

from saros.adapters.redis.keys import settled
from saros.errors import InputError, StoreError

_T = TypeVar("_T")

_SCAN_KEYS = 1000
_SETTLE_S = 3  # shorter than a call may take

# Between tries: 16 ms, then twice as long each time, up to a second.
_BACKOFF_BASE_S, _BACKOFF_CAP_S = 0.008, 1.0

# Away for now, or moved to another node: AskError holds MovedError too.
_AWAY = (ConnectionError, TimeoutError, ClusterError, RedisClusterException)
_PASSING = (*_AWAY, AskError, TryAgainError)
# These are ConnectionErrors to the client; trying again does not help, and may lock the account.
_SHUT_OUT = (AuthenticationError, AuthorizationError)


class Address(NamedTuple):
    """Where the store is, and how to talk to it."""

    url: str
    username: str = ""
    password: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    timeout_s: float = 5.0
    retries: int = 3

    def __repr__(self) -> str:
        """Say where it is; a password stays out."""
        return f"Address({re.sub('//.*@', '//***@', self.url).partition('?')[0]!r})"

    def options(self) -> dict[str, Any]:
        """Return the client's options. It does not try again by itself: a cluster's would do it without a pause."""
        files = {"ca_file": self.ca_file, "cert_file": self.cert_file, "key_file": self.key_file}
        for name, path in files.items():
            if path and not self.url.startswith("rediss://"):
                raise InputError(
                    f"SAROS_REDIS__{name.upper()} is set, and SAROS_REDIS__URL is without TLS", "give rediss://…"
                )
            if path and not Path(path).is_file():
                raise InputError(f"SAROS_REDIS__{name.upper()}={path} is not a file", "give the path of a PEM file")
        named = {
            "username": self.username,
            "password": self.password,
            "ssl_ca_certs": self.ca_file,
            "ssl_certfile": self.cert_file,
            "ssl_keyfile": self.key_file,
        }
        return {
            "protocol": 2,
            "decode_responses": False,
            "socket_timeout": self.timeout_s,
            "socket_connect_timeout": self.timeout_s,
            **({} if self.url.startswith("unix://") else {"socket_keepalive": True}),
            **{name: value for name, value in named.items() if value},
        }


class Client:
    """A standalone server or a cluster."""

    def __init__(self, address: Address) -> None:
        self._retry = Retry(ExponentialBackoff(_BACKOFF_CAP_S, _BACKOFF_BASE_S), address.retries, _PASSING)
        self._is_closed = False
        self._redis: Any = self._connect(address.url, address.options())
        self.is_cluster = isinstance(self._redis, RedisCluster)
        # HGETALL as the list the server sends, fields and values in turn: what reads it needs no dictionary.
        self._redis.set_response_callback("HGETALL", lambda answer, **_: answer)

    def _connect(self, url: str, options: dict[str, Any]) -> Redis | RedisCluster:
        once = Retry(NoBackoff(), 0)
        try:
            with translated():
                single: Redis = Redis.from_url(url, retry=once, **options)
                enabled = self._again(lambda: single.info("cluster")).get("cluster_enabled")
                if not enabled:
                    return single
                single.close()
                return self._again(lambda: RedisCluster.from_url(url, retry=once, **options))
        except (TypeError, ValueError):
            # Its text may hold a part of a password.
            raise InputError(
                "SAROS_REDIS__URL is not understood", "give redis://host:6379, rediss://host:6379 or unix:///path"
            ) from None

    def _again(self, do: Callable[[], _T]) -> _T:
        """Return what `do` does; where it fails in passing, after some more tries."""
        return self._retry.call_with_retry(do, self._give_up)

    def _give_up(self, error: Exception) -> None:
        if self._is_closed or isinstance(error, _SHUT_OUT):
            raise error

    def _run(self, do: Callable[[], _T]) -> _T:
        with translated():
            return self._again(do)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        found: bytes | None = self._run(lambda: self._redis.get(key))
        return found

    def unlink(self, keys: list[bytes]) -> None:
        """Remove keys."""
        self._run(lambda: self._redis.unlink(*keys))

    def transaction(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Return the answers to commands on keys of one slot, carried out as one."""

        def do() -> list[Any]:
            with self._redis.pipeline(transaction=True) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                return list(pipe.execute())

        return self._run(do)

    def transactions(self, groups: Sequence[Sequence[tuple[Any, ...]]]) -> list[list[Any]]:
        """Return the answers to groups of commands, each of one slot and carried out as one.

        One server does all of them in one round trip; a cluster has a round trip for each group.
        """
        if self.is_cluster:
            return [self.transaction(*group) for group in groups]
        answers = iter(self.transaction(*(command for group in groups for command in group)))
        return [[next(answers) for _ in group] for group in groups]

    def scan(self, pattern: bytes, key: bytes | None = None) -> Iterator[list[bytes]]:
        """Yield the keys that match in chunks: those of all servers, or of the one that has `key`."""
        for node in self._servers(key).values():
            cursor = 0
            while True:
                cursor, names = self._run(partial(node.scan, cursor, pattern, _SCAN_KEYS))
                if names:
                    yield names
                if not cursor:
                    break

    def infos(self) -> dict[str, dict[str, Any]]:
        """Return what every server says of itself, by its name."""
        return {name: self._run(server.info) for name, server in self._servers(replicas=True).items()}

    def _servers(self, key: bytes | None = None, *, replicas: bool = False) -> dict[str, Any]:
        """Return all servers by name, or the one that has `key`: for commands that name no key."""
        redis = self._redis
        if not self.is_cluster:
            return {"the store": redis}
        if key is not None:
            nodes = [redis.get_node_from_key(key)]
        else:
            nodes = redis.get_nodes() if replicas else redis.get_primaries()
        return {node.name: redis.get_redis_connection(node) for node in nodes}

    def script(self, text: str) -> Callable[[list[bytes], list[Any]], Any]:
        """Return a call of a script with its keys and arguments; the server keeps the script."""
        script = self._redis.register_script(text)
        return lambda keys, arguments: self._run(lambda: script(keys, arguments))

    def settle(self, keys: list[bytes]) -> str:
        """Return when all writes to the servers that have these keys are on their disks; or why nobody can tell."""
        servers = {name: (server, key) for key in keys for name, server in self._servers(key).items()}
        for server, key in servers.values():
            with server.client() as connection:
                try:
                    self._run(partial(_settle, connection, settled(key)))
                except StoreError as error:
                    if isinstance(error.__cause__, ResponseError):
                        return str(error)
                    raise
        return ""

    def close(self) -> None:
        """Close all connections: a call that another thread waits for fails, and is not tried again."""
        self._is_closed = True
        self._redis.close()


def _settle(connection: Any, key: bytes) -> None:
    """Wait until a write is on the disk, and so all before it: a server's file has one order."""
    connection.set(key, b"", ex=_SETTLE_S)
    if not connection.execute_command("WAITAOF", 1, 0, 1000 * _SETTLE_S)[0]:
        raise TimeoutError(f"not on its disk after {_SETTLE_S} s")


@contextmanager
def translated() -> Iterator[None]:
    """Raise the client's errors as ours."""
    try:
        yield
    except _SHUT_OUT as error:
        raise StoreError(f"the store does not let us in: {_text(error)}") from error
    except _AWAY as error:
        raise StoreError(f"the store does not answer: {_text(error)}") from error
    except RedisError as error:
        raise StoreError(f"the store refuses: {_text(error)}") from error


def _text(error: Exception) -> str:
    """Return what an error says, without the command that a transaction puts before it: its keys are users."""
    return str(error).rpartition("of pipeline caused error: ")[2] or type(error).__name__
