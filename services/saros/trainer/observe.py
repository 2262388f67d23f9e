"""What a trainer tells Prometheus, besides what is counted where it happens."""

import time
from collections.abc import Iterable
from itertools import product

from saros.core.counts import named
from saros.core.gate import DECISIONS
from saros.core.items import Items
from saros.core.learner import Batch
from saros.core.scoring import PROGRESSIVE as SUMS
from saros.telemetry import BATCH_EVENTS, BEHIND, BOUND, EVENTS, ITEMS, MEMORY, PROGRESSIVE, USERS
from saros.trainer.share import Share

_SUMS = list(product(enumerate(DECISIONS), enumerate(SUMS)))


def observe_batch(partition: int, events: int, newest_ms: int, batch: Batch) -> None:
    """Count what a micro-batch did."""
    BATCH_EVENTS.observe(events)
    BEHIND.labels(partition).set(max(0.0, time.time() - newest_ms / 1000))
    for name, number in named(batch.counts).items():
        if number:
            EVENTS.labels(name).inc(number)
    for (row, decision), (column, name) in _SUMS:
        if batch.progressive[row, 0]:
            PROGRESSIVE.labels(name, decision).inc(max(0.0, float(batch.progressive[row, column])))


def observe_tables(items: Items, shares: Iterable[Share]) -> None:
    """Tell how much is held."""
    ITEMS.set(items.table.size)
    MEMORY.labels("items").set(sum(column.nbytes for column in (*items.arrays, *items.table.arrays())))
    users = ledgers = 0
    for share in shares:
        learner, partition = share.learner, share.partition
        users += sum(column.nbytes for column in (*learner.users.arrays, *learner.users.table.arrays()))
        ledgers += sum(column.nbytes for column in learner.ledger.arrays)
        USERS.labels(partition).set(learner.users.table.size)
        BOUND.labels(partition, "b").set(int(learner.gate.bounds[0]))
        BOUND.labels(partition, "B").set(int(learner.gate.bounds[1]))
    MEMORY.labels("users").set(users)
    MEMORY.labels("ledgers").set(ledgers)
