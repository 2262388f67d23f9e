"""Where to go on in a log that others may have shortened or replaced.

A gap at the beginning is what retention took away: those events are lost, and how many is said. An end that lies before
our place, or another id, is another log of the same name: that is refused, never guessed.
"""

import logging
import time

from saros.adapters.kafka import Admin, Cluster, Reader
from saros.errors import RefusedError
from saros.telemetry import EVENTS_LOST, log

_LOOK_S = 2.0
_GONE_LOOKS, _GONE_S = 2, 0.5

# A rebase begins a log anew, and so it needs the model's own log out of the way.
ANOTHER_LOG = (
    "this model was learned from other events; to keep it and begin with these, delete its redo topic and run "
    "`saros rebase`"
)


class Same:
    """Whether a topic is the one it was: another of its name has other messages at the same offsets, and only its id
    tells."""

    def __init__(self, cluster: Cluster, name: str, topic_id: str, hint: str) -> None:
        """`topic_id` is empty where the broker has no ids; `hint` says what to do where it is another one."""
        self.name, self._id, self._hint = name, topic_id, hint
        self._admin = Admin(cluster, _LOOK_S)

    def is_same(self) -> bool:
        """False if the topic is gone or was made anew; where the broker has no ids or does not answer nobody knows."""
        if not self._id:
            return True
        found = self._admin.id_of(self.name)
        for _ in range(_GONE_LOOKS):
            if found is not None:
                break
            time.sleep(_GONE_S)  # a broker may not have heard of it yet
            found = self._admin.id_of(self.name)
        return found in (self._id, "")

    def check(self) -> None:
        """Refuse to go on with another topic (rule 39). It costs 1.5 ms."""
        if not self.is_same():
            raise RefusedError(f"topic {self.name} is gone, or was made anew", self._hint)


def start_of(reader: Reader, topic: str, partition: int, wanted: int, *, stop_at_gap: bool) -> int:
    """Return the offset to read a partition from, which is `wanted` or what is left behind it."""
    low, end = reader.watermarks(topic, partition)
    if end < wanted:
        raise RefusedError(
            f"{topic}/{partition} ends at {end}, before {wanted}, where we were",
            ANOTHER_LOG,
        )
    if low <= wanted:
        return wanted
    if stop_at_gap:
        raise RefusedError(
            f"{topic}/{partition} begins at {low}: {low - wanted} messages from {wanted} on are lost to retention",
            "set SAROS_KAFKA__STOP_AT_GAP=false to go on without them",
        )
    EVENTS_LOST.inc(low - wanted)
    log("messages were lost to retention", logging.ERROR, topic=topic, partition=partition, first=wanted, end=low)
    return low
