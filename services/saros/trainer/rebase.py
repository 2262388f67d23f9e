"""`saros rebase`: the redo topic was lost as a whole, and the store goes on with a new log.

A run goes over all shards. It may end at any step and be run again, also while another still runs:

    1  look     read log and mark of every shard, then the id of the redo topic; all on that topic's log: done
    2  mark     every shard that is not, naming the topic; on disk before a fence is read
    3  decide   unless the topic holds a genesis: read all fences, write one; the first in partition 0 counts
    4  finish   every shard that is marked: ledgers page by page, if they are to be cleared; then, in one write,
                genesis, fences and vector, and the mark goes; on disk before the run ends

Invariant: from its mark on nothing in a shard changes until a genesis is decided, so that every run sees the same, and
a later one ends what an earlier one began. Numbers of rules are those of tests/model, which this follows step by step.
"""

import logging
import secrets
import time
from typing import NamedTuple

from saros.adapters.kafka import Reader, Topic
from saros.adapters.redis import MarkedStore, Standing, check_server, mark_for
from saros.adapters.redo import RedoLog
from saros.core.jit import U64
from saros.errors import InputError, RefusedError
from saros.redo.fence import FENCE_BYTES, Fence, pack_vector, unpack_fence, unpack_vector
from saros.redo.genesis import Genesis, check_settings, read_genesis
from saros.telemetry import log
from saros.trainer.plan import Plan
from saros.trainer.points import reach
from saros.trainer.start import ensure_topics, find_genesis
from saros.wire.operations import drop_operations

_ATTEMPTS, _AGAIN_S = 100, 0.1
_PAGE = 50  # ledgers; a script that takes all of their blocks out is short enough for a server that others use


class Rebased(NamedTuple):
    """What a run did."""

    genesis: Genesis  # that all shards are on now
    shards: int  # of them put on it by this run
    cleared: int  # blocks that this run took out of ledgers
    notes: list[str]  # what else there is to say, in words


def rebased(plan: Plan) -> Rebased:
    """Put a store whose log was lost on the log of the redo topic as it is, which is begun where it has none."""
    model = find_genesis(plan)
    if model is None:
        raise InputError(f"the store holds no model {plan.model!r}", "`saros trainer` begins a new one")
    check_settings(model, plan.rows, plan.partitions, plan.items_max)
    store = MarkedStore(plan.store, plan.model, model.shards, model.partitions)
    for warning in check_server(store):
        log("store was checked", logging.WARNING, warning=warning)
    rebase = Rebase(plan, store, model)
    try:
        for _ in range(_ATTEMPTS):
            genesis = rebase.attempt()
            if genesis is not None:
                return Rebased(genesis, rebase.finished, rebase.cleared, rebase.notes)
            time.sleep(_AGAIN_S)
    finally:
        store.close()
    raise RefusedError("others kept changing the store or its topics", "stop the trainers, and run it again")


class Rebase:
    """One run: attempts, of which each starts over where another run or another loss comes between."""

    def __init__(self, plan: Plan, store: MarkedStore, model: Genesis) -> None:
        """`model` is what some shard was made with: of whatever log, what a rebase keeps of it is the same in all."""
        self._plan, self._store, self._model = plan, store, model
        self.finished = self.cleared = 0
        self.notes: list[str] = []
        self._warned = False

    def attempt(self) -> Genesis | None:
        """Go through all steps; None where something came between."""
        # Step 1: the shards before the topic's id, so that no mark is set for a topic that is older (rule 45).
        seen = self._standings()
        events, topic = ensure_topics(self._plan)
        redo = RedoLog(self._plan.cluster, topic)
        try:
            return self._go_on(seen, events, topic, redo)
        finally:
            redo.close()

    def _go_on(self, seen: list[Standing], events: Topic, topic: Topic, redo: RedoLog) -> Genesis | None:
        genesis = redo.genesis()
        self._check_models(seen)
        if genesis is not None:
            seen = self._standings()  # again: whoever wrote it had marked them all
            if not redo.topic.is_same():
                return None
            self._check_log(seen, genesis, events, topic)
        # Step 2.
        for shard, standing in enumerate(seen):
            if _is_on(standing, genesis) or standing.is_marked_for(topic.id):
                continue
            if not self._store.swap(shard, standing, standing.marked(topic.id)):
                return None
            reach("marked")
        self._settle()
        reach("settled")
        # Step 3.
        genesis = genesis or self._decide(events, topic, redo)
        # Step 4.
        for shard in range(self._model.shards):
            if genesis is None or not self._finish(shard, genesis, topic.id):
                return None
        self._settle()
        return genesis

    def _standings(self) -> list[Standing]:
        return [self._store.standing(shard) for shard in range(self._model.shards)]

    def _settle(self) -> None:
        """Let what was written come to the servers' disks (rule 46)."""
        unknown = self._store.settle()
        if unknown and not self._warned:
            self._warned = True
            log(
                "what was written may be lost with the store's memory", logging.WARNING,
                why=unknown, needs="Redis 7.2 or newer or Valkey, with AOF",
            )  # fmt: skip

    # --- what may be rebased -----------------------------------------------------------------------------------------

    def _check_models(self, seen: list[Standing]) -> None:
        """Refuse shards of different models."""
        for shard, standing in enumerate(seen):
            if standing.meta and not read_genesis(standing.meta).is_same_model(self._model):
                raise RefusedError(
                    f"shard {shard} of the store is of another model of this name", "bring the store back as it was"
                )

    def _check_log(self, seen: list[Standing], genesis: Genesis, events: Topic, topic: Topic) -> None:
        """Refuse a log that is there and that this store is not to go on with."""
        anew = genesis.events_topic_id and events.id and genesis.events_topic_id != events.id
        if anew and all(_is_on(standing, genesis) for standing in seen):
            raise RefusedError(
                f"topic {events.name} was made anew; {topic.name} goes on with the events before it",
                f"delete {topic.name} and run `saros rebase` again: it keeps the rows and begins with these events",
            )
        for shard, standing in enumerate(seen):
            if _is_on(standing, genesis):
                continue
            log_id = read_genesis(standing.meta).log_id if standing.meta else 0
            if not standing.is_marked and log_id in (0, *genesis.base):
                raise RefusedError(
                    f"shard {shard} of the store has lost what it held since {topic.name} was begun",
                    f"bring the store back as it was; or delete {topic.name} and run `saros rebase` again, to go on "
                    "with what is left",
                )
            if log_id not in (0, *genesis.base):
                raise RefusedError(
                    f"{topic.name} holds log {genesis.log_id:x}, which shard {shard} of the store was never to go on "
                    "with",
                    f"delete {topic.name}, if nothing else needs it, and run `saros rebase` again; or name another "
                    "model",
                )

    # --- 3 decide ----------------------------------------------------------------------------------------------------

    def _decide(self, events: Topic, topic: Topic, redo: RedoLog) -> Genesis | None:
        """Write a genesis, and return the one that counts (rule 48); None where shards or topic have changed."""
        seen = self._standings()
        if not all(standing.is_marked_for(topic.id) for standing in seen):  # rule 44
            return None
        found = redo.genesis()
        if found is None:
            redo.write_genesis(self._genesis([standing.bare() for standing in seen], events, topic))
            reach("decided")
            found = redo.genesis()  # none: the topic was lost again (rule 49)
        return found

    def _genesis(self, seen: list[Standing], events: Topic, topic: Topic) -> Genesis:
        """Return what these shards can go on with, and note what is to be said of it."""
        self.notes.clear()
        shards, partitions = self._model.shards, range(self._model.partitions)
        known = [read_genesis(standing.meta) if standing.meta else self._model for standing in seen]
        vectors = [
            unpack_vector(standing.vector, len(partitions)) if standing.vector else genesis.starts()
            for standing, genesis in zip(seen, known, strict=True)
        ]
        heads = [seen[p % shards].heads[p // shards] for p in partitions]
        fences = [unpack_fence(head) if head else known[p % shards].start(p) for p, head in enumerate(heads)]
        lost = [shard for shard, standing in enumerate(seen) if not any((standing.meta, standing.vector))]
        if lost:
            self.notes.append(f"shards {', '.join(map(str, lost))} held nothing: what they held was lost before")
        # The offset may be that of a record that was rejected: all but that says what the rows are (rules 51, 52).
        agree = all(vector[p][2:] == fences[p][2:] and vector[p].log_id == fences[p].log_id
                    for vector in vectors for p in partitions)  # fmt: skip
        return self._model._replace(
            log_id=secrets.randbits(63) + 1,
            events_topic_id=events.id,
            redo_topic_id=topic.id,
            first=self._starts(events, fences, [known[p % shards].events_topic_id for p in partitions]),
            clears=not agree,
            base=tuple(sorted({genesis.log_id for genesis in known} | {fence.log_id for fence in fences})),
        )

    def _starts(self, events: Topic, fences: list[Fence], known: list[str]) -> tuple[int, ...]:
        """Return where the events go on: at `next` of the user fences (rule 47), if they are the same events."""
        reader = Reader(self._plan.cluster, f"{self._plan.model}-rebase")
        marks = [reader.watermarks(events.name, partition) for partition in range(len(fences))]
        reader.close()
        # Without ids nothing but a log that is too short tells that it is another one, and then all of it is.
        short = any(end < fence.next for (_, end), fence in zip(marks, fences, strict=True))
        anew = [known_id != events.id if known_id and events.id else short for known_id in known]
        if any(anew):
            self.notes.append(
                f"{events.name} is another topic than was learned from: it is read from its first event on"
            )
        elif short:
            self.notes.append(f"{events.name} was cut behind what was learned from it: it goes on at its end")
        return tuple(
            low if other else min(fence.next, end) for (low, end), fence, other in zip(marks, fences, anew, strict=True)
        )

    # --- 4 finish ----------------------------------------------------------------------------------------------------

    def _finish(self, shard: int, genesis: Genesis, topic_id: str) -> bool:
        """Put a shard on the log of a genesis; False where something came between."""
        partitions, left = self._store.partitions_of(shard), None
        if genesis.clears:
            left = tuple(self._clear(partition, topic_id) for partition in partitions)
        standing = self._store.standing(shard)
        if _is_on(standing, genesis):
            return True
        if not standing.is_marked_for(topic_id) or left not in (None, standing.heads):  # rules 50, 55
            return False
        fences = [genesis.start(partition).pack() for partition in partitions]
        on = Standing(
            genesis.packed(),
            pack_vector(genesis.starts()),
            # A partition's own state is that of its users.
            tuple(fence + head[2 * FENCE_BYTES :] for fence, head in zip(fences, standing.heads, strict=True)),
        )
        if not self._store.swap(shard, standing, on):  # rules 50, 54
            return False
        self.finished += 1
        reach("rebased")
        return True

    def _clear(self, partition: int, topic_id: str) -> bytes | None:
        """Take what was added out of a partition's ledgers, and leave what waits (rules 51, 53).

        Return the partition's head as it was left, by which is known that nobody else changed anything and that
        nothing fell back (rule 55); None where something came between.
        """
        head = self._store.read_head(partition)
        if not Standing(b"", head, ()).is_marked_for(topic_id):
            return None
        for chunk in self._store.ledger_keys(partition):
            for keys in (chunk[at : at + _PAGE] for at in range(0, len(chunk), _PAGE)):
                after = self._clear_page(partition, keys, head, mark_for(topic_id) + head[FENCE_BYTES:])
                if after is None:
                    return None
                head = after
        return head

    def _clear_page(self, partition: int, keys: U64, head: bytes, after: bytes) -> bytes | None:
        """Clear some ledgers; return the head then, which is another one if there was something to clear."""
        fence, ledgers = self._store.read_ledgers(partition, keys)
        if fence != head[:FENCE_BYTES]:
            return None
        added = {
            key: [number for number, entry in entries.items() if entry[1] & 1]
            for key, entries in zip(keys.tolist(), ledgers, strict=True)
        }
        count = sum(map(len, added.values()))
        if not count:
            return head
        if self._store.flush(partition, fence, after, drop_operations(added), 0) is not None:
            return None
        self.cleared += count
        reach("cleared")
        return after


def _is_on(standing: Standing, genesis: Genesis | None) -> bool:
    """True if a shard is on the log of a genesis, and done."""
    if genesis is None or not standing.meta or standing.is_marked:
        return False
    return read_genesis(standing.meta) == genesis
