"""What a micro-batch does: the gate's decisions, and the record that carries them. Pure but for the nonce."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.model.owner import User
from tests.model.world import ADDED, BLOCKS_MAX, WAITING, Entry, Event, Ledger, Record, World, contribution


class Head(NamedTuple):
    """Where the next record of a partition goes on."""

    first: int
    parent: int


def ends_ledger(count: int) -> bool:
    """Whether a user's ledger ends with the event that brings it to this count: an erase, or passing B."""
    return count in (0, BLOCKS_MAX + 1)


class _Books:
    """A user while a micro-batch goes over it."""

    def __init__(self, user: User) -> None:
        self.state, self.waiting = user.state, dict(user.waiting)
        self.entries: dict[int, Entry] = {}  # of this batch, by block number


class Batch:
    """One micro-batch of a partition."""

    def __init__(self, world: World, p: int, log: int) -> None:
        self.world, self.p, self.log = world, p, log
        self.nonce = world.new_nonce(log)

    def compute(
        self,
        head: Head,
        end: int,
        events: Sequence[Event],
        users: Mapping[int, User],
        ledgers: Mapping[int, Ledger],
    ) -> tuple[Record, dict[int, User]]:
        """The record, and its users as they are to be cached. `ledgers` are those that end in this batch."""
        books = {user: _Books(found) for user, found in users.items()}
        for event in events:
            self._take(event, books[event.user])
        sums: Counter[int] = Counter()
        for book in books.values():
            for entry in book.entries.values():
                sums.update(entry.parts)
        for ledger in ledgers.values():
            for entry in ledger.values():
                sums.subtract(self._taken_back(entry))
        states = {user: book.state for user, book in books.items()}
        blocks = {user: book.entries for user, book in books.items()}
        record = Record(
            self.log, head.first, end, head.parent, self.nonce, dict(sums), states, frozenset(ledgers), blocks
        )
        return record, {user: User(book.state, book.waiting) for user, book in books.items()}

    def _take(self, event: Event, book: _Books) -> None:
        """Let the gate decide on an event."""
        context, number = book.state, len(book.state)
        book.state = () if event.erases else (*context, (event.offset, self.nonce))
        if event.erases or number >= BLOCKS_MAX:
            book.entries = {}
            if self.world.rule("waiting ended"):
                book.waiting = {}
            return
        entry = Entry(WAITING, event.offset, event.items, context, {})
        if number + 1 < self.world.blocks_min:
            book.waiting[number] = book.entries[number] = entry
            return
        for waited in sorted(book.waiting):
            book.entries[waited] = self._added(book.waiting[waited])
        book.entries[number] = self._added(entry)
        if self.world.rule("released once"):
            book.waiting = {}

    def _added(self, entry: Entry) -> Entry:
        return entry._replace(sign=ADDED, parts=self._parts(entry))

    def _parts(self, entry: Entry) -> dict[int, int]:
        return {i: contribution(self.p, entry.offset, i, self.nonce, entry.context) for i in entry.items}

    def _taken_back(self, entry: Entry) -> Mapping[int, int]:
        """What is subtracted for an entry of a ledger that ends."""
        return entry.parts if entry.sign == ADDED or self.world.rule("waiting sign") else self._parts(entry)
