"""More users than may be in memory: they leave it when the store has them, and are read again when they come back."""

import signal
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest

from saros.adapters.redis import Store
from saros.core.jit import U64
from saros.settings import load
from saros.trainer.commands import plan_of
from saros.trainer.share import Share
from saros.trainer.start import Service
from saros.trainer.stop import Stop
from tests.broker import Broker
from tests.servers import free_ports
from tests.store import StoreServer, connect
from tests.trainer.faults import LONG, SEED, aof_of, forget
from tests.trainer.runs import Model, await_until, metric, running

LIMIT = 40  # users of a partition in memory
CROWD = 400
# Half of those in memory may be in records that the store lacks, while the other half makes room for a micro-batch.
SMALL = {"SAROS_MODEL__USERS_MAX": str(LIMIT), "SAROS_TRAINER__POLL_MESSAGES": str(LIMIT // 2)}


def somebody(rng: Random) -> int:
    """Anyone, so that most are not in memory."""
    return rng.randrange(CROWD)


@pytest.mark.parametrize("own_store", ["alone"], indirect=True)
def test_users_leave_memory_and_come_back(
    real_broker: Broker, own_store: StoreServer, model_name: str, tmp_path: Path
) -> None:
    """Meanwhile the trainer is killed, and the store loses what it acknowledged."""
    model, rng = Model(model_name, real_broker.address, own_store.url, tmp_path), Random(SEED)
    model.someone, (port,), (node,) = somebody, free_ports(1), own_store.nodes
    model.settings |= SMALL | {"SAROS_TRAINER__METRICS_PORT": str(port), "SAROS_TRAINER__INSTANCE": "one"}
    model.send(1000)

    def held() -> float:
        found = [metric(port, f'saros_users_in_memory{{partition="{partition}"}}') for partition in range(3)]
        assert all(users <= LIMIT for users in found), f"{found} users in memory"
        return min(found)

    for _ in range(5 if LONG else 1):
        first = model.trainer()
        with running([first]), model.flowing(SEED):
            model.await_learned()
            await_until(lambda: held() > LIMIT / 2, what=model.logs)
            users, size = model.approach(), aof_of(node).stat().st_size
            model.await_learned()
            before = model.fences()
        forget(node, size + rng.randrange(2000))
        after = model.fences()
        assert any(after[name] < before[name] for name in after), "something was forgotten"
        second = model.trainer()
        with running([second]), model.flowing(SEED):
            model.cross(users)
            model.await_learned()
            held()
            second.send_signal(signal.SIGTERM)
            assert second.wait(20) == 0, model.logs()
    with connect(own_store.url) as redis:
        known = [len(list(redis.scan_iter(f"{{{model.name}:{partition}}}:u:*"))) for partition in range(3)]
    assert min(known) > 2 * LIMIT, "most were evicted, as they are known and there is no room for them"
    model.drain()
    model.check()


def test_users_that_the_store_does_not_have_yet_stay(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes are slow and reads are not: whoever left memory too early would be read as it was before."""
    flush = Store.flush

    def slowly(store: Store, partition: int, expected: bytes, head: bytes, operations: bytes, ttl_s: int) -> object:
        time.sleep(0.05)
        return flush(store, partition, expected, head, operations, ttl_s)

    asked: list[int] = []
    ask = Share.ask

    def watched(share: Share, keys: U64) -> object:
        missing = keys[share.learner.users.table.find(keys) < 0].tolist()
        records = [flight.record for flight in share.flights] + [each.record for each in share.users._unflushed]
        behind = {key for record in records for key in np.frombuffer(record.users.key, np.uint64).tolist()}
        assert behind.isdisjoint(missing), "the store has them as they were before"
        asked.extend(missing)
        return ask(share, keys)

    monkeypatch.setattr(Store, "flush", slowly)
    monkeypatch.setattr(Share, "ask", watched)
    model.someone = somebody
    model.settings |= SMALL
    model.send(2000)
    Service(plan_of(load(model.settings)), quiet_stop).run(until_drained=True)
    assert len(asked) > 2 * len(set(asked)), "they left and came back"
    model.check()
