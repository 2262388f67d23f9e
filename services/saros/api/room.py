"""How many requests there are, of each kind that has a limit of its own: in work, waiting for a token, streams.

Who waits for a token, or keeps a stream open, costs no work, and must not keep others from being served: it gives its
place among those in work to them meanwhile. One thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from saros.api.limits import Limits
from saros.api.metrics import BUSY, SHED, STREAMS, WAITING
from saros.api.problems import OVERLOADED, ProblemError


class Room:
    """Room for requests."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.busy = self.streams = self.waiting = 0
        BUSY.set_function(lambda: self.busy)
        STREAMS.set_function(lambda: self.streams)
        WAITING.set_function(lambda: self.waiting)

    @property
    def is_full(self) -> bool:
        """True if as many requests are in work as may be."""
        return self.busy >= self._limits.concurrency_max

    def check(self, stays: bool) -> None:
        """Raise where a request that was counted, a stream if it stays, is one too many."""
        limits = self._limits
        if stays and self.streams > limits.streams_max:
            raise _sent_away(f"{limits.streams_max} streams are open")
        if not stays and self.busy > limits.concurrency_max:
            raise _sent_away(f"{limits.concurrency_max} requests are in work")

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Let a request in work wait, until the end of the block; raise where too many do."""
        if self.waiting >= self._limits.waits_max:
            raise _sent_away(f"{self._limits.waits_max} requests wait for a token")
        self.waiting, self.busy = self.waiting + 1, self.busy - 1
        try:
            yield
        finally:
            self.waiting, self.busy = self.waiting - 1, self.busy + 1


def _sent_away(why: str) -> ProblemError:
    SHED.inc()
    return ProblemError(OVERLOADED, why)
