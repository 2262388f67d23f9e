"""What one boot has made: items and users as of the log, and how they follow it.

A world is filled by one thread from the store (`saros.api.feed`) and then belongs to the event loop, which folds the
log into it slice by slice between queries. Tokens and readiness are judged by whole records: `reached` moves when all
of a record is in.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from saros.adapters.redo import Message
from saros.api.gates import Gates
from saros.api.observe import API_SERVABLE_SECONDS
from saros.api.people import People, Told, told_by
from saros.api.plan import ApiPlan
from saros.api.shelf import Shelf
from saros.core.guest import Guest
from saros.redo.fence import Fence
from saros.redo.record import Learned, learned
from saros.redo.replica import Replica
from saros.wire.v1 import redo_pb2 as pb

# Of a slice: items whose rows move, each with an entry that is made anew; and texts of items.
_ITEMS, _NAMES = 256, 256
_LOOKS_S = 2.0  # the log's ends are looked at more often than this


class Read(NamedTuple):
    """Messages of the log, read ahead, partition by partition: what their records hold is columns already."""

    messages: list[Message]
    blocks: Learned | None  # None: there is a message among them that is no record, or damaged
    users: Told | None


def read_ahead(messages: Sequence[Message], dim: int) -> Read:
    """Return messages with what they hold as columns. What Python spends on a column it spends once for all records."""
    ordered = sorted(messages, key=_partition_of)
    records = [(partition, offset, record) for partition, offset, record in ordered if record is not None]
    try:
        if len(records) == len(ordered):
            found = learned([record for _, _, record in records], dim)
            return Read(ordered, found, told_by(records, dim))
    except ValueError:
        pass
    return Read(ordered, None, None)


def _partition_of(message: Message) -> int:
    return message.partition


def _nobody(partition: int, record: pb.Record, took_s: float | None) -> None:
    """Let nobody hear of a record."""


class World:
    """Items and users as of the log."""

    def __init__(self, plan: ApiPlan, replica: Replica) -> None:
        """Take the items that the replica holds."""
        genesis = replica.genesis
        self.replica = replica
        self.shelf = Shelf(replica, plan.step, plan.items_max)
        self.people = People(genesis.partitions, genesis.rows.dim, plan.session, plan.gate, plan.cache_users)
        self.gates = Gates(genesis.partitions, plan.gate, genesis.log_id)
        self.guest = Guest(replica.items, plan.step)
        self.hash_key = genesis.key()
        self.newest_ms = 0
        # Hears of each record that was folded: its partition, and how old its oldest event was, where that is known.
        self.folded: Callable[[int, pb.Record, float | None], None] = _nobody
        self.reached = [fence.next for fence in replica.fences]
        self._at = [fence.offset for fence in replica.fences]
        # The ends of the log when it was last looked at; those that are to be reached, and when they were first seen.
        self._ends: list[int] = []
        self._goal: list[int] = []
        self._behind_s = self._looked_s = time.monotonic()
        self._unreached = True
        self._followed = False  # an end of the log was reached since the boot: what comes now is as late as it is
        self._folding = False  # fences are ahead of what is folded
        self.broken = False  # a record was folded in part: nothing more may be

    def begin(self, partition: int, fence: Fence, told: pb.Partition) -> None:
        """Take where the store has a partition's users, and what it says of the partition."""
        self.people.meet(partition, fence.offset)
        self.people.bound(partition, told.state)
        self.gates.note(partition, told)

    def absorb(self, read: Read) -> Iterator[None]:
        """Fold messages of the log, a slice at a time: all as one, or one by one where not all of them count."""
        self._folding = True
        dim, replica = self.replica.genesis.rows.dim, self.replica
        counted = [message for message in read.messages if replica.judge(*message)]
        as_one = len(counted) == len(read.messages) and all(replica.is_new(*message[:2]) for message in counted)
        for piece in [read] if as_one and read.blocks is not None else [read_ahead([each], dim) for each in counted]:
            yield from self._fold(piece)
        for partition, offset, _ in read.messages:
            self.reached[partition], self._at[partition] = replica.fences[partition].next, offset
        self._folding = False
        self._note_reached()

    def _fold(self, read: Read) -> Iterator[None]:
        """Fold records that count: users first, then rows, then what is told of items."""
        partition, offset, _ = read.messages[0]
        if read.blocks is None or read.users is None:
            raise ValueError(f"the record at {offset} of redo partition {partition} is damaged")
        yield from self.people.absorb(read.users)
        for place, _, record in read.messages:
            assert record is not None, "it has columns"
            self.gates.note(place, record.partition)
        # Several are folded as one only where no shard contained any of them.
        above = self.replica.above(partition, offset, read.blocks.blocks.items)
        for blocks in self.replica.fold_slices(read.blocks, above, _ITEMS):
            self.shelf.refresh(blocks.slots_of(), int(blocks.day.max(initial=0)))
            yield
        for place, _, record in read.messages:
            assert record is not None, "it has columns"
            yield from self._tell(record)
            stats, took_s = record.stats, None
            self.newest_ms = max(self.newest_ms, stats.newest_ms)
            # Not only while nothing waits: a backlog is when it is slow, and left out it would never show.
            if stats.oldest_ms and self._followed:
                took_s = max(0.0, time.time() - stats.oldest_ms / 1000)
                API_SERVABLE_SECONDS.observe(took_s)
            self.folded(place, record, took_s)

    def _tell(self, record: pb.Record) -> Iterator[None]:
        """Take what a record tells of items."""
        if record.names.key or record.upserts:
            for told in self.replica.told_slices(record, _NAMES):
                self.replica.name(told)
                yield from self.shelf.tell(told)
                yield

    def looked(self, now_s: float, ends: list[int]) -> None:
        """Hear where the log ended a moment ago."""
        self._looked_s, self._ends = now_s, ends
        # Ends that are not reached yet stay the goal: a log that grows all the time would never be caught up with.
        if not self._unreached or not self._goal:
            self._goal, self._behind_s, self._unreached = ends, now_s, True
        self._note_reached()

    def _note_reached(self) -> None:
        if self._unreached and self._goal:
            self._unreached = any(at + 1 < end for at, end in zip(self._at, self._goal, strict=True))
            self._followed = self._followed or not self._unreached

    @property
    def caught_up(self) -> bool:
        """True if all is folded that the shards contained (rule 12), and the log was followed to an end it had."""
        idle = not self._unreached and not self._folding and not self.broken
        return bool(self._goal) and idle and self.replica.caught_up

    def lag_s(self) -> float:
        """Return for how long there has been something in the log that is not folded, or nobody could look."""
        now_s = time.monotonic()
        unlooked_s = now_s - self._looked_s
        return max(now_s - self._behind_s if self._unreached else 0.0, unlooked_s if unlooked_s > _LOOKS_S else 0.0)

    def lag_messages(self) -> int:
        """Return how many messages were not folded when the log was last looked at."""
        return sum(max(0, end - at - 1) for at, end in zip(self._at, self._ends, strict=False))
