from saros.wire.v1 import events_pb2 as _events_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Redo(_message.Message):
    __slots__ = ("genesis", "record")
    GENESIS_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    genesis: Genesis
    record: Record
    def __init__(self, genesis: _Optional[_Union[Genesis, _Mapping]] = ..., record: _Optional[_Union[Record, _Mapping]] = ...) -> None: ...

class Genesis(_message.Message):
    __slots__ = ("version", "log_id", "hash_key", "seed", "dim", "item_scale", "user_scale", "user_start", "partitions", "shards", "events_topic_id", "redo_topic_id", "first", "clears", "base")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    HASH_KEY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    ITEM_SCALE_FIELD_NUMBER: _ClassVar[int]
    USER_SCALE_FIELD_NUMBER: _ClassVar[int]
    USER_START_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    REDO_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    CLEARS_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    version: int
    log_id: int
    hash_key: bytes
    seed: int
    dim: int
    item_scale: int
    user_scale: int
    user_start: int
    partitions: int
    shards: int
    events_topic_id: str
    redo_topic_id: str
    first: _containers.RepeatedScalarFieldContainer[int]
    clears: bool
    base: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., log_id: _Optional[int] = ..., hash_key: _Optional[bytes] = ..., seed: _Optional[int] = ..., dim: _Optional[int] = ..., item_scale: _Optional[int] = ..., user_scale: _Optional[int] = ..., user_start: _Optional[int] = ..., partitions: _Optional[int] = ..., shards: _Optional[int] = ..., events_topic_id: _Optional[str] = ..., redo_topic_id: _Optional[str] = ..., first: _Optional[_Iterable[int]] = ..., clears: _Optional[bool] = ..., base: _Optional[_Iterable[int]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("log_id", "nonce", "parent", "first", "end", "blocks", "users", "names", "partition", "stats", "upserts")
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    UPSERTS_FIELD_NUMBER: _ClassVar[int]
    log_id: int
    nonce: int
    parent: int
    first: int
    end: int
    blocks: Blocks
    users: Users
    names: Names
    partition: Partition
    stats: Stats
    upserts: _containers.RepeatedCompositeFieldContainer[_events_pb2.ItemUpsert]
    def __init__(self, log_id: _Optional[int] = ..., nonce: _Optional[int] = ..., parent: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., blocks: _Optional[_Union[Blocks, _Mapping]] = ..., users: _Optional[_Union[Users, _Mapping]] = ..., names: _Optional[_Union[Names, _Mapping]] = ..., partition: _Optional[_Union[Partition, _Mapping]] = ..., stats: _Optional[_Union[Stats, _Mapping]] = ..., upserts: _Optional[_Iterable[_Union[_events_pb2.ItemUpsert, _Mapping]]] = ...) -> None: ...

class Blocks(_message.Message):
    __slots__ = ("user", "number", "sign", "flags", "length", "data")
    USER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SIGN_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    user: bytes
    number: bytes
    sign: bytes
    flags: bytes
    length: bytes
    data: bytes
    def __init__(self, user: _Optional[bytes] = ..., number: _Optional[bytes] = ..., sign: _Optional[bytes] = ..., flags: _Optional[bytes] = ..., length: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...

class Users(_message.Message):
    __slots__ = ("key", "flags", "length", "data", "rows", "vested")
    KEY_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    VESTED_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    flags: bytes
    length: bytes
    data: bytes
    rows: bytes
    vested: bytes
    def __init__(self, key: _Optional[bytes] = ..., flags: _Optional[bytes] = ..., length: _Optional[bytes] = ..., data: _Optional[bytes] = ..., rows: _Optional[bytes] = ..., vested: _Optional[bytes] = ...) -> None: ...

class Names(_message.Message):
    __slots__ = ("key", "text")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    text: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, key: _Optional[bytes] = ..., text: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("state", "gate")
    STATE_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    state: bytes
    gate: _events_pb2.GateChange
    def __init__(self, state: _Optional[bytes] = ..., gate: _Optional[_Union[_events_pb2.GateChange, _Mapping]] = ...) -> None: ...

class Stats(_message.Message):
    __slots__ = ("counts", "dead", "progressive", "oldest_ms", "newest_ms", "messages", "scenario", "scenario_counts")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    PROGRESSIVE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_COUNTS_FIELD_NUMBER: _ClassVar[int]
    counts: bytes
    dead: bytes
    progressive: bytes
    oldest_ms: int
    newest_ms: int
    messages: int
    scenario: _containers.RepeatedScalarFieldContainer[str]
    scenario_counts: bytes
    def __init__(self, counts: _Optional[bytes] = ..., dead: _Optional[bytes] = ..., progressive: _Optional[bytes] = ..., oldest_ms: _Optional[int] = ..., newest_ms: _Optional[int] = ..., messages: _Optional[int] = ..., scenario: _Optional[_Iterable[str]] = ..., scenario_counts: _Optional[bytes] = ...) -> None: ...
