"""The oracle of the model sees what is wrong: a schedule that has settled is spoilt in one place, and no longer passes.

Everything that `tests.model.oracle` can say is said here once.
"""

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from tests.model.rebase import rebase
from tests.model.run import Run
from tests.model.world import ADDED, PARTITIONS, SHARDS, WAITING, Entry, ShardState, UserKey, ViolationError, World

Spoil = Callable[[World], None]
Place = tuple[ShardState, UserKey, tuple[int, int], Entry]
SEEDS = range(1, 600, 3)  # b is 2 for these


def entries(world: World, sign: int) -> Iterator[Place]:
    """The ledger entries with a sign, and where they stand."""
    for p in range(PARTITIONS):
        state = world.shard_of(p).state
        for key in sorted(state.ledgers):
            for number, entry in state.ledgers[key].items():
                if key[0] == p and entry.sign == sign:
                    yield state, key, number, entry


@cache
def seed_of(rebased: bool) -> int:
    """A schedule that ends with blocks that wait and blocks that were added, some of them before a rebase that kept the
    ledgers; or without a rebase."""
    for seed in SEEDS:
        run = Run(seed)
        assert run.violation() is None, f"seed {seed}"
        world, old = run.world, False
        for state, key, (number, _), _ in entries(world, ADDED):
            old = old or world.made_in[state.users[key][number][1]] != run.oracle.log
        if old == rebased and all(any(entries(world, sign)) for sign in (WAITING, ADDED)):
            return seed
    raise AssertionError("no such schedule")


def settled(rebased: bool = True) -> Run:
    """It, at its end."""
    run = Run(seed_of(rebased))
    assert run.violation() is None
    run.oracle.check(run.trainers, run.api)
    return run


def change_user(world: World, change: Callable[[tuple[int, int]], tuple[tuple[int, int], ...]]) -> None:
    """Put something in the place of a block of a user."""
    state, key, (number, _), _ = next(entries(world, ADDED))
    user = state.users[key]
    state.users[key] = (*user[:number], *change(user[number]), *user[number + 1 :])


def change_ledger(world: World, sign: int, change: Callable[[Entry], Entry | None]) -> None:
    """Put something in the place of an entry of a ledger."""
    state, key, number, entry = next(entries(world, sign))
    changed = change(entry)
    ledger = {k: e for k, e in state.ledgers[key].items() if k != number}
    state.ledgers[key] = ledger if changed is None else {**ledger, number: changed}


def other_nonce(world: World, nonce: int, same_log: bool) -> int:
    """The nonce of another record."""
    logs = world.made_in
    return next(n for n in range(1, len(logs)) if n != nonce and (logs[n] == logs[nonce]) == same_log)


SPOILT_USERS: list[tuple[str, str, Spoil]] = [
    ("a block is lost", "user state", lambda world: change_user(world, lambda block: ())),
    ("a block counts twice", "user state", lambda world: change_user(world, lambda block: (block, block))),
    (
        "another record closed it",
        "state of a rejected record",
        lambda world: change_user(world, lambda block: ((block[0], other_nonce(world, block[1], True)),)),
    ),
    (
        "a record of another log closed it",
        "record of another log",
        lambda world: change_user(world, lambda block: ((block[0], other_nonce(world, block[1], False)),)),
    ),
    ("an added block is in no ledger", "ledger", lambda world: change_ledger(world, ADDED, lambda entry: None)),
    ("a waiting block is in no ledger", "ledger", lambda world: change_ledger(world, WAITING, lambda entry: None)),
    (
        "an added block waits",
        "ledger",
        lambda world: change_ledger(world, ADDED, lambda entry: entry._replace(sign=WAITING)),
    ),
    (
        "a waiting block was added",
        "ledger",
        lambda world: change_ledger(world, WAITING, lambda entry: entry._replace(sign=ADDED)),
    ),
    (
        "the ledger has other coefficients",
        "items and ledgers differ",
        lambda world: change_ledger(world, ADDED, lambda entry: entry._replace(parts={0: 1})),
    ),
]


@pytest.mark.parametrize(("violation", "spoil"), [s[1:] for s in SPOILT_USERS], ids=[s[0] for s in SPOILT_USERS])
def test_spoilt_users_are_seen(violation: str, spoil: Spoil) -> None:
    run = settled()
    spoil(run.world)
    with pytest.raises(ViolationError, match=f"^{violation}$"):
        run.oracle.check(run.trainers, run.api)


def test_spoilt_tables_are_seen() -> None:
    run = settled()
    tables = [("API items", run.api.base)]
    for trainer in run.trainers:
        tables += [("trainer items", trainer.base), ("work table", trainer.work)]
    for violation, table in tables:
        table[3] += 1
        with pytest.raises(ViolationError, match=f"^{violation}$"):
            run.oracle.check(run.trainers, run.api)
        table[3] -= 1
    run.oracle.check(run.trainers, run.api)
    run.world.shards[3].state.items[3] += 1
    with pytest.raises(ViolationError, match=r"^Redis items$"):
        run.oracle.check(run.trainers, run.api)


def go_over(run: Run, spoil_marked: Spoil) -> None:
    """Lose redo and rebase; what is marked is spoilt before it is gone over."""
    world, marked = run.world, False
    world.lose_log()
    for _ in rebase(world):
        world.deliver()
        run.oracle.observe()
        if not marked and all(shard.state.rebasing for shard in world.shards):
            marked = True
            spoil_marked(world)
    run.oracle.observe()
    assert marked
    assert world.whole()


def nothing(_: World) -> None:
    """Spoil nothing."""


def fall_behind(world: World) -> None:
    """Let a shard's items not be at the records of the users."""
    state = world.shards[1].state
    state.vector = (state.vector[0], state.vector[1]._replace(nonce=0), state.vector[2])


def end_ledgers(world: World) -> None:
    """Clear all ledgers of what was added."""
    for p in range(PARTITIONS):
        ledgers = world.shard_of(p).state.ledgers
        for key in ledgers:
            ledgers[key] = {number: entry for number, entry in ledgers[key].items() if entry.sign == WAITING}


def move_items(world: World) -> None:
    """Let an item hold something that nobody taught."""
    world.shards[3].state.items[3] += 1


@pytest.mark.parametrize(
    ("violation", "spoil"),
    [
        ("what waits at a rebase", lambda world: change_ledger(world, WAITING, lambda entry: None)),
        ("ledgers cleared without need", end_ledgers),
        ("items at a rebase", move_items),
        ("user state", lambda world: change_user(world, lambda block: ())),
    ],
)
def test_a_spoilt_rebase_is_seen(violation: str, spoil: Spoil) -> None:
    with pytest.raises(ViolationError, match=f"^{violation}$"):
        go_over(settled(rebased=False), spoil)


def test_what_is_in_doubt_may_not_be_kept() -> None:
    run = settled(rebased=False)
    fall_behind(run.world)
    run.world.left_out = "ledgers cleared"
    with pytest.raises(ViolationError, match=r"^ledgers kept in doubt$"):
        go_over(run, move_items)


def test_what_is_not_in_doubt_is_kept() -> None:
    run = settled(rebased=False)
    before = [dict(run.world.shards[s].state.ledgers) for s in range(SHARDS)]
    kept = run.oracle.rebases["ledgers kept"]
    go_over(run, nothing)
    assert run.oracle.rebases["ledgers kept"] == kept + 1
    assert [shard.state.ledgers for shard in run.world.shards] == before


def test_what_was_found_is_not_taken_back() -> None:
    run = settled(rebased=False)
    fall_behind(run.world)
    cleared = run.oracle.rebases["ledgers cleared"]
    go_over(run, move_items)
    assert run.oracle.rebases["ledgers cleared"] == cleared + 1
    assert not any(entries(run.world, ADDED))
    assert any(entries(run.world, WAITING))
    # Items are what was found, to the bit: one more than anybody taught, and not a bit more.
    found = run.oracle.found
    assert [run.world.shards[i % SHARDS].state.items.get(i, 0) for i in range(len(found))] == found
    for process in (run.api, *run.trainers):
        process.base[:] = found
    for trainer in run.trainers:
        trainer.work[:] = found
    run.oracle.check(run.trainers, run.api)
