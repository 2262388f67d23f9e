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


class Write(NamedTuple):
    """Records of a partition that are on their way to the store."""

    stored: Fence  # has to be there
    records: list[tuple[Fence, Record]]  # each with the fence behind it
    landed: bool | None  # None: not yet; else whether it was written


class Owner(Follower):
    """A follower that flushes users and ledgers."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.in_flight: list[dict[int, Packet]] = [{} for _ in range(PARTITIONS)]  # by nonce, in the order of sending
        self.sent: set[int] = set()  # nonces of own records
        self.accepted_at: dict[int, int] = {}  # nonce of an own record -> its redo offset
        # Records that count, each with the fence behind it.
        self.accepted: list[list[tuple[Fence, Record]]] = [[] for _ in range(PARTITIONS)]
        self.cache: dict[UserKey, User] = {}
        self.touched: dict[UserKey, int | None] = {}  # nonce of the last own record with this user
        self.expected: list[Fence] = []
        self.writing: dict[int, Write] = {}  # by partition

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

    def _to_flush(self, p: int, fence: Fence) -> list[tuple[Fence, Record]]:
        """The next accepted records above a fence, read from the log, each with the fence behind it."""
        self.fold_to(p, fence.offset)
        found = list[tuple[Fence, Record]]()
        for offset in range(fence.offset + 1, self.at[p].offset + 1):
            if offset < self.world.kept_from[p]:
                raise ViolationError("redo needed but trimmed")
            record = self.world.log[p][offset]
            fence, accepted = self.world.judge(self.genesis.log, fence, offset, record)
            if accepted:
                found.append((fence, record))
        return self._as_one(found)

    def _as_one(self, records: list[tuple[Fence, Record]]) -> list[tuple[Fence, Record]]:
        """Those that are written as one: the first few."""
        ours = [each for each in records if each[1].nonce in self.sent or self.rule("flush all")]
        return ours[: self.rng.choice((1, 1, 2, 9))]

    def behind(self, p: int, fence: Fence) -> list[Record]:
        """The records behind a fence that count, as far as we know, then those in flight: all that are in memory."""
        counted = [record for at, record in self.accepted[p] if at.offset > fence.offset]
        return counted + [packet.record for packet in self.in_flight[p].values()]

    def flush_users(self, p: int, limit: int = ALL) -> Steps[None]:
        """Write the next accepted records of a partition, and wait for the answers."""
        shard = self.world.shard_of(p)
        while limit > 0:
            yield from self.write_behind(p, wait=True)
            stored, limit = shard.state.fences[p], limit - 1
            if shard.state.marked:
                yield
                continue
            self.same_log(stored)
            found = self._to_flush(p, stored)
            self.same_topic()
            if not found:
                self._expect(p, stored)
                return
            yield
            self.writing[p] = Write(stored, found, None)
        yield from self.write_behind(p, wait=True)

    def begin_flush(self, p: int) -> None:
        """Let the next accepted records, which are in memory, be written on the fence that we believe to be there."""
        waiting = [each for each in self.accepted[p] if each[0].offset > self.expected[p].offset]
        found = self._as_one(waiting) if p not in self.writing else []
        self.same_topic()
        if found:
            self.writing[p] = Write(self.expected[p], found, None)

    def write_behind(self, p: int, wait: bool = False) -> Steps[None]:
        """What is being written lands, and later we learn of it."""
        while p in self.writing:
            write = self.writing[p]
            if write.landed is None:
                self.writing[p] = write._replace(landed=(yield from self._land(p, write)))
            else:
                del self.writing[p]
                if write.landed:
                    self._expect(p, write.records[-1][0])
            if not wait:
                return
            yield

    def _land(self, p: int, todo: Write) -> Steps[bool]:
        """Write users, ledgers and fence; whether that was done."""
        late = written_late(self.world)

        def write(state: ShardState) -> bool:
            if state.marked or (state.fences[p] != todo.stored and self.rule("user cas")):
                return False
            state.fences = (*state.fences[:p], todo.records[-1][0], *state.fences[p + 1 :])
            for _, record in todo.records:
                write_users(state, p, record)
                write_ledgers(self.world, state, p, record, [sign for sign in (WAITING, ADDED) if sign not in late])
            return True

        def write_late(state: ShardState) -> bool:
            for _, record in todo.records:
                write_ledgers(self.world, state, p, record, late)
            return True

        done = self.world.shard_of(p).write(write)
        if done and late:
            yield
            self.world.shard_of(p).write(write_late)
        return done

    def _expect(self, p: int, fence: Fence) -> None:
        self.expected[p] = max(self.expected[p], fence) if self.rule("expect") else fence

    def read(self, p: int, user: int, rule: str) -> Steps[tuple[UserState, Ledger]]:
        """A user and its ledger, as of the fence that we expect."""
        while True:
            state, write = self.world.shard_of(p).state, self.writing.get(p)
            if write and write.landed and not state.marked and state.fences[p] == write.records[-1][0]:
                yield from self.write_behind(p)  # the store had it before we knew
            elif not state.marked and (state.fences[p] == self.expected[p] or not self.rule(rule)):
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
