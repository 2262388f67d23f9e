"""The desk: wishes that come while others are looked up are answered together, in one pass.

A pass has one read of the store for all its users, and one call of each kernel for many of them: what Python spends on
a call is shared, and is more than most answers take to compute. Whoever comes while a pass is under way is in the next
one; where many are waiting it begins at once, so that one is looked up while another is answered. However many they
are, nobody has the loop for longer than a slice.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from saros.api import answers, extras
from saros.api.lookups import Lookups
from saros.api.observe import API_ANSWERS, API_FALLBACKS, API_SLICE_SECONDS
from saros.api.people import NOBODY, STATES, Party
from saros.api.plan import Answer, Call, Wish
from saros.api.world import World
from saros.core.glance import COLD

SLICE_S = 0.0005  # pieces of work are shorter than this: a slice stays below a millisecond
_SLICE_ROWS = 320_000  # of the catalogue, that are looked at in such a piece
_ITEM_ROWS = 200  # an item of an answer takes as long as so many of them
_PASSES = 2
_CALLS = 32  # so many are worth a second pass
_WISHES = 64  # with so many a pass is full
_ANSWERS = {source: API_ANSWERS.labels(source) for source in ("model", "session", "popular")}
_NOTHING = Answer([], "popular", STATES[COLD], 0, True, None)


class Followed(Protocol):
    """A model as it follows its log."""

    @property
    def world(self) -> World | None:
        """What answers come from; None before the first boot."""

    def lookups_of(self, world: World) -> Lookups | None:
        """Return what finds the users of a world; None where that is given up."""

    def is_behind(self, world: World) -> bool:
        """True if the items may be older than the log."""


class _Awaited(NamedTuple):
    """A call that somebody awaits."""

    wishes: Sequence[Wish]
    answers: "asyncio.Future[Sequence[Answer]]"

    def resolve(self, found: Sequence[Answer]) -> None:
        """Hand over the answers, if they are still waited for."""
        if not self.answers.done():
            self.answers.set_result(found)

    def fail(self, error: BaseException) -> None:
        """Raise where they are waited for."""
        if not isinstance(error, Exception):
            self.answers.cancel()
        elif not self.answers.done():
            self.answers.set_exception(error)


class Desk:
    """Answers from a model."""

    def __init__(self, model: Followed) -> None:
        self._model = model
        self._calls: deque[Call] = deque()
        self._passes: set[asyncio.Task[None]] = set()
        self._called = False

    def answer(self, wishes: Sequence[Wish]) -> "asyncio.Future[Sequence[Answer]]":
        """Return what the answers to wishes, one at least, will be in."""
        answers: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self.take(_Awaited(wishes, answers))
        return answers

    def take(self, call: Call) -> None:
        """Answer a call in a pass to come."""
        self._calls.append(call)
        if not self._called and self._is_due():
            self._called = True
            asyncio.get_running_loop().call_soon(self._begin)  # what else comes in this turn of the loop goes along

    async def rank(self, wish: Wish, candidates: Sequence[str]) -> Answer:
        """Return candidates in order: see `saros.api.answers.ranked`."""
        world = self._model.world
        if world is None:
            return _NOTHING
        party, (place,) = await self._party(world, [wish])
        person = party.person(place) if place >= 0 else NOBODY
        return self._answer(world, [wish], party, [place], [(*answers.ranked(world, wish, person, candidates), None)])[
            0
        ]

    async def close(self) -> None:
        """End what is under way; nobody asks any more."""
        for task in self._passes:
            task.cancel()
        await asyncio.gather(*self._passes, return_exceptions=True)

    # --- a pass ------------------------------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        """True if a pass is to begin."""
        if not self._passes:
            return bool(self._calls)
        return len(self._calls) >= _CALLS and len(self._passes) < _PASSES

    def _begin(self) -> None:
        self._called = False
        while self._is_due():
            calls, count = deque[Call](), 0
            while self._calls and count < _WISHES:
                calls.append(self._calls.popleft())
                count += len(calls[-1].wishes)
            self._passes.add(asyncio.get_running_loop().create_task(self._pass(calls)))

    async def _pass(self, calls: deque[Call]) -> None:
        try:
            await self._serve(calls)
        except BaseException as error:
            for call in calls:  # those that are left
                call.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._passes.discard(asyncio.current_task())
            # Under load some of those who were answered ask again at once. That is read in the next turn of the loop,
            # and then they go along with those who wait already.
            self._called, loop = True, asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._begin)

    async def _serve(self, calls: deque[Call]) -> None:
        """Answer calls, which leave the queue, so many wishes at a time as a slice of the loop has room for."""
        wishes, world = [wish for call in calls for wish in call.wishes], self._model.world
        if world is None:
            API_FALLBACKS.labels("not_ready").inc(len(wishes))
            while calls:
                call = calls.popleft()
                call.resolve([_NOTHING] * len(call.wishes))
            return
        party, places = await self._party(world, wishes)
        begun_s, done = time.perf_counter(), list[Answer]()
        for first, end in pieces(wishes, world.replica.items.table.size):
            some, where = wishes[first:end], places[first:end]
            done += self._answer(world, some, party, where, _found(world, some, party, where))
            if time.perf_counter() - begun_s > SLICE_S:
                begun_s = await give_way(begun_s)
            told = 0
            while calls and len(done) - told >= (count := len(calls[0].wishes)):
                if time.perf_counter() - begun_s > SLICE_S:
                    begun_s = await give_way(begun_s)
                calls.popleft().resolve(done[told : told + count])
                told += count
            del done[:told]

    async def _party(self, world: World, wishes: Sequence[Wish]) -> tuple[Party, list[int]]:
        """Return who asks, and where in that party the user of each wish stands; -1: it has none."""
        ids, places = list[str](), list[int]()
        lookups = self._model.lookups_of(world)
        for wish in wishes:
            if wish.user_id and lookups is not None:
                places.append(len(ids))
                ids.append(wish.user_id)
            else:
                places.append(-1)
        if lookups is None or not ids:
            return world.people.find(np.zeros(0, np.uint64), np.zeros(0, np.int32))[0], places
        return await lookups.find(ids), places

    def _answer(
        self, world: World, wishes: Sequence[Wish], party: Party, places: Sequence[int],
        found: Sequence[answers.Best],
    ) -> list[Answer]:  # fmt: skip
        """Return an answer for each wish, with what was found for it, and count them."""
        behind, away = self._model.is_behind(world), is_away(self._model.lookups_of(world))
        states, stale, told = party.states.tolist(), party.stale.tolist(), list[Answer]()
        sources = dict.fromkeys(_ANSWERS, 0)
        for wish, place, (items, source, notes) in zip(wishes, places, found, strict=True):
            state = STATES[states[place] if place >= 0 else COLD]
            doubted = behind or (place >= 0 and stale[place] != 0) or (away and wish.user_id != "")
            sources[source] += 1
            if source == "popular":
                known = state != STATES[COLD] or (place >= 0 and party.users.seen_count[place] > 0)
                reason = "store_away" if away else "row_not_moved" if known else "unknown_user"
                API_FALLBACKS.labels(reason if wish.user_id else "no_session").inc()
            told.append(Answer(items, source, state, world.newest_ms, doubted, None, notes))
        for source, count in sources.items():
            if count:
                _ANSWERS[source].inc(count)
        return told


def pieces(wishes: Sequence[Wish], size: int) -> Iterator[tuple[int, int]]:
    """Yield where pieces of work begin and end that a slice has room for, over a catalogue of so many items."""
    first, rows = 0, 0
    for place, wish in enumerate(wishes):
        own = _SLICE_ROWS if wish.extras is not None else size + _ITEM_ROWS * wish.k
        if place > first and (rows + own > _SLICE_ROWS or place - first >= _WISHES):
            yield first, place
            first, rows = place, 0
        rows += own
    yield first, len(wishes)


def _found(world: World, wishes: Sequence[Wish], party: Party, places: Sequence[int]) -> list[answers.Best]:
    """Return the best items for each wish; of those who want more than that, all they want."""
    found = answers.best_of(world, wishes, party, places)
    for k, (wish, place) in enumerate(zip(wishes, places, strict=True)):
        if wish.extras is not None:
            found[k] = extras.refined(world, wish, wish.extras, party.person(place) if place >= 0 else NOBODY)
    return found


def is_away(lookups: Lookups | None) -> bool:
    """True if users cannot be read."""
    return lookups is None or lookups.away


async def give_way(begun_s: float) -> float:
    """Let others have the loop; return when the next slice begins."""
    API_SLICE_SECONDS.observe(time.perf_counter() - begun_s)
    await asyncio.sleep(0)
    return time.perf_counter()
