"""Events straight to the events' topic, past the API: each to the partition of its user, or of its item."""

from collections.abc import Mapping, Sequence
from typing import Any

from saros.adapters.kafka import Writer
from saros.wire.encode import message_of
from saros.wire.objects import event_of_object
from saros.wire.partitions import partitions_of
from saros.wire.v1.events_pb2 import Event

_BATCH = 500  # events in one message; ours are small
_ROOM_S, _ACK_S = 0.5, 1.0  # short, for an interrupt waits for it


class Straight:
    """Writes events to a topic, many in a message."""

    def __init__(self, writer: Writer, topic: str, partitions: int) -> None:
        self._writer, self._topic, self._partitions = writer, topic, partitions

    def send(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Return when all are acknowledged; BrokerError where they are not, though some or all may arrive yet."""
        made = [event_of_object(dict(event)) for event in events]
        owners = [event.user_id or event.item_upsert.item_id for event in made]
        waiting: list[list[Event]] = [[] for _ in range(self._partitions)]
        for home, event in zip(partitions_of(owners, self._partitions).tolist(), made, strict=True):
            waiting[home].append(event)
        for home, some in enumerate(waiting):
            for first in range(0, len(some), _BATCH):
                value = message_of(some[first : first + _BATCH])
                self._writer.send(self._topic, home, value, timeout_s=_ROOM_S)
        self._writer.flush(_ACK_S)
