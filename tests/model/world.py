"""The world of the model: the input, the redo log with the network before it, and the shards of the store.

Everything between two yields of a process is atomic. A contribution to an item is a number, and a table of items a sum
of them.
"""

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias, TypeVar

PARTITIONS, SHARDS, ITEMS, USERS = 3, 4, 6, 3  # users of each partition
INPUT_END, BLOCKS_MAX, IN_FLIGHT_MAX = 14, 4, 2  # input offsets of a partition; B; its records in flight
ROLLBACK_MAX = 9  # acknowledged writes that a shard may lose
WAITING, ADDED = 0, 1  # signs of blocks in ledgers
CHAIN = 1 << 80  # see contribution()

Result = TypeVar("Result")
Steps: TypeAlias = Generator[None, None, Result]  # a process, or a part of one
UserKey: TypeAlias = tuple[int, int]  # partition, user
UserState: TypeAlias = tuple[tuple[int, int], ...]  # of each block: its input offset, the nonce of its record


class ViolationError(Exception):
    """The protocol is broken; the text says where it shows."""


class RestartError(Exception):
    """A process must boot again."""


class Event(NamedTuple):
    """A block of a user, or its erase."""

    offset: int
    user: int
    erases: bool
    items: tuple[int, ...]


class Fence(NamedTuple):
    """How far a partition of redo has been folded; fences of one log are in the order of their offsets."""

    offset: int
    next: int  # input offset
    nonce: int  # of the last accepted record; 0 before the first
    log: int


class Genesis(NamedTuple):
    """What a log begins with. It stands in redo partition 0, and in every shard that is on this log."""

    log: int
    topic: int  # id of the redo topic that holds the log
    starts: tuple[int, ...]  # the input offset each partition goes on from
    clears: bool  # ledgers are cleared


class Entry(NamedTuple):
    """A block in a ledger."""

    sign: int  # 0 waits, 1 was added
    offset: int
    items: tuple[int, ...]
    context: UserState  # the user as it was when the block was closed
    parts: Mapping[int, int]  # item -> contribution; empty while it waits


Ledger: TypeAlias = Mapping[tuple[int, int], Entry]  # (block number, 0) -> entry; not 0 only where a rule is left out
Vector: TypeAlias = tuple[Fence, ...]  # of all partitions


class Record(NamedTuple):
    """What one micro-batch does, and nothing else has any effect."""

    log: int
    first: int
    end: int
    parent: int
    nonce: int
    items: Mapping[int, int]  # item -> sum of contributions
    users: Mapping[int, UserState]
    cleared: frozenset[int]  # users whose ledger is cleared, before `blocks` are put into it
    blocks: Mapping[int, Mapping[int, Entry]]  # user -> block number -> entry
    genesis: Genesis | None = None  # then it is nothing else


@dataclass
class Packet:
    """A record on its way."""

    partition: int
    record: Record
    failed: bool = False


def contribution(p: int, offset: int, item: int, nonce: int, context: UserState) -> int:
    """What a block adds to an item. The low part names event and item, the high part (above CHAIN) also the record
    that made it and the user's state it was computed on."""
    return hash((p, offset, item, nonce, context)) * CHAIN + hash((p, offset, item)) % (1 << 60)


FIRST = Genesis(log=1, topic=1, starts=(0,) * PARTITIONS, clears=False)


@dataclass
class ShardState:
    """All that a shard holds. Rows, users and ledgers are only replaced, never changed in place."""

    genesis: Genesis
    vector: Vector  # of the items
    fences: Vector  # of the users; only those of partitions that live in this shard mean something
    items: dict[int, int] = field(default_factory=dict)
    users: dict[UserKey, UserState] = field(default_factory=dict)
    ledgers: dict[UserKey, Ledger] = field(default_factory=dict)
    restoring: int = 0  # mark of a restore: 1 + pages written
    rebasing: int = 0  # mark of a rebase: the topic it is for
    pages: int = 0  # ledgers that rebase has cleared

    @property
    def marked(self) -> bool:
        """No fence counts: it can neither be read nor written, except by the one who set the mark."""
        return self.restoring > 0 or self.rebasing > 0

    def copy(self) -> "ShardState":
        """A state that can be changed."""
        return replace(self, items=dict(self.items), users=dict(self.users), ledgers=dict(self.ledgers))


class Shard:
    """A shard of the store: every write is atomic, and the newest ones may be lost although they were acknowledged."""

    def __init__(self, state: ShardState) -> None:
        self.snapshot = state
        self.reset(state)

    def reset(self, state: ShardState) -> None:
        """Be in this state, durably."""
        self.state, self.history = state, [state]  # history: the states it may fall back to

    def write(self, change: Callable[[ShardState], bool]) -> bool:
        """Change the state unless `change` refuses."""
        state = self.state.copy()
        if not change(state):
            return False
        self.state, self.history = state, [*self.history[-ROLLBACK_MAX:], state]
        return True


class World:
    """All that is not inside a process."""

    def __init__(self, seed: int, faults: tuple[str, ...], left_out: str | None, blocks_min: int) -> None:
        self.rng, self.faults, self.left_out, self.blocks_min = random.Random(seed), faults, left_out, blocks_min
        self.made_in = [0]  # nonce -> the log it was made for
        self.topic, self.logs = FIRST.topic, FIRST.log  # id of the redo topic; how many logs there are
        self.arrived = INPUT_END  # input offsets that are there
        start = self.start_of(FIRST)
        self.shards = [Shard(ShardState(FIRST, start, start)) for _ in range(SHARDS)]
        self.log: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        self.kept_from = [0] * PARTITIONS
        self.network: list[Packet] = []  # undecided
        self.limbo: list[Packet] = []  # decided, but still to land
        self.assignment = [{0, 1}, {2}]  # trainer slot -> partitions
        self.events = [[self._make_event(offset) for offset in range(INPUT_END)] for _ in range(PARTITIONS)]

    def _make_event(self, offset: int) -> Event | None:
        kind, user, items = self.rng.random(), self.rng.randrange(USERS), self.rng.sample(range(ITEMS), 2)
        return None if kind < 0.1 else Event(offset, user, kind < 0.18, tuple(items))  # None: a gap

    def rule(self, name: str) -> bool:
        """Whether this rule is kept."""
        return name != self.left_out

    def new_nonce(self, log: int) -> int:
        """A number that nobody else has."""
        self.made_in.append(log)
        return len(self.made_in) - 1

    def start_of(self, genesis: Genesis) -> Vector:
        """The fences a log begins with."""
        log = genesis.log if self.rule("fence log") else 0
        return tuple(Fence(-1, start, 0, log) for start in genesis.starts)

    def shard_of(self, p: int) -> Shard:
        """Where the users of a partition live."""
        return self.shards[p % SHARDS]

    def judge(self, log: int, fence: Fence, offset: int, record: Record) -> tuple[Fence, bool]:
        """For a reader of this log: the fence behind a record, and whether the record is accepted."""
        if record.genesis is not None or (record.log != log and self.rule("log id")):
            return fence._replace(offset=offset), False
        right_parent = record.parent == fence.nonce or not self.rule("parent")
        if (record.first == fence.next and right_parent) or not self.rule("first wins"):
            return Fence(offset, record.end, record.nonce, fence.log), True
        return fence._replace(offset=offset), False

    def _land(self, packet: Packet) -> None:
        self.log[packet.partition].append(packet.record)

    def deliver(self) -> None:
        """Let something become of a packet."""
        if self.limbo and self.rng.random() < 0.15:
            self._land(self.limbo.pop(self.rng.randrange(len(self.limbo))))
        elif self.network and "delivery" not in self.faults:
            self._land(self.network.pop(0))
        elif self.network:
            packet, fate = self.network.pop(self.rng.randrange(len(self.network))), self.rng.random()
            packet.failed = fate < 0.25
            if fate >= 0.10:  # up to .25 although it is reported as failed
                self._land(packet)
            if 0.05 <= fate < 0.15 or 0.25 <= fate < 0.30:  # lands later, from .10 on for the second time
                self.limbo.append(packet)

    def trim(self) -> None:
        """Forget the part of the log that nobody can need any more."""
        if not self.whole() and self.rule("trim log"):
            return
        for p in range(PARTITIONS):
            lowest = [len(self.log[p]) - 1]
            for shard in self.shards:
                for state in [*shard.history, shard.snapshot] if self.rule("trim") else [shard.state]:
                    if state.genesis.log == shard.state.genesis.log or not self.rule("trim log"):
                        lowest += [state.vector[p].offset] + [state.fences[p].offset] * (self.shard_of(p) is shard)
            self.kept_from[p] = max(self.kept_from[p], min(lowest) + 1)

    def lose_log(self) -> None:
        """Redo is gone, and the topic is made anew. What is on its way may land in it, and what was sent again."""
        again = [record for record in self.log[0] if record.genesis is not None and self.rng.random() < 0.3]
        self.limbo += [Packet(0, record) for record in again]
        self.log, self.kept_from = [[] for _ in range(PARTITIONS)], [0] * PARTITIONS
        self.topic += 1

    def whole(self) -> bool:
        """Whether all shards are on one log, that of the redo topic as it is."""
        states = [shard.state for shard in self.shards]
        logs = {state.genesis.log for state in states}
        return len(logs) == 1 and not any(state.rebasing or state.genesis.topic != self.topic for state in states)

    def new_log(self) -> int:
        """The id of a new log."""
        self.logs += 1
        return self.logs

    def send_genesis(self, genesis: Genesis) -> Packet:
        """Send a genesis on its way to redo partition 0."""
        nonce = self.new_nonce(genesis.log)
        packet = Packet(0, Record(genesis.log, -1, -1, -1, nonce, {}, {}, frozenset(), {}, genesis))
        self.network.append(packet)
        return packet

    def first_genesis(self, topic: int) -> Genesis | None:
        """The first genesis for this topic in the log."""
        for record in self.log[0][self.kept_from[0] :]:
            if record.genesis is not None and (record.genesis.topic == topic or not self.rule("genesis topic")):
                return record.genesis._replace(topic=topic)
        return None
