"""What the HTTP side knows of a model."""

from collections.abc import Sequence
from typing import Protocol

from saros.adapters.person import Person
from saros.api.gates import Gates
from saros.api.plan import Answer, Call, Wish
from saros.api.views import ItemView


class Recommender(Protocol):
    """A model that follows its log."""

    @property
    def partitions(self) -> int:
        """Partitions of the events' topic; 0 before genesis."""

    async def start(self) -> None:
        """Load what there is and begin to follow."""

    def end_waits(self) -> None:
        """Answer at once all who wait for a token, and those who would."""

    async def close(self) -> None:
        """End everything that runs."""

    def why_not_ready(self) -> list[str]:
        """Return what is missing, in words; nothing: it is ready."""

    def why_dead(self) -> str:
        """Return why it will never follow its log again unless the process is started anew; empty: it does."""

    async def recommend(self, wishes: Sequence[Wish]) -> list[Answer]:
        """Answer wishes; a TokenError is a token that is none."""

    def serve(self, call: Call) -> None:
        """Answer a caller's wishes, none of which has a token, as soon as may be."""

    async def rank(self, wish: Wish, candidates: Sequence[str]) -> Answer:
        """Rank candidates as a user or a guest would have them."""

    def similar(self, item_id: str, k: int, exclude: Sequence[str], category: str) -> list[tuple[str, float]] | None:
        """Return the items nearest to one; None: it is not known."""

    def popular(self, k: int, category: str) -> list[tuple[str, float]]:
        """Return what is liked of late."""

    async def reach(self, token: str, wait_ms: int) -> bool | None:
        """Wait until the log is folded as far as a token says; None: there is none. A TokenError is no token."""

    def item(self, item_id: str) -> ItemView | None:
        """Return an item as it is now; None: it is not known, or was deleted."""

    async def person(self, user_id: str, token: str, wait_ms: int) -> tuple[Person | None, bool | None]:
        """Return what is known of a user, and whether a token was reached. A SarosError: the store is away."""

    def gates(self) -> Gates:
        """Return the gate as the log has it. It is asked for when the model is there."""

    def clicks_per_block(self) -> float | None:
        """Return how many clicks a block has, as far as was seen; None: no block was."""

    def stats(self) -> dict[str, object]:
        """Return how the model stands."""

    def sample(self) -> None:
        """Note how it stands, for those who will look back. It is called once a second."""

    async def pulse(self) -> dict[str, object]:
        """Return how it stands, for those who watch."""

    def history(self) -> dict[str, object]:
        """Return what was noted of late."""
