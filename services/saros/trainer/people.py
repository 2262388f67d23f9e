"""One user, for the command line."""

from saros.adapters.kafka import Writer
from saros.adapters.names import topics_of
from saros.adapters.person import Person, read_person
from saros.adapters.redis import Store
from saros.trainer.plan import Plan
from saros.trainer.start import find_log
from saros.wire.partitions import partitions_of
from saros.wire.v1.events_pb2 import Event


def find_person(plan: Plan, user_id: str) -> Person | None:
    """Return what the store knows of a user, or None."""
    redo, genesis = find_log(plan)
    store = Store(plan.store, plan.model, genesis.shards)
    _, found = read_person(store, genesis, plan.gate, user_id)
    redo.close()
    store.close()
    return found


def erase_person(plan: Plan, user_id: str) -> None:
    """Ask for a user to be forgotten: an event like any other, and so in force when its partition comes to it."""
    event = Event(user_id=user_id)
    event.user_erase.SetInParent()
    writer, partition = Writer(plan.cluster), int(partitions_of([user_id], plan.partitions)[0])
    writer.send(topics_of(plan.model).events, partition, event.SerializeToString(), key=user_id.encode())
    writer.flush()
