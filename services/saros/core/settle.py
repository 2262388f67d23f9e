"""From the gate's decisions to an ordered list of blocks for the step: score, add, move, take back.

`settle` walks the decided rows once, keeps the ledger, gives new items their slots, and writes `Blocks`. It is cut at
any row when a column is short, and goes on from there. A block that names a new item when the item table is full is
refused whole: no slot is taken for it.

How many of a user's blocks were taken back when it passed B is counted here, and must not depend on how events were cut
into batches: the blocks that go out of the ledger, and the doomed ones, which another cut would have added and taken
back. (A doomed block that has no room in the item table would have been refused. Which one finds the last place in it
does depend on the cut: doomed blocks take none.)
"""

from typing import NamedTuple

import numpy as np

from saros.core import counts as c
from saros.core.events import DAY_MS
from saros.core.fold import SignedBlocks
from saros.core.gate import (
    COUNTER_OF,
    DAYS,
    HOLD,
    ITEMS_FULL,
    LEARN,
    NONE,
    SHADOW,
    WAIT,
    Decided,
    GateRules,
    entry_bytes,
)
from saros.core.items import ItemArrays, intern_item
from saros.core.jit import F32, I32, I64, U8, U16, U64, as_int, kernel, line_zeros
from saros.core.ledger import ENTRIES, FREE, ITEMS, NIL, LedgerArrays, append, drop
from saros.core.rows import RowRules
from saros.core.table import SIZE, TableArrays, probe
from saros.core.timeline import BLOCK, ERASED, EXPIRED, NEW_DAY, Closed, day_of
from saros.core.users import BYTES, DAY, TAKEN, WOULD, UserArrays, reset_taken

# Bits of `Blocks.flags`: what the step does with a block, in this order.
RESET = 1  # the user's row starts anew; nothing else is in such a row
SCORE = 2  # progressive validation: the block has just closed
ADD = 4  # fold it with +1
MOVE = 8  # the user's own row learns from it
STORED = 16  # coefficients come from the row stored in the ledger, not from the user's row of now
KEEP = 32  # write coefficients to the ledger
# ... and what became of the ledger, for whoever keeps it in a store. In row order: CLEARED ends all that stood there;
# a BOOKED block is written under its number, in place of one that waited; an ITEMS_FULL one is deleted.
BOOKED = 64
CLEARED = 128


class Blocks(NamedTuple):
    """Columns of n blocks with m items; `used` says how many of each are filled."""

    user: I32
    number: I32
    time_ms: I64
    sign: I32  # +1 added, -1 taken back, 0 neither
    flags: U8
    decision: U8
    entry: I32  # in the ledger in memory, or -1
    arena: I64  # where the entry's items stand in the ledger
    start: I64
    negatives: I32
    positives: I32
    rows: F32  # [n, d] the user row the coefficients belong to
    items: U64
    slots: I32  # item slots; -1: not in the item table, for blocks that are not added
    weights: U16
    coefs: F32
    used: I64  # [2]

    @classmethod
    def empty(cls, rows: int, items: int, dim: int) -> "Blocks":
        """Return room for so many blocks and items."""
        zeros = np.zeros
        return cls(
            user=zeros(rows, np.int32),
            number=zeros(rows, np.int32),
            time_ms=zeros(rows, np.int64),
            sign=zeros(rows, np.int32),
            flags=zeros(rows, np.uint8),
            decision=zeros(rows, np.uint8),
            entry=zeros(rows, np.int32),
            arena=zeros(rows, np.int64),
            start=zeros(rows, np.int64),
            negatives=zeros(rows, np.int32),
            positives=zeros(rows, np.int32),
            rows=line_zeros((rows, dim), np.float32),
            items=zeros(items, np.uint64),
            slots=zeros(items, np.int32),
            weights=zeros(items, np.uint16),
            coefs=zeros(items, np.float32),
            used=zeros(2, np.int64),
        )

    def filled(self) -> "Blocks":
        """Return the filled part (views)."""
        rows, items = int(self.used[0]), int(self.used[1])
        columns = [column[:rows] for column in self[:12]] + [column[:items] for column in self[12:16]]
        return Blocks._make([*columns, self.used])

    def signed(self) -> SignedBlocks:
        """Return what a fold needs."""
        day = (self.time_ms // DAY_MS).astype(np.int32)
        return SignedBlocks(
            self.sign, day, self.start, self.negatives, self.positives, self.rows, self.slots, self.coefs
        )


class Desk(NamedTuple):
    """All that `settle` reads and writes."""

    closed: Closed
    decided: Decided
    users: UserArrays
    ledger: LedgerArrays
    table: TableArrays
    items: ItemArrays
    blocks: Blocks
    counts: I64
    short: I64  # [4] out: blocks, block items, ledger entries, new items that the next row may need
    gate: GateRules
    rows: RowRules
    keep_added: bool
    items_max: int


@kernel
def _put(blocks: Blocks, user: int, number: int, time_ms: int, flags: int, decision: int) -> int:
    """Append a block without items and return its row."""
    row = blocks.used[0]
    blocks.used[0] = row + 1
    blocks.user[row], blocks.number[row], blocks.time_ms[row] = user, number, time_ms
    blocks.flags[row], blocks.decision[row], blocks.sign[row] = flags, decision, 1 if flags & ADD else 0
    blocks.entry[row], blocks.arena[row] = NIL, 0
    blocks.start[row], blocks.negatives[row], blocks.positives[row] = blocks.used[1], 0, 0
    return row


@kernel
def _put_items(
    blocks: Blocks, table: TableArrays, negatives: int, positives: int, items: U64, weights: U16, first: int
) -> None:
    """Give the newest block its items and the slots they have."""
    at = blocks.used[1]
    for k in range(negatives + positives):
        blocks.items[at + k], blocks.weights[at + k] = items[first + k], weights[first + k]
        blocks.slots[at + k], blocks.coefs[at + k] = probe(table, items[first + k]), 0
    row = blocks.used[0] - 1
    blocks.negatives[row], blocks.positives[row] = negatives, positives
    blocks.used[1] = at + negatives + positives


@kernel
def _put_entry(blocks: Blocks, ledger: LedgerArrays, table: TableArrays, user: int, entry: int, flags: int) -> int:
    """Append a block of the ledger and return its row."""
    row = _put(blocks, user, as_int(ledger.number[entry]), ledger.time_ms[entry], flags, LEARN)
    negatives, positives = as_int(ledger.negatives[entry]), as_int(ledger.positives[entry])
    _put_items(blocks, table, negatives, positives, ledger.items, ledger.weights, ledger.start[entry])
    return row


@kernel
def _fits(blocks: Blocks, row: int, table: TableArrays, items_max: int) -> bool:
    """True if the item table has room for the new items of the newest block."""
    fresh = 0
    for k in range(blocks.start[row], blocks.used[1]):
        fresh += blocks.slots[k] < 0
    return fresh <= items_max - table.counters[SIZE]


@kernel
def _admit(blocks: Blocks, row: int, table: TableArrays, items: ItemArrays, rows: RowRules, items_max: int) -> bool:
    """Give the new items of the newest block slots, all or none; False: the item table is full."""
    if not _fits(blocks, row, table, items_max):
        return False
    for k in range(blocks.start[row], blocks.used[1]):
        if blocks.slots[k] < 0:
            blocks.slots[k] = intern_item(table, items, blocks.items[k], rows)
    return True


@kernel
def _refuse(blocks: Blocks, row: int, counts: I64) -> None:
    """Turn an added block into one that teaches nothing."""
    blocks.flags[row] &= SCORE
    blocks.sign[row], blocks.decision[row], blocks.entry[row] = 0, ITEMS_FULL, NIL
    counts[c.ITEMS_FULL] += 1


@kernel
def _give_back(blocks: Blocks, row: int, gate: I32, column: int, dim: int, positives: int) -> None:
    """Give back the ledger bytes of a block that was refused after it was counted."""
    user, day = blocks.user[row], day_of(blocks.time_ms[row])
    if gate[user, DAY] - DAYS < day <= gate[user, DAY]:
        place = column + (day & (DAYS - 1))
        gate[user, place] = max(0, gate[user, place] - entry_bytes(dim, blocks.negatives[row] + positives))


@kernel
def _note_taken(users: UserArrays, user: int, time_ms: int, window_days: int) -> None:
    """Count a block that is taken back. The gate has come to the batch's end: its window then is the one to be in."""
    day, newest = day_of(time_ms), users.gate[user, DAY]
    users.gate[user, TAKEN] += 1
    if newest - window_days < day <= newest:
        users.taken[user, day & (DAYS - 1)] += 1


@kernel
def _vest(ledger: LedgerArrays, user: int, low: int, counts: I64) -> None:
    """End the entries that have left the window: added ones are vested, waiting ones are dropped."""
    entry = as_int(ledger.head[user])
    while entry != NIL and ledger.number[entry] < low:
        counts[c.VESTED if ledger.sign[entry] == 1 else c.WAITING_EXPIRED] += 1
        entry = drop(ledger, user, NIL, entry)


@kernel
def _take_back(desk: Desk, user: int, expired: bool) -> None:
    """End a user's ledger: what was added goes out with -1, or is vested if the user expired; what waits is dropped."""
    blocks, ledger, counts = desk.blocks, desk.ledger, desk.counts
    entry = as_int(ledger.head[user])
    while entry != NIL:
        if ledger.sign[entry] == 0:
            counts[c.WAITING_DROPPED] += 1
        elif expired:
            counts[c.VESTED] += 1
        else:
            row, at = _put_entry(blocks, ledger, desk.table, user, entry, 0), ledger.start[entry]
            _note_taken(desk.users, user, blocks.time_ms[row], desk.gate.window_days)
            blocks.sign[row], blocks.decision[row] = -1, NONE
            for k in range(blocks.rows.shape[1]):
                blocks.rows[row, k] = ledger.rows[entry, k]
            for k in range(blocks.negatives[row] + blocks.positives[row]):
                blocks.coefs[blocks.start[row] + k] = ledger.coefs[at + k]
            counts[c.TAKEN_BACK] += 1
        entry = drop(ledger, user, NIL, entry)


@kernel
def _release(desk: Desk, user: int, doom: int) -> None:
    """Add what waits, in block order; a block whose row has not moved yet moves it now, doomed or not."""
    ledger, blocks = desk.ledger, desk.blocks
    before, entry = NIL, as_int(ledger.head[user])
    while entry != NIL and ledger.waiting[user] > 0:
        if ledger.sign[entry] != 0:
            before, entry = entry, as_int(ledger.following[entry])
            continue
        admitted = ledger.number[entry] < doom
        flags = STORED if ledger.moved[entry] else MOVE
        if admitted:
            flags |= ADD | BOOKED | (KEEP if desk.keep_added else 0)
        row = _put_entry(blocks, ledger, desk.table, user, entry, flags)
        blocks.entry[row], blocks.arena[row] = entry, ledger.start[entry]
        desk.counts[c.RELEASED] += 1
        if admitted and not _admit(blocks, row, desk.table, desk.items, desk.rows, desk.items_max):
            _give_back(blocks, row, desk.users.gate, BYTES, desk.rows.dim, blocks.positives[row])
            _give_back(blocks, row, desk.users.gate, WOULD, desk.rows.dim, blocks.positives[row])
            _refuse(blocks, row, desk.counts)
            admitted = False
        elif not admitted and _fits(blocks, row, desk.table, desk.items_max):
            _note_taken(desk.users, user, blocks.time_ms[row], desk.gate.window_days)
        if admitted and desk.keep_added:
            ledger.sign[entry], ledger.moved[entry] = 1, 1
            ledger.waiting[user] -= 1
            before, entry = entry, as_int(ledger.following[entry])
        else:
            entry = drop(ledger, user, before, entry)


@kernel
def _settle_block(desk: Desk, r: int) -> None:
    """Put one closed block before the step and, if it waits or is kept, into the ledger."""
    closed, decision = desk.closed, as_int(desk.decided.decision[r])
    user, number, time_ms = as_int(closed.user[r]), as_int(desk.decided.number[r]), closed.time_ms[r]
    doomed = number >= desk.decided.doom[r]
    shadow, booked = desk.gate.mode == SHADOW, desk.decided.books[r] == 1
    flags = SCORE | (CLEARED if desk.decided.clears[r] else 0)
    if shadow:
        flags |= MOVE if doomed and booked else ADD | MOVE
    elif decision == LEARN:
        flags |= MOVE if doomed else ADD | MOVE
    elif decision == HOLD or (desk.gate.own_row and closed.positives[r] > 0):
        flags |= MOVE
    row = _put(desk.blocks, user, number, time_ms, flags, decision)
    negatives, positives, first = as_int(closed.negatives[r]), as_int(closed.positives[r]), closed.start[r]
    _put_items(desk.blocks, desk.table, negatives, positives, closed.items, closed.weights, first)
    if flags & ADD and not _admit(desk.blocks, row, desk.table, desk.items, desk.rows, desk.items_max):
        desk.counts[COUNTER_OF[decision]] -= 1
        if booked:
            _give_back(desk.blocks, row, desk.users.gate, BYTES, desk.rows.dim, positives)
        if decision == LEARN or decision == WAIT:
            _give_back(desk.blocks, row, desk.users.gate, WOULD, desk.rows.dim, desk.decided.clicks[r])
        _refuse(desk.blocks, row, desk.counts)
        return
    if doomed and decision == LEARN and _fits(desk.blocks, row, desk.table, desk.items_max):
        _note_taken(desk.users, user, time_ms, desk.gate.window_days)
    waits = booked and not shadow and decision != LEARN
    if booked and (waits or flags & ADD):
        desk.blocks.flags[row] |= BOOKED
    if waits or (booked and flags & ADD and desk.keep_added):
        moved, sign = bool(flags & MOVE), 0 if waits else 1
        entry = append(
            desk.ledger, user, number, time_ms, sign, moved, negatives, positives, closed.items, closed.weights, first
        )
        desk.blocks.entry[row], desk.blocks.arena[row] = entry, desk.ledger.start[entry]
        if not waits:
            desk.blocks.flags[row] |= KEEP


@kernel
def _has_room(desk: Desk, r: int) -> bool:
    """True if every column has room for row r and all it may release or take back; else `short` says what is needed."""
    closed, ledger, blocks = desk.closed, desk.ledger, desk.blocks
    own = closed.negatives[r] + closed.positives[r]
    rows, items = 2, own
    if desk.decided.clears[r] or (desk.decided.release[r] and ledger.waiting[closed.user[r]] > 0):
        entry = as_int(ledger.head[closed.user[r]])
        while entry != NIL:
            rows += 1
            items += ledger.negatives[entry] + ledger.positives[entry]
            entry = as_int(ledger.following[entry])
    desk.short[0], desk.short[1], desk.short[2], desk.short[3] = rows, items, own, items
    room = desk.items.rows.shape[0] - desk.table.counters[SIZE]
    return (
        blocks.used[0] + rows <= blocks.user.shape[0]
        and blocks.used[1] + items <= blocks.items.shape[0]
        and (ledger.used[FREE] != NIL or ledger.used[ENTRIES] < ledger.number.shape[0])
        and ledger.used[ITEMS] + own <= ledger.items.shape[0]
        and (room >= items or desk.items.rows.shape[0] >= desk.items_max)
    )


@kernel
def settle(desk: Desk, first: int) -> int:
    """Settle the decided rows [first, n); return n, or the row before which a column ran out of room."""
    closed, decided = desk.closed, desk.decided
    for r in range(first, closed.used[0]):
        op, user = closed.op[r], as_int(closed.user[r])
        if op == NEW_DAY:
            continue
        if not _has_room(desk, r):
            return r
        _vest(desk.ledger, user, decided.low[r], desk.counts)
        if decided.clears[r]:
            _take_back(desk, user, op == EXPIRED)
        elif decided.release[r]:
            _release(desk, user, decided.doom[r])
        if op == BLOCK:
            _settle_block(desk, r)
        elif op == ERASED or op == EXPIRED:
            reset_taken(desk.users, user)
            _put(desk.blocks, user, as_int(decided.number[r]), closed.time_ms[r], RESET | CLEARED, NONE)
    return closed.used[0]
