"""The audit: beside a trainer that goes on, and where what it needs is no longer there."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from saros.adapters.kafka import Admin, Place, Reader
from saros.adapters.redis import Store
from saros.cli import run
from saros.core.jit import U64
from saros.errors import BrokerError
from tests.trainer.runs import Model, await_until, running


def test_it_finds_nothing_beside_a_busy_trainer(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users come, change and are erased between its pages, and after all of them were listed."""
    moves = list[int]()

    def slowly(store: Store, pages: Iterator[U64], partition: int) -> Iterator[U64]:
        for keys in list(pages):
            for k in range(0, len(keys), 8):
                yield keys[k : k + 8]
                if len(moves) < 3:
                    before = store.read_head(partition)
                    model.approach()  # somebody new in each partition
                    model.tell_items()
                    await_until(lambda b=before: store.read_head(partition) != b, what=model.logs)  # type: ignore[misc]
                    moves.append(partition)

    users_of, ledger_keys = Store.users_of, Store.ledger_keys
    monkeypatch.setattr(Store, "users_of", lambda store, p: slowly(store, users_of(store, p), p))
    monkeypatch.setattr(Store, "ledger_keys", lambda store, p: slowly(store, ledger_keys(store, p), p))
    model.send(600)
    model.tell_items()
    trainer = model.trainer()
    with running([trainer]):
        model.await_learned()
        with model.flowing():
            found = model.audit()
            assert trainer.poll() is None
    assert len(moves) == 3
    assert found.differences == 0, "\n".join(found.told)
    assert found.whole
    model.drain()
    model.check()


def test_what_is_told_of_items_and_the_state_of_a_partition_are_compared(model: Model, redis: Any) -> None:
    model.send(300)
    model.tell_items()
    model.tell_items()
    model.drain()
    model.check()
    names = next(redis.scan_iter(f"{{{model.name}:*}}:name"))
    field, told = next(iter(redis.hgetall(names).items()))
    redis.hset(names, field, told.replace(b"shelf 2", b"shelf 1"))
    found = model.audit()
    assert found.differences == 1
    assert found.told == [f"name of item {int.from_bytes(field, 'little'):016x}: replaying the log gives another one"]
    redis.hdel(names, field)
    assert model.audit().differences == 1
    redis.hset(names, field, told)
    redis.hset(names, bytes(8), b"nobody")
    assert model.audit().differences == 1, "the log says nothing of it"
    redis.hdel(names, bytes(8))
    head = f"{{{model.name}:1}}:pf:1"
    state = redis.get(head)
    redis.set(head, state[:-40] + bytes([state[-40] ^ 1]) + state[-39:])
    found = model.audit()
    assert (found.differences, found.told) == (1, ["state of partition 1: replaying the log gives another one"])
    redis.set(head, state)
    model.check()


def test_users_the_store_has_let_go(model: Model, redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model.send(600)
    model.drain()
    key = next(iter(redis.scan_iter(f"{{{model.name}:*}}:l:*")))
    user = key.replace(b"}:l:", b"}:u:")
    assert 179 * 86400 < redis.ttl(user) <= 180 * 86400
    ledger, value = redis.dump(key), redis.dump(user)
    redis.delete(key, user)
    assert model.audit().differences == 4, "user and ledger, by the log and by the events"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 179 * 86400)
    assert model.audit().differences == 4, "not yet"
    monkeypatch.setattr(time, "time", lambda: now + 181 * 86400)
    assert model.audit().differences == 0
    redis.restore(key, 0, ledger)
    assert model.audit().differences == 1, "a ledger lives no longer than its user"
    redis.restore(user, 0, value)
    assert model.audit().differences == 0
    redis.hdel(key, redis.hkeys(key)[0])
    assert model.audit().differences == 2, "who is there is compared"


def test_events_that_retention_took_are_not_counted_again(
    model: Model, redis: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model.send(600)
    model.drain()
    Admin(model.cluster).trim(model.topics.events, 1, 20)
    found = model.audit()
    assert found.differences == 0, found.told
    assert not found.whole
    assert "partition 1:" in found.notes[0]
    assert 0 < found.events < model.sent, "the other partitions are"
    for name, value in model.settings.items():
        monkeypatch.setenv(name, value)
    assert run(["audit", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["whole"] is False
    assert run(["audit"]) == 0
    assert "no longer has its first events in partition 1" in capsys.readouterr().out
    users = next(iter(redis.scan_iter(f"{{{model.name}:1}}:u:*")))
    redis.delete(users)
    items = next(iter(redis.scan_iter(f"{{{model.name}:*}}:item")))
    redis.hdel(items, redis.hkeys(items)[0])
    assert model.audit().differences == 2, "the log is compared with all the same"


def test_events_that_never_come_are_not_waited_for_for_good(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    model.send(100)
    model.drain()
    real = Reader.assign

    def assign(reader: Reader, topic: str, places: Sequence[Place]) -> None:
        if topic != model.topics.events:
            real(reader, topic, places)

    monkeypatch.setattr(Reader, "assign", assign)
    monkeypatch.setattr("saros.trainer.recount._QUIET_POLLS", 3)
    with pytest.raises(BrokerError, match="does not give what is at 0"):
        model.audit()


def test_a_table_with_more_items_than_are_let_in(model: Model) -> None:
    """Two trainers gave away the last places at the same time, or the limit was lowered."""
    model.send(300)
    model.drain()
    assert model.audit().items > 20
    model.settings["SAROS_MODEL__ITEMS_MAX"] = "20"
    model.send(400)
    model.drain()
    model.check()


def test_a_full_item_table(model: Model) -> None:
    """40 items are named, 25 have room; which, depends on all partitions."""
    model.settings["SAROS_MODEL__ITEMS_MAX"] = "25"
    model.send(800)
    model.drain()
    _, records = model._log()
    assert any(flags & 4 for record in records for flags in record.blocks.flags), "blocks were refused"
    model.check()
