"""Slow, obvious twin of saros.core.gate and saros.core.settle: what the gate says to each block, and the ledgers.

It takes what `tests.naive.sessions` gives, one op at a time, as if every batch held one. What a micro-batch changes is
one sentence, and stands in `in_one_batch`: a block that would be added and taken back within a batch is never added.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.naive import sessions as naive_sessions
from tests.naive.sessions import DAY_MS, Block, Erased, Event, Expired, NewDay, Op, SessionEnd, Sessions, Weighted

REPEATS_REMEMBERED = 128
ENTRY_BYTES = 20  # of a ledger entry, before its row (4 bytes a coordinate) and its items (12 bytes each)


@dataclass(frozen=True)
class Rules:
    """As saros.core.gate.GateRules without its defences, with the mode's name, and the sizes of rows and item table."""

    blocks_min: int = 1  # 0: estimated
    blocks_max: int = 0  # 0: estimated
    percentile: float = 97.0  # 0: the mean
    blocks_max_floor: int = 50
    blocks_max_ceiling: int = 1 << 30
    window_days: int = 7
    mode: str = "immediate"
    own_row: bool = False
    ignore_repeats: bool = False
    wait_ms: int = 0
    ledger_max_bytes: int = 524_288
    dim: int = 4
    items_max: int = 1 << 30


@dataclass(frozen=True)
class Row:
    """What the step is told, in order: score, add or move a block, take one back, or reset a user."""

    user: int
    life: int  # users that were erased or have expired start anew, and so do their block numbers
    number: int
    time_ms: int
    sign: int
    decision: str
    flags: frozenset[str]
    negatives: Weighted = ()
    positives: Weighted = ()


@dataclass
class Entry:
    """A block in a ledger."""

    number: int
    time_ms: int
    sign: int = 0  # 0 waits, 1 was added
    moved: bool = False  # the user's own row has learned from it
    negatives: Weighted = ()
    positives: Weighted = ()
    bytes: int = field(default=0, compare=False)  # what it costs


@dataclass
class _Life:
    """The gate side of a user, from its first event to its erase or expiry."""

    index: int = 0
    days: list[int] = field(default_factory=list)  # of every block it closed
    ledger: list[Entry] = field(default_factory=list)
    repeats: list[int] = field(default_factory=list)  # the last items it clicked
    would: list[tuple[int, int]] = field(default_factory=list)  # day and bytes the ledger would hold, in a shadow
    moves: int = 0  # n_u: how often its own row has moved
    taken: int = 0  # blocks that were taken back because it passed B
    taken_days: list[int] = field(default_factory=list)  # of them those in the window, when its last block closed


@dataclass(frozen=True)
class Decision:
    """The gate's word on a block."""

    user: int
    life: int
    number: int
    word: str


def bin_edges() -> list[tuple[int, int]]:
    """Lowest and highest count of each of the 128 bins: one count each below 64, then 8 bins per doubling."""
    edges = [(count, count) for count in range(64)]
    low, width = 64, 8
    while len(edges) < 128:
        for _ in range(8):
            edges.append((low, low + width - 1))
            low += width
        width *= 2
    return edges


_EDGES = bin_edges()


def bin_of(count: int) -> int:
    """The bin that holds a count; the last one holds all that are higher too."""
    return next((k for k, (_, high) in enumerate(_EDGES) if count <= high), len(_EDGES) - 1)


def _without_one(pairs: list[tuple[int, int]], gone: tuple[int, int]) -> list[tuple[int, int]]:
    """The list without the first of these, if it is there."""
    place = pairs.index(gone) if gone in pairs else len(pairs)
    return pairs[:place] + pairs[place + 1 :]


class Gate:
    """The gate of one partition, with the ledgers of its users."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.lives: dict[int, _Life] = {}
        self.last: dict[tuple[int, int], tuple[int, int]] = {}  # user and life -> day of its last block, count then
        self.bounds = (max(1, rules.blocks_min), rules.blocks_max or rules.blocks_max_floor)
        self.counts: Counter[str] = Counter()
        self.decisions: list[Decision] = []
        self.items: set[int] = set()  # that have a slot
        self.rows: list[Row] = []

    def take(self, op: Op) -> list[Row]:
        """Take one op; return what the step is told."""
        self.rows = []
        if isinstance(op, NewDay):
            self._estimate(op.clock_ms // DAY_MS)
            return self.rows
        life = self.lives.setdefault(op.user, _Life())
        today = op.clock_ms // DAY_MS
        if isinstance(op, Block):
            self._block(op, life, today)
            return self.rows
        self._vest(life, today)
        if isinstance(op, SessionEnd):
            if self.bounds[0] <= self._count(life, today) <= self.bounds[1]:
                self._release(op.user, life)
        else:
            self._end(op, life)
        return self.rows

    def count(self, user: int, time_ms: int) -> int:
        """A user's count at a time of its clock."""
        return self._count(self.lives.get(user, _Life()), time_ms // DAY_MS)

    def _count(self, life: _Life, today: int) -> int:
        """The user's closed blocks in the window that ends today."""
        return sum(day > today - self.rules.window_days for day in life.days)

    def _block(self, block: Block, life: _Life, today: int) -> None:
        """Decide what becomes of a closed block."""
        number = len(life.days)
        life.days.append(today)
        count = self._count(life, today)
        self.last[block.user, life.index] = (today, count)
        self._vest(life, today)
        life.taken_days = [day for day in life.taken_days if day > today - self.rules.window_days]
        block, left = self._without_repeats(block, life)
        word = self._word(block, life, count, left)
        if word == "over":
            if life.would if self.rules.mode == "shadow" else life.ledger:
                self.counts["crossed"] += 1
            life.would = []
            if self.rules.mode != "shadow":
                self._take_back(block.user, life)
        elif word == "learn":
            self._release(block.user, life)
        self._put(block, life, number, word, left)
        if self.rules.mode != "shadow":
            life.would = [(entry.time_ms // DAY_MS, entry.bytes) for entry in life.ledger]

    def _without_repeats(self, block: Block, life: _Life) -> tuple[Block, int]:
        """The block as it may teach, and how many of its clicks are new; `shadow` counts but leaves it alone."""
        if not self.rules.ignore_repeats:
            return block, len(block.positives)
        new = tuple(pair for pair in block.positives if pair[0] not in life.repeats)
        self.counts["repeat_clicks"] += len(block.positives) - len(new)
        life.repeats = [*life.repeats, *(item for item, _ in new)][-REPEATS_REMEMBERED:]
        return block if self.rules.mode == "shadow" else replace(block, positives=new), len(new)

    def _bytes(self, block: Block, clicks: int) -> int:
        """What a block with so many clicks costs in a ledger."""
        return ENTRY_BYTES + 4 * self.rules.dim + 12 * (len(block.negatives) + clicks)

    def _word(self, block: Block, life: _Life, count: int, clicks: int) -> str:
        """The gate's word; what has left the window has left the ledger already."""
        kept = sum(entry.bytes for entry in life.ledger)
        if self.rules.mode == "shadow":
            kept = sum(size for _, size in life.would)
        if count > self.bounds[1]:
            return "over"
        if clicks == 0:
            return "repeat"
        if kept + self._bytes(block, clicks) > self.rules.ledger_max_bytes:
            return "ledger_full"
        if count < self.bounds[0]:
            return "wait"
        return "hold" if self.rules.mode == "session" else "learn"

    def _put(self, block: Block, life: _Life, number: int, word: str, clicks: int) -> None:
        """Score the block, let it teach now if it may, and keep it if it may be added or taken back later."""
        would = False
        booked, size = word in ("learn", "wait", "hold"), self._bytes(block, len(block.positives))
        if self.rules.mode == "shadow":
            # The ledger takes whatever is added, so that an erase finds it, as long as there is room.
            would, booked = booked, sum(entry.bytes for entry in life.ledger) + size <= self.rules.ledger_max_bytes
        adds = word == "learn" or self.rules.mode == "shadow"
        # A block that has lost all its clicks has nothing to teach, not even to its user's own row.
        moves = adds or word == "hold" or (self.rules.own_row and clicks > 0)
        if adds and not self._admit(block.negatives, block.positives):
            word, booked, would, adds, moves = "items_full", False, False, False, False
        self.counts[{"learn": "learned", "wait": "waited", "hold": "held"}.get(word, word)] += 1
        self.decisions.append(Decision(block.user, life.index, number, word))
        flags = {"SCORE"} | ({"ADD"} if adds else set()) | ({"MOVE"} if moves else set())
        life.moves += moves
        entry = Entry(number, block.clock_ms, int(adds), moves, block.negatives, block.positives)
        entry.bytes = size
        self._tell(block.user, life, entry, int(adds), word, flags)
        if booked:
            life.ledger.append(entry)
        if would:
            life.would.append((block.clock_ms // DAY_MS, self._bytes(block, clicks)))

    def _tell(self, user: int, life: _Life, block: Entry, sign: int, word: str, flags: set[str]) -> None:
        """Tell the step what to do with a block."""
        of_block = (block.negatives, block.positives)
        row = Row(user, life.index, block.number, block.time_ms, sign, word, frozenset(flags), *of_block)
        self.rows.append(row)

    def _admit(self, negatives: Weighted, positives: Weighted) -> bool:
        """Give the block's new items slots, all or none."""
        wanted = self.items | {item for item, _ in (*negatives, *positives)}
        if len(wanted) > max(self.rules.items_max, len(self.items)):
            return False
        self.items = wanted
        return True

    def _release(self, user: int, life: _Life) -> None:
        """Add what waits, in order; a block that has not moved the user's row yet does so now."""
        for entry in [entry for entry in life.ledger if entry.sign == 0]:
            self.counts["released"] += 1
            word, flags = "learn", {"ADD", "STORED" if entry.moved else "MOVE"}
            if not self._admit(entry.negatives, entry.positives):
                self.counts["items_full"] += 1
                word, flags = "items_full", set()
                life.ledger.remove(entry)
                life.would = _without_one(life.would, (entry.time_ms // DAY_MS, entry.bytes))
            life.moves += "MOVE" in flags
            entry.sign = int("ADD" in flags)
            self._tell(user, life, entry, entry.sign, word, flags)

    def _vest(self, life: _Life, today: int) -> None:
        """Blocks that have left the window leave the ledger: what was added stays for good, what waited is dropped."""
        kept = []
        for entry in life.ledger:
            if entry.time_ms // DAY_MS > today - self.rules.window_days:
                kept.append(entry)
            else:
                self.counts["vested" if entry.sign == 1 else "waiting_expired"] += 1
        life.ledger = kept
        life.would = [(day, size) for day, size in life.would if day > today - self.rules.window_days]

    def _take_back(self, user: int, life: _Life, expired: bool = False) -> None:
        """End the ledger: what was added goes out again, or is vested; what waited is dropped."""
        for entry in life.ledger:
            if entry.sign == 0:
                self.counts["waiting_dropped"] += 1
            elif expired:
                self.counts["vested"] += 1
            else:
                self.counts["taken_back"] += 1
                self._tell(user, life, entry, -1, "none", set())
                life.taken += 1
                life.taken_days.append(entry.time_ms // DAY_MS)
        life.ledger = []

    def _end(self, op: Erased | Expired, life: _Life) -> None:
        """Forget a user: an erase takes back what is in the window; of an expired one all that was added is vested."""
        if isinstance(op, Erased):
            self.last.pop((op.user, life.index), None)
        self._take_back(op.user, life, expired=isinstance(op, Expired))
        self._tell(op.user, life, Entry(len(life.days), op.clock_ms), 0, "none", {"RESET"})
        self.lives[op.user] = _Life(life.index + 1)

    def _estimate(self, today: int) -> None:
        """Bounds for a new day, from the users whose last block lies in the window of days before it."""
        rules, (low, high) = self.rules, self.bounds
        counts = [count for day, count in self.last.values() if today - rules.window_days <= day < today]
        if not counts:
            return
        if rules.blocks_min == 0:
            low = max(1, _EDGES[bin_of(min(counts))][0])
        if rules.blocks_max == 0:
            estimate = sum(counts) // len(counts)
            if rules.percentile > 0:
                bins = sorted(bin_of(count) for count in counts)
                # The lowest bin such that at least this share of the users lies in it or below.
                share = (k for k in bins if sum(other <= k for other in bins) * 100 >= rules.percentile * len(bins))
                estimate = _EDGES[next(share)][1]
            high = max(rules.blocks_max_floor, min(rules.blocks_max_ceiling, estimate))
        self.bounds = (low, high)


def in_one_batch(rows: Sequence[Row]) -> list[Row]:
    """The rows of a micro-batch, given those of its ops: what would be added and taken back again is not added."""
    taken_back = {(row.user, row.life, row.number) for row in rows if row.sign < 0}
    added = {(row.user, row.life, row.number) for row in rows if row.sign > 0}
    told = []
    for row in rows:
        if (row.user, row.life, row.number) not in taken_back & added:
            told.append(row)
        elif row.sign > 0:
            told.append(replace(row, sign=0, flags=row.flags - {"ADD"}))
        elif row.sign == 0:
            told.append(row)
    return told


def item_counters(rows: Sequence[Row]) -> dict[int, tuple[int, int, int]]:
    """Clicked, shown and updates of every item, recounted from signed rows; zeros are left out."""
    counters: dict[int, list[int]] = {}
    for row in rows:
        for column, pairs in enumerate((row.positives, row.negatives)):
            for item, _ in pairs:
                if row.sign != 0:
                    counts = counters.setdefault(item, [0, 0, 0])
                    counts[column] += row.sign
                    counts[2] += row.sign
    return {item: (clicked, shown, updates) for item, (clicked, shown, updates) in counters.items() if updates != 0}


def item_buckets(rows: Sequence[Row], day: int) -> dict[int, dict[int, tuple[int, int]]]:
    """Clicked and shown of every item on each of the 8 days that end with this one; zeros are left out."""
    last = [row for row in rows if day - 8 < row.time_ms // DAY_MS <= day]
    buckets: dict[int, dict[int, tuple[int, int]]] = {}
    for today in range(day - 7, day + 1):
        counters = item_counters([row for row in last if row.time_ms // DAY_MS == today])
        for item, (clicked, shown, _) in counters.items():
            buckets.setdefault(item, {})[today] = (clicked, shown)
    return buckets


class Partition:
    """Sessions and gate of one partition, fed in micro-batches."""

    def __init__(
        self, sessions: naive_sessions.Rules, gate: Rules, pool: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        self.sessions = Sessions(replace(sessions, hold=gate.mode == "session", wait_ms=gate.wait_ms), pool)
        self.gate = Gate(gate)
        self.ops: list[Op] = []
        self.rows: list[Row] = []  # of all batches
        self.spared = 0  # blocks that were not added because their batch takes them back

    def learn(self, events: Sequence[Event]) -> list[Row]:
        """Take a micro-batch; return what its step is told."""
        ops = [op for event in events for op in self.sessions.feed(event)]
        one_by_one = [row for op in ops for row in self.gate.take(op)]
        told = in_one_batch(one_by_one)
        self.ops += ops
        self.rows += told
        self.spared += len(one_by_one) - len(told)
        return told

    def change_gate(self, rules: Rules) -> None:
        """Put other rules in force; what is estimated stays as it is until the next day."""
        gate, (low, high) = self.gate, self.gate.bounds
        gate.rules, gate.bounds = rules, (rules.blocks_min or low, rules.blocks_max or high)
        self.sessions.rules = replace(self.sessions.rules, hold=rules.mode == "session", wait_ms=rules.wait_ms)

    def counts(self) -> Counter[str]:
        """All counters, by name."""
        counts = self.sessions.counts + self.gate.counts
        counts["taken_back"] -= self.spared
        return counts

    def moves(self) -> dict[int, int]:
        """How often each user's own row has moved since it was new."""
        return {user: life.moves for user, life in self.gate.lives.items() if life.moves > 0}

    def taken(self) -> dict[int, tuple[int, dict[int, int]]]:
        """Of each user of whom blocks were taken back: how many, and by day those in the window."""
        return {user: (life.taken, dict(Counter(life.taken_days)))
                for user, life in self.gate.lives.items() if life.taken > 0}  # fmt: skip

    def ledgers(self) -> dict[int, list[Entry]]:
        """The ledgers that hold something; nobody asks again whether an added block has moved its user's row."""
        ledgers = {user: life.ledger for user, life in self.gate.lives.items() if life.ledger}
        return {user: [replace(entry, moved=entry.moved or entry.sign == 1) for entry in ledger]
                for user, ledger in ledgers.items()}  # fmt: skip
