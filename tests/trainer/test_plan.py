"""What fits into the memory that a trainer is given."""

import numpy as np
import pytest

from saros.core.items import Items
from saros.core.learner import Learner
from saros.settings import load
from saros.trainer.commands import plan_of
from saros.trainer.plan import Plan, behind_bytes, cached_users, new_learner

MB = 2**20


def plan(**more: int) -> Plan:
    settings = {"SAROS_KAFKA__BOOTSTRAP": "nowhere:9", "SAROS_REDIS__URL": "redis://nowhere"}
    return plan_of(load(settings))._replace(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize("partitions", [1, 4, 16])
def test_users_and_what_the_store_lacks_share_the_memory(partitions: int) -> None:
    told = plan(partitions=partitions, memory_bytes=4096 * MB)
    learner = new_learner(told, Items(told.rows, 1))
    assert learner.users.limit == min(told.users_max, cached_users(told))
    users = Learner(Items(told.rows, 1), told.step, told.session, told.gate, users_max=10_000).users
    users.intern(np.arange(10_000, dtype=np.uint64))
    one = sum(column.nbytes for column in (*users.arrays, *users.table.arrays())) / 10_000
    most = partitions * (cached_users(told) * one + behind_bytes(told))
    assert 0.7 * told.memory_bytes < most + partitions * (told.memory_bytes / 4 / partitions - behind_bytes(told))
    assert most <= told.memory_bytes


def test_users_that_come_are_not_copied() -> None:
    """Their columns are there from the start, and take no memory before anybody is in them."""
    told = plan(partitions=1, memory_bytes=64 * MB)
    users = new_learner(told, Items(told.rows, 1)).users
    rows, capacity = users.arrays.rows, users.table.capacity
    users.intern(np.arange(2 * capacity, dtype=np.uint64))
    assert users.table.capacity > capacity
    assert np.shares_memory(rows, users.arrays.rows)
    assert len(users.arrays.rows) == len(users.arrays.head) == users.table.capacity


def test_limits_are_fewer_with_more_partitions_and_have_ends() -> None:
    assert cached_users(plan(partitions=4)) // cached_users(plan(partitions=8)) in (1, 2)
    assert cached_users(plan(partitions=8)) < cached_users(plan(partitions=4))
    assert cached_users(plan(memory_bytes=1)) == 16_384
    assert behind_bytes(plan(partitions=1, memory_bytes=2048 * MB)) == 32 * MB
    assert behind_bytes(plan(partitions=64, memory_bytes=2048 * MB)) == 8 * MB
