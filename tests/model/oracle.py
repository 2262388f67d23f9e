"""What must be true: recounted from the input, b and B alone, without a word of the protocol.

At any time redo holds all that lies above the fences in the store. When everything has settled:

- every user is the fold of the input: its blocks since its last erase, each learned by one record;
- its ledger holds all of its blocks and no other: waiting below b, added from b to B; none above B;
- the items in the store, in the API process and in every trainer (base and work) are the sum of what was added, each
  contribution made by the record that closed the block or released it, on exactly the state that its accepted
  predecessors left.

A rebase cannot know what the lost log said beyond the store. What the store holds at that moment counts:

- the users of a partition are the fold of the input below its new start;
- what waits is as above; of what was added either all is in the ledgers, and the items are exactly their sum; or none
  is, and the items are taken as they are found: then blocks that were added before are in no ledger from then on,
  and whatever becomes of their users does not move the items;
- the second only if vectors and user fences did not agree;
- after it, only records of the new log count.
"""

from collections import Counter
from collections.abc import Sequence

from tests.model.follower import Follower
from tests.model.trainer import Trainer
from tests.model.world import (
    ADDED,
    BLOCKS_MAX,
    CHAIN,
    FIRST,
    ITEMS,
    PARTITIONS,
    SHARDS,
    USERS,
    WAITING,
    Entry,
    ShardState,
    UserState,
    ViolationError,
    World,
    contribution,
)


class Oracle:
    """Sees the input and the tables, and notices when the store has gone over to a new log."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log, self.starts = FIRST.log, FIRST.starts
        self.found = [0] * ITEMS  # what the items hold beside the ledgers
        self.vested: set[tuple[int, int]] = set()  # partition and input offset of blocks that are in `found`
        self.agreed = False  # vectors and user fences, when all shards were last marked
        self.rebases: Counter[str] = Counter()

    def observe(self) -> None:
        """Look at the store after a step of a rebase."""
        states = [self._state(s) for s in range(SHARDS)]
        if all(state.rebasing for state in states):
            self.agreed = _agree(states)
        logs = {state.genesis.log for state in states}
        if len(logs) == 1 and logs != {self.log}:
            (self.log,) = logs
            self.starts = tuple(states[p % SHARDS].fences[p].next for p in range(PARTITIONS))
            self._check_rebase()

    def check_covered(self) -> None:
        """Redo must hold all that lies above any fence: else nobody could boot from that shard, or flush into it."""
        for s, shard in enumerate(self.world.shards) if any(self.world.kept_from) else ():
            state = shard.state
            if state.marked or state.genesis.topic != self.world.topic:
                continue
            for p, kept_from in enumerate(self.world.kept_from):
                lowest = min(state.vector[p], state.fences[p]) if p % SHARDS == s else state.vector[p]
                if lowest.offset + 1 < kept_from:
                    raise ViolationError("redo needed but trimmed")

    def check(self, trainers: Sequence[Trainer], api: Follower) -> None:
        """Everything, when everything has settled."""
        exact, booked = list(self.found), list(self.found)
        for p in range(PARTITIONS):
            for user, offsets in self._lives(p, self.world.arrived).items():
                state, entries = self._user(p, user, offsets)
                if {key: entry.sign for key, entry in entries.items()} != self._signs(p, offsets):
                    raise ViolationError("ledger")
                for (number, _), entry in entries.items():
                    for i, value in self._parts(p, state, number, entry).items():
                        exact[i] += value
                    for i, value in entry.parts.items():
                        booked[i] += value
        tables = [("Redis items", self._items()), ("API items", api.base)]
        for trainer in trainers:
            tables += [("trainer items", trainer.base), ("work table", trainer.work)]
        for name, table in tables:
            if [value % CHAIN for value in table] != [value % CHAIN for value in exact]:
                raise ViolationError(name)
        if any(table != booked for _, table in tables):
            raise ViolationError("items and ledgers differ")
        if any(table != exact for _, table in tables):
            raise ViolationError("state of a rejected record")

    def _check_rebase(self) -> None:
        """The store has just gone over to another log."""
        whole, added, booked, banded = True, False, list(self.found), set()
        for p in range(PARTITIONS):
            for user, offsets in self._lives(p, self.starts[p]).items():
                _, entries = self._user(p, user, offsets)
                found, expected = {key: entry.sign for key, entry in entries.items()}, self._signs(p, offsets)
                if [key for key in found if found[key] == WAITING] != [key for key in expected if not expected[key]]:
                    raise ViolationError("what waits at a rebase")
                whole, added = whole and found == expected, added or ADDED in found.values()
                banded |= {(p, offset) for offset in offsets if ADDED in expected.values()}
                for entry in entries.values():
                    for i, value in entry.parts.items():
                        booked[i] += value
        if whole and booked == self._items():
            self.rebases["ledgers kept"] += 1
            return
        if self.agreed:
            raise ViolationError("items at a rebase" if whole else "ledgers cleared without need")
        if added:
            raise ViolationError("ledgers kept in doubt")
        self.rebases["ledgers cleared"] += 1
        self.found, self.vested = self._items(), self.vested | banded

    def _lives(self, p: int, end: int) -> dict[int, list[int]]:
        """The input offsets of each user's blocks since its last erase."""
        lives: dict[int, list[int]] = {user: [] for user in range(USERS)}
        for event in self.world.events[p][:end]:
            if event is not None:
                lives[event.user] = [] if event.erases else [*lives[event.user], event.offset]
        return lives

    def _signs(self, p: int, offsets: Sequence[int]) -> dict[tuple[int, int], int]:
        """What the ledger of a user with these blocks must hold."""
        if len(offsets) > BLOCKS_MAX:
            return {}
        if len(offsets) < self.world.blocks_min:
            return {(number, 0): WAITING for number in range(len(offsets))}
        return {(number, 0): ADDED for number, offset in enumerate(offsets) if (p, offset) not in self.vested}

    def _user(self, p: int, user: int, offsets: Sequence[int]) -> tuple[UserState, dict[tuple[int, int], Entry]]:
        """A user in the store, who must have these blocks, and its ledger."""
        shard = self._state(p % SHARDS)
        state = shard.users.get((p, user), ())
        if [offset for offset, _ in state] != offsets:
            raise ViolationError("user state")
        if any((self.world.made_in[nonce] == self.log) != (offset >= self.starts[p]) for offset, nonce in state):
            raise ViolationError("record of another log")
        return state, dict(sorted(shard.ledgers.get((p, user), {}).items()))

    def _parts(self, p: int, state: UserState, number: int, entry: Entry) -> dict[int, int]:
        """What a block of a user contributes."""
        event = self.world.events[p][state[number][0]]
        if event is None or entry.sign == WAITING:
            return {}
        nonce = state[max(number, self.world.blocks_min - 1)][1]  # of the record that reached b, or of its own
        return {i: contribution(p, event.offset, i, nonce, state[:number]) for i in event.items}

    def _items(self) -> list[int]:
        return [self._state(i % SHARDS).items.get(i, 0) for i in range(ITEMS)]

    def _state(self, s: int) -> ShardState:
        """What is in a shard; where a restore is under way, what will be."""
        shard = self.world.shards[s]
        return shard.snapshot if shard.state.restoring else shard.state


def _agree(states: Sequence[ShardState]) -> bool:
    """Whether rows and users of all shards are at the same records."""
    for p in range(PARTITIONS):
        fences = [state.vector[p] for state in states] + [states[p % SHARDS].fences[p]]
        if len({(fence.next, fence.nonce, fence.log) for fence in fences}) > 1:
            return False
    return True
