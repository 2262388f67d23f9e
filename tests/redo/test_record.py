"""Records carry all: a store that knows nothing else lets another learner go on to the bit, and a replica that knows
nothing else has the same item table."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core import codec
from saros.core.events import CLICK, IMPRESSION, Events
from saros.core.gate import GateRules
from saros.core.items import Items
from saros.core.learner import Learner
from saros.core.rows import live_rows
from saros.core.step import live_step
from saros.errors import RefusedError
from saros.redo.fence import Fence, pack_vector, unpack_fence, unpack_vector
from saros.redo.genesis import Genesis, genesis_of
from saros.redo.record import Place, change_ledgers, learned, lows, operations, pack_record, read_redo, redo_of
from saros.redo.replica import Replica
from saros.wire.operations import read_operations
from saros.wire.v1 import redo_pb2 as pb
from tests.core.test_codec import DIM, make_learner, picture, placed, some_events
from tests.redo.store import Store

LOG_ID, SHARDS = 7, 3
FROZEN_RECORD = (
    "090100000000000000110200000000000000200a280c32520a080b000000000000001204000000001a01012201022a0434000000323401"
    "03010001000200d00700000000000000000000d0cc4c3d0000000005000000000000000600000000000000ae4f65bed4f08a3e3a670a08"
    "0b000000000000001201141a0448000000224801000001000000000100010100000000d007000000000000000000000000000001000000"
    "01000000010000000000000048e1ffff01000000340000000600000006000000000000002a08d0cc4c3dc16a403d42100a080500000000"
    "0000001204666976654a89010a86010100000001000000d007000000000000010000000000000003000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000001000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000001000100000052023002"
)
FROZEN_OPERATIONS = (
    "020b0000000000000000000000340000000103010001000200d00700000000000000000000d0cc4c3d0000000005000000000000000600"
    "000000000000ae4f65bed4f08a3e010b0000000000000053000000020800d0cc4c3dc16a403d01000001000000000100010100000000d0"
    "0700000000000000000000000000000100000001000000010000000000000048e1ffff0100000034000000060000000600000000000000"
)
FROZEN_GENESIS = (
    "08011107000000000000001a1000000000000000000000000000000000280330cfe6930140cd9933480250035a02696e62036c6f676a020028"
)
GENESIS = Genesis(LOG_ID, bytes(16), live_rows(DIM), 2, SHARDS, "in", "log", (0, 40))


def learned_records(seed: int, mode: str, low: int, bounds: list[int]) -> tuple[list[pb.Record], Learner, Learner]:
    """Learn in batches by learners that know only the store; return records, the last learner and one that knew all."""
    users, events = some_events(seed, bounds[-1])
    whole = make_learner(Items(live_rows(DIM), 32), mode, "click", low, keep=True)
    slots = whole.intern(users)
    store, items, records = Store(), Items(live_rows(DIM), 32), list[pb.Record]()
    ledgers: dict[int, dict[int, bytes]] = {key: {} for key in users.tolist()}
    for number, (first, end) in enumerate(pairwise(bounds)):
        batch = events.cut(first, end)
        whole.accept(whole.learn(placed(batch, slots)))
        learner = make_learner(items, mode, "click", low, keep=False)
        if records:
            codec.unpack_partition(records[-1].partition.state, learner.timeline, learner.gate)
        wanted = np.unique(users[batch.user[batch.user >= 0]])
        store.load(learner, wanted)
        touched = learner.intern(wanted)
        before = lows(learner.users.arrays, touched)
        known = learner.intern(users)
        for slot in learner.open(placed(batch, known)):
            store.load_ledger(learner, int(learner.users.arrays.keys[slot]), int(slot))
        done = learner.close()
        learner.accept(done)
        place = Place(LOG_ID, 100 + number, 99 + number if number else 0, first, end)
        record = pack_record(place, learner, done, touched, before, {}, pb.Stats())
        assert redo_of(record) == pb.Redo(record=record).SerializeToString()
        message = read_redo(redo_of(record))
        assert message is not None
        assert message.record == record
        records.append(message.record)
        store.do(operations(record, DIM))
        change_ledgers(ledgers, record)
        assert {key: entries for key, entries in ledgers.items() if entries} == store.entries()
    last = make_learner(items, mode, "click", low, keep=False)
    codec.unpack_partition(records[-1].partition.state, last.timeline, last.gate)
    store.load(last, users)
    assert picture(last, users) == picture(whole, users)
    gone = {key for key in users.tolist() if key not in store.users}
    assert not any(store.ledgers.get(key) for key in gone), "who is erased has no ledger"
    return records, last, whole


def table_of(items: Items, day: int = 0) -> list[object]:
    order = items.table.slots()[np.argsort(items.table.keys[items.table.slots()])]
    return [items.table.keys[order].tolist(), *(column[order].tobytes() for column in items.arrays[:5]),
            items.arrays.totals.tolist()]  # fmt: skip


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    mode=st.sampled_from(["immediate", "shadow"]),
    low=st.sampled_from([1, 3]),
    cuts=st.lists(st.integers(1, 299), max_size=8),
)
def test_store_and_replica_need_nothing_but_the_records(seed: int, mode: str, low: int, cuts: list[int]) -> None:
    records, last, whole = learned_records(seed, mode, low, sorted({0, 300, *cuts}))
    replica = Replica(GENESIS, Items(live_rows(DIM), 32))
    for offset, record in enumerate(records):
        assert replica.judge(0, offset, record)
        replica.fold(0, offset, record)
    assert table_of(replica.items)[:3] == table_of(last.items)[:3] == table_of(whole.items)[:3]
    assert replica.items.arrays.totals.tolist() == whole.items.arrays.totals.tolist()


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), reached=st.lists(st.integers(-1, 5), min_size=SHARDS, max_size=SHARDS))
def test_shards_read_at_different_times_come_to_the_same_table(seed: int, reached: list[int]) -> None:
    records, _, _ = learned_records(seed, "immediate", 1, [0, 60, 90, 150, 200, 260, 300])
    follow = Replica(GENESIS, Items(live_rows(DIM), 32))
    at: list[Fence] = [GENESIS.start(0)]
    tables: list[dict[int, list[bytes]]] = []

    def rows(items: Items) -> dict[int, list[bytes]]:
        return {int(items.table.keys[s]): [column[s].tobytes() for column in items.arrays[:5]]
                for s in items.table.slots()}  # fmt: skip

    tables.append(rows(follow.items))
    for offset, record in enumerate(records):
        follow.judge(0, offset, record)
        follow.fold(0, offset, record)
        at.append(follow.fences[0])
        tables.append(rows(follow.items))
    booted = Replica(GENESIS, Items(live_rows(DIM), 32))
    for shard, offset in enumerate(reached):
        own = {key: row for key, row in tables[offset + 1].items() if key % SHARDS == shard}
        slots = booted.items.intern(np.array(list(own), np.uint64))
        for slot, row in zip(slots, own.values(), strict=True):
            for column, data in zip(booted.items.arrays[:5], row, strict=True):
                column[slot] = np.frombuffer(data, np.int32)
    counters = booted.items.arrays.counters
    booted.items.arrays.totals[:] = counters[:, :2].sum(axis=0)
    booted.boot([[at[offset + 1], GENESIS.start(1)] for offset in reached])
    assert booted.fences[0] == at[min(reached) + 1]
    for offset in range(min(reached) + 1, len(records)):
        assert booted.caught_up == (offset > max(reached))
        assert booted.judge(0, offset, records[offset])
        booted.fold(0, offset, records[offset])
    assert rows(booted.items) == tables[-1]
    assert booted.items.arrays.totals.tolist() == follow.items.arrays.totals.tolist()


def record(first: int, end: int, nonce: int, parent: int, log_id: int = LOG_ID) -> pb.Record:
    return pb.Record(log_id=log_id, nonce=nonce, parent=parent, first=first, end=end)


def test_the_first_wins_and_all_others_are_ignored() -> None:
    replica = Replica(GENESIS, Items(live_rows(DIM), 32))
    told = [
        (record(40, 50, 1, 0, log_id=8), False, "another log"),
        (record(0, 50, 1, 0), False, "another place"),
        (None, False, "nothing of ours"),
        (record(40, 40, 1, 0), False, "no events"),
        (record(40, 50, 1, 0), True, "the first"),
        (record(40, 55, 2, 0), False, "a late one for the same events"),
        (record(50, 60, 3, 2), False, "computed on one that lost"),
        (record(50, 60, 4, 1), True, "the second"),
        (record(50, 60, 4, 1), False, "twice"),
    ]
    for offset, (message, counts, why) in enumerate(told):
        assert replica.judge(1, offset, message) == counts, why
    assert replica.fences == [Fence(LOG_ID, -1, 0, 0), Fence(LOG_ID, 8, 60, 4)]


def test_a_shard_from_another_log_is_refused() -> None:
    vectors = [GENESIS.starts() for _ in range(SHARDS)]
    vectors[1][0] = Fence(LOG_ID, 0, 10, 77)
    replica = Replica(GENESIS, Items(live_rows(DIM), 32))
    replica.boot(vectors)
    with pytest.raises(RefusedError, match="shard 1 was folded from another log"):
        replica.judge(0, 0, record(0, 10, 78, 0))
    again = Replica(GENESIS, Items(live_rows(DIM), 32))
    again.boot(vectors)
    assert again.judge(0, 0, record(0, 10, 77, 0))
    assert again.caught_up


def test_fences_and_genesis_through_bytes() -> None:
    fences = [Fence(LOG_ID, -1, 0, 0), Fence(LOG_ID, 2**40, 2**41, 2**64 - 1)]
    assert unpack_vector(pack_vector(fences), 2) == fences
    assert unpack_fence(fences[1].pack() + b"more") == fences[1]
    with pytest.raises(ValueError, match="has not 3 fences"):
        unpack_vector(pack_vector(fences), 3)
    assert genesis_of(GENESIS.message()) == GENESIS
    again = GENESIS._replace(clears=True, base=(2**63, 5))
    assert genesis_of(again.message()) == again
    assert again.is_same_model(GENESIS)
    assert not again._replace(hash_key=bytes(15) + b"x").is_same_model(GENESIS)
    with pytest.raises(RefusedError, match="format version 2"):
        genesis_of(pb.Genesis(version=2))


def test_behind_a_rebase_the_fences_of_the_beginning_are_stored() -> None:
    """There, one that is missing is lost; else it is that of the beginning. One of another log is neither."""
    start, later = GENESIS.start(1), Fence(LOG_ID, 3, 50, 8)
    rebased = GENESIS._replace(base=(5,))
    assert (GENESIS.stored(start), GENESIS.stored(later)) == (b"", later.pack())
    assert (rebased.stored(start), rebased.stored(later)) == (start.pack(), later.pack())
    assert GENESIS.found(b"", [start], "it") == [start]
    assert rebased.found(start.pack(), [start], "it") == [start]
    assert rebased.found(pack_vector([later, start]), GENESIS.starts(), "it") == [later, start]
    with pytest.raises(RefusedError, match="it is not there, and with it what it held before `saros rebase`"):
        rebased.found(b"", [start], "it")
    for genesis in (GENESIS, rebased):
        with pytest.raises(RefusedError, match="it is of another log, 5"):
            genesis.found(later._replace(log_id=5).pack(), [start], "it")


class Trainer:
    """One of two, with a partition of its own: it learns, and folds what the other has learned."""

    def __init__(self, partition: int, limit: int) -> None:
        self.replica, self._partition = Replica(GENESIS, Items(live_rows(DIM), limit)), partition
        self.learner = Learner(self.replica.items, live_step(), gate_rules=GateRules(blocks_max=9), keep_added=False)
        self._offset, self._nonce, self._end = 0, 0, GENESIS.first[partition]

    def record(self, shown: int, clicked: int) -> tuple[int, int, pb.Record]:
        """Learn a block of two items; return where its record stands in the log, and the record."""
        touched = self.learner.intern(np.array([11], np.uint64))
        before = lows(self.learner.users.arrays, touched)
        times = [1000 * self._offset + 1, 1000 * self._offset + 2]
        events = Events.of([touched[0]] * 2, [IMPRESSION, CLICK], [shown, clicked, clicked], times, start=[0, 2, 3])
        batch = self.learner.learn(events)
        place = Place(LOG_ID, 10 * self._partition + self._offset + 1, self._nonce, self._end, self._end + 2)
        self._offset, self._nonce, self._end = self._offset + 1, place.nonce, place.end
        record = pack_record(place, self.learner, batch, touched, before, {}, pb.Stats())
        self.own = batch.blocks.signed()
        return self._partition, self._offset - 1, record

    def read(self, partition: int, offset: int, record: pb.Record) -> None:
        """Fold a record, unless the table has it already."""
        assert self.replica.judge(partition, offset, record)
        if partition == self._partition:
            self.replica.confirm(record, self.own)
        else:
            self.replica.fold(partition, offset, record)


def test_the_last_places_may_be_given_away_twice() -> None:
    """Both records count, so whoever folds them has more items than are let in; from then on none is."""
    trainers, follower = [Trainer(partition, 3) for partition in range(2)], Replica(GENESIS, Items(live_rows(DIM), 3))

    def read(messages: list[tuple[int, int, pb.Record]]) -> None:
        for message in messages:
            assert follower.judge(*message)
            follower.fold(*message)
            for trainer in trainers:
                trainer.read(*message)
        assert table_of(trainers[0].replica.items) == table_of(trainers[1].replica.items) == table_of(follower.items)

    read([trainers[0].record(1, 2), trainers[1].record(4, 5)])
    assert follower.items.table.size == 4
    full, known = trainers[0].record(1, 7), trainers[1].record(1, 2)
    assert learned([full[2]], DIM).sign.tolist() == [0], "there is no room for a new item"
    assert learned([known[2]], DIM).sign.tolist() == [1], "what others let in may be learned"
    read([full, known])
    assert follower.items.table.size == 4
    assert follower.items.arrays.totals.tolist() == [3, 3]


def tiny_record() -> pb.Record:
    """What a user does that is shown two items and clicks one."""
    items = Items(live_rows(2), 8)
    learner = Learner(items, live_step(), gate_rules=GateRules(blocks_max=3), keep_added=False)
    touched = learner.intern(np.array([11], np.uint64))
    before = lows(learner.users.arrays, touched)
    events = Events.of([touched[0]] * 2, [IMPRESSION, CLICK], [5, 6, 6], [1000, 2000], start=[0, 2, 3])
    batch = learner.learn(events)
    return pack_record(Place(1, 2, 0, 10, 12), learner, batch, touched, before, {5: b"five"}, pb.Stats(messages=2))


def test_version_1_stays_readable() -> None:
    """Bytes that were written once have to mean the same for ever: they stand in logs and stores."""
    record = pb.Record.FromString(bytes.fromhex(FROZEN_RECORD))
    assert record.SerializeToString(deterministic=True).hex() == FROZEN_RECORD
    found = learned([record], 2)
    assert found.sign.tolist() == [1]
    assert found.flags.tolist() == [2]
    assert (found.blocks.negatives.tolist(), found.blocks.positives.tolist()) == ([1], [1])
    assert found.blocks.items.tolist() == [5, 6]
    assert operations(record, 2).hex() == FROZEN_OPERATIONS
    assert [(code, user, number) for code, user, number, _ in read_operations(operations(record, 2))] == [
        (2, 11, 0), (1, 11, 0)
    ]  # fmt: skip
    assert Fence(9, -1, 7, 2**64 - 1).pack().hex() == "0900000000000000ffffffffffffffff0700000000000000ffffffffffffffff"
    assert GENESIS.packed().hex() == FROZEN_GENESIS


def test_what_is_written_now_is_version_1() -> None:
    assert tiny_record().SerializeToString(deterministic=True).hex() == FROZEN_RECORD
