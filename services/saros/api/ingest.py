"""Events of a request to the events' topic.

Every event is put through the decoder that trainers have before it is sent, so what is accepted here never becomes a
dead letter there. Good ones go on though others are bad; those of one partition go as one message, in order. Events
that change items or erase users are taken only of whoever may do that.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import orjson

from saros.adapters.kafka import Sender
from saros.api.limits import Limits
from saros.api.metrics import ACCEPTED, QUEUE_BYTES, QUEUE_MESSAGES, REJECTED, UNACKNOWLEDGED
from saros.api.problems import KAFKA_AWAY, QUEUE_FULL, TOO_LARGE, ProblemError, invalid, invalid_all
from saros.core.events import ERASE, TICK
from saros.core.ids import derive_key, joined
from saros.errors import BrokerError, LimitError
from saros.wire.columns import GATE, GOOD, REASONS, UPSERT
from saros.wire.decode import Decoder
from saros.wire.objects import NOT_JSON, BadObjectError, event_of_object
from saros.wire.partitions import partitions_of
from saros.wire.rare import read_rare
from saros.wire.split import messages_of, split_batch, wrapped
from saros.wire.v1.events_pb2 import Event

NOT_HERE, NOT_YOURS = "not_taken_here", "needs_admin"
# The event loop has other work, too: after so many events it is let go for a moment.
_SLICE = 200
_DETAILS = {
    "bad_protobuf": "the bytes are no Event",
    "bad_utf8": "a text is not UTF-8",
    "message_too_large": "the event has more than 1,000,000 bytes",
    "no_kind": "the event says nothing",
    "id_missing": "an id is missing or empty",
    "id_too_long": "an id has more than 256 bytes, or the scenario more than 64",
    "no_items": "the impression has no items",
    "too_many_items": "the impression has more than 200 items",
    "bad_time": "the time is not within the years 1970 to 9999",
    "bad_weight": "the weight is not above 0 and up to 10",
    "bad_sign": "feedback is neither negative nor positive",
    "bad_item": "categories (32 of 1 to 64 bytes), properties (4096 bytes) or expiry are beyond their limits",
    NOT_HERE: "gate changes and ticks do not come in here",
    NOT_YOURS: "what changes an item or erases a user needs a key with the scope admin",
}

_REFUSED = dict.fromkeys((GATE, TICK), NOT_HERE)  # of everybody


class Rejected(NamedTuple):
    """An event that was refused."""

    place: int  # in the request, from 0
    reason: str
    detail: str

    def told(self) -> dict[str, object]:
        """Return it as the caller sees it."""
        return {"index": self.place, "reason": self.reason, "detail": self.detail}


class Receipt(NamedTuple):
    """What became of a request's events."""

    accepted: int
    rejected: list[Rejected]
    token: str


class _Good(NamedTuple):
    """An event to send: its place in the request, whose partition it goes to, and its bytes as a batch of one."""

    place: int
    home: str
    batch: bytes


class _Parcel(NamedTuple):
    """A message to send."""

    partition: int
    value: bytes
    places: list[int]


def read_json(body: bytes, limits: Limits) -> list[object]:
    """Return the events of a JSON body: one object, or an array."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid("body", "", f"not JSON: {error}") from None
    if not isinstance(found, dict | list):
        raise invalid("body", "", "neither an object nor an array of objects")
    events = found if isinstance(found, list) else [found]
    _check_count(len(events), limits)
    return events


def read_lines(body: bytes, limits: Limits) -> list[object]:
    """Return the events of a body with one JSON object on each line. Of a line that is none, the error."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    _check_count(len(lines), limits)
    return [_line(line) for line in lines]


def _line(line: bytes) -> object:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return BadObjectError(NOT_JSON, f"not JSON: {error}")


def read_protobuf(body: bytes, limits: Limits) -> list[object]:
    """Return the bytes of each event of an `EventBatch`, or of one `Event`."""
    try:
        return list(split_batch(body, limits.events_max))
    except ValueError as error:
        raise invalid("body", "", str(error)) from None
    except OverflowError:
        raise _too_many(limits) from None


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.events_max:
        raise _too_many(limits)


def _too_many(limits: Limits) -> ProblemError:
    return ProblemError(TOO_LARGE, f"more than {limits.events_max} events in one request")


class Ingest:
    """Checks events and sends them."""

    def __init__(self, sender: Sender, topic: str) -> None:
        self._sender, self._topic = sender, topic
        self._decoder = Decoder(derive_key(0))  # nobody looks at the hashes
        QUEUE_MESSAGES.set_function(lambda: sender.waiting_messages)
        QUEUE_BYTES.set_function(lambda: sender.waiting_bytes)

    @property
    def waiting(self) -> int:
        """Messages that wait for Kafka."""
        return self._sender.waiting_messages

    async def take(self, events: Sequence[object], partitions: int, *, admin: bool) -> Receipt:
        """Send all good events and return when Kafka has acknowledged them; `admin`: of one who may send any."""
        good: list[_Good] = []
        rejected: list[Rejected] = []
        refused = _REFUSED if admin else _REFUSED | dict.fromkeys((UPSERT, ERASE), NOT_YOURS)
        for first in range(0, len(events), _SLICE):
            if first:
                await asyncio.sleep(0)
            self._check(first, events[first : first + _SLICE], good, rejected, refused)
        for reason, count in Counter(one.reason for one in rejected).items():
            REJECTED.labels(reason).inc(count)
        if rejected and not good:
            raise _nothing_good(rejected)
        parcels = _parcels(good, partitions)
        token, lost = await self._send(parcels)
        unacknowledged = sorted(place for parcel in lost for place in parcel.places)
        ACCEPTED.inc(len(good) - len(unacknowledged))
        if unacknowledged:
            UNACKNOWLEDGED.inc(len(unacknowledged))
            raise ProblemError(
                KAFKA_AWAY,
                f"{len(unacknowledged)} events were not acknowledged and may be lost: send them again, with their "
                "event_id",
                accepted=len(good) - len(unacknowledged),
                unacknowledged=unacknowledged,
                rejected=[one.told() for one in rejected],
                token=token,
            )
        return Receipt(len(good), rejected, token)

    async def broadcast(self, event: Event, partitions: int) -> str:
        """Send an event to every partition; return the token when Kafka has acknowledged all of them.

        It is one event however many partitions there are, and nobody's who asked: metrics of events leave it out.
        """
        value = event.SerializeToString()
        token, lost = await self._send([_Parcel(partition, value, []) for partition in range(partitions)])
        if lost:
            raise ProblemError(
                KAFKA_AWAY,
                f"{len(lost)} of {partitions} partitions did not acknowledge the change: send it again",
                partitions=sorted(parcel.partition for parcel in lost),
                token=token,
            )
        return token

    def _check(
        self, first: int, events: Sequence[object], good: list[_Good], rejected: list[Rejected],
        refused: Mapping[int, str],
    ) -> None:  # fmt: skip
        """Sort a slice of the events into good and bad ones; `refused`: kinds that are bad here, with the reason."""
        places, batches = [], []
        for place, event in enumerate(events, start=first):
            try:
                batches.append(wrapped(_bytes_of(event)))
                places.append(place)
            except BadObjectError as error:
                rejected.append(Rejected(place, error.reason, error.detail))
        buffer, bounds = joined(batches)
        home = np.zeros(len(batches), np.int32)
        decoded = self._decoder.decode(buffer, bounds, home)
        read_rare(buffer, decoded, home, 0)
        for place, batch, reason, kind, start, end in zip(
            places, batches, decoded.reason.tolist(), decoded.kind.tolist(), decoded.first, decoded.end, strict=True
        ):
            name = REASONS[reason] if reason != GOOD else refused.get(kind, "")
            if name:
                rejected.append(Rejected(place, name, _DETAILS[name]))
                continue
            event = Event.FromString(buffer[start:end].tobytes())
            good.append(_Good(place, event.item_upsert.item_id if kind == UPSERT else event.user_id, batch))
        rejected.sort()

    async def _send(self, parcels: list[_Parcel]) -> tuple[str, list[_Parcel]]:
        """Send messages; return the token of those that were acknowledged, and the others."""
        sender = self._sender
        try:
            sender.check_room(len(parcels), sum(len(parcel.value) for parcel in parcels))
        except LimitError as error:
            raise ProblemError(QUEUE_FULL, str(error)) from None
        except BrokerError as error:
            raise ProblemError(KAFKA_AWAY, f"{error}; nothing was sent", accepted=0) from None
        futures = [sender.send(self._topic, parcel.partition, parcel.value) for parcel in parcels]
        found = await asyncio.gather(*futures, return_exceptions=True)
        places: dict[int, int] = {}
        lost: list[_Parcel] = []
        for parcel, offset in zip(parcels, found, strict=True):
            if isinstance(offset, BaseException):
                lost.append(parcel)
            else:
                places[parcel.partition] = max(offset, places.get(parcel.partition, -1))
        token = ",".join(f"{partition}:{offset}" for partition, offset in sorted(places.items()))
        return token, lost


def _nothing_good(rejected: Sequence[Rejected]) -> ProblemError:
    """Return the error of a request in which every event is bad."""
    error = invalid_all([{"in": "body", "name": str(one.place), "detail": one.detail} for one in rejected])
    error.more |= {"accepted": 0, "rejected": [one.told() for one in rejected]}
    return error


def _bytes_of(event: object) -> bytes:
    """Return an event as protobuf bytes."""
    if isinstance(event, bytes):
        return event
    if isinstance(event, BadObjectError):
        raise event
    return event_of_object(event).SerializeToString()


def _parcels(good: Sequence[_Good], partitions: int) -> list[_Parcel]:
    """Return the messages that good events go in."""
    if not good:
        return []
    groups: defaultdict[int, list[_Good]] = defaultdict(list)
    for one, partition in zip(good, partitions_of([one.home for one in good], partitions).tolist(), strict=True):
        groups[partition].append(one)
    parcels = []
    for partition, group in groups.items():
        at = 0
        for value, count in messages_of([one.batch for one in group]):
            parcels.append(_Parcel(partition, value, [one.place for one in group[at : at + count]]))
            at += count
    return parcels
