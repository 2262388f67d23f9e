"""The redo topic is lost, and the store goes on with a new log: real processes, killed at every step and two at once.

What a log that a rebase began makes of the store is known by a copy, taken when the rebase was done: the records behind
it, folded into the copy, give the store to the bit.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from saros.adapters.kafka import Admin
from saros.adapters.names import EVENTS_SETTINGS, REDO_SETTINGS
from saros.adapters.redis import MarkedStore
from saros.adapters.redo import RedoLog
from saros.errors import RefusedError
from saros.settings import load
from saros.trainer import rebase
from saros.trainer.commands import plan_of
from saros.trainer.start import Service
from saros.trainer.stop import Stop
from saros.wire.v1 import redo_pb2 as pb
from tests.broker import Broker
from tests.store import StoreServer
from tests.trainer.copies import SHARDS, Copy, check_folded, copy_of, rows_of, waiting
from tests.trainer.runs import PARTITIONS, SAROS, Model, await_until, lose, renew, running


@pytest.fixture
def held(model: Model) -> Iterator[MarkedStore]:
    """The store as a rebase sees it."""
    store = MarkedStore(plan_of(load(model.settings)).store, model.name, SHARDS, PARTITIONS)
    yield store
    store.close()


def run(model: Model, *arguments: str, code: int = 0, **more: str) -> str:
    """Run a command to its end; return all that it says."""
    done = subprocess.run(
        [SAROS, *arguments], env=model.environ(**more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120
    )
    assert done.returncode == code, done.stdout.decode()
    return " ".join(done.stdout.decode().split())


def go_on(model: Model, held: MarkedStore, count: int = 500) -> None:
    """Learn more behind a rebase, and compare."""
    before = copy_of(held)
    assert before.fences == before.genesis.starts()
    model.send(count)
    model.drain()
    after = copy_of(held)
    assert all(fence.next > first for fence, first in zip(after.fences, before.genesis.first, strict=True))
    check_folded(before, held, model)
    found = model.audit()
    assert (found.differences, found.whole) == (0, False), found.told
    assert found.records > 0


def test_a_lost_log_is_refused_and_the_store_goes_on_with_another(model: Model, held: MarkedStore, redis: Any) -> None:
    model.send(1000)
    model.drain()
    model.check()
    old = copy_of(held)
    assert any(old.ledgers)
    lose(model, model.topics.redo)
    said = run(model, "trainer", "--until-drained", code=2)
    assert "whose log is gone" in said
    assert "saros rebase" in said
    said = run(model, "rebase")
    assert "16 of 16 shards were put on log" in said
    assert "kept: ledgers" in said
    assert "can no longer be taken back" not in said
    assert f"events go on in partition 0 at {old.fences[0].next:,}, 1 at" in said
    new = copy_of(held)
    assert new.genesis.base == (old.genesis.log_id,)
    assert new.genesis.first == tuple(fence.next for fence in old.fences)
    assert not new.genesis.clears
    assert (rows_of(new.items), new.names, new.users, new.ledgers) == (
        rows_of(old.items), old.names, old.users, old.ledgers
    ), "nothing else has changed"  # fmt: skip
    assert "nothing to do, all 16 shards are on log" in run(model, "rebase")
    go_on(model, held)
    check_what_an_audit_still_finds(model, held, redis)


def check_what_an_audit_still_finds(model: Model, held: MarkedStore, redis: Any) -> None:
    """What the new log says of users and ledgers; and a fence that is gone is not taken for that of the beginning."""
    assert "the rest was taken as it is" in run(model, "audit")
    users = [held.keys.users(0) + record.users.key[:8] for record in records(model)]
    user, value = next((user, value) for user in users if (value := redis.get(user)))
    redis.set(user, value[:-1] + bytes([value[-1] ^ 1]))
    assert model.audit().differences == 1
    redis.set(user, value)
    vector = redis.getdel(held.keys.vector(5))
    assert "no log can make that again" in run(model, "trainer", "--until-drained", code=2)
    redis.set(held.keys.vector(5), vector)
    assert model.audit().differences == 0


def records(model: Model) -> list[pb.Record]:
    """The records of partition 0."""
    topic = Admin(model.cluster).find(model.topics.redo)
    assert topic is not None
    redo = RedoLog(model.cluster, topic)
    genesis = redo.genesis()
    assert genesis is not None
    found = [record for _, record in redo.accepted(0, genesis.start(0), redo.end(0))]
    redo.close()
    return found


@pytest.fixture
def torn(model: Model, held: MarkedStore, redis: Any) -> Copy:
    """A lost log, and a store in which the items of a shard have fallen back: what it held then."""
    model.send(400)
    model.drain()
    fullest = max(range(SHARDS), key=lambda shard: int(redis.hlen(held.keys.items(shard))))
    keys = (held.keys.items(fullest), held.keys.vector(fullest), held.keys.names(fullest))
    old = {key: redis.dump(key) for key in keys}
    model.send(400)
    model.drain()
    redis.delete(*keys)
    for key, data in old.items():
        redis.restore(key, 0, data)
    renew(model, model.topics.redo, REDO_SETTINGS)
    return copy_of(held)


def check_cleared(old: Copy, held: MarkedStore) -> None:
    new = copy_of(held)
    assert new.genesis.clears
    assert new.ledgers == waiting(old.ledgers) != old.ledgers
    assert any(new.ledgers), "something waited"
    assert (rows_of(new.items), new.names, new.users) == (rows_of(old.items), old.names, old.users)


def blocks(ledgers: list[dict[int, dict[int, bytes]]]) -> int:
    return sum(len(book) for each in ledgers for book in each.values())


def test_where_items_and_users_are_of_different_moments_what_was_added_leaves_the_ledgers(
    model: Model, held: MarkedStore, torn: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebase, "_PAGE", 4)
    found = rebase.rebased(plan_of(load(model.settings)))
    assert found.cleared == blocks(torn.ledgers) - blocks(waiting(torn.ledgers)) > 0
    assert (found.shards, found.notes) == (SHARDS, [])
    check_cleared(torn, held)
    go_on(model, held)


def test_killed_at_each_step_and_run_again(model: Model, held: MarkedStore, torn: Copy, quiet_stop: Stop) -> None:
    plan = plan_of(load(model.settings))
    for point in ("marked:1", "marked:9", "settled:1", "decided:1", "cleared:1", "cleared:1", "rebased:1", "rebased:7"):
        run(model, "rebase", code=-signal.SIGKILL, SAROS_TEST_KILL=point)
        with pytest.raises(RefusedError, match="saros rebase"):
            Service(plan, quiet_stop)  # nobody goes on from a half
    left = sum(held.standing(shard).is_marked for shard in range(SHARDS))
    assert left in (7, 8), "1 and 7, and one more where the second page was that of the next shard"
    said = run(model, "rebase")
    assert f"{left} of 16 shards were put on log" in said
    assert "what was taught until now can no longer be taken back" in said
    check_cleared(torn, held)
    go_on(model, held)


def test_three_at_once_and_the_topic_is_lost_again(model: Model, held: MarkedStore, torn: Copy) -> None:
    run(model, "rebase", code=-signal.SIGKILL, SAROS_TEST_KILL="rebased:5")
    renew(model, model.topics.redo, REDO_SETTINGS)
    started = [
        subprocess.Popen([SAROS, "rebase", "--json"], env=model.environ(), stdout=subprocess.PIPE) for _ in range(3)
    ]
    with running(started):
        said = [json.loads(process.communicate(timeout=60)[0]) for process in started]
        assert [process.returncode for process in started] == [0, 0, 0]
    new = copy_of(held)
    assert {each["log"] for each in said} == {f"{new.genesis.log_id:x}"}, "one log, whoever decided it"
    assert sum(each["shards"] for each in said) >= SHARDS
    assert len(new.genesis.base) == 2, "some shards were on the log that was begun before, some on the first"
    check_cleared(torn, held)
    go_on(model, held)


def test_trainers_that_still_run_stop_and_change_nothing(model: Model, held: MarkedStore) -> None:
    """One notices by itself; one was stopped, and comes back when all is over."""
    model.send(300)
    trainers = [model.trainer() for _ in range(2)]
    with running(trainers):
        await_until(lambda: model.begun() >= 4, what=model.logs)  # the second took some from the first
        model.send(300)
        trainers[0].send_signal(signal.SIGSTOP)
        renew(model, model.topics.redo, REDO_SETTINGS)
        model.send(100)
        run(model, "rebase")
        before = copy_of(held)
        assert trainers[1].wait(30) == 2, model.logs()
        trainers[0].send_signal(signal.SIGCONT)
        assert trainers[0].wait(30) == 2, model.logs()
        assert model.logs().count("saros: topic") == 2, model.logs()
    after = copy_of(held)
    assert after._replace(items=before.items) == before
    assert rows_of(after.items) == rows_of(before.items)
    go_on(model, held)


def test_on_a_cluster(real_broker: Broker, store_cluster: StoreServer, model_name: str, tmp_path: Path) -> None:
    model = Model(model_name, real_broker.address, store_cluster.url, tmp_path)
    store = MarkedStore(plan_of(load(model.settings)).store, model.name, SHARDS, PARTITIONS)
    model.send(400)
    model.drain()
    lose(model, model.topics.redo)
    run(model, "rebase", code=-signal.SIGKILL, SAROS_TEST_KILL="rebased:6")
    assert "10 of 16 shards were put on log" in run(model, "rebase")
    go_on(model, store)
    store.wipe()
    store.close()


@pytest.mark.parametrize("topic", ["redo", "events"])
def test_a_trainer_notices_a_topic_that_is_gone(model: Model, topic: str) -> None:
    model.send(200)
    trainer = model.trainer()
    with running([trainer]):
        await_until(lambda: model.begun() >= 3, what=model.logs)
        lose(model, getattr(model.topics, topic))
        assert trainer.wait(30) == 2, model.logs()
    assert "is gone, or was made anew" in model.logs()


def test_events_that_were_made_anew_are_read_from_their_first(
    model: Model, held: MarkedStore, quiet_stop: Stop
) -> None:
    model.send(400)
    model.drain()
    renew(model, model.topics.events, EVENTS_SETTINGS)
    with pytest.raises(RefusedError, match="is gone, or was made anew") as caught:
        Service(plan_of(load(model.settings)), quiet_stop)
    assert "delete its redo topic and run `saros rebase`" in caught.value.hint
    said = run(model, "rebase", code=2)
    assert f"delete {model.topics.redo} and run `saros rebase` again" in said
    lose(model, model.topics.redo)
    model.send(50)
    said = run(model, "rebase")
    assert "events go on in partition 0 at 0, 1 at 0, 2 at 0" in said
    assert f"{model.topics.events} is another topic than was learned from: it is read from its first event on" in said
    go_on(model, held)
