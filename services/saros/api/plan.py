"""What the API is told, what it is asked, and what it answers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import orjson

from saros.adapters.kafka import Cluster
from saros.adapters.redis import Address
from saros.core.gate import GateRules
from saros.core.sessions import SessionRules
from saros.core.step import StepRules

_PLACES_MAX = 1024  # of a token: there are no more partitions


class ApiPlan(NamedTuple):
    """All that the model side is told."""

    model: str
    cluster: Cluster
    store: Address
    items_max: int
    lag_max_s: float  # beyond it we are not ready
    cache_users: int
    step: StepRules
    session: SessionRules
    gate: GateRules
    scenarios: tuple[str, ...] = ()  # the order in which they are told


class Extras(NamedTuple):
    """What a wish may ask for beyond the best items: see `saros.api.extras`."""

    own_id: str  # of the answer
    seed: str  # what is drawn comes from it
    explore: float = 0.0  # share of places that are given to uncertain items
    diversity: float = 0.0  # how much nearness to items before counts against one
    explain: bool = False


class Wish(NamedTuple):
    """One request for recommendations."""

    user_id: str = ""  # empty: a guest
    session: tuple[tuple[str, bool], ...] = ()  # (item id, clicked) of a guest, in order
    k: int = 10
    exclude: tuple[str, ...] = ()
    exclude_seen: bool = True
    category: str = ""
    token: str = ""  # read-your-writes: "partition:offset,partition:offset"
    wait_ms: int = 0
    extras: Extras | None = None


class Answer(NamedTuple):
    """What is recommended, and how that came about."""

    listed: list[tuple[str, float]] | bytes  # item id, score; best first. Bytes: written as JSON already
    source: str  # "model" | "session" | "popular"
    user_state: str  # "cold" | "below" | "in_band" | "above"
    model_time_ms: int  # newest broker time folded
    stale: bool
    token_reached: bool | None  # None: no token was given
    notes: list[dict[str, object]] | None = None  # what else there is to say of each item

    @property
    def items(self) -> list[tuple[str, float]]:
        """What is recommended: item id, score; best first."""
        return pairs_of(self.listed)


def pairs_of(listed: list[tuple[str, float]] | bytes) -> list[tuple[str, float]]:
    """Return items with their scores, out of their JSON if they are that."""
    if isinstance(listed, bytes):
        return [(item["item_id"], item["score"]) for item in orjson.loads(listed)]
    return listed


class Call(Protocol):
    """Wishes of one caller, who is told. One of both is called, once."""

    @property
    def wishes(self) -> Sequence[Wish]:
        """What is wished for; one at least."""

    def resolve(self, found: Sequence[Answer]) -> None:
        """Hand over the answers."""

    def fail(self, error: BaseException) -> None:
        """Tell that there are none."""


class TokenError(ValueError):
    """A token is none of ours."""


def read_token(token: str, partitions: int) -> dict[int, int]:
    """Return the furthest offset of each partition that a token names; TokenError where it is none of ours.

    Who puts tokens together may name a partition again and again.
    """
    if token.count(",") >= _PLACES_MAX:
        raise TokenError(f"a token names {_PLACES_MAX} places at most: of each partition the furthest is enough")
    places = dict[int, int]()
    for part in token.split(","):
        partition, colon, offset = part.partition(":")
        if not (colon and partition.isascii() and partition.isdecimal() and offset.isascii() and offset.isdecimal()):
            raise TokenError("a token is partition:offset, more of them separated by commas")
        if len(partition) > 4 or int(partition) >= partitions or len(offset) > 18:
            raise TokenError(f"a token names partition {partition[:8]}, offset {offset[:20]}: there is no such place")
        places[int(partition)] = max(int(offset), places.get(int(partition), 0))
    return places
