"""State through bytes: nothing is lost, bad bytes are refused whole, and version 1 stays readable."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.core import codec, codec_blocks, codec_items, codec_users
from saros.core.events import CLICK, ERASE, IMPRESSION, NEGATIVE, POSITIVE, TICK, Events
from saros.core.gate import MODES, GateRules
from saros.core.glance import summary_of
from saros.core.items import Items
from saros.core.jit import I32, I64, U8, U64
from saros.core.learner import Batch, Learner
from saros.core.rows import live_rows
from saros.core.sessions import RULES, SessionRules
from saros.core.settle import BOOKED, CLEARED
from saros.core.step import live_step
from saros.core.users import COUNTED, NUMBER, OPEN

DIM = 3
DAY_MS = 86_400_000


def some_events(seed: int, count: int) -> tuple[U64, Events]:
    """Return user keys and events (whose `user` is an index into them) in which everything happens often."""
    rng = np.random.default_rng(seed)
    users = rng.integers(1, 2**63, 5).astype(np.uint64)
    kind = rng.choice(
        [IMPRESSION, CLICK, NEGATIVE, POSITIVE, ERASE, TICK], count, p=[0.48, 0.3, 0.08, 0.08, 0.02, 0.04]
    )
    slates = np.where(kind == IMPRESSION, rng.integers(1, 5, count), np.where(kind <= POSITIVE, 1, 0))
    gaps = rng.choice([1_000, 400_000, 1_900_000, DAY_MS // 2, 3 * DAY_MS], count, p=[0.7, 0.15, 0.08, 0.05, 0.02])
    times = DAY_MS * 19_000 + np.cumsum(gaps)
    return users, Events.of(
        user=np.where(kind == TICK, -1, rng.integers(0, 5, count)),
        kind=kind,
        items=rng.integers(1, 9, slates.sum()),
        time_ms=times - rng.choice([0, 0, 0, 60_000], count),
        log_ms=times,
        start=np.concatenate([[0], np.cumsum(slates)]),
        event_id=rng.choice(np.arange(0, 40), count),
        session=rng.integers(0, 3, count),
        weight=rng.choice([1.0, 1.0, 0.5, 2.25, 10.0], count),
    )


def make_learner(items: Items, mode: str, rule: str, low: int, keep: bool) -> Learner:
    return Learner(
        items,
        live_step(),
        SessionRules(
            rule=RULES[rule], negatives_max=4, carried_max=2, clicked_max=3, ttl_ms=9 * DAY_MS, split_on_id=True
        ),
        GateRules(blocks_min=low, blocks_max=6, window_days=2, mode=MODES[mode], ignore_repeats=True),
        users_max=8,
        keep_added=keep,
    )


def placed(events: Events, slots: I32) -> Events:
    """Replace user indices by slots."""
    return events._replace(user=np.where(events.user < 0, -1, slots[events.user]).astype(np.int32))


class Store:
    """What a store holds of one partition: all of it bytes, by user key."""

    def __init__(self) -> None:
        self.partition = b""
        self.users: dict[int, tuple[bytes, bytes]] = {}
        self.ledgers: dict[int, dict[int, bytes]] = {}

    def load(self, learner: Learner, keys: U64) -> None:
        """Bring users and their waiting blocks into a learner that has just been made."""
        slots = learner.intern(keys)
        for key, slot in zip(keys.tolist(), slots, strict=True):
            if key in self.users:
                state, row = self.users[key]
                starts = np.array([0, len(state)])
                learner.restore(slot[None], state, starts, np.frombuffer(row, np.float32)[None])
                self.load_ledger(learner, key, int(slot), added=False)

    def load_ledger(self, learner: Learner, key: int, slot: int, added: bool = True) -> None:
        blocks = [data for _, data in sorted(self.ledgers.get(key, {}).items()) if added or not data[1] & 1]
        starts = np.cumsum([0, *map(len, blocks)])
        codec_blocks.unpack_ledger(learner.ledger, slot, b"".join(blocks), starts)

    def save(self, learner: Learner, batch: Batch) -> None:
        """Write what a batch changed, as the log's reader would."""
        keys, blocks = learner.users.arrays.keys, batch.blocks
        booked = np.flatnonzero(blocks.flags & BOOKED)
        buffer, starts = codec_blocks.pack_blocks(blocks, booked)
        data = {row: buffer[starts[k] : starts[k + 1]].tobytes() for k, row in enumerate(booked.tolist())}
        for row, user in enumerate(blocks.user):
            ledger = self.ledgers.setdefault(int(keys[user]), {})
            if blocks.flags[row] & CLEARED:
                ledger.clear()
            if row in data:
                ledger[int(blocks.number[row])] = data[row]
        slots = learner.users.table.slots()
        states, offsets = codec_users.pack_users(learner.users.arrays, slots, learner.session_rules)
        for k, slot in enumerate(slots):
            key, gate = int(keys[slot]), learner.users.arrays.gate[slot]
            state = states[offsets[k] : offsets[k + 1]].tobytes()
            self.users[key] = state, learner.users.arrays.rows[slot].tobytes()
            lowest = gate[NUMBER] - gate[COUNTED]
            self.ledgers[key] = {n: data for n, data in self.ledgers.get(key, {}).items() if n >= lowest}
        self.partition = codec.pack_partition(learner.timeline, learner.gate)


def picture(learner: Learner, keys: U64) -> list[Any]:
    """Return all there is to know of the users with the given keys, and of all items, whatever their slots."""
    slots = learner.intern(keys)
    states, _ = codec_users.pack_users(learner.users.arrays, slots, learner.session_rules)
    items, arrays = learner.items.table, learner.items.arrays
    order = items.slots()[np.argsort(items.keys[items.slots()])]
    return [
        states.tobytes(),
        learner.users.arrays.rows[slots].tobytes(),
        codec.pack_partition(learner.timeline, learner.gate),
        items.keys[order].tolist(),
        arrays.rows[order].tobytes(),
        arrays.counters[order].tobytes(),
        arrays.totals.tolist(),
    ]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    mode=st.sampled_from(sorted(MODES)),
    rule=st.sampled_from(["click", "algorithm"]),
    low=st.sampled_from([1, 3]),
    cuts=st.lists(st.integers(0, 300), max_size=8),
)
def test_a_learner_that_forgets_everything_between_batches_learns_the_same_bits(
    seed: int, mode: str, rule: str, low: int, cuts: list[int]
) -> None:
    users, events = some_events(seed, 300)
    bounds = sorted({0, 300, *cuts})
    whole = make_learner(Items(live_rows(DIM), 32), mode, rule, low, keep=True)
    slots = whole.intern(users)
    store, items = Store(), Items(live_rows(DIM), 32)
    for first, end in pairwise(bounds):
        batch = events.cut(first, end)
        whole.accept(whole.learn(placed(batch, slots)))

        learner = make_learner(items, mode, rule, low, keep=False)
        if store.partition:
            codec.unpack_partition(store.partition, learner.timeline, learner.gate)
        open_users = {key for key, (state, _) in store.users.items() if state[1] & OPEN}
        wanted = {int(users[u]) for u in batch.user if u >= 0} | open_users
        store.load(learner, np.array(sorted(wanted), np.uint64))
        known = learner.intern(users)  # the others are new to the learner, and no event names them
        needed = learner.open(placed(batch, known))
        for slot in needed:
            store.load_ledger(learner, int(learner.users.arrays.keys[slot]), int(slot))
        done = learner.close()
        learner.accept(done)
        learner.users.table.remove(
            np.array([s for s, u in zip(known, users, strict=True) if int(u) not in wanted], np.int32)
        )
        store.save(learner, done)

    last = make_learner(items, mode, rule, low, keep=False)
    codec.unpack_partition(store.partition, last.timeline, last.gate)
    store.load(last, users)
    assert picture(last, users) == picture(whole, users)


def packed_user(seed: int = 1) -> tuple[Learner, I32, U8, I64]:
    users, events = some_events(seed, 200)
    learner = make_learner(Items(live_rows(DIM), 32), "session", "click", 2, keep=True)
    slots = learner.intern(users)
    learner.learn(placed(events, slots))
    return learner, slots, *codec_users.pack_users(learner.users.arrays, slots, learner.session_rules)


def frozen(learner: Learner) -> bytes:
    return b"".join(column.tobytes() for column in learner.users.arrays) + b"".join(
        column.tobytes() for column in learner.ledger.arrays
    )


@settings(max_examples=200)
@given(seed=st.integers(0, 50), place=st.integers(0, 2**16), byte=st.integers(0, 255), cut=st.integers(-3, 3))
def test_damaged_user_states_are_refused_whole_or_read_as_another_state(
    seed: int, place: int, byte: int, cut: int
) -> None:
    learner, slots, buffer, starts = packed_user(seed)
    buffer = buffer.copy()
    buffer[place % len(buffer)] = byte
    if cut < 0:
        buffer, starts = buffer[:cut].copy(), np.minimum(starts, len(buffer) + cut)
    elif cut > 0:
        buffer, starts = np.append(buffer, np.zeros(cut, np.uint8)), np.append(starts[:-1], starts[-1] + cut)
    before = frozen(learner)
    rows = learner.users.arrays.rows[slots]
    try:
        learner.restore(slots, buffer, starts, rows)
    except ValueError:
        assert frozen(learner) == before
    else:
        again, offsets = codec_users.pack_users(learner.users.arrays, slots, learner.session_rules)
        assert len(again) <= len(buffer)
        assert offsets[-1] == len(again)
        assert cut == 0


@settings(max_examples=300)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_no_state(data: bytes) -> None:
    learner, slots, _, _ = packed_user()
    whole = np.array([0, len(data)])
    before = frozen(learner)
    with pytest.raises(ValueError, match="user state 0"):
        learner.restore(slots[:1], data, whole, learner.users.arrays.rows[slots[:1]])
    with pytest.raises(ValueError, match="block 0"):
        codec_blocks.unpack_ledger(learner.ledger, 0, data, whole)
    with pytest.raises(ValueError, match="partition state"):
        codec.unpack_partition(data, learner.timeline, learner.gate)
    assert frozen(learner) == before


def one_block() -> tuple[Learner, Batch, int]:
    learner = make_learner(Items(live_rows(DIM), 32), "immediate", "click", 1, keep=True)
    user = learner.intern(np.array([77], np.uint64))
    events = Events.of(np.repeat(user, 3), [IMPRESSION, NEGATIVE, CLICK], [5, 6, 7], [DAY_MS * 19_000 + 1] * 3)
    return learner, learner.learn(events), int(user[0])


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, 2, "version"),
        (1, 0x10, "out of range"),
        (1, 0x09, "out of range"),  # an added block has coefficients, not weights
        (2, 0, "items"),
        (3, 255, "items"),
        (6, 4, "dimension"),
        (15, 0x80, "out of range"),
        (19, 0x80, "out of range"),
        (23, 0x7F, "±64"),
        (-1, 0x7F, "±64"),
    ],
)
def test_a_damaged_block_says_what_is_wrong(place: int, value: int, reason: str) -> None:
    learner, batch, user = one_block()
    buffer, starts = codec_blocks.pack_blocks(batch.blocks, np.arange(1))
    codec_blocks.unpack_ledger(learner.ledger, user, buffer, starts)
    before = frozen(learner)
    buffer[place] = value
    with pytest.raises(ValueError, match=f"block 0 .*{reason}"):
        codec_blocks.unpack_ledger(learner.ledger, user, buffer, starts)
    assert frozen(learner) == before


def test_blocks_of_a_ledger_come_in_order() -> None:
    learner, batch, user = one_block()
    buffer, starts = codec_blocks.pack_blocks(batch.blocks, np.array([0, 0]))
    with pytest.raises(ValueError, match="block 1"):
        codec_blocks.unpack_ledger(learner.ledger, user, buffer, starts)


def test_sets_that_have_become_too_small_keep_the_newest() -> None:
    wide = make_learner(Items(live_rows(DIM), 32), "immediate", "click", 1, keep=True)
    user = wide.intern(np.array([77], np.uint64))
    wide.learn(Events.of(np.repeat(user, 4), [IMPRESSION] * 4, [1, 2, 3, 4], [DAY_MS] * 4))
    state, starts = codec_users.pack_users(wide.users.arrays, user, wide.session_rules)
    narrow = Learner(
        Items(live_rows(DIM), 32), live_step(), SessionRules(negatives_max=2, carried_max=1, clicked_max=1)
    )
    slot = narrow.intern(np.array([77], np.uint64))
    narrow.restore(slot, state, starts, wide.users.arrays.rows[user])
    batch = narrow.learn(Events.of(slot, [CLICK], [9], [DAY_MS]))
    assert batch.blocks.items.tolist() == [3, 4, 9]


def test_version_1_stays_as_it_is() -> None:
    """Frozen bytes: a change here is a new format version."""
    learner, batch, user = one_block()
    state, _ = codec_users.pack_users(learner.users.arrays, np.array([user], np.int32), learner.session_rules)
    block, _ = codec_blocks.pack_blocks(batch.blocks, np.arange(1))
    partition = codec.pack_partition(learner.timeline, learner.gate)
    assert state.tobytes().hex() == FROZEN_USER
    assert block.tobytes().hex() == FROZEN_BLOCK
    assert partition.hex() == FROZEN_PARTITION


def test_an_item_stays_as_it_is() -> None:
    """Frozen bytes: the row less where it starts, counters, days, clicked, shown; of one that never changed, zeros."""
    items = Items(live_rows(DIM), 32)
    slots = items.intern(np.array([5, 2**63 + 9], np.uint64))
    for k, column in enumerate(items.arrays[:5]):
        column[slots[1]] += np.arange(1, column.shape[1] + 1, dtype=np.int32) * (-1 if k == 0 else 10**k)
    fresh, changed = codec_items.pack_items(items, slots)
    assert not fresh.any()
    assert changed.tobytes().hex() == FROZEN_ITEM


def passed_b() -> tuple[Learner, I32]:
    """A user of whom 6 blocks were taken back: 2 of the first day, 4 of the next."""
    learner = make_learner(Items(live_rows(DIM), 64), "immediate", "click", 1, keep=True)
    user = learner.intern(np.array([77], np.uint64))
    times = [DAY_MS * (19_000 + (k >= 4)) + 1 + k for k in range(14)]
    learner.learn(Events.of(np.repeat(user, 14), [IMPRESSION, CLICK] * 7, np.arange(1, 15), times))
    return learner, user


def test_what_was_taken_back_stands_behind_the_ledger_bytes() -> None:
    """Frozen bytes, as above; of users of whom nothing was taken back they are as they were before it was counted."""
    learner, user = passed_b()
    state, starts = codec_users.pack_users(learner.users.arrays, user, learner.session_rules)
    assert state.tobytes().hex() == FROZEN_TAKEN_BACK
    assert state[1] & codec_users.TAKEN_BACK
    at = codec_users.USER_HEADER + 4 * 2  # two days have blocks; the ledger is empty
    assert state[at : at + 36].view("<i4").tolist() == [6, 2, 4, 0, 0, 0, 0, 0, 0]
    found = summary_of(state.tobytes())
    assert (found.blocks, found.counted, found.taken_back, found.recently_taken) == (7, 7, 6, 6)
    other = make_learner(Items(live_rows(DIM), 64), "immediate", "click", 1, keep=True)
    slot = other.intern(np.array([77], np.uint64))
    other.restore(slot, state, starts, learner.users.arrays.rows[user])
    again, _ = codec_users.pack_users(other.users.arrays, slot, other.session_rules)
    assert again.tobytes() == state.tobytes()


@pytest.mark.parametrize(
    ("number", "value"), [(0, 0), (0, -1), (0, 5), (0, 8), (1, -1), (2, 5), (8, 1)],
    ids=["none", "negative", "fewer than in the window", "more than blocks", "a day", "too many", "one too many"],
)  # fmt: skip
def test_numbers_of_what_was_taken_back_are_checked(number: int, value: int) -> None:
    learner, user = passed_b()
    state, starts = codec_users.pack_users(learner.users.arrays, user, learner.session_rules)
    at = codec_users.USER_HEADER + 4 * (2 + number)
    state[at : at + 4] = np.frombuffer(np.int32(value).tobytes(), np.uint8)
    with pytest.raises(ValueError, match=r"user state 0 .*out of range"):
        learner.restore(user, state, starts, learner.users.arrays.rows[user])


def test_open_sessions_are_flagged_where_a_reader_of_bytes_looks() -> None:
    learner = make_learner(Items(live_rows(DIM), 32), "session", "click", 1, keep=True)
    users = learner.intern(np.array([77, 78], np.uint64))
    learner.learn(Events.of(users[[0, 0, 1]], [IMPRESSION, CLICK, IMPRESSION], [5, 7, 5], [DAY_MS] * 3))
    states, starts = codec_users.pack_users(learner.users.arrays, users, learner.session_rules)
    assert (states[starts[:-1] + 1] & OPEN).tolist() == [OPEN, 0]


FROZEN_USER = (
    "010000010000000001000101384a00000120fc367e01000000000000000000000100000001000000010000000000000048e1"
    "ffff0100000044000000070000000700000000000000"
)
FROZEN_TAKEN_BACK = (
    "014000070000000003000300394a00000e7c223c7e0100000000000000000000070000000700000006000000f6ffffff948f"
    "ffff020000000500000006000000020000000400000000000000000000000000000000000000000000000000000002000000"
    "0400000006000000080000000a0000000c0000000e0000000a000000000000000c000000000000000e00000000000000"
)
FROZEN_ITEM = (
    "fffffffffefffffffdffffff0a000000140000001e00000064000000c80000002c01000090010000f401000058020000bc02"
    "000020030000e8030000d0070000b80b0000a00f00008813000070170000581b0000401f000010270000204e000030750000"
    "409c000050c3000060ea00007011010080380100"
)
FROZEN_BLOCK = (
    "01030200010003000120fc367e01000000000000d0cc4c3d0000000000000000050000000000000006000000000000000700"
    "0000000000008e5c2bbe8e5c2bbe385c913e"
)
FROZEN_PARTITION = (
    "01000000010000000120fc367e01000001000000000000000600000000000000384a00000000000000000000000000000000"
    "0000000000000000000000000000010000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000010001000000"
)
