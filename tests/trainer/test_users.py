"""The users of a partition in the store, where two processes take it for theirs."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from saros.errors import RefusedError
from saros.settings import load
from saros.trainer.commands import plan_of
from saros.trainer.plan import LoopRules
from saros.trainer.start import find_log, open_store
from saros.trainer.users import Threads, UserStore
from tests.broker import Broker
from tests.store import StoreServer, connect
from tests.trainer.runs import Model


def test_an_owner_that_catches_up_meets_one_that_has_gone_on(
    real_broker: Broker, store_server: StoreServer, model_name: str, tmp_path: Path
) -> None:
    model = Model(model_name, real_broker.address, store_server.url, tmp_path)
    model.send(600)
    model.drain()
    plan = plan_of(load(model.settings))
    redo, genesis = find_log(plan)
    store = open_store(plan, genesis)
    fences = [fence for fence, _ in redo.accepted(0, genesis.start(0), redo.end(0))]
    with connect(store_server.url) as redis, ThreadPoolExecutor(1) as pool:
        redis.delete(*redis.scan_iter(f"{{{model.name}:0}}:[ul]:*"), store.keys.head(0))
        one, other = (
            UserStore(store, redo, genesis, 0, LoopRules(), Threads(pool, pool), lambda _: None, 1000) for _ in range(2)
        )
        one.catch_up(fences[-1])
        other.catch_up(fences[-2])  # as far as it had followed the log
        assert other.state() == one.state()
        wrong = fences[-1]._replace(nonce=fences[-1].nonce ^ 1)
        with pytest.raises(RefusedError, match="is of another log"):
            one.catch_up(wrong)
    redo.close()
    store.close()
    model.check()
