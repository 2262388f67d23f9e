"""What one request may ask for; values, read from the settings by `saros.api.commands`."""

from typing import NamedTuple

TOKEN_MAX = 32_768  # characters: a place in each of 1024 partitions
K = 10  # items, where nobody says how many
WAIT_MS = 1000  # where a token is given and no time
EXTRAS_K_MAX = 200  # items of an answer with explore, diversity or explain: each costs more than a plain one
SEED_MAX = 64  # bytes


def text_schema(most: int, least: int = 1) -> dict[str, object]:
    """Return how JSON Schema says that a text has so many bytes: it counts characters, so the format says the rest."""
    return {"type": "string", "minLength": least, "maxLength": most, "format": f"utf8-{most}"}


# Partitions and offsets. Which partitions there are, the model knows.
TOKEN_SCHEMA: dict[str, object] = {
    "type": "string", "minLength": 3, "maxLength": TOKEN_MAX, "format": "saros-token",
    "pattern": "^[0-9]{1,4}:[0-9]{1,18}(,[0-9]{1,4}:[0-9]{1,18})*$",
}  # fmt: skip


class Limits(NamedTuple):
    """Limits of requests."""

    k_max: int = 1000
    exclude_max: int = 1000
    users_max: int = 100
    session_max: int = 200
    candidates_max: int = 1000
    events_max: int = 1000
    body_max_bytes: int = 2**20
    body_timeout_s: float = 10.0
    concurrency_max: int = 512
    streams_max: int = 32
    waits_max: int = 256
    wait_ms_max: int = 10_000
