"""Where to go on in a log that others may have shortened or replaced.

A gap at the beginning is what retention took away: those events are lost, and how many is said. An end that lies before
our place, or another id, is another log of the same name: that is refused, never guessed.
"""

import logging

from saros.adapters.kafka import Reader, Topic
from saros.errors import RefusedError
from saros.telemetry import EVENTS_LOST, log

# A rebase begins a log anew, and so it needs the model's own log out of the way.
ANOTHER_LOG = (
    "this model was learned from other events; to keep it and begin with these, delete its redo topic and run "
    "`saros rebase`"
)


def check_same(topic: Topic, known_id: str) -> None:
    """Refuse a topic that was deleted and made anew; where the broker has no ids nobody can tell."""
    if known_id and topic.id and topic.id != known_id:
        raise RefusedError(
            f"topic {topic.name} was made anew: its id is {topic.id}, not {known_id}",
            ANOTHER_LOG,
        )


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
