"""Genesis: what never changes for a model.

It is the first message of redo partition 0 that is a genesis for this topic; later ones do not count (rule 48), nor
does one that was on its way to a topic of the same name (rule 49). Store and snapshots repeat it.

A log that began with nothing can make the store again, and a fence that is not there is that of its beginning. One that
a rebase began goes on with rows that it does not hold: there the fences of the beginning stand in the store, and where
one is not there the rows are lost.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saros.core.jit import U64
from saros.core.rows import RowRules
from saros.errors import RefusedError
from saros.redo.fence import Fence, unpack_vector
from saros.wire.v1 import redo_pb2 as pb

VERSION = 1
_SHARD_ITEMS, _SHARDS_MIN = 20_000, 16
# What to do where a store or a topic is not that of the log.
REBASED = "`saros rebase` runs, was ended or has run: run it until it says that it is done, then start again"
WRONG_LOG = "bring the redo topic back as it was; or delete it, and `saros rebase` keeps the rows and begins a new log"


class Genesis(NamedTuple):
    """The constants of a model."""

    log_id: int
    hash_key: bytes  # 16
    rows: RowRules
    partitions: int
    shards: int
    events_topic_id: str
    redo_topic_id: str
    first: tuple[int, ...]  # of each partition, the first offset of the events that counts
    clears: bool = False  # a rebase took what was added out of the ledgers
    base: tuple[int, ...] = ()  # the logs that a rebase found in the store; none: this log began with nothing

    def key(self) -> U64:
        """Return the hash key as the core takes it."""
        return np.frombuffer(bytearray(self.hash_key), np.uint64)

    def start(self, partition: int) -> Fence:
        """Return the fence of a partition before its first record."""
        return Fence(self.log_id, -1, self.first[partition], 0)

    def starts(self) -> list[Fence]:
        """Return the fences of all partitions before their first records."""
        return [self.start(partition) for partition in range(self.partitions)]

    def stored(self, fence: Fence) -> bytes:
        """Return a user fence as the store holds it: before the first record there is none, but behind a rebase."""
        return b"" if fence.offset < 0 and not self.base else fence.pack()

    def found(self, stored: bytes, starts: Sequence[Fence], what: str) -> list[Fence]:
        """Return fences that the store holds, `starts` where it holds none; refuse those of another log (38, 40)."""
        if not stored and self.base:
            raise RefusedError(
                f"{what} is not there, and with it what it held before `saros rebase`: no log can make that again",
                "bring the store back as it was, or name another model and learn the events again",
            )
        fences = unpack_vector(stored, len(starts)) if stored else list(starts)
        if any(fence.log_id != self.log_id for fence in fences):
            raise RefusedError(f"{what} is of another log, {fences[0].log_id:x}", REBASED)
        return fences

    def packed(self) -> bytes:
        """Return it as a store holds it."""
        return self.message().SerializeToString(deterministic=True)

    def message(self) -> pb.Genesis:
        """Return it as it stands in the log."""
        return pb.Genesis(
            version=VERSION,
            log_id=self.log_id,
            hash_key=self.hash_key,
            seed=self.rows.seed,
            dim=self.rows.dim,
            item_scale=self.rows.item_scale,
            user_scale=self.rows.user_scale,
            user_start=self.rows.user_start,
            partitions=self.partitions,
            shards=self.shards,
            events_topic_id=self.events_topic_id,
            redo_topic_id=self.redo_topic_id,
            first=self.first,
            clears=self.clears,
            base=self.base,
        )

    def is_same_model(self, other: "Genesis") -> bool:
        """True if rows and keys mean the same to both: logs of one model, before and after a rebase."""
        mine, others = ((each.hash_key, each.rows, each.partitions, each.shards) for each in (self, other))
        return mine == others


def shards_of(items_max: int) -> int:
    """Return into how many shards a model of so many items is cut."""
    return max(_SHARDS_MIN, -(-items_max // _SHARD_ITEMS))


def genesis_of(message: pb.Genesis) -> Genesis:
    """Return a genesis from the log or the store."""
    if message.version != VERSION:
        raise RefusedError(
            f"the model's log is of format version {message.version}, not {VERSION}", "run the version that wrote it"
        )
    if len(message.hash_key) != 16 or len(message.first) != message.partitions or message.shards < 1:
        raise RefusedError("the model's genesis is damaged", "restore the redo topic, or begin anew with another name")
    rows = RowRules(message.dim, message.seed, message.item_scale, message.user_scale, message.user_start)
    return Genesis(
        message.log_id,
        message.hash_key,
        rows,
        message.partitions,
        message.shards,
        message.events_topic_id,
        message.redo_topic_id,
        tuple(message.first),
        message.clears,
        tuple(message.base),
    )


def read_genesis(data: bytes) -> Genesis:
    """Return the genesis that a shard holds."""
    return genesis_of(pb.Genesis.FromString(data))


def differences(one: Genesis, other: Genesis) -> list[str]:
    """Return the names of what is not the same."""
    return [name for name, a, b in zip(Genesis._fields, one, other, strict=True) if a != b]


def check_partitions(genesis: Genesis, topic: str, partitions: int) -> None:
    """Refuse a topic of events that has other partitions than the model: its users would be elsewhere."""
    if partitions != genesis.partitions:
        raise RefusedError(
            f"topic {topic} has {partitions} partitions and its model {genesis.partitions}, which never changes",
            f"name another model; or delete the topic and make it anew with {genesis.partitions} partitions, delete "
            "the redo topic too, and `saros rebase` keeps the model",
        )


def check_settings(genesis: Genesis, rows: RowRules, partitions: int, items_max: int) -> None:
    """Refuse settings that are not the model's; each has its own way out."""
    wrong: Sequence[tuple[str, object, object, str]] = (
        ("coordinates of a row", genesis.rows.dim, rows.dim, f"set SAROS_MODEL__DIM={genesis.rows.dim}"),
        ("the seed", genesis.rows.seed, rows.seed, f"set SAROS_MODEL__SEED={genesis.rows.seed}"),
        ("where rows start", genesis.rows[2:], rows[2:], "set SAROS_STEP__KIND as it was"),
        ("partitions", genesis.partitions, partitions, f"set SAROS_KAFKA__PARTITIONS={genesis.partitions}"),
    )
    for what, made, given, hint in wrong:
        if made != given:
            raise RefusedError(
                f"the model was made with other settings: {what} {made}, not {given}", f"{hint}, or name another model"
            )
    if shards_of(items_max) > genesis.shards:
        raise RefusedError(
            f"the model was made with {genesis.shards} shards, too few for {items_max} items",
            "lower SAROS_MODEL__ITEMS_MAX, or name another model and replay the events",
        )
