"""What a rebase does not do, what it says then, and where topics have no ids."""

import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from saros.adapters.kafka import EmbeddedBroker, Topic, Writer
from saros.adapters.names import REDO_SETTINGS, topics_of
from saros.adapters.redis import Address, EmbeddedStore, MarkedStore
from saros.adapters.redo import RedoLog
from saros.cli import run
from saros.core.codec_items import unpack_items
from saros.core.events import CLICK, IMPRESSION
from saros.core.items import Items
from saros.errors import InputError, RefusedError
from saros.redo.genesis import Genesis, read_genesis
from saros.settings import load
from saros.trainer.commands import plan_of
from saros.trainer.plan import Plan
from saros.trainer.rebase import rebased
from saros.trainer.start import Service, open_store
from saros.trainer.stop import Stop
from saros.wire.encode import event_of, message_of
from saros.wire.partitions import partitions_of
from tests.broker import Broker
from tests.store import connect
from tests.trainer.copies import SHARDS
from tests.trainer.runs import PARTITIONS, SAROS, START_MS, Model, renew


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store that a test may do anything to."""
    with EmbeddedStore(tmp_path / "store") as server:
        yield server


@pytest.fixture
def model(real_broker: Broker, server: EmbeddedStore, model_name: str, tmp_path: Path) -> Model:
    return Model(model_name, real_broker.address, server.address, tmp_path)


@pytest.fixture
def plan(model: Model, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """That of a model which has learned nothing yet."""
    for name, value in model.settings.items():
        monkeypatch.setenv(name, value)
    assert run(["init"]) == 0
    return plan_of(load(model.settings))


@pytest.fixture
def held(plan: Plan) -> Iterator[MarkedStore]:
    store = MarkedStore(plan.store, plan.model, SHARDS, PARTITIONS)
    yield store
    store.close()


def genesis_of(held: MarkedStore, shard: int = 0) -> Genesis:
    return read_genesis(held.standing(shard).meta)


def write(model: Model, topic: Topic, genesis: Genesis) -> None:
    redo = RedoLog(model.cluster, topic)
    redo.write_genesis(genesis)
    redo.close()


def test_where_nothing_is_held_or_lost_there_is_nothing_to_do(plan: Plan, held: MarkedStore) -> None:
    with pytest.raises(InputError, match="the store holds no model 'nobody'"):
        rebased(plan._replace(model="nobody"))
    before = genesis_of(held)
    found = rebased(plan)
    assert (found.genesis, found.shards) == (before, 0)
    with pytest.raises(RefusedError, match="made with other settings"):
        rebased(plan._replace(partitions=PARTITIONS + 1))


def test_a_genesis_of_another_log_does_not_count_or_is_refused(model: Model, plan: Plan, held: MarkedStore) -> None:
    first = genesis_of(held)
    topic = renew(model, model.topics.redo, REDO_SETTINGS)
    write(model, topic, first)  # it was on its way to the topic before (rule 49)
    second = rebased(plan).genesis
    assert second.log_id != first.log_id
    assert second.base == (first.log_id,)
    assert second == genesis_of(held, 15)
    topic = renew(model, model.topics.redo, REDO_SETTINGS)
    write(model, topic, first._replace(hash_key=secrets.token_bytes(16), redo_topic_id=topic.id))
    with pytest.raises(RefusedError, match="was never to go on with") as caught:
        rebased(plan)
    assert f"delete {topic.name}" in caught.value.hint
    assert not any(held.standing(shard).is_marked for shard in range(SHARDS)), "and nothing was changed"
    renew(model, model.topics.redo, REDO_SETTINGS)
    assert rebased(plan).genesis.base == (second.log_id,)


def test_the_first_genesis_decides(model: Model, plan: Plan, held: MarkedStore) -> None:
    old, topic = genesis_of(held), renew(model, model.topics.redo, REDO_SETTINGS)
    for shard in range(SHARDS):
        seen = held.standing(shard)
        assert held.swap(shard, seen, seen.marked(topic.id))
    one = old._replace(log_id=77, redo_topic_id=topic.id, base=(old.log_id,), clears=True, first=(0, 0, 0))
    write(model, topic, one)
    write(model, topic, one._replace(log_id=78, clears=False))
    assert rebased(plan).genesis == one == genesis_of(held, 3)
    before = held.standing(5)
    assert held.swap(5, before, before._replace(meta=old.message().SerializeToString()))
    with pytest.raises(RefusedError, match="shard 5 of the store has lost what it held"):
        rebased(plan)  # it was brought back as it was before


def test_a_shard_that_was_lost_is_said_and_one_lost_later_is_refused(
    model: Model, plan: Plan, held: MarkedStore, server: EmbeddedStore
) -> None:
    redis: Any = connect(server.address)
    redis.delete(held.keys.meta(0), held.keys.vector(0))
    renew(model, model.topics.redo, REDO_SETTINGS)
    found = rebased(plan)
    assert found.notes == ["shards 0 held nothing: what they held was lost before"]
    assert found.shards == SHARDS
    redis.delete(held.keys.meta(4), held.keys.vector(4))
    with pytest.raises(RefusedError, match="shard 4 of the store has lost what it held") as caught:
        rebased(plan)
    assert "to go on with what is left" in caught.value.hint
    renew(model, model.topics.redo, REDO_SETTINGS)
    assert rebased(plan).notes == ["shards 4 held nothing: what they held was lost before"]
    other = genesis_of(held)._replace(hash_key=bytes(16)).message().SerializeToString()
    redis.set(held.keys.meta(6), other)
    with pytest.raises(RefusedError, match="shard 6 of the store is of another model"):
        rebased(plan)


def test_a_trainer_that_meets_a_mark_names_what_ends_it(plan: Plan, held: MarkedStore, server: EmbeddedStore) -> None:
    """Of a shard that had lost its genesis, where a rebase was ended halfway."""
    redis: Any = connect(server.address)
    redis.delete(held.keys.meta(5), held.keys.vector(5))
    seen = held.standing(5)
    assert held.swap(5, seen, seen.marked("a topic"))
    with pytest.raises(RefusedError, match="shard 5 of the store was marked by") as caught:
        open_store(plan, genesis_of(held))
    assert "saros rebase" in caught.value.hint


def test_what_a_rebase_did_survives_a_crash_of_the_store(
    model: Model, plan: Plan, held: MarkedStore, server: EmbeddedStore
) -> None:
    renew(model, model.topics.redo, REDO_SETTINGS)
    genesis = rebased(plan).genesis
    server.kill()
    server.restart()
    assert all(genesis_of(held, shard) == genesis for shard in range(SHARDS))
    assert not any(held.standing(shard).is_marked for shard in range(SHARDS))


def test_a_store_without_aof_is_rebased_with_a_warning(real_broker: Broker, model_name: str, tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path / "store", {"appendonly": "no"}) as server:
        model = Model(model_name, real_broker.address, server.address, tmp_path)
        subprocess.run([SAROS, "init"], env=model.environ(), check=True)
        renew(model, model.topics.redo, REDO_SETTINGS)
        done = subprocess.run([SAROS, "rebase"], env=model.environ(), capture_output=True, text=True, check=True)
        assert done.stderr.count("what was written may be lost with the store's memory") == 1
        assert "16 of 16 shards" in done.stdout


def test_an_embedded_broker_has_no_ids_and_forgets_everything(
    server: EmbeddedStore, model_name: str, quiet_stop: Stop
) -> None:
    """Topics come and go with the broker: the store goes on with the events of the next one, from their first."""
    store, logs = MarkedStore(Address(server.address), model_name, SHARDS, 4), set()
    for turn in range(3):
        broker = EmbeddedBroker()
        plan = plan_of(load({
            "SAROS_MODEL__NAME": model_name, "SAROS_MODEL__DIM": "8", "SAROS_MODEL__ITEMS_MAX": "5000",
            "SAROS_KAFKA__PARTITIONS": "4", "SAROS_KAFKA__BOOTSTRAP": broker.address,
            "SAROS_REDIS__URL": server.address,
        }))  # fmt: skip
        send_clicks(plan, 3 - turn)  # each time fewer, else nobody can tell that they are others
        if turn:
            with pytest.raises(RefusedError, match="whose log is gone"):
                Service(plan, quiet_stop)
            found = rebased(plan)
            assert (found.genesis.first, found.genesis.clears, found.shards) == ((0,) * 4, False, SHARDS)
            assert "is another topic than was learned from: it is read from its first event on" in found.notes[0]
        Service(plan, quiet_stop).run(until_drained=True)
        logs.add(genesis_of(store).log_id)
        rows = unpack_rows(store)
        assert rows.arrays.counters.sum(axis=0)[0] == USERS * sum(range(3 - turn, 4)), (
            "each click once, those of all turns"
        )
        broker.close()
    assert len(logs) == 3
    store.close()


USERS = 40


def send_clicks(plan: Plan, times: int) -> None:
    """Let each user be shown two items and click one, so many times."""
    writer, users = Writer(plan.cluster), [f"user-{k}" for k in range(USERS)]
    for topic in topics_of(plan.model)[1:]:
        writer.send(topic, 0, b"\xff")  # which makes the topic, and means nothing
    for k, (user, home) in enumerate(zip(users, partitions_of(users, 4).tolist(), strict=True)):
        for second in range(1, 2 * times, 2):
            item = f"item-{k % 7}-{second}-{times}"
            events = [
                event_of(user, IMPRESSION, [f"other-{item}", item], START_MS + 1000 * second),
                event_of(user, CLICK, [item], START_MS + 1000 * second + 1000),
            ]
            writer.send(topics_of(plan.model).events, home, message_of(events), key=user.encode())
    writer.flush()


def unpack_rows(store: MarkedStore) -> Items:
    """All items of a store."""
    items = Items(genesis_of(store).rows, 5000)
    for shard in range(SHARDS):
        found = store.read_shard(shard)
        if len(found.keys):
            unpack_items(items, found.keys, found.values)
    return items
