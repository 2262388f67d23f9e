"""The model as it is served: one event loop folds the log and answers, between the two nothing is copied.

`Model` owns the feed (a thread, `saros.api.feed`), the world it serves from, and one that is on its way in where the
log had to be booted again: until that has caught up, answers come from the old one and say that they are stale. Store
trouble never reaches the caller.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from saros.adapters.person import Person as StoredPerson
from saros.api import answers, views
from saros.api.desk import SLICE_S, Desk, give_way, is_away
from saros.api.feed import Feed
from saros.api.gates import Gates
from saros.api.lookups import Lookups
from saros.api.observe import (
    API_BYTES,
    API_ITEMS,
    API_ITEMS_UNLEARNED,
    API_REDO_LAG,
    API_REDO_LAG_SECONDS,
    API_STALE,
)
from saros.api.plan import Answer, ApiPlan, Call, Wish, read_token
from saros.api.pulse import Pulse
from saros.api.watching import pulse_of
from saros.api.world import Read, World
from saros.errors import SarosError, StoreError
from saros.redo.genesis import Genesis
from saros.telemetry import log
from saros.wire.damage import DAMAGED

__all__ = ["Answer", "ApiPlan", "Model", "Wish"]

_LOG = logging.getLogger("saros.api")
Waiting = Callable[[], AbstractContextManager[None]]
_IDLE_S = 0.2
_OBSERVE_S = 1.0
_PARTITIONS_MAX = 1024


def _tell_end(folding: "asyncio.Task[None]") -> None:
    if not folding.cancelled():
        _LOG.error("folding has ended", exc_info=folding.exception())


class Model:
    """Follows a model's log and answers from it. All methods are for one event loop."""

    def __init__(self, plan: ApiPlan, waiting: Waiting = nullcontext) -> None:
        """Whoever waits for a token does so in a context of `waiting`, which raises where too many do."""
        self._plan, self._waiting = plan, waiting
        self._world: World | None = None
        self._rising: World | None = None
        self._lookups: dict[World, Lookups] = {}
        self._inbox: deque[tuple[World, Read]] = deque()
        self._loading, self._partitions = "not started", 0
        self._folding: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._observe_at = 0.0
        self._ending = False
        self._desk = Desk(self)
        self._pulse = Pulse(plan.scenarios)

    # --- its life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to boot in the background, and return at once."""
        loop = asyncio.get_running_loop()
        self._loading = "starting"
        self._moved: asyncio.Future[None] = loop.create_future()
        self._came = asyncio.Event()
        self._feed = Feed(self._plan, self, loop)
        self._folding, self._ticking = loop.create_task(self._fold()), loop.create_task(self._tick())
        self._folding.add_done_callback(_tell_end)
        self._feed.start()

    def end_waits(self) -> None:
        """Let nobody wait for the log any more, now or later: whoever does is answered as if its time were over."""
        self._ending = True
        if self._folding is not None:
            self._wake()

    async def close(self) -> None:
        """Stop following, and close all connections."""
        await asyncio.get_running_loop().run_in_executor(None, self._feed.stop)
        assert self._folding is not None, "it was started"
        self._folding.cancel()
        self._ticking.cancel()
        await asyncio.gather(self._folding, self._ticking, self._desk.close(), *self._closing, return_exceptions=True)
        for lookups in self._lookups.values():
            await lookups.close()
        self._lookups.clear()

    @property
    def partitions(self) -> int:
        """Partitions of the model, 0 before genesis."""
        world = self._world or self._rising
        return world.replica.genesis.partitions if world is not None else self._partitions

    @property
    def p0(self) -> float:
        """The p0 in force, 0 before there is one."""
        return self._world.shelf.catalogue.p0 if self._world is not None else 0.0

    def why_not_ready(self) -> list[str]:
        """Return what is in the way of good answers; empty: ready."""
        if why := self.why_dead():
            return [why]
        if self._folding is not None and self._folding.done():
            return ["closed"]
        if self._world is None:
            return [self._loading]
        if self._world.lag_s() > self._plan.lag_max_s:
            behind = f"feed is {self._world.lag_s():.1f} s behind"
            return [f"{behind}: {self._loading}" if self._loading else behind]
        return []

    def why_dead(self) -> str:
        """Return what keeps this process from following its log ever again; empty: nothing does."""
        if self._folding is None:
            return ""
        if self._folding.done() and not self._folding.cancelled():
            return f"folding has ended: {self._folding.exception()!r}"
        return f"the feed has ended: {self._feed.died_of}" if self._feed.died_of else ""

    # --- the feed tells ----------------------------------------------------------------------------------------------

    def loading(self, what: str) -> None:
        """Hear why there is nothing to follow."""
        self._loading = what or "booting again"

    def found(self, genesis: Genesis) -> None:
        """Hear of the model that is to be loaded: its events can be taken from now on."""
        self._partitions = genesis.partitions

    def booted(self, world: World) -> None:
        """Take a world that is to catch up with its log."""
        self._drop(self._rising)
        self._rising, self._loading, world.folded = world, "catching up with the log", self._pulse.note
        self._lookups[world] = Lookups(self._plan.store, self._plan.model, world)

    def looked(self, world: World, now_s: float, ends: list[int]) -> None:
        """Hear where a world's log ends."""
        world.looked(now_s, ends)
        self._promote(world)

    def took(self, world: World, read: Read) -> None:
        """Take messages, which are folded in their turn."""
        self._inbox.append((world, read))
        self._came.set()

    def _drop(self, world: World | None) -> None:
        if world is not None:
            task = asyncio.get_running_loop().create_task(self._lookups.pop(world).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _promote(self, world: World) -> None:
        """Serve from a world that has caught up."""
        if world is self._rising and world.caught_up:
            self._drop(self._world)
            self._world, self._rising, self._loading = world, None, ""
            log("catalogue is served", items=world.replica.items.table.size, lag_s=round(world.lag_s(), 3))

    # --- folding -----------------------------------------------------------------------------------------------------

    async def _fold(self) -> None:
        """Fold what the feed brings, in slices; between messages, do what is due."""
        while True:
            if self._inbox:
                await self._fold_all(*self._inbox.popleft())
                self._feed.done()
            elif not await self._tend():
                self._came.clear()
                await self._came.wait()

    async def _tick(self) -> None:
        """Let what is due be done while no messages come."""
        while True:
            await asyncio.sleep(_IDLE_S)
            self._came.set()

    async def _fold_all(self, world: World, read: Read) -> None:
        if world.broken or (world is not self._world and world is not self._rising):
            return
        begun_s = time.perf_counter()
        try:
            for _ in world.absorb(read):
                if time.perf_counter() - begun_s > SLICE_S:
                    begun_s = await give_way(begun_s)
            self._wake()
        except (SarosError, *DAMAGED) as error:
            # What was folded of it cannot be taken back: this world stays as it is until another one has caught up.
            log("record could not be folded", logging.ERROR, error=str(error))
            world.broken = True
            self._feed.boot_again()
        self._promote(world)
        await self._tend()
        await give_way(begun_s)

    async def _tend(self) -> bool:
        """Do one slice of what is due for each world; True if there was something."""
        if time.monotonic() > self._observe_at:
            self._observe()
        begun_s, worked = time.perf_counter(), False
        for world in (self._world, self._rising):
            if world is not None and world.shelf.tend():
                worked, begun_s = True, await give_way(begun_s)
        return worked

    def _wake(self) -> None:
        """Let those look again who wait for the log."""
        if not self._moved.done():
            self._moved.set_result(None)

    def _observe(self) -> None:
        self._observe_at = time.monotonic() + _OBSERVE_S
        world = self._world
        if world is not None:
            API_REDO_LAG.set(world.lag_messages())
            API_REDO_LAG_SECONDS.set(world.lag_s())
            API_ITEMS.set(world.replica.items.table.size)
            API_ITEMS_UNLEARNED.set(world.shelf.unlearned)
            API_BYTES.labels("items").set(world.shelf.nbytes)
            API_BYTES.labels("users").set(world.people.nbytes)
            API_STALE.labels("feed").set(int(self.is_behind(world)))
            API_STALE.labels("store").set(int(is_away(self._lookups.get(world))))

    # --- answering ---------------------------------------------------------------------------------------------------

    async def recommend(self, wishes: Sequence[Wish]) -> list[Answer]:
        """Return an answer for each wish; TokenError for a token that is none. Before the first boot they are empty."""
        if not wishes:
            return []
        reached = None
        if len(wishes) > 1 or wishes[0].token:
            asked_s = time.monotonic()
            waits = dict.fromkeys((wish.token, wish.wait_ms) for wish in wishes)  # many mostly wait for one
            ends = {wait: await self._reach(self._places(wait[0]), wait[1], asked_s) for wait in waits}
            reached = [ends[wish.token, wish.wait_ms] for wish in wishes]
        found = await self._desk.answer(wishes)
        if reached is None:
            return list(found)
        return [answer._replace(token_reached=each) for answer, each in zip(found, reached, strict=True)]

    def serve(self, call: Call) -> None:
        """Answer a caller's wishes, none of which has a token."""
        self._desk.take(call)

    async def rank(self, wish: Wish, candidates: Sequence[str]) -> Answer:
        """Return candidates in order (`wish.k` at most): see `saros.api.answers.ranked`."""
        reached = await self.reach(wish.token, wish.wait_ms)
        return (await self._desk.rank(wish, candidates))._replace(token_reached=reached)

    def similar(
        self, item_id: str, k: int, exclude: Sequence[str] = (), category: str = ""
    ) -> list[tuple[str, float]] | None:
        """Return the items most similar to another, with the cosine of their rows; None: an unknown item."""
        return answers.similar(self._world, item_id, k, exclude, category) if self._world is not None else None

    def popular(self, k: int, category: str = "") -> list[tuple[str, float]]:
        """Return the items of the highest positive rate of late."""
        return answers.popular(self._world, k, category) if self._world is not None else []

    async def reach(self, token: str, wait_ms: int) -> bool | None:
        """Wait until the log is folded as far as a token says; TokenError for a token that is none."""
        return await self._reach(self._places(token), wait_ms, time.monotonic())

    def item(self, item_id: str) -> views.ItemView | None:
        """Return an item as it is now; None: it is not known, or was deleted."""
        return views.item_of(self._world, item_id) if self._world is not None else None

    async def person(self, user_id: str, token: str, wait_ms: int) -> tuple[StoredPerson | None, bool | None]:
        """Return what the store knows of a user; SarosError where it does not answer."""
        asked_s, places = time.monotonic(), self._places(token)
        reached, world = await self._reach(places, wait_ms, asked_s), self._world
        lookups = self._lookups.get(world) if world is not None else None
        if world is None or lookups is None:
            raise StoreError("the store was not read yet")
        found, there = await views.person_of(
            lookups, world, self._plan.gate, user_id, places,
            lambda: self._ending or time.monotonic() >= asked_s + wait_ms / 1000, self._waiting,
        )  # fmt: skip
        return found, reached and there

    def gates(self) -> Gates:
        """Return the gate as the log has it."""
        assert self._world is not None, "it was ready"
        return self._world.gates

    def clicks_per_block(self) -> float | None:
        """Return how many clicks a block had, of those that were closed since this process follows the log."""
        return self._pulse.clicks_per_block()

    def stats(self) -> dict[str, object]:
        """Return how it stands, in numbers."""
        world = self._world
        told: dict[str, object] = {"model": self._plan.model, "ready": not self.why_not_ready()}
        if world is None:
            return told | {"why_not_ready": self.why_not_ready()}
        genesis = world.replica.genesis
        return told | {
            "log_id": f"{genesis.log_id:x}",
            "partitions": genesis.partitions,
            "shards": genesis.shards,
            "dim": genesis.rows.dim,
            "items": world.replica.items.table.size,
            "p0": world.shelf.catalogue.p0,
            "model_time_ms": world.newest_ms,
            "next": list(world.reached),
            "lag_messages": world.lag_messages(),
            "lag_s": world.lag_s(),
            "stale": self.is_stale(world),
            "gate_revision": world.gates.highest.revision,
            "users_in_memory": world.people.size,
            "catalogue_bytes": world.shelf.nbytes,
            "users_bytes": world.people.nbytes,
        }

    def sample(self) -> None:
        """Note how it stands, for those who will look back."""
        self._pulse.sample(self._world.lag_s() if self._world is not None else None)

    async def pulse(self) -> dict[str, object]:
        """Return how it stands, for those who watch."""
        return await pulse_of(self._pulse, self._plan, self)

    def history(self) -> dict[str, object]:
        """Return what was noted of late."""
        return self._pulse.history()

    @property
    def world(self) -> World | None:
        """What answers come from; None before the first boot."""
        return self._world

    def is_stale(self, world: World) -> bool:
        """True if answers may be older than the log, or than what the store has."""
        return self.is_behind(world) or is_away(self._lookups.get(world))

    def is_behind(self, world: World) -> bool:
        """True if the items may be older than the log."""
        return self._rising is not None or world.broken or world.lag_s() > self._plan.lag_max_s

    def lookups_of(self, world: World) -> Lookups | None:
        """Return what finds the users of a world; None where that is given up."""
        return self._lookups.get(world)

    def _places(self, token: str) -> dict[int, int]:
        """Return the places of the log that a token names; without one there are none."""
        return read_token(token, self.partitions or _PARTITIONS_MAX) if token else {}

    async def _reach(self, places: Mapping[int, int], wait_ms: int, begun_s: float) -> bool | None:
        """Wait until the log is folded as far as these places; False where that takes too long, None without any."""
        if not places:
            return None
        if self._is_at(places) or wait_ms == 0:
            return self._is_at(places)
        with self._waiting():
            while not self._is_at(places):
                left_s = begun_s + wait_ms / 1000 - time.monotonic()
                if left_s <= 0 or self._ending:
                    return False
                if self._moved.done():
                    self._moved = asyncio.get_running_loop().create_future()
                await asyncio.wait([self._moved], timeout=left_s)
        return True

    def _is_at(self, places: Mapping[int, int]) -> bool:
        """True if the log is folded up to these places."""
        reached = self._world.reached if self._world is not None else None
        return reached is not None and all(reached[partition] > offset for partition, offset in places.items())
