"""Where the brokers are, and how a client is made.

Passwords and keys stand in the options only, and no error repeats them.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from saros.errors import InputError

Options = Mapping[str, str | int | float | bool]

# What the promises above rest on. Whoever sets one of these means something else.
_OURS = frozenset(
    ("enable.auto.commit", "auto.offset.reset", "enable.idempotence", "acks", "partitioner", "group.id",
     "bootstrap.servers", "isolation.level")
)  # fmt: skip


_EVERY_S = 10.0


class _Few(logging.Filter):
    """Lets a line of each kind through once in a while: a broker that is away is worth one, not twenty a second.

    Options of consumers are given to producers too, and the other way round: that is nothing to warn of.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next_s: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now_s = record.args[0] if isinstance(record.args, tuple) else record.msg, time.monotonic()
        if kind == "CONFWARN" or now_s < self._next_s.get(kind, 0.0):
            return False
        self._next_s[kind] = now_s + _EVERY_S
        return True


_LOG = logging.getLogger("saros.kafka")
_LOG.addFilter(_Few())


class Cluster(NamedTuple):
    """Where the brokers are, and how to talk to them."""

    bootstrap: str
    options: Options = {}  # noqa: RUF012

    def config(self, **own: Any) -> dict[str, Any]:
        """Return a client's configuration: ours, with the user's options beside it."""
        taken = sorted(_OURS & set(self.options))
        if taken:
            raise InputError(f"SAROS_KAFKA__OPTIONS sets {', '.join(taken)}", "leave it out; Saros sets it itself")
        named = {name.replace("_", "."): value for name, value in own.items()}
        return {"bootstrap.servers": self.bootstrap, "client.id": "saros", "logger": _LOG, **self.options, **named}


def new_client(kind: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Any:
    """Return a client; an option that librdkafka does not take is the user's mistake."""
    try:
        return kind(config)
    except KafkaException as error:
        raise InputError(
            f"SAROS_KAFKA__OPTIONS is not taken: {error.args[0].str()}", "see librdkafka's settings"
        ) from None


def text_of(error: KafkaError) -> str:
    """Return what an error says, with its name."""
    return f"{error.name()}: {error.str()}"
