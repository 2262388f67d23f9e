"""The calls of the API, one function for each. To add a route, write its function here and name it in both clients.

An id always stands in the query or the body, where it may hold anything: proxies change paths.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from saros.client.answers import Popular, Recommendations, Similar, UserRecommendations
from saros.client.exchange import Ask, Call

_EXCLUDE_IN_QUERY = 20  # a longer list goes into a body: there are limits on what may stand in a URL
_WAIT_MS = 1000  # that the API waits for a token where nobody says how long


class SessionEvent(NamedTuple):
    """Something that a guest did."""

    item: str
    kind: Literal["impression", "click", "negative", "positive"]


def asked(path: str, **params: Any) -> Ask:
    """Return a GET; parameters that are None are left out."""
    found = []
    for name, value in params.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                found.append((name, str(one).lower() if isinstance(one, bool) else str(one)))
    return Ask("GET", path, tuple(found), extra_s=_extra_s(params))


def _post(path: str, **members: Any) -> Ask:
    body = {name: value for name, value in members.items() if value is not None}
    return Ask("POST", path, (), json.dumps(body).encode(), extra_s=_extra_s(members))


def _extra_s(members: dict[str, Any]) -> float:
    if not members.get("min_token"):
        return 0.0
    wait_ms = members.get("wait_ms")
    return (_WAIT_MS if wait_ms is None else wait_ms) / 1000


def _session(session: Iterable[SessionEvent]) -> list[dict[str, str]]:
    return [SessionEvent._make(event)._asdict() for event in session]


def recommend(
    user_id: str, *, k: int | None = None, exclude: Sequence[str] = (), exclude_seen: bool | None = None,
    category: str | None = None, scenario: str | None = None, min_token: str | None = None,
    wait_ms: int | None = None, explore: float | None = None, diversity: float | None = None,
    explain: bool | None = None, seed: str | None = None,
) -> Call[Recommendations]:  # fmt: skip
    """Recommend items to a user."""
    ask = asked if len(exclude) <= _EXCLUDE_IN_QUERY else _post
    return Call(
        ask("/v1/recommendations", user_id=user_id, k=k, exclude=list(exclude), exclude_seen=exclude_seen,
            category=category, scenario=scenario, min_token=min_token or None, wait_ms=wait_ms,
            explore=explore, diversity=diversity, explain=explain, seed=seed),
        Recommendations.of,
    )  # fmt: skip


def recommend_many(
    users: Sequence[str], *, k: int | None = None, exclude: Sequence[str] = (), exclude_seen: bool | None = None,
    category: str | None = None, scenario: str | None = None, min_token: str | None = None,
    wait_ms: int | None = None, explore: float | None = None, diversity: float | None = None,
    explain: bool | None = None, seed: str | None = None,
) -> Call[list[UserRecommendations]]:  # fmt: skip
    """Recommend items to many users, in the order they are given."""
    return Call(
        _post("/v1/recommendations", users=list(users), k=k, exclude=list(exclude), exclude_seen=exclude_seen,
              category=category, scenario=scenario, min_token=min_token or None, wait_ms=wait_ms,
              explore=explore, diversity=diversity, explain=explain, seed=seed),
        lambda told: [UserRecommendations.of(one) for one in told["results"]],
    )  # fmt: skip


def recommend_guest(
    session: Iterable[SessionEvent], *, k: int | None = None, exclude: Sequence[str] = (),
    exclude_seen: bool | None = None, category: str | None = None, scenario: str | None = None,
    min_token: str | None = None, wait_ms: int | None = None, explore: float | None = None,
    diversity: float | None = None, explain: bool | None = None, seed: str | None = None,
) -> Call[Recommendations]:  # fmt: skip
    """Recommend items to a guest, of whom nothing is known but what it did just now."""
    return Call(
        _post("/v1/recommendations", session=_session(session), k=k, exclude=list(exclude), exclude_seen=exclude_seen,
              category=category, scenario=scenario, min_token=min_token or None, wait_ms=wait_ms,
              explore=explore, diversity=diversity, explain=explain, seed=seed),
        Recommendations.of,
    )  # fmt: skip


def rank(
    user_id: str, candidates: Sequence[str], *, k: int | None = None, exclude_seen: bool | None = None,
    scenario: str | None = None, min_token: str | None = None, wait_ms: int | None = None,
) -> Call[Recommendations]:  # fmt: skip
    """Put candidates in the order that a user would have them."""
    return Call(
        _post("/v1/rank", user_id=user_id, candidates=list(candidates), k=k, exclude_seen=exclude_seen,
              scenario=scenario, min_token=min_token or None, wait_ms=wait_ms),
        Recommendations.of,
    )  # fmt: skip


def rank_guest(
    session: Iterable[SessionEvent], candidates: Sequence[str], *, k: int | None = None,
    exclude_seen: bool | None = None, scenario: str | None = None, min_token: str | None = None,
    wait_ms: int | None = None,
) -> Call[Recommendations]:  # fmt: skip
    """Put candidates in the order that a guest would have them."""
    return Call(
        _post("/v1/rank", session=_session(session), candidates=list(candidates), k=k, exclude_seen=exclude_seen,
              scenario=scenario, min_token=min_token or None, wait_ms=wait_ms),
        Recommendations.of,
    )  # fmt: skip


def similar(
    item_id: str, *, k: int | None = None, exclude: Sequence[str] = (), category: str | None = None
) -> Call[Similar]:
    """Return the items nearest to one; NotFoundError where the model does not know it."""
    return Call(asked("/v1/similar", item_id=item_id, k=k, exclude=list(exclude), category=category), Similar.of)


def popular(*, k: int | None = None, category: str | None = None) -> Call[Popular]:
    """Return what is liked of late."""
    return Call(asked("/v1/popular", k=k, category=category), Popular.of)


def stats() -> Call[dict[str, Any]]:
    """Return how the model stands."""
    return Call(asked("/v1/stats"), dict)
