"""The users of a partition in the store, where two processes take it for theirs."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from saros.adapters.redis import Store
from saros.adapters.redo import RedoLog
from saros.errors import RefusedError
from saros.redo.fence import Fence
from saros.redo.genesis import Genesis
from saros.settings import load
from saros.trainer.commands import plan_of
from saros.trainer.plan import LoopRules
from saros.trainer.start import find_log, open_store
from saros.trainer.users import Threads, UserStore
from tests.trainer.runs import Model


def opened(model: Model) -> tuple[RedoLog, Genesis, Store, list[Fence]]:
    """Return the log and the store of a model, and the fences behind the records of partition 0."""
    plan = plan_of(load(model.settings))
    redo, genesis = find_log(plan)
    fences = [fence for fence, _ in redo.accepted(0, genesis.start(0), redo.end(0))]
    return redo, genesis, open_store(plan, genesis), fences


def lose(model: Model, redis: Any) -> None:
    """Take the users of partition 0 out of the store, and how far it was."""
    redis.delete(*redis.scan_iter(f"{{{model.name}:0}}:[ul]:*"), f"{{{model.name}:0}}:pf:0")


def test_an_owner_that_catches_up_meets_one_that_has_gone_on(model: Model, redis: Any) -> None:
    model.send(600)
    model.drain()
    redo, genesis, store, fences = opened(model)
    with ThreadPoolExecutor(1) as pool:
        lose(model, redis)
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


def test_a_part_of_the_log_may_be_read_in_the_middle_of_another(
    model: Model, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store falls back while it is mended: what is missing now is read first, then mending goes on."""
    model.send(900)
    model.drain()
    redo, genesis, store, fences = opened(model)
    monkeypatch.setattr("saros.adapters.redo._MESSAGES", 2)  # at once, so that there is more to be read
    assert len(fences) > 5
    others = list(redo.accepted(1, genesis.start(1), redo.end(1)))
    outer = redo.accepted(0, genesis.start(0), redo.end(0))
    begun = [next(outer)]
    assert list(redo.accepted(1, genesis.start(1), redo.end(1))) == others
    assert [fence for fence, _ in [*begun, *outer]] == fences
    next(redo.accepted(1, genesis.start(1), redo.end(1)))
    assert list(redo.accepted(1, genesis.start(1), redo.end(1))) == others, "nor does one that was left halfway matter"
    with ThreadPoolExecutor(1) as pool:
        lose(model, redis)
        users = UserStore(
            store, redo, genesis, 0, LoopRules(behind_bytes=2), Threads(pool, pool), lambda _: None, 1000
        )  # fmt: skip
        real, written = store.flush, list[int]()

        def fall_back(*arguments: Any) -> bytes | None:
            written.append(1)
            if len(written) == 3:
                lose(model, redis)
            return real(*arguments)

        monkeypatch.setattr(store, "flush", fall_back)
        users.catch_up(fences[-1])
        assert len(written) > 5
    redo.close()
    store.close()
    model.check()


def test_what_the_store_lost_is_written_again_in_few_writes(
    model: Model, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a trainer that mends a long log is thrown out of the group before it is done."""
    model.send(900)
    model.drain()
    redo, genesis, store, fences = opened(model)
    assert len(fences) > 5
    with ThreadPoolExecutor(1) as pool:
        users = UserStore(store, redo, genesis, 0, LoopRules(), Threads(pool, pool), lambda _: None, 1000)
        state, written, flush = users.state(), list[int](), store.flush

        def count(*arguments: Any) -> bytes | None:
            written.append(len(arguments[3]))
            return flush(*arguments)

        monkeypatch.setattr(store, "flush", count)
        lose(model, redis)
        assert users.state() == state
        assert len(written) == 1
        monkeypatch.setattr("saros.trainer.users._WRITE_USERS", 60)
        lose(model, redis)
        assert users.state() == state
        assert 3 <= len(written) <= len(fences), "but no more at once than the store takes in one go"
    redo.close()
    store.close()
    model.check()
