"""Those who watch: a pulse each second, made once for all of them, and only while there is somebody.

Nothing is queued: who reads too slowly misses pulses. The past is noted each second whoever watches, so that whoever
comes later sees it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator

from saros.api.recommender import Recommender
from saros.api.replies import to_json

_LOG = logging.getLogger("saros.api")
STEP_S = 1.0


def event_of(name: str, data: object) -> bytes:
    """Return a server-sent event: JSON has no line ends, so it is one line."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(data))


class Live:
    """Makes pulses for all streams. All methods are for one event loop."""

    def __init__(self, model: Recommender) -> None:
        self._model = model
        self._streams, self._over, self._event = 0, False, b""
        self._next = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to note the past."""
        self._task = asyncio.create_task(self._run())

    def end(self) -> None:
        """Let all streams end, and those that come later at once."""
        self._over = True
        self._next.set()

    async def close(self) -> None:
        """End everything."""
        self.end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        loop, failed = asyncio.get_running_loop(), False
        due_s = loop.time()
        while True:
            due_s = max(due_s + STEP_S, loop.time())  # seconds that were missed are left out
            await asyncio.sleep(due_s - loop.time())
            try:
                await self._beat()
                failed = False
            except Exception:  # a defect must not end it for good, unnoticed; nor fill the log
                if not failed:
                    _LOG.exception("pulse could not be made")
                failed = True

    async def _beat(self) -> None:
        self._model.sample()
        if self._streams:
            self._event = event_of("pulse", await self._model.pulse())
            told, self._next = self._next, asyncio.Event()
            told.set()
            if self._over:
                self._next.set()

    async def events(self, count: int | None) -> AsyncGenerator[bytes, None]:
        """Yield the past, then a pulse each second: so many, or until the end."""
        self._streams += 1
        try:
            yield event_of("history", self._model.history())
            while not self._over and count != 0:
                await self._next.wait()
                if self._over:
                    return
                yield self._event
                count = None if count is None else count - 1
        finally:
            self._streams -= 1
