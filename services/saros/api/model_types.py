"""What a model is asked, what it answers, and what all of the HTTP side knows of it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Wish(NamedTuple):
    """One request for recommendations."""

    user_id: str = ""  # empty: a guest
    session: tuple[tuple[str, bool], ...] = ()  # (item id, clicked), in order
    k: int = 10
    exclude: tuple[str, ...] = ()
    exclude_seen: bool = True
    category: str = ""
    token: str = ""  # "partition:offset,partition:offset"
    wait_ms: int = 0


class Answer(NamedTuple):
    """What is recommended, and where it comes from."""

    items: list[tuple[str, float]]  # item id, score; best first
    source: str  # "model" | "session" | "popular"
    user_state: str  # "cold" | "below" | "in_band" | "above"
    model_time_ms: int
    stale: bool
    token_reached: bool | None


class Recommender(Protocol):
    """A model that follows its log."""

    @property
    def partitions(self) -> int:
        """Partitions of the events' topic; 0 before genesis."""

    async def start(self) -> None:
        """Load what there is and begin to follow."""

    async def close(self) -> None:
        """End everything that runs."""

    def why_not_ready(self) -> list[str]:
        """Return what is missing, in words; nothing: it is ready."""

    async def recommend(self, wishes: Sequence[Wish]) -> list[Answer]:
        """Answer wishes; a ValueError is a token that is none."""

    async def rank(self, wish: Wish, candidates: Sequence[str]) -> Answer:
        """Rank candidates as a user or a guest would have them."""

    def similar(self, item_id: str, k: int, exclude: Sequence[str], category: str) -> list[tuple[str, float]] | None:
        """Return the items nearest to one; None: it is not known."""

    def popular(self, k: int, category: str) -> list[tuple[str, float]]:
        """Return what is liked of late."""

    def stats(self) -> dict[str, object]:
        """Return how the model stands."""
