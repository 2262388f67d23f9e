"""Load for a stack: people who are shown slates and click, and a book of what was acknowledged."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from saros.client import BusyError, Client, Event, NoAnswerError, UnsentError
from tests.beside import repeated
from tests.compose.stack import await_until

USERS, ITEMS = 200, 60


class Load:
    """Sends slates with clicks to several APIs, and goes on with the next where one does not answer."""

    def __init__(self, clients: Sequence[Client], seed: int = 0) -> None:
        self._clients, self._rng, self._numbers = itertools.cycle(clients), Random(seed), itertools.count()
        self.acknowledged: set[str] = set()
        self.refused = 0  # requests that were not answered with 202, and were sent again elsewhere

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Let events come in all the while, some hundred a second."""
        with repeated(lambda: self.send(20), 0.05):
            yield

    def send(self, slates: int) -> None:
        """Send slates, each with a click, until all of it is acknowledged."""
        left = [event for _ in range(slates) for event in self._slate()]
        while left:
            try:
                receipt = next(self._clients).send_events(left)
            except UnsentError as error:
                if not isinstance(error.__cause__, BusyError | NoAnswerError):
                    raise
                unsent = [left[place] for place in error.unsent]
                self._note([event for event in left if event not in unsent])
                left, self.refused = unsent, self.refused + 1
                continue
            assert receipt.rejected == ()
            self._note(left)
            left = []

    def go_on(self, more: int = 500) -> None:
        """Wait until so many more events were acknowledged: the service takes them, whatever is down."""
        goal = len(self.acknowledged) + more
        await_until(lambda: len(self.acknowledged) >= goal, 120, lambda: f"{len(self.acknowledged)} of {goal}")

    def _slate(self) -> list[Event]:
        user = f"user-{self._rng.randrange(USERS)}"
        shown = [f"item-{number}" for number in self._rng.sample(range(ITEMS), 5)]
        slate: Event = {"kind": "impression", "user": user, "items": shown, "event_id": self._event_id()}
        click: Event = {"kind": "click", "user": user, "item": min(shown), "event_id": self._event_id()}
        return [slate, click]

    def _event_id(self) -> str:
        return f"event-{next(self._numbers)}"

    def _note(self, events: Sequence[Event]) -> None:
        self.acknowledged |= {event["event_id"] for event in events}
