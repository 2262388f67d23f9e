"""Commands around topics: `saros broker`, `send`, `tail` and `dead`."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from saros.console import Json, complain, progress
from saros.errors import InputError
from saros.lab.flags import PositiveFrom, Source, read_log
from saros.settings import Settings, load

if TYPE_CHECKING:
    from saros.adapters.dead import Letter
    from saros.adapters.kafka import Cluster, Place, Reader, Received

app = typer.Typer()
dead_app = typer.Typer(help="Messages that could not be understood: look at them, and send them again.")
app.add_typer(dead_app, name="dead")

_POLL_S = 0.2
_Reason = Annotated[str | None, typer.Option(help="Only letters with this reason.")]


def cluster_of(settings: Settings) -> "Cluster":
    """Return the brokers that are set; no command here starts one by itself."""
    if not settings.kafka.bootstrap:
        raise InputError(
            "SAROS_KAFKA__BOOTSTRAP names no broker",
            "set it; `saros broker` starts one to try things out, and says how",
        )
    return settings.kafka.cluster()


@app.command()
def broker() -> None:
    """Run the embedded broker alone, until it is interrupted.

    It speaks Kafka's protocol and is meant for trying things out: what it does not do is printed when it starts.

    Example:

      saros broker
    """
    from saros.adapters.kafka import EMBEDDED_LIMITS, EmbeddedBroker

    running = EmbeddedBroker()
    typer.echo(f"SAROS_KAFKA__BOOTSTRAP={running.address}")
    complain(f"this is the embedded broker: {EMBEDDED_LIMITS}")
    try:
        signal.pause()
    finally:
        running.close()


@app.command()
def send(
    source: Source,
    rate: Annotated[float, typer.Option(min=0, max=1e9, help="Events a second; 0 = as fast as can be.")] = 0,
    batch: Annotated[int, typer.Option(min=1, max=1000, help="Events in one message.")] = 100,
    positive_from: PositiveFrom = 4.0,
    as_json: Json = False,
) -> None:
    """Send the events of a file to the events' topic, each to the partition of its user.

    The topic is made where it is missing and SAROS_KAFKA__CREATE_TOPICS allows it.

    Examples:

      saros send events.jsonl

      saros send ml-1m --rate 5000 --batch 1
    """
    from saros.adapters.kafka import Admin, Writer
    from saros.adapters.names import EVENTS_SETTINGS, topics_of

    settings = load()
    cluster, kafka = cluster_of(settings), settings.kafka
    log = read_log(source, positive_from)
    from saros.lab.sending import Pace, envelopes

    name = topics_of(settings.model.name).events
    topic = Admin(cluster).ensure(
        name, kafka.partitions, kafka.replication, EVENTS_SETTINGS, create=kafka.create_topics
    )
    writer, pace, messages = Writer(cluster), Pace(rate), 0
    with progress(f"sending to {name}", total=len(log.user)) as count:
        for envelope in envelopes(log, topic.partitions, batch):
            pace.wait(envelope.events)
            writer.send(name, envelope.partition, envelope.value)
            messages += 1
            count(envelope.events)
        writer.flush()
    if as_json:
        typer.echo(json.dumps({"topic": name, "events": len(log.user), "messages": messages}))
    else:
        typer.echo(f"{len(log.user):,} events in {messages:,} messages sent to {name}")


@app.command()
def tail(
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Stop after so many events; 0 = never.")] = 0,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the oldest event, not the next one.")
    ] = False,
) -> None:
    """Print the events of the topic as they come, a line of JSON each.

    Examples:

      saros tail

      saros tail --from-start -n 10 | jq .event
    """
    from saros.adapters.names import topics_of

    settings = load()
    name, printed = topics_of(settings.model.name).events, 0
    with _reading(settings, name, from_start=from_start) as (reader, _):
        while True:
            for message in reader.receive(1000, _POLL_S):
                for event in _shown_events(message):
                    typer.echo(json.dumps(event, ensure_ascii=False))
                    printed += 1
                    if printed == count:
                        return


def _shown_events(message: "Received") -> Iterator[dict[str, Any]]:
    """Yield what is to be seen of each event of a message."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    from saros.wire.encode import events_in

    place = {"partition": message.partition, "offset": message.offset, "time": _time(message.log_ms)}
    try:
        for event in events_in(message.value):
            yield place | {"event": MessageToDict(event, preserving_proto_field_name=True)}
    except DecodeError:
        yield place | {"broken": message.value.hex()}


def _time(time_ms: int) -> str | None:
    """Return a time as people write it."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds") if time_ms >= 0 else None


@contextmanager
def _reading(settings: Settings, name: str, *, from_start: bool) -> "Iterator[tuple[Reader, dict[int, int]]]":
    """Yield a reader of all partitions of a topic, and where each ends now."""
    from saros.adapters.kafka import Admin, Reader

    cluster = cluster_of(settings)
    topic = Admin(cluster).find(name)
    if topic is None:
        raise InputError(
            f"topic {name} does not exist", "nothing was sent to it yet; SAROS_MODEL__NAME names another model"
        )
    reader = Reader(cluster, f"saros-{uuid4().hex}")
    try:
        bounds = {p: reader.watermarks(name, p) for p in range(topic.partitions)}
        places: list[Place] = [(p, low if from_start else high) for p, (low, high) in bounds.items()]
        reader.assign(name, places)
        yield reader, {p: high for p, (low, high) in bounds.items() if high > low}
    finally:
        reader.close()


def _letters(settings: Settings, reason: str | None) -> "Iterator[tuple[Place, Letter]]":
    """Yield the dead letters there are now, with their places."""
    from saros.adapters.dead import letter_of
    from saros.adapters.names import topics_of

    with _reading(settings, topics_of(settings.model.name).dead, from_start=True) as (reader, ends):
        while ends:
            for message in reader.receive(1000, _POLL_S):
                letter = letter_of(message)
                if message.offset < ends.get(message.partition, 0) and reason in (None, letter.reason):
                    yield (message.partition, message.offset), letter
                if message.offset + 1 >= ends.get(message.partition, 0):
                    ends.pop(message.partition, None)


def _as_json(place: "Place", letter: "Letter") -> dict[str, Any]:
    return {
        "place": f"{place[0]}:{place[1]}", "reason": letter.reason, "topic": letter.topic,
        "partition": letter.partition, "offset": letter.offset, "event": letter.place, "time": _time(letter.time_ms),
        "bytes": len(letter.value),
    }  # fmt: skip


@dead_app.command("list")
def list_letters(reason: _Reason = None, as_json: Json = False) -> None:
    """List the dead letters: place, reason, and where each stood in the input.

    Examples:

      saros dead list

      saros dead list --reason misrouted --json | jq '.letters | length'
    """
    letters = [_as_json(place, letter) for place, letter in _letters(load(), reason)]
    if as_json:
        typer.echo(json.dumps({"letters": letters}))
        return
    from saros.lab.report import print_table

    rows = []
    for a in letters:
        came_from, event = f"{a['topic']}/{a['partition']}@{a['offset']}", "" if a["event"] < 0 else str(a["event"])
        rows.append([a["place"], a["reason"], came_from, event, a["time"] or "", f"{a['bytes']:,}"])
    headers = ["place", "reason", "came from", "event", "time", "bytes"]
    print_table(f"{len(rows):,} dead letters", headers, rows, left=(0, 1, 2, 4))


def _place(text: str) -> "Place":
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise InputError(f"{text} is no place", "give it as `saros dead list` prints it, such as 0:17")
    return int(partition), int(offset)


def _at(settings: Settings, wanted: "list[Place]") -> "dict[Place, Letter]":
    """Return the letters at these places; one that is not there is an error."""
    found = {place: letter for place, letter in _letters(settings, None) if place in wanted}
    for partition, offset in wanted:
        if (partition, offset) not in found:
            raise InputError(f"there is no letter at {partition}:{offset}", "`saros dead list` prints all places")
    return found


@dead_app.command()
def show(place: Annotated[str, typer.Argument(metavar="PLACE", help="As `saros dead list` prints it.")]) -> None:
    """Print one letter whole: its bytes, and what can be understood of them.

    Example:

      saros dead show 0:17
    """
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    from saros.wire.encode import events_in

    at = _place(place)
    letter = _at(load(), [at])[at]
    answer = _as_json(at, letter) | {"key": (letter.key or b"").decode(errors="replace"), "value": letter.value.hex()}
    try:
        answer["events"] = [MessageToDict(event, preserving_proto_field_name=True) for event in events_in(letter.value)]
    except DecodeError as error:
        answer["broken"] = str(error)
    typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))


@dead_app.command()
def resend(
    places: Annotated[
        list[str] | None, typer.Argument(metavar="[PLACE]...", help="As `saros dead list` prints them.")
    ] = None,
    reason: _Reason = None,
    as_json: Json = False,
) -> None:
    """Send letters to the topic they came from again, each event to the partition of its user where that can be read.

    The letters stay where they are: sent twice, they arrive twice.

    Examples:

      saros dead resend 0:17 1:4

      saros dead resend --reason misrouted
    """
    from saros.adapters.kafka import Admin, Writer

    if bool(places) == (reason is not None):
        raise InputError("which letters?", "name places, or a --reason")
    settings = load()
    chosen = _at(settings, [_place(text) for text in places]) if places else dict(_letters(settings, reason))
    cluster = cluster_of(settings)
    admin, writer = Admin(cluster), Writer(cluster)
    homes = {name: admin.find(name) for name in {letter.topic for letter in chosen.values()}}
    for place, letter in chosen.items():
        topic = homes[letter.topic]
        if topic is None:
            raise InputError(
                f"the letter at {place[0]}:{place[1]} came from {letter.topic!r}, which does not exist", "leave it out"
            )
        writer.send(topic.name, _home(letter, topic.partitions), letter.value, key=letter.key)
    writer.flush()
    if as_json:
        typer.echo(json.dumps({"sent": len(chosen)}))
    else:
        typer.echo(f"{len(chosen):,} letters sent again")


def _home(letter: "Letter", partitions: int) -> int:
    """Return the partition that a letter belongs in: that of its users if they agree, or the one it came from."""
    from google.protobuf.message import DecodeError

    from saros.wire.encode import events_in
    from saros.wire.partitions import partitions_of

    try:
        owners = [event.user_id or event.item_upsert.item_id for event in events_in(letter.value)]
    except DecodeError:
        owners = []
    homes = set(partitions_of([owner for owner in owners if owner], partitions).tolist())
    return homes.pop() if len(homes) == 1 else letter.partition % partitions
