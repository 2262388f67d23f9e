"""The faults, and random schedules of them.

A schedule is some time in which anything may happen, and then a quiet end in which everything must settle. It is a
function of its seed.

- crash      a trainer or the API process loses its memory and boots again
- zombie     a trainer is replaced but goes on with all it had, at any speed
- rebalance  a partition changes its owner; the old and the new one learn of it later
- delivery   a produce lands out of order, twice, never, or lands (now or much later, also after a restart of its
             sender) although it was reported as failed
- rollback   a shard loses its newest acknowledged writes (also those of a restore)
- snapshot   snapshots are taken while everybody goes on, a slow one may end after a newer one
- restore    one shard, or all, are replaced by their snapshots while everybody goes on
- trim       redo is trimmed as far as rule 5 allows
- loss       redo is lost as a whole, in full swing or when all is quiet, and its topic made anew; what was on its way
             lands in the new one; an operator runs rebase, also twice at once, and a run may end at any step
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.follower import Follower
from tests.model.oracle import Oracle
from tests.model.rebase import rebase
from tests.model.snapshots import restore_snapshot, take_snapshot
from tests.model.trainer import Trainer
from tests.model.world import INPUT_END, PARTITIONS, SHARDS, RestartError, Shard, Steps, ViolationError, World

# How often each comes, beside 60 steps of processes.
FAULTS: Mapping[str, float] = {
    "crash": 0.5,
    "zombie": 0.4,
    "rebalance": 0.8,
    "delivery": 0,  # in each delivery
    "rollback": 1.5,
    "snapshot": 2,
    "restore": 0.25,
    "trim": 3,
    "loss": 0.12,
}
ALL_FAULTS = tuple(FAULTS)
EVENTS, SETTLE_MAX = 900, 6000


@dataclass
class Operation:
    """A run of rebase."""

    steps: Steps[None]
    speed: float = 1


class Run:
    """One schedule."""

    def __init__(
        self, seed: int, faults: Sequence[str] = ALL_FAULTS, left_out: str | None = None, blocks_min: int = 0
    ) -> None:
        # Every other schedule has no loss, since some faults need more time to show than there is between two of them.
        happening = tuple(fault for fault in faults if fault != "loss" or seed % 2)
        self.world = World(seed, happening, left_out, blocks_min or 1 + seed % 3)
        self.rng, self.oracle = random.Random(seed + 1), Oracle(self.world)
        self.trainers = [Trainer(self.world, slot) for slot in range(len(self.world.assignment))]
        self.zombies: list[Trainer] = []
        self.api = Follower(self.world)
        self.jobs: list[Steps[None]] = []
        self.rebases: list[Operation] = []

    def violation(self) -> str | None:
        """What was violated, if anything was."""
        try:
            self._play()
        except ViolationError as violation:
            return str(violation)
        return None

    def _play(self) -> None:
        events = EVENTS
        if "loss" in self.world.faults and self.rng.random() < 0.5:  # all is quiet when redo is lost
            self.world.arrived, events = self.rng.randrange(3, 12), EVENTS // 2
            self._anything(EVENTS - events)
            self._settle()
            self.world.arrived = INPUT_END
            self.world.lose_log()
        self._anything(events)
        self._settle()

    def _anything(self, events: int) -> None:
        weights = {fault: FAULTS[fault] * self.rng.choice((0.2, 1, 3)) for fault in self.world.faults}
        weights |= {"step": 60, "deliver": 12, "job": 25, "durable": self.rng.choice((1, 3))}
        if "loss" in self.world.faults:
            weights["operator"] = 25
        for name in self.rng.choices(list(weights), list(weights.values()), k=events):
            self._happen(name)

    def _settle(self) -> None:
        """Let everything come to its end, and check it. Zombies, and runs of rebase that stood still, may then do what
        they can, and what was read before it is read again."""
        self._until_settled(with_zombies=True)
        for _ in range(100):
            self._step(self.zombies)
        for operation in list(self.rebases):
            self._go_on(operation, 60)
            for process in self._processes():
                self._replace(process)
        self.rebases.clear()
        self._until_settled(with_zombies=False)
        self.oracle.check(self.trainers, self.api)

    def _until_settled(self, with_zombies: bool) -> None:
        for count in range(SETTLE_MAX):
            self._happen("job")
            self._happen(self.rng.choice(("deliver", "none", "none", "none")))
            if "loss" in self.world.faults:
                self._operate(calm=True)
            self._step([*self.trainers, *self.trainers, *self.zombies, self.api] if with_zombies else self._processes())
            if count % 20 == 0 and self._settled():
                return
        raise ViolationError("does not settle")

    def _settled(self) -> bool:
        world, ends = self.world, [len(log) - 1 for log in self.world.log]
        if world.network or world.limbo or self.jobs or not world.whole():
            return False
        if any(any(trainer.in_flight) or trainer.reload for trainer in self.trainers):
            return False
        vectors = [tuple(process.at) for process in self._processes() if process.booted]
        if len(vectors) < len(self._processes()):
            return False
        vectors += [shard.state.vector for shard in world.shards]
        done = (f.offset == end and f.next >= world.arrived for v in vectors for f, end in zip(v, ends, strict=True))
        flushed = (world.shard_of(p).state.fences[p].nonce == self.api.at[p].nonce for p in range(PARTITIONS))
        return all(done) and all(flushed)

    def _processes(self) -> list[Follower]:
        return [*self.trainers, self.api]

    def _happen(self, name: str) -> None:
        shard, p = self.rng.choice(self.world.shards), self.rng.randrange(PARTITIONS)
        if name == "step":
            self._step([*self.trainers, *self.zombies, self.api])
        elif name == "deliver":
            self.world.deliver()
        elif name == "trim":
            self.world.trim()
        elif name == "job" and self.jobs:
            self._advance(self.jobs)
        elif name == "operator":
            self._operate(calm=False)
        elif name == "durable":
            for each in self.world.shards:
                each.reset(each.state)
        elif name == "crash":
            self._replace(self.rng.choice(self._processes()))
        elif name == "zombie":
            zombie = self.rng.choice(self.trainers)
            self._replace(zombie)
            zombie.slot, self.zombies = None, [*self.zombies[-1:], zombie]
        elif name == "rebalance":
            for owned in self.world.assignment:
                owned ^= {p}
        elif name == "loss":
            self.world.lose_log()
        else:
            self._happen_to(shard, name)

    def _happen_to(self, shard: Shard, name: str) -> None:
        if name == "rollback":
            shard.history = shard.history[: self.rng.randrange(len(shard.history)) + 1]
            shard.state = shard.history[-1]
        elif name == "snapshot" and len(self.jobs) < 5:
            self.jobs += [take_snapshot(self.world, each) for each in self.world.shards]
        elif name == "restore":
            lost = self.rng.sample(self.world.shards, self.rng.choice((1, 1, 1, SHARDS)))
            self.jobs += [restore_snapshot(self.world, each) for each in lost]

    def _advance(self, jobs: list[Steps[None]]) -> None:
        job = self.rng.choice(jobs)
        if next(job, self) is self:
            jobs.remove(job)

    def _operate(self, calm: bool) -> None:
        """Run rebase where it is needed. While all is not calm: also where one runs, from an empty topic once more, and
        a run may end at any step. One that is not needed any more takes its time."""
        chance, needed = self.rng.random(), not self.world.whole()
        if needed and (not self.rebases or (chance < 0.12 and len(self.rebases) < 3 and not calm)):
            self.rebases.append(Operation(rebase(self.world), self.rng.choice((1, 1, 0.1, 0.01))))
        elif needed and chance < 0.02 and not calm:
            self.world.lose_log()
        elif needed and chance < 0.04 and not calm:
            self.rebases.remove(self.rng.choice(self.rebases))
        elif self.rebases and (needed or (chance > 0.97 and not calm)):
            (operation,) = self.rng.choices(self.rebases, [operation.speed for operation in self.rebases])
            if self.rng.random() < 0.05:
                operation.speed = self.rng.choice((1, 1, 0.1, 0.01))
            self._go_on(operation, 1 if calm else self.rng.choice((1, 1, 1, 1, 1, 60)))

    def _go_on(self, operation: Operation, steps: int) -> None:
        """Go on with a run of rebase; many steps at once are as if all processes stood still."""
        for _ in range(steps):
            if next(operation.steps, self) is self:
                self.rebases.remove(operation)
                steps = 0
            self.oracle.observe()
            if steps == 0:
                return
            if steps > 1:
                self.world.deliver()

    def _step(self, processes: Sequence[Follower]) -> None:
        for process in self.rng.choices(processes, [process.speed for process in processes]) if processes else ():
            if self.rng.random() < 0.02:
                process.speed = self.rng.choice((1, 1, 0.1, 0.01))
            try:
                next(process.steps)
            except RestartError:
                self._replace(process)
            self.oracle.check_covered()

    def _replace(self, process: Follower) -> None:
        if process is self.api:
            self.api = Follower(self.world)
        elif process.slot is None:
            self.zombies = [zombie for zombie in self.zombies if zombie is not process]
        else:
            self.trainers[process.slot] = Trainer(self.world, process.slot)


class Count(NamedTuple):
    """What came of some schedules."""

    violations: int
    runs: int
    kinds: str


def count(seeds: Iterable[int], faults: Sequence[str], left_out: str | None = None, enough: int = 0) -> Count:
    """Run schedules; stop when there are enough violations (0: never)."""
    kinds: Counter[str] = Counter()
    runs = 0
    for seed in seeds:
        runs += 1
        kind = Run(seed, faults, left_out).violation()
        if kind is not None:
            kinds[f"{kind} (seed {seed})" if left_out is None else kind] += 1
        if enough and kinds.total() >= enough:
            break
    return Count(kinds.total(), runs, ", ".join(kind for kind, _ in kinds.most_common(3)))
