"""Bodies of the routes about items, users and the gate, as `saros.api.schemas` has those of the others."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from saros.api.gates import ESTIMATES
from saros.api.schemas import Body, Category, FromZero, Id, as_whole
from saros.core.events import TIME_MAX_MS
from saros.wire.rare import CATEGORIES_MAX, PROPERTIES_MAX

_BLOCKS_MAX = 1_000_000
_Blocks = Annotated[int, Field(ge=1, le=_BLOCKS_MAX), BeforeValidator(as_whole)]
_Days = Annotated[int, Field(ge=1, le=8), BeforeValidator(as_whole)]


def _check_properties(properties: dict[str, str]) -> dict[str, str]:
    size = sum(len(name.encode()) + len(text.encode()) for name, text in properties.items())
    if size > PROPERTIES_MAX:
        raise PydanticCustomError(
            "properties", "names and texts have {size} bytes, more than {most}", {"size": size, "most": PROPERTIES_MAX}
        )
    return properties


_Categories = Annotated[
    list[Category], Field(max_length=CATEGORIES_MAX, description="What kinds of item it is; `category` asks for one.")
]
_ExpiresAt = Annotated[
    Annotated[float, Field(ge=0, le=TIME_MAX_MS)] | None,
    Field(description="Not recommended from this time on: seconds, or milliseconds from 1e11 on. None or 0: never."),
]
_Properties = Annotated[
    dict[str, str],
    AfterValidator(_check_properties),
    Field(description="Whatever else is known of it; 4,096 bytes at most, names and texts together."),
]
_Hidden = Annotated[bool, Field(description="Never recommended while it is true.")]


class ItemBody(Body):
    """All that is to be known of an item, in place of what was; what is left out is as for a new one."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"categories": ["horror"], "properties": {"title": "Alien"}}]},
    )

    categories: _Categories = Field(default_factory=list)
    hidden: _Hidden = False
    expires_at: _ExpiresAt = None
    properties: _Properties = Field(default_factory=dict)


class ItemChange(ItemBody):
    """What is to change of an item; what is left out stays as it is. `properties` are replaced as a whole."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"minProperties": 1, "examples": [{"hidden": True}, {"expires_at": 0}]},
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set & ItemBody.model_fields.keys():
            raise PydanticCustomError("nothing", "names nothing to change")
        return self


class PutItem(ItemBody):
    """An item of a batch that is put."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={})

    op: Literal["put"]
    item_id: Id


class PatchItem(ItemChange):
    """An item of a batch that is changed."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"minProperties": 3})

    op: Literal["patch"]
    item_id: Id


class DeleteItem(Body):
    """An item of a batch that is deleted."""

    op: Literal["delete"]
    item_id: Id


class ItemBatch(Body):
    """Many items."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "items": [
                        {"op": "put", "item_id": "alien", "categories": ["horror"]},
                        {"op": "patch", "item_id": "brazil", "hidden": True},
                        {"op": "delete", "item_id": "clue"},
                    ]
                }
            ]
        },
    )

    items: Annotated[
        list[Annotated[PutItem | PatchItem | DeleteItem, Field(discriminator="op")]],
        Field(min_length=1, description="They count in this order; `op` is as the methods of `/v1/items`."),
    ]


class ItemTold(BaseModel):
    """An item as it is now."""

    item_id: str
    categories: list[str]
    hidden: bool
    expires_at: Annotated[int | None, Field(description="Milliseconds since 1970; None: never.")]
    properties: dict[str, str]
    served: Annotated[bool, Field(description="May be recommended at this moment.")]
    updates: Annotated[int, Field(description="Blocks that have moved it.")]
    clicked: Annotated[int, Field(description="Times it was clicked, in blocks that count.")]
    shown: Annotated[int, Field(description="Times it was passed over, in blocks that count.")]
    token_reached: Annotated[bool | None, Field(description="Only with a token: whether this is as new as it.")] = None


class Written(BaseModel):
    """Kafka has it; the model has it when the token is reached."""

    item_id: str
    token: Annotated[str, Field(description="Give it as `min_token` to read what was written.")]


class UserTold(BaseModel):
    """What is known of a user."""

    user_id: str
    partition: int
    blocks: Annotated[int, Field(description="Closed since it was first seen, or erased.")]
    blocks_in_window: Annotated[int, Field(description="Of them in the gate's window, when the last one closed.")]
    band: Annotated[Literal["below", "in_band", "above"], Field(description="Where that is in the gate's band.")]
    last_seen: Annotated[str | None, Field(description="The user's clock: the time of its newest event.")]
    held: Annotated[int, Field(description="Blocks in the window that wait.")]
    learned: Annotated[
        int, Field(description="Blocks in the window that all have learned from, and can be taken back.")
    ]
    taken_back: Annotated[
        int, Field(description="Blocks that were taken back as it passed B, since it was first seen, or erased.")
    ]
    taken_back_in_window: Annotated[int, Field(description="Of them in the window.")]
    left_out: Annotated[
        int,
        Field(
            description="Blocks in the window that never taught: beyond B, repeats, no room, or held as it passed B."
        ),
    ]
    shown: Annotated[int, Field(description="Items that were shown and wait for a click.")]
    moved: Annotated[int, Field(description="Times its own row has learned.")]
    token_reached: Annotated[bool | None, Field(description="Only with a token: whether this is as new as it.")] = None


class Left(BaseModel):
    """Something that an erase does not reach."""

    what: str
    until: str


class Erased(BaseModel):
    """What becomes of a user, and what does not."""

    user_id: str
    token: Annotated[str, Field(description="When it is reached, the user is gone from the model.")]
    erased: Annotated[list[str], Field(description="What is gone then; the store follows within seconds.")]
    not_erased: Annotated[list[Left], Field(description="What stays, and for how long.")]


class GateChangeBody(Body):
    """What is to change of the gate; what is left out stays as it is."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            # Something that is to change, beside the revision.
            "anyOf": [
                {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
                for name in (
                    "blocks_min",
                    "blocks_max",
                    "blocks_max_floor",
                    "blocks_max_ceiling",
                    "window_days",
                    "mode",
                    "own_row",
                    "repeat_clicks",
                )
            ],
            "examples": [{"blocks_max": 60}, {"blocks_max": "p95", "window_days": 3, "revision": 4}],
        },
    )

    blocks_min: Annotated[_Blocks | Literal["min"] | None, Field(description="The paper's b.")] = None
    blocks_max: Annotated[
        _Blocks | Annotated[str, Field(pattern=f"^(?:{ESTIMATES})$")] | None,
        Field(description="The paper's B; `mean` or a percentile such as `p97` is estimated each day."),
    ] = None
    blocks_max_floor: Annotated[_Blocks | None, Field(description="Least an estimate gives.")] = None
    blocks_max_ceiling: Annotated[_Blocks | None, Field(description="Most an estimate gives.")] = None
    window_days: Annotated[_Days | None, Field(description="Days over which blocks are counted.")] = None
    mode: Annotated[
        Literal["immediate", "shadow"] | None, Field(description="Learn at once, or only count and learn everything.")
    ] = None
    own_row: Annotated[
        Literal["freeze", "learn"] | None, Field(description="What the row of a user outside the band does.")
    ] = None
    repeat_clicks: Annotated[
        Literal["ignore", "learn"] | None,
        Field(
            description="Whether a user's second click on an item teaches. `learn` forgets which items users clicked "
            "last, and with them most of what `exclude_seen` leaves out."
        ),
    ] = None
    revision: Annotated[
        FromZero | None, Field(description="The revision that this is to change; where it is another, it is 409.")
    ] = None


class GateSettingsTold(BaseModel):
    """The gate's settings, as `SAROS_GATE__…` name them."""

    blocks_min: int | str
    blocks_max: int | str
    blocks_max_floor: int
    blocks_max_ceiling: int
    window_days: int
    mode: str
    own_row: str
    repeat_clicks: str


class GatePartition(BaseModel):
    """The gate in one partition."""

    partition: int
    revision: Annotated[int, Field(description="Of the settings in force; 0: those the model began with.")]
    blocks_min: Annotated[int, Field(description="b in force.")]
    blocks_max: Annotated[int, Field(description="B in force.")]


class GateTold(BaseModel):
    """The gate as it stands."""

    revision: Annotated[int, Field(description="The highest that any partition has.")]
    in_force: Annotated[bool, Field(description="True if every partition has it.")]
    settings: Annotated[GateSettingsTold, Field(description="Of that revision.")]
    partitions: list[GatePartition]
    token_reached: Annotated[bool | None, Field(description="Only with a token: whether this is as new as it.")] = None


class GateChanged(BaseModel):
    """Kafka has the change; it is in force when the token is reached."""

    revision: int
    settings: GateSettingsTold
    token: str


class Share(BaseModel):
    """How much would be dropped of something."""

    total: Annotated[int | None, Field(description="None where only the share can be said.")]
    dropped: int | None
    share: Annotated[float, Field(description="From 0 to 1.")]
    exact: Annotated[bool, Field(description="False: the histogram is coarser than the question.")]


class Simulated(BaseModel):
    """What bounds would drop of those whose last block lies in the window."""

    blocks_min: int
    blocks_max: int
    users: Share
    blocks: Share
    clicks: Share
