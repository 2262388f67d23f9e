"""Stopping on a signal: in order, and in time."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import FrameType
from typing import TypeVar

# Whoever sent the signal kills after a while, 10 s as a rule. What takes longer than this is left to the next owner.
_GRACE_S = 4.0
_SLICE_S = 0.2  # between two looks whether it is late

_T = TypeVar("_T")


class StoppedError(Exception):
    """A signal came in the middle of something long, which was left as it stood: as if the process had been killed."""


class Stop:
    """The first signal ends in order, the second at once: nothing is lost either way."""

    def __init__(self) -> None:
        self.asked = False
        self._late_s = 0.0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            os._exit(1)
        self._late_s = time.monotonic() + _GRACE_S
        self.asked = True

    def check(self) -> None:
        """Raise if a stop was asked for: where nothing is begun yet that could be ended in order."""
        if self.asked:
            raise StoppedError("before partitions were begun")

    def check_late(self) -> None:
        """Raise if a stop was asked for some seconds ago: in whatever may take long, between two steps of it."""
        if self.asked and time.monotonic() > self._late_s:
            raise StoppedError("in the middle of something long")


def awaited(answer: Future[_T], check: Callable[[], None]) -> _T:
    """Return the answer of a thread; `check` may end the waiting: a store that hangs keeps a call for long."""
    while not wait([answer], _SLICE_S).done:
        check()
    return answer.result()
