"""The state of users to and from bytes.

Header of 52 bytes: version u8, flags u8, ring u8, repeats u8, negatives u16, carried u16, clicked u16, buckets u8 (bit
k: day slot k is not 0), bytes u8, day i32, clock i64, session u64, number i32, counted i32, moved i32, low and high i32
(the step's levels). Then the buckets in use i32 each, the ledger bytes in use i32, where a flag says so the 8 bytes i32
that would be there but for `shadow`, where a flag says so the time i64 until which held blocks wait for a user that
closes them too fast, where a flag says so how many blocks were taken back i32 and 8 i32 of them by day slot in the
window, ring and repeats u32 (oldest first), negatives, carried and clicked u64, and, where a flag says so, the weights
u16 of negatives and carried.

A user's row is no part of its state: it is d float32 as they stand. A ring is written from its oldest entry on, so two
states that behave alike have the same bytes.
"""

import numpy as np

from saros.core.codec import (
    BAD_COUNT,
    BAD_LENGTH,
    BAD_VALUE,
    BAD_VERSION,
    GOOD,
    VERSION,
    WEIGHTED,
    get,
    get_i32,
    ones,
    pieces,
    put,
    refuse,
)
from saros.core.events import TIME_MAX_MS, WEIGHT_MAX, WEIGHT_ONE
from saros.core.gate import DAYS
from saros.core.jit import I32, I64, U8, as_int, kernel
from saros.core.rows import RowRules
from saros.core.sessions import SessionRules
from saros.core.timeline import WAIT_MAX_MS
from saros.core.users import (
    BUCKETS,
    BYTES,
    CARRIED,
    CLICKED,
    CLOCK,
    COUNTED,
    DAY,
    FLAGS,
    FREE,
    HIGH,
    LEVEL_MAX,
    LOW,
    MOVED,
    NEGATIVES,
    NEW,
    NUMBER,
    OPEN,
    REPEAT,
    REPEAT_SIZE,
    RING,
    RING_SIZE,
    RUN_DONE,
    SESSION,
    TAKEN,
    WOULD,
    UserArrays,
    reset,
)

USER_HEADER = 52
SHADOWED = 16  # a flag: the ledger would hold other bytes but for `shadow`
WAITED_FOR = 32  # a flag: the user's clock has not reached the time until which its blocks wait
TAKEN_BACK = 64  # a flag: blocks of the user were taken back
_COUNT_MAX = 1024  # of any pending set
WEIGHT_LIMIT = int(WEIGHT_MAX * WEIGHT_ONE)


@kernel
def _ring_size(users: UserArrays, user: int) -> int:
    """Return how many event ids a user remembers."""
    total = 0
    for k in range(RING_SIZE):
        total += users.ring[user, k] != 0
    return total


@kernel
def _mask(users: UserArrays, user: int, column: int) -> int:
    """Return which of 8 daily buckets are not 0."""
    mask = 0
    for k in range(DAYS):
        mask |= as_int(users.gate[user, column + k] != 0) << k
    return mask


@kernel
def _weighted(users: UserArrays, user: int, negatives_max: int) -> bool:
    """True if a pending item has a weight other than 1."""
    odd = False
    for k in range(users.head[user, NEGATIVES]):
        odd |= users.weights[user, k] != WEIGHT_ONE
    for k in range(users.head[user, CARRIED]):
        odd |= users.weights[user, negatives_max + k] != WEIGHT_ONE
    return odd


@kernel
def _shadowed(users: UserArrays, user: int) -> bool:
    """True if the ledger would hold other bytes but for `shadow`."""
    differs = False
    for k in range(DAYS):
        differs |= users.gate[user, WOULD + k] != users.gate[user, BYTES + k]
    return differs


@kernel
def extra_size(flags: int) -> int:
    """Return the length of what stands before the ring because a flag says so."""
    return (32 if flags & SHADOWED else 0) + (8 if flags & WAITED_FOR else 0) + (36 if flags & TAKEN_BACK else 0)


@kernel
def _user_size(mask: int, ring: int, repeats: int, pending: int, clicked: int, flags: int) -> int:
    """Return the length of a user's bytes; `mask` holds both bucket masks."""
    size = USER_HEADER + 4 * (ones(mask & 255) + ones(mask >> 8)) + 4 * (ring + repeats) + 8 * (pending + clicked)
    size += extra_size(flags)
    return size + (2 * pending if flags & WEIGHTED else 0)


@kernel
def _flags(users: UserArrays, user: int, negatives_max: int) -> int:
    """Return the flags of a user's bytes."""
    flags = users.head[user, FLAGS] & (OPEN | RUN_DONE)
    if _weighted(users, user, negatives_max):
        flags |= WEIGHTED
    if _shadowed(users, user):
        flags |= SHADOWED
    if users.head[user, FREE] > users.head[user, CLOCK]:
        flags |= WAITED_FOR
    if users.gate[user, TAKEN] > 0:
        flags |= TAKEN_BACK
    return flags


@kernel
def _measure_users(users: UserArrays, slots: I32, rules: SessionRules, starts: I64) -> None:
    """Fill starts [n + 1] with where each user's bytes begin."""
    for k in range(slots.shape[0]):
        user = slots[k]
        head = users.head[user]
        mask = _mask(users, user, BUCKETS) | (_mask(users, user, BYTES) << 8)
        repeats = min(users.gate[user, REPEAT], REPEAT_SIZE)
        pending, flags = head[NEGATIVES] + head[CARRIED], _flags(users, user, rules.negatives_max)
        clicked, ring = min(head[CLICKED], rules.clicked_max), _ring_size(users, user)
        starts[k + 1] = starts[k] + _user_size(mask, ring, repeats, pending, clicked, flags)


@kernel
def _put_set(buffer: U8, at: int, users: UserArrays, user: int, first: int, count: int) -> int:
    """Write the items of a set."""
    for k in range(first, first + count):
        at = put(buffer, at, users.sets[user, k], 8)
    return at


@kernel
def _write_user(users: UserArrays, user: int, rules: SessionRules, buffer: U8, at: int) -> int:
    """Write one user's state; return where it ends."""
    head, gate = users.head[user], users.gate[user]
    first, flags = rules.negatives_max, _flags(users, user, rules.negatives_max)
    ring, repeats = _ring_size(users, user), min(gate[REPEAT], REPEAT_SIZE)
    clicked = min(head[CLICKED], rules.clicked_max)
    at = put(buffer, at, np.uint64(VERSION), 1)
    at = put(buffer, at, np.uint64(flags), 1)
    at = put(buffer, at, np.uint64(ring), 1)
    at = put(buffer, at, np.uint64(repeats), 1)
    at = put(buffer, at, np.uint64(head[NEGATIVES]), 2)
    at = put(buffer, at, np.uint64(head[CARRIED]), 2)
    at = put(buffer, at, np.uint64(clicked), 2)
    at = put(buffer, at, np.uint64(_mask(users, user, BUCKETS)), 1)
    at = put(buffer, at, np.uint64(_mask(users, user, BYTES)), 1)
    at = put(buffer, at, np.uint64(gate[DAY]), 4)
    at = put(buffer, at, np.uint64(head[CLOCK]), 8)
    at = put(buffer, at, np.uint64(head[SESSION]), 8)
    at = put(buffer, at, np.uint64(gate[NUMBER]), 4)
    at = put(buffer, at, np.uint64(gate[COUNTED]), 4)
    at = put(buffer, at, np.uint64(gate[MOVED]), 4)
    at = put(buffer, at, np.uint64(gate[LOW]), 4)
    at = put(buffer, at, np.uint64(gate[HIGH]), 4)
    for k in range(16):
        if gate[BUCKETS + k] != 0:
            at = put(buffer, at, np.uint64(gate[BUCKETS + k]), 4)
    if flags & SHADOWED:
        for k in range(DAYS):
            at = put(buffer, at, np.uint64(gate[WOULD + k]), 4)
    if flags & WAITED_FOR:
        at = put(buffer, at, np.uint64(head[FREE]), 8)
    if flags & TAKEN_BACK:
        at = put(buffer, at, np.uint64(gate[TAKEN]), 4)
        for k in range(DAYS):
            at = put(buffer, at, np.uint64(users.taken[user, k]), 4)
    for k in range(RING_SIZE):
        event_id = users.ring[user, (head[RING] + k) % RING_SIZE]
        if event_id != 0:
            at = put(buffer, at, np.uint64(event_id), 4)
    for k in range(repeats):
        at = put(buffer, at, np.uint64(users.repeats[user, (gate[REPEAT] - repeats + k) % REPEAT_SIZE]), 4)
    at = _put_set(buffer, at, users, user, 0, head[NEGATIVES])
    at = _put_set(buffer, at, users, user, first, head[CARRIED])
    for k in range(head[CLICKED] - clicked, head[CLICKED]):
        at = put(buffer, at, users.sets[user, first + rules.carried_max + 1 + k % rules.clicked_max], 8)
    if flags & WEIGHTED:
        for k in range(head[NEGATIVES]):
            at = put(buffer, at, np.uint64(users.weights[user, k]), 2)
        for k in range(head[CARRIED]):
            at = put(buffer, at, np.uint64(users.weights[user, first + k]), 2)
    return at


@kernel
def _write_users(users: UserArrays, slots: I32, rules: SessionRules, buffer: U8, starts: I64) -> None:
    """Write the states of the given users one after another."""
    for k in range(slots.shape[0]):
        _write_user(users, slots[k], rules, buffer, starts[k])


def pack_users(users: UserArrays, slots: I32, rules: SessionRules) -> tuple[U8, I64]:
    """Return the states of the given users in one buffer, and where each begins (n + 1 offsets)."""
    starts = np.zeros(len(slots) + 1, np.int64)
    _measure_users(users, slots, rules, starts)
    buffer = np.zeros(int(starts[-1]), np.uint8)
    _write_users(users, slots, rules, buffer, starts)
    return buffer, starts


@kernel
def _taken_fault(buffer: U8, at: int, blocks: int) -> int:
    """Return what is wrong with the numbers of blocks that were taken back, of so many."""
    taken, recent = get_i32(buffer, at), 0
    for k in range(DAYS):
        if get_i32(buffer, at + 4 + 4 * k) < 0:
            return BAD_VALUE
        recent += get_i32(buffer, at + 4 + 4 * k)
    return GOOD if 1 <= taken <= blocks and recent <= taken else BAD_VALUE


@kernel
def user_fault(buffer: U8, first: int, end: int) -> int:
    """Return what is wrong with one user's bytes, or GOOD."""
    if end - first < USER_HEADER:
        return BAD_LENGTH
    if buffer[first] != VERSION:
        return BAD_VERSION
    negatives, carried, clicked = get(buffer, first + 4, 2), get(buffer, first + 6, 2), get(buffer, first + 8, 2)
    ring, repeats, flags = as_int(buffer[first + 2]), as_int(buffer[first + 3]), buffer[first + 1]
    if max(negatives, carried, clicked) > _COUNT_MAX or ring > RING_SIZE or repeats > REPEAT_SIZE:
        return BAD_COUNT
    pending = as_int(negatives + carried)
    mask = as_int(buffer[first + 10]) | (as_int(buffer[first + 11]) << 8)
    if end - first != _user_size(mask, ring, repeats, pending, as_int(clicked), as_int(flags)):
        return BAD_LENGTH
    clock = as_int(get(buffer, first + 16, 8))
    if flags & ~(OPEN | RUN_DONE | WEIGHTED | SHADOWED | WAITED_FOR | TAKEN_BACK) or not NEW <= clock <= TIME_MAX_MS:
        return BAD_VALUE
    if get_i32(buffer, first + 12) < 0 or get_i32(buffer, first + 40) < 0:
        return BAD_VALUE
    if max(abs(get_i32(buffer, first + 44)), abs(get_i32(buffer, first + 48))) > LEVEL_MAX:
        return BAD_VALUE
    if not 0 <= get_i32(buffer, first + 36) <= get_i32(buffer, first + 32):
        return BAD_VALUE
    for k in range(ones(mask & 255) + ones(mask >> 8)):
        if get_i32(buffer, first + USER_HEADER + 4 * k) <= 0:
            return BAD_VALUE
    at = first + USER_HEADER + 4 * (ones(mask & 255) + ones(mask >> 8))
    if flags & SHADOWED:
        for _ in range(DAYS):
            if get_i32(buffer, at) < 0:
                return BAD_VALUE
            at += 4
    if flags & WAITED_FOR:
        if not clock < as_int(get(buffer, at, 8)) <= clock + WAIT_MAX_MS:
            return BAD_VALUE
        at += 8
    if flags & TAKEN_BACK and _taken_fault(buffer, at, get_i32(buffer, first + 32)) != GOOD:
        return BAD_VALUE
    if flags & WEIGHTED:
        for k in range(pending):
            if not 1 <= get(buffer, end - 2 * (pending - k), 2) <= WEIGHT_LIMIT:
                return BAD_VALUE
    return GOOD


@kernel
def _get_set(
    users: UserArrays, user: int, column: int, first: int, limit: int, buffer: U8, at: int, count: int, weights: int
) -> int:
    """Read the items of a set, and their weights from `weights` on unless it is -1; where they are more than the set
    now holds, the newest stay. Return where the items end."""
    skipped = max(0, count - limit)
    for k in range(count - skipped):
        users.sets[user, first + k] = get(buffer, at + 8 * (skipped + k), 8)
        if column != CLICKED:
            users.weights[user, first + k] = WEIGHT_ONE if weights < 0 else get(buffer, weights + 2 * (skipped + k), 2)
    users.head[user, column] = count - skipped
    return at + 8 * count


@kernel
def _read_user(users: UserArrays, user: int, rules: SessionRules, buffer: U8, first: int, end: int) -> None:
    """Read one user's state, which has no fault, into a slot that has just been reset."""
    head, gate = users.head[user], users.gate[user]
    head[FLAGS] = buffer[first + 1] & (OPEN | RUN_DONE)
    negatives, carried = as_int(get(buffer, first + 4, 2)), as_int(get(buffer, first + 6, 2))
    gate[DAY] = get_i32(buffer, first + 12)
    head[CLOCK] = as_int(get(buffer, first + 16, 8))
    head[SESSION] = as_int(get(buffer, first + 24, 8))
    gate[NUMBER], gate[COUNTED] = get_i32(buffer, first + 32), get_i32(buffer, first + 36)
    gate[MOVED], gate[LOW], gate[HIGH] = (
        get_i32(buffer, first + 40), get_i32(buffer, first + 44), get_i32(buffer, first + 48)
    )  # fmt: skip
    at = first + USER_HEADER
    for k in range(16):
        if (buffer[first + 10 + k // 8] >> (k % 8)) & 1:
            gate[BUCKETS + k] = get_i32(buffer, at)
            at += 4
    for k in range(DAYS):
        gate[WOULD + k] = gate[BYTES + k]
        if buffer[first + 1] & SHADOWED:
            gate[WOULD + k] = get_i32(buffer, at)
            at += 4
    if buffer[first + 1] & WAITED_FOR:
        head[FREE] = as_int(get(buffer, at, 8))
        at += 8
    if buffer[first + 1] & TAKEN_BACK:
        gate[TAKEN] = get_i32(buffer, at)
        for k in range(DAYS):
            users.taken[user, k] = get_i32(buffer, at + 4 + 4 * k)
        at += 36
    for k in range(buffer[first + 2]):
        users.ring[user, k] = get(buffer, at, 4)
        at += 4
    head[RING] = buffer[first + 2] % RING_SIZE
    for k in range(buffer[first + 3]):
        users.repeats[user, k] = get(buffer, at, 4)
        at += 4
    gate[REPEAT] = buffer[first + 3]
    weights = end - 2 * (negatives + carried) if buffer[first + 1] & WEIGHTED else -1
    at = _get_set(users, user, NEGATIVES, 0, rules.negatives_max, buffer, at, negatives, weights)
    beyond = -1 if weights < 0 else weights + 2 * negatives
    at = _get_set(users, user, CARRIED, rules.negatives_max, rules.carried_max, buffer, at, carried, beyond)
    clicked = as_int(get(buffer, first + 8, 2))
    place = rules.negatives_max + rules.carried_max + 1
    _get_set(users, user, CLICKED, place, rules.clicked_max, buffer, at, clicked, -1)


@kernel
def _read_users(users: UserArrays, slots: I32, rules: SessionRules, buffer: U8, starts: I64) -> None:
    """Read the states of the given users."""
    for k in range(slots.shape[0]):
        _read_user(users, slots[k], rules, buffer, starts[k], starts[k + 1])


@kernel
def first_fault(buffer: U8, starts: I64) -> tuple[int, int]:
    """Return (index, fault) of the first user that cannot be read, or (-1, GOOD)."""
    for k in range(starts.shape[0] - 1):
        fault = user_fault(buffer, starts[k], starts[k + 1])
        if fault != GOOD:
            return k, fault
    return -1, GOOD


def unpack_users(
    users: UserArrays, slots: I32, rules: SessionRules, rows: RowRules, data: bytes | U8, starts: I64
) -> None:
    """Reset the given slots and fill them from bytes; their rows start anew until the caller sets them."""
    buffer = pieces(data, starts, len(slots))
    refuse("user state", *first_fault(buffer, starts))
    reset(users, slots, rows)
    _read_users(users, slots, rules, buffer, starts)
