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

_USERS_LEAST, _USERS_MOST = 16_384, 50_000_000  # of a partition: a few micro-batches; whatever there is

_BEHIND_PART = 0.25  # of the memory: records that the store lacks


class LoopRules(NamedTuple):
    """What the loop is told."""

    poll_messages: int = 16_000
    batch_events: int = 16_000  # of a micro-batch, at most
    batch_users: int = 4000  # ... and users, where it has more than one message: the store takes them as one
    record_bytes: int = 2 * 2**20  # about, as large as a record should be
    shards_every_s: float = 1.0  # that item shards are written, dirty or not
    behind_bytes: int = 32 * 2**20  # of a partition's records that the store may lack
    taken_back_bytes: int = 8 * 2**20  # of ledgers that one micro-batch may take back
    user_ttl_s: int = 0  # after which the store lets users go; 0: never
    accept_expired: bool = False
    scenarios: tuple[str, ...] = ()  # that are counted
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
    memory_bytes: int  # that users in memory, and records that the store lacks, may take
    latest: bool
    instance: str
    rules: LoopRules


_OF_RULES = {"percentile": "blocks_max", "ignore_repeats": "repeat_clicks", "wait_ms": "wait_s"}


def unheeded(own: GateRules, in_force: GateRules) -> list[str]:
    """Return the settings of the gate that say something else than what is in force."""
    # Beside a fixed B there is nothing that a percentile could say.
    own, in_force = (rules._replace(percentile=0.0) if rules.blocks_max else rules for rules in (own, in_force))
    names = [_OF_RULES.get(name, name) for name in GateRules._fields if getattr(own, name) != getattr(in_force, name)]
    return [f"SAROS_GATE__{name.upper()}" for name in dict.fromkeys(names)]


def group_of(plan: Plan) -> str:
    """Return the name of the group that trainers of a model form."""
    return f"{plan.model}-trainer"


def new_learner(plan: Plan, items: Items, *, whole: bool = False) -> Learner:
    """Return a learner of one partition; `whole`: it keeps all users and ledgers in memory."""
    users_max = _USERS_MOST if whole else min(plan.users_max, cached_users(plan))
    return Learner(
        items, plan.step, plan.session, plan.gate, users_max=users_max, keep_added=whole, evict=not whole,
        ahead=not whole,
    )  # fmt: skip


def cached_users(plan: Plan) -> int:
    """Return how many users of a partition may be in memory, if this process owns all partitions."""
    one = Learner(Items(plan.rows, 1), plan.step, plan.session, plan.gate, users_max=1024).users
    user_bytes = sum(column.nbytes for column in (*one.arrays, *one.table.arrays())) / one.table.capacity
    return max(_USERS_LEAST, int(plan.memory_bytes * (1 - _BEHIND_PART) / plan.partitions / user_bytes))


def behind_bytes(plan: Plan) -> int:
    """Return how much of a partition's records the store may lack, if this process owns all partitions."""
    return min(plan.rules.behind_bytes, int(plan.memory_bytes * _BEHIND_PART / plan.partitions))
