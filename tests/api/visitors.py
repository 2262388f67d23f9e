"""People for a page to watch: they like some items, are shown the model's slates or random ones, and click."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import httpx

from tests.beside import repeated

ITEMS, USERS, TASTES = 60, 40, 4
SLATE = 5
CONTROL = 0.4  # of the slates are random
LIKED, OTHER = 0.5, 0.04  # how likely an item is clicked
PAUSE_S = 0.03


def item_of(number: int) -> str:
    return f"film-{number:04d}"


def _likes(user: int, item: str) -> bool:
    return int(item.rpartition("-")[2]) % TASTES == user % TASTES


class Visitors:
    """People who come one after the other."""

    def __init__(self, client: httpx.Client, seed: int = 0) -> None:
        self._client, self._rng = client, Random(seed)

    def come(self) -> None:
        """Let one be shown a slate, and click what it likes."""
        user, control = self._rng.randrange(USERS), self._rng.random() < CONTROL
        slate = [item_of(k) for k in self._rng.sample(range(ITEMS), SLATE)]
        if not control:
            answer = self._client.get(
                "/v1/recommendations", params={"user_id": f"u{user}", "k": SLATE, "exclude_seen": False}
            )
            told = [item["item_id"] for item in answer.json().get("items", [])]
            slate = [item for item in told if item.startswith("film-")] or slate
        clicked = [item for item in slate if self._rng.random() < (LIKED if _likes(user, item) else OTHER)]
        own = {"user": f"u{user}", "scenario": "random" if control else "model"}
        self.send(
            {"kind": "impression", "items": slate, **own}, *({"kind": "click", "item": one, **own} for one in clicked)
        )

    def send(self, *events: dict[str, Any]) -> None:
        self._client.post("/v1/events", json=list(events)).raise_for_status()

    def name_items(self) -> None:
        """Give every second item a title."""
        named = range(0, ITEMS, 2)
        self.send(*({"kind": "item", "item": item_of(k), "properties": {"title": f"Film No. {k}"}} for k in named))

    def be_a_bot(self, name: str, blocks: int) -> None:
        """Click one item after the other, many more than people do."""
        for k in range(blocks):
            item = item_of(k % ITEMS)
            self.send({"kind": "impression", "user": name, "items": [item_of((k + 1) % ITEMS), item]},
                      {"kind": "click", "user": name, "item": item})  # fmt: skip


@contextmanager
def visited(url: str, seed: int = 0) -> Iterator[None]:
    """Let people come all the while."""
    with httpx.Client(base_url=url, timeout=30) as client, repeated(Visitors(client, seed).come, PAUSE_S):
        yield
