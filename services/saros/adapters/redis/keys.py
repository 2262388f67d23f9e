"""All names of keys in the store.

The model's name and the shard make the hash tag, `{saros:7}`: models live side by side, and all keys of a shard lie in
one slot of a cluster, so that one script or transaction reaches them. S shards; the users of partition p live in shard
p mod S, an item with key k in shard k mod S. Users and items stand in names as the 8 bytes of their keys,
little-endian.
"""

from typing import NamedTuple

from saros.core.jit import U64

KEY_BYTES = 8


class Keys(NamedTuple):
    """The names of a model's keys."""

    model: str
    shards: int

    def tag(self, shard: int) -> bytes:
        """Return what the names of all keys of a shard begin with."""
        assert 0 <= shard < self.shards, shard
        return b"{%s:%d}" % (self.model.encode(), shard)

    def everything(self) -> bytes:
        """Return the pattern that all keys of the model match, and no other model's."""
        return b"{%s:*" % self.model.encode()

    def meta(self, shard: int) -> bytes:
        """Genesis."""
        return self.tag(shard) + b":meta"

    def items(self, shard: int) -> bytes:
        """Hash: item -> row and counters."""
        return self.tag(shard) + b":item"

    def names(self, shard: int) -> bytes:
        """Hash: item -> its id and what else is told of it."""
        return self.tag(shard) + b":name"

    def vector(self, shard: int) -> bytes:
        """The fence of a shard's items: one of each partition."""
        return self.tag(shard) + b":ivec"

    def shard_of(self, partition: int) -> int:
        """Return the shard where the users of a partition live."""
        return partition % self.shards

    def shards_of(self, items: U64) -> U64:
        """Return the shard of each item."""
        return items % self.shards

    def head(self, partition: int) -> bytes:
        """The fence of a partition's users, then the partition's own state."""
        return self._of(b"pf", partition)

    def users(self, partition: int) -> bytes:
        """What the names of a partition's users begin with; a user's 8 bytes follow."""
        return self._of(b"u", partition) + b":"

    def ledgers(self, partition: int) -> bytes:
        """What the names of ledgers begin with. Hash: block number (4 bytes, little-endian) -> entry."""
        return self._of(b"l", partition) + b":"

    def seen(self, partition: int) -> bytes:
        """What the names of seen lists begin with."""
        return self._of(b"s", partition) + b":"

    def _of(self, kind: bytes, partition: int) -> bytes:
        return b"%s:%s:%d" % (self.tag(self.shard_of(partition)), kind, partition)


def settled(key: bytes) -> bytes:
    """Return the name of a key beside another that is written to know when all before it are on the disk."""
    return key + b":settled"


def with_keys(prefix: bytes, keys: U64) -> list[bytes]:
    """Return the names that begin with `prefix`, one for each key."""
    raw = keys.astype("<u8", copy=False).tobytes()
    return [prefix + raw[at : at + KEY_BYTES] for at in range(0, len(raw), KEY_BYTES)]
