"""Stopping on a signal: in order, and in time."""

import os
import signal
import time
from types import FrameType

# Whoever sent the signal kills after a while, 10 s as a rule. What takes longer than this is left to the next owner.
_GRACE_S = 4.0


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
