"""Every event counts once, whatever is killed or forgotten: real processes, a real broker, a real store, an audit."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from saros.adapters.kafka import Admin
from saros.cli import run
from saros.errors import BrokerError, InputError, RefusedError, SarosError
from saros.settings import load
from saros.telemetry import RECORDS
from saros.trainer.commands import plan_of
from saros.trainer.start import Service
from saros.trainer.stop import Stop
from saros.wire.v1 import redo_pb2 as pb
from tests.trainer.runs import Model, await_until, running


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    yield
    process.send_signal(signal.SIGCONT)


def keys_of(redis: Any, model: Model, kind: str) -> list[bytes]:
    return sorted(redis.scan_iter(f"{{{model.name}:*}}:{kind}*"))


def test_all_events_are_learned_and_the_audit_finds_what_is_not_right(model: Model, redis: Any) -> None:
    model.send(1500)
    model.drain()
    model.check()
    model.send(500)
    model.drain()
    model.check()
    shard = next(key for key in keys_of(redis, model, "item"))
    field = redis.hkeys(shard)[0]
    row = bytearray(redis.hget(shard, field))
    row[0] ^= 1
    redis.hset(shard, field, bytes(row))
    assert model.audit().differences == 1
    row[0] ^= 1
    row[4 * 8] ^= 1  # a counter
    redis.hset(shard, field, bytes(row))
    assert model.audit().differences == 2, "both logs say something else"
    row[4 * 8] ^= 1
    redis.hset(shard, field, bytes(row))
    user = keys_of(redis, model, "u")[0]
    value = redis.get(user)
    redis.delete(user)
    assert model.audit().differences == 2
    redis.set(user, value)
    ledger = keys_of(redis, model, "l")[0]
    redis.hdel(ledger, redis.hkeys(ledger)[0])
    assert model.audit().differences == 2


def test_drained_is_what_the_store_has(model: Model) -> None:
    """One died when all was in the log and not in the store, and the group takes it for alive: that is not drained."""
    model.send(30)
    while True:
        victim = model.trainer(SAROS_TEST_KILL="accepted:1", SAROS_TRAINER__INSTANCE="one")
        with running([victim]):
            assert victim.wait(60) == -signal.SIGKILL, model.logs()
        if model.in_log() >= model.sent:
            break
    assert model.audit().events < model.sent
    model.drain()
    model.check()


def test_status_and_order(model: Model, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads what is told; SIGTERM ends in order, and the group knows how far it came."""
    for name, value in model.settings.items():
        monkeypatch.setenv(name, value)
    assert run(["status"]) == 2, "there is no log yet"
    assert run(["init"]) == 0
    assert "3 partitions, 16 shards, rows of 8" in capsys.readouterr().out
    model.send(200)
    trainer = model.trainer(SAROS_TRAINER__INSTANCE="one")

    def rows() -> list[dict[str, Any]]:
        assert run(["status", "--json"]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["partitions"]
        return found

    with running([trainer]):
        await_until(lambda: all(row["lag"] == 0 and row["owner"] == "one" for row in rows()), what=model.logs)
        for topic in model.topics:
            assert f"topic was checked warning=topic {topic} has replication factor 1" in model.logs(1000)
        assert all(row["redo_offset"] == row["redo_end"] - 1 for row in rows())
        with model.flowing():
            await_until(lambda: all(row["incoming_per_s"] > 0 < row["learned_per_s"] for row in rows()))
        await_until(lambda: all(row["items_offset"] == row["redo_end"] - 1 for row in rows()), what=model.logs)
        start = time.monotonic()
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(20) == 0, model.logs()
        assert time.monotonic() - start < 10
    assert all(row["items_offset"] == row["redo_end"] - 1 for row in rows()), "shards were written at the end"
    assert run(["status"]) == 0
    assert "owner" in capsys.readouterr().out
    model.check()
    assert run(["user", "show", "user-0", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert known["blocks"] >= known["counted"] >= 1
    assert known["band"] in ("below", "in_band", "above")
    assert run(["user", "erase", "user-0"]) == 0
    model.sent += 1
    model.drain()
    capsys.readouterr()
    assert run(["user", "show", "user-0"]) == 2
    assert "nothing is known" in capsys.readouterr().err
    model.check()


def test_ledgers_that_are_taken_back_are_spread_over_records(model: Model, quiet_stop: Stop) -> None:
    """Small limits: micro-batches are cut by events, and in two where users with ledgers may pass B."""
    model.send(2500)
    plan = plan_of(load(model.settings))
    rules = plan.rules._replace(batch_events=60, poll_messages=100, taken_back_bytes=1)
    before = RECORDS._value.get()
    Service(plan._replace(rules=rules), quiet_stop).run(until_drained=True)
    assert RECORDS._value.get() - before > 1.5 * 2500 / 60, "far more than events alone would make"
    model.check()


def test_partitions_that_cannot_be_begun_end_the_trainer(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going on would leave them to a process that does not read them."""
    service = Service(plan_of(load(model.settings)), quiet_stop)

    def fail(partition: int) -> int:
        raise BrokerError(f"{partition} is away")

    monkeypatch.setattr(service.trainer, "_begin", fail)
    with pytest.raises(SarosError, match="partitions could not be begun: 0 is away"):
        service.run()
    service.close()


def test_a_shard_that_fell_back_and_was_given_away_keeps_nobody_waiting(
    model: Model, redis: Any, quiet_stop: Stop
) -> None:
    model.send(300)
    service = Service(plan_of(load(model.settings)), quiet_stop)
    trainer = service.trainer
    service._reader.subscribe(model.topics.events, trainer.gained, trainer.lost)
    while trainer.tally.events < 300:
        trainer.step()
    trainer.drain()
    redis.delete(*keys_of(redis, model, "i"), *keys_of(redis, model, "name"))
    trainer._shards.write(list(trainer.shares), ())
    trainer._shards._finish(wait=True)  # they were found to have fallen back
    trainer.lost([0])
    trainer.drain()
    shards = {int(key.partition(b"}")[0].rpartition(b":")[2]) for key in keys_of(redis, model, "ivec")}
    assert shards == {shard for shard in range(16) if shard % 3}, "those of the partitions that are left"
    service.close()
    model.drain()
    model.check()


def test_other_settings_are_refused(model: Model, quiet_stop: Stop) -> None:
    assert run_with(model, "init") == 0
    for name, value, hint in (("SAROS_MODEL__DIM", "9", "SAROS_MODEL__DIM=8"), ("SAROS_MODEL__SEED", "3", "SEED=0"),
                              ("SAROS_MODEL__ITEMS_MAX", "900000", "ITEMS_MAX"), ("SAROS_STEP__KIND", "paper", "KIND"),
                              ("SAROS_KAFKA__PARTITIONS", "4", "SAROS_KAFKA__PARTITIONS=3"),
                              ("SAROS_GATE__MODE", "session", "immediate")):  # fmt: skip
        with pytest.raises(InputError) as caught:
            Service(plan_of(load({**model.settings, name: value})), quiet_stop)
        assert hint in caught.value.hint, name


def test_a_log_that_is_gone_and_a_store_of_another_one_are_refused(model: Model, redis: Any, quiet_stop: Stop) -> None:
    plan = plan_of(load(model.settings))
    assert run_with(model, "init") == 0
    meta = keys_of(redis, model, "meta")
    assert len(meta) == 16
    genesis = pb.Genesis.FromString(redis.get(meta[5]))
    genesis.log_id += 1
    redis.set(meta[5], genesis.SerializeToString())
    with pytest.raises(RefusedError, match="another model or log: log_id differ"):
        Service(plan, quiet_stop)
    admin = Admin(model.cluster)
    admin.delete(model.topics.redo)
    await_until(lambda: admin.find(model.topics.redo) is None)
    with pytest.raises(RefusedError, match="whose log is gone") as caught:
        Service(plan, quiet_stop)
    assert "saros rebase" in caught.value.hint


def test_a_store_nobody_wrote_to_for_long_is_refused(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.send(100)
    model.drain()
    model.send(50)
    plan, now = plan_of(load(model.settings)), time.time()
    assert plan.rules.user_ttl_s == 180 * 86400
    monkeypatch.setattr(time, "time", lambda: now + 91 * 86400)
    service = Service(plan, quiet_stop)
    with pytest.raises(RefusedError, match="was last written more than 90 days ago") as caught:
        service.run(until_drained=True)
    service.close()
    assert "--accept-expired" in caught.value.hint
    accepting = plan._replace(rules=plan.rules._replace(accept_expired=True))
    Service(accepting, quiet_stop).run(until_drained=True)
    model.check()


def run_with(model: Model, *arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in model.settings.items():
            patch.setenv(name, value)
        return run(list(arguments))


def test_all_of_the_store_is_lost(model: Model, redis: Any) -> None:
    users = model.approach()
    model.send(800)
    model.drain()
    redis.delete(*redis.scan_iter(f"{{{model.name}:*"))
    model.cross(users)
    model.send(300)
    model.drain()
    model.check()


def test_a_shard_is_lost_and_another_falls_back_under_load(model: Model, redis: Any) -> None:
    users = model.approach()
    model.send(600)
    trainer = model.trainer()
    with running([trainer]):
        await_until(lambda: len(keys_of(redis, model, "ivec")) == 16, what=model.logs)
        with stopped(trainer):  # what is read one by one has to be of one moment
            old = {key: redis.dump(key) for key in redis.scan_iter(f"{{{model.name}:1}}*")}
        assert old
        model.send(600)
        heads = {key: redis.get(key) for key in keys_of(redis, model, "pf")}
        await_until(lambda: any(redis.get(key) != value for key, value in heads.items()), what=model.logs)
        with stopped(trainer):
            redis.delete(*redis.scan_iter(f"{{{model.name}:0}}*"))
            redis.delete(*redis.scan_iter(f"{{{model.name}:1}}*"))
            for key, data in old.items():
                redis.restore(key, 0, data)
        model.cross(users)
        model.send(600)
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(20) == 0, model.logs()
    model.drain()
    model.check()


def test_three_trainers_one_stopped_for_long_and_one_killed(model: Model) -> None:
    model.send(300)
    trainers = [model.trainer() for _ in range(3)]
    with running(trainers):
        await_until(lambda: model.logs().count("trainer was started") == 3, what=model.logs)
        await_until(lambda: model.begun() >= 3, what=model.logs)
        users = model.approach()
        model.send(300)
        trainers[0].send_signal(signal.SIGSTOP)
        before = model.begun()
        model.cross(users)
        model.send(300)
        await_until(lambda: model.begun() > before, what=model.logs)  # its partitions went to others
        model.send(100)
        trainers[0].send_signal(signal.SIGCONT)
        model.send(300)
        trainers[1].kill()
        model.send(300)
        for trainer in (trainers[0], trainers[2]):
            trainer.send_signal(signal.SIGTERM)
            assert trainer.wait(30) == 0, model.logs()
    model.drain()
    model.check()
