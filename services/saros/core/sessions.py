"""Sessions and blocks: the state machine that turns events into closed blocks.

`feed` walks the events of one partition in log order and appends to `Closed` what the gate has to know: a block
closed, a session whose deadline passed, a new day, a user erased or expired. Invariants:

- Log order is truth. A user's clock is max(previous, min(event time, log time + ahead)); the watermark is the highest
  clock. Nothing here looks at a wall clock, so the same events give the same blocks in whatever batches they come.
- An item never stands in both sets of a block, and a set holds it once. An item clicked in this session is no negative.
- Each item that enters a pending set leaves it in a block or under a counter (`saros.core.counts`).
- An event is taken whole or not at all: when an output column is short, `feed` stops before it and says where.

When a block closes: `click`, whenever a click arrives and negatives are pending; clicks without are carried into the
next block. `algorithm` (the paper's box), as soon as both sets have items, so also when a negative follows a click.
`authors` (their released code), at every click against the last run of negatives, which is kept; a click before any
negative is set against one drawn from the user's own data, so this rule is for offline use.
"""

from typing import NamedTuple

import numpy as np

from saros.core import counts as c
from saros.core.events import CLICK, ERASE, IMPRESSION, NEGATIVE, POSITIVE, TICK, WEIGHT_ONE, Events
from saros.core.ids import splitmix64
from saros.core.jit import I64, U64, as_int, inline_kernel, kernel, merged_kernel
from saros.core.lanes import prefetch, prefetch_at
from saros.core.pending import append, find, has, remember_click, take_out
from saros.core.timeline import (
    BLOCK,
    ERASED,
    EXPIRED,
    OPS_PER_EVENT,
    SESSION_END,
    WAIT_MAX_MS,
    Closed,
    Timeline,
    advance,
    emit,
    unwatch,
    watch,
)
from saros.core.users import (
    CARRIED,
    CLICKED,
    CLOCK,
    FLAGS,
    FREE,
    NEGATIVES,
    NEW,
    OPEN,
    RING,
    RING_SIZE,
    RUN_DONE,
    SESSION,
    UserArrays,
)

RULE_CLICK, RULE_ALGORITHM, RULE_AUTHORS = 0, 1, 2
_AHEAD = 8  # events between the one taken and the one whose user is asked for
RULES = {"click": RULE_CLICK, "algorithm": RULE_ALGORITHM, "authors": RULE_AUTHORS}


class SessionRules(NamedTuple):
    """How sessions end and blocks close; every limit is a count, every time milliseconds."""

    rule: int = RULE_CLICK
    gap_ms: int = 1_800_000  # 0: sessions never end
    negatives_max: int = 64
    carried_max: int = 16
    clicked_max: int = 64
    ahead_ms: int = 300_000
    ttl_ms: int = 0  # a user idle for longer counts as new; 0: never
    split_on_id: bool = False
    seed: int = 0  # of the negative that `authors` draws
    hold: bool = False  # the gate's `session` mode: deadlines are kept and SESSION_END is told
    wait_ms: int = 0  # where blocks are held: the pace; a user that closes them faster waits until it is met


class Pool(NamedTuple):
    """For `authors`: the items each user slot may be given as a negative, users in CSR form."""

    start: I64  # [users + 1]
    items: U64


class Feed(NamedTuple):
    """All that `feed` reads and writes besides the events."""

    users: UserArrays
    timeline: Timeline
    rules: SessionRules
    pool: Pool
    closed: Closed
    counts: I64


def no_pool() -> Pool:
    """Return the pool of the rules that draw nothing."""
    return Pool(np.zeros(1, np.int64), np.zeros(0, np.uint64))


def check_rules(rules: SessionRules) -> None:
    """Raise ValueError unless the rules make sense together."""
    if rules.rule not in RULES.values():
        raise ValueError(f"the block rule must be one of {', '.join(RULES)}")
    if min(rules.negatives_max, rules.carried_max, rules.clicked_max) < 1:
        raise ValueError("pending sets need room for at least one item")
    if min(rules.gap_ms, rules.ahead_ms, rules.ttl_ms, rules.seed, rules.wait_ms) < 0:
        raise ValueError("session times and the seed must not be negative")
    if rules.hold and rules.gap_ms == 0:
        raise ValueError("the gate's session mode needs sessions that end: give a session gap above 0")


@merged_kernel
def _copy(f: Feed, user: int, first: int, count: int) -> None:
    """Copy a pending set to the end of the output's items."""
    at = f.closed.used[1]
    for k in range(count):
        f.closed.items[at + k] = f.users.sets[user, first + k]
        f.closed.weights[at + k] = f.users.weights[user, first + k]
    f.closed.used[1] = at + count


@merged_kernel
def _close(f: Feed, user: int, keep: bool) -> None:
    """Close a block of the pending negatives and carried clicks; `keep` leaves the negatives for the next one."""
    head = f.users.head
    row = emit(f.closed, BLOCK, user, head[user, CLOCK])
    f.closed.negatives[row], f.closed.positives[row] = head[user, NEGATIVES], head[user, CARRIED]
    _copy(f, user, 0, head[user, NEGATIVES])
    _copy(f, user, f.rules.negatives_max, head[user, CARRIED])
    f.counts[c.BLOCKS] += 1
    f.counts[c.BLOCK_NEGATIVES] += head[user, NEGATIVES]
    f.counts[c.BLOCK_POSITIVES] += head[user, CARRIED]
    head[user, CARRIED] = 0
    if not keep:
        head[user, NEGATIVES] = 0
    if f.rules.hold:
        head[user, FLAGS] |= OPEN
        free = max(head[user, FREE], head[user, CLOCK]) + f.rules.wait_ms
        head[user, FREE] = min(free, head[user, CLOCK] + WAIT_MAX_MS)
        watch(f.timeline, f.users, user, f.rules.gap_ms)


@inline_kernel
def _join(f: Feed, user: int, item: np.uint64, weight: int) -> bool:
    """Add an item to the pending negatives, once; under `authors` the first one after a click starts a new run."""
    head = f.users.head
    if head[user, FLAGS] & RUN_DONE:
        head[user, FLAGS] &= ~RUN_DONE
        head[user, NEGATIVES] = 0
    if has(f.users, user, 0, head[user, NEGATIVES], item):
        f.counts[c.SHOWN_AGAIN] += 1
        return False
    f.counts[c.NEGATIVES_CAPPED] += append(f.users, user, 0, NEGATIVES, f.rules.negatives_max, item, weight)
    return True


@inline_kernel
def _show(f: Feed, user: int, item: np.uint64) -> bool:
    """Let a shown item join the pending negatives, unless it was clicked in this session; True if it did."""
    head, first = f.users.head, f.rules.negatives_max
    f.counts[c.SHOWN] += 1
    clicks = min(head[user, CLICKED], f.rules.clicked_max)
    clicked = has(f.users, user, first + f.rules.carried_max + 1, clicks, item)
    if clicked or has(f.users, user, first, head[user, CARRIED], item):
        f.counts[c.SHOWN_CLICKED] += 1
        return False
    return _join(f, user, item, WEIGHT_ONE)


@inline_kernel
def _dislike(f: Feed, user: int, item: np.uint64, weight: int) -> bool:
    """Explicit negative feedback joins the pending negatives even if the item was clicked before."""
    head, first = f.users.head, f.rules.negatives_max
    f.counts[c.SHOWN] += 1
    carried = find(f.users, user, first, head[user, CARRIED], item)
    if carried >= 0:
        take_out(f.users, user, first, head[user, CARRIED], carried)
        head[user, CARRIED] -= 1
        f.counts[c.CARRIED_RETRACTED] += 1
    pending = -1 if head[user, FLAGS] & RUN_DONE else find(f.users, user, 0, head[user, NEGATIVES], item)
    if pending >= 0:
        f.users.weights[user, pending] = weight
    return _join(f, user, item, weight)


@kernel
def _draw(f: Feed, user: int, clicked: np.uint64) -> int:
    """Draw the user's one negative from (seed, user): an index into the pool that is not the clicked item, or -1."""
    if user + 1 >= f.pool.start.shape[0]:
        return -1
    first = f.pool.start[user]
    size = f.pool.start[user + 1] - first
    if size <= 0:
        return -1
    drawn = splitmix64(splitmix64(np.uint64(f.rules.seed)) ^ f.users.keys[user])
    offset = np.int64(drawn % np.uint64(size))
    for k in range(size):
        at = first + (offset + k) % size
        if f.pool.items[at] != clicked:
            return at
    return -1


@inline_kernel
def _click(f: Feed, user: int, item: np.uint64, weight: int) -> None:
    """A click takes its item out of the pending negatives and closes a block if any are left."""
    users, head, first = f.users, f.users.head, f.rules.negatives_max
    pending = find(users, user, 0, head[user, NEGATIVES], item)
    if pending >= 0:
        take_out(users, user, 0, head[user, NEGATIVES], pending)
        head[user, NEGATIVES] -= 1
        f.counts[c.NEGATIVES_CLICKED] += 1
    clicked = first + f.rules.carried_max + 1
    f.counts[c.CLICKED_CAPPED] += remember_click(users, user, clicked, f.rules.clicked_max, item)
    f.counts[c.CARRIED] += 1
    again = find(users, user, first, head[user, CARRIED], item)
    closes = head[user, NEGATIVES] > 0
    if again >= 0:
        users.weights[user, first + again] = weight
        f.counts[c.CARRIED_AGAIN] += 1
    else:
        # The click that closes a block is not carried: it has a place of its own.
        f.counts[c.CARRIED_CAPPED] += append(users, user, first, CARRIED, f.rules.carried_max + closes, item, weight)
    if f.rules.rule != RULE_AUTHORS:
        if closes:
            _close(f, user, False)
        return
    if closes:
        head[user, FLAGS] |= RUN_DONE
        _close(f, user, True)
        return
    drawn = _draw(f, user, item)
    if drawn < 0:
        head[user, CARRIED] = 0
        f.counts[c.CLICKS_ALONE] += 1
        return
    append(users, user, 0, NEGATIVES, f.rules.negatives_max, f.pool.items[drawn], WEIGHT_ONE)
    _close(f, user, False)


@kernel
def _forget_pending(f: Feed, user: int, negatives: int, carried: int) -> None:
    """Drop a user's pending sets, counted under the two given names; a run that was used is not lost."""
    head = f.users.head
    if not head[user, FLAGS] & RUN_DONE:
        f.counts[negatives] += head[user, NEGATIVES]
    f.counts[carried] += head[user, CARRIED]
    head[user, NEGATIVES] = 0
    head[user, CARRIED] = 0
    head[user, CLICKED] = 0
    head[user, FLAGS] &= ~RUN_DONE


@kernel
def _start_anew(f: Feed, user: int) -> None:
    """Forget the session side of a user."""
    unwatch(f.timeline, f.users, user)
    f.users.head[user, CLOCK] = NEW
    f.users.head[user, SESSION] = 0
    f.users.head[user, FLAGS] = 0
    f.users.head[user, RING] = 0
    f.users.head[user, FREE] = 0
    for k in range(RING_SIZE):
        f.users.ring[user, k] = 0
    # Nobody looks beyond what the sets hold; but of who was erased nothing is to stay.
    for k in range(f.users.sets.shape[1]):
        f.users.sets[user, k] = 0
    for k in range(f.users.weights.shape[1]):
        f.users.weights[user, k] = 0


@inline_kernel
def _renew(f: Feed, user: int, clock: int, session: int) -> None:
    """Move the user's clock; end the session, or the user, when the jump is too long or the session id is another."""
    head = f.users.head
    before = head[user, CLOCK]
    if before != NEW:
        if f.rules.ttl_ms > 0 and clock - before > f.rules.ttl_ms:
            emit(f.closed, EXPIRED, user, before)
            _forget_pending(f, user, c.NEGATIVES_EXPIRED, c.CARRIED_EXPIRED)
            _start_anew(f, user)
            f.counts[c.USERS_EXPIRED] += 1
        else:
            other = session != 0 and head[user, SESSION] != 0 and session != head[user, SESSION]
            if (f.rules.split_on_id and other) or (f.rules.gap_ms > 0 and clock - before > f.rules.gap_ms):
                _forget_pending(f, user, c.NEGATIVES_EXPIRED, c.CARRIED_EXPIRED)
                head[user, SESSION] = 0
                f.counts[c.SESSIONS_ENDED] += 1
                if head[user, FLAGS] & OPEN and head[user, FREE] <= clock:
                    head[user, FLAGS] &= ~OPEN
                    emit(f.closed, SESSION_END, user, before)
    head[user, CLOCK] = clock
    if session != 0:
        head[user, SESSION] = session


@inline_kernel
def _is_duplicate(users: UserArrays, user: int, event_id: np.uint32) -> bool:
    """True if the id is among the user's last 16."""
    found = False
    for k in range(RING_SIZE):
        found |= users.ring[user, k] == event_id
    return found and event_id != 0


@inline_kernel
def _take(f: Feed, events: Events, e: int) -> None:
    """Do what event e says to its user, whose clock has moved."""
    user, kind = as_int(events.user[e]), events.kind[e]
    if kind == ERASE:
        f.counts[c.ERASES] += 1
        emit(f.closed, ERASED, user, f.users.head[user, CLOCK])
        _forget_pending(f, user, c.NEGATIVES_ERASED, c.CARRIED_ERASED)
        _start_anew(f, user)
        return
    weight = max(1, int(np.rint(np.float64(events.weight[e]) * WEIGHT_ONE)))
    if kind == CLICK or kind == POSITIVE:
        f.counts[c.CLICKS if kind == CLICK else c.POSITIVES] += 1
        _click(f, user, events.items[events.start[e]], WEIGHT_ONE if kind == CLICK else weight)
        return
    f.counts[c.IMPRESSIONS if kind == IMPRESSION else c.NEGATIVES] += 1
    for k in range(events.start[e], events.start[e + 1]):
        if kind == NEGATIVE:
            joined = _dislike(f, user, events.items[k], weight)
        else:
            joined = _show(f, user, events.items[k])
        if joined and f.rules.rule == RULE_ALGORITHM and f.users.head[user, CARRIED] > 0:
            _close(f, user, False)


@kernel
def feed(f: Feed, events: Events, first: int) -> int:
    """Feed events [first, n) in order; return n, or the event before which `closed` ran out of room."""
    users, timeline, closed, counts, rules = f.users, f.timeline, f.closed, f.counts, f.rules
    widest, last = rules.negatives_max + rules.carried_max + 1, events.user.shape[0] - 1
    for e in range(first, events.user.shape[0]):
        soon = max(0, as_int(events.user[min(e + _AHEAD, last)]))  # -1: a tick
        prefetch(users.head, soon)
        prefetch(users.ring, soon)
        prefetch_at(users.sets, soon, 0)  # where most sets are short
        prefetch_at(users.sets, soon, rules.negatives_max)
        prefetch_at(users.weights, soon, 0)
        if closed.used[0] + OPS_PER_EVENT > closed.op.shape[0] or closed.used[1] + widest > closed.items.shape[0]:
            return e
        ceiling = events.log_ms[e] + rules.ahead_ms
        time_ms = events.time_ms[e] if events.time_ms[e] != 0 else events.log_ms[e]
        clock = min(time_ms, ceiling)
        user = as_int(events.user[e])
        if events.kind[e] == TICK:
            if clock > timeline.at[0] and not advance(timeline, users, rules.gap_ms, closed, clock):
                return e
            counts[c.TICKS] += 1
            continue
        if events.bot[e] != 0:
            counts[c.BOTS] += 1
            continue
        if _is_duplicate(users, user, events.event_id[e]):
            counts[c.DUPLICATES] += 1
            continue
        before = users.head[user, CLOCK]
        clock = max(before, clock)
        if clock > timeline.at[0] and not advance(timeline, users, rules.gap_ms, closed, clock):
            return e
        counts[c.AHEAD] += time_ms > ceiling
        counts[c.LATE] += time_ms < before
        _renew(f, user, clock, as_int(events.session[e]))
        if events.event_id[e] != 0:
            users.ring[user, users.head[user, RING]] = events.event_id[e]
            users.head[user, RING] = (users.head[user, RING] + 1) % RING_SIZE
        _take(f, events, e)
    return events.user.shape[0]
