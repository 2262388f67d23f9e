"""The mark of a rebase, and the store as a rebase sees it.

A mark is a fence of no log (its log id is 0) that is put before each fence of a shard: before the vector of its items,
and before the head of each partition whose users live there, also where there is none yet. Who writes or reads under a
fence compares its first bytes, and so meets the mark without looking for it (rules 28, 44). What it stands before is
still there, for the rebase to read.

Behind the 0 it holds a number and the topic it is for. The number is drawn anew with each page of ledgers that is done
(rule 55): a shard that fell back, or that another run went on with, has another one.
"""

import hashlib
import secrets
import struct
from typing import NamedTuple

from saros.adapters.redis.client import Address
from saros.adapters.redis.store import Store, is_marked
from saros.redo.fence import FENCE_BYTES

_MARK = struct.Struct("<QQ16s")
assert _MARK.size == FENCE_BYTES


def mark_for(topic_id: str) -> bytes:
    """Return a new mark for a redo topic."""
    return _MARK.pack(0, secrets.randbits(64), hashlib.blake2b(topic_id.encode(), digest_size=16).digest())


def _is_for(value: bytes, topic_id: str) -> bool:
    return is_marked(value) and _MARK.unpack_from(value)[2] == _MARK.unpack(mark_for(topic_id))[2]


def _bare(value: bytes) -> bytes:
    """Return what stands behind a mark, or all of it."""
    return value[FENCE_BYTES:] if is_marked(value) else value


class Standing(NamedTuple):
    """How a shard stands: what a rebase reads, and sets, as one."""

    meta: bytes  # genesis; empty where there is none
    vector: bytes
    heads: tuple[bytes, ...]  # of the partitions whose users live here

    @property
    def is_marked(self) -> bool:
        """True from the mark on until the shard is on its new log."""
        return is_marked(self.vector)

    def is_marked_for(self, topic_id: str) -> bool:
        """True if it has the mark for this topic."""
        return _is_for(self.vector, topic_id)

    def marked(self, topic_id: str) -> "Standing":
        """Return it with the mark for a topic, in the place of one for another."""
        mark = mark_for(topic_id)
        return Standing(self.meta, mark + _bare(self.vector), tuple(mark + _bare(head) for head in self.heads))

    def bare(self) -> "Standing":
        """Return it without its mark."""
        return Standing(self.meta, _bare(self.vector), tuple(map(_bare, self.heads)))


class MarkedStore(Store):
    """A store that reads and writes marked shards: to it, a mark is the fence that it is written as."""

    def __init__(self, address: Address, model: str, shards: int, partitions: int) -> None:
        super().__init__(address, model, shards)
        self._partitions = partitions
        self._swap = self._script("swap")

    def _met(self, shard: int, found: bytes) -> bytes:
        return found

    def partitions_of(self, shard: int) -> range:
        """Return the partitions whose users live in a shard."""
        return range(shard, self._partitions, self.keys.shards)

    def _keys_of(self, shard: int) -> list[bytes]:
        heads = [self.keys.head(partition) for partition in self.partitions_of(shard)]
        return [self.keys.meta(shard), self.keys.vector(shard), *heads]

    def standing(self, shard: int) -> Standing:
        """Return how a shard stands."""
        meta, vector, *heads = self._client.transaction(*(("GET", key) for key in self._keys_of(shard)))
        return Standing(meta or b"", vector or b"", tuple(head or b"" for head in heads))

    def swap(self, shard: int, old: Standing, new: Standing) -> bool:
        """Change how a shard stands; False where it does not stand as it was seen, and then nothing is changed."""
        pairs = zip((old.meta, old.vector, *old.heads), (new.meta, new.vector, *new.heads), strict=True)
        return bool(self._swap(self._keys_of(shard), [value for pair in pairs for value in pair]))

    def settle(self) -> str:
        """Return when all that was written is on the servers' disks (rule 46); or why that cannot be known."""
        return self._client.settle([self.keys.meta(shard) for shard in range(self.keys.shards)])
