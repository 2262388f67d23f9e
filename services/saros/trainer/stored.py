"""What the store holds of a partition's users, as of one fence, though trainers go on writing while it is read.

Users and ledgers are read in pages, each with the fence it is of. Then every page is brought to the highest of these
fences, by what the records between ask a store to do. Whoever is on no page was not there at one moment of the reading:
a store's scan gives all that stay. So that user begins with nothing at the lowest fence; what it had then the records
have taken away since.
"""

from collections.abc import Callable
from typing import NamedTuple

from saros.adapters.redis import Store
from saros.adapters.redo import RedoLog
from saros.redo.fence import FENCE_BYTES, Fence
from saros.redo.genesis import Genesis
from saros.redo.record import operations
from saros.wire.operations import (
    CLEAR,
    DROP,
    ERASE,
    HAS_WAITING,
    KEEP,
    PUT,
    SET,
    StoredUser,
    read_operations,
    read_user,
)

Ledgers = dict[int, dict[int, bytes]]  # by user and number


class Stored(NamedTuple):
    """Users and ledgers of a partition, as of one fence."""

    fence: Fence
    head: bytes  # the partition's own fence and state, of another moment; empty where it was never written
    users: dict[int, StoredUser]
    ledgers: Ledgers


def read_stored(store: Store, redo: RedoLog, genesis: Genesis, partition: int) -> Stored:
    """Return what the store holds of a partition's users."""
    fences: list[Fence] = []

    def met(found: bytes) -> int:
        start = [genesis.start(partition)]
        fences.extend(genesis.found(found[:FENCE_BYTES], start, f"partition {partition} of the store"))
        return fences[-1].offset

    head = store.read_head(partition)
    met(head)
    users: dict[int, StoredUser | None] = {}
    ledgers: Ledgers = {}
    users_at, ledgers_at = dict[int, int](), dict[int, int]()  # the redo offset that each is of
    for keys in store.users_of(partition):
        page = store.read_users(partition, keys)
        users_at |= dict.fromkeys(keys.tolist(), met(page.fence))
        users |= zip(keys.tolist(), [None if value is None else read_user(value) for value in page.values], strict=True)
    for keys in store.ledger_keys(partition):
        read = store.read_ledgers(partition, keys)
        ledgers_at |= dict.fromkeys(keys.tolist(), met(read.fence))
        ledgers |= zip(keys.tolist(), read.entries, strict=True)
    low, high = min(fences, key=_offset), max(fences, key=_offset)
    there = {key: user for key, user in users.items() if user is not None}
    if low != high:
        for at, record in redo.accepted(partition, low, high.offset + 1):
            apply(
                operations(record, genesis.rows.dim),
                there,
                ledgers,
                lambda key, offset=at.offset: users_at.get(key, low.offset) < offset,  # type: ignore[misc]
                lambda key, offset=at.offset: ledgers_at.get(key, low.offset) < offset,  # type: ignore[misc]
            )
    return Stored(high, head, there, {key: entries for key, entries in ledgers.items() if entries})


def _offset(fence: Fence) -> int:
    return fence.offset


def _all(_key: int) -> bool:
    return True


def apply(
    data: bytes, users: dict[int, StoredUser], ledgers: Ledgers,
    of_users: Callable[[int], bool] = _all, of_ledgers: Callable[[int], bool] = _all,
) -> None:  # fmt: skip
    """Do what a store is asked to; `of_users` and `of_ledgers` say whose user and whose ledger is to be changed."""
    for code, key, number, value in read_operations(data):
        if code in (SET, KEEP, ERASE) and of_users(key):
            if code == SET:
                users[key] = read_user(value)
            elif code == KEEP:
                row = users[key].row if key in users else b""
                users[key] = StoredUser(bool(value[0] & HAS_WAITING), row, value[1:])
            else:
                users.pop(key, None)
        if code in (PUT, DROP, CLEAR, ERASE) and of_ledgers(key):
            if code == PUT:
                ledgers.setdefault(key, {})[number] = value
            elif code == DROP:
                ledgers.get(key, {}).pop(number, None)
            else:
                ledgers.pop(key, None)
