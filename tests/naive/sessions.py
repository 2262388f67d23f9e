"""Slow, obvious twin of saros.core.sessions: one event at a time in, what the gate has to know out.

Plain Python integers, dicts and lists; nothing here imports Saros. A dict keeps the order in which its keys came, and a
new value for an old key keeps the key's place: that is all a pending set has to do.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DAY_MS = 86_400_000
IDS_REMEMBERED = 16
WEIGHT_ONE = 4096  # weights are whole numbers of 1/4096
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Event:
    """One event; `user` is the user's key and `kind` one of impression, click, negative, positive, erase, tick."""

    user: int
    kind: str
    items: tuple[int, ...] = ()
    time_ms: int = 0  # 0: the log's time
    log_ms: int = 0
    event_id: int = 0  # 0: none
    session: int = 0  # 0: none
    weight: float = 1.0
    bot: bool = False


Weighted = tuple[tuple[int, int], ...]  # (item, weight), in order of arrival


@dataclass(frozen=True)
class Block:
    """A closed block."""

    user: int
    clock_ms: int
    negatives: Weighted
    positives: Weighted


@dataclass(frozen=True)
class SessionEnd:
    """A session with blocks that wait for its end is over; the clock is that of the user's last event."""

    user: int
    clock_ms: int


@dataclass(frozen=True)
class NewDay:
    """The watermark has reached another day."""

    clock_ms: int


@dataclass(frozen=True)
class Erased:
    """A user is to be forgotten."""

    user: int
    clock_ms: int


@dataclass(frozen=True)
class Expired:
    """A user was away for so long that it counts as new; the clock is that of its last event."""

    user: int
    clock_ms: int


Op = Block | SessionEnd | NewDay | Erased | Expired


@dataclass(frozen=True)
class Rules:
    """As saros.core.sessions.SessionRules, with the rule's name."""

    rule: str = "click"
    gap_ms: int = 1_800_000
    negatives_max: int = 64
    carried_max: int = 16
    clicked_max: int = 64
    ahead_ms: int = 300_000
    ttl_ms: int = 0
    split_on_id: bool = False
    seed: int = 0
    hold: bool = False  # blocks wait for the end of the session, so somebody has to be told
    wait_ms: int = 0  # and longer where they come faster than one in this time


@dataclass
class _User:
    """The session side of a user."""

    clock: int | None = None
    session: int = 0
    ids: list[int] = field(default_factory=list)
    shown: dict[int, int] = field(default_factory=dict)  # pending negatives and their weights
    carried: dict[int, int] = field(default_factory=dict)  # pending positives and their weights
    clicked: list[int] = field(default_factory=list)  # in this session
    run_used: bool = False  # `authors`: the pending negatives have been in a block
    held: bool = False  # blocks wait for the user's deadline
    free: int = 0  # before this, blocks closed at the pace of one per `wait_ms` would still be coming in


def splitmix64(x: int) -> int:
    """The SplitMix64 output that follows state x."""
    z = (x + 0x9E3779B97F4A7C15) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def weight_of(weight: float) -> int:
    """A weight in steps of 1/4096, the nearest one (halves to even), at least one step."""
    return max(1, round(weight * WEIGHT_ONE))


class Sessions:
    """The sessions of one partition."""

    def __init__(self, rules: Rules, pool: Mapping[int, Sequence[int]] | None = None) -> None:
        """`pool` holds, for the rule `authors`, the items that each user may be given as a negative."""
        self.rules, self.pool = rules, pool or {}
        self.users: dict[int, _User] = {}
        self.watermark: int | None = None
        self.counts: Counter[str] = Counter()
        self.ops: list[Op] = []

    def feed(self, event: Event) -> list[Op]:
        """Take one event; return what it made happen, in order."""
        self.ops = []
        said = event.time_ms or event.log_ms
        time = min(said, event.log_ms + self.rules.ahead_ms)
        if event.kind == "tick":
            self.counts["ticks"] += 1
            self._advance(time)
            return self.ops
        if event.bot:
            self.counts["bots"] += 1
            return self.ops
        user = self.users.setdefault(event.user, _User())
        if event.event_id != 0 and event.event_id in user.ids:
            self.counts["duplicates"] += 1
            return self.ops
        before = user.clock
        clock = time if before is None else max(before, time)
        self.counts["ahead"] += said > time
        self.counts["late"] += before is not None and said < before
        self._advance(clock)
        user = self._renew(event, clock)
        if event.event_id != 0:
            user.ids = [*user.ids, event.event_id][-IDS_REMEMBERED:]
        self._take(event, user)
        return self.ops

    def _deadline(self, user: _User) -> int:
        """When the held blocks of a user are due: its session has ended, and it was not too fast."""
        assert user.clock is not None
        return max(user.clock + self.rules.gap_ms, user.free)

    def _advance(self, time: int) -> None:
        """Move the watermark: sessions whose deadline it passes end, the earliest first, then a new day begins."""
        if self.watermark is not None and time <= self.watermark:
            return
        held = [(self._deadline(user), key) for key, user in self.users.items() if user.held]
        for deadline, key in sorted(held):
            if deadline < time:
                self._end_held(key)
        if self.watermark is None or time // DAY_MS != self.watermark // DAY_MS:
            self.ops.append(NewDay(time))
        self.watermark = time

    def _end_held(self, key: int) -> None:
        """Tell that a session with held blocks is over."""
        user = self.users[key]
        if user.held and user.clock is not None:
            user.held = False
            self.ops.append(SessionEnd(key, user.clock))

    def _renew(self, event: Event, clock: int) -> _User:
        """Move the user's clock; too long a jump ends the user or the session, another session id the session."""
        user, rules = self.users[event.user], self.rules
        if user.clock is not None:
            jump = clock - user.clock
            another = event.session != 0 and user.session != 0 and event.session != user.session
            if 0 < rules.ttl_ms < jump:
                self.ops.append(Expired(event.user, user.clock))
                self.counts["users_expired"] += 1
                self._drop_pending(user, "expired")
                user = self.users[event.user] = _User()
            elif 0 < rules.gap_ms < jump or (rules.split_on_id and another):
                self.counts["sessions_ended"] += 1
                user.session = 0
                self._drop_pending(user, "expired")
                if user.free <= clock:
                    self._end_held(event.user)
        user.clock = clock
        user.session = event.session or user.session
        return user

    def _drop_pending(self, user: _User, why: str) -> None:
        """Forget what is pending; negatives that were in a block already are not lost."""
        self.counts[f"negatives_{why}"] += 0 if user.run_used else len(user.shown)
        self.counts[f"carried_{why}"] += len(user.carried)
        user.shown, user.carried, user.clicked, user.run_used = {}, {}, [], False

    def _take(self, event: Event, user: _User) -> None:
        """Do what an event says."""
        self.counts[f"{event.kind}s"] += 1
        if event.kind == "erase":
            assert user.clock is not None
            self.ops.append(Erased(event.user, user.clock))
            self._drop_pending(user, "erased")
            self.users[event.user] = _User()
        elif event.kind in ("click", "positive"):
            weight = WEIGHT_ONE if event.kind == "click" else weight_of(event.weight)
            self._click(event.user, user, event.items[0], weight)
        else:
            for item in event.items:
                self.counts["shown"] += 1
                if event.kind == "negative":
                    joined = self._dislike(user, item, weight_of(event.weight))
                else:
                    joined = self._show(user, item)
                if joined and self.rules.rule == "algorithm" and user.carried:
                    self._close(event.user, user)

    def _show(self, user: _User, item: int) -> bool:
        """An impression; True if the item has become a pending negative."""
        if item in user.clicked or item in user.carried:
            self.counts["shown_clicked"] += 1
            return False
        return self._join(user, item, WEIGHT_ONE)

    def _dislike(self, user: _User, item: int, weight: int) -> bool:
        """Negative feedback: a pending click on the item is withdrawn, and its weight is the last one given."""
        if user.carried.pop(item, None) is not None:
            self.counts["carried_retracted"] += 1
        if item in user.shown and not user.run_used:
            user.shown[item] = weight
        return self._join(user, item, weight)

    def _join(self, user: _User, item: int, weight: int) -> bool:
        """Add a pending negative, once; after a click the rule `authors` starts a new run."""
        if user.run_used:
            user.shown, user.run_used = {}, False
        if item in user.shown:
            self.counts["shown_again"] += 1
            return False
        if len(user.shown) == self.rules.negatives_max:
            del user.shown[next(iter(user.shown))]
            self.counts["negatives_capped"] += 1
        user.shown[item] = weight
        return True

    def _click(self, key: int, user: _User, item: int, weight: int) -> None:
        """A click or positive feedback."""
        rules = self.rules
        if user.shown.pop(item, None) is not None:
            self.counts["negatives_clicked"] += 1
        if item not in user.clicked:
            user.clicked.append(item)
            if len(user.clicked) > rules.clicked_max:
                del user.clicked[0]
                self.counts["clicked_capped"] += 1
        self.counts["carried"] += 1
        self.counts["carried_again"] += item in user.carried
        user.carried[item] = weight
        if user.shown:
            self._close(key, user)
        elif rules.rule == "authors":
            self._close_drawn(key, user, item)
        elif len(user.carried) > rules.carried_max:
            del user.carried[next(iter(user.carried))]
            self.counts["carried_capped"] += 1

    def _close_drawn(self, key: int, user: _User, clicked: int) -> None:
        """`authors`: close a block against one negative drawn from the user's own items, if there is another item."""
        pool = self.pool.get(key, ())
        offset = splitmix64(splitmix64(self.rules.seed) ^ key) % len(pool) if pool else 0
        others = [item for item in [*pool[offset:], *pool[:offset]] if item != clicked]
        if others:
            user.shown = {others[0]: WEIGHT_ONE}
            self._close(key, user)
            user.shown = {}
        else:
            user.carried = {}
            self.counts["clicks_alone"] += 1

    def _close(self, key: int, user: _User) -> None:
        """Close a block of all that is pending; `authors` keeps the negatives for the next click."""
        assert user.clock is not None
        negatives, positives = tuple(user.shown.items()), tuple(user.carried.items())
        self.ops.append(Block(key, user.clock, negatives, positives))
        self.counts["blocks"] += 1
        self.counts["block_negatives"] += len(negatives)
        self.counts["block_positives"] += len(positives)
        user.carried = {}
        if self.rules.rule == "authors":
            user.run_used = True
        else:
            user.shown = {}
        if self.rules.hold:
            user.held = True
            # One that has been too fast is not waited for longer than the longest window there is.
            user.free = min(max(user.free, user.clock) + self.rules.wait_ms, user.clock + 8 * DAY_MS)

    def pending(self) -> tuple[int, int]:
        """How many negatives (not yet in a block) and clicks are pending, over all users."""
        users = self.users.values()
        return sum(len(u.shown) for u in users if not u.run_used), sum(len(u.carried) for u in users)
