"""Simulated people at a real service: they are shown slates, click, and the clicks come back as events.

A slate is the API's own answer for its person (arm `model`), or drawn evenly (arm `random`), which is decided for each
slate by the seed: both arms have the same people at the same time, who look and choose in the same way. Invariants:

- Nothing is done to favour an arm. What the API answers is shown as it is, from the model or what is popular, however
  short; nothing is filled up. It leaves out what a person clicked before (`exclude_seen`), so random slates do, too:
  both draw from what is new to the person.
- A slate counts when its events were acknowledged. Where the API is away or busy it is waited for, and counted. A round
  that has begun is ended before all of it ends, if that does not take long.
- The rate is kept by an allowance that runs full within a second, so nothing floods after a pause.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np

from saros.client import AsyncClient, Event, NotFoundError, UserRecommendations
from saros.errors import SarosError
from saros.lab import people
from saros.lab.bots import BLOCK_EVENTS, Gang, bot_id, events_a_second
from saros.lab.lift import ARMS, Tally
from saros.lab.pacing import Allowance
from saros.lab.people import NOBODY
from saros.lab.sinks import GO_ON, Sink, wait_s
from saros.lab.town import Town, user_id

SLATE = 10
MODEL, RANDOM = range(len(ARMS))
READY_S = 60.0
_ROUND_S, _POLL_S = 0.2, 0.1
_USERS_MAX, _AT_ONCE = 100, 4  # users of a request, and requests at the same time
_ROUND_SLATES = 1000
_ITEMS_AT_ONCE, _LOOKED_UP = 500, 64
_NUMBER_BITS = 40
_TELL_S, _LAST_ROUND_S = 1.0, 1.5

T = TypeVar("T")


class Traffic(NamedTuple):
    """What is asked for."""

    users: int = 300
    items: int = 500
    rate: float = 200.0
    bots: int = 0
    control: float = 0.3
    seed: int = 0


class Simulation:
    """People, bots, and what came of their slates."""

    def __init__(
        self, client: AsyncClient, sink: Sink, traffic: Traffic, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._sink, self._traffic, self._clock = client, sink, traffic, clock
        self._world = people.new_world(traffic.seed, traffic.items)
        self._gang = Gang(self._world, traffic.bots) if traffic.bots else None
        self._tally, self._town = Tally(traffic.items), Town(traffic.seed, traffic.users)
        self._began_s: float | None = None
        self._sent, self._slates, self._away = 0, 0, 0
        self._ends = False
        # Ids differ from run to run, or a second run with this seed would be taken for the first.
        self._run, self._numbers = secrets.token_hex(4), count(1)

    async def run(self) -> None:
        """Wait for the API, tell it of the films, and go on until it is to end."""
        await self._await_ready()
        await self._send_films()
        self._town = Town(self._traffic.seed, self._traffic.users, await self._first_stranger())
        began_s = self._began_s = self._clock()
        of_bots = events_a_second(self._traffic.bots, self._traffic.rate)
        bots, own = Allowance(of_bots, began_s), Allowance(self._traffic.rate - of_bots, began_s)
        each = 1.5  # events of a slate; what they were in the last rounds
        while not self._ends:
            now_s = self._clock()
            slates = min(int(own.left(now_s) / each), self._town.seats, _ROUND_SLATES)
            blocks = int(bots.left(now_s) / BLOCK_EVENTS)
            if slates > 0 or blocks > 0:
                events = await self._round(slates, blocks)
                own.spend(events)
                bots.spend(BLOCK_EVENTS * blocks)
                each += 0.1 * (events / slates - each) if slates else 0.0
            await asyncio.sleep(max(0.0, now_s + _ROUND_S - self._clock()) if slates < self._town.seats else 0.0)

    def end(self) -> None:
        """Let `run` return after this round."""
        self._ends = True

    @property
    def seconds(self) -> float:
        """How long people have been there."""
        return 0.0 if self._began_s is None else self._clock() - self._began_s

    def told(self) -> dict[str, Any]:
        """Return how it stands, as JSON has it."""
        now_s = self.seconds
        told = {
            "time": round(time.time(), 3), "seconds": round(now_s, 1), "sent": self._sent, "slates": self._slates,
            "people": self._town.newest, "away": self._away, "rejected": getattr(self._sink, "rejected", 0),
            **self._tally.told(now_s),
        }  # fmt: skip
        if self._gang is not None:
            targets = [people.film_id(film) for film in self._gang.targets.tolist()]
            share = self._tally.share_of(now_s, self._gang.targets)
            told["bots"] = {"bots": self._gang.bots, "blocks": self._gang.blocks, "share": share, "targets": targets}
        else:
            told["bots"] = {"bots": 0, "blocks": 0, "share": None, "targets": []}
        return told

    # --- before it begins ---------------------------------------------------------------------------------------------

    async def _await_ready(self) -> None:
        """Return when the API is ready to recommend."""
        until_s, why = self._clock() + READY_S, "it says nothing"
        while self._clock() < until_s:
            try:
                told = await self._client.stats()
                if told.get("ready"):
                    return
                why = ", ".join(told.get("why_not_ready", ())) or "it is not ready"
            except GO_ON as error:
                why = str(error)
            await asyncio.sleep(_POLL_S)
        raise SarosError(f"the API was not ready within {READY_S:g} s: {why}")

    async def _send_films(self) -> None:
        """Tell of all films, and return when the API knows them: a slate is drawn from as many in both arms."""
        films: list[Event] = [
            {
                "kind": "item", "item": people.film_id(film), "event_id": self._event_id(),
                "categories": people.categories(self._world, film), "properties": people.properties(self._world, film),
            }
            for film in range(self._world.films)
        ]  # fmt: skip
        for first in range(0, len(films), _ITEMS_AT_ONCE):
            await self._send(films[first : first + _ITEMS_AT_ONCE])
        until_s = self._clock() + READY_S
        # A partition's events are learned in order: where its last film is known, all of its are.
        for film in range(max(0, self._world.films - _LOOKED_UP), self._world.films):
            while not await self._patiently(partial(self._knows, people.film_id(film))):
                if self._clock() > until_s:
                    raise SarosError(
                        f"{people.film_id(film)} was sent and is not known to the API after {READY_S:g} s: "
                        "does a trainer run, and read what is sent?"
                    )
                await asyncio.sleep(_POLL_S)

    async def _knows(self, item_id: str) -> bool:
        try:
            await self._client.get_item(item_id)
        except NotFoundError:
            return False
        return True

    async def _first_stranger(self) -> int:
        """Return the first number of a person that the model has not met.

        A run begins with people that nobody knows: those of a run before have blocks that the gate counts for days, and
        would soon have too many.
        """
        low = await self._last_known(2**power for power in range(_NUMBER_BITS))
        high = 2 * low
        while high - low > self._traffic.users:
            step = -(-(high - low) // _USERS_MAX)
            low = max(low, await self._last_known(range(low + step, high, step)))
            high = min(high, low + step)
        # Of those who came last some have closed no block yet, and look like strangers.
        return high + self._traffic.users if low else 1

    async def _last_known(self, numbers: Iterable[int]) -> int:
        """Return the highest of up to 100 numbers, in order, whose person the model has met; 0: none."""
        asked = list(numbers)
        answers = await self._patiently(partial(self._client.recommend_many, list(map(user_id, asked)), k=1))
        known = (person for person, one in zip(asked, answers, strict=True) if one.user_state != "cold")
        return max(known, default=0)

    # --- a round ------------------------------------------------------------------------------------------------------

    async def _round(self, slates: int, blocks: int) -> int:
        """Show so many slates, and let bots close so many blocks; return how many events people sent."""
        town, world = self._town, self._world
        seats = town.next(slates)
        person, slate, taken = town.person[seats], town.slate[seats], town.taken[seats]
        arm = np.where(town.in_control(seats, self._traffic.control), RANDOM, MODEL)
        answers = await self._ask([user_id(one) for one in person[arm == MODEL].tolist()])
        shown = np.full((len(seats), SLATE), NOBODY)
        random = arm == RANDOM
        shown[random] = people.at_random(world, person[random], slate[random], taken[random], SLATE)
        ids = [[people.film_id(film) for film in row if film != NOBODY] for row in shown.tolist()]
        for row, answer in zip(np.flatnonzero(arm == MODEL).tolist(), answers, strict=True):
            ids[row] = [item.item_id for item in answer.items]
            shown[row, : len(ids[row])] = [people.film_of(item_id, world.films) for item_id in ids[row]]
        place = people.choose(world, person, slate, shown, taken)
        by_row = dict(zip(np.flatnonzero(arm == MODEL).tolist(), answers, strict=True))
        events: list[Event] = []
        for row, items in enumerate(ids):
            if items:  # an answer may be empty, and no impression is
                answer_id = by_row[row].recommendation_id if row in by_row else ""
                events += self._slate_events(int(seats[row]), ARMS[int(arm[row])], items, answer_id, int(place[row]))
        await self._send([*events, *self._bot_events(blocks)])
        clicked = np.where(place == NOBODY, NOBODY, shown[np.arange(len(seats)), np.maximum(place, 0)])
        self._tally.add(self.seconds, arm, shown, clicked)
        town.has_seen(seats, clicked)
        self._slates += len(seats)
        return len(events)

    async def _ask(self, users: list[str]) -> list[UserRecommendations]:
        """Return what the API recommends to each of many."""
        found: list[UserRecommendations] = []
        chunks = [users[first : first + _USERS_MAX] for first in range(0, len(users), _USERS_MAX)]
        for first in range(0, len(chunks), _AT_ONCE):
            asked = [
                self._patiently(partial(self._client.recommend_many, chunk, k=SLATE, scenario=ARMS[MODEL]))
                for chunk in chunks[first : first + _AT_ONCE]
            ]
            found += [one for some in await asyncio.gather(*asked) for one in some]
        return found

    def _slate_events(self, seat: int, arm: str, items: list[str], answer_id: str, place: int) -> list[Event]:
        """Return a slate's impression, and the click if there is one."""
        user = user_id(int(self._town.person[seat]))
        about: Event = {"kind": "impression", "user": user, "scenario": arm}
        about["session_id"] = f"{user}-{int(self._town.session[seat]) + 1}"
        if answer_id:
            about["recommendation_id"] = answer_id
        events: list[Event] = [{**about, "items": items, "event_id": self._event_id()}]
        if place != NOBODY:
            click: Event = {**about, "kind": "click", "item": items[place]}
            events.append({**click, "position": place + 1, "event_id": self._event_id()})
        return events

    def _bot_events(self, blocks: int) -> list[Event]:
        events: list[Event] = []
        for block in self._gang.next(blocks) if self._gang is not None else ():
            user, items = bot_id(block.bot), [people.film_id(film) for film in block.films]
            events.append({"kind": "impression", "user": user, "items": items, "event_id": self._event_id()})
            click: Event = {"kind": "click", "user": user, "item": items[-1], "position": len(items)}
            events.append({**click, "event_id": self._event_id()})
        return events

    async def _send(self, events: list[Event]) -> None:
        if events:
            self._away += await self._sink.send(events)
            self._sent += len(events)

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call until it is answered. The client has tried a few times by itself before it gives up."""
        while True:
            try:
                return await call()
            except GO_ON as error:
                self._away += 1
                await asyncio.sleep(wait_s(error))

    def _event_id(self) -> str:
        return f"{self._run}-{next(self._numbers):x}"


async def watch(
    simulation: Simulation, seconds: float, stop: asyncio.Event, tell: Callable[[dict[str, Any], bool], None]
) -> None:
    """Run a simulation for so many seconds of traffic, 0 = until `stop`; tell how it stands each second and, with True,
    at the end."""
    tasks = running, stopping = asyncio.create_task(simulation.run()), asyncio.create_task(stop.wait())
    try:
        while True:
            left_s = seconds - simulation.seconds if seconds else _TELL_S
            done, _ = await asyncio.wait(tasks, timeout=max(0.0, min(_TELL_S, left_s)), return_when="FIRST_COMPLETED")
            if running in done:
                running.result()
            last = stopping in done or 0 < seconds <= simulation.seconds
            if last:
                simulation.end()
                await asyncio.wait([running], timeout=_LAST_ROUND_S)
            tell(simulation.told(), last)
            if last:
                return
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
