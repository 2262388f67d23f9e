"""Partitions that begin anew, pause and change hands: none is left to nobody, whatever fails on the way."""

import time
from typing import Any

import pytest
from prometheus_client import REGISTRY

from saros.adapters.kafka import LostPlaceError
from saros.core.fold import fold_rows
from saros.errors import BrokerError
from saros.redo.record import learned
from saros.settings import load
from saros.telemetry import PAUSED
from saros.trainer.commands import plan_of
from saros.trainer.share import Share
from saros.trainer.start import Service
from saros.trainer.stop import Stop
from tests.trainer.runs import PARTITIONS, Model


def learn(service: Service, events: int, timeout_s: float = 60.0) -> None:
    until = time.monotonic() + timeout_s
    while service.trainer.tally.events < events:
        assert time.monotonic() < until, f"{service.trainer.tally} of {events}"
        service.trainer.step()


def started(model: Model, stop: Stop) -> Service:
    """A trainer whose loop the test turns."""
    service = Service(plan_of(load(model.settings)), stop)
    service._reader.subscribe(model.topics.events, service.trainer.gained, service.trainer.lost)
    return service


def ended(model: Model, service: Service) -> None:
    service.trainer.drain()
    service.close()
    model.check()


@pytest.mark.parametrize("failing", ["_begin", "seek", "flush"])
def test_a_partition_that_cannot_begin_anew_is_begun_later(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """The group takes it for ours: nobody else would read it."""
    model.send(300)
    service = started(model, quiet_stop)
    learn(service, 300)
    trainer, failures = service.trainer, [BrokerError("away")] * (1 if failing == "flush" else 3)
    place: Any = {"_begin": trainer, "seek": service._reader, "flush": trainer.shares[1].users}[failing]
    real = getattr(place, failing)

    def fail(*arguments: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*arguments, **more)

    monkeypatch.setattr(place, failing, fail)
    trainer._stale.add(1)
    model.send(300)
    learn(service, 600)
    assert not failures
    assert sorted(trainer.shares) == list(range(PARTITIONS))
    ended(model, service)


def test_a_broker_that_stays_away_is_waited_for(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be delivered is looked for in the log, which cannot be read yet."""
    model.send(300)
    service = started(model, quiet_stop)
    learn(service, 300)
    trainer, failures = service.trainer, [BrokerError("away")] * 3
    check_sent, end = trainer._redo.check_sent, trainer._redo.end

    def fail(partition: int) -> int:
        if failures:
            raise failures.pop()
        monkeypatch.setattr(trainer._redo, "check_sent", check_sent)
        return end(partition)

    def undelivered() -> None:
        raise BrokerError("not delivered")

    monkeypatch.setattr(trainer._redo, "end", fail)
    monkeypatch.setattr(trainer._redo, "check_sent", undelivered)
    model.send(300)
    learn(service, 600)
    assert not failures
    ended(model, service)


def test_all_partitions_begin_anew_where_a_place_was_lost(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.send(300)
    service = started(model, quiet_stop)
    learn(service, 300)
    trainer, real, failures = service.trainer, service.trainer._begin, [BrokerError("away")] * 2
    take = trainer._intake.take

    def lose(*_: Any) -> Any:
        monkeypatch.setattr(trainer._intake, "take", take)
        raise LostPlaceError("a place to read from is not in the log")

    def fail(partition: int) -> int:
        if failures:
            raise failures.pop()
        return real(partition)

    monkeypatch.setattr(trainer, "_begin", fail)
    monkeypatch.setattr(trainer._intake, "take", lose)
    before = dict(trainer.shares)
    model.send(300)
    learn(service, 600)
    assert not failures
    assert sorted(trainer.shares) == list(range(PARTITIONS))
    assert all(trainer.shares[partition] is not share for partition, share in before.items())
    ended(model, service)


def test_partitions_that_paused_go_on_whatever_fails_meanwhile(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.send(300)
    service = started(model, quiet_stop)
    learn(service, 300)
    real, before, failures = service._reader.stay, PAUSED._value.get(), list[BrokerError]()

    def fail() -> bool:
        real()
        monkeypatch.undo()
        failures.append(BrokerError("away"))
        raise failures[0]

    monkeypatch.setattr(Share, "has_room", lambda *_: False)
    monkeypatch.setattr(service._reader, "stay", fail)
    model.send(300)
    learn(service, 600)
    assert failures
    assert PAUSED._value.get() == before + 1
    ended(model, service)


def test_blocks_in_flight_stay_out_of_a_shard_that_is_written_again(model: Model, redis: Any, quiet_stop: Stop) -> None:
    """It had fallen back, so there are two writes; what flies is in neither."""
    model.send(600)
    service = started(model, quiet_stop)
    learn(service, 600)
    trainer = service.trainer
    trainer.drain()
    replica = trainer._replica
    found = next(
        found for record in model._log()[1] if len((found := learned([record], replica.genesis.rows.dim)).sign)
    )
    flying = replica.signed(found)
    arrays = replica.items.arrays
    fold_rows(arrays, flying, 1)
    trainer._shards._dirty[:] = True
    redis.delete(*redis.scan_iter(f"{{{model.name}:*}}:i*"))
    trainer._shards.write(list(trainer.shares), (each for each in [flying]), wait=True)
    fold_rows(arrays, flying, -1)
    service.close()
    model.check()


def test_few_users_in_memory_make_small_micro_batches(model: Model, quiet_stop: Stop) -> None:
    model.send(400)
    plan = plan_of(load(model.settings))
    Service(plan._replace(users_max=16), quiet_stop).run(until_drained=True)
    model.check()


def test_who_waits_tells_how_far_it_is_behind(model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    model.send(300)
    service = started(model, quiet_stop)
    learn(service, 300)
    service.trainer.drain()
    service.trainer.commit()
    assert lags() == dict.fromkeys(range(PARTITIONS), 0.0)
    real, since, found = service._reader.stay, time.monotonic(), dict[int, float]()

    def look() -> bool:
        if time.monotonic() > since + 3.0:
            found.update(lags())
            monkeypatch.undo()
        return real()

    monkeypatch.setattr(Share, "has_room", lambda *_: False)
    monkeypatch.setattr(service._reader, "stay", look)
    model.send(300)
    learn(service, 600)
    assert all(1.0 < lag < 30.0 for lag in found.values()), found
    assert len(found) == PARTITIONS
    service.trainer.drain()
    service.trainer.commit()
    assert lags() == dict.fromkeys(range(PARTITIONS), 0.0)
    ended(model, service)


def lags() -> dict[int, float]:
    found = (REGISTRY.get_sample_value("saros_lag_seconds", {"partition": str(p)}) for p in range(PARTITIONS))
    return {partition: lag for partition, lag in enumerate(found) if lag is not None}
