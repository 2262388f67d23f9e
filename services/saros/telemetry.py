"""What Saros tells about itself: metrics for Prometheus, and log lines.

Metrics have the prefix `saros_`; no label ever holds a user or an item. A log line is an event in the past tense with
fields, written per batch and never per event; what may happen often is written seldom, with how often it happened.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from prometheus_client import Counter, Gauge, Histogram, Info

_LOG = logging.getLogger("saros")
_LOG.addHandler(logging.NullHandler())

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

# What comes in. Counters of events and of learning count what was learned: what has to be learned again counts again.
MESSAGES = Counter("saros_messages", "Messages of the events' topic that were consumed.")
EVENTS = Counter("saros_events", "Events that were consumed, by kind; dead letters apart.", ["kind"])
DEAD_LETTERS = Counter("saros_dead_letters", "Events that were refused and written as dead letters.", ["reason"])
DUPLICATES = Counter("saros_duplicates", "Events left out because their user had sent the same id before.")
LATE = Counter("saros_late_events", "Events with a time before their user's clock; they count at the clock.")
AHEAD = Counter("saros_ahead_events", "Events with a time far after the log's; they count at the log's.")
BOTS = Counter("saros_bot_events", "Events left out because their sender knew that it was a bot's.")
SCENARIO_ITEMS = Counter("saros_scenario_items", "Items shown in impressions, by scenario; bots apart.", ["scenario"])
SCENARIO_CLICKS = Counter("saros_scenario_clicks", "Clicks, by scenario; bots apart.", ["scenario"])
EVENTS_LOST = Counter("saros_events_lost_messages", "Messages that retention took away before they were read.")
LAG_SECONDS = Gauge(
    "saros_lag_seconds", "Age of the newest event that is learned, 0 where nothing more waits.", ["partition"]
)
KAFKA_LAG = Gauge(
    "saros_kafka_lag_messages", "Messages between what was read and the log's end.", ["topic", "partition"]
)
KAFKA_QUEUED = Gauge("saros_kafka_queued_messages", "Messages that wait in a client.", ["client"])
KAFKA_ROUND_TRIP = Gauge("saros_kafka_round_trip_seconds", "Time a broker takes to answer, p99.", ["client", "broker"])
KAFKA_REBALANCES = Gauge("saros_kafka_rebalances", "Times the group's partitions were shared out anew.")

# Sessions and blocks.
CAPPED = Counter("saros_capped", "Items that left a full pending set, the oldest first.", ["set"])
PENDING = Counter("saros_pending_items", "Items shown and clicked, and how they went without a block.", ["what"])
SESSIONS_ENDED = Counter("saros_sessions_ended", "Sessions that ended, noticed at the user's next event.")
USERS_EXPIRED = Counter("saros_users_expired", "Users that came back after so long that they began anew.")
BLOCKS_CLOSED = Counter("saros_blocks_closed", "Blocks that were closed.")
BLOCK_ITEMS = Counter("saros_block_items", "Items of closed blocks.", ["side"])

# The gate.
DECISIONS = Counter("saros_gate_decisions", "The gate's word on each closed block.", ["outcome"])
BOUND = Gauge("saros_gate_bound", "Blocks of a user that count: fewest (b) and most (B).", ["partition", "bound"])
USERS = Gauge(
    "saros_users", "Users whose last block lies in the gate's window, by their count then; by the gate's histogram, in "
    "which counts of 64 and more are exact to an eighth.", ["partition", "band"],
)  # fmt: skip
CROSSINGS = Counter("saros_crossings", "Times that a user passed B with blocks that could be taken back.")
RELEASED = Counter("saros_blocks_released", "Blocks that waited and were released at b.")
TAKEN_BACK = Counter("saros_blocks_taken_back", "Blocks that were added and then taken back.")
WAITING = Gauge("saros_waiting_blocks", "Blocks that wait, of users in memory.", ["partition"])
WAITING_LOST = Counter("saros_waiting_blocks_lost", "Blocks that waited and were never added.", ["why"])
REPEAT_CLICKS = Counter("saros_repeat_clicks", "Clicks on items that the user had clicked before.")

# Learning.
BATCH_EVENTS = Histogram(
    "saros_batch_events", "Events of a micro-batch.", buckets=(1, 10, 100, 500, 1000, 2000, 4000, 8000, 16000)
)
LEARN_SECONDS = Histogram(
    "saros_learn_seconds", "Time from a micro-batch's columns to its record: users, sessions, gate, step.",
    buckets=_SECONDS,
)  # fmt: skip
STEP_SECONDS = Histogram("saros_step_seconds", "Of that, time to settle and step its blocks.", buckets=_SECONDS)
PAIRS = Counter("saros_pairs", "Pairs of a positive and a negative that were learned.")
PROGRESSIVE_BLOCKS = Counter("saros_progressive_blocks", "Blocks scored as they closed, unlearned.", ["decision"])
PROGRESSIVE_LOSS = Counter("saros_progressive_loss", "Sum of their mean losses.", ["decision", "by"])
PROGRESSIVE_ACCURACY = Counter("saros_progressive_accuracy", "Sum of their shares of right pairs.", ["decision", "by"])
PROGRESSIVE_RANK = Counter(
    "saros_progressive_reciprocal_rank", "Sum of the reciprocal ranks of their best positives.", ["decision", "by"]
)
ROW_NORM = Gauge("saros_item_row_norm", "Length of item rows, in a sample of them about once a second.", ["stat"])
NON_FINITE = Counter("saros_non_finite", "Coordinates of user rows that were no number, and stayed as they were.")
CLAMPED = Counter("saros_clamped", "Steps cut short, and coordinates brought back, at the limit of 32.")
FAR = Counter("saros_far", "Item rows with a coordinate beyond 64, counted each time a block moves one.")

# The log and the store.
RECORDS = Counter("saros_records", "Records of ours that counted.")
REJECTED = Counter("saros_records_rejected", "Records of ours that did not count.")
FOREIGN = Counter("saros_foreign_records", "Records of others that counted in a partition we own.")
REDO_BYTES = Counter("saros_redo_bytes", "Bytes written to the redo topic.")
FLUSH_SECONDS = Histogram("saros_flush_seconds", "Time that writing to the store takes.", ["kind"], buckets=_SECONDS)
MISMATCHES = Counter("saros_cas_mismatches", "Writes that found another fence in the store.", ["kind"])
REPAIRS = Counter("saros_rollbacks_repaired", "Times the store had forgotten, and was written again.", ["kind"])
PAUSED = Counter("saros_pauses", "Times that partitions paused, because the store or the log were slow.")

# The process.
MEMORY = Gauge("saros_memory_bytes", "Bytes of tables and caches.", ["cache"])
USERS_IN_MEMORY = Gauge("saros_users_in_memory", "Users held in memory.", ["partition"])
ITEMS = Gauge("saros_items", "Items in the table.")
BUILD = Info("saros_build", "What runs here.")


def log(what: str, level: int = logging.INFO, **fields: Any) -> None:
    """Write one line: what happened, and its fields."""
    _LOG.log(level, what, extra={"fields": fields})


class Seldom:
    """Lets a line through at most once in `every_s`; what it held back is added to the next one's numbers."""

    def __init__(self, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._clock = every_s, clock
        self._next_s = -float("inf")
        self._held: dict[str, int] = {}

    def log(self, what: str, level: int = logging.INFO, **numbers: int) -> None:
        """Write the line with the sums since it was last written, or hold it back."""
        for name, number in numbers.items():
            self._held[name] = self._held.get(name, 0) + number
        now_s = self._clock()
        if now_s >= self._next_s:
            log(what, level, **self._held)
            self._held, self._next_s = {}, now_s + self._every_s


class _Lines(logging.Formatter):
    """One JSON object a line, or one line for people."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        what = record.getMessage()
        if record.exc_info:
            fields = {**fields, "trace": self.formatException(record.exc_info)}
        if self._as_json:
            whole = {"time": stamp, "level": record.levelname.lower(), "event": what, **fields}
            return json.dumps(whole, default=str)
        return " ".join([stamp, record.levelname.lower(), what, *(f"{name}={fields[name]}" for name in fields)])


def log_to_stderr(form: str = "text", *, level: int = logging.INFO) -> None:
    """Let the lines go to standard error, as `text` or as `json`; until now they go nowhere."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_Lines(as_json=form == "json"))
    _LOG.handlers[:] = [lines]
    _LOG.propagate = False
    _LOG.setLevel(level)
