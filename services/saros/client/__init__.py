"""A client of the API: `Client`, and `AsyncClient` with the same methods to await.

It stands alone: it imports nothing of the service, and needs httpx only.

>>> from saros.client import Client
>>> with Client("http://127.0.0.1:8000", key="saros_...") as client:  # doctest: +SKIP
...     receipt = client.send_events([{"kind": "click", "user": "ann", "item": "brazil"}])
...     client.recommend("ann", k=5, min_token=receipt.token).items
"""

from saros.client.admin import Erased, Gate, GateChanged, ItemAction, ItemInfo, UserInfo
from saros.client.answers import Item, Popular, Receipt, Recommendations, Rejected, Similar, UserRecommendations
from saros.client.batches import AsyncBatcher, Batcher, BatcherCounts
from saros.client.calls import SessionEvent
from saros.client.clients import AsyncClient, Client
from saros.client.errors import (
    ApiError,
    BusyError,
    ClientError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NoAnswerError,
    NotFoundError,
    QueueFullError,
    ServerError,
    UnauthorizedError,
    UnreadableError,
    UnsentError,
    UnusableError,
)
from saros.client.events import Event
from saros.client.exchange import Retries
from saros.client.live import LiveEvent

__all__ = [
    "ApiError",
    "AsyncBatcher",
    "AsyncClient",
    "Batcher",
    "BatcherCounts",
    "BusyError",
    "Client",
    "ClientError",
    "ConflictError",
    "Erased",
    "Event",
    "ForbiddenError",
    "Gate",
    "GateChanged",
    "InvalidError",
    "Item",
    "ItemAction",
    "ItemInfo",
    "LiveEvent",
    "NoAnswerError",
    "NotFoundError",
    "Popular",
    "QueueFullError",
    "Receipt",
    "Recommendations",
    "Rejected",
    "Retries",
    "ServerError",
    "SessionEvent",
    "Similar",
    "UnauthorizedError",
    "UnreadableError",
    "UnsentError",
    "UnusableError",
    "UserInfo",
    "UserRecommendations",
]
