"""Genesis: what never changes for a model.

It is the first message of redo partition 0 that is a genesis for this topic; later ones do not count (rule 48), nor
does one that was on its way to a topic of the same name (rule 49). Store and snapshots repeat it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saros.core.jit import U64
from saros.core.rows import RowRules
from saros.errors import RefusedError
from saros.redo.fence import Fence
from saros.wire.v1 import redo_pb2 as pb

VERSION = 1
_SHARD_ITEMS, _SHARDS_MIN = 20_000, 16


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

    def key(self) -> U64:
        """Return the hash key as the core takes it."""
        return np.frombuffer(bytearray(self.hash_key), np.uint64)

    def start(self, partition: int) -> Fence:
        """Return the fence of a partition before its first record."""
        return Fence(self.log_id, -1, self.first[partition], 0)

    def starts(self) -> list[Fence]:
        """Return the fences of all partitions before their first records."""
        return [self.start(partition) for partition in range(self.partitions)]

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
        )


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
    )


def differences(one: Genesis, other: Genesis) -> list[str]:
    """Return the names of what is not the same."""
    return [name for name, a, b in zip(Genesis._fields, one, other, strict=True) if a != b]


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
