"""One user, as the store has it: for whoever is asked about it."""

from typing import NamedTuple

from saros.adapters.redis import Store
from saros.core.codec import bounds_of
from saros.core.gate import GateRules, gate_state
from saros.core.glance import summary_of
from saros.core.ids import hash_texts
from saros.errors import StoreError
from saros.redo.fence import FENCE_BYTES, Fence
from saros.redo.genesis import Genesis
from saros.wire.operations import read_user
from saros.wire.partitions import partitions_of
from saros.wire.v1 import redo_pb2 as pb

_TRIES = 20


class Person(NamedTuple):
    """What is known of a user."""

    partition: int
    blocks: int  # closed, since it was first seen or erased
    counted: int  # of them in the gate's window, when the last one closed
    band: str  # below, in_band or above
    last_seen_ms: int
    shown: int  # items that wait for a click
    moved: int  # times its row has learned
    waiting: int  # blocks in its ledger that wait
    added: int  # ... and that can be taken back
    taken_back: int  # blocks, since it was first seen or erased
    recently_taken: int  # ... of those in the window

    @property
    def left_out(self) -> int:
        """Blocks in the window that never taught: beyond B, repeats, there was no room for them, or dropped at B."""
        return max(0, self.counted - self.waiting - self.added - self.recently_taken)


def read_person(store: Store, genesis: Genesis, gate: GateRules, user_id: str) -> tuple[Fence, Person | None]:
    """Return what the store knows of a user, or None, and the fence of its partition; `gate` are the first rules."""
    partition = int(partitions_of([user_id], genesis.partitions)[0])
    keys = hash_texts(genesis.key(), [user_id])
    for _ in range(_TRIES):
        users, ledgers, head = (
            store.read_users(partition, keys), store.read_ledgers(partition, keys), store.read_head(partition)
        )  # fmt: skip
        if users.fence == ledgers.fence == head[:FENCE_BYTES]:
            break
    else:
        raise StoreError(f"partition {partition} moves on too fast for a user to be read as of one moment")
    (fence,) = genesis.found(users.fence, [genesis.start(partition)], f"partition {partition} of the store")
    (value,), (ledger,) = users.values, ledgers.entries
    if value is None:
        return fence, None
    state = pb.Partition.FromString(head[FENCE_BYTES:]).state
    low, high = bounds_of(state) if state else gate_state(gate).bounds.tolist()
    found, waiting = summary_of(read_user(value).state), sum(not entry[1] & 1 for entry in ledger.values())
    band = "below" if found.counted < low else "above" if found.counted > high else "in_band"
    return fence, Person(
        partition, found.blocks, found.counted, band, found.clock_ms, found.negatives, found.moved, waiting,
        len(ledger) - waiting, found.taken_back, found.recently_taken,
    )  # fmt: skip
