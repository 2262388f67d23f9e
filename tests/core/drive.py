"""The real learner, driven with the twin's events and read back in the twin's words."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from saros.core import counts as c
from saros.core import settle, users
from saros.core.codec_users import pack_users
from saros.core.events import KINDS, Events
from saros.core.fold import buckets_at
from saros.core.gate import DECISIONS, MODES, GateRules
from saros.core.items import DAYS, Items
from saros.core.jit import I64, U16, U64
from saros.core.learner import Batch, Learner
from saros.core.ledger import ENTRIES, NIL
from saros.core.rows import ONE, live_rows
from saros.core.sessions import RULES, Pool, SessionRules
from saros.core.step import live_step
from saros.core.timeline import BLOCK, ERASED, EXPIRED, NEW_DAY, SESSION_END, Closed
from tests.naive import gate as naive_gate
from tests.naive import sessions as naive_sessions
from tests.naive.gate import Decision, Entry, Partition, Row, item_buckets, item_counters
from tests.naive.sessions import DAY_MS, Block, Erased, Event, Expired, NewDay, Op, SessionEnd, Weighted

STEP_COUNTERS = ("clamped", "non_finite", "far")  # the step's own; the twin knows nothing of them
_FLAGS = ("RESET", "SCORE", "ADD", "MOVE", "STORED")  # KEEP tells the step where to write, not what to do

_ENDS: dict[int, Callable[[int, int], Op]] = {SESSION_END: SessionEnd, ERASED: Erased, EXPIRED: Expired}


def session_rules(rules: naive_sessions.Rules) -> SessionRules:
    """The twin's rules of sessions for the core."""
    return SessionRules(**{**vars(rules), "rule": RULES[rules.rule]})


def gate_rules(rules: naive_gate.Rules) -> GateRules:
    """The twin's rules of the gate for the core."""
    own = {name: value for name, value in vars(rules).items() if name in GateRules._fields}
    return GateRules(**{**own, "mode": MODES[rules.mode]})


def columns(events: Sequence[Event], slots: Mapping[int, int]) -> Events:
    """Events as columns; a tick has no user."""
    return Events.of(
        [-1 if event.kind == "tick" else slots[event.user] for event in events],
        [KINDS[event.kind] for event in events],
        [item for event in events for item in event.items],
        [event.time_ms for event in events],
        start=np.cumsum([0, *(len(event.items) for event in events)]),
        log_ms=[event.log_ms for event in events],
        event_id=[event.event_id for event in events],
        session=np.array([event.session for event in events], np.uint64),
        weight=[event.weight for event in events],
        bot=[event.bot for event in events],
    )


def pool_of(pool: Mapping[int, Sequence[int]], slots: Mapping[int, int]) -> Pool:
    """The pool in the order of the slots."""
    rows = [pool.get(user, ()) for user in sorted(slots, key=lambda user: slots[user])]
    start = np.cumsum([0, *(len(row) for row in rows)])
    return Pool(start.astype(np.int64), np.array([item for row in rows for item in row], np.uint64))


def _pairs(items: U64, weights: U16, first: int, count: int) -> Weighted:
    """Some items with their weights."""
    chosen = slice(first, first + count)
    return tuple(zip(items[chosen].tolist(), weights[chosen].tolist(), strict=True))


class Run:
    """A learner of one partition, with all its users known beforehand."""

    def __init__(
        self,
        sessions: naive_sessions.Rules,
        gate: naive_gate.Rules,
        keys: Sequence[int],
        pool: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.slots = {user: slot for slot, user in enumerate(keys)}
        self.learner = Learner(
            Items(live_rows(gate.dim), min(gate.items_max, 256)),
            live_step(),
            session_rules(sessions),
            gate_rules(gate),
            users_max=len(keys),
            pool=None if pool is None else pool_of(pool, self.slots),
        )
        assert self.learner.intern(np.array(keys, np.uint64)).tolist() == list(range(len(keys)))
        self.ops: list[Op] = []
        self.rows: list[Row] = []
        self.decisions: list[Decision] = []
        self.progressive = np.zeros(0)
        self._counts: I64 = c.zeros()
        self._lives: Counter[int] = Counter()

    def learn(self, events: Sequence[Event]) -> list[Row]:
        """Learn a micro-batch; return what its step was told."""
        batch = self.learner.learn(columns(events, self.slots))
        self.learner.accept(batch)
        self._counts += batch.counts
        self.progressive = batch.progressive
        self.ops += self.told_by(self.learner._closed)
        lives = self._lives.copy()
        rows = self._told(batch)
        self._decide(lives, rows)
        self.rows += rows
        return rows

    def change_gate(self, rules: naive_gate.Rules) -> None:
        """Put other gate rules in force."""
        self.learner.change_gate(gate_rules(rules))

    def come_back(self, users: Iterable[int]) -> None:
        """Let users leave memory and come back, with nothing but the bytes that a store has of them."""
        slots, arrays = np.array([self.slots[user] for user in users], np.int32), self.learner.users.arrays
        data, starts = pack_users(arrays, slots, self.learner.session_rules)
        self.learner.restore(slots, data, starts, arrays.rows[slots].copy())

    def _user(self, slot: int) -> int:
        return int(self.learner.users.arrays.keys[slot])

    def told_by(self, closed: Closed) -> list[Op]:
        """What `feed` told the gate; where repeats are ignored, the gate has taken them out of the blocks."""
        ops: list[Op] = []
        for row in range(int(closed.used[0])):
            op, time, first = int(closed.op[row]), int(closed.time_ms[row]), int(closed.start[row])
            if op == NEW_DAY:
                ops.append(NewDay(time))
                continue
            user = self._user(closed.user[row])
            if op == BLOCK:
                middle = first + int(closed.negatives[row])
                negatives = _pairs(closed.items, closed.weights, first, middle - first)
                positives = _pairs(closed.items, closed.weights, middle, int(closed.positives[row]))
                ops.append(Block(user, time, negatives, positives))
            else:
                ops.append(_ENDS[op](user, time))
        return ops

    def _told(self, batch: Batch) -> list[Row]:
        """The batch's blocks as the step saw them, and the gate's word on those that closed."""
        blocks, rows = batch.blocks, []
        for b in range(len(blocks.user)):
            user, first = self._user(blocks.user[b]), int(blocks.start[b])
            middle = first + int(blocks.negatives[b])
            flags = frozenset(name for name in _FLAGS if blocks.flags[b] & getattr(settle, name))
            row = Row(
                user,
                self._lives[user],
                int(blocks.number[b]),
                int(blocks.time_ms[b]),
                int(blocks.sign[b]),
                DECISIONS[blocks.decision[b]],
                flags,
                _pairs(blocks.items, blocks.weights, first, middle - first),
                _pairs(blocks.items, blocks.weights, middle, int(blocks.positives[b])),
            )
            rows.append(row)
            self._lives[user] += "RESET" in flags
        return rows

    def _decide(self, lives: Counter[int], rows: Sequence[Row]) -> None:
        """Note the gate's word on each block; that the item table is full is found out later, when rows are told."""
        closed, decided = self.learner._closed, self.learner._decided
        refused = {(row.user, row.life, row.number) for row in rows if row.decision == "items_full"}
        for r in range(int(closed.used[0])):
            op, user = int(closed.op[r]), self._user(closed.user[r])
            if op == BLOCK:
                block, word = (user, lives[user], int(decided.number[r])), DECISIONS[decided.decision[r]]
                fresh = word == "learn" or self.learner.gate_rules.mode == MODES["shadow"]
                self.decisions.append(Decision(*block, "items_full" if fresh and block in refused else word))
            lives[user] += op in (ERASED, EXPIRED)

    def counts(self) -> Counter[str]:
        """The counters that the twin has too, zeros left out."""
        return Counter({name: n for name, n in c.named(self._counts).items() if n != 0 and name not in STEP_COUNTERS})

    def bounds(self) -> tuple[int, int]:
        """b and B in force."""
        return int(self.learner.gate.bounds[0]), int(self.learner.gate.bounds[1])

    def moves(self) -> dict[int, int]:
        """n_u of every user whose row has moved."""
        moved = {user: int(self.learner.users.arrays.gate[slot, users.MOVED]) for user, slot in self.slots.items()}
        return {user: moves for user, moves in moved.items() if moves > 0}

    def taken(self) -> dict[int, tuple[int, dict[int, int]]]:
        """Of each user of whom blocks were taken back: how many, and by day those in the window."""
        found, arrays = {}, self.learner.users.arrays
        for user, slot in self.slots.items():
            newest, days = int(arrays.gate[slot, users.DAY]), range(DAYS)
            by_day = {newest - age: int(arrays.taken[slot, (newest - age) % DAYS]) for age in days}
            found[user] = int(arrays.gate[slot, users.TAKEN]), {day: n for day, n in by_day.items() if n != 0}
        return {user: taken for user, taken in found.items() if taken != (0, {})}

    def states(self) -> dict[int, bytes]:
        """The bytes of every user's state, but for the levels, which depend on rows."""
        arrays, slots = self.learner.users.arrays, np.array(list(self.slots.values()), np.int32)
        data, starts = pack_users(arrays, slots, self.learner.session_rules)
        states = [data[first:end].tobytes() for first, end in pairwise(starts)]
        return {user: state[:44] + state[52:] for user, state in zip(self.slots, states, strict=True)}

    def pending(self) -> tuple[int, int]:
        """How many negatives (not yet in a block) and clicks are pending, over all users."""
        head = self.learner.users.arrays.head[: len(self.slots)]
        unused = head[:, users.FLAGS] & users.RUN_DONE == 0
        return int(head[unused, users.NEGATIVES].sum()), int(head[:, users.CARRIED].sum())

    def ledgers(self) -> dict[int, list[Entry]]:
        """The ledgers that hold something."""
        ledgers = {user: self._ledger(slot) for user, slot in self.slots.items()}
        return {user: entries for user, entries in ledgers.items() if entries}

    def _ledger(self, slot: int) -> list[Entry]:
        ledger, entries = self.learner.ledger.arrays, []
        entry = int(ledger.head[slot])
        while entry != NIL:
            first, negatives = int(ledger.start[entry]), int(ledger.negatives[entry])
            entries.append(
                Entry(
                    int(ledger.number[entry]),
                    int(ledger.time_ms[entry]),
                    int(ledger.sign[entry]),
                    bool(ledger.moved[entry] or ledger.sign[entry] == 1),
                    _pairs(ledger.items, ledger.weights, first, negatives),
                    _pairs(ledger.items, ledger.weights, first + negatives, int(ledger.positives[entry])),
                )
            )
            entry = int(ledger.following[entry])
        return entries

    def item_slots(self) -> dict[int, int]:
        """The slot of every item that has one."""
        table = self.learner.items.table
        return {int(table.keys[slot]): int(slot) for slot in table.slots()}

    def item_counters(self) -> dict[int, tuple[int, int, int]]:
        """Clicked, shown and updates of every item, those with zeros left out."""
        counters = self.learner.items.arrays.counters
        rows = {item: counters[slot].tolist() for item, slot in self.item_slots().items()}
        return {item: (row[0], row[1], row[2]) for item, row in rows.items() if any(row)}

    def item_buckets(self, day: int) -> dict[int, dict[int, tuple[int, int]]]:
        """Clicked and shown of every item by day, read at a day that no folded day lies beyond; zeros are left out."""
        clicked, shown = buckets_at(self.learner.items.arrays, day)
        buckets = {}
        for item, slot in self.item_slots().items():
            days = {day - age: (int(clicked[slot, age]), int(shown[slot, age])) for age in range(DAYS)}
            buckets[item] = {day: counts for day, counts in days.items() if any(counts)}
        return {item: days for item, days in buckets.items() if days}

    def totals(self) -> tuple[int, int]:
        """Clicked and shown, over all items."""
        return int(self.learner.items.arrays.totals[0]), int(self.learner.items.arrays.totals[1])

    def item_rows(self) -> dict[int, list[int]]:
        """The row of every item, on the grid."""
        rows = self.learner.items.arrays.rows
        return {item: rows[slot].tolist() for item, slot in self.item_slots().items()}

    def folded(self) -> dict[int, list[int]]:
        """What the items' rows ought to be: where they start, and on top what stands added in the ledgers."""
        ledger, rows = self.learner.ledger.arrays, self.start_rows(self.item_slots())
        for entry in np.flatnonzero(ledger.sign[: ledger.used[ENTRIES]] == 1):
            first = ledger.start[entry]
            for k in range(first, first + ledger.negatives[entry] + ledger.positives[entry]):
                moved = ledger.coefs[k] * (ledger.rows[entry] * np.float32(ONE))
                item = int(ledger.items[k])
                rows[item] = (np.array(rows[item]) + np.rint(moved).astype(np.int64)).tolist()
        return rows

    def start_rows(self, keys: Iterable[int]) -> dict[int, list[int]]:
        """The rows that items start with."""
        wanted = np.array(list(keys), np.uint64)
        items = Items(self.learner.items.rules, max(1, len(wanted)))
        return dict(zip(wanted.tolist(), items.arrays.rows[items.intern(wanted)].tolist(), strict=True))

    def user_rows(self) -> dict[int, bytes]:
        """The row of every user, to the bit."""
        rows = self.learner.users.arrays.rows
        return {user: rows[slot].tobytes() for user, slot in self.slots.items()}


def told_alike(rows: Sequence[Row]) -> list[Row]:
    """Rows for a comparison: with a block that has lost all its clicks the step does nothing, whatever it is told."""
    return [row if row.positives else replace(row, flags=row.flags - {"SCORE", "MOVE"}) for row in rows]


def compare(run: Run, twin: Partition) -> None:
    """Assert that the core and its twin have come to the same, in everything that both know."""
    assert run.counts() == +twin.counts()
    assert run.decisions == twin.gate.decisions
    assert run.bounds() == twin.gate.bounds
    assert run.ledgers() == twin.ledgers()
    assert run.moves() == twin.moves()
    assert run.taken() == twin.taken()
    assert run.pending() == twin.sessions.pending()
    counters = item_counters(twin.rows)
    assert run.item_counters() == counters
    assert run.totals() == (sum(n[0] for n in counters.values()), sum(n[1] for n in counters.values()))
    day = max((row.time_ms // DAY_MS for row in twin.rows), default=0)
    assert run.item_buckets(day) == item_buckets(twin.rows, day)
    assert np.isfinite(run.progressive).all()
