"""A world follows its log: records that come together are folded as one, and no slice has more than its share."""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from prometheus_client import REGISTRY

from saros.adapters.kafka import Cluster
from saros.adapters.redis import Address
from saros.adapters.redo import Message
from saros.api.answers import best, best_of
from saros.api.people import NOBODY
from saros.api.plan import ApiPlan, Wish, pairs_of
from saros.api.replies import Times, items_of, to_json
from saros.api.sizes import bytes_of
from saros.api.world import World, read_ahead
from saros.core.events import CLICK, IMPRESSION, Events
from saros.core.gate import GateRules
from saros.core.ids import hash_texts
from saros.core.items import Items
from saros.core.jit import I32
from saros.core.learner import Learner
from saros.core.masks import Mask
from saros.core.rows import live_rows
from saros.core.sessions import SessionRules
from saros.core.step import live_step
from saros.redo.genesis import Genesis
from saros.redo.record import Place, lows, pack_record
from saros.redo.replica import Replica
from saros.wire.v1 import redo_pb2 as pb
from saros.wire.v1.events_pb2 import ItemUpsert
from tests.trainer.copies import rows_of

DIM, LIMIT = 8, 20_000
GENESIS = Genesis(7, bytes(16), live_rows(DIM), 2, 3, "in", "log", (0, 0))
PLAN = ApiPlan("m", Cluster(""), Address(""), LIMIT, 1.0, 10_000, live_step(), SessionRules(), GateRules())


class Log:
    """Writes the records of two partitions: what users saw and clicked."""

    def __init__(self) -> None:
        self._learners = [Learner(Items(live_rows(DIM), LIMIT), live_step()) for _ in range(2)]
        self._ends, self._time_ms = [(0, 0, 0), (0, 0, 0)], 1_000_000

    def record(self, partition: int, users: list[str], slates: list[list[str]], **more: Any) -> Message:
        """Return a record in which each user is shown a slate and clicks the last of it."""
        learner, keys = self._learners[partition], hash_texts(GENESIS.key(), users)
        slots, kinds, items, start = learner.intern(keys), list[int](), list[str](), [0]
        for slate in slates:
            kinds += [IMPRESSION, CLICK]
            items += [*slate, slate[-1]]
            start += [start[-1] + len(slate), start[-1] + len(slate) + 1]
        self._time_ms += 1000
        events = Events.of(
            user=np.repeat(slots, 2), kind=kinds, items=hash_texts(GENESIS.key(), items),
            time_ms=np.full(2 * len(users), self._time_ms), start=start,
        )  # fmt: skip
        before = lows(learner.users.arrays, slots)
        batch = learner.learn(events)
        learner.accept(batch)
        offset, end, nonce = self._ends[partition]
        place = Place(GENESIS.log_id, nonce + 1, nonce, end, end + 2 * len(users))
        self._ends[partition] = offset + 1, place.end, place.nonce
        fresh = dict.fromkeys(item for slate in slates for item in slate)
        names = dict(zip(hash_texts(GENESIS.key(), list(fresh)).tolist(), map(str.encode, fresh), strict=True))
        record = pack_record(place, learner, batch, slots, before, names, pb.Stats())
        record.upserts.extend(more.get("upserts", ()))
        return Message(partition, offset, record)


def new_world() -> World:
    return World(PLAN, Replica(GENESIS, Items(live_rows(DIM), LIMIT)))


def picture(world: World) -> list[object]:
    """What a world holds, whatever the order in which it came."""
    people = world.people
    keys = np.sort(people._table.keys[people._table.slots()])
    party, missing = people.find(keys, np.zeros(len(keys), np.int32))
    assert missing == 0
    users = [(int(key), party.users.rows[k].tobytes(), party.users.numbers[k].tolist()) for k, key in enumerate(keys)]
    return [
        rows_of(world.replica.items),
        world.replica.names,
        users,
        world.reached,
        world.shelf.catalogue.items.arrays.totals.tolist(),
    ]


def some_log() -> Iterator[Message]:
    log = Log()
    yield log.record(1, ["ann", "bob"], [["a", "b", "c"], ["c", "d"]])
    yield log.record(0, ["cid"], [["a", "e"]])
    yield log.record(1, ["ann"], [["b", "d"]], upserts=[ItemUpsert(item_id="c", hidden=True)])
    yield Message(0, 1, None)
    late = log.record(0, ["cid"], [["b", "a"]])
    yield late._replace(offset=2)
    yield Message(1, 2, pb.Record(log_id=GENESIS.log_id, nonce=9, parent=0, first=0, end=3))  # a zombie's
    yield log.record(1, ["bob"], [["e", "a", "f"]])._replace(offset=3)


@pytest.mark.parametrize("sizes", [[7], [3, 4], [2, 2, 3], [1] * 7])
def test_records_are_folded_together_as_one_by_one(sizes: list[int]) -> None:
    messages, world, alone = list(some_log()), new_world(), new_world()
    for size in sizes:
        some, messages = messages[:size], messages[size:]
        for _ in world.absorb(read_ahead(some, DIM)):
            pass
    replica = Replica(GENESIS, Items(live_rows(DIM), LIMIT))
    for message in some_log():
        for _ in alone.absorb(read_ahead([message], DIM)):
            pass
        if replica.judge(*message):
            assert message.record is not None
            replica.fold(message.partition, message.offset, message.record)
    assert picture(world) == picture(alone)
    assert rows_of(world.replica.items) == rows_of(replica.items)
    assert world.replica.names == replica.names
    assert world.reached == [4, 8]


def test_records_of_a_backlog_count_in_how_late_it_is_once_the_log_was_followed() -> None:
    log, world, took = Log(), new_world(), list[float | None]()
    world.folded = lambda partition, record, took_s: took.append(took_s)

    def fold(*messages: Message) -> None:
        for message in messages:
            assert message.record is not None
            message.record.stats.oldest_ms = int(1000 * time.time()) - 5000
        for _ in world.absorb(read_ahead(messages, DIM)):
            pass

    def observed() -> float:
        found = REGISTRY.get_sample_value("saros_api_event_to_servable_seconds_count")
        assert found is not None
        return found

    before = observed()
    world.looked(time.monotonic(), [2, 0])
    fold(log.record(0, ["ann"], [["a", "b"]]))
    assert took == [None], "what lay there at the boot says nothing of how late it is"
    fold(log.record(0, ["ann"], [["a", "b"]]))
    world.looked(time.monotonic(), [5, 0])
    fold(log.record(0, ["ann"], [["a", "c"]]), log.record(0, ["ann"], [["c", "b"]]))
    assert world.lag_messages() == 1, "it is behind all along"
    assert observed() == before + 2
    assert all(each is not None and 4.9 < each < 60 for each in took[2:])
    assert len(took) == 4


def test_messages_of_a_backlog_are_counted_to_the_newest_end_of_the_log() -> None:
    log, world = Log(), new_world()
    world.looked(time.monotonic(), [2, 0])
    since_s = world.lag_s()
    world.looked(time.monotonic(), [90, 10])
    assert world.lag_messages() == 100, "it was behind when it looked again"
    assert world.lag_s() >= since_s
    for _ in range(2):
        for _ in world.absorb(read_ahead([log.record(0, ["ann"], [["a", "b"]])], DIM)):
            pass
    assert world.caught_up, "with the end that it had set out for"
    assert world.lag_messages() == 98
    world.looked(time.monotonic(), [92, 10])
    assert (world.lag_messages(), world.caught_up) == (100, False)


def test_a_time_that_no_calendar_has_is_told_as_the_last_one() -> None:
    """A topic whose writers set the time may have it in microseconds."""
    times = Times()
    for ms in (1_700_000_000_000_000, 2**63 - 1):
        assert times.text(ms) == "9999-12-31T23:59:59.999Z"
    assert times.text(1_700_000_000_250) == "2023-11-14T22:13:20.250Z"
    assert times.text(0) is None


def test_what_is_known_of_items_is_in_the_sum_of_bytes() -> None:
    def filled(text: str, count: int) -> World:
        world = new_world()
        told = [
            ItemUpsert(item_id=f"item-{k}", categories=[f"category-{k % 9}"], properties={"text": text})
            for k in range(count)
        ]
        for _ in world.absorb(read_ahead([Log().record(0, ["ann"], [["a", "b"]], upserts=told)], DIM)):
            pass
        return world

    short, long, few = filled("", 1000), filled("x" * 2000, 1000), filled("x" * 2000, 10)
    assert 0.9 < (long.shelf.nbytes - short.shelf.nbytes) / 2_000_000 < 1.3
    assert long.shelf.nbytes - few.shelf.nbytes > 2_000_000


def test_items_that_expire_at_one_moment_are_put_away_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, puts = 1_000_000.0, list[int]()
    monkeypatch.setattr("saros.api.shelf.time.time", lambda: now_s)
    world, count = new_world(), 5000
    told = [ItemUpsert(item_id=f"item-{k}", expires_at_ms=1_000_001_000 + k % 2) for k in range(count)]
    told += [ItemUpsert(item_id="over", expires_at_ms=1), ItemUpsert(item_id="later", expires_at_ms=2_000_000_000)]
    told += [ItemUpsert(item_id="item-7"), ItemUpsert(item_id="item-9", expires_at_ms=2_000_000_000)]
    for _ in world.absorb(read_ahead([Log().record(0, ["ann"], [["a", "b"]], upserts=told)], DIM)):
        pass
    slots = world.shelf.slots_of([f"item-{k}" for k in range(count)])
    assert world.shelf.served(slots).all()
    assert world.shelf.served(world.shelf.slots_of(["over", "later", "a"])).tolist() == [False, True, True]
    put = Mask.put

    def counted(mask: Mask, slots: I32 | Sequence[int], inside: bool = True) -> None:
        puts.append(len(slots))
        put(mask, slots, inside)

    monkeypatch.setattr(Mask, "put", counted)
    now_s += 1.001
    served = world.shelf.served(slots)
    assert puts == [count - 2]
    assert np.flatnonzero(served).tolist() == [7, 9], "these were told anew"


def test_masks_of_categories_stay_while_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saros.api.shelf._MASKS_MAX", 2)
    world = new_world()
    told = [ItemUpsert(item_id=f"item-{name}", categories=[name]) for name in "abc"]
    for _ in world.absorb(read_ahead([Log().record(0, ["ann"], [["a", "b"]], upserts=told)], DIM)):
        pass
    shelf = world.shelf
    (first,), (second,) = shelf.category("a"), shelf.category("b")
    for k in range(5):
        (nothing,) = shelf.category(f"nobody has heard of {k}")
        assert not len(nothing.slots())
    assert [shelf.category("b"), shelf.category("a")] == [[second], [first]], "they were kept"
    shelf.category("c")
    assert shelf.category("a") == [first], "it was asked for last"
    (again,) = shelf.category("b")
    assert again is not second
    assert again.slots().tolist() == second.slots().tolist() == shelf.slots_of(["item-b"]).tolist()


def test_room_for_items_that_only_upserts_name_comes_back_as_they_are_learned() -> None:
    log, small = Log(), PLAN._replace(items_max=3)
    world = World(small, Replica(GENESIS, Items(live_rows(DIM), LIMIT)))

    def take(slate: list[str], *told: str) -> None:
        upserts = [ItemUpsert(item_id=item) for item in told]
        for _ in world.absorb(read_ahead([log.record(0, ["ann"], [slate], upserts=upserts)], DIM)):
            pass

    def left_out() -> float:
        return REGISTRY.get_sample_value("saros_api_items_left_out_total") or 0.0

    before = left_out()
    take(["a", "b"], "new-1", "new-2", "new-3", "new-4", "a")
    assert (world.shelf.slots_of(["new-1", "new-2", "new-3", "new-4"]) >= 0).tolist() == [True, True, True, False]
    assert (world.shelf.unlearned, left_out()) == (3, before + 1)
    take(["new-1", "new-2"], "new-5", "new-6", "new-7")
    assert (world.shelf.slots_of(["new-5", "new-6", "new-7"]) >= 0).tolist() == [True, True, False]
    take(["new-1", "new-7"])
    assert world.shelf.served(world.shelf.slots_of(["new-7"])).all(), "it was learned"
    assert (world.shelf.unlearned, left_out()) == (3, before + 2)


@pytest.mark.parametrize("make", [
    lambda k: (k << 40, b"x" * (50 + k % 100)), lambda k: (k << 40, (f"red {k}", f"blue {k}")),
    lambda k: (f"category {k}", set(range(1000 * k, 1000 * k + 20))),
])  # fmt: skip
def test_bytes_of_what_is_held_are_about_those_that_it_costs(make: Callable[[int], tuple[Any, Any]]) -> None:
    tracemalloc.start()
    try:
        held = dict(map(make, range(5000)))
        gc.collect()
        cost, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 < bytes_of(held) / cost < 1.25
    assert bytes_of({}) < 100


def test_a_slice_has_so_many_items_and_no_more() -> None:
    """Thousands of items that nobody has seen before come in one record: others have the loop in between."""
    log, world = Log(), new_world()
    slates = [[f"item-{k}-{n}" for n in range(20)] for k in range(300)]
    upserts = [ItemUpsert(item_id=f"told-{k}", categories=["c"]) for k in range(200)]
    message = log.record(0, [f"user-{k}" for k in range(300)], slates, upserts=upserts)
    items, names, slices = 0, 0, 0
    for _ in world.absorb(read_ahead([message], DIM)):
        now, known = world.replica.items.table.size, len(world.replica.names)
        assert now - items <= 256
        assert known - names <= 256
        items, names, slices = now, known, slices + 1
    assert items == 6200
    assert names == 6200
    assert slices >= 2 * 6000 // 256


def test_many_wishes_are_answered_as_each_alone() -> None:
    """Those alike go through one search: nobody gets another's list, and a row that is no row stops nobody."""
    log, world = Log(), new_world()
    users = [f"user-{k}" for k in range(12)]
    slates = [[f"item-{(7 * k + n) % 50}" for n in range(6)] for k in range(12)]
    told = [ItemUpsert(item_id="item-3", hidden=True), ItemUpsert(item_id="item-4", categories=["red"])]
    for _ in world.absorb(read_ahead([log.record(0, users, slates, upserts=told)], DIM)):
        pass
    keys = hash_texts(GENESIS.key(), [*users, "nobody"])
    party, missing = world.people.find(keys, np.zeros(13, np.int32))
    assert missing == 1
    party.users.rows[5] = np.nan
    wishes = [Wish(user) for user in users] + [
        Wish("nobody"), Wish("user-1", k=3), Wish("user-2", category="red"), Wish("user-3", exclude=("item-9",)),
        Wish("user-4", exclude_seen=False), Wish("user-5", exclude_seen=False), Wish("user-6", k=0),
        Wish(session=(("item-1", True),)), Wish(), Wish("user-5", exclude=("item-9",)),
    ]  # fmt: skip
    places = [-1 if not wish.user_id else 12 if wish.user_id == "nobody" else int(wish.user_id[5:]) for wish in wishes]
    listed = best_of(world, wishes, party, places)
    alone = [
        best(world, wish, party.person(place) if place >= 0 else NOBODY)
        for wish, place in zip(wishes, places, strict=True)
    ]
    found = [(pairs_of(items), source, notes) for items, source, notes in listed]
    assert found == alone
    written = [(items, pairs) for (items, _, _), (pairs, _, _) in zip(listed, found, strict=True) if items is not pairs]
    assert len(written) == 14
    assert all(items == to_json(items_of(pairs)) for items, pairs in written), "the same JSON, to the byte"
    assert [source for _, source, _ in found[:6]] == ["model"] * 5 + ["popular"]
    assert found[-1][1] == "popular"
    for (items, _, _), slate in zip(found[:5], slates, strict=False):
        assert slate[-1] not in [item for item, _ in items], "it was clicked"
        assert "item-3" not in [item for item, _ in items], "it is hidden"
    assert [item for item, _ in found[14][0]] == ["item-4"]
