"""Snapshots of a shard, taken and restored while everybody goes on."""

from tests.model.books import write_ledgers, write_users
from tests.model.world import ADDED, PARTITIONS, USERS, WAITING, Shard, ShardState, Steps, UserKey, World


def _copy_key(table: str, key: UserKey, source: ShardState, copy: ShardState) -> None:
    if table == "users" and key in source.users:
        copy.users[key] = source.users[key]
    elif table == "ledgers" and key in source.ledgers:
        copy.ledgers[key] = source.ledgers[key]


def _same_log(world: World, snapshot: ShardState, state: ShardState) -> bool:
    return snapshot.genesis.log == state.genesis.log or not world.rule("snapshot log")


def take_snapshot(world: World, shard: Shard) -> Steps[None]:
    """Copy rows and fences at once, then users and ledgers key by key."""
    copy, pauses = shard.state.copy(), world.rng.choice((0.1, 0.25, 0.7))
    copy.users, copy.ledgers = {}, {}
    highest = copy.fences
    keys = [(table, (p, user)) for table in ("users", "ledgers") for p in range(PARTITIONS) for user in range(USERS)]
    for table, key in world.rng.sample(keys, len(keys)):
        if world.rng.random() < pauses:
            yield
        if copy.marked or shard.state.marked or not _same_log(world, copy, shard.state):
            return  # given up
        _copy_key(table, key, shard.state, copy)
        if world.rule("snapshot fence"):
            copy.fences = tuple(map(min, copy.fences, shard.state.fences))
        highest = tuple(map(max, highest, shard.state.fences))
    fences = list(enumerate(copy.vector))
    fences += [(p, copy.fences[p]) for p in range(PARTITIONS) if world.shard_of(p) is shard]
    trimmed = any(fence.offset + 1 < world.kept_from[p] for p, fence in fences)
    if world.rule("snapshot exact") and not trimmed:
        for p in range(PARTITIONS):
            if world.shard_of(p) is shard and not _bring(world, copy, p, highest[p].offset):
                return  # given up
    if not trimmed or not world.rule("snapshot kept"):
        shard.snapshot = copy


def _bring(world: World, copy: ShardState, p: int, offset: int) -> bool:
    """Bring the users of a partition up to a redo offset; False if redo is gone."""
    for place in range(copy.fences[p].offset + 1, offset + 1):
        if world.topic != copy.genesis.topic or place >= len(world.log[p]):
            return False
        record = world.log[p][place]
        fence, accepted = world.judge(copy.genesis.log, copy.fences[p], place, record)
        if accepted:
            copy.fences = (*copy.fences[:p], fence, *copy.fences[p + 1 :])
            write_users(copy, p, record)
            write_ledgers(world, copy, p, record, (WAITING, ADDED))
    return True


def restore_snapshot(world: World, shard: Shard) -> Steps[None]:
    """Replace a shard by its snapshot: rows and fences at once, users and ledgers page by page."""
    if shard.state.marked or not _same_log(world, shard.snapshot, shard.state):
        return
    copy, marked, done = shard.snapshot, world.rule("restore mark"), 0
    pages = [("users", key) for key in copy.users] + [("ledgers", key) for key in copy.ledgers]
    start = world.start_of(copy.genesis)
    if marked:
        shard.reset(ShardState(copy.genesis, start, start, restoring=1))
    else:
        shard.reset(ShardState(copy.genesis, copy.vector, copy.fences, items=dict(copy.items)))

    def write_page(state: ShardState) -> bool:
        _copy_key(*pages[done], copy, state)
        state.restoring = marked * (done + 2)  # the mark: 1 + pages written
        return True

    while done < len(pages):
        shard.write(write_page)
        done += 1
        if world.rng.random() < 0.5:
            yield
        if marked and world.rule("restore pages"):
            done = shard.state.restoring - 1
    if marked:
        state = shard.state
        shard.reset(ShardState(copy.genesis, copy.vector, copy.fences, dict(copy.items), state.users, state.ledgers))
