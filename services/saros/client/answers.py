"""Answers as values. A field that the API has and this client does not know yet is left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

Told = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Item:
    """An item of an answer. Scores compare within one answer only."""

    item_id: str
    score: float
    rank: int
    explored: bool | None = None
    explain: Mapping[str, Any] | None = None

    @classmethod
    def all_of(cls, told: Told) -> "tuple[Item, ...]":
        """Return the items of an answer."""
        return tuple(
            cls(one["item_id"], one["score"], one["rank"], one.get("explored"), one.get("explain"))
            for one in told["items"]
        )


@dataclass(frozen=True, slots=True)
class Recommendations:
    """Items for a user or a guest. Send `recommendation_id` with the events that come of it."""

    recommendation_id: str
    items: tuple[Item, ...]
    source: str
    user_state: str
    model_time: str | None
    stale: bool
    took_ms: float
    token_reached: bool | None = None
    scenario: str | None = None

    @classmethod
    def of(cls, told: Told) -> Self:
        """Read an answer."""
        return cls(**cls._fields(told))

    @staticmethod
    def _fields(told: Told) -> Told:
        plain = ("recommendation_id", "source", "user_state", "model_time", "stale", "took_ms")
        maybe = {name: told.get(name) for name in ("token_reached", "scenario")}
        return {"items": Item.all_of(told), **{name: told[name] for name in plain}, **maybe}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecommendations(Recommendations):
    """Items for one of many users."""

    user_id: str

    @classmethod
    def of(cls, told: Told) -> Self:
        """Read one of the results."""
        return cls(user_id=told["user_id"], **cls._fields(told))


@dataclass(frozen=True, slots=True)
class Similar:
    """Items near to one."""

    item_id: str
    items: tuple[Item, ...]
    took_ms: float

    @classmethod
    def of(cls, told: Told) -> Self:
        """Read an answer."""
        return cls(told["item_id"], Item.all_of(told), told["took_ms"])


@dataclass(frozen=True, slots=True)
class Popular:
    """What is liked of late."""

    items: tuple[Item, ...]
    took_ms: float

    @classmethod
    def of(cls, told: Told) -> Self:
        """Read an answer."""
        return cls(Item.all_of(told), told["took_ms"])


@dataclass(frozen=True, slots=True)
class Rejected:
    """An event that was refused: its place among those that were given, a reason that never changes, and words."""

    index: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of events. With `token` as `min_token` an answer waits until the model has learned from them."""

    accepted: int
    rejected: tuple[Rejected, ...]
    token: str
