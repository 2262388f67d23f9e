"""What all routes share: the model, the way to Kafka, the limits, and whether it may answer yet."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from saros.adapters.kafka import Sender
from saros.api.ingest import Ingest
from saros.api.limits import WAIT_MS, Limits
from saros.api.live import Live
from saros.api.metrics import READY
from saros.api.plan import TokenError
from saros.api.problems import NOT_READY, ProblemError, bad_token
from saros.api.recommender import Recommender
from saros.api.room import Room
from saros.telemetry import log

_FLUSH_S = 4.0
_LOOK_S = 0.05


class Service:
    """The model and the way to Kafka, from start to end."""

    def __init__(self, model: Recommender, sender: Sender, topic: str, limits: Limits, room: Room) -> None:
        self.model, self.limits, self.room = model, limits, room
        self.ingest = Ingest(sender, topic)
        self.live = Live(model)
        self._sender = sender
        self._loading: asyncio.Task[None] | None = None
        self._was_ready = False
        READY.set_function(lambda: float(not self.model.why_not_ready()))

    def start(self, on_ready: Callable[[BaseException | None], None]) -> None:
        """Begin to load the model, beside all else: a probe wants to know meanwhile that this process lives.

        `on_ready` is called when it is first ready, or cannot be loaded and why.
        """
        self._sender.start()
        self.live.start()
        self._loading = asyncio.create_task(self._load())
        self._loading.add_done_callback(lambda task: None if task.cancelled() else on_ready(task.exception()))

    async def _load(self) -> None:
        await self.model.start()
        while self.model.why_not_ready():
            await asyncio.sleep(_LOOK_S)

    def end(self) -> None:
        """Begin the end: streams are over, and nobody waits for a token any more."""
        self.live.end()
        self.model.end_waits()

    async def close(self) -> None:
        """Send what is on its way, and end the model."""
        await self.live.close()
        if self._loading is not None and not self._loading.done():
            self._loading.cancel()
            await asyncio.wait([self._loading])
        left = await self._sender.close(_FLUSH_S)
        if left:
            log("messages were left behind", messages=left)
        await self.model.close()

    def wait_ms(self, given: Mapping[str, Any]) -> int:
        """Return how long a query lets us wait for its token."""
        wait_ms: int = given.get("wait_ms", min(WAIT_MS, self.limits.wait_ms_max) if "min_token" in given else 0)
        return wait_ms

    async def reach(self, given: Mapping[str, Any]) -> dict[str, bool]:
        """Wait until the model is as new as a query's token; return what is to be said of it, if there is one."""
        token = given.get("min_token", "")
        try:
            reached = await self.model.reach(token, self.wait_ms(given))
        except TokenError as error:
            raise bad_token(error, "query") from error
        return {"token_reached": reached} if reached is not None else {}

    def partitions(self) -> int:
        """Return how many partitions events go to; raise while there is no model, or nobody could look for it."""
        if not self.model.partitions:
            reasons = self.model.why_not_ready()
            raise ProblemError(NOT_READY, f"events are not taken yet: {'; '.join(reasons)}", reasons=reasons)
        return self.model.partitions

    def check_ready(self) -> None:
        """Raise until it was ready once. From then on it answers, however old its model: better than not at all."""
        if not self._was_ready:
            reasons = self.model.why_not_ready()
            if reasons:
                raise ProblemError(NOT_READY, "; ".join(reasons), reasons=reasons)
            self._was_ready = True
