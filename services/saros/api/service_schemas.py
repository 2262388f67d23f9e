"""Answers about the service itself, and errors, as the OpenAPI document has them."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from saros.api.schemas import RejectedEvent


class Status(BaseModel):
    """How the service is."""

    status: Literal["live", "ready"]


class Stats(BaseModel):
    """How the model stands in this process. Before there is one, only the first three are there."""

    model: Annotated[str, Field(description="Its name.")]
    ready: bool
    why_not_ready: Annotated[list[str] | None, Field(description="Only before there is a model.")] = None
    log_id: Annotated[str | None, Field(description="The log that it is a fold of, in hexadecimal digits.")] = None
    partitions: int | None = None
    shards: int | None = None
    dim: Annotated[int | None, Field(description="Coordinates of a row.")] = None
    items: Annotated[int | None, Field(description="In the table, served or not.")] = None
    p0: Annotated[float | None, Field(description="The share of clicks of all items together.")] = None
    model_time_ms: Annotated[int | None, Field(description="When the newest event that it knows came in.")] = None
    next: Annotated[
        list[int] | None, Field(description="Of each partition, the offset of the events up to which it has learned.")
    ] = None
    lag_messages: Annotated[int | None, Field(description="Messages of the log that are not folded here yet.")] = None
    lag_s: Annotated[float | None, Field(description="For how long there have been some.")] = None
    stale: Annotated[bool | None, Field(description="Answers may be older than the log, or than the store.")] = None
    gate_revision: Annotated[int | None, Field(description="The highest that any partition has.")] = None
    users_in_memory: Annotated[int | None, Field(description="Whose rows are held here.")] = None
    catalogue_bytes: int | None = None
    users_bytes: int | None = None


class ProblemBody(BaseModel):
    """An error, as RFC 9457 has it, with members that only some kinds have."""

    type: Annotated[str, Field(description="Names the kind of error and never changes.")]
    title: str
    status: int
    detail: str
    request_id: Annotated[str | None, Field(description="The `X-Request-ID` of the answer; logs have it, too.")] = None
    errors: Annotated[
        list[dict[str, str]] | None, Field(description="Of `invalid`: where, which name, and what is wrong.")
    ] = None
    reasons: Annotated[list[str] | None, Field(description="Of `not-ready`: what is missing.")] = None
    revision: Annotated[int | None, Field(description="Of `conflict`: the one that the gate is at.")] = None
    accepted: Annotated[int | None, Field(description="Of events: how many Kafka has.")] = None
    rejected: Annotated[list[RejectedEvent] | None, Field(description="Of events: those that are bad.")] = None
    unacknowledged: Annotated[
        list[int] | None, Field(description="Of `kafka-away`: the places of good events that Kafka may not have.")
    ] = None
    partitions: Annotated[
        list[int] | None, Field(description="Of `kafka-away`: those that may not have a change of the gate.")
    ] = None
    token: Annotated[str | None, Field(description="Of `kafka-away`: where those stand that Kafka has.")] = None
