"""Batchers: they take events one by one, and send them many at a time.

A batch goes when it is large enough, when its oldest event has waited long enough, and at `flush` and `close`. One is
on its way at a time, so a user's events stay in order. What is not acknowledged stays in the queue and is sent again
until it is: where the API is away for long the queue fills, and `put` says so. Nothing is lost in silence.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from saros.client.answers import Receipt, Rejected
from saros.client.errors import ClientError, QueueFullError, UnsentError
from saros.client.events import Event, Line, line_of

_LOG = logging.getLogger("saros.client")
_PAUSE_S = 1.0  # after a batch that could not be sent; the client itself has tried for a while
_CLOSE_S = 10.0

_NOTHING = Receipt(0, (), "")

Report = Callable[[Event, Rejected], None]


class Room(NamedTuple):
    """When a batch goes, and how many events may wait."""

    size: int
    every_s: float
    queue_max: int


class BatcherCounts(NamedTuple):
    """What became of the events that a batcher was given."""

    accepted: int
    rejected: int
    waiting: int


class _Queue:
    """Events that wait, and what became of the others. Whoever owns it lets one in at a time."""

    def __init__(self, room: Room, on_rejected: Report | None) -> None:
        if not 1 <= room.size <= room.queue_max or room.every_s <= 0:
            raise ValueError("a batcher needs 1 <= size <= queue_max, and every_s above 0")
        self._room, self._on_rejected = room, on_rejected or _warn
        self._lines: deque[Line] = deque()
        self._oldest_s = 0.0
        self._sending = 0  # lines that are on their way
        self._hurry = False
        self._accepted = self._rejected = 0
        self._error: ClientError | None = None

    @property
    def waiting(self) -> int:
        """Events that are not acknowledged yet."""
        return len(self._lines) + self._sending

    @property
    def counts(self) -> BatcherCounts:
        return BatcherCounts(self._accepted, self._rejected, self.waiting)

    @property
    def full(self) -> bool:
        return self.waiting >= self._room.queue_max

    def put(self, line: Line) -> bool:
        """Take an event; return whether somebody has to be woken."""
        if not self._lines:
            self._oldest_s = time.monotonic()
        self._lines.append(line)
        return len(self._lines) in (1, self._room.size)

    def hurry(self) -> None:
        """Let what is there go at once."""
        self._hurry = True

    def due_s(self) -> float | None:
        """Return in how long a batch goes; None: there is nothing."""
        if not self._lines:
            self._hurry = False
            return None
        if self._hurry or len(self._lines) >= self._room.size:
            return 0.0
        return max(0.0, self._oldest_s + self._room.every_s - time.monotonic())

    def take(self) -> list[Line]:
        """Return a batch."""
        batch = [self._lines.popleft() for _ in range(min(len(self._lines), self._room.size))]
        self._sending, self._oldest_s = len(batch), time.monotonic()
        return batch

    def settle(
        self, batch: Sequence[Line], receipt: Receipt, error: UnsentError | None
    ) -> list[tuple[Event, Rejected]]:
        """Note what became of a batch: what was not acknowledged goes back to the front. Return what was refused."""
        unsent = error.unsent if error is not None else ()
        self._lines.extendleft(batch[place] for place in reversed(unsent))
        self._sending = 0
        self._accepted += receipt.accepted
        self._rejected += len(receipt.rejected)
        self._error = error
        return [(batch[one.index].event, one) for one in receipt.rejected]

    def report(self, refused: Sequence[tuple[Event, Rejected]]) -> None:
        """Tell of events that were refused; whatever the caller's function does, sending goes on."""
        for event, rejected in refused:
            try:
                self._on_rejected(event, rejected)
            except Exception:
                _LOG.exception("on_rejected failed")

    def full_error(self) -> QueueFullError:
        """Return the error of a full queue."""
        error = QueueFullError(f"{self.waiting} events wait to be sent, and there is no room for more")
        error.__cause__ = self._error
        return error

    def unsent_error(self) -> UnsentError:
        """Return the error of events that are still here."""
        why = str(self._error) if self._error is not None else "there was not enough time"
        error = UnsentError(range(self.waiting), Receipt(self._accepted, (), ""), why)
        error.__cause__ = self._error
        return error


def _unsent(batch: Sequence[Line], defect: Exception) -> UnsentError:
    """Return the error of a batch that nobody expected to fail so: all of it stays, and is sent again."""
    _LOG.error("sending events failed", exc_info=defect)
    error = UnsentError(range(len(batch)), _NOTHING, repr(defect))
    error.__cause__ = defect
    return error


def _warn(event: Event, rejected: Rejected) -> None:
    _LOG.warning("an event was refused: %s (%s)", rejected.reason, rejected.detail)


class Batcher:
    """Takes events from any thread, and sends them from one of its own."""

    def __init__(self, send: Callable[[Sequence[Line]], Receipt], room: Room, on_rejected: Report | None) -> None:
        self._send, self._queue = send, _Queue(room, on_rejected)
        self._changed = threading.Condition()
        self._closing = self._stopped = False
        # A daemon, as it may be in the middle of a long wait when the program ends.
        self._thread = threading.Thread(target=self._run, name="saros-batcher", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> BatcherCounts:
        """What became of the events so far."""
        with self._changed:
            return self._queue.counts

    def put(self, event: Event, *, wait_s: float = 0.0) -> None:
        """Take an event. Where the queue stays full for `wait_s`, QueueFullError."""
        line = line_of(event)
        with self._changed:
            if not self._changed.wait_for(lambda: self._closing or not self._queue.full, wait_s):
                raise self._queue.full_error()
            if self._closing:
                raise ClientError("the batcher is closed")
            if self._queue.put(line):
                self._changed.notify_all()

    def flush(self, timeout_s: float = _CLOSE_S) -> None:
        """Return when nothing waits any more; UnsentError where that takes too long."""
        with self._changed:
            self._queue.hurry()
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._queue.waiting, timeout_s):
                raise self._queue.unsent_error()

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Send what waits, and take no more; UnsentError where something is left after that time."""
        with self._changed:
            self._closing = True
        try:
            self.flush(timeout_s)
        finally:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            try:
                receipt, error = self._send(batch), None
            except UnsentError as unsent:
                receipt, error = unsent.receipt, unsent
            except Exception as defect:
                receipt, error = _NOTHING, _unsent(batch, defect)
            with self._changed:
                refused = self._queue.settle(batch, receipt, error)
            self._queue.report(refused)
            with self._changed:
                self._changed.notify_all()
                if error is not None:
                    self._changed.wait_for(lambda: self._stopped, _PAUSE_S)

    def _next(self) -> list[Line] | None:
        """Wait for a batch; None at the end."""
        with self._changed:
            while not self._stopped:
                due_s = self._queue.due_s()
                if due_s == 0:
                    return self._queue.take()
                self._changed.wait(due_s)
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncBatcher:
    """The same for one event loop: it takes events from coroutines, and sends them from a task."""

    def __init__(
        self, send: Callable[[Sequence[Line]], Awaitable[Receipt]], room: Room, on_rejected: Report | None
    ) -> None:
        self._send, self._queue = send, _Queue(room, on_rejected)
        self._changed = asyncio.Condition()
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def counts(self) -> BatcherCounts:
        """What became of the events so far."""
        return self._queue.counts

    async def put(self, event: Event, *, wait_s: float = 0.0) -> None:
        """Take an event. Where the queue stays full for `wait_s`, QueueFullError."""
        line = line_of(event)
        async with self._changed:
            if self._queue.full and not self._closing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait_for(lambda: self._closing or not self._queue.full)
            if self._closing:
                raise ClientError("the batcher is closed")
            if self._queue.full:
                raise self._queue.full_error()
            if self._queue.put(line):
                self._changed.notify_all()

    async def flush(self, timeout_s: float = _CLOSE_S) -> None:
        """Return when nothing waits any more; UnsentError where that takes too long."""
        async with self._changed:
            self._queue.hurry()
            self._changed.notify_all()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait_for(lambda: not self._queue.waiting)
            except TimeoutError:
                error = self._queue.unsent_error()
                raise error from error.__cause__

    async def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Send what waits, and take no more; UnsentError where something is left after that time."""
        self._closing = True
        try:
            await self.flush(timeout_s)
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            batch = await self._next()
            try:
                receipt, error = await self._send(batch), None
            except UnsentError as unsent:
                receipt, error = unsent.receipt, unsent
            except Exception as defect:
                receipt, error = _NOTHING, _unsent(batch, defect)
            self._queue.report(self._queue.settle(batch, receipt, error))
            async with self._changed:
                self._changed.notify_all()
            if error is not None:
                await asyncio.sleep(_PAUSE_S)

    async def _next(self) -> list[Line]:
        """Wait for a batch."""
        async with self._changed:
            while (due_s := self._queue.due_s()) != 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(due_s):
                        await self._changed.wait()
            return self._queue.take()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
