"""More users than may be in memory: they leave it when the store has them, and are read again when they come back."""

import signal
from pathlib import Path
from random import Random

import pytest

from tests.broker import Broker
from tests.servers import free_ports
from tests.store import StoreServer, connect
from tests.trainer.faults import LONG, SEED, aof_of, forget
from tests.trainer.runs import Model, await_until, metric, running

LIMIT = 40  # users of a partition in memory
CROWD = 400
SMALL = {"SAROS_MODEL__USERS_MAX": str(LIMIT), "SAROS_TRAINER__POLL_MESSAGES": "15"}


@pytest.mark.parametrize("own_store", ["alone"], indirect=True)
def test_users_leave_memory_and_come_back(
    real_broker: Broker, own_store: StoreServer, model_name: str, tmp_path: Path
) -> None:
    """Meanwhile the trainer is killed, and the store loses what it acknowledged."""
    model, rng = Model(model_name, real_broker.address, own_store.url, tmp_path), Random(SEED)
    model.crowd, (port,), (node,) = CROWD, free_ports(1), own_store.nodes
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
