"""The side of a trainer that holds the users of the partitions it owns: their cache, flushes and fenced reads.

Invariant: a cached user is the user as the records of this process left it, in flight ones included; every write and
every read of the store is tied to the partition's fence.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tests.model.books import waiting_in, write_ledgers, write_users, written_late
from tests.model.follower import ALL, Follower
from tests.model.world import (
    ADDED,
    PARTITIONS,
    WAITING,
    Entry,
    Fence,
    Ledger,
    Packet,
    Record,
    ShardState,
    Steps,
    UserKey,
    UserState,
    ViolationError,
    World,
)


class User(NamedTuple):
    """A user as it is cached."""

    state: UserState
    waiting: Mapping[int, Entry]  # by block number


class Owner(Follower):
    """A follower that flushes users and ledgers."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.in_flight: list[dict[int, Packet]] = [{} for _ in range(PARTITIONS)]  # by nonce, in the order of sending
        self.sent: set[int] = set()  # nonces of own records
        self.accepted_at: dict[int, int] = {}  # nonce of an own record -> its redo offset
        self.cache: dict[UserKey, User] = {}
        self.touched: dict[UserKey, int | None] = {}  # nonce of the last own record with this user
        self.expected: list[Fence] = []

    def boot(self) -> Steps[None]:
        """Expect the first fences of the log; a flush will tell."""
        yield from super().boot()
        self.start = self.world.start_of(self.genesis)
        self.expected = list(self.start)

    def dirty(self, key: UserKey) -> bool:
        """Whether the store may not have this user yet as it is cached."""
        nonce, p = self.touched[key], key[0]
        if nonce is None:
            return False
        return nonce in self.in_flight[p] or self.accepted_at.get(nonce, -1) > self.expected[p].offset

    def forget(self, key: UserKey) -> None:
        """Drop a cached user."""
        del self.cache[key], self.touched[key]

    def _next_to_flush(self, p: int, fence: Fence) -> tuple[Fence, Record] | None:
        """The first accepted record above a fence, with the fence behind it."""
        self.fold_to(p, fence.offset)
        for offset in range(fence.offset + 1, self.at[p].offset + 1):
            if offset < self.world.kept_from[p]:
                raise ViolationError("redo needed but trimmed")
            record = self.world.log[p][offset]
            fence, accepted = self.world.judge(self.genesis.log, fence, offset, record)
            if accepted and (record.nonce in self.sent or self.rule("flush all")):
                return fence, record
        return None

    def flush_users(self, p: int, limit: int = ALL) -> Steps[None]:
        """Write the next accepted records of a partition, one by one."""
        shard = self.world.shard_of(p)
        while limit > 0:
            stored, limit = shard.state.fences[p], limit - 1
            if shard.state.marked:
                yield
                continue
            self.same_log(stored)
            found = self._next_to_flush(p, stored)
            self.same_topic()
            if found is None:
                self._expect(p, stored)
                return
            yield
            yield from self._flush_one(p, stored, *found)

    def _flush_one(self, p: int, stored: Fence, fence: Fence, record: Record) -> Steps[None]:
        """Write users, ledgers and fence."""
        late = written_late(self.world)

        def write(state: ShardState) -> bool:
            if state.marked or (state.fences[p] != stored and self.rule("user cas")):
                return False
            state.fences = (*state.fences[:p], fence, *state.fences[p + 1 :])
            write_users(state, p, record)
            write_ledgers(self.world, state, p, record, [sign for sign in (WAITING, ADDED) if sign not in late])
            return True

        def write_late(state: ShardState) -> bool:
            write_ledgers(self.world, state, p, record, late)
            return True

        if self.world.shard_of(p).write(write):
            self._expect(p, fence)
            if late:
                yield
                self.world.shard_of(p).write(write_late)

    def _expect(self, p: int, fence: Fence) -> None:
        self.expected[p] = max(self.expected[p], fence) if self.rule("expect") else fence

    def read(self, p: int, user: int, rule: str) -> Steps[tuple[UserState, Ledger]]:
        """A user and its ledger, with everything flushed."""
        while True:
            state = self.world.shard_of(p).state
            if not state.marked and (state.fences[p] == self.expected[p] or not self.rule(rule)):
                return state.users.get((p, user), ()), state.ledgers.get((p, user), {})
            yield
            yield from self.flush_users(p)

    def cached(self, p: int, user: int) -> Steps[User]:
        """A user with what waits, read unless it is cached."""
        if (p, user) not in self.cache:
            state, ledger = yield from self.read(p, user, "fenced read")
            if not self.rule("waiting read"):
                yield
                ledger = self.world.shard_of(p).state.ledgers.get((p, user), {})
            self.cache[p, user], self.touched[p, user] = User(state, waiting_in(ledger)), None
        found = self.cache[p, user]
        if not self.rule("waiting cached"):
            _, ledger = yield from self.read(p, user, "fenced read")
            return found._replace(waiting=waiting_in(ledger))
        return found
