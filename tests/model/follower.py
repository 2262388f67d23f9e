"""A process that boots from the store, follows redo and holds all items: as it is, an API process."""

from collections.abc import Mapping

from tests.model.world import (
    FIRST,
    ITEMS,
    PARTITIONS,
    SHARDS,
    Fence,
    Record,
    RestartError,
    ShardState,
    Steps,
    Vector,
    World,
)

ALL = 1 << 30


class Follower:
    """`base` is the fold of all partitions, each up to its fence in `at`."""

    def __init__(self, world: World) -> None:
        self.world, self.rng, self.rule = world, world.rng, world.rule
        self.steps, self.speed = self.run(), 1.0
        self.slot: int | None = None  # of a trainer
        self.booted = False
        self.topic, self.genesis = 0, FIRST  # those it booted with
        self.at: list[Fence] = []
        self.base = [0] * ITEMS
        self.boot_vector: dict[int, Vector] = {}  # of each shard
        self.changed: list[set[int]] = [set() for _ in range(SHARDS)]  # items, since they were written

    def boot(self) -> Steps[None]:
        """Read the shards, each at its own time."""
        self.topic = self.world.topic
        for count, s in enumerate(self.rng.sample(range(SHARDS), SHARDS)):
            shard = self.world.shards[s]
            while not self._may_boot_from(shard.state):
                yield
            if count > 0 and shard.state.genesis != self.genesis and self.rule("boot log"):
                raise RestartError
            self.boot_vector[s], self.genesis = shard.state.vector, shard.state.genesis
            if not self.rule("atomic boot"):
                yield
            for item, value in shard.state.items.items():
                self.base[item] = value
            yield
        self.at = [min(vector[p] for vector in self.boot_vector.values()) for p in range(PARTITIONS)]
        for p, fence in enumerate(self.at):
            if fence.offset >= 0 and not self.rule("fence next"):
                self.look(p)
                record = self.world.log[p][fence.offset]
                self.at[p] = Fence(fence.offset, record.end, record.nonce, fence.log)
        self.booted = True

    def _may_boot_from(self, state: ShardState) -> bool:
        if self.world.topic != self.topic:
            raise RestartError
        return not state.marked and (state.genesis.topic == self.topic or not self.rule("boot log"))

    def look(self, p: int, offset: int = -1) -> None:
        """Before the log is read: it must reach as far as this process or the store has come."""
        if self.world.topic != self.topic and self.rng.random() < 0.1:  # every now and then
            self.same_topic()
        if max(self.at[p].offset, offset) >= len(self.world.log[p]):
            raise RestartError

    def same_topic(self) -> None:
        """After the log was read, and before the store is written."""
        if self.world.topic != self.topic and self.rule("lost log"):
            raise RestartError

    def same_log(self, fence: Fence) -> None:
        """After a fence was read."""
        if fence.log != self.at[0].log:
            raise RestartError

    def fold(self, p: int, limit: int = ALL) -> None:
        """Take the next records of a partition."""
        self.look(p)
        while limit > 0 and self.at[p].offset + 1 < len(self.world.log[p]):
            offset, limit = self.at[p].offset + 1, limit - 1
            if offset < self.world.kept_from[p]:
                if self.rule("trimmed"):
                    raise RestartError
                self.at[p] = self.at[p]._replace(offset=self.world.kept_from[p] - 1)
                continue
            record = self.world.log[p][offset]
            self.at[p], accepted = self.world.judge(self.genesis.log, self.at[p], offset, record)
            news = {i: v for i, v in record.items.items() if offset > self.boot_vector[i % SHARDS][p].offset}
            for i, value in news.items() if accepted else ():
                self.base[i] += value
                self.changed[i % SHARDS].add(i)
            self.on_record(p, offset, record, accepted, news)

    def fold_to(self, p: int, offset: int) -> None:
        """Have this record of a partition behind."""
        self.look(p, offset)
        while self.at[p].offset < offset:
            self.fold(p, 1)

    def on_record(self, p: int, offset: int, record: Record, accepted: bool, news: Mapping[int, int]) -> None:
        """A record was judged; `news` is what it adds to the rows this process booted with."""

    def run(self) -> Steps[None]:
        """Follow for ever."""
        yield from self.boot()
        while True:
            self.fold(self.rng.randrange(PARTITIONS), self.rng.randrange(1, 4))
            yield
