"""One user, as the store has it: for whoever is asked about it."""

from typing import NamedTuple

import numpy as np

from saros.adapters.kafka import Writer
from saros.adapters.names import topics_of
from saros.adapters.redis import Store
from saros.core.codec import unpack_partition
from saros.core.ids import hash_texts
from saros.core.items import Items
from saros.core.users import CLOCK, COUNTED, MOVED, NEGATIVES, NUMBER
from saros.redo.fence import FENCE_BYTES
from saros.trainer.plan import Plan, new_learner
from saros.trainer.start import find_log
from saros.wire.operations import read_user
from saros.wire.partitions import partitions_of
from saros.wire.rare import gate_rules
from saros.wire.v1 import redo_pb2 as pb
from saros.wire.v1.events_pb2 import Event


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


def find_person(plan: Plan, user_id: str) -> Person | None:
    """Return what the store knows of a user, or None."""
    redo, genesis = find_log(plan)
    store, partition = (
        Store(plan.store, plan.model, genesis.shards),
        int(partitions_of([user_id], genesis.partitions)[0]),
    )
    keys = hash_texts(genesis.key(), [user_id])
    (value,) = store.read_users(partition, keys).values
    (ledger,) = store.read_ledgers(partition, keys).entries
    state = pb.Partition.FromString(store.read_head(partition)[FENCE_BYTES:])
    redo.close()
    store.close()
    if value is None:
        return None
    learner = new_learner(plan, Items(genesis.rows, 1))
    if state.HasField("gate"):
        learner.change_gate(gate_rules(state.gate))
    unpack_partition(state.state, learner.timeline, learner.gate)
    (slot,), stored = learner.intern(keys), read_user(value)
    rows = learner.users.arrays.rows[[slot]]
    learner.restore(np.array([slot], np.int32), stored.state, np.array([0, len(stored.state)]), rows)
    head, gate = learner.users.arrays.head[slot], learner.users.arrays.gate[slot]
    low, high = learner.gate.bounds
    waiting = sum(not entry[1] & 1 for entry in ledger.values())
    return Person(
        partition,
        int(gate[NUMBER]),
        int(gate[COUNTED]),
        "below" if gate[COUNTED] < low else "above" if gate[COUNTED] > high else "in_band",
        int(head[CLOCK]),
        int(head[NEGATIVES]),
        int(gate[MOVED]),
        waiting,
        len(ledger) - waiting,
    )


def erase_person(plan: Plan, user_id: str) -> None:
    """Ask for a user to be forgotten: an event like any other, and so in force when its partition comes to it."""
    event = Event(user_id=user_id)
    event.user_erase.SetInParent()
    writer, partition = Writer(plan.cluster), int(partitions_of([user_id], plan.partitions)[0])
    writer.send(topics_of(plan.model).events, partition, event.SerializeToString(), key=user_id.encode())
    writer.flush()
