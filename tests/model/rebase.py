"""`saros rebase`: the store goes on with a new log, where redo was lost as a whole.

The steps are numbered as in `tests.model.rules.rebase`. Invariant: from its mark on nothing in a shard changes until a
genesis is decided, so that every run sees the same and a later one can finish what an earlier one began.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tests.model.world import (
    PARTITIONS,
    SHARDS,
    WAITING,
    Fence,
    Genesis,
    Shard,
    ShardState,
    Steps,
    UserKey,
    World,
)


class Standing(NamedTuple):
    """What a run must know of a shard."""

    log: int
    topic: int
    rebasing: int

    @classmethod
    def of(cls, state: ShardState) -> "Standing":
        """The standing of a shard."""
        return cls(state.genesis.log, state.genesis.topic, state.rebasing)


def rebase(world: World) -> Steps[None]:
    """One run."""
    while not (yield from Rebase(world).attempt()):
        yield


class Rebase:
    """One attempt of a run; it starts over where another run, a restore or another loss comes between."""

    def __init__(self, world: World) -> None:
        self.world, self.rule, self.topic = world, world.rule, 0

    def attempt(self) -> Steps[bool]:
        """Whether it came to its end."""
        # Step 1.
        seen = []
        for shard in self.world.shards:
            seen.append(Standing.of(shard.state))
            yield
        self.topic = self.world.topic
        if all(self._is_done(standing) for standing in seen) and len({standing.log for standing in seen}) == 1:
            return True
        # Step 2.
        for shard, standing in zip(self.world.shards, seen, strict=True):
            yield
            if self.rule("rebase mark") and not self._mark(shard, standing):
                return False
        # Step 3.
        genesis = self.world.first_genesis(self.topic) if self.rule("first genesis") else None
        if genesis is None:
            genesis = yield from self._decide()
        # Step 4.
        for shard in self.world.shards:
            if genesis is None or not (yield from self._finish(shard, genesis)):
                return False
        return True

    def _is_done(self, standing: Standing) -> bool:
        return standing.topic == self.topic and not standing.rebasing

    def _mark(self, shard: Shard, seen: Standing) -> bool:
        """Mark a shard unless it is done; whether there is nothing in the way."""
        if self._is_done(seen) and self.rule("first genesis"):
            return True

        def mark(state: ShardState) -> bool:
            if state.restoring or (Standing.of(state) != seen and self.rule("mark cas")):
                return False
            if state.rebasing != self.topic:
                state.rebasing, state.pages = self.topic, 0
            return True

        return shard.write(mark)

    def _decide(self) -> Steps[Genesis | None]:
        """Send a genesis; return the one that counts, or None if the shards or the topic have changed."""
        states = []
        for shard in self.world.shards:
            yield
            if self.rule("rebase mark") and shard.state.rebasing != self.topic:
                return None
            if self.rule("rebase durable"):
                shard.reset(shard.state)
            states.append(shard.state)
        fences = [states[p % SHARDS].fences[p] for p in range(PARTITIONS)]
        starts = tuple(fence.next for fence in fences)
        if not self.rule("user start"):
            starts = tuple(min(state.vector[p].next for state in states) for p in range(PARTITIONS))
        agree = all(_place(state.vector[p]) == _place(fences[p]) for p in range(PARTITIONS) for state in states)
        clears = (not agree and self.rule("ledgers cleared")) or not self.rule("ledgers kept")
        genesis = Genesis(self.world.new_log(), self.topic, starts, clears)
        packet = self.world.send_genesis(genesis)
        while (first := self.world.first_genesis(self.topic)) is None:
            yield
            if self.world.topic != self.topic:
                return None
            if packet.failed:
                packet = self.world.send_genesis(genesis)
        return first if self.rule("first genesis") else genesis

    def _finish(self, shard: Shard, genesis: Genesis) -> Steps[bool]:
        """Put a shard on the log of a genesis; whether there was nothing in the way."""
        if self._is_done(Standing.of(shard.state)) and shard.state.genesis.log == genesis.log:
            return True
        pages = sorted(shard.state.ledgers) if genesis.clears else []
        if self.rule("fences last") and not (yield from self._clear(shard, genesis, pages)):
            return False
        yield
        if not shard.write(lambda state: self._begin(state, genesis, len(pages))):
            return False
        if self.rule("rebase durable"):
            shard.reset(shard.state)
        if not self.rule("fences last"):
            yield from self._clear(shard, genesis, pages)
        return True

    def _mine(self, state: ShardState, genesis: Genesis) -> bool:
        """Whether a shard may be changed."""
        if not self.rule("fences last") or not self.rule("rebase mark"):
            return True
        return state.rebasing == genesis.topic or not self.rule("finish cas")

    def _begin(self, state: ShardState, genesis: Genesis, pages: int) -> bool:
        """Begin with the new log."""
        counted = self.rule("rebase pages") and self.rule("fences last")
        if not self._mine(state, genesis) or (counted and state.pages < pages):
            return False
        state.genesis = genesis
        state.vector = state.fences = self.world.start_of(genesis)
        state.rebasing = state.pages = 0
        return True

    def _clear(self, shard: Shard, genesis: Genesis, pages: Sequence[UserKey]) -> Steps[bool]:
        """Clear ledgers, as many as the mark does not count yet."""

        def clear(state: ShardState) -> bool:
            if not self._mine(state, genesis):
                return False
            kept = state.ledgers.get(pages[done], {}).items() if self.rule("waiting kept") else ()
            state.ledgers[pages[done]] = {key: entry for key, entry in kept if entry.sign == WAITING}
            state.pages = done + 1
            return True

        done = shard.state.pages if self.rule("rebase pages") else 0
        while done < len(pages):
            if not shard.write(clear):
                return False
            yield
            done = shard.state.pages if self.rule("rebase pages") else done + 1
        return True


def _place(fence: Fence) -> tuple[int, int, int]:
    """What a fence says of the state behind it; its offset may be that of a record that was rejected."""
    return fence.next, fence.nonce, fence.log
