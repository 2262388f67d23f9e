"""What a trainer is told: all of it values, read from the settings by `saros.trainer.commands`."""

from typing import NamedTuple

from saros.adapters.kafka import Cluster
from saros.adapters.redis import Address
from saros.core.gate import GateRules
from saros.core.items import Items
from saros.core.learner import Learner
from saros.core.rows import RowRules
from saros.core.sessions import SessionRules
from saros.core.step import StepRules


class LoopRules(NamedTuple):
    """What the loop is told."""

    poll_messages: int = 16_000
    batch_events: int = 16_000  # of a micro-batch, at most
    batch_users: int = 4000  # ... and users, where it has more than one message: the store takes them as one
    record_bytes: int = 2 * 2**20  # about, as large as a record should be
    taken_back_bytes: int = 8 * 2**20  # of ledgers that one micro-batch may take back
    user_ttl_s: int = 0
    stop_at_gap: bool = False


class Plan(NamedTuple):
    """All that a trainer is told."""

    model: str
    cluster: Cluster
    partitions: int
    replication: int
    create_topics: bool
    store: Address
    rows: RowRules
    step: StepRules
    session: SessionRules
    gate: GateRules
    items_max: int
    users_max: int
    latest: bool
    instance: str
    rules: LoopRules


def group_of(plan: Plan) -> str:
    """Return the name of the group that trainers of a model form."""
    return f"{plan.model}-trainer"


def new_learner(plan: Plan, items: Items, *, whole: bool = False) -> Learner:
    """Return a learner of one partition; `whole`: it keeps all users and ledgers in memory."""
    return Learner(
        items, plan.step, plan.session, plan.gate, users_max=plan.users_max, keep_added=whole, evict=not whole
    )
