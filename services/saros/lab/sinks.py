"""Where the events of simulated people go: to the API, or straight to Kafka."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from saros.client import ApiError, AsyncClient, BusyError, Event, NoAnswerError, ServerError, UnsentError
from saros.errors import BrokerError

# Somebody is away or busy, and will be back.
GO_ON = (BusyError, NoAnswerError, ServerError)
_AWAY_S, _RETRY_MAX_S = 0.5, 30.0


def wait_s(error: Exception) -> float:
    """Return how long to wait for one that is away: as long as it asks for, or a little."""
    asked_s = (error.retry_after_s or 0.0) if isinstance(error, ApiError) else 0.0
    return min(_RETRY_MAX_S, max(_AWAY_S, asked_s))


class Sink(Protocol):
    """Where events go."""

    async def send(self, events: Sequence[Event]) -> int:
        """Send events, and return how often that had to wait for somebody who was away."""


class ThroughApi:
    """Events go to the API, which says what became of each."""

    def __init__(self, client: AsyncClient) -> None:
        self._client, self.rejected = client, 0

    async def send(self, events: Sequence[Event]) -> int:
        """Send events until all are acknowledged."""
        left, away = list(events), 0
        while True:
            try:
                self.rejected += len((await self._client.send_events(left)).rejected)
                return away
            except UnsentError as error:
                self.rejected += len(error.receipt.rejected)
                if not isinstance(error.__cause__, GO_ON):
                    raise
                left, away = [left[place] for place in error.unsent], away + 1
                await asyncio.sleep(wait_s(error.__cause__))


class ThroughKafka:
    """Events go straight to Kafka."""

    def __init__(self, send: Callable[[Sequence[Event]], None]) -> None:
        """`send` returns when they are acknowledged, or raises BrokerError."""
        self._send = send

    async def send(self, events: Sequence[Event]) -> int:
        """Send events until all are acknowledged. Each has an id: one that arrives twice counts once."""
        away = 0
        while True:
            try:
                await asyncio.to_thread(self._send, events)
                return away
            except BrokerError:
                away += 1
                await asyncio.sleep(_AWAY_S)
