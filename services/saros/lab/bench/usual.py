"""The usual Python way to consume events: protobuf's own decoder, sessions of dicts and lists, a numpy step a block."""

from collections.abc import Iterable

from saros.core.events import CLICK, IMPRESSION, NEGATIVE
from saros.core.gate import LEARN, GateRules
from saros.core.sessions import SessionRules
from saros.lab.bench import objects, peers
from saros.wire.encode import events_in
from saros.wire.v1.events_pb2 import Event


class UsualWay:
    """Learns from messages, and says which rows have moved."""

    def __init__(self, sessions: SessionRules, gate: GateRules, dim: int) -> None:
        self._partition, self.model = objects.Partition(sessions, gate), peers.RiverStyle(dim)
        self._users: dict[str, int] = {}
        self._items: dict[str, int] = {}

    def learn(self, values: Iterable[bytes]) -> tuple[set[int], set[int]]:
        """Learn messages; return the users and items that were learned about."""
        events = [self._event(event) for value in values for event in events_in(value)]
        users, items = set[int](), set[int]()
        for block in self._partition.learn(events):
            if block.decision == LEARN:
                self.model.learn_one(block.user, block.negatives, block.positives)
                users.add(block.user)
                items.update(block.negatives, block.positives)
        return users, items

    def _event(self, event: Event) -> objects.Event:
        kind = event.WhichOneof("kind")
        if kind == "impression":
            code, names = IMPRESSION, [shown.item_id for shown in event.impression.items]
        elif kind == "click":
            code, names = CLICK, [event.click.item_id]
        else:
            code, names = NEGATIVE, [event.feedback.item_id]
        items = [self._items.setdefault(name, len(self._items)) for name in names]
        user = self._users.setdefault(event.user_id, len(self._users))
        return objects.Event(user, code, event.event_time_ms, items)
