"""Starting a trainer: topics, genesis, checks, the item table, the group; and stopping it in order."""

import gc
import logging
import secrets
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from saros.adapters.dead import DeadLetters
from saros.adapters.intake import Intake
from saros.adapters.kafka import Admin, Reader, Topic, Writer, check_log, check_times, check_topic
from saros.adapters.names import DEAD_SETTINGS, EVENTS_SETTINGS, REDO_SETTINGS, topics_of
from saros.adapters.places import ANOTHER_LOG, Same
from saros.adapters.redis import Store, check_server
from saros.adapters.redo import RedoLog
from saros.adapters.shards import boot
from saros.core.gate import SESSION
from saros.core.items import Items
from saros.errors import InputError, RefusedError
from saros.redo.fence import FENCE_BYTES, Fence
from saros.redo.genesis import (
    REBASED,
    Genesis,
    check_partitions,
    check_settings,
    differences,
    read_genesis,
    shards_of,
)
from saros.redo.replica import Replica
from saros.telemetry import log
from saros.trainer.loop import Trainer
from saros.trainer.plan import Plan, behind_bytes, group_of, new_learner
from saros.trainer.shards import ShardWriter
from saros.trainer.stop import Stop, StoppedError, awaited
from saros.trainer.users import Threads
from saros.wire.decode import Decoder

_GC_IDLE_S = 10.0
_GIVE_UP_S = 15
_READERS, _WRITERS = 4, 2  # threads: one write is made ready while the store does another


def ensure_topics(plan: Plan) -> tuple[Topic, Topic]:
    """Make the model's topics where they are missing; return those of the events and of the log."""
    admin, names = Admin(plan.cluster), topics_of(plan.model)
    _check_partitions(plan, admin)
    made = [
        admin.ensure(name, plan.partitions, plan.replication, settings, create=plan.create_topics)
        for name, settings in zip(names, (EVENTS_SETTINGS, REDO_SETTINGS, DEAD_SETTINGS), strict=True)
    ]
    for warning in (*(check_topic(admin, name) for name in names), check_times(admin, names.events)):
        if warning:
            log("topic was checked", logging.WARNING, warning=warning)
    check_log(admin, names.redo, plan.rules.record_bytes + plan.rules.taken_back_bytes)
    return made[0], made[1]


def _check_partitions(plan: Plan, admin: Admin) -> None:
    """Refuse an events' topic that has other partitions than its model: no settings go with that."""
    names = topics_of(plan.model)
    events, redo = admin.find(names.events), admin.find(names.redo)
    if events is None or redo is None or events.partitions == redo.partitions:
        return
    genesis = RedoLog(plan.cluster, redo).genesis()
    if genesis is not None:
        check_partitions(genesis, names.events, events.partitions)


def ensure_genesis(plan: Plan, redo: RedoLog, events: Topic, redo_topic: Topic) -> Genesis:
    """Return the model's genesis; where the log has none, one is written, and the first in the log counts."""
    found = redo.genesis()
    if found is None and find_genesis(plan) is not None:
        # The store is filled behind the log: if another process began both meanwhile, the log has it now.
        found = redo.genesis()
        if found is None:
            raise RefusedError(
                f"the store holds a model {plan.model!r}, whose log is gone",
                "`saros rebase` keeps it and begins a new log; or bring the redo topic back, or name another model",
            )
    if found is None:
        reader = Reader(plan.cluster, f"{plan.model}-init")
        marks = [reader.watermarks(events.name, partition) for partition in range(plan.partitions)]
        reader.close()
        redo.write_genesis(
            Genesis(
                log_id=secrets.randbits(63) + 1,
                hash_key=secrets.token_bytes(16),
                rows=plan.rows,
                partitions=plan.partitions,
                shards=shards_of(plan.items_max),
                events_topic_id=events.id,
                redo_topic_id=redo_topic.id,
                first=tuple(end if plan.latest else low for low, end in marks),
            )
        )
        found = redo.genesis()
        assert found is not None, "what was acknowledged is there"
    check_settings(found, plan.rows, plan.partitions, plan.items_max)
    same_events(plan, found).check()
    return found


def same_events(plan: Plan, genesis: Genesis) -> Same:
    """Return whether the events' topic is the one that the model learns from."""
    return Same(plan.cluster, topics_of(plan.model).events, genesis.events_topic_id, ANOTHER_LOG)


def find_log(plan: Plan) -> tuple[RedoLog, Genesis]:
    """Return the log of a model that is there already."""
    topic = Admin(plan.cluster).find(topics_of(plan.model).redo)
    if topic is not None:
        redo = RedoLog(plan.cluster, topic)
        genesis = redo.genesis()
        if genesis is not None:
            return redo, genesis
    raise InputError(f"the model {plan.model!r} has no log yet", "run `saros trainer` or `saros init`")


def find_genesis(plan: Plan) -> Genesis | None:
    """Return the genesis that the store holds, of whatever log, or None where it holds no such model."""
    store = Store(plan.store, plan.model, shards_of(plan.items_max))
    # A model may have more shards than these settings would give it, never fewer than this; and a shard may be lost.
    found = filter(None, map(store.read_meta, range(shards_of(0))))
    genesis = next((read_genesis(meta) for meta in found), None)
    store.close()
    return genesis


def open_store(plan: Plan, genesis: Genesis) -> Store:
    """Return the store, checked: its servers, and that it is of this model."""
    store = Store(plan.store, plan.model, genesis.shards)
    for warning in check_server(store):
        log("store was checked", logging.WARNING, warning=warning)
    own = genesis.packed()
    for shard in range(genesis.shards):
        there = store.write_meta(shard, own)
        if not there:
            raise RefusedError(f"shard {shard} of the store was marked by a `saros rebase` that did not end", REBASED)
        wrong = differences(read_genesis(there), genesis)  # rule 40
        if wrong:
            raise RefusedError(
                f"shard {shard} of the store is of another model or log: {', '.join(wrong)} differ",
                "`saros rebase` ends what a run of it began, or says what is in its way; or bring the redo topic back;"
                " or name another model",
            )
    return store


def user_fences(store: Store, genesis: Genesis) -> list[Fence]:
    """Return how far the store has the users of each partition."""
    return [
        genesis.found(store.read_head(p)[:FENCE_BYTES], [genesis.start(p)], f"partition {p} of the store")[0]
        for p in range(genesis.partitions)
    ]


def item_fences(store: Store, genesis: Genesis) -> list[list[Fence]]:
    """Return how far each shard has the items, a vector each."""
    return [
        genesis.found(store.read_vector(shard), genesis.starts(), f"shard {shard} of the store")
        for shard in range(genesis.shards)
    ]


class Service:
    """A running trainer, from its checks to its end."""

    def __init__(self, plan: Plan, stop: Stop) -> None:
        if plan.gate.mode == SESSION:
            raise InputError("SAROS_GATE__MODE=session is not there yet", "set it to immediate or shadow")
        names, (events, redo) = topics_of(plan.model), ensure_topics(plan)
        self._redo = RedoLog(plan.cluster, redo)
        genesis = ensure_genesis(plan, self._redo, events, redo)
        self._store = open_store(plan, genesis)
        replica = Replica(genesis, Items(genesis.rows, plan.items_max))
        self._threads = Threads(ThreadPoolExecutor(_READERS, "read"), ThreadPoolExecutor(_WRITERS, "write"))
        vectors = boot(self._store, self._redo, replica, lambda _: stop.check())
        shards = ShardWriter(self._store, replica, vectors, self._threads.writing, stop.check_late)
        self._redo.topic.check()  # what was read is of the topic whose genesis it was read for (rules 39, 40)
        self._redo.follow(replica.fences)
        dead = DeadLetters(Writer(plan.cluster), names.dead, plan.partitions, stop.check_late)
        self._reader = Reader(plan.cluster, group_of(plan), instance=plan.instance, statistics_s=5)
        intake = Intake(self._reader, Decoder(genesis.key(), plan.partitions, plan.rules.scenarios), dead, names.events)

        self.trainer = Trainer(
            self._store,
            self._redo,
            replica,
            shards,
            partial(new_learner, plan, replica.items),
            self._reader,
            intake,
            same_events(plan, genesis),
            plan.rules._replace(behind_bytes=behind_bytes(plan)),
            self._threads,
            stop,
        )
        self._replica, self._events, self._partitions = replica, names.events, plan.partitions
        self._stop = stop

    def run(self, *, until_drained: bool = False) -> None:
        """Learn until a signal comes, or until the events that are there now are learned."""
        try:
            self._run(until_drained=until_drained)
        except StoppedError as stopped:
            # As if it had been killed, but the group need not miss us first.
            log("stopped halfway, the next owner goes on", logging.WARNING, where=str(stopped))
            self.trainer.abandon()
            self.close(wait=False)
        else:
            self.close()

    def _run(self, *, until_drained: bool) -> None:
        partitions = range(self._partitions if until_drained else 0)
        there = [self._reader.last_end(self._events, partition) for partition in partitions]
        self.trainer.catch_up(self._stop.check)
        # What counts has to be in the store, also where retention has left nothing.
        ends = [max(end, fence.next) for end, fence in zip(there, self._replica.fences, strict=False)]
        self._reader.subscribe(self._events, self.trainer.gained, self.trainer.lost)
        gc.collect()
        gc.disable()
        idle_at, begun_s = time.monotonic() + _GC_IDLE_S, 0.0
        while not self._stop.asked:
            taken = self.trainer.step()
            begun_s = begun_s or (time.time() if taken else 0.0)
            if until_drained and not taken and self._is_drained(ends):
                break
            if not taken and time.monotonic() > idle_at:
                gc.collect()
                idle_at = time.monotonic() + _GC_IDLE_S
        else:
            if not self.trainer.drain():
                raise StoppedError("while the broker was away")
        log("what was taken is learned", **self.trainer.tally._asdict(), begun_s=begun_s, ended_s=time.time())

    def _is_drained(self, ends: list[int]) -> bool:
        """True if all events up to these ends are in records that count, and these in the store.

        Another trainer may have died between the two: its partitions become ours when the group misses it.
        """

        def reached(fences: Sequence[Fence]) -> bool:
            return all(fence.next >= end for fence, end in zip(fences, ends, strict=True))

        if not reached(self._replica.fences) or not self.trainer.drain():
            return False
        stored = self._store, self._replica.genesis
        read = self._threads.reading.submit(lambda: [user_fences(*stored), *item_fences(*stored)])
        fences = awaited(read, self._stop.check_late)
        return all(map(reached, fences))

    def close(self, *, wait: bool = True) -> None:
        """Leave the group and close all connections; where nobody is to wait for the store, calls to it fail."""
        if not wait:
            self._store.close()  # first, whatever else goes wrong: the threads end with it, however a store hangs
        self._reader.close()
        self._redo.close()
        for threads in self._threads:
            threads.shutdown(wait=wait, cancel_futures=True)  # in order there are none left
        self._store.close()

    def give_up(self, error: BaseException) -> None:
        """Close as far as that goes, after something failed, and end in any case.

        A client that is in the group when the interpreter is taken apart may wait there for ever, and the group would
        take its partitions for read. An alarm ends the process even then.
        """
        signal.alarm(_GIVE_UP_S)
        log("trainer gives up", logging.ERROR, error=str(error))  # before anything else can hang
        self.trainer.abandon()
        with suppress(Exception):  # what failed first is what is told
            self.close(wait=False)
