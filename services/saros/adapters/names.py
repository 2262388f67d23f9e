"""The names of topics. `{model}` is the model's name, so that models live side by side."""

from typing import NamedTuple


class Topics(NamedTuple):
    """The topics of a model."""

    events: str  # what comes in
    redo: str  # the model's own log
    dead: str  # what could not be understood, with the reason


def topics_of(model: str) -> Topics:
    """Return the names of a model's topics."""
    return Topics(f"{model}.events", f"{model}.redo", f"{model}.dead")


# Settings of the topics that Saros makes. The broker's time is the log's time, whatever a sender's clock says.
EVENTS_SETTINGS = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "1048588"}
# Dead letters are kept for a month: somebody has to look at them.
DEAD_SETTINGS = {
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": "1114124",
    "retention.ms": "2592000000",
}
# The model's log is kept for good: what it says is the model. Records stay far below this size but where many users
# with full ledgers pass B in one message.
REDO_MESSAGE_MAX = 64 * 2**20
REDO_SETTINGS = {
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(REDO_MESSAGE_MAX),
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
