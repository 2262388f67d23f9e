"""Counting a partition's events again, from the first one on, by a learner that has seen nothing else.

Users, ledgers and the counters of items have to be what the store holds; rows need not, since learning in other
micro-batches gives other coefficients. Where the item table was full, whether a block found room depends on what all
partitions had added by then: there the log's word is taken, which items were let in, and events are cut as it cut them.
"""

from collections.abc import Callable, Iterator, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saros.adapters.intake import decode
from saros.adapters.kafka import LostPlaceError, Reader
from saros.adapters.places import ANOTHER_LOG
from saros.core.codec_users import pack_users
from saros.core.items import Items
from saros.core.learner import Batch, Learner
from saros.core.users import CLOCK, NEW
from saros.errors import BrokerError, RefusedError
from saros.redo.fence import Fence
from saros.redo.genesis import Genesis
from saros.trainer.plan import Plan, new_learner
from saros.trainer.stored import Stored
from saros.wire.decode import Decoder
from saros.wire.rare import gate_rules, supersedes
from saros.wire.v1.events_pb2 import GateChange

_CHUNK = 1000
_POLL_S = 0.02
_QUIET_POLLS = 1500  # without a message, where some are known to be there
_ROOM = 1 << 30  # items: enough
_LEVELS = slice(44, 52)  # of a user's state: how its items have scored, which depends on the rows


class Replayed(NamedTuple):
    """What the recount takes from the log."""

    expired: Set[int]  # users that the store has let go, ledgers and all, as nothing was said of them for so long
    ends: Set[int]  # where the records ended, if blocks found no room; else none
    items: Set[int] | None  # that were let in then, by this partition; None: there was room for all
    gate: GateChange | None  # that it began with; None: the log does not say, so it was that of the settings


class Recount:
    """Counts the events of a model again, partition by partition."""

    def __init__(self, plan: Plan, genesis: Genesis, reader: Reader, topic: str, differ: Callable[[str], None]) -> None:
        """`differ` is told what is not the same."""
        self._plan, self._genesis, self._reader, self._topic, self._differ = plan, genesis, reader, topic, differ
        self.items = Items(genesis.rows, plan.items_max)  # with the counters of all partitions
        self.events = 0
        self.trimmed: list[int] = []  # partitions whose first events are gone: these were not counted, or not all

    def count(self, partition: int, stored: Stored, vectors: list[list[Fence]], replayed: Replayed) -> None:
        """Count a partition; items as far as each shard's vector, users as far as their fence."""
        reached = np.array([vector[partition].next for vector in vectors], np.int64)
        if not self._is_there(partition, max(stored.fence.next, int(reached.max()))):
            self.trimmed.append(partition)
            return
        plan = self._plan if replayed.gate is None else self._plan._replace(gate=gate_rules(replayed.gate))
        learner = new_learner(plan, self._room(replayed), whole=True)
        ends = sorted({stored.fence.next, *reached.tolist(), *replayed.ends})
        if stored.fence.next == self._genesis.first[partition]:
            self._compare(partition, learner, stored, replayed)
        try:
            for end, batch in self._learn(partition, learner, ends):
                _count(self.items, batch, reached >= end)
                if end == stored.fence.next:
                    self._compare(partition, learner, stored, replayed)
        except LostPlaceError:
            # Retention does not wait for us.
            if self._is_there(partition, ends[-1]):
                raise
            self.trimmed.append(partition)

    def _is_there(self, partition: int, end: int) -> bool:
        """True if a partition still has all of its events."""
        low, high = self._reader.watermarks(self._topic, partition)
        if high < end:
            raise RefusedError(
                f"{self._topic}/{partition} ends at {high}, before {end}, where the store is", ANOTHER_LOG
            )
        return low <= self._genesis.first[partition]

    def _room(self, replayed: Replayed) -> Items:
        """Return an item table that has room for what was let in."""
        if replayed.items is None:
            return Items(self._genesis.rows, _ROOM)
        items = Items(self._genesis.rows, max(1, len(replayed.items)))
        items.intern(np.fromiter(sorted(replayed.items), np.uint64, len(replayed.items)))
        return items

    def _learn(self, partition: int, learner: Learner, ends: list[int]) -> Iterator[tuple[int, Batch]]:
        """Learn the events of a partition; micro-batches end at the given offsets."""
        decoder, at = Decoder(self._genesis.key(), self._genesis.partitions), self._genesis.first[partition]
        gate, ends = GateChange(), [end for end in ends if end > at]
        self._reader.assign(self._topic, [(partition, at)] if ends else [])
        quiet = 0
        while ends:
            taken = decode(self._reader.poll(_CHUNK, _POLL_S), decoder)
            quiet = 0 if taken.polled.values else quiet + 1
            if quiet > _QUIET_POLLS:
                raise BrokerError(f"{self._topic}/{partition} does not give what is at {at}, before {ends[0]}")
            offsets = taken.polled.offsets()
            while ends and len(offsets):
                mine = np.flatnonzero((offsets >= at) & (offsets < ends[0]))
                for run in taken.runs(mine, 1 << 30):
                    rows = taken.rows(run)
                    self.events += len(rows)
                    at = int(offsets[run[-1]]) + 1
                    batch = learner.learn(taken.events(rows, learner))
                    for event in taken.rare_of(run):
                        if event.HasField("gate_change") and supersedes(event.gate_change, gate):
                            gate = event.gate_change
                            learner.change_gate(gate_rules(gate))
                    yield at, batch
                if offsets[-1] + 1 < ends[0]:
                    break
                at = ends.pop(0)

    def _compare(self, partition: int, learner: Learner, stored: Stored, replayed: Replayed) -> None:
        """Compare states, but for what depends on rows, and which blocks stand in the ledgers."""
        slots = learner.users.table.slots()
        slots = slots[learner.users.arrays.head[slots, CLOCK] != NEW]
        keys = learner.users.arrays.keys[slots].tolist()
        data, starts = pack_users(learner.users.arrays, slots, learner.session_rules)
        states = {key: data[first:end].tobytes() for key, first, end in zip(keys, starts[:-1], starts[1:], strict=True)}
        for key in sorted((stored.users.keys() | states.keys()) - replayed.expired):
            there = stored.users[key].state if key in stored.users else b""
            if _without_levels(there) != _without_levels(states.get(key, b"")):
                self._differ(f"user {key:016x} of partition {partition}: counting the events gives another state")
        for key, slot in zip(keys, slots.tolist(), strict=True):
            entries = {number: entry[1] & 1 for number, entry in stored.ledgers.get(key, {}).items()}
            if key not in replayed.expired and entries != _entries(learner, slot):
                self._differ(f"ledger of user {key:016x} of partition {partition}: counting gives other blocks")


def _without_levels(state: bytes) -> bytes:
    return state[: _LEVELS.start] + bytes(8) + state[_LEVELS.stop :] if state else b""


def _entries(learner: Learner, slot: int) -> dict[int, int]:
    """Return the blocks of a user's ledger in memory: their numbers, and whether they were added."""
    ledger, found = learner.ledger.arrays, {}
    entry = int(ledger.head[slot])
    while entry >= 0:
        found[int(ledger.number[entry])] = int(ledger.sign[entry] > 0)
        entry = int(ledger.following[entry])
    return found


def _count(items: Items, batch: Batch, shards: NDArray[np.bool_]) -> None:
    """Add the counters of a batch, for the items of these shards."""
    blocks = batch.blocks
    sizes = blocks.negatives + blocks.positives
    sign = np.repeat(blocks.sign, sizes)
    place = np.arange(len(sign)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    positive = place >= np.repeat(blocks.negatives, sizes)
    kept = (sign != 0) & shards[(blocks.items % np.uint64(len(shards))).astype(np.int64)]
    slots = items.intern(blocks.items[kept])
    np.add.at(items.arrays.counters, (slots, np.where(positive[kept], 0, 1)), sign[kept])
    np.add.at(items.arrays.counters[:, 2], slots, sign[kept])
