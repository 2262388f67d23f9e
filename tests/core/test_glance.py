"""What serving reads of users is what a learner has of them; slots are found by stamps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saros.core.codec_users import pack_users
from saros.core.events import CLICK, IMPRESSION, Events
from saros.core.gate import GateRules
from saros.core.glance import (
    BLOCKS,
    COUNTED,
    ERASED,
    MOVED,
    NOTHING,
    ROW,
    STATE,
    UNSEEN,
    WHOLE,
    Stamps,
    absorb,
    glance_arrays,
)
from saros.core.items import Items
from saros.core.jit import U32, U64
from saros.core.learner import Learner
from saros.core.rows import live_rows
from saros.core.sessions import SessionRules
from saros.core.step import live_step
from saros.core.users import COUNTED as GATE_COUNTED
from saros.core.users import MOVED as GATE_MOVED
from saros.core.users import NUMBER

KEYS: U64 = np.random.default_rng(1).integers(0, 2**64, 50, np.uint64)
EVENTS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([CLICK, IMPRESSION]), st.integers(0, 49), st.integers(1, 40)),
    min_size=1, max_size=120,
)  # fmt: skip


def stamps_of(keys: U64) -> U32:
    return ((keys ^ (keys >> np.uint64(32))) & np.uint64(0xFFFFFFFF)).astype(np.uint32)


@given(EVENTS, st.booleans(), st.booleans())
def test_a_glance_is_what_the_learner_has(script: list[tuple[int, int, int, int]], repeats: bool, shadow: bool) -> None:
    rules = SessionRules(clicked_max=7, carried_max=3)
    gate = GateRules(blocks_min=1, blocks_max=6, ignore_repeats=repeats, mode=2 if shadow else 0)
    learner = Learner(Items(live_rows(4), 100), live_step(), rules, gate)
    users = learner.intern(np.arange(5, dtype=np.uint64))
    events = Events.of(
        user=[int(users[user]) for user, _, _, _ in script],
        kind=[kind for _, kind, _, _ in script],
        items=KEYS[[item for _, _, item, _ in script]],
        time_ms=np.cumsum([60_000 * gap for _, _, _, gap in script]),
        start=np.arange(len(script) + 1),
    )
    learner.accept(learner.learn(events))
    data, starts = pack_users(learner.users.arrays, users, learner.session_rules)
    read, rows = glance_arrays(8, 4, rules), learner.users.arrays.rows[users]
    slots = np.array([6, 1, -1, 0, 3], np.int32)
    absorb(read, slots, np.full(5, ROW, np.uint8), data, starts, rows, np.full(5, 9))
    clicks = [[item for who, kind, item, _ in script if (who, kind) == (user, CLICK)] for user in range(5)]
    for k, slot in enumerate(slots.tolist()):
        if slot < 0:
            continue
        own = learner.users.arrays.gate[users[k]]
        assert read.numbers[slot].tolist() == [own[NUMBER], own[GATE_COUNTED], own[GATE_MOVED]]
        assert (read.known[slot], read.at[slot]) == (WHOLE, 9)
        assert read.rows[slot].tobytes() == rows[k].tobytes()
        seen = set(read.seen[slot, : read.seen_count[slot]].tolist())
        assert seen <= set(stamps_of(KEYS[clicks[k]]).tolist())
        last = [(kind, item) for who, kind, item, _ in script if who == k][-1:]
        if last and last[0][0] == CLICK:
            assert int(stamps_of(KEYS[[last[0][1]]])[0]) in seen, "what was clicked last, if its session goes on"
    assert (read.known[[2, 4, 5, 7]] == NOTHING).all()


def test_what_records_say_in_turn() -> None:
    rules = SessionRules()
    learner = Learner(Items(live_rows(4), 100), live_step(), rules, GateRules())
    users = learner.intern(np.arange(1, dtype=np.uint64))
    events = Events.of(user=[users[0]] * 2, kind=[IMPRESSION, CLICK], items=KEYS[:2], time_ms=[1, 2], start=[0, 1, 2])
    learner.accept(learner.learn(events))
    data, starts = pack_users(learner.users.arrays, users, learner.session_rules)
    row, none = np.ones((1, 4), np.float32), np.zeros((0, 4), np.float32)
    read, slots = glance_arrays(1, 4, rules), np.zeros(1, np.int32)

    def said(flags: int, at: int, moved: bool = False) -> tuple[int, int, int, float]:
        absorb(read, slots, np.array([flags], np.uint8), data, starts, row if moved else none, np.array([at]))
        return int(read.known[0]), int(read.at[0]), int(read.numbers[0, BLOCKS]), float(read.rows[0, 0])

    assert said(0, 3) == (STATE, 3, 1, 0.0), "its row is as the store has it"
    assert said(ROW, 5, moved=True) == (WHOLE, 5, 1, 1.0)
    assert said(0, 6) == (WHOLE, 6, 1, 1.0), "the row stays"
    assert said(ERASED | UNSEEN, 6)[1:3] == (6, 1), "what is known as of then is not said again"
    assert said(ERASED | UNSEEN, 7)[:3] == (WHOLE, 7, 0)
    assert read.numbers[0, MOVED] == read.numbers[0, COUNTED] == read.seen_count[0] == 0
    with pytest.raises(ValueError, match="user state 0"):
        absorb(read, slots, np.zeros(1, np.uint8), data[:-1], np.array([0, len(data) - 1]), none, np.array([9]))
    with pytest.raises(ValueError, match="rows of users"):
        absorb(read, slots, np.zeros(1, np.uint8), data, starts, row, np.array([9]))


def test_more_slots_than_were_expected_are_found_by_their_stamps() -> None:
    keys, stamps = np.arange(1, 10_001, dtype=np.uint64), Stamps(2)
    for size in (1, 3, 10_000):
        stamps.extend(keys, size)
    assert stamps.find(keys, stamps_of(keys)).tolist() == list(range(10_000))


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60, unique=True), st.data())
def test_slots_are_found_by_their_stamps(chosen: list[int], data: st.DataObject) -> None:
    # Some that share a stamp with another: both halves are exchanged.
    chosen += [key >> 32 | (key & 0xFFFFFFFF) << 32 for key in chosen[:2]]
    keys = np.array(list(dict.fromkeys(chosen)), np.uint64)
    stamps, cut = Stamps(len(keys)), data.draw(st.integers(0, len(keys)))
    stamps.extend(keys, cut)
    stamps.extend(keys, len(keys))
    wanted = np.unique(stamps_of(keys[data.draw(st.lists(st.integers(0, len(keys) - 1), max_size=10))]))
    found = sorted(stamps.find(keys, wanted).tolist())
    assert found == np.flatnonzero(np.isin(stamps_of(keys), wanted)).tolist()
