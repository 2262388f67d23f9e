"""The desk: wishes that come while others are looked up are answered together, in one pass.

A pass has one read of the store for all its users, and one call of each kernel for many of them: what Python spends on
a call is shared, and is more than most answers take to compute. At most two passes are under way: one is looked up
while another is answered, and whoever comes meanwhile is in the next one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from saros.api.plan import Answer, Wish

_PASSES = 2
_WISHES = 64  # with so many a pass is full


class Call(NamedTuple):
    """Wishes of one caller."""

    wishes: Sequence[Wish]
    answers: "asyncio.Future[list[Answer]]"


Work = Callable[[Sequence[Call]], Awaitable[None]]


class Desk:
    """Lets calls wait for one another."""

    def __init__(self, work: Work) -> None:
        """`work` answers the calls of a pass."""
        self._work = work
        self._calls: deque[Call] = deque()
        self._passes: set[asyncio.Task[None]] = set()
        self._called = False

    def answer(self, wishes: Sequence[Wish]) -> "asyncio.Future[list[Answer]]":
        """Return what the answers will be in."""
        loop = asyncio.get_running_loop()
        answers: asyncio.Future[list[Answer]] = loop.create_future()
        self._calls.append(Call(wishes, answers))
        if not self._called and len(self._passes) < _PASSES:
            self._called = True
            loop.call_soon(self._begin)  # what else comes in this turn of the loop goes along
        return answers

    def _begin(self) -> None:
        self._called = False
        while self._calls and len(self._passes) < _PASSES:
            calls, count = list[Call](), 0
            while self._calls and count < _WISHES:
                calls.append(self._calls.popleft())
                count += len(calls[-1].wishes)
            task = asyncio.get_running_loop().create_task(self._pass(calls))
            self._passes.add(task)

    async def _pass(self, calls: list[Call]) -> None:
        try:
            await self._work(calls)
        except Exception as error:
            for call in calls:
                if not call.answers.done():
                    call.answers.set_exception(error)
        finally:
            self._passes.discard(asyncio.current_task())
            for call in calls:
                call.answers.cancel()  # only where we were cancelled ourselves
            self._begin()

    async def close(self) -> None:
        """End what is under way; nobody asks any more."""
        for task in self._passes:
            task.cancel()
        await asyncio.gather(*self._passes, return_exceptions=True)
