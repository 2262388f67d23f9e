"""The calls about items, users and the gate, and their answers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Self, TypedDict

from saros.client.answers import Receipt, Rejected, Told
from saros.client.calls import asked
from saros.client.exchange import Ask, Call


@dataclass(frozen=True, slots=True)
class ItemInfo:
    """What is known of an item. `expires_at` is in milliseconds since 1970."""

    item_id: str
    categories: tuple[str, ...]
    hidden: bool
    expires_at: int | None
    properties: Mapping[str, str]
    served: bool
    updates: int
    clicked: int
    shown: int
    token_reached: bool | None = None

    @classmethod
    def of(cls, told: Told) -> Self:
        """Read an answer."""
        names = ("item_id", "hidden", "expires_at", "properties", "served", "updates", "clicked", "shown")
        return cls(categories=tuple(told["categories"]), token_reached=told.get("token_reached"),
                   **{name: told[name] for name in names})  # fmt: skip


@dataclass(frozen=True, slots=True)
class UserInfo:
    """What is known of a user; docs/api.md says what each number counts."""

    user_id: str
    partition: int
    blocks: int
    blocks_in_window: int
    band: str
    last_seen: str | None
    held: int
    learned: int
    taken_back: int
    taken_back_in_window: int
    left_out: int
    shown: int
    moved: int
    token_reached: bool | None = None

    @classmethod
    def of(cls, told: Told) -> Self:
        """Read an answer."""
        *names, maybe = cls.__slots__
        return cls(token_reached=told.get(maybe), **{name: told[name] for name in names})


@dataclass(frozen=True, slots=True)
class Erased:
    """What becomes of a user when the token is reached, and what stays: each with how long."""

    user_id: str
    token: str
    erased: tuple[str, ...]
    not_erased: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, told: Told) -> Self:
        """Read an answer."""
        left = tuple((one["what"], one["until"]) for one in told["not_erased"])
        return cls(told["user_id"], told["token"], tuple(told["erased"]), left)


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate: the highest revision, whether all partitions have it, its settings, and each partition."""

    revision: int
    in_force: bool
    settings: Mapping[str, Any]
    partitions: tuple[Mapping[str, int], ...]
    token_reached: bool | None = None

    @classmethod
    def of(cls, told: Told) -> Self:
        """Read an answer."""
        return cls(told["revision"], told["in_force"], told["settings"], tuple(told["partitions"]),
                   told.get("token_reached"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class GateChanged:
    """A change of the gate, in force when the token is reached."""

    revision: int
    settings: Mapping[str, Any]
    token: str

    @classmethod
    def of(cls, told: Told) -> Self:
        """Read an answer."""
        return cls(told["revision"], told["settings"], told["token"])


class ItemAction(TypedDict):
    """One of many items that are put, changed or deleted."""

    op: Literal["put", "patch", "delete"]
    item_id: str
    categories: NotRequired[Sequence[str]]
    hidden: NotRequired[bool]
    expires_at: NotRequired[float | None]
    properties: NotRequired[Mapping[str, str]]


def _written(method: str, item_id: str, body: Mapping[str, Any] | None) -> Call[str]:
    content = json.dumps({name: value for name, value in body.items() if value is not None}) if body is not None else ""
    ask = Ask(method, "/v1/items", (("item_id", item_id),), content.encode())
    return Call(ask, lambda told: str(told["token"]))


def get_item(item_id: str, *, min_token: str | None = None, wait_ms: int | None = None) -> Call[ItemInfo]:
    """Return what is known of an item; NotFoundError where nothing is, or it was deleted."""
    return Call(asked("/v1/items", item_id=item_id, min_token=min_token or None, wait_ms=wait_ms), ItemInfo.of)


def put_item(
    item_id: str, *, categories: Sequence[str] = (), hidden: bool = False, expires_at: float | None = None,
    properties: Mapping[str, str] | None = None,
) -> Call[str]:  # fmt: skip
    """Say all that is to be known of an item, in place of what was; return the token from which on it is in force."""
    return _written("PUT", item_id, {
        "categories": list(categories), "hidden": hidden, "expires_at": expires_at, "properties": properties,
    })  # fmt: skip


def patch_item(
    item_id: str, *, categories: Sequence[str] | None = None, hidden: bool | None = None,
    expires_at: float | None = None, properties: Mapping[str, str] | None = None,
) -> Call[str]:  # fmt: skip
    """Change what is given of an item, and return the token. With 0 as `expires_at` it never expires."""
    return _written("PATCH", item_id, {
        "categories": None if categories is None else list(categories), "hidden": hidden, "expires_at": expires_at,
        "properties": properties,
    })  # fmt: skip


def delete_item(item_id: str) -> Call[str]:
    """Delete an item, and return the token."""
    return _written("DELETE", item_id, None)


def batch_items(actions: Iterable[ItemAction]) -> Call[Receipt]:
    """Put, change and delete many items, in order; those that are refused are in the receipt."""
    ask = Ask("POST", "/v1/items:batch", (), json.dumps({"items": list(actions)}).encode())
    return Call(ask, lambda told: Receipt(
        told["accepted"], tuple(Rejected(one["index"], one["reason"], one["detail"]) for one in told["rejected"]),
        told["token"],
    ))  # fmt: skip


def get_user(user_id: str, *, min_token: str | None = None, wait_ms: int | None = None) -> Call[UserInfo]:
    """Return what is known of a user; NotFoundError where nothing is."""
    return Call(asked("/v1/users", user_id=user_id, min_token=min_token or None, wait_ms=wait_ms), UserInfo.of)


def erase_user(user_id: str) -> Call[Erased]:
    """Erase a user; the answer says what goes, and what that does not reach."""
    return Call(Ask("DELETE", "/v1/users", (("user_id", user_id),)), Erased.of)


def gate(*, min_token: str | None = None, wait_ms: int | None = None) -> Call[Gate]:
    """Return how the gate stands."""
    return Call(asked("/v1/gate", min_token=min_token or None, wait_ms=wait_ms), Gate.of)


def change_gate(
    *, blocks_min: int | str | None = None, blocks_max: int | str | None = None, blocks_max_floor: int | None = None,
    blocks_max_ceiling: int | None = None, window_days: int | None = None,
    mode: Literal["immediate", "shadow"] | None = None, own_row: Literal["freeze", "learn"] | None = None,
    repeat_clicks: Literal["ignore", "learn"] | None = None, revision: int | None = None,
) -> Call[GateChanged]:  # fmt: skip
    """Change what is given of the gate. With `revision` only if the gate is at that one.

    A change that may have arrived is not made again: by then somebody else may have changed it, too.
    """
    given = {
        "blocks_min": blocks_min, "blocks_max": blocks_max, "blocks_max_floor": blocks_max_floor,
        "blocks_max_ceiling": blocks_max_ceiling, "window_days": window_days, "mode": mode, "own_row": own_row,
        "repeat_clicks": repeat_clicks, "revision": revision,
    }  # fmt: skip
    content = json.dumps({name: value for name, value in given.items() if value is not None})
    return Call(Ask("PATCH", "/v1/gate", (), content.encode()), GateChanged.of, repeatable=False)


def simulate_gate(blocks_min: int, blocks_max: int) -> Call[dict[str, Any]]:
    """Return what other bounds would drop."""
    return Call(asked("/v1/gate/simulate", blocks_min=blocks_min, blocks_max=blocks_max), dict)
