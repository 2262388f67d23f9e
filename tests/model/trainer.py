"""A trainer: follows redo, writes the item shards and users of the partitions it owns, and sends records."""

from collections.abc import Mapping

from tests.model.batch import Batch, Head, ends_ledger
from tests.model.books import ledger_behind
from tests.model.owner import Owner, User
from tests.model.world import (
    IN_FLIGHT_MAX,
    ITEMS,
    PARTITIONS,
    SHARDS,
    Event,
    Ledger,
    Packet,
    Record,
    ShardState,
    Steps,
    Vector,
    ViolationError,
    World,
)


class Trainer(Owner):
    """`work` is base and the own records in flight."""

    def __init__(self, world: World, slot: int) -> None:
        super().__init__(world)
        self.slot = slot  # None: it was replaced and does not know
        self.own: set[int] = set()
        self.reload: set[int] = set()  # partitions whose users are to be dropped and read again
        self.written: dict[int, Vector | None] = {}  # shard -> vector last written; at first the one it was read with
        # Shard -> the vector that has to be there, the one to write, and rows.
        self.landing: dict[int, tuple[Vector, Vector, dict[int, int]]] = {}
        self.work: list[int] = []

    def run(self) -> Steps[None]:
        """Do one thing after the other, for ever."""
        yield from self.boot()
        self.work = list(self.base)
        self.written = dict(self.boot_vector)  # rows are counted from there
        while True:
            if self.slot is not None and self.rng.random() < 0.2:  # learns of a rebalance
                self.reload |= self.own ^ self.world.assignment[self.slot]
                self.own = set(self.world.assignment[self.slot])
            self._notice_failures()
            self.fold(self.rng.randrange(PARTITIONS), self.rng.randrange(4))
            yield
            yield from self._act(self.rng.random())

    def _act(self, chance: float) -> Steps[None]:
        if self.reload:
            yield from self._recover()
        elif self.own and chance < 0.35:
            yield from self._flush_items(self.rng.choice([s for s in range(SHARDS) if s % PARTITIONS in self.own]))
        elif self.own and chance < 0.55:
            p = self.rng.choice(sorted(self.own))
            if chance < 0.45:
                yield from self.flush_users(p, self.rng.choice((1, 1, 9)))
            else:
                self.begin_flush(p)
                yield from self.write_behind(p)
        elif chance < 0.65:
            for key in [key for key in self.cache if not (self.dirty(key) and self.rule("dirty"))]:
                if self.rng.random() < 0.5:
                    self.forget(key)
        elif self.own:
            yield from self._produce(self.rng.choice(sorted(self.own)))

    def on_record(self, p: int, offset: int, record: Record, accepted: bool, news: Mapping[int, int]) -> None:
        """Learn what became of an own record, or take in another's."""
        nonce = record.nonce
        if not self.rule("nonce"):
            flying = self.in_flight[p].items()
            alike = (
                n for n, packet in flying if (packet.record.first, packet.record.end) == (record.first, record.end)
            )
            nonce = next(alike, nonce)
        mine = self.in_flight[p].pop(nonce, None)
        if accepted:
            self.accepted[p].append((self.at[p], record))
        if accepted and mine:
            self.accepted_at[nonce] = offset
        elif accepted:
            for i, value in news.items():
                self.work[i] += value
            if p in self.own and self.rule("foreign"):
                self.reload.add(p)
        elif mine:
            self.reload.add(p)

    def _notice_failures(self) -> None:
        for p in range(PARTITIONS):
            for nonce in [nonce for nonce, packet in self.in_flight[p].items() if packet.failed]:
                del self.in_flight[p][nonce]
                self.reload.add(p)

    def _recover(self) -> Steps[None]:
        """Go on from base, and from the users in the store."""
        if self.rng.random() < 0.5 and self.rule("work") and self.rule("drain"):
            partitions = self._take_out()
        else:
            partitions = yield from self._drained()
        for key in [key for key in self.cache if key[0] in partitions and self.rule("drop users")]:
            self.forget(key)
        for p in sorted(partitions & self.own):
            if self.rule("reload flush") or self.expected[p] == self.start[p]:
                yield from self.flush_users(p)

    def _drained(self) -> Steps[set[int]]:
        """Wait for all that is in flight, of any partition; return which partitions begin anew."""
        while any(self.in_flight) and self.rule("drain"):
            yield
            self._notice_failures()
            for p in range(PARTITIONS):
                self.fold(p)
        if self.rule("work"):
            self.work = list(self.base)
        partitions, self.reload = self.reload, set()
        return partitions

    def _take_out(self) -> set[int]:
        """Instead of that, take what these partitions have in flight out of work: what others have flies on. If it is
        accepted all the same, it is another's."""
        partitions, self.reload = self.reload, set()
        for p in partitions:
            self.in_flight[p].clear()
        flying = [packet.record.items for packets in self.in_flight for packet in packets.values()]
        self.work = [value + sum(items.get(i, 0) for items in flying) for i, value in enumerate(self.base)]
        return partitions

    def _flush_items(self, s: int) -> Steps[None]:
        """Let an item shard be written; what is on its way to it lands first."""
        if s not in self.landing:
            self._begin_items(s)
            yield
            if self.rng.random() < 0.5:
                return
        self._land_items(s)

    def _begin_items(self, s: int) -> None:
        stored = self.world.shards[s].state.vector
        self.same_log(stored[0])
        for p in range(PARTITIONS):
            if self.rule("catch up"):
                self.fold_to(p, stored[p].offset)
            if self.rule("boot fence"):
                self.fold_to(p, self.boot_vector[s][p].offset)
        self.same_topic()
        whole = stored != self.written.get(s) and self.rule("whole shard")
        rows = {i: self.base[i] for i in range(s, ITEMS, SHARDS) if whole or i in self.changed[s]}
        self.landing[s], self.changed[s] = (stored, tuple(self.at), rows), set()

    def _land_items(self, s: int) -> None:
        stored, vector, rows = self.landing.pop(s)

        def write(state: ShardState) -> bool:
            if state.marked or (state.vector != stored and self.rule("vector cas")):
                return False
            state.items.update(rows)
            state.vector = vector
            return True

        written = self.world.shards[s].write(write)
        self.written[s] = vector if written else None
        if not written:
            self.changed[s] |= rows.keys()

    def _head(self, p: int) -> Head:
        packets = list(self.in_flight[p].values())
        if packets:
            return Head(packets[-1].record.end, packets[-1].record.nonce)
        return Head(self.at[p].next, self.at[p].nonce)

    def _produce(self, p: int) -> Steps[None]:
        """Make a micro-batch of what comes next in the input, and send its record."""
        if self.rng.random() < 0.5:
            self.fold(p)
        head = self._head(p)
        end = min(self.world.arrived, head.first + self.rng.randrange(1, 4))
        if self.reload or head.first >= end or len(self.in_flight[p]) >= IN_FLIGHT_MAX:
            return
        events = [event for event in self.world.events[p][head.first : end] if event]
        users: dict[int, User] = {}
        for user in sorted({event.user for event in events}):
            users[user] = yield from self.cached(p, user)
        ledgers = yield from self._ending_ledgers(p, events, users)
        yield
        if not self.reload and self._head(p) == head:
            self._send(p, *Batch(self.world, p, self.genesis.log).compute(head, end, events, users, ledgers))

    def _ending_ledgers(self, p: int, events: list[Event], users: dict[int, User]) -> Steps[dict[int, Ledger]]:
        """The ledgers that end in this micro-batch."""
        counts, ledgers = {user: len(found.state) for user, found in users.items()}, {}
        for event in events:
            counts[event.user] = 0 if event.erases else counts[event.user] + 1
            if ends_ledger(counts[event.user]):
                ledgers[event.user] = yield from self._whole_ledger(p, event.user)
        return ledgers

    def _whole_ledger(self, p: int, user: int) -> Steps[Ledger]:
        """A ledger as the last record left it, in flight or not; writes land while it is read."""
        _, ledger = yield from self.read(p, user, "fenced ledger")
        fence = self.world.shard_of(p).state.fences[p] if self.rule("fenced ledger") else self.expected[p]
        if self.rng.random() < 0.5:
            yield from self.write_behind(p)
        if self.rule("take-back"):
            for record in self.behind(p, fence):
                ledger = ledger_behind(self.world, ledger, user, record)
        return ledger

    def _send(self, p: int, record: Record, users: dict[int, User]) -> None:
        flying = [packet.record.items for packets in self.in_flight for packet in packets.values()]
        if self.work != [value + sum(items.get(i, 0) for items in flying) for i, value in enumerate(self.base)]:
            raise ViolationError("work table")
        self.in_flight[p][record.nonce] = packet = Packet(p, record)
        self.world.network.append(packet)
        self.sent.add(record.nonce)
        for i, value in record.items.items():
            self.work[i] += value
        for user, found in users.items():
            self.cache[p, user], self.touched[p, user] = found, record.nonce
