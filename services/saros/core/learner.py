"""One partition's learning: a micro-batch of events in, signed blocks out.

    feed (sessions)  →  decide (gate)  →  settle (ledger)  →  step  →  fold

Users, sessions and gate belong to the partition; the item table is shared by all partitions of a process. Where the
ledgers of users lie in a store, the caller works in two moves: `open` feeds and decides, and says whose ledgers it
needs; `close` settles and steps. `learn` is both, for whoever keeps ledgers in memory.
"""

from typing import NamedTuple, TypeVar

import numpy as np

from saros.core import codec_users, gate, sessions
from saros.core import counts as c
from saros.core.events import Events, check
from saros.core.fold import fold_buckets
from saros.core.gate import DECISIONS, Decided, GateRules
from saros.core.items import Items
from saros.core.jit import F32, F64, I32, I64, U8, U64, copy_columns
from saros.core.ledger import ITEMS, Ledger, forget
from saros.core.scoring import PROGRESSIVE, scratch
from saros.core.sessions import Feed, Pool, SessionRules, feed, no_pool
from saros.core.settle import Blocks, Desk, settle
from saros.core.step import StepRules, Work, step
from saros.core.timeline import ERASED, Closed, new_timeline, watch, widened
from saros.core.users import FLAGS, OPEN, Users
from saros.errors import LimitError


class Batch(NamedTuple):
    """What one micro-batch did."""

    blocks: Blocks  # in the order the step did them; views that are good until the next batch
    counts: I64  # by `counts.NAMES`
    progressive: F64  # [decisions, 7] sums over blocks as they closed, before they were learned
    erased: I32  # users that were erased


class Learner:
    """Sessions, gate and users of one partition, learning into a shared item table."""

    def __init__(
        self,
        items: Items,
        step_rules: StepRules,
        session_rules: SessionRules | None = None,
        gate_rules: GateRules | None = None,
        *,
        users_max: int = 1_000_000,
        ledger_items_max: int = 1 << 30,
        keep_added: bool = True,
        evict: bool = False,
        ahead: bool = False,
        pool: Pool | None = None,
    ) -> None:
        """With `ahead` memory for `users_max` is set aside, which takes none until it is touched."""
        gate_rules = gate_rules or GateRules()
        session_rules = _held(session_rules or SessionRules(), gate_rules)
        sessions.check_rules(session_rules)
        gate.check_rules(gate_rules)
        self.items, self.step_rules, self.session_rules, self.gate_rules = items, step_rules, session_rules, gate_rules
        self.users = Users(
            items.rules,
            negatives_max=session_rules.negatives_max,
            carried_max=session_rules.carried_max,
            clicked_max=session_rules.clicked_max,
            limit=users_max,
            evict=evict,
            ahead=ahead,
        )
        capacity = self.users.table.capacity
        self.timeline, self.gate = new_timeline(capacity), gate.gate_state(gate_rules)
        self.ledger = Ledger(items.rules.dim, capacity)
        self._ledger_items_max, self._keep_added, self._pool = ledger_items_max, keep_added, pool or no_pool()
        widest = session_rules.negatives_max + session_rules.carried_max + 1
        self._scratch = scratch(widest, items.rules.dim)
        self._closed, self._blocks = Closed.empty(256, 64 * widest), Blocks.empty(256, 64 * widest, items.rules.dim)
        self._decided: Decided = gate.decided(256)
        self._counts = c.zeros()

    def intern(self, keys: U64) -> I32:
        """Return the user slots of the given keys; raise LimitError, with nothing changed that matters, when full."""
        slots, fresh = self.users.intern(keys)
        capacity = self.users.table.capacity
        if capacity > len(self.timeline.user):
            self.timeline = widened(self.timeline, capacity)
            self.ledger.reserve(capacity, 0, 0)
        forget(self.ledger.arrays, fresh)
        if (slots < 0).any():
            raise LimitError(f"more than {self.users.table.size} users are in use; raise SAROS_MODEL__USERS_MAX")
        return slots

    def restore(self, slots: I32, states: bytes | U8, starts: I64, rows: F32) -> None:
        """Fill slots just interned from the bytes and rows of a store; waiting blocks are loaded apart."""
        arrays = self.users.arrays
        if rows.shape != (len(slots), self.items.rules.dim) or not np.isfinite(rows).all():
            raise ValueError(f"rows must be {len(slots)} × {self.items.rules.dim} finite numbers")
        codec_users.unpack_users(arrays, slots, self.session_rules, self.items.rules, states, starts)
        arrays.rows[slots] = rows
        if self.session_rules.hold:
            for slot in slots[arrays.head[slots, FLAGS] & OPEN != 0]:
                watch(self.timeline, arrays, slot, self.session_rules.gap_ms)

    def change_gate(self, rules: GateRules) -> None:
        """Put other gate rules in force, between two batches; estimated bounds stay until the next day."""
        session_rules = _held(self.session_rules, rules)
        gate.check_rules(rules)
        sessions.check_rules(session_rules)
        self.gate_rules, self.session_rules = rules, session_rules
        if rules.blocks_min:
            self.gate.bounds[0] = rules.blocks_min
        if rules.blocks_max:
            self.gate.bounds[1] = rules.blocks_max

    def learn(self, events: Events) -> Batch:
        """Learn a micro-batch; ledgers are in memory."""
        self.open(events)
        return self.close()

    def open(self, events: Events) -> I32:
        """Feed and decide; return the users whose whole ledger must be in memory before `close`."""
        check(events, self.users.table.arrays().state)
        if self.ledger.arrays.used[ITEMS] > self._ledger_items_max:
            raise LimitError("the ledgers in memory hold more items than allowed; lower the gate's window_days or B")
        self._closed.used[:] = 0
        self._counts = c.zeros()
        done = 0
        while True:
            done = feed(
                Feed(self.users.arrays, self.timeline, self.session_rules, self._pool, self._closed, self._counts),
                events,
                done,
            )
            if done == len(events.user):
                break
            self._closed = _doubled(self._closed, Closed.empty(2 * len(self._closed.op), 2 * len(self._closed.items)))
        rows = int(self._closed.used[0])
        if rows > len(self._decided.decision):
            self._decided = gate.decided(2 * rows)
        gate.decide(self._closed, self.users.arrays, self.gate, self.gate_rules, self._decided, self._counts)
        return np.unique(self._closed.user[:rows][self._decided.clears[:rows] == 1])

    def close(self) -> Batch:
        """Settle and step what `open` decided; item rows, counters and totals have changed when it returns."""
        self._blocks.used[:] = 0
        self.ledger.compact()
        done, short = 0, np.zeros(4, np.int64)
        while True:
            desk = Desk(
                self._closed,
                self._decided,
                self.users.arrays,
                self.ledger.arrays,
                self.items.table.arrays(),
                self.items.arrays,
                self._blocks,
                self._counts,
                short,
                self.gate_rules,
                self.items.rules,
                self._keep_added,
                # Others may have let in more: a block without new items has room all the same.
                max(self.items.limit, self.items.table.size),
            )
            done = settle(desk, done)
            if done == self._closed.used[0]:
                break
            self._make_room(short)
        blocks, progressive = self._blocks.filled(), np.zeros((len(DECISIONS), len(PROGRESSIVE)))
        work = Work(
            self.users.arrays,
            self.items.arrays,
            self.ledger.arrays,
            blocks,
            blocks.signed(),
            self.step_rules,
            self.items.rules,
            self._scratch,
            progressive,
            self._counts,
        )
        step(work)
        rows = self._closed.used[0]
        erased = self._closed.user[:rows][self._closed.op[:rows] == ERASED]
        if len(erased):
            self.ledger.wipe()
        return Batch(blocks, self._counts, progressive, erased)

    def _make_room(self, short: I64) -> None:
        """Grow what `settle` found too small for its next row."""
        rows, items, own, fresh = (int(x) for x in short)
        if self._blocks.used[0] + rows > len(self._blocks.user) or self._blocks.used[1] + items > len(
            self._blocks.items
        ):
            bigger = Blocks.empty(
                2 * len(self._blocks.user) + rows, 2 * len(self._blocks.items) + items, self.items.rules.dim
            )
            self._blocks = _doubled(self._blocks, bigger)
        self.ledger.reserve(0, 1, own)
        self.items.reserve(fresh)

    def accept(self, batch: Batch) -> None:
        """Fold the daily buckets of a batch that counts."""
        fold_buckets(self.items.arrays, batch.blocks.signed())


def _held(session_rules: SessionRules, gate_rules: GateRules) -> SessionRules:
    """Return the session rules with what the gate says of holding blocks."""
    return session_rules._replace(hold=gate_rules.mode == gate.SESSION, wait_ms=gate_rules.wait_ms)


_Columns = TypeVar("_Columns", Closed, Blocks)


def _doubled(old: _Columns, bigger: _Columns) -> _Columns:
    """Copy filled columns into longer ones."""
    copy_columns(bigger, old)
    return bigger
