"""The store: rows of items, rows and states of users, ledgers, each under the fence of the log it was folded to.

Every write is a compare-and-swap of a fence, in one script; every read returns the fence with what it read, in one
transaction; what stands under the mark of a rebase is refused. Numbers of rules are those of the commit protocol.
Fences, vectors, rows, states and entries are bytes to it; only flush.lua knows where in a user's value the row stands,
to leave it as it is. Redis 6.2 or newer, Valkey, standalone or a cluster.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from saros.adapters.redis.client import Address, Client
from saros.adapters.redis.keys import KEY_BYTES, Keys, with_keys
from saros.core.jit import U8, U64
from saros.errors import RefusedError, StoreError
from saros.redo.fence import FENCE_BYTES

_ITEM = struct.Struct("<QI")
_NUMBER = struct.Struct("<i")
_NO_LOG = bytes(8)


def is_marked(found: bytes) -> bool:
    """True of what begins with the mark of a rebase: a fence of log 0, which is none."""
    return found.startswith(_NO_LOG)


class Shard(NamedTuple):
    """The items of a shard, and the vector of fences they were folded to."""

    vector: bytes  # empty where the shard was never written
    keys: U64  # [n]
    values: U8  # [n, w]
    names: dict[int, bytes]


class Users(NamedTuple):
    """Users of a partition, and the fence they were written with."""

    fence: bytes  # empty where the partition was never written
    values: list[bytes | None]


class Ledgers(NamedTuple):
    """Ledgers of a partition, by block number, and the fence they were written with."""

    fence: bytes  # empty where the partition was never written
    entries: list[dict[int, bytes]]


class Store:
    """What a model keeps, in so many shards."""

    def __init__(self, address: Address, model: str, shards: int) -> None:
        self.keys = Keys(model, shards)
        self._client = Client(address)
        self._flush, self._write_items = self._script("flush"), self._script("write_items")

    def _script(self, name: str) -> Callable[[list[bytes], list[Any]], Any]:
        return self._client.script(script_text(name))

    def _met(self, shard: int, found: bytes) -> bytes:
        """Return a fence or vector that was found; none counts under a mark (rules 28, 44)."""
        if is_marked(found):
            raise RefusedError(
                f"shard {shard} of the store is between two logs: a rebase was begun",
                "run `saros rebase` until it says that it is done, then start again",
            )
        return found

    def read_meta(self, shard: int) -> bytes | None:
        """Return the genesis that a shard was made with."""
        return self._client.get(self.keys.meta(shard))

    def write_meta(self, shard: int, genesis: bytes) -> bytes:
        """Write the genesis where there is none; return the one that stands there now."""
        key = self.keys.meta(shard)
        there: bytes = self._client.transaction(("SET", key, genesis, "NX"), ("GET", key))[1]
        return there

    def read_shard(self, shard: int) -> Shard:
        """Return the items of a shard with their vector (rule 7)."""
        keys = self.keys
        vector, items, names = self._client.transaction(
            ("GET", keys.vector(shard)), ("HGETALL", keys.items(shard)), ("HGETALL", keys.names(shard))
        )
        rows = items[1::2]
        widths = set(map(len, rows))
        if len(widths) > 1:
            raise StoreError(f"shard {shard} holds rows of different lengths: {sorted(widths)[:3]} bytes")
        # A bytearray, so that the array may be written to.
        values = np.frombuffer(bytearray().join(rows), np.uint8).reshape(len(rows), *widths or (0,))
        named = dict(zip(_u64(names[0::2]).tolist(), names[1::2], strict=True))
        return Shard(self._met(shard, vector or b""), _u64(items[0::2]), values, named)

    def read_vector(self, shard: int) -> bytes:
        """Return the vector of a shard's items; empty where there is none."""
        return self._met(shard, self._client.get(self.keys.vector(shard)) or b"")

    def write_shard(
        self, shard: int, expected: bytes, vector: bytes, keys: U64, values: U8, names: Mapping[int, bytes], *,
        whole: bool,
    ) -> bytes | None:  # fmt: skip
        """Write items if the vector is the expected one (rule 10); `whole`: and remove all others (rule 13).

        Return None where it was written, or the vector found, and then nothing was.
        """
        count, width = values.shape
        assert len(keys) == count, "a key for each row"
        told = b"".join([part for key, name in names.items() for part in (_ITEM.pack(key, len(name)), name)])
        found: bytes | None = self._write_items(
            [self.keys.vector(shard), self.keys.items(shard), self.keys.names(shard)],
            [expected, vector, int(whole), width, keys.astype("<u8", copy=False).tobytes(), values.tobytes(), told],
        )
        # A call that was cut off is sent again, and finds what it wrote.
        return None if found is None or found == vector else self._met(shard, found)

    def read_head(self, partition: int) -> bytes:
        """Return a partition's fence and state; empty where there is none."""
        return self._met(self.keys.shard_of(partition), self._client.get(self.keys.head(partition)) or b"")

    def read_users(self, partition: int, keys: U64) -> Users:
        """Return users of a partition with their fence (rule 16)."""
        names = with_keys(self.keys.users(partition), keys)
        fence, *values = self._client.transaction(self._fence(partition), *([("MGET", *names)] if names else []))
        return Users(self._met(self.keys.shard_of(partition), fence), values[0] if values else [])

    def read_many(self, wanted: Mapping[int, U64]) -> dict[int, Users]:
        """Return users of several partitions, those of each with their fence."""
        names = [with_keys(self.keys.users(partition), keys) for partition, keys in wanted.items()]
        groups = [
            [self._fence(partition), *([("MGET", *of)] if of else [])]
            for partition, of in zip(wanted, names, strict=True)
        ]
        return self.users_in(wanted, [answer for group in self._client.transactions(groups) for answer in group])

    def users_in(self, wanted: Mapping[int, Sized], answers: Sequence[Any]) -> dict[int, Users]:
        """Return users out of answers: of each partition that is wanted its fence, and its users if any are."""
        answer, found = iter(answers), {}
        for partition, keys in wanted.items():
            fence = self._met(self.keys.shard_of(partition), next(answer))
            found[partition] = Users(fence, next(answer) if len(keys) else [])
        return found

    @property
    def is_cluster(self) -> bool:
        """True if shards may lie on different servers."""
        return self._client.is_cluster

    def read_ledgers(self, partition: int, keys: U64) -> Ledgers:
        """Return ledgers of a partition with their fence (rule 25)."""
        names = with_keys(self.keys.ledgers(partition), keys)
        fence, *ledgers = self._client.transaction(self._fence(partition), *(("HGETALL", name) for name in names))
        return Ledgers(self._met(self.keys.shard_of(partition), fence), [_entries(ledger) for ledger in ledgers])

    def flush(self, partition: int, expected: bytes, head: bytes, operations: bytes, ttl_s: int) -> bytes | None:
        """Write one record's users and ledgers if the fence is the expected one (rules 14, 22, 23, 32, 34).

        `head` is the new fence and the partition's state; `operations` are laid out in flush.lua; `ttl_s` 0 is never.
        Return None where it was written, or the fence found, and then nothing was.
        """
        prefixes = [self.keys.users(partition), self.keys.ledgers(partition), self.keys.seen(partition)]
        found: bytes | None = self._flush(
            [self.keys.head(partition)], [expected, head, ttl_s, *prefixes, operations]
        )  # fmt: skip
        # A call that was cut off is sent again, and finds what it wrote.
        if found is None or found == head[:FENCE_BYTES]:
            return None
        return self._met(self.keys.shard_of(partition), found)

    def users_of(self, partition: int) -> Iterator[U64]:
        """Yield the keys of a partition's users in chunks; those that come or go meanwhile may be missing or twice."""
        return self._scan(partition, self.keys.users(partition))

    def ledger_keys(self, partition: int) -> Iterator[U64]:
        """Yield the keys of a partition's users that have a ledger, like `users_of`."""
        return self._scan(partition, self.keys.ledgers(partition))

    def wipe(self, shard: int | None = None) -> None:
        """Remove all keys of the model, or of one shard."""
        for names in self._client.scan(self.keys.everything() if shard is None else self.keys.tag(shard) + b"*"):
            self._client.unlink(names)

    def server_info(self) -> dict[str, dict[str, Any]]:
        """Return what every server says of itself, by its name."""
        return self._client.infos()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _fence(self, partition: int) -> tuple[Any, ...]:
        return "GETRANGE", self.keys.head(partition), 0, FENCE_BYTES - 1

    def _scan(self, partition: int, prefix: bytes) -> Iterator[U64]:
        """Yield the 8 bytes behind `prefix` of all keys that begin with it."""
        for names in self._client.scan(prefix + b"*", self.keys.head(partition)):
            yield _u64([name[len(prefix) :] for name in names])


def script_text(name: str) -> str:
    """Return one of the store's scripts."""
    return (files(__package__) / "scripts" / f"{name}.lua").read_text()


def _u64(fields: list[bytes]) -> U64:
    """Return keys out of their bytes."""
    if any(len(field) != KEY_BYTES for field in fields):
        raise StoreError(f"a key of the store does not have {KEY_BYTES} bytes")
    return np.frombuffer(bytearray().join(fields), "<u8").astype(np.uint64, copy=False)


def _entries(ledger: list[bytes]) -> dict[int, bytes]:
    """Return a ledger by block number."""
    return {_NUMBER.unpack(number)[0]: entry for number, entry in zip(ledger[0::2], ledger[1::2], strict=True)}
