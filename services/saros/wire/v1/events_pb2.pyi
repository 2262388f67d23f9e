from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("event_id", "user_id", "session_id", "event_time_ms", "recommendation_id", "scenario", "known_bot", "impression", "click", "feedback", "item_upsert", "user_erase", "gate_change", "tick")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_ID_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    KNOWN_BOT_FIELD_NUMBER: _ClassVar[int]
    IMPRESSION_FIELD_NUMBER: _ClassVar[int]
    CLICK_FIELD_NUMBER: _ClassVar[int]
    FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    ITEM_UPSERT_FIELD_NUMBER: _ClassVar[int]
    USER_ERASE_FIELD_NUMBER: _ClassVar[int]
    GATE_CHANGE_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    user_id: str
    session_id: str
    event_time_ms: int
    recommendation_id: str
    scenario: str
    known_bot: bool
    impression: Impression
    click: Click
    feedback: Feedback
    item_upsert: ItemUpsert
    user_erase: UserErase
    gate_change: GateChange
    tick: Tick
    def __init__(self, event_id: _Optional[str] = ..., user_id: _Optional[str] = ..., session_id: _Optional[str] = ..., event_time_ms: _Optional[int] = ..., recommendation_id: _Optional[str] = ..., scenario: _Optional[str] = ..., known_bot: _Optional[bool] = ..., impression: _Optional[_Union[Impression, _Mapping]] = ..., click: _Optional[_Union[Click, _Mapping]] = ..., feedback: _Optional[_Union[Feedback, _Mapping]] = ..., item_upsert: _Optional[_Union[ItemUpsert, _Mapping]] = ..., user_erase: _Optional[_Union[UserErase, _Mapping]] = ..., gate_change: _Optional[_Union[GateChange, _Mapping]] = ..., tick: _Optional[_Union[Tick, _Mapping]] = ...) -> None: ...

class EventBatch(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class Impression(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ShownItem]
    def __init__(self, items: _Optional[_Iterable[_Union[ShownItem, _Mapping]]] = ...) -> None: ...

class ShownItem(_message.Message):
    __slots__ = ("item_id", "position")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    position: int
    def __init__(self, item_id: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class Click(_message.Message):
    __slots__ = ("item_id", "position")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    position: int
    def __init__(self, item_id: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class Feedback(_message.Message):
    __slots__ = ("item_id", "sign", "weight")
    class Sign(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SIGN_UNSPECIFIED: _ClassVar[Feedback.Sign]
        SIGN_NEGATIVE: _ClassVar[Feedback.Sign]
        SIGN_POSITIVE: _ClassVar[Feedback.Sign]
    SIGN_UNSPECIFIED: Feedback.Sign
    SIGN_NEGATIVE: Feedback.Sign
    SIGN_POSITIVE: Feedback.Sign
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    SIGN_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    sign: Feedback.Sign
    weight: float
    def __init__(self, item_id: _Optional[str] = ..., sign: _Optional[_Union[Feedback.Sign, str]] = ..., weight: _Optional[float] = ...) -> None: ...

class ItemUpsert(_message.Message):
    __slots__ = ("item_id", "categories", "hidden", "expires_at_ms", "properties", "deleted", "changes")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    categories: _containers.RepeatedScalarFieldContainer[str]
    hidden: bool
    expires_at_ms: int
    properties: _containers.ScalarMap[str, str]
    deleted: bool
    changes: int
    def __init__(self, item_id: _Optional[str] = ..., categories: _Optional[_Iterable[str]] = ..., hidden: _Optional[bool] = ..., expires_at_ms: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., deleted: _Optional[bool] = ..., changes: _Optional[int] = ...) -> None: ...

class UserErase(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GateChange(_message.Message):
    __slots__ = ("revision", "blocks_min", "blocks_max", "percentile", "blocks_max_floor", "blocks_max_ceiling", "window_days", "mode", "own_row", "ignore_repeats", "wait_ms", "ledger_max_bytes")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_MIN_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_MAX_FIELD_NUMBER: _ClassVar[int]
    PERCENTILE_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_MAX_FLOOR_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_MAX_CEILING_FIELD_NUMBER: _ClassVar[int]
    WINDOW_DAYS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    OWN_ROW_FIELD_NUMBER: _ClassVar[int]
    IGNORE_REPEATS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    revision: int
    blocks_min: int
    blocks_max: int
    percentile: float
    blocks_max_floor: int
    blocks_max_ceiling: int
    window_days: int
    mode: int
    own_row: bool
    ignore_repeats: bool
    wait_ms: int
    ledger_max_bytes: int
    def __init__(self, revision: _Optional[int] = ..., blocks_min: _Optional[int] = ..., blocks_max: _Optional[int] = ..., percentile: _Optional[float] = ..., blocks_max_floor: _Optional[int] = ..., blocks_max_ceiling: _Optional[int] = ..., window_days: _Optional[int] = ..., mode: _Optional[int] = ..., own_row: _Optional[bool] = ..., ignore_repeats: _Optional[bool] = ..., wait_ms: _Optional[int] = ..., ledger_max_bytes: _Optional[int] = ...) -> None: ...

class Tick(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
