"""Upserts go into the log as they are: so many bytes of them make a record, and so many items may be named by them."""

import numpy as np

from saros.adapters.dead import Letter, letter_of
from saros.adapters.kafka import Reader, Writer
from saros.settings import load
from saros.trainer.commands import plan_of
from saros.trainer.start import Service
from saros.trainer.stop import Stop
from saros.wire.columns import REASONS
from saros.wire.encode import message_of
from saros.wire.partitions import partitions_of
from saros.wire.v1.events_pb2 import Event, ItemUpsert
from tests.trainer.runs import PARTITIONS, Model


def send(model: Model, upserts: list[ItemUpsert]) -> None:
    """Send upserts, each in a message of its own."""
    writer, homes = Writer(model.cluster), partitions_of([upsert.item_id for upsert in upserts], PARTITIONS)
    for upsert, home in zip(upserts, homes.tolist(), strict=True):
        writer.send(model.topics.events, home, message_of([Event(item_upsert=upsert)]))
    writer.flush()


def letters(model: Model) -> list[Letter]:
    """Return all dead letters."""
    reader = Reader(model.cluster, f"{model.name}-dead")
    ends = [reader.watermarks(model.topics.dead, partition)[1] for partition in range(PARTITIONS)]
    reader.assign(model.topics.dead, [(partition, 0) for partition in range(PARTITIONS)])
    found = list[Letter]()
    while len(found) < sum(ends):
        found += [letter_of(message) for message in reader.receive(100, 0.2)]
    reader.close()
    return found


def test_a_large_catalogue_is_many_records(model: Model, quiet_stop: Stop) -> None:
    send(model, [ItemUpsert(item_id=f"film/{k}", properties={"plot": "x" * 4000}) for k in range(200)])
    plan = plan_of(load(model.settings))
    Service(plan._replace(rules=plan.rules._replace(record_bytes=40_000)), quiet_stop).run(until_drained=True)
    _, records = model._log()
    assert sum(len(record.upserts) for record in records) == 200
    assert max(record.ByteSize() for record in records) < 40_000 + 5000
    model.check()


def test_items_beyond_the_limit_are_not_named(model: Model) -> None:
    """They are dead letters; what is named, or has learned, may be told of for ever."""
    model.settings["SAROS_MODEL__ITEMS_MAX"] = "45"
    model.send(300)
    model.drain()
    room, known = 45 - model.audit().items, model._log()[1][0].names.text[0].decode()
    send(model, [ItemUpsert(item_id=f"film/{k}") for k in range(room + 4)])
    model.drain()
    named = {upsert.item_id for record in model._log()[1] for upsert in record.upserts}
    refused = {Event.FromString(letter.value).item_upsert.item_id for letter in letters(model) if is_full(letter)}
    assert len(named) == room
    assert named | refused == {f"film/{k}" for k in range(room + 4)}
    send(model, [ItemUpsert(item_id=item, hidden=True) for item in (known, *sorted(named), *sorted(refused))])
    model.drain()
    _, records = model._log()
    assert {upsert.item_id for record in records for upsert in record.upserts if upsert.hidden} == {known, *named}
    assert len([letter for letter in letters(model) if is_full(letter)]) == 8
    dead = sum((np.frombuffer(record.stats.dead, np.int64) for record in records), np.zeros(len(REASONS), np.int64))
    assert dead[REASONS.index("items_full")] == 8
    model.check()


def is_full(letter: Letter) -> bool:
    return letter.reason == "items_full"
