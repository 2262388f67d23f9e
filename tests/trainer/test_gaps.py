"""Retention takes events away that were not read yet: they are counted and left out, or the trainer stops. So it does
where the topic of events has more partitions than the model."""

import json
import os
import re
import signal

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from saros.adapters.kafka import Admin, Reader
from saros.adapters.names import REDO_MESSAGE_MAX
from saros.core.events import CLICK, IMPRESSION
from saros.errors import BrokerError, RefusedError, SarosError
from saros.settings import load
from saros.trainer.commands import plan_of
from saros.trainer.start import Service
from saros.trainer.stop import Stop
from saros.wire.encode import event_of, message_of
from saros.wire.partitions import partitions_of
from tests.servers import free_ports
from tests.trainer.runs import PARTITIONS, START_MS, Model, await_until, metric, running


def ends(model: Model) -> list[int]:
    """Return the offset behind the last event of each partition."""
    reader = Reader(model.cluster, f"{model.name}-ends")
    found = [reader.watermarks(model.topics.events, partition)[1] for partition in range(PARTITIONS)]
    reader.close()
    return found


def trim(model: Model, places: list[int]) -> None:
    """Do what retention does."""
    for partition, before in enumerate(places):
        Admin(model.cluster).trim(model.topics.events, partition, before)


def messages(model: Model) -> int:
    """Return how many messages were learned, as the log says."""
    return sum(record.stats.messages for record in model._log()[1])


def check(model: Model, lost: int) -> None:
    """The log is what the store holds, and all events are in it but for those that were lost."""
    found = model.audit()
    assert found.differences == 0, "\n".join([*found.told, model.logs()])
    assert not found.whole
    assert len(found.notes) == 1
    assert messages(model) + lost == sum(ends(model))


def test_events_are_gone_before_a_restart(model: Model) -> None:
    (port,) = free_ports(1)
    model.send(300)
    model.drain()
    before = ends(model)
    model.send(300)
    gone = [end - 30 for end in ends(model)]
    lost = sum(gone) - sum(before)
    assert lost > 100
    trim(model, gone)
    stopping = model.trainer("--until-drained", SAROS_KAFKA__STOP_AT_GAP="true")
    with running([stopping]):
        assert stopping.wait(60) != 0
    assert "are lost to retention" in model.logs()
    assert "SAROS_KAFKA__STOP_AT_GAP=false" in model.logs()
    assert messages(model) == sum(before), "it learned nothing"
    trainer = model.trainer(SAROS_TRAINER__METRICS_PORT=str(port))
    with running([trainer]):
        model.await_learned()
        assert metric(port, "saros_events_lost_messages_total") == lost
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(20) == 0, model.logs()
    assert model.logs(1000).count("messages were lost to retention") == PARTITIONS
    check(model, lost)


@pytest.mark.parametrize("stop_at_gap", ["false", "true"])
def test_events_are_gone_while_a_trainer_stands_still(model: Model, stop_at_gap: str) -> None:
    (port,) = free_ports(1)
    model.send(300)
    trainer = model.trainer(SAROS_TRAINER__METRICS_PORT=str(port), SAROS_KAFKA__STOP_AT_GAP=stop_at_gap)
    with running([trainer]):
        model.await_learned()
        learned = messages(model)
        os.kill(trainer.pid, signal.SIGSTOP)
        model.send(30)  # the broker gives it these, as soon as there are some
        read = ends(model)
        model.send(300)
        gone = [end - 30 for end in ends(model)]
        assert all(low > at for low, at in zip(gone, read, strict=True))
        trim(model, gone)
        os.kill(trainer.pid, signal.SIGCONT)
        if stop_at_gap == "true":
            assert trainer.wait(30) != 0
            assert "are lost to retention" in model.logs()
        else:
            model.await_learned()
            counted = metric(port, "saros_events_lost_messages_total")
            trainer.send_signal(signal.SIGTERM)
            assert trainer.wait(20) == 0, model.logs()
    if stop_at_gap == "true":
        model.drain()
    lost = sum(ends(model)) - messages(model)
    assert 0 < lost <= sum(gone) - learned
    if stop_at_gap == "false":
        assert counted == lost, "each is counted once"
    check(model, lost)


def test_a_log_that_was_cut_before_it_was_followed_ends_the_trainer(model: Model, quiet_stop: Stop) -> None:
    """What it lacks is in the store, from where the next one begins (rule 6)."""
    model.send(100)
    model.drain()
    service = Service(plan_of(load(model.settings)), quiet_stop)
    model.send(300)
    model.drain()
    ends = [service._redo.end(partition) for partition in range(PARTITIONS)]
    # Its last message stays: it tells how old the store is.
    Admin(model.cluster).trim(model.topics.redo, 1, ends[1] - 1)
    service._redo.follow(service._replica.fences)  # what was fetched ahead is dropped
    with pytest.raises(SarosError, match="a trainer that starts anew goes on from the store") as caught:
        service.run()
    assert not isinstance(caught.value, BrokerError)
    service.give_up(caught.value)
    signal.alarm(0)
    model.send(100)
    model.drain()
    model.await_learned()


def test_all_that_was_left_is_gone(model: Model) -> None:
    """Then there is nothing to learn, and the next event goes on behind it."""
    (port,), lost = free_ports(1), all_left(model)
    trainer = model.trainer(SAROS_TRAINER__METRICS_PORT=str(port))
    with running([trainer]):
        await_until(lambda: model.begun() == 2 * PARTITIONS, what=model.logs)
        model.send(100)
        model.await_learned()
        assert metric(port, "saros_events_lost_messages_total") == lost
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(20) == 0, model.logs()
    check(model, lost)


def test_nothing_left_is_drained(model: Model) -> None:
    all_left(model)
    trainer = model.trainer("--until-drained")
    with running([trainer]):
        assert trainer.wait(30) == 0


def test_the_mark_that_a_transaction_leaves_is_not_waited_for(model: Model) -> None:
    """It stands behind the last event, and nobody is given it."""
    model.send(300)
    other = Producer({"bootstrap.servers": model.cluster.bootstrap, "transactional.id": model.name})
    other.init_transactions(20)
    other.begin_transaction()
    for partition in range(PARTITIONS):
        other.produce(model.topics.events, b"", partition=partition)
    other.flush(20)
    other.abort_transaction(20)
    model.drain()
    assert messages(model) == sum(ends(model)) - 2 * PARTITIONS
    model.check()


def all_left(model: Model) -> int:
    """Let all events go that a trainer has not learned; return how many messages."""
    model.send(300)
    model.drain()
    before = sum(ends(model))
    model.send(100)
    trim(model, ends(model))
    return sum(ends(model)) - before


def test_partitions_that_are_added_end_the_trainer_and_it_says_what_can_be_done(model: Model) -> None:
    options = json.loads(model.settings["SAROS_KAFKA__OPTIONS"]) | {"topic.metadata.refresh.interval.ms": 1000}
    told = (
        f"saros: topic {model.topics.events} has {PARTITIONS + 1} partitions and its model {PARTITIONS}, "
        "which never changes — name another model; or"
    )
    model.send(100)
    beside = model.trainer(SAROS_KAFKA__OPTIONS=json.dumps(options))
    with running([beside]):
        model.await_learned()
        admin = AdminClient({"bootstrap.servers": model.cluster.bootstrap})
        more = NewPartitions(model.topics.events, PARTITIONS + 1)
        admin.create_partitions([more])[model.topics.events].result()
        assert beside.wait(60) == 2, model.logs()
    assert model.logs(1000).count(told) == 1, model.logs()
    for settings in ({}, {"SAROS_KAFKA__PARTITIONS": str(PARTITIONS + 1)}):
        later = model.trainer(**settings)
        with running([later]):
            assert later.wait(60) == 2, model.logs()
    assert model.logs(1000).count(told) == 3, model.logs()


def test_a_message_that_makes_too_large_a_record_can_be_left_out(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.settings["SAROS_TRAINER__POLL_MESSAGES"] = "1"  # else it would be learned with others
    model.send(30)
    names = [f"many-{k}" for k in range(600)]
    users = [name for name, home in zip(names, partitions_of(names, PARTITIONS).tolist(), strict=True) if home == 0]
    kinds = ((IMPRESSION, "item/1"), (CLICK, "item/2"))
    events = [event_of(user, kind, [item], START_MS) for user in users for kind, item in kinds]
    model._writer.send(model.topics.events, 0, message_of(events))
    model.send(30)
    monkeypatch.setattr("saros.adapters.redo._OVERHEAD", REDO_MESSAGE_MAX - 20_000)
    service = Service(plan_of(load(model.settings)), quiet_stop)
    with pytest.raises(RefusedError, match=r"in message \d+ of partition 0") as caught:
        service.run(until_drained=True)
    service.give_up(caught.value)
    signal.alarm(0)
    found = re.search(r"offset (\d+)\)", caught.value.hint)
    assert found, caught.value.hint
    Admin(model.cluster).trim(model.topics.events, 0, int(found[1]))
    Service(plan_of(load(model.settings)), quiet_stop).run(until_drained=True)
    check(model, lost=1)
