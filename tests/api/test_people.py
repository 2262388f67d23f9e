"""Users in memory: bounded, and never older than the log."""

import numpy as np

from saros.api.people import People
from saros.core.codec_users import pack_users
from saros.core.gate import GateRules
from saros.core.glance import ROW
from saros.core.items import Items
from saros.core.jit import U64
from saros.core.learner import Learner
from saros.core.rows import live_rows
from saros.core.sessions import SessionRules
from saros.core.step import live_step
from saros.wire.v1 import redo_pb2 as pb

DIM = 4
MOST = 4096  # the least that a cache may be told to hold


def record_of(keys: U64, moved: int = 1) -> pb.Record:
    """Return a record of these users: their rows have moved, and all coordinates are `moved`."""
    learner = Learner(Items(live_rows(DIM), 10), live_step(), SessionRules(), GateRules(), users_max=10_000)
    slots = learner.intern(keys)
    learner.users.arrays.gate[slots, 1:4] = 2  # blocks, counted, moves
    data, starts = pack_users(learner.users.arrays, slots, learner.session_rules)
    return pb.Record(
        users=pb.Users(
            key=keys.tobytes(),
            flags=np.full(len(keys), ROW, np.uint8).tobytes(),
            length=np.diff(starts).astype(np.uint32).tobytes(),
            data=data.tobytes(),
            rows=np.full((len(keys), DIM), moved, np.float32).tobytes(),
        )
    )


def stored(record: pb.Record, row: int) -> bytes:
    """Return the first user of a record as the store has it."""
    values, end = np.full(DIM, row, np.float32).tobytes(), int.from_bytes(record.users.length[:4], "little")
    return b"\0" + len(values).to_bytes(2, "little") + values + record.users.data[:end]


def people() -> People:
    return People(2, DIM, SessionRules(), GateRules(), 1)


def absorb(cache: People, offset: int, record: pb.Record) -> None:
    for _ in cache.absorb(0, offset, record):
        pass


def row(cache: People, key: int) -> float | None:
    (person,) = cache.find(np.array([key], np.uint64), np.zeros(1, np.int32))
    return None if person is None or person.row is None else float(person.row[0])


def test_what_the_store_lacks_is_held_and_what_has_no_room_is_doubted() -> None:
    cache, keys = people(), np.arange(5000, dtype=np.uint64)
    absorb(cache, 3, record_of(keys[:10]))
    absorb(cache, 4, record_of(keys[:MOST], 2))
    assert cache.size == MOST
    absorb(cache, 5, record_of(keys[MOST:], 3))
    assert cache.size == MOST, "all are pinned"
    assert [row(cache, key) for key in (0, MOST - 1, MOST)] == [2, 2, None]
    old = record_of(keys[:1])
    found = cache.take(0, 4, 4, keys[MOST : MOST + 1], [stored(old, 9)])
    assert found[MOST].stale, "the store is before the record that had no room"
    assert row(cache, MOST) is None, "and is not kept"
    found = cache.take(0, 5, 4, keys[MOST : MOST + 1], [stored(old, 9)])
    assert not found[MOST].stale
    assert row(cache, MOST) == 9, "others have made room"
    assert cache.size == MOST


def test_the_newer_of_memory_and_store_counts() -> None:
    cache, keys, record = people(), np.array([7], np.uint64), record_of(np.array([7], np.uint64), 1)
    absorb(cache, 5, record)
    assert float(cache.take(0, 3, -1, keys, [stored(record, 9)])[7].row[0]) == 1  # type: ignore[index]
    assert float(cache.take(0, 6, 3, keys, [stored(record, 9)])[7].row[0]) == 9  # type: ignore[index]
    absorb(cache, 6, record_of(keys, 2))
    assert row(cache, 7) == 9, "the store had that record already"
    absorb(cache, 7, record_of(keys, 3))
    assert row(cache, 7) == 3
    assert cache.take(0, 8, 6, keys, [None])[7].row is None, "it was erased"
    late = cache.take(0, 6, 8, np.array([8], np.uint64), [stored(record, 4)])[8]
    assert late.stale, "the store fell back"
    assert row(cache, 8) is None


def test_a_row_that_no_record_says_is_the_stores() -> None:
    cache, keys, record = people(), np.array([7], np.uint64), record_of(np.array([7], np.uint64))
    record.users.flags, record.users.rows = b"\0", b""
    absorb(cache, 5, record)
    assert row(cache, 7) is None
    (near,) = cache.nearest(keys, np.zeros(1, np.int32))
    assert near is not None
    assert near.state == "in_band"
    assert float(cache.take(0, 3, -1, keys, [stored(record, 9)])[7].row[0]) == 9  # type: ignore[index]
    assert row(cache, 7) == 9
