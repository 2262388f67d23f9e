"""Bodies of requests, and of answers: the former are checked with these models, both are documented with them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from saros.api.limits import SEED_MAX, TOKEN_MAX, TOKEN_SCHEMA, Limits, text_schema
from saros.wire.columns import ID_MAX, SCENARIO_MAX
from saros.wire.rare import CATEGORY_MAX


def as_whole(value: object) -> object:
    """Return a number that is whole as an int, all else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def bytes_up_to(most: int) -> AfterValidator:
    def check(text: str) -> str:
        size = len(text.encode())
        if not 1 <= size <= most:
            raise PydanticCustomError("bytes", "has {size} bytes, not 1 to {most}", {"size": size, "most": most})
        return text

    return AfterValidator(check)


Id = Annotated[str, bytes_up_to(ID_MAX), WithJsonSchema(text_schema(ID_MAX))]
Category = Annotated[str, bytes_up_to(CATEGORY_MAX), WithJsonSchema(text_schema(CATEGORY_MAX))]
_Scenario = Annotated[str, bytes_up_to(SCENARIO_MAX), WithJsonSchema(text_schema(SCENARIO_MAX))]
Seed = Annotated[str, bytes_up_to(SEED_MAX), WithJsonSchema(text_schema(SEED_MAX))]
# 6.0 is a whole number, too: JSON has but one kind of numbers.
FromZero = Annotated[int, Field(ge=0), BeforeValidator(as_whole)]
FromOne = Annotated[int, Field(ge=1), BeforeValidator(as_whole)]
Token = Annotated[str, Field(min_length=1, max_length=TOKEN_MAX), WithJsonSchema(TOKEN_SCHEMA)]


def _exactly_one(*names: str) -> JsonDict:
    """Return how JSON Schema says that one of these fields is given, and the others are not, or are null."""
    return {
        "oneOf": [
            {
                "required": [name],
                "properties": {
                    other: {"type": "null"} if other != name else {"not": {"type": "null"}} for other in names
                },
            }
            for name in names
        ]
    }


class Body(BaseModel):
    """What all bodies of requests share."""

    # A misspelt name is an error and no wish that is silently left out; "5" is no 5.
    model_config = ConfigDict(extra="forbid", strict=True)


class SessionEvent(Body):
    """Something a guest did."""

    item: Id
    kind: Literal["impression", "click", "negative", "positive"]


class _Asked(Body):
    """For whom, and as of when."""

    user_id: Annotated[Id | None, Field(description="A user that the model may know.")] = None
    session: Annotated[list[SessionEvent] | None, Field(description="What a guest did, in order.")] = None
    scenario: Annotated[_Scenario | None, Field(description="Where it is asked; handed back.")] = None
    min_token: Annotated[Token | None, Field(description="Wait until the model has learned from these events.")] = None
    wait_ms: Annotated[FromZero | None, Field(description="How long to wait for the token.")] = None


class RecommendBody(_Asked):
    """A wish for recommendations: for one user, for many users, or for a guest."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            **_exactly_one("user_id", "users", "session"),
            "examples": [
                {"user_id": "ann", "k": 5, "exclude": ["brazil"]},
                {"users": ["ann", "bob"], "k": 5},
                {"session": [{"item": "alien", "kind": "impression"}, {"item": "brazil", "kind": "click"}], "k": 5},
            ],
        },
    )

    users: Annotated[list[Id] | None, Field(min_length=1, description="Many users; the answer has `results`.")] = None
    k: Annotated[FromOne | None, Field(description="How many items; 10 unless it is given.")] = None
    exclude: Annotated[list[Id], Field(description="Items to leave out.")] = []
    exclude_seen: Annotated[bool, Field(description="Leave out what the user clicked of late.")] = True
    category: Annotated[Category | None, Field(description="Only items of this category.")] = None
    explore: Annotated[
        float, Field(ge=0, le=1, description="The share of places that go to items of which little is known yet.")
    ] = 0.0
    diversity: Annotated[
        float, Field(ge=0, le=1, description="How much it counts against an item that it is like those before it.")
    ] = 0.0
    explain: Annotated[bool, Field(description="Say of each item what its score is made of.")] = False
    seed: Annotated[
        Seed | None,
        Field(description="What is drawn with `explore` comes from it; each `recommendation_id`, unless it is given."),
    ] = None

    @model_validator(mode="after")
    def _one_of_three(self) -> "RecommendBody":
        if sum(given is not None for given in (self.user_id, self.users, self.session)) != 1:
            raise PydanticCustomError("one_of", "needs exactly one of user_id, users and session")
        return self


class RankBody(_Asked):
    """Candidates to rank for a user or a guest."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            **_exactly_one("user_id", "session"),
            "examples": [{"user_id": "ann", "candidates": ["alien", "brazil", "clue"]}],
        },
    )

    candidates: Annotated[list[Id], Field(min_length=1, description="The items to rank.")]
    k: Annotated[FromOne | None, Field(description="How many of them; all, unless it is given.")] = None
    exclude_seen: Annotated[bool, Field(description="Leave out what the user clicked of late.")] = False

    @model_validator(mode="after")
    def _one_of_two(self) -> "RankBody":
        if (self.user_id is None) == (self.session is None):
            raise PydanticCustomError("one_of", "needs exactly one of user_id and session")
        return self


class NearestClick(BaseModel):
    """The click of a user that an item is nearest to."""

    item_id: str
    similarity: Annotated[float, Field(description="The cosine of both rows.")]


class Explained(BaseModel):
    """What a score is made of: `prior` and `vector`, or the `rate` alone, where the answer is what is popular."""

    prior: Annotated[float | None, Field(description="How liked the item is by everybody.")] = None
    vector: Annotated[float | None, Field(description="How it suits this user; score = vector + prior.")] = None
    rate: Annotated[float | None, Field(description="Its share of clicks of late.")] = None
    nearest_click: Annotated[NearestClick | None, Field(description="None where no click is known.")]


class Item(BaseModel):
    """An item of an answer."""

    item_id: str
    score: Annotated[float, Field(description="Comparable within one answer only.")]
    rank: Annotated[int, Field(description="From 1, the best.")]
    explored: Annotated[bool | None, Field(description="Only with `explore`: it was drawn, not the best.")] = None
    explain: Annotated[Explained | None, Field(description="Only with `explain`.")] = None


class Recommendations(BaseModel):
    """Items for a user or a guest."""

    recommendation_id: Annotated[str, Field(description="Send it with the events that come of this answer.")]
    items: list[Item]
    source: Annotated[
        Literal["model", "session", "popular"],
        Field(description="The user's own row, the guest's session, or what is liked of late."),
    ]
    user_state: Annotated[
        Literal["cold", "below", "in_band", "above"],
        Field(description="Not known yet, or where the user stands in the gate's band."),
    ]
    model_time: Annotated[str | None, Field(description="When the newest event that the model knows came in.")]
    stale: Annotated[bool, Field(description="True: answered from memory, as a part of the system is away.")]
    took_ms: float
    token_reached: Annotated[
        bool | None, Field(description="Only with a token: whether the model had learned from those events.")
    ] = None
    scenario: Annotated[str | None, Field(description="Only if it was given.")] = None


class UserRecommendations(Recommendations):
    """Items for one of many users."""

    user_id: str


class ManyRecommendations(BaseModel):
    """Items for many users, in the order they were asked for."""

    results: list[UserRecommendations]
    took_ms: float


class Similar(BaseModel):
    """Items near to one."""

    item_id: str
    items: list[Item]
    took_ms: float


class Popular(BaseModel):
    """What is liked of late."""

    items: list[Item]
    took_ms: float


class RejectedEvent(BaseModel):
    """An event that was refused."""

    index: Annotated[int, Field(description="Its place in the request, from 0; empty lines do not count.")]
    reason: Annotated[str, Field(description="One word that never changes.")]
    detail: Annotated[str, Field(description="The same for people.")]


class Accepted(BaseModel):
    """What became of the events."""

    accepted: int
    rejected: list[RejectedEvent]
    token: Annotated[str, Field(description="Where the events stand: give it as `min_token` to read your own writes.")]


def list_limits(limits: Limits) -> dict[tuple[str, str], dict[str, int]]:
    """Return what the settings limit in bodies: by model and field, as JSON schema says it."""
    return {
        ("RecommendBody", "k"): {"maximum": limits.k_max},
        ("RecommendBody", "exclude"): {"maxItems": limits.exclude_max},
        ("RecommendBody", "users"): {"maxItems": limits.users_max},
        ("RecommendBody", "session"): {"maxItems": limits.session_max},
        ("RecommendBody", "wait_ms"): {"maximum": limits.wait_ms_max},
        ("RankBody", "session"): {"maxItems": limits.session_max},
        ("RankBody", "candidates"): {"maxItems": limits.candidates_max},
        ("RankBody", "k"): {"maximum": limits.candidates_max},
        ("RankBody", "wait_ms"): {"maximum": limits.wait_ms_max},
        ("ItemBatch", "items"): {"maxItems": limits.events_max},
    }


def beyond(body: BaseModel, limits: Limits) -> list[dict[str, str]]:
    """Return what in a body is beyond the limits that are set."""
    found = []
    for (model, name), limit in list_limits(limits).items():
        value = getattr(body, name, None) if type(body).__name__ == model else None
        ((rule, most),) = limit.items()
        if isinstance(value, list) and len(value) > most:
            found.append({"in": "body", "name": name, "detail": f"has {len(value)} entries, more than {most}"})
        elif isinstance(value, int) and rule == "maximum" and value > most:
            found.append({"in": "body", "name": name, "detail": f"is above {most}"})
    return found
