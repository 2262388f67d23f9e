"""The feed: a thread that boots from the store, reads the log ahead, and hands all of it to the event loop.

It does what may block, and nothing else: looking for genesis, reading shards, polling Kafka, turning bytes into
columns. What it makes it gives away; from then on only the loop touches it. Whenever its place in the log is gone, or
the redo topic is another one, it boots again: it never skips. Trouble is told, waited out and tried again.
"""

import asyncio
import logging
import re
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from saros.adapters.kafka import Admin, LostPlaceError, Topic
from saros.adapters.names import topics_of
from saros.adapters.redis import Store
from saros.adapters.redo import RedoLog
from saros.adapters.shards import boot
from saros.api.observe import API_BOOTS
from saros.api.people import told_by
from saros.api.plan import ApiPlan
from saros.api.world import Read, World, read_ahead
from saros.core.items import Items
from saros.errors import BrokerError, RefusedError, SarosError
from saros.kernels import STAGES, is_whole, warm
from saros.redo.fence import FENCE_BYTES
from saros.redo.genesis import Genesis, read_genesis, shards_of
from saros.redo.replica import Replica
from saros.telemetry import Seldom, log
from saros.wire.damage import DAMAGED
from saros.wire.v1 import redo_pb2 as pb

_LOG = logging.getLogger("saros.api")
NO_GENESIS = "no genesis yet"
_GENESIS_S, _AGAIN_S, _AGAIN_MOST_S = 1.0, 1.0, 30.0
_LOOK_S = 0.5
_POLL_S, _POLL_MESSAGES = 0.2, 16
# Messages that are written so soon after another are folded with it: what Python spends on a pass is shared.
_GATHER_MS, _LINGER_S = 15, 0.002
_ROOM = 4  # polls that the loop may be behind
_PROGRESS_S = 2.0
_COMPILING_S = 1.0  # longer we do not wait for a kernel, and leave it to the end of the process


class _StoppedError(Exception):
    """We are to stop, and nobody needs the kernels any more."""


class Listener(Protocol):
    """Who is told, in the loop."""

    def loading(self, what: str) -> None:
        """Why there is nothing to follow yet."""

    def found(self, genesis: Genesis) -> None:
        """The model that is to be loaded."""

    def booted(self, world: World) -> None:
        """A world was filled, and its log follows."""

    def took(self, world: World, read: Read) -> None:
        """Messages of its log came; `Feed.done` when they are folded."""

    def looked(self, world: World, now_s: float, ends: list[int]) -> None:
        """So far its log went."""


class Feed:
    """Boots worlds and follows their log."""

    def __init__(self, plan: ApiPlan, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        self._plan, self._listener, self._loop = plan, listener, loop
        self._stop, self._again, self._is_warm = threading.Event(), threading.Event(), threading.Event()
        self._room = threading.Semaphore(_ROOM)
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self.died_of = ""  # what ended the thread, if something did
        self._seldom, self._were_whole = Seldom(), is_whole()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def done(self) -> None:
        """Messages of one call of `took` are folded, or thrown away."""
        self._room.release()

    def boot_again(self) -> None:
        """Give up the world at hand: it cannot be folded."""
        self._again.set()

    def stop(self) -> None:
        """End, and return when it has."""
        self._stop.set()
        self._thread.join(None if self._is_warm.is_set() else _COMPILING_S)

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        if not self._stop.is_set():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _run(self) -> None:
        try:
            self._follow_on()
        except Exception as error:  # a defect: without its thread this process follows nothing any more
            self.died_of = repr(error)
            _LOG.exception("feed has ended")

    def _follow_on(self) -> None:
        """Boot and follow, again and again, until we are to stop."""
        pause_s = _AGAIN_S
        # In here and not before the server listens: where they are compiled, somebody may look who sees that they are.
        with suppress(_StoppedError):
            warm(self._warming)
        self._is_warm.set()
        while not self._stop.is_set():
            begun_s = time.monotonic()
            try:
                why = self._follow_once()
            except SarosError as error:
                why = str(error)
                log("feed was interrupted", logging.WARNING, error=why)
            except DAMAGED as error:
                why = f"the log or the store is damaged: {error}"
                log("feed was interrupted", logging.ERROR, error=why)
            self._tell(self._listener.loading, why)
            lasted = time.monotonic() - begun_s > pause_s
            pause_s = _AGAIN_S if lasted or why == NO_GENESIS else min(2 * pause_s, _AGAIN_MOST_S)
            self._stop.wait(0.0 if lasted and not why else pause_s)

    def _warming(self, done: int, what: str) -> None:
        """Tell which kernels are loaded, or compiled; no query may come before and wait for them."""
        if self._stop.is_set():
            raise _StoppedError
        how = "loaded" if self._were_whole else "compiled, once"
        self._tell(self._listener.loading, f"kernels are {how}: {done} of {STAGES}, {what}")

    def _follow_once(self) -> str:
        """Boot and follow the log until it is another one; return why it could not be, empty: boot again at once."""
        topic = Admin(self._plan.cluster).find(topics_of(self._plan.model).redo)
        if topic is None:
            return NO_GENESIS
        redo = RedoLog(self._plan.cluster, topic, _GATHER_MS)
        try:
            genesis = self._genesis(redo, topic)
            if genesis is None:
                return NO_GENESIS
            self._tell(self._listener.found, genesis)
            self._again.clear()
            world = self._boot(redo, genesis)
            return self._follow(redo, world)
        finally:
            redo.close()

    def _genesis(self, redo: RedoLog, topic: Topic) -> Genesis | None:
        """Return the model's genesis: the log's or, where that part of the log was trimmed away, the store's."""
        found = redo.genesis()
        if found is not None or not redo.is_trimmed(0):
            return found
        store = Store(self._plan.store, self._plan.model, shards_of(0))
        try:
            metas = [read_genesis(meta) for meta in filter(None, map(store.read_meta, range(shards_of(0))))]
        finally:
            store.close()
        if not metas or any(meta != metas[0] for meta in metas) or metas[0].redo_topic_id != topic.id:
            raise RefusedError("the log has no genesis, and the store has none of it", "bring the store back as it was")
        return metas[0]

    # --- booting -----------------------------------------------------------------------------------------------------

    def _boot(self, redo: RedoLog, genesis: Genesis) -> World:
        """Fill a world from the store, and let the log go on behind it."""
        plan, begun_s = self._plan, time.monotonic()
        # Room for as many items again that no block but an upsert has named. It is set aside at once: the columns of a
        # million items take a second to be copied, and the loop would answer nobody meanwhile.
        replica = Replica(genesis, Items(genesis.rows, 2 * plan.items_max, ahead=True))
        store = Store(plan.store, plan.model, genesis.shards)
        try:
            boot(store, redo, replica, self._progress(genesis.shards))
            self._tell(self._listener.loading, "catalogue is made")
            world = World(plan, replica)
            for partition in range(genesis.partitions):
                self._begin(world, partition, redo, store)
        finally:
            store.close()
        redo.topic.check()  # what was read is of the topic whose genesis it was read for (rules 39, 40)
        redo.follow(replica.fences)
        API_BOOTS.inc()
        log(
            "catalogue was loaded", items=replica.items.table.size, seconds=round(time.monotonic() - begun_s, 2),
            catalogue_mb=_mb(world.shelf.nbytes), users_mb=_mb(world.people.nbytes), process_mb=_mb(_resident()),
            items_most=replica.items.limit, catalogue_most_mb=_mb(world.shelf.nbytes_most),
        )  # fmt: skip
        self._tell(self._listener.booted, world)
        return world

    def _progress(self, shards: int) -> Callable[[int], None]:
        next_s = time.monotonic() + _PROGRESS_S

        def told(done: int) -> None:
            nonlocal next_s
            if self._stop.is_set():
                raise SarosError("stopped while loading")
            self._tell(self._listener.loading, f"catalogue is loading: {done} of {shards} shards")
            if time.monotonic() >= next_s:
                log("catalogue is loading", done=done, shards=shards, process_mb=_mb(_resident()))
                next_s = time.monotonic() + _PROGRESS_S

        return told

    def _begin(self, world: World, partition: int, redo: RedoLog, store: Store) -> None:
        """Let a partition begin: its users are those of the store, and of what the store has not got yet."""
        replica, head = world.replica, store.read_head(partition)
        start, what = replica.genesis.start(partition), f"partition {partition} of the store"
        (fence,) = replica.genesis.found(head[:FENCE_BYTES], [start], what)
        world.begin(partition, fence, pb.Partition.FromString(head[FENCE_BYTES:]))
        # Items may stand further than users do: what lies between is not read again from the log.
        behind = replica.fences[partition]
        if fence.offset < behind.offset:
            redo.check(partition, fence, what)
            for at, record in redo.accepted(partition, fence, behind.offset + 1):
                for _ in world.people.absorb(told_by([(partition, at.offset, record)], replica.genesis.rows.dim)):
                    pass
                world.gates.note(partition, record.partition)
        last = redo.record_at(partition, behind.offset) if behind.offset >= 0 else None
        world.newest_ms = max(world.newest_ms, last.stats.newest_ms if last is not None else 0)

    # --- following ---------------------------------------------------------------------------------------------------

    def _follow(self, redo: RedoLog, world: World) -> str:
        """Read the log ahead of the loop; return when it has to be booted again."""
        look_s, dim = 0.0, world.replica.genesis.rows.dim
        while not self._stop.is_set():
            if self._again.is_set():
                return "what was read could not be folded"
            if time.monotonic() >= look_s:
                if not self._look(redo, world):
                    log("redo topic is another one", logging.WARNING)
                    return ""
                look_s = time.monotonic() + _LOOK_S
            try:
                messages = redo.poll(_POLL_S, _POLL_MESSAGES, _LINGER_S)
            except LostPlaceError:
                log("place in the log is gone", logging.WARNING)
                return ""
            if messages:
                read = read_ahead(messages, dim)
                if self._has_room():
                    self._tell(self._listener.took, world, read)
        return ""

    def _has_room(self) -> bool:
        """Wait until the loop is not far behind; False where we are to stop."""
        while not self._stop.is_set():
            if self._room.acquire(timeout=_POLL_S):
                return True
        return False

    def _look(self, redo: RedoLog, world: World) -> bool:
        """Tell where the log ends; False where it is another one. A broker that is away is waited for."""
        now_s = time.monotonic()
        try:
            if not redo.topic.is_same():
                return False
            ends = [redo.end(partition) for partition in range(world.replica.genesis.partitions)]
            self._tell(self._listener.looked, world, now_s, ends)
        except BrokerError:
            self._seldom.log("log could not be looked at", logging.WARNING, times=1)
        return True


def _mb(count: int) -> int:
    return round(count / 2**20)


def _resident() -> int:
    """Return the most memory that the process has had, as far as the system tells."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # What getrusage tells elsewhere is at least what the process had that started this one.
    found = re.search(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0
