"""What `saros up` is told: all of it values, read from settings and options by `saros.up.commands`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from saros.adapters.kafka import EMBEDDED_PARTITIONS
from saros.adapters.redis import Address
from saros.up.looks import Place

# The embedded broker wakes nobody who waits for a message, it lets them wait out their time; and it keeps some 5 MB of
# each partition. So fetches wait for short, records are small and packed, and the store follows closely: whoever falls
# behind begins anew from there.
_OPTIONS = {"fetch.wait.max.ms": 10, "compression.codec": "lz4"}
_EMBEDDED = {
    "SAROS_KAFKA__PARTITIONS": str(EMBEDDED_PARTITIONS),
    "SAROS_TRAINER__RECORD_KB": "64",
    "SAROS_TRAINER__SHARDS_EVERY_MS": "200",
}


# People send no more than its memory covers for a while. The model's log is what fills it: some 330 bytes for each of
# 2,500 events a second, packed.
_PARTITION_BYTES, _EVENT_BYTES, _COVERED_S = 5_000_000, 400, 10
EMBEDDED_RATE_MAX = EMBEDDED_PARTITIONS * _PARTITION_BYTES // (_EVENT_BYTES * _COVERED_S)  # events a second


class Plan(NamedTuple):
    """All that it is told."""

    data_dir: Path
    environ: Mapping[str, str]  # of children, beside what is found out
    model: str
    items_max: int
    bootstrap: str  # brokers that are given, or empty: the embedded one
    options: Mapping[str, str | int | float | bool]  # of librdkafka
    store: Address  # with an empty URL: the embedded one
    host: str
    port: int
    port_given: bool
    asks_for_keys: bool
    metrics_port: int  # of the trainer; 0: any
    traffic: tuple[str, ...]  # options of `saros simulate`; empty: no traffic

    @property
    def logs(self) -> Path:
        """Where children write what they say."""
        return self.data_dir / "logs"

    @property
    def store_dir(self) -> Path:
        """Where the embedded store keeps what it holds."""
        return self.data_dir / "store"


def settings_for(plan: Plan, place: Place, bootstrap: str, store_url: str, metrics_port: int) -> dict[str, str]:
    """Return the environment of children; what the user has set goes before what suits the embedded broker."""
    environ = dict(plan.environ)
    if not plan.bootstrap:
        environ = {**_EMBEDDED, **environ, "SAROS_KAFKA__OPTIONS": json.dumps({**_OPTIONS, **plan.options})}
    return {
        **environ,
        "SAROS_KAFKA__BOOTSTRAP": bootstrap,
        "SAROS_REDIS__URL": store_url,
        "SAROS_API__HOST": plan.host,
        "SAROS_API__PORT": str(place.port),
        "SAROS_API__KEYS": " ".join(filter(None, (plan.environ.get("SAROS_API__KEYS", ""), place.entry))),
        "SAROS_TRAINER__METRICS_HOST": plan.environ.get("SAROS_TRAINER__METRICS_HOST", "127.0.0.1"),
        "SAROS_TRAINER__METRICS_PORT": str(metrics_port),
    }


def kept(plan: Plan, rebased: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Say what a restart finds again and what it does not, and what this one found."""
    if plan.bootstrap and plan.store.url:
        return [("kept", "broker and store are your own: they keep what they keep"), ("logs", str(plan.logs))]
    where = plan.store_dir if not plan.store.url else "your store"
    told = [("kept", f"items, users, what they taught and what waits for b, in {where}")]
    if not plan.bootstrap:
        told.append(("not kept", "the events and the model's log: the embedded broker has them in memory"))
    if rebased is not None:
        how = "kept" if not rebased.get("clears") else (
            "kept; it was not ended in order, so what was taught until then can no longer be taken back"
        )  # fmt: skip
        told.append(("model", f"of the last run, {how}"))
    return [*told, ("logs", str(plan.logs))]
