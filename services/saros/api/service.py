"""What all routes share: the model, the way to Kafka, the limits, and whether it may answer yet."""

import asyncio
from collections.abc import Callable

from saros.adapters.kafka import Sender
from saros.api.ingest import Ingest
from saros.api.limits import Limits
from saros.api.metrics import READY
from saros.api.model_types import Recommender
from saros.api.problems import NOT_READY, ProblemError
from saros.telemetry import log

_FLUSH_S = 5.0


class Service:
    """The model and the way to Kafka, from start to end."""

    def __init__(self, model: Recommender, sender: Sender, topic: str, limits: Limits) -> None:
        self.model, self.limits = model, limits
        self.ingest = Ingest(sender, topic)
        self._sender = sender
        self._starting: asyncio.Task[None] | None = None
        self._was_ready = False
        READY.set_function(lambda: float(not self.why_not_ready()))

    def start(self, on_loaded: Callable[[BaseException | None], None]) -> None:
        """Begin to load the model, beside all else: a probe wants to know meanwhile that this process lives.

        `on_loaded` is called when it is loaded, or cannot be and why.
        """
        self._sender.start()
        self._starting = asyncio.create_task(self.model.start())

        def started(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                on_loaded(task.exception())

        self._starting.add_done_callback(started)

    async def close(self) -> None:
        """Send what is on its way, and end the model."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        left = await self._sender.close(_FLUSH_S)
        if left:
            log("messages were left behind", messages=left)
        await self.model.close()

    def why_not_ready(self) -> list[str]:
        """Return what is missing, in words; nothing: it is ready."""
        if self._starting is None or not self._starting.done():
            return ["the model is being loaded", *self.model.why_not_ready()]
        return self.model.why_not_ready()

    def check_ready(self) -> None:
        """Raise until it was ready once. From then on it answers, however old its model: better than not at all."""
        if not self._was_ready:
            reasons = self.why_not_ready()
            if reasons:
                raise ProblemError(NOT_READY, "; ".join(reasons), reasons=reasons)
            self._was_ready = True
