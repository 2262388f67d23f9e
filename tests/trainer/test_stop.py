"""A signal ends a trainer in order and in time, wherever it is; a second one at once. Nothing is lost either way."""

import os
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from saros.adapters.kafka import Cluster, Writer
from saros.adapters.redo import RedoLog
from saros.errors import BrokerError
from saros.settings import load
from saros.trainer.commands import plan_of
from saros.trainer.start import Service
from saros.trainer.stop import Stop, StoppedError
from tests.broker import Broker
from tests.store import StoreServer
from tests.trainer.runs import Model, await_until, running

AT_ONCE_S, IN_TIME_S, GIVEN_UP_S = 3.0, 10.0, 40.0


@pytest.mark.parametrize("own_store", ["alone"], indirect=True)
def test_a_second_signal_ends_at_once(
    real_broker: Broker, own_store: StoreServer, model_name: str, tmp_path: Path
) -> None:
    """The store stands still, so that the end in order would take its time."""
    model = Model(model_name, real_broker.address, own_store.url, tmp_path)
    trainer = model.trainer()
    with model.flowing():
        users = model.approach()
        model.await_learned()
        os.kill(own_store.nodes[0].pid, signal.SIGSTOP)
        model.cross(users)
    signalled, since = 0, time.monotonic()
    while trainer.poll() is None and time.monotonic() < since + AT_ONCE_S:
        trainer.send_signal(signal.SIGTERM)  # two that come before the first is seen are one
        signalled += 1
        with_timeout(trainer, 0.2)
    os.kill(own_store.nodes[0].pid, signal.SIGCONT)
    assert trainer.poll() == 1, f"{trainer.poll()}\n{model.logs()}"
    assert signalled > 1
    assert "what was taken is learned" not in model.logs(1000)
    model.drain()
    model.check()


def with_timeout(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return


@contextmanager
def stopped_when(ready: Callable[[], bool]) -> Iterator[list[float]]:
    """Send this process the signal when something is so; yields when that was."""
    sent, ended = list[float](), threading.Event()

    def watch() -> None:
        while not ready():
            if ended.wait(0.05):
                return
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


def slow(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Let reading the log again take a second for each record; return what was read."""
    real, met = RedoLog.accepted, list[object]()

    def accepted(redo: RedoLog, *arguments: Any) -> Iterator[Any]:
        for each in real(redo, *arguments):
            met.append(each)
            time.sleep(1)
            yield each

    monkeypatch.setattr(RedoLog, "accepted", accepted)
    return met


def empty(model: Model, redis: Any) -> None:
    redis.delete(*redis.scan_iter(f"{{{model.name}:*}}:[ulp]*"))


@pytest.mark.parametrize("when", ["started", "gained"])
def test_who_follows_a_long_log_stops_in_time(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    model.send(300)
    model.drain()
    service = Service(plan_of(load(model.settings)), quiet_stop)
    if when == "gained":
        service.trainer.catch_up()
        model.send(60)
        model.drain()
        monkeypatch.setattr(service.trainer, "catch_up", once_nothing(service.trainer.catch_up))
    asked = list[float]()

    def follow(timeout_s: float) -> int:
        asked.append(timeout_s)
        time.sleep(timeout_s)
        return 0

    monkeypatch.setattr(service.trainer, "follow", follow)
    with stopped_when(lambda: bool(asked)) as sent:
        service.run()
        assert time.monotonic() - sent[0] < IN_TIME_S
    monkeypatch.undo()
    model.drain()
    model.check()


def once_nothing(real: Callable[..., None]) -> Callable[..., None]:
    """Return a function that does nothing the first time."""
    calls = list[object]()

    def call(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) > 1:
            real(*arguments)

    return call


def test_who_mends_what_it_gained_stops_in_time(
    model: Model, redis: Any, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.send(1500)
    model.drain()
    empty(model, redis)
    service, met = Service(plan_of(load(model.settings)), quiet_stop), slow(monkeypatch)
    with stopped_when(lambda: bool(met)) as sent:
        service.run()
        assert time.monotonic() - sent[0] < IN_TIME_S
    assert len(met) < 12
    monkeypatch.undo()
    model.drain()
    model.check()


def test_who_mends_a_store_that_fell_back_stops_in_time(
    model: Model, redis: Any, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.send(1500)
    model.drain()
    monkeypatch.setattr("saros.trainer.users._WRITE_USERS", 1)
    service = Service(plan_of(load(model.settings)), quiet_stop)
    ready, met = list[object](), list[object]()

    def lose() -> None:
        await_until(lambda: len(service.trainer.shares) == 3)
        empty(model, redis)
        met.append(slow(monkeypatch))
        ready.append(None)
        model.send(100)

    thread = threading.Thread(target=lose)
    thread.start()
    with stopped_when(lambda: bool(ready and met[0])) as sent:
        service.run()
        assert time.monotonic() - sent[0] < IN_TIME_S
    thread.join()
    monkeypatch.undo()
    model.drain()
    model.check()


@pytest.mark.parametrize("when", ["signalled", "drained"])
def test_a_broker_that_fails_at_the_end_is_no_error(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Whoever was to stop stops halfway; whoever was to learn all goes on until it has."""
    model.send(300)
    service = Service(plan_of(load(model.settings)), quiet_stop)
    trainer, failed = service.trainer, list[object]()
    real = trainer.commit

    def commit(**arguments: bool) -> None:
        if not failed and "drain" in [frame.name for frame in traceback.extract_stack()]:
            failed.append(None)
            raise BrokerError("away")
        real(**arguments)

    monkeypatch.setattr(trainer, "commit", commit)
    with stopped_when(lambda: when == "signalled" and trainer.tally.events > 0):
        service.run(until_drained=when == "drained")
    assert failed
    if when == "signalled":
        model.drain()
    model.check()


def test_where_dead_letters_wait_for_the_broker_a_signal_is_heard(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.send(300)
    service = Service(plan_of(load(model.settings)), quiet_stop)
    dead, waits = service.trainer._intake._dead, list[object]()
    dead._writer = Writer(Cluster("127.0.0.1:9", {"log_level": 0}))

    def check() -> None:
        waits.append(None)
        quiet_stop.check_late()

    monkeypatch.setattr(dead, "_check", check)
    monkeypatch.setattr("saros.trainer.stop._GRACE_S", 0.2)
    with stopped_when(lambda: bool(waits)) as sent:
        service.run()
        assert time.monotonic() - sent[0] < IN_TIME_S
    model.drain()
    model.check()


def test_who_reads_the_store_stops_before_it_has_all(model: Model, quiet_stop: Stop) -> None:
    quiet_stop.asked = True
    with pytest.raises(StoppedError):
        Service(plan_of(load(model.settings)), quiet_stop)


@pytest.mark.parametrize("own_store", ["alone"], indirect=True)
def test_whoever_gives_up_leaves_the_group_and_ends(
    real_broker: Broker, own_store: StoreServer, model_name: str, tmp_path: Path
) -> None:
    """The store is away for good. Partitions of whoever ends first go to the next, which then ends in the middle of it:
    a client that is in the group still holds a process up that is being taken apart."""
    model = Model(model_name, real_broker.address, own_store.url, tmp_path)
    trainers = [model.trainer() for _ in range(3)]
    with running(trainers), model.flowing():
        model.await_learned()
        own_store.nodes[0].kill()
        for trainer in trainers:
            assert trainer.wait(GIVEN_UP_S) == 1, model.logs()
        own_store.nodes[0].restart()
    model.drain()
    model.check()


@pytest.mark.parametrize("own_store", ["alone"], indirect=True)
@pytest.mark.parametrize("signalled", [True, False])
def test_a_store_that_hangs_holds_nobody_up(
    real_broker: Broker, own_store: StoreServer, model_name: str, tmp_path: Path, signalled: bool
) -> None:
    """It takes connections and answers nothing: each call to it lasts until its time is up, and is tried again."""
    model = Model(model_name, real_broker.address, own_store.url, tmp_path)
    trainer = model.trainer()
    with running([trainer]), model.flowing():
        model.await_learned()
        os.kill(own_store.nodes[0].pid, signal.SIGSTOP)
        try:
            time.sleep(2)  # what was taken waits for it by now
            if signalled:
                trainer.send_signal(signal.SIGTERM)
            code = trainer.wait(IN_TIME_S if signalled else GIVEN_UP_S)
        finally:
            os.kill(own_store.nodes[0].pid, signal.SIGCONT)
    told = "stopped halfway" if signalled else "saros: the store does not answer"
    assert (code, told in model.logs(1000)) == (0 if signalled else 1, True), model.logs()
    model.drain()
    model.check()
