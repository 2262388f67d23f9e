"""All settings of Saros: one frozen model per concern, read once at start-up and passed down from there.

A setting is the variable `SAROS_<CONCERN>__<FIELD>`, for example `SAROS_GATE__BLOCKS_MAX`. Invariants: every field has
a default, limits and a description; its unit stands last in its name. How variables are read, and how wrong ones are
reported, is in `saros.environment`.
"""

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from saros.environment import Allowed, read

# The core is imported where it is needed: numba takes its time, and `saros config` has no use for it.
if TYPE_CHECKING:
    from saros.adapters.kafka import Cluster
    from saros.adapters.redis import Address
    from saros.core.gate import GateRules
    from saros.core.sessions import SessionRules
    from saros.core.step import StepRules

_DAY_S = 86_400
_BLOCKS_LIMIT = 1_000_000_000
_SCENARIOS_MAX, _SCENARIO_MAX_BYTES = 32, 64  # as the wire format has them
# A user must outlive the gate's longest window (8 days) by a day, or its count would be forgotten while it matters.
_TTL_LEAST_S = 9 * _DAY_S
_TTL_MOST_S = 3650 * _DAY_S


def _refuse_authors(value: object) -> object:
    if value == "authors":
        raise PydanticCustomError("setting", "needs the whole data set and is for offline replay only")
    return value


def _check_ttl(value_s: int) -> int:
    if 0 < value_s < _TTL_LEAST_S:
        raise PydanticCustomError("setting", "is too small")
    return value_s


def _check_scenarios(text: str) -> str:
    names = text.split(",") if text else []
    if len(names) > _SCENARIOS_MAX:
        raise PydanticCustomError("setting", "has too many names")
    if len(set(names)) < len(names):
        raise PydanticCustomError("setting", "has a name twice")
    # One with a blank before or behind it is a slip, and would never be met.
    if not all(name == name.strip() and 1 <= len(name.encode()) <= _SCENARIO_MAX_BYTES for name in names):
        raise PydanticCustomError("setting", "has the wrong form")
    return text


def _blocks(value: object, words: re.Pattern[str]) -> int | str:
    """Return a number of blocks, or one of the words that stand for an estimate."""
    text = str(value)
    if words.fullmatch(text):
        return text
    try:
        number = int(text)
    except ValueError:
        raise PydanticCustomError("setting", "is not understood") from None
    if number < 1:
        raise PydanticCustomError("setting", "is too small")
    if number > _BLOCKS_LIMIT:
        raise PydanticCustomError("setting", "is too large")
    return number


_BlocksMin = Annotated[
    int | Literal["min"],
    BeforeValidator(partial(_blocks, words=re.compile("min"))),
    Allowed(f"a whole number from 1 to {_BLOCKS_LIMIT} or 'min'"),
]
_BlocksMax = Annotated[
    int | str,
    # A percentile lies strictly between 0 and 100: two digits at most, one of them not 0.
    BeforeValidator(partial(_blocks, words=re.compile(r"mean|p(?=.*[1-9])[0-9]{1,2}(\.[0-9]{1,3})?"))),
    Allowed(f"a whole number from 1 to {_BLOCKS_LIMIT}, 'mean' or a percentile such as 'p95'"),
]


class _Concern(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelSettings(_Concern):
    """The model: what it is called and how large it may grow."""

    name: Annotated[
        str,
        Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$", description="Name of the model; models live side by side by name"),
        Allowed("1 to 32 of the characters a-z, 0-9, _ and -, beginning with a letter or a digit"),
    ] = "saros"
    dim: Annotated[int, Field(ge=2, le=512, description="Coordinates of one row, of an item or a user")] = 64
    seed: Annotated[int, Field(ge=0, le=2**63 - 1, description="Seed that new item rows are drawn from")] = 0
    items_max: Annotated[
        int, Field(ge=1, le=50_000_000, description="Most items; blocks and upserts with a new one are refused beyond")
    ] = 1_000_000
    users_max: Annotated[int, Field(ge=1, le=50_000_000, description="Most users held in memory")] = 1_000_000
    scenarios: Annotated[
        str,
        Field(description="Scenarios of events that are counted, each with its items shown and clicks; empty = none"),
        AfterValidator(_check_scenarios),
        Allowed(
            f"a list of up to {_SCENARIOS_MAX} names of 1 to {_SCENARIO_MAX_BYTES} bytes, each once, with a "
            "comma and no blank between them"
        ),
    ] = "model,random"

    def scenario_names(self) -> tuple[str, ...]:
        """Return the scenarios that are counted, in order."""
        return tuple(self.scenarios.split(",")) if self.scenarios else ()


class SessionSettings(_Concern):
    """Sessions: how events become blocks."""

    rule: Annotated[
        Literal["click", "algorithm"],
        BeforeValidator(_refuse_authors),
        Field(description="When a block closes: on a click, or as soon as it has both sides (the paper's box)"),
    ] = "click"
    gap_s: Annotated[
        int, Field(ge=0, le=7 * _DAY_S, description="Seconds of silence that end a session; 0 = sessions never end")
    ] = 1800
    split_on_id: Annotated[bool, Field(description="A new session id in the events also ends a session")] = False
    negatives_max: Annotated[
        int, Field(ge=1, le=1024, description="Most shown, not clicked items that wait in a session; the oldest goes")
    ] = 64
    carried_max: Annotated[
        int, Field(ge=1, le=256, description="Most clicks that wait for a negative; the oldest goes")
    ] = 16
    clicked_max: Annotated[
        int, Field(ge=1, le=1024, description="Most clicked items remembered in a session; the oldest goes")
    ] = 64
    ahead_max_s: Annotated[
        int, Field(ge=0, le=_DAY_S, description="Seconds an event time may run ahead of the log's time")
    ] = 300
    user_ttl_s: Annotated[
        int,
        Field(ge=0, le=_TTL_MOST_S, description="Seconds of silence after which a user counts as new; 0 = never"),
        AfterValidator(_check_ttl),
        Allowed(f"0 or a whole number from {_TTL_LEAST_S} (9 days) to {_TTL_MOST_S}"),
    ] = 90 * _DAY_S

    def rules(self) -> "SessionRules":
        """Return the rules of sessions as the core takes them; whether blocks are held is the gate's to say."""
        from saros.core.sessions import RULES, SessionRules

        return SessionRules(
            rule=RULES[self.rule],
            gap_ms=1000 * self.gap_s,
            negatives_max=self.negatives_max,
            carried_max=self.carried_max,
            clicked_max=self.clicked_max,
            ahead_ms=1000 * self.ahead_max_s,
            ttl_ms=1000 * self.user_ttl_s,
            split_on_id=self.split_on_id,
        )


class GateSettings(_Concern):
    """Gate: whose blocks may move what is shared."""

    blocks_min: Annotated[
        _BlocksMin, Field(description="Fewest blocks of a user that count (the paper's b); 'min' = the least seen")
    ] = 1
    blocks_max: Annotated[
        _BlocksMax, Field(description="Most blocks of a user that count (the paper's B); a word = estimated each day")
    ] = "p97"
    blocks_max_floor: Annotated[
        int, Field(ge=1, le=_BLOCKS_LIMIT, description="Least that an estimate gives; holds before the first day ends")
    ] = 50
    blocks_max_ceiling: Annotated[
        int, Field(ge=1, le=_BLOCKS_LIMIT, description="Most that an estimate gives, however active the users look")
    ] = 100
    window_days: Annotated[int, Field(ge=1, le=8, description="Days over which a user's blocks are counted")] = 7
    mode: Annotated[
        Literal["immediate", "session", "shadow"],
        Field(description="Learn at once, learn when the session ends, or only count and learn everything"),
    ] = "immediate"
    own_row: Annotated[
        Literal["freeze", "learn"], Field(description="What the row of a user outside the band does")
    ] = "freeze"
    repeat_clicks: Annotated[
        Literal["learn", "ignore"], Field(description="What a user's later clicks on the same item do")
    ] = "ignore"
    wait_s: Annotated[
        int,
        Field(
            ge=0,
            le=8 * _DAY_S,
            description="In mode session: a user with more than a block in so many seconds is waited for; 0 = nobody",
        ),
    ] = 7200
    ledger_max_bytes: Annotated[
        int, Field(ge=4096, le=16 * 2**20, description="Most bytes of one user's ledger; blocks beyond are not learned")
    ] = 524_288

    @model_validator(mode="after")
    def _band_is_not_empty(self) -> Self:
        low, top = self.blocks_max_floor, self.blocks_max_ceiling
        if low > top and "blocks_max_floor" in self.model_fields_set:
            hint = f"lower it to {top}, or raise SAROS_GATE__BLOCKS_MAX_CEILING"
            context = {"field": "blocks_max_floor", "high": top, "hint": hint}
            raise PydanticCustomError("setting", "is above SAROS_GATE__BLOCKS_MAX_CEILING={high}", context)
        if low > top:
            hint = f"raise it to {low}, or lower SAROS_GATE__BLOCKS_MAX_FLOOR"
            context = {"field": "blocks_max_ceiling", "low": low, "hint": hint}
            raise PydanticCustomError("setting", "is below SAROS_GATE__BLOCKS_MAX_FLOOR={low}", context)
        fixed = isinstance(self.blocks_max, int)
        high, other = (self.blocks_max, "BLOCKS_MAX") if fixed else (self.blocks_max_floor, "BLOCKS_MAX_FLOOR")
        if isinstance(self.blocks_min, int) and isinstance(high, int) and self.blocks_min > high:
            hint = f"lower it to {high}, or raise SAROS_GATE__{other}"
            context = {"field": "blocks_min", "high": high, "other": other, "hint": hint}
            raise PydanticCustomError("setting", "is above SAROS_GATE__{other}={high}", context)
        return self

    def rules(self) -> "GateRules":
        """Return the gate's rules as the core takes them."""
        from saros.core.gate import ESTIMATED, MODES, GateRules

        low, high = self.blocks_min, self.blocks_max
        return GateRules(
            blocks_min=low if isinstance(low, int) else ESTIMATED,
            blocks_max=high if isinstance(high, int) else ESTIMATED,
            percentile=float(high[1:]) if isinstance(high, str) and high != "mean" else 0.0,
            blocks_max_floor=self.blocks_max_floor,
            blocks_max_ceiling=self.blocks_max_ceiling,
            window_days=self.window_days,
            mode=MODES[self.mode],
            own_row=self.own_row == "learn",
            ignore_repeats=self.repeat_clicks == "ignore",
            wait_ms=1000 * self.wait_s,
            ledger_max_bytes=self.ledger_max_bytes,
        )


_Rate = Annotated[float, Field(gt=0, le=10)]
_Count = Annotated[float, Field(gt=0, le=1_000_000_000)]


class StepSettings(_Concern):
    """Step: how far a block moves the rows."""

    kind: Annotated[Literal["live", "paper"], Field(description="The live recipe, or the plain step of the paper")] = (
        "live"
    )
    lr_user: Annotated[_Rate, Field(description="Rate of a user's row (live)")] = 0.45
    lr_item: Annotated[_Rate, Field(description="Rate of an item's row (live)")] = 0.5
    decay_user_moves: Annotated[
        _Count, Field(description="Moves of a user's row after which its rate is 0.71 of the start (live)")
    ] = 30.0
    decay_item_updates: Annotated[
        _Count, Field(description="Updates of an item's row after which its rate is 0.71 of the start (live)")
    ] = 100.0
    pair_exponent: Annotated[
        float, Field(gt=0, le=2, description="A pair weighs (pairs of its block) to the power of minus this (live)")
    ] = 0.6
    prior_strength: Annotated[
        float, Field(ge=0.001, le=1_000_000, description="Pseudo-counts behind an item's prior (live)")
    ] = 4.0
    opponent_weight: Annotated[
        float,
        Field(ge=0, le=100, description="Weight of the virtual opponents at a user's usual scores; 0 = none (live)"),
    ] = 1.5
    lr: Annotated[_Rate, Field(description="Rate of all rows (paper)")] = 0.2

    def rules(self) -> "StepRules":
        """Return the rules of the step as the core takes them."""
        from saros.core.step import live_step, paper_step

        if self.kind == "paper":
            return paper_step(self.lr)
        return live_step(
            self.lr_user,
            self.lr_item,
            self.decay_user_moves,
            self.decay_item_updates,
            self.pair_exponent,
            self.prior_strength,
            self.opponent_weight,
        )


def _check_options(value: SecretStr) -> SecretStr:
    try:
        options = json.loads(value.get_secret_value())
    except ValueError:
        raise PydanticCustomError("setting", "is not understood") from None
    if not isinstance(options, dict) or not all(isinstance(one, str | int | float | bool) for one in options.values()):
        raise PydanticCustomError("setting", "is not understood")
    return value


class KafkaSettings(_Concern):
    """Kafka: where the brokers are, and what topics look like."""

    bootstrap: Annotated[
        str, Field(description="Brokers as host:port,host:port; empty = the embedded broker, which keeps nothing")
    ] = ""
    options: Annotated[
        SecretStr,
        Field(description="More settings of librdkafka, TLS and SASL among them; never shown"),
        AfterValidator(_check_options),
        Allowed('a JSON object of librdkafka\'s settings, such as \'{"security.protocol": "ssl"}\''),
    ] = SecretStr("{}")
    partitions: Annotated[
        int, Field(ge=1, le=1024, description="Partitions of the events' topic; they never change for a model")
    ] = 4
    replication: Annotated[
        int, Field(ge=0, le=10, description="Copies of each message in topics that are made; 0 = the brokers' default")
    ] = 0
    create_topics: Annotated[bool, Field(description="Make topics that are missing")] = True
    stop_at_gap: Annotated[
        bool, Field(description="Stop where retention took events away unread; else they are counted and left out")
    ] = False

    def cluster(self) -> "Cluster":
        """Return where the brokers are, as the adapter takes it."""
        from saros.adapters.kafka import Cluster

        return Cluster(self.bootstrap, json.loads(self.options.get_secret_value()))


def _without_password(url: str) -> str:
    return re.sub("//.*@", "//***@", url).partition("?")[0]


class RedisSettings(_Concern):
    """Redis: where the store is."""

    url: Annotated[
        str,
        Field(repr=False, description="Where the store is; empty = the embedded store. A password in it is not shown"),
        PlainSerializer(_without_password, when_used="json"),
        Allowed("a URL such as redis://host:6379, rediss://host:6379 (TLS) or unix:///path; any node of a cluster"),
    ] = ""
    username: Annotated[str, Field(description="User that the store knows us as; empty = its default user")] = ""
    password: Annotated[SecretStr, Field(description="Password of that user; never shown")] = SecretStr("")
    ca_file: Annotated[
        str, Field(description="PEM file of the authorities that may vouch for the store; empty = the system's")
    ] = ""
    cert_file: Annotated[str, Field(description="PEM file of the certificate we show the store; empty = none")] = ""
    key_file: Annotated[str, Field(description="PEM file of that certificate's key; empty = it is in there")] = ""
    timeout_s: Annotated[
        float, Field(ge=0.1, le=60, description="Seconds to wait for a connection, and for an answer")
    ] = 5.0
    retries: Annotated[
        int, Field(ge=0, le=20, description="How often a call that failed in passing is tried again")
    ] = 3

    def address(self) -> "Address":
        """Return where the store is, as the adapter takes it."""
        from saros.adapters.redis import Address

        return Address(
            self.url,
            self.username,
            self.password.get_secret_value(),
            self.ca_file,
            self.cert_file,
            self.key_file,
            self.timeout_s,
            self.retries,
        )


class TrainerSettings(_Concern):
    """Trainer: how events are consumed."""

    start: Annotated[
        Literal["earliest", "latest"],
        Field(description="Where a new model begins: with the oldest events, or the next"),
    ] = "earliest"
    instance: Annotated[
        str,
        Field(
            pattern=r"^[a-zA-Z0-9._-]{0,200}$",
            description="A name that stays over a restart: partitions then stay with it; empty = none",
        ),
    ] = ""
    poll_messages: Annotated[int, Field(ge=1, le=100_000, description="Most messages that are taken at once")] = 16_000
    memory_mb: Annotated[
        int,
        Field(
            ge=64, le=1_000_000, description="Megabytes for users in memory; the others are read when they are needed"
        ),
    ] = 2048
    record_kb: Annotated[
        int, Field(ge=16, le=16_384, description="Kilobytes that a record of the log should have at most, about")
    ] = 2048
    shards_every_ms: Annotated[
        int, Field(ge=20, le=60_000, description="Milliseconds between two writes of the items to the store")
    ] = 1000
    metrics_host: Annotated[str, Field(description="Address that /metrics listens at")] = "0.0.0.0"
    metrics_port: Annotated[int, Field(ge=0, le=65535, description="Port of /metrics; 0 = none")] = 0


class ApiSettings(_Concern):
    """API: where it listens, and what one request may ask for."""

    host: Annotated[
        str,
        Field(description="Address that it listens at"),
        Allowed("'localhost' or an address of this machine, such as 127.0.0.1"),
    ] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port that it listens at; 0 = any free one")] = 8000
    allow_open: Annotated[
        bool, Field(description="Listen where other machines reach it, though nobody is asked for a key")
    ] = False
    keys: Annotated[
        SecretStr,
        Field(description="Keys of callers, as hashes; never shown, as a key may stand there by mistake"),
        Allowed("a list of entries as `saros key new` prints them, separated by blanks"),
    ] = SecretStr("")
    keys_file: Annotated[
        str,
        Field(description="File with more keys, an entry on each line; it is read again when it changes; empty = none"),
    ] = ""
    metrics_open: Annotated[bool, Field(description="/metrics needs no key, though other routes do")] = False
    access_log_share: Annotated[
        float, Field(ge=0, le=1, description="Share of requests in the log; those that failed are there anyway")
    ] = 0.0
    k_max: Annotated[int, Field(ge=1, le=10_000, description="Most items of an answer")] = 1000
    exclude_max: Annotated[int, Field(ge=1, le=100_000, description="Most items that a request leaves out")] = 1000
    users_max: Annotated[int, Field(ge=1, le=10_000, description="Most users of one request")] = 100
    session_max: Annotated[int, Field(ge=1, le=10_000, description="Most events of a guest's session")] = 200
    candidates_max: Annotated[int, Field(ge=1, le=100_000, description="Most candidates that are ranked")] = 1000
    events_max: Annotated[int, Field(ge=1, le=100_000, description="Most events of one request")] = 1000
    body_max_bytes: Annotated[int, Field(ge=1024, le=64 * 2**20, description="Most bytes of a request's body")] = 2**20
    header_max_bytes: Annotated[
        int, Field(ge=1024, le=2**20, description="Most bytes of a request's first line and headers")
    ] = 32_768
    header_timeout_s: Annotated[
        float, Field(ge=0.1, le=600, description="Seconds that a request's first line and headers may take to come in")
    ] = 10.0
    body_timeout_s: Annotated[
        float, Field(ge=0.1, le=600, description="Seconds that a request's body may take to come in")
    ] = 10.0
    concurrency_max: Annotated[
        int, Field(ge=1, le=100_000, description="Most requests in work at once; more are sent away with 503")
    ] = 512
    streams_max: Annotated[
        int, Field(ge=1, le=10_000, description="Most streams of /v1/live open at once; more are sent away with 503")
    ] = 32
    waits_max: Annotated[
        int,
        Field(ge=1, le=10_000, description="Most requests that wait for a token at once; more are sent away with 503"),
    ] = 256
    wait_ms_max: Annotated[
        int, Field(ge=0, le=60_000, description="Most milliseconds that a request may wait for its token")
    ] = 10_000
    ack_timeout_s: Annotated[
        float, Field(ge=0.1, le=60, description="Seconds in which Kafka has to acknowledge events that were sent here")
    ] = 5.0
    queue_max_messages: Annotated[
        int, Field(ge=1, le=100_000, description="Most messages that wait for Kafka; beyond, requests get 429")
    ] = 10_000
    queue_max_mb: Annotated[int, Field(ge=2, le=1000, description="Most megabytes that wait for Kafka")] = 64
    lag_max_s: Annotated[
        float, Field(ge=0.1, le=86_400, description="Seconds behind the model's log above which it is not ready")
    ] = 30.0
    cache_users: Annotated[
        int, Field(ge=0, le=50_000_000, description="Users whose rows are kept in memory; 4096 at least")
    ] = 100_000


class ClientSettings(_Concern):
    """Client: how our own commands ask an API, such as `saros simulate`."""

    key: Annotated[SecretStr, Field(description="Key that we show the API; empty = none; never shown")] = SecretStr("")


class LogSettings(_Concern):
    """Log: how lines are written that a trainer, a rebase or the API writes to standard error."""

    format: Annotated[
        Literal["text", "json"], Field(description="A line for people, or one JSON object a line for programs")
    ] = "text"


class Settings(BaseSettings):
    """Everything that can be set. Build it with `load`; the constructor itself reads no environment."""

    model_config = SettingsConfigDict(env_prefix="SAROS_", env_nested_delimiter="__", frozen=True, extra="forbid")

    model: ModelSettings = ModelSettings()
    session: SessionSettings = SessionSettings()
    gate: GateSettings = GateSettings()
    step: StepSettings = StepSettings()
    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    trainer: TrainerSettings = TrainerSettings()
    api: ApiSettings = ApiSettings()
    client: ClientSettings = ClientSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _held_blocks_are_released(self) -> Self:
        if self.gate.mode == "session" and self.session.gap_s == 0:
            hint = "give a number of seconds above 0, or set SAROS_GATE__MODE=immediate"
            context = {"field": "session.gap_s", "hint": hint}
            raise PydanticCustomError(
                "setting", "never ends a session, which SAROS_GATE__MODE=session waits for", context
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that `environ` (default: this process's environment) asks for.

    Raises `SettingsError` with one problem for each variable that is wrong.
    """
    return read(Settings, environ)
