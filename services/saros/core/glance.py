"""What serving needs of users: how far they have come, their rows, and what they have clicked, read from their bytes.

A row of `GlanceArrays` stands for one user. No learner is needed to fill it: the state's bytes say it all
(`saros.core.codec_users` has the format). What was clicked is kept as *stamps*, both halves of an item's key xor-ed, as
the gate keeps it for repeated clicks: 4 bytes each. Two items share a stamp with odds of 1 in 4 billion; then the one
counts as seen where the other was.
"""

import struct
from typing import NamedTuple

import numpy as np

from saros.core.codec import get, get_i32, ones, pieces, refuse
from saros.core.codec_users import SHADOWED, TAKEN_BACK, USER_HEADER, WAITED_FOR, extra_size, first_fault
from saros.core.jit import F32, I32, I64, U8, U32, U64, as_int, kernel, merged_kernel
from saros.core.sessions import SessionRules
from saros.core.users import REPEAT_SIZE

BLOCKS, COUNTED, MOVED = 0, 1, 2  # columns of `numbers`: blocks closed, of them in the window, moves of the row
# What is known of a user: nothing; its state, while its row is as the store has it; all of it.
NOTHING, STATE, WHOLE = 0, 1, 2
ERASED, ROW, UNSEEN = 1, 4, 8  # flags of a record's users
COLD, BELOW, IN_BAND, ABOVE = 0, 1, 2, 3


class GlanceArrays(NamedTuple):
    """Columns of n users."""

    known: U8  # [n]
    at: I64  # [n] the redo offset that it is known as of
    numbers: I32  # [n, 3]
    seen: U32  # [n, w] stamps
    seen_count: I32  # [n] of them
    rows: F32  # [n, d]


def glance_arrays(count: int, dim: int, rules: SessionRules) -> GlanceArrays:
    """Return columns of so many users of whom nothing is known."""
    width = REPEAT_SIZE + rules.carried_max + rules.clicked_max
    return GlanceArrays(
        known=np.zeros(count, np.uint8),
        at=np.full(count, -1, np.int64),
        numbers=np.zeros((count, 3), np.int32),
        seen=np.zeros((count, width), np.uint32),
        seen_count=np.zeros(count, np.int32),
        rows=np.zeros((count, dim), np.float32),
    )


@kernel
def stamp_of(key: np.uint64) -> np.uint32:
    """Return both halves of a key xor-ed."""
    return np.uint32((key ^ (key >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@kernel
def blank(users: GlanceArrays, user: int, at: int) -> None:
    """Note that there is no such user as of a redo offset. Nothing of one that was there stays in memory."""
    users.known[user], users.at[user], users.seen_count[user] = WHOLE, at, 0
    for k in range(3):
        users.numbers[user, k] = 0
    for k in range(users.seen.shape[1]):
        users.seen[user, k] = 0
    for k in range(users.rows.shape[1]):
        users.rows[user, k] = 0


@kernel
def _put_stamps(users: GlanceArrays, user: int, buffer: U8, first: int, count: int) -> None:
    """Add the stamps of items whose keys stand in the buffer; where there is no room, the oldest are left out."""
    size = users.seen_count[user]
    skipped = max(0, count - (users.seen.shape[1] - size))
    for k in range(skipped, count):
        users.seen[user, size] = stamp_of(get(buffer, first + 8 * k, 8))
        size += 1
    users.seen_count[user] = size


@kernel
def read_state(users: GlanceArrays, user: int, buffer: U8, first: int) -> None:
    """Read the state of a user, which has no fault."""
    negatives, carried = as_int(get(buffer, first + 4, 2)), as_int(get(buffer, first + 6, 2))
    clicked, flags = as_int(get(buffer, first + 8, 2)), as_int(buffer[first + 1])
    ring, repeats = as_int(buffer[first + 2]), as_int(buffer[first + 3])
    users.numbers[user, BLOCKS], users.numbers[user, COUNTED] = get_i32(buffer, first + 32), get_i32(buffer, first + 36)
    users.numbers[user, MOVED] = get_i32(buffer, first + 40)
    at = first + USER_HEADER + 4 * (ones(as_int(buffer[first + 10])) + ones(as_int(buffer[first + 11])) + ring)
    at += extra_size(flags)
    for k in range(repeats):
        users.seen[user, k] = np.uint32(get(buffer, at + 4 * k, 4))
    users.seen_count[user] = repeats
    at += 4 * repeats + 8 * negatives
    _put_stamps(users, user, buffer, at, carried)
    _put_stamps(users, user, buffer, at + 8 * carried, clicked)


@kernel
def _absorb(users: GlanceArrays, slots: I32, flags: U8, buffer: U8, starts: I64, rows: F32, at: I64) -> None:
    """Set users to what records say; those without a place (slot -1), or known as of later, are left out."""
    row = 0
    for k in range(slots.shape[0]):
        user, has_row = slots[k], flags[k] & ROW != 0
        if user >= 0 and users.at[user] < at[k]:
            if flags[k] & ERASED:
                blank(users, user, at[k])
            if flags[k] & UNSEEN == 0:
                read_state(users, user, buffer, starts[k])
                users.at[user] = at[k]
                if has_row:
                    for d in range(rows.shape[1]):
                        users.rows[user, d] = rows[row, d]
                    users.known[user] = WHOLE
                elif users.known[user] == NOTHING:
                    users.known[user] = STATE
        row += has_row


def absorb(users: GlanceArrays, slots: I32, flags: U8, data: bytes | U8, starts: I64, rows: F32, at: I64) -> None:
    """Set users to the states in `data`, each as of a redo offset; those flagged `ROW` have a row in `rows`, in order.

    The row of one without is what it was: where that is not known, only its state is from here on.
    """
    buffer = pieces(data, starts, len(slots))
    if not len(at) == len(flags) == len(slots):
        raise ValueError("the columns of users have different lengths")
    refuse("user state", *first_fault(buffer, starts))
    if (flags & ROW != 0).sum() != len(rows) or rows.shape[1] != users.rows.shape[1]:
        raise ValueError("the rows of users are not as many, or not as long, as their flags say")
    _absorb(users, slots, flags, buffer, starts, rows, at)


class Summary(NamedTuple):
    """One user's state in numbers."""

    blocks: int  # closed, since it was first seen or erased
    counted: int  # of them in the gate's window, when the last one closed
    moved: int  # times its row has learned
    clock_ms: int
    negatives: int  # items that wait for a click
    taken_back: int  # blocks, since it was first seen or erased
    recently_taken: int  # ... of those in the window, when the last one closed


_HEADER = struct.Struct("<xB2xH4xBB4xq8x3i8x")  # of a user's state; `saros.core.codec_users` has all of it
_TAKEN = struct.Struct("<9i")
assert _HEADER.size == USER_HEADER


def summary_of(state: bytes) -> Summary:
    """Return the numbers in a user's state; ValueError where it is damaged."""
    starts = np.array([0, len(state)], np.int64)
    refuse("user state", *first_fault(pieces(state, starts, 1), starts))
    flags, negatives, buckets, in_ledger, clock_ms, blocks, counted, moved = _HEADER.unpack_from(state)
    taken, recent = 0, 0
    if flags & TAKEN_BACK:
        at = USER_HEADER + 4 * (buckets.bit_count() + in_ledger.bit_count())
        at += (32 if flags & SHADOWED else 0) + (8 if flags & WAITED_FOR else 0)
        taken, *days = _TAKEN.unpack_from(state, at)
        recent = sum(days)
    return Summary(blocks, counted, moved, clock_ms, negatives, taken, recent)


@merged_kernel
def _copy(target: GlanceArrays, to: int, source: GlanceArrays, user: int) -> None:
    """Copy all that is known of a user."""
    target.known[to], target.at[to] = source.known[user], source.at[user]
    for k in range(3):
        target.numbers[to, k] = source.numbers[user, k]
    target.seen_count[to] = source.seen_count[user]
    for k in range(source.seen_count[user]):
        target.seen[to, k] = source.seen[user, k]
    for d in range(source.rows.shape[1]):
        target.rows[to, d] = source.rows[user, d]


@kernel
def pick(target: GlanceArrays, source: GlanceArrays, slots: I32, least: int) -> int:
    """Copy the users of slots[k] >= 0 of which so much is known to place k; return of how many nothing came."""
    missing = 0
    for k in range(slots.shape[0]):
        if slots[k] >= 0 and source.known[slots[k]] >= least:
            _copy(target, k, source, slots[k])
        elif target.known[k] == NOTHING:
            missing += 1
    return missing


@kernel
def put(target: GlanceArrays, slots: I32, source: GlanceArrays, which: I32) -> None:
    """Copy the users at which[k] to slots[k], where that is not negative."""
    for k in range(slots.shape[0]):
        if slots[k] >= 0:
            _copy(target, slots[k], source, which[k])


@kernel
def settle(
    memory: GlanceArrays, slots: I32, read: GlanceArrays, which: I32, homes: I32, found: I64, expected: I64, met: I64,
    stale: U8, kept: I32,
) -> int:  # fmt: skip
    """Let the newer count of what memory (slots[k], -1: nothing) and a read of the store (which[k]) know of users.

    By partition, which is homes[which[k]]: the redo offset of the fence that was found, of the one that had to be found
    at least, and of the highest one met. A read that came late may be behind another one, and is as good; but what it
    holds is not to stay. A row that no record has said is the store's. stale (uint8 by place in `read`) is set where
    neither knows the user as of now. Return how many may be kept; `kept` are their k.
    """
    count = 0
    for k in range(slots.shape[0]):
        slot, user = slots[k], which[k]
        home = homes[user]
        doubted = found[home] < expected[home]
        late = doubted or found[home] < met[home]
        if slot < 0 or memory.known[slot] == NOTHING or memory.at[slot] <= read.at[user]:
            stale[user] = doubted
            if not late:
                kept[count] = k
                count += 1
            continue
        if memory.known[slot] == STATE and not late:  # no record that the store lacks has moved its row
            for d in range(read.rows.shape[1]):
                memory.rows[slot, d] = read.rows[user, d]
            memory.known[slot] = WHOLE
        stale[user] = late and memory.known[slot] == STATE
        _copy(read, user, memory, slot)
    return count


@kernel
def tell_states(users: GlanceArrays, homes: I32, bounds: I64, states: U8) -> None:
    """Fill states: COLD until a block is closed, else by the user's count and the bounds (int64[p, 2]) of its home."""
    for k in range(states.shape[0]):
        count = users.numbers[k, COUNTED]
        if users.known[k] == NOTHING or users.numbers[k, BLOCKS] == 0:
            states[k] = COLD
        elif count < bounds[homes[k], 0]:
            states[k] = BELOW
        else:
            states[k] = ABOVE if count > bounds[homes[k], 1] else IN_BAND


class Stamps:
    """Finds the slots of items by their stamps. Slots are numbered as they come, and are never taken back."""

    def __init__(self, limit: int) -> None:
        # Zeros that nobody touched take no memory: so nothing has to grow.
        self._first: I32 = np.zeros(1 << max(1, (limit - 1).bit_length()), np.int32)  # slot + 1 by bucket; 0: none
        self._following: I32 = np.zeros(limit, np.int32)  # likewise, of the same bucket
        self._size = 0

    def extend(self, keys: U64, size: int) -> None:
        """Take in the slots up to `size`, whose keys are keys[slot]; more than the limit are seldom."""
        if size > len(self._following):
            more = np.zeros(2 * size - len(self._following), np.int32)
            self._following = np.concatenate([self._following, more])
        _chain(self._first, self._following, keys, self._size, size)
        self._size = max(self._size, size)

    def find(self, keys: U64, stamps: U32) -> I32:
        """Return the slots that have one of these stamps."""
        found = np.empty(4 * len(stamps), np.int32)
        return found[: _find(self._first, self._following, keys, stamps, len(stamps), found, 0)]

    def seen_by(self, keys: U64, users: GlanceArrays, which: I32) -> tuple[I32, I64]:
        """Return the slots that users have seen, user by user, and the n + 1 places where they meet."""
        starts = np.zeros(len(which) + 1, np.int64)
        found = np.empty(4 * int(users.seen_count[which].sum()), np.int32)
        _find_all(self._first, self._following, keys, users, which, found, starts)
        return found[: starts[-1]], starts


@kernel
def _chain(first: I32, following: I32, keys: U64, begin: int, end: int) -> None:
    mask = np.uint32(first.shape[0] - 1)
    for slot in range(begin, end):
        bucket = stamp_of(keys[slot]) & mask
        following[slot] = first[bucket]
        first[bucket] = slot + 1


@kernel
def _find(first: I32, following: I32, keys: U64, stamps: U32, size: int, found: I32, begin: int) -> int:
    """Fill found[begin:] for stamps[:size]; return where it ends. No more than four are taken to share a stamp."""
    mask, count, most = np.uint32(first.shape[0] - 1), begin, min(found.shape[0], begin + 4 * size)
    for k in range(size):
        slot = first[stamps[k] & mask] - 1
        while slot >= 0:
            if stamp_of(keys[slot]) == stamps[k] and count < most:
                found[count] = slot
                count += 1
            slot = following[slot] - 1
    return count


@kernel
def _find_all(
    first: I32, following: I32, keys: U64, users: GlanceArrays, which: I32, found: I32, starts: I64
) -> None:  # fmt: skip
    for k in range(which.shape[0]):
        stamps, size = users.seen[which[k]], users.seen_count[which[k]]
        starts[k + 1] = _find(first, following, keys, stamps, size, found, starts[k])
