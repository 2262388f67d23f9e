"""The gate: which closed blocks may teach the shared model, and when their sign is added.

A user's count is its blocks closed in the window of 1 to 8 days, learned or not, in daily buckets of the user's clock.
Below b a block waits; reaching b releases what waited; from b to B blocks are learned; passing B takes back what the
user taught within the window (older blocks are vested) and drops what waited. A block's number tells its age: with n
blocks closed and c of them in the window, the blocks numbered n - c and up are in it.

`decide` runs over a whole micro-batch before any step. So a block that is followed, in the same batch, by its user's
crossing of B (or erase) is *doomed*: it is never added. Decisions depend on the events only, never on how they were
cut into batches; doom only spares adding and taking back.

b and B are fixed, or estimated per partition from a histogram of users by day of last block and count then. Estimates
move when the partition's day changes, so a replay decides the same.
"""

from typing import NamedTuple

import numpy as np

from saros.core import counts as c
from saros.core.jit import I32, I64, U8, kernel, merged_kernel
from saros.core.lanes import prefetch
from saros.core.timeline import BLOCK, ERASED, EXPIRED, NEW_DAY, SESSION_END, Closed, day_of
from saros.core.users import (
    BUCKETS,
    BYTES,
    COUNTED,
    DAY,
    NUMBER,
    REPEAT,
    REPEAT_SIZE,
    TAKEN,
    UNDOOMED,
    WOULD,
    UserArrays,
    reset_gate,
)

DAYS, BINS = 8, 128
_AHEAD = 4  # rows between the one decided and the one whose user is asked for
_EXACT = 64  # counts below have a bin of their own; above, 8 bins per doubling
IMMEDIATE, SESSION, SHADOW = 0, 1, 2
MODES = {"immediate": IMMEDIATE, "session": SESSION, "shadow": SHADOW}

# The gate's word on a block. Progressive sums are kept apart by it.
NONE, LEARN, WAIT, HOLD, OVER, LEDGER_FULL, REPEATED, ITEMS_FULL = 0, 1, 2, 3, 4, 5, 6, 7
DECISIONS = ("none", "learn", "wait", "hold", "over", "ledger_full", "repeat", "items_full")
COUNTER_OF = np.array(
    [-1, c.LEARNED, c.WAITED, c.HELD, c.OVER, c.LEDGER_FULL, c.REPEAT, c.ITEMS_FULL], np.int64
)  # the counter of each decision

ENTRY_BYTES = 20  # of a ledger entry, before its row (4 bytes a coordinate) and items (12 bytes each)
ESTIMATED = 0  # in place of a bound: it comes from the histogram


class GateRules(NamedTuple):
    """The bounds and how they act. A bound of 0 is estimated."""

    blocks_min: int = 1  # the paper's b; 0: the least count of the histogram
    blocks_max: int = ESTIMATED  # the paper's B
    percentile: float = 97.0  # of an estimated B; 0: the mean, as in the paper
    blocks_max_floor: int = 50  # B before the first estimate, and the least an estimate gives
    blocks_max_ceiling: int = 100  # the most an estimate gives: bots are users too, and many of them would raise it
    window_days: int = 7
    mode: int = IMMEDIATE
    own_row: bool = False  # let a user's own row learn outside the band too
    ignore_repeats: bool = True  # a click on an item the user clicked before teaches nothing
    wait_ms: int = 7_200_000  # `session`: a user that closes blocks faster than one in this time is waited for
    ledger_max_bytes: int = 524_288


class GateState(NamedTuple):
    """What the gate knows of a partition: the histogram, and the bounds in force."""

    users: I32  # [8, 128] users by day of last block (mod 8) and bin of the count then
    day: I32  # [8] the day each row stands for
    total: I64  # [8] sum of the counts in each row
    bounds: I64  # [2] b and B in force


class Decided(NamedTuple):
    """The gate's answer to each row of `Closed`."""

    decision: U8  # [n]
    number: I32  # [n] of the block; for other rows, of the next block
    clicks: I32  # [n] positives of the block that are no repeats
    low: I32  # [n] the lowest block number in the window
    doom: I32  # [n] blocks of this user numbered so or higher will be taken back later in this batch
    books: U8  # [n] 1: the block goes into the ledger
    clears: U8  # [n] 1: the user's ledger ends here
    release: U8  # [n] 1: what waits is added here


def gate_state(rules: GateRules) -> GateState:
    """Return the state of a partition that has seen nothing."""
    bounds = np.array([max(1, rules.blocks_min), rules.blocks_max or rules.blocks_max_floor], np.int64)
    return GateState(np.zeros((DAYS, BINS), np.int32), np.zeros(DAYS, np.int32), np.zeros(DAYS, np.int64), bounds)


def decided(rows: int) -> Decided:
    """Return room for the answers to so many rows."""
    dtypes = (np.uint8, np.int32, np.int32, np.int32, np.int32, np.uint8, np.uint8, np.uint8)
    return Decided._make(np.zeros(rows, dtype) for dtype in dtypes)


def check_rules(rules: GateRules) -> None:
    """Raise ValueError unless the rules make sense together."""
    if rules.blocks_min < 0 or rules.blocks_max < 0 or rules.blocks_max_floor < 1:
        raise ValueError("gate bounds must be 1 or more (0: estimated)")
    if rules.blocks_max_ceiling < rules.blocks_max_floor:
        raise ValueError(f"blocks_max_ceiling {rules.blocks_max_ceiling} is below the floor {rules.blocks_max_floor}")
    if rules.wait_ms < 0:
        raise ValueError("the gate's wait must not be negative")
    highest = rules.blocks_max or rules.blocks_max_floor
    if rules.blocks_min > highest:
        raise ValueError(
            f"blocks_min {rules.blocks_min} is above {highest}, the least that B can be: nothing would learn"
        )
    if not 1 <= rules.window_days <= DAYS:
        raise ValueError(f"window_days must be 1 to {DAYS}")
    if not 0 <= rules.percentile < 100:
        raise ValueError("percentile must be from 0 (the mean) to below 100")
    if rules.mode not in MODES.values():
        raise ValueError(f"gate mode must be one of {', '.join(MODES)}")


@kernel
def entry_bytes(dim: int, items: int) -> int:
    """Return what a block of so many items costs in a ledger once it is added."""
    return ENTRY_BYTES + 4 * dim + 12 * items


@kernel
def bin_of(count: int) -> int:
    """Return the bin of a count: exact below 64, then 8 bins per doubling, the last one open."""
    if count < _EXACT:
        return count
    octave = 0
    while count >> (octave + 1) >= _EXACT:
        octave += 1
    return min(BINS - 1, _EXACT + 8 * octave + ((count >> octave + 3) & 7))


@kernel
def bin_top(place: int) -> int:
    """Return the highest count of a bin."""
    if place < _EXACT:
        return place
    octave, part = (place - _EXACT) // 8, (place - _EXACT) % 8
    return ((part + 9) << octave + 3) - 1


@kernel
def estimate(state: GateState, rules: GateRules, today: int) -> None:
    """Set the estimated bounds from the users whose last block lies in the `window_days` days before today."""
    users, total, least = 0, 0, BINS
    for k in range(DAYS):
        if today - rules.window_days <= state.day[k] < today:
            total += state.total[k]
            for place in range(BINS):
                users += state.users[k, place]
                if state.users[k, place] > 0:
                    least = min(least, place)
    if users == 0:
        return
    if rules.blocks_min == ESTIMATED:
        state.bounds[0] = max(1, bin_top(least - 1) + 1)
    if rules.blocks_max == ESTIMATED:
        estimated = total // users
        if rules.percentile > 0:
            below, estimated = 0, 0
            for place in range(BINS):
                for k in range(DAYS):
                    if today - rules.window_days <= state.day[k] < today:
                        below += state.users[k, place]
                if below * 100.0 >= rules.percentile * users:
                    estimated = bin_top(place)
                    break
        state.bounds[1] = max(rules.blocks_max_floor, min(rules.blocks_max_ceiling, estimated))


@kernel
def _tally(state: GateState, day: int, count: int, sign: int) -> None:
    """Count a user in or out of the histogram; a row that a newer day has taken is left alone."""
    place = day & (DAYS - 1)
    if state.day[place] > day or (sign < 0 and state.day[place] != day):
        return
    if state.day[place] < day:
        state.day[place] = day
        state.users[place] = 0
        state.total[place] = 0
    state.users[place, bin_of(count)] += sign
    state.total[place] += sign * count


@merged_kernel
def _in_window(users: UserArrays, user: int, column: int, today: int, window_days: int) -> int:
    """Return the sum of a user's daily buckets over the window that ends today."""
    total, newest = 0, users.gate[user, DAY]
    for age in range(DAYS):
        if newest - age > today - window_days:
            total += users.gate[user, column + ((newest - age) & (DAYS - 1))]
    return total


@kernel
def _turn_day(users: UserArrays, user: int, today: int) -> None:
    """Empty the daily buckets of the days since the user's last block."""
    gate = users.gate
    for day in range(max(gate[user, DAY] + 1, today - DAYS + 1), today + 1):
        gate[user, BUCKETS + (day & (DAYS - 1))] = 0
        gate[user, BYTES + (day & (DAYS - 1))] = 0
        gate[user, WOULD + (day & (DAYS - 1))] = 0
    gate[user, DAY] = today


@merged_kernel
def _vest_bytes(users: UserArrays, user: int, today: int, window_days: int) -> None:
    """Forget the bytes of blocks that leave the ledger now: a longer window later must not count them again."""
    gate = users.gate
    for age in range(DAYS):
        day = gate[user, DAY] - age
        if day <= today - window_days:
            gate[user, BYTES + (day & (DAYS - 1))], gate[user, WOULD + (day & (DAYS - 1))] = 0, 0


@merged_kernel
def _vest_taken(users: UserArrays, user: int, today: int, window_days: int) -> None:
    """Forget of which days blocks were taken back, where they leave the window; comes before the day is turned."""
    newest = users.gate[user, DAY]
    for age in range(DAYS):
        if newest - age <= today - window_days:
            users.taken[user, (newest - age) & (DAYS - 1)] = 0


@kernel
def _sort_out_repeats(closed: Closed, row: int, users: UserArrays, rules: GateRules, counts: I64) -> int:
    """Take clicks on items the user clicked before out of a block; return the positives that would be left."""
    user, left = closed.user[row], 0
    first = closed.start[row] + closed.negatives[row]
    for k in range(first, first + closed.positives[row]):
        mark = np.uint32(closed.items[k] ^ (closed.items[k] >> np.uint64(32)))
        known = False
        for place in range(min(users.gate[user, REPEAT], REPEAT_SIZE)):
            known |= users.repeats[user, place] == mark
        if known:
            counts[c.REPEAT_CLICKS] += 1
            continue
        users.repeats[user, users.gate[user, REPEAT] % REPEAT_SIZE] = mark
        users.gate[user, REPEAT] += 1
        if rules.mode != SHADOW:
            closed.items[first + left], closed.weights[first + left] = closed.items[k], closed.weights[k]
        left += 1
    if rules.mode != SHADOW:
        closed.positives[row] = left
    return left


@merged_kernel
def _count_block(
    closed: Closed, row: int, users: UserArrays, state: GateState, rules: GateRules, answer: Decided
) -> int:
    """Number a block, count it in its day and in the histogram, and return the user's count."""
    user, today, gate = closed.user[row], day_of(closed.time_ms[row]), users.gate
    if gate[user, TAKEN] > 0:
        _vest_taken(users, user, today, rules.window_days)
    if gate[user, NUMBER] > 0:
        _tally(state, gate[user, DAY], gate[user, COUNTED], -1)
        _turn_day(users, user, today)
    gate[user, DAY] = today
    _vest_bytes(users, user, today, rules.window_days)
    gate[user, BUCKETS + (today & (DAYS - 1))] += 1
    answer.number[row] = gate[user, NUMBER]
    gate[user, NUMBER] += 1
    count = _in_window(users, user, BUCKETS, today, rules.window_days)
    gate[user, COUNTED] = count
    _tally(state, today, count, 1)
    answer.low[row] = gate[user, NUMBER] - count
    return count


@merged_kernel
def _decide_block(
    closed: Closed, row: int, users: UserArrays, state: GateState, rules: GateRules, answer: Decided, counts: I64
) -> None:
    """Say what becomes of one closed block."""
    user, today, gate = closed.user[row], day_of(closed.time_ms[row]), users.gate
    positives = closed.positives[row]
    if rules.ignore_repeats:
        positives = _sort_out_repeats(closed, row, users, rules, counts)
    answer.clicks[row] = positives
    count = _count_block(closed, row, users, state, rules, answer)
    column, place = (WOULD if rules.mode == SHADOW else BYTES), today & (DAYS - 1)
    size = entry_bytes(users.rows.shape[1], closed.negatives[row] + positives)
    kept = _in_window(users, user, column, today, rules.window_days)
    if count > state.bounds[1]:
        answer.decision[row] = OVER
        if kept > 0:
            answer.clears[row] = rules.mode != SHADOW
            counts[c.CROSSED] += 1
            for k in range(DAYS):
                gate[user, column + k] = 0
    elif positives == 0:
        answer.decision[row] = REPEATED
    elif kept + size > rules.ledger_max_bytes:
        answer.decision[row] = LEDGER_FULL
    else:
        gate[user, column + place] += size
        answer.books[row] = 1
        if count < state.bounds[0]:
            answer.decision[row] = WAIT
        elif rules.mode == SESSION:
            answer.decision[row] = HOLD
        else:
            answer.decision[row] = LEARN
            answer.release[row] = 1
    if rules.mode == SHADOW:
        # All is added, whatever the word on it. The ledger takes it as long as there is room: an erase must find it.
        size = entry_bytes(users.rows.shape[1], closed.negatives[row] + closed.positives[row])
        fits = _in_window(users, user, BYTES, today, rules.window_days) + size <= rules.ledger_max_bytes
        answer.books[row] = fits
        if fits:
            gate[user, BYTES + place] += size
    else:
        for k in range(DAYS):
            gate[user, WOULD + k] = gate[user, BYTES + k]
    counts[COUNTER_OF[answer.decision[row]]] += 1


@kernel
def decide(closed: Closed, users: UserArrays, state: GateState, rules: GateRules, answer: Decided, counts: I64) -> None:
    """Decide every row of `closed`, in order, and mark what is doomed within this batch."""
    n = closed.used[0]
    for row in range(n):
        prefetch(users.gate, max(0, closed.user[min(row + _AHEAD, n - 1)]))  # -1: a new day
        op, user = closed.op[row], closed.user[row]
        answer.decision[row], answer.books[row], answer.clears[row], answer.release[row] = NONE, 0, 0, 0
        answer.doom[row] = UNDOOMED
        if op == NEW_DAY:
            estimate(state, rules, day_of(closed.time_ms[row]))
        elif op == BLOCK:
            _decide_block(closed, row, users, state, rules, answer, counts)
        else:
            count = _in_window(users, user, BUCKETS, day_of(closed.time_ms[row]), rules.window_days)
            answer.number[row] = users.gate[user, NUMBER]
            answer.low[row] = users.gate[user, NUMBER] - count
            if op == SESSION_END:
                _vest_bytes(users, user, day_of(closed.time_ms[row]), rules.window_days)
                answer.release[row] = state.bounds[0] <= count <= state.bounds[1]
                continue
            answer.clears[row] = 1
            if op == ERASED and users.gate[user, NUMBER] > 0:
                _tally(state, users.gate[user, DAY], users.gate[user, COUNTED], -1)
            reset_gate(users, user)  # blocks before this row are still to be learned: the step resets its row
    for row in range(n - 1, -1, -1):
        op, user = closed.op[row], closed.user[row]
        if op == NEW_DAY:
            continue
        answer.doom[row] = users.doom[user]
        if op == ERASED:
            users.doom[user] = answer.low[row]
        elif op == EXPIRED:
            users.doom[user] = UNDOOMED
        elif answer.clears[row]:
            users.doom[user] = min(users.doom[user], answer.low[row])
    for row in range(n):
        if closed.op[row] != NEW_DAY:
            users.doom[closed.user[row]] = UNDOOMED
