"""Users in memory: bounded, and never older than the log."""

import numpy as np
import pytest

from saros.api.people import People, Person, told_by
from saros.core.codec_users import pack_users
from saros.core.gate import GateRules
from saros.core.glance import NOTHING, ROW
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
    for _ in cache.absorb(told_by([(0, offset, record)], DIM)):
        pass


def found(cache: People, key: int) -> Person | None:
    """Return a user as far as memory knows it as of now."""
    party, missing = cache.find(np.array([key], np.uint64), np.zeros(1, np.int32))
    return None if missing else party.person(0)


def row(cache: People, key: int) -> float | None:
    return first(found(cache, key))


def first(person: Person | None) -> float | None:
    return None if person is None or person.row is None else float(person.row[0])


def take(
    cache: People, offset: int, expected: int, key: int, value: bytes | None, damaged: int = 0
) -> Person:  # fmt: skip
    """Let a user of partition 0 be as the store has it, under a fence at an offset; return it."""
    party, _ = cache.find(np.array([key], np.uint64), np.zeros(1, np.int32))
    party.users.known[:] = NOTHING
    offsets, met = np.array([offset, -1], np.int64), np.array([expected, -1], np.int64)
    assert cache.take(party, np.zeros(1, np.int32), offsets, met, [value]) == damaged
    return party.person(0)


def test_what_the_store_lacks_is_held_and_what_has_no_room_is_doubted() -> None:
    cache, keys = people(), np.arange(5000, dtype=np.uint64)
    absorb(cache, 3, record_of(keys[:10]))
    absorb(cache, 4, record_of(keys[:MOST], 2))
    assert cache.size == MOST
    absorb(cache, 5, record_of(keys[MOST:], 3))
    assert cache.size == MOST, "all are pinned"
    assert [row(cache, key) for key in (0, MOST - 1, MOST)] == [2, 2, None]
    old = record_of(keys[:1])
    assert take(cache, 4, 4, MOST, stored(old, 9)).stale, "the store is before the record that had no room"
    assert row(cache, MOST) is None, "and is not kept"
    assert not take(cache, 5, 4, MOST, stored(old, 9)).stale
    assert row(cache, MOST) == 9, "others have made room"
    assert cache.size == MOST


def test_what_is_held_for_a_store_that_nobody_reaches_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saros.api.people._PINNED_MAX", 8)
    cache, records = people(), 101
    for offset in range(records):
        absorb(cache, offset, record_of(np.array([1, 2, 100 + offset, 1], np.uint64), offset))
        held = cache._pinned[0]
        assert len(held) <= 8
        assert sum(len(slots) for _, slots in held) <= 8 * 4 + offset, "of old records each user once"
        assert sum(len(slots) for _, slots in held) == cache._table.pins.sum()
    assert cache._table.pins[: cache.size].min() >= 1
    offsets = [offset for offset, _ in cache._pinned[0]]
    assert offsets == sorted(offsets)
    for offset in range(records):
        # Whoever is in a record that the store lacks is still held.
        lacking = cache._table.find(np.arange(100 + offset, 100 + records, dtype=np.uint64))
        assert (cache._table.pins[lacking] > 0).all()
        cache.meet(0, offset)
    assert not cache._pinned[0]
    assert not cache._table.pins.any()


def test_the_newer_of_memory_and_store_counts() -> None:
    cache, keys, record = people(), np.array([7], np.uint64), record_of(np.array([7], np.uint64), 1)
    absorb(cache, 5, record)
    assert first(take(cache, 3, -1, 7, stored(record, 9))) == 1
    assert first(take(cache, 6, 3, 7, stored(record, 9))) == 9
    absorb(cache, 6, record_of(keys, 2))
    assert row(cache, 7) == 9, "the store had that record already"
    absorb(cache, 7, record_of(keys, 3))
    assert row(cache, 7) == 3
    assert take(cache, 8, 6, 7, None).row is None, "it was erased"
    assert take(cache, 6, 8, 8, stored(record, 4)).stale, "the store fell back"
    assert row(cache, 8) is None


def test_a_row_that_no_record_says_is_the_stores() -> None:
    cache, keys, record = people(), np.array([7], np.uint64), record_of(np.array([7], np.uint64))
    record.users.flags, record.users.rows = b"\0", b""
    absorb(cache, 5, record)
    assert row(cache, 7) is None
    party, missing = cache.find(keys, np.zeros(1, np.int32))
    assert (missing, party.person(0).state) == (1, "cold")
    cache.near(party)
    assert (party.person(0).row, party.person(0).state) == (None, "in_band")
    assert first(take(cache, 3, -1, 7, stored(record, 9))) == 9
    assert row(cache, 7) == 9


def test_a_party_may_come_from_everywhere() -> None:
    """In memory, in the store, in neither, asked for twice, of two partitions; nobody gets another's row."""
    cache = people()
    absorb(cache, 1, record_of(np.array([1], np.uint64), 1))
    record = record_of(np.array([2], np.uint64))
    keys, homes = np.array([2, 1, 3, 2, 4], np.uint64), np.array([0, 0, 1, 0, 1], np.int32)
    party, missing = cache.find(keys, homes)
    assert missing == 4
    values = [stored(record, 5), stored(record, 5), None, stored(record, 6)]
    cache.take(party, np.array([0, 3, 2, 4], np.int32), np.array([2, 7], np.int64), np.full(2, -1, np.int64), values)
    assert [first(party.person(k)) for k in range(5)] == [5, 1, None, 5, 6]
    assert [party.person(k).state for k in range(5)] == ["in_band", "in_band", "cold", "in_band", "in_band"]
    assert [row(cache, key) for key in (1, 2, 3, 4)] == [1, 5, None, 6]
    assert cache.fences == [2, 7]


@pytest.mark.parametrize("cut", [0, 2, 10, -1])
def test_a_value_that_is_cut_off_is_that_users_alone(cut: int) -> None:
    cache, record = people(), record_of(np.array([7], np.uint64))
    whole = stored(record, 9)
    damaged = take(cache, 1, -1, 7, whole[:cut], damaged=1)
    assert (damaged.row, damaged.state, damaged.stale) == (None, "cold", True)
    assert found(cache, 7) is None, "it is asked for again"
    party, _ = cache.find(np.array([5, 7, 6], np.uint64), np.zeros(3, np.int32))
    one, met = np.array([1, -1], np.int64), np.full(2, -1, np.int64)
    assert cache.take(party, np.arange(3, dtype=np.int32), one, met, [whole, whole[:cut], whole]) == 1
    assert [first(party.person(k)) for k in range(3)] == [9, None, 9]
    assert party.stale.tolist() == [0, 1, 0]


def test_nothing_of_a_former_user_stays_in_its_place() -> None:
    cache, keys = people(), np.arange(MOST + 100, dtype=np.uint64)
    absorb(cache, 3, record_of(keys[:MOST]))
    cache.meet(0, 3)
    record = record_of(keys[MOST:])
    record.users.flags, record.users.rows = bytes(100), b""  # states without rows
    absorb(cache, 4, record)
    slots = cache._table.find(keys[MOST:])
    assert (slots >= 0).all()
    assert (cache._arrays.rows[slots] == 0).all()
