"""What the records say, summed up: on records made by hand, with a clock that stands still until it is told."""

import asyncio
import tracemalloc
from typing import Any

import numpy as np
import pytest

from saros.api.gates import Crowd, Gates
from saros.api.openapi_live import POINT, PULSE
from saros.api.pulse import POINTS_MAX, Pulse
from saros.api.watching import pulse_of
from saros.api.world import World, read_ahead
from saros.core import counts as c
from saros.core import scoring
from saros.core.codec import pack_partition
from saros.core.events import DAY_MS
from saros.core.gate import DECISIONS, GateRules, bin_of, gate_state
from saros.core.items import Items
from saros.core.rows import live_rows
from saros.core.timeline import new_timeline
from saros.redo.replica import Replica
from saros.wire.columns import REASONS
from saros.wire.v1 import redo_pb2 as pb
from tests.api.test_world import DIM, GENESIS, LIMIT, PLAN, Log

WALL_S = 1_700_000_000.0


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return WALL_S + self.now_s


class Book:
    """Writes records of one log, partition after partition."""

    def __init__(self, log_id: int = 7) -> None:
        self.log_id, self._ends = log_id, dict[int, int]()

    def record(
        self,
        partition: int = 0,
        *,
        counts: dict[int, int] | None = None,
        dead: dict[str, int] | None = None,
        learn: dict[int, float] | None = None,
        scenarios: dict[str, tuple[int, int]] | None = None,
        upserts: int = 0,
    ) -> pb.Record:
        first = self._ends.get(partition, 0)
        self._ends[partition] = first + 10
        found, reasons, scores = c.zeros(), np.zeros(len(REASONS), np.int64), np.zeros((len(DECISIONS), 7))
        for place, count in (counts or {}).items():
            found[place] = count
        for reason, count in (dead or {}).items():
            reasons[REASONS.index(reason)] = count
        for column, value in (learn or {}).items():
            scores[DECISIONS.index("learn"), column] = value
            scores[DECISIONS.index("over"), column] = 1000.0  # of others, and nobody's business
        record = pb.Record(log_id=self.log_id, first=first, end=first + 10)
        record.stats.counts, record.stats.dead = found.tobytes(), reasons.tobytes()
        record.stats.progressive = scores.tobytes()
        record.stats.scenario.extend(scenarios or {})
        record.stats.scenario_counts = np.array(list((scenarios or {}).values()), np.int64).tobytes()
        for _ in range(upserts):
            record.upserts.add()
        return record


def told(pulse: Pulse) -> dict[str, Any]:
    return pulse.told()


def test_sums_of_all_records() -> None:
    clock, book = Clock(), Book()
    pulse = Pulse(["model", "random"], clock, clock.wall)
    pulse.note(0, book.record(counts={c.IMPRESSIONS: 5, c.CLICKS: 3, c.BOTS: 2, c.LEARNED: 4, c.TAKEN_BACK: 1}), None)
    pulse.note(1, book.record(1, counts={c.CLICKS: 1, c.OVER: 2, c.RELEASED: 6}, dead={"bad_utf8": 2}, upserts=3), None)
    found = told(pulse)
    assert found["events"]["total"] == 14
    assert found["events"]["kinds"] == {
        "impression": 5, "click": 4, "negative": 0, "positive": 0, "erase": 0, "tick": 0, "bot": 2, "duplicate": 0,
        "item_upsert": 3,
    }  # fmt: skip
    assert found["dead"] == {"bad_utf8": 2}
    assert found["scenarios"] == []
    assert found["servable_ms"] == {"p50": None, "p99": None}
    assert found["learning"] == {"blocks": 0, "accuracy": None, "baseline": None, "loss": None, "baseline_loss": None}
    assert pulse.gate_work() == {
        "decisions": {"learn": 4, "wait": 0, "hold": 0, "over": 2, "ledger_full": 0, "repeat": 0, "items_full": 0},
        "taken_back": 1, "released": 6,
    }  # fmt: skip


def test_rates_are_over_their_windows() -> None:
    clock, book = Clock(), Book()
    pulse = Pulse([], clock, clock.wall)
    assert told(pulse)["events"]["per_s"] == 0.0
    for second in range(100):
        pulse.note(0, book.record(counts={c.CLICKS: 10 if second < 50 else 40}), None)
        clock.now_s += 1
        pulse.sample(0.5)
        if second == 1:
            assert told(pulse)["events"]["per_s"] == 10.0, "of the time that there was"
    points: Any = pulse.history()["points"]
    assert [point["events_per_s"] for point in points[45:56]] == [10, 10, 10, 10, 10, 16, 22, 28, 34, 40, 40]
    assert points[0]["time"] == WALL_S + 101
    clock.now_s += 5
    assert told(pulse)["events"]["per_s"] == 0.0
    assert told(pulse)["events"]["total"] == 2500


def test_a_late_sample_is_no_other_rate() -> None:
    clock, book = Clock(), Book()
    pulse = Pulse([], clock, clock.wall)
    for step_s in (1.0, 1.0, 3.5, 1.0, 0.2, 1.3, 7.0):
        pulse.note(0, book.record(counts={c.CLICKS: round(20 * step_s)}), None)
        clock.now_s += step_s
        pulse.sample(0.0)
        assert told(pulse)["events"]["per_s"] == 20.0


def test_progressive_scores_of_the_last_minute() -> None:
    clock, book = Clock(), Book()
    pulse = Pulse([], clock, clock.wall)
    early = {scoring.BLOCKS: 10.0, scoring.ACCURACY: 5.0, scoring.BASE_ACCURACY: 6.0, scoring.LOSS: 7.0,
             scoring.BASE_LOSS: 8.0}  # fmt: skip
    late = {scoring.BLOCKS: 30.0, scoring.ACCURACY: 27.0, scoring.BASE_ACCURACY: 18.0, scoring.LOSS: 3.0,
            scoring.BASE_LOSS: 9.0}  # fmt: skip
    pulse.note(0, book.record(learn=early), None)
    for second in range(64):
        if second == 10:
            pulse.note(0, book.record(learn=late), None)
        clock.now_s += 1
        pulse.sample(0.0)
        if second == 20:
            assert told(pulse)["learning"] == {
                "blocks": 40, "accuracy": 0.8, "baseline": 0.6, "loss": 0.25, "baseline_loss": 0.425
            }  # fmt: skip
    assert told(pulse)["learning"] == {
        "blocks": 30, "accuracy": 0.9, "baseline": 0.6, "loss": 0.1, "baseline_loss": 0.3
    }  # fmt: skip
    points: Any = pulse.history()["points"]
    assert (points[5]["accuracy"], points[-1]["accuracy"]) == (0.5, 0.9)


def test_scenarios_from_the_start_and_of_late() -> None:
    clock, book = Clock(), Book()
    pulse = Pulse(["model", "random", "never"], clock, clock.wall)
    pulse.note(0, book.record(scenarios={"other": (5, 0), "random": (100, 10)}), None)
    for _ in range(70):
        clock.now_s += 1
        pulse.sample(0.0)
    pulse.note(0, book.record(scenarios={"model": (40, 10)}), None)
    pulse.note(0, book.record(scenarios={"random": (0, 2)}), None)
    assert told(pulse)["scenarios"] == [
        {"scenario": "model", "shown": 40, "clicked": 10, "rate": 0.25, "recent_shown": 40, "recent_clicked": 10,
         "recent_rate": 0.25},
        {"scenario": "random", "shown": 100, "clicked": 12, "rate": 0.12, "recent_shown": 0, "recent_clicked": 2,
         "recent_rate": None},
        {"scenario": "other", "shown": 5, "clicked": 0, "rate": 0.0, "recent_shown": 0, "recent_clicked": 0,
         "recent_rate": None},
    ]  # fmt: skip
    pulse.sample(0.0)
    points: Any = pulse.history()["points"]
    assert points[0]["scenarios"] == {"random": 0.1, "other": 0.0}
    assert points[-1]["scenarios"] == {"model": 0.25, "random": None, "other": None}


def test_latencies_of_half_a_minute() -> None:
    clock, book = Clock(), Book()
    pulse = Pulse([], clock, clock.wall)
    for k in range(100):
        pulse.note(0, book.record(), (k + 1) / 1000)
        pulse.note(1, book.record(1), None)
    assert told(pulse)["servable_ms"] == {"p50": 50.0, "p99": 99.0}
    clock.now_s += 29
    pulse.note(0, book.record(), 2.0)
    assert told(pulse)["servable_ms"] == {"p50": 51.0, "p99": 100.0}
    clock.now_s += 2
    assert told(pulse)["servable_ms"] == {"p50": 2000.0, "p99": 2000.0}
    clock.now_s += 30
    assert told(pulse)["servable_ms"] == {"p50": None, "p99": None}


def test_a_record_counts_once_however_many_worlds_fold_it() -> None:
    clock, book, other = Clock(), Book(7), Book(8)
    pulse = Pulse([], clock, clock.wall)
    records = [(k % 2, book.record(k % 2, counts={c.CLICKS: 1})) for k in range(10)]
    for partition, record in records[:6]:
        pulse.note(partition, record, 0.01)
    for partition, record in records[2:]:  # one that boots again, from where the store was
        pulse.note(partition, record, 0.01)
        pulse.note(partition, record, 0.01)  # and the old one, still at it
    assert told(pulse)["events"]["total"] == 10
    # Another log begins at offsets of its own; what is left over of the first one counts as before.
    last = book.record(counts={c.CLICKS: 1})
    for record in (other.record(counts={c.CLICKS: 1}), records[8][1], last, last):
        pulse.note(0, record, 0.01)
    assert told(pulse)["events"]["total"] == 12


def test_worlds_tell_a_pulse_of_each_record_that_counts() -> None:
    """A world, and one that is booted behind it and folds the same log again."""
    clock, log, messages = Clock(), Log(), []
    pulse = Pulse([], clock, clock.wall)
    for partition, user in ((0, "ann"), (1, "bob"), (0, "ann"), (1, "cid")):
        message = log.record(partition, [user], [["a", "b"]])
        assert message.record is not None
        message.record.stats.oldest_ms = 1
        message.record.stats.counts = Book().record(counts={c.CLICKS: 1}).stats.counts
        messages.append(message)
    worlds = [World(PLAN, Replica(GENESIS, Items(live_rows(DIM), LIMIT))) for _ in range(2)]
    zombie = messages[0]._replace(offset=2)
    for world in worlds:
        world.folded = pulse.note
        world.looked(0.0, [0, 0])
        for batch in (messages[:1], [*messages[1:3], zombie], messages[3:]):
            for _ in world.absorb(read_ahead(batch, DIM)):
                pass
    assert told(pulse)["events"]["total"] == 4
    assert told(pulse)["servable_ms"]["p50"] > 0, "the age that the histogram is told of"


def test_records_of_other_versions_and_damaged_ones_say_what_they_have() -> None:
    clock = Clock()
    pulse = Pulse([], clock, clock.wall)
    short = pb.Record(log_id=1, end=1)
    short.stats.counts = np.array([3, 4], np.int64).tobytes() + b"xyz"
    long = pb.Record(log_id=1, first=1, end=2)
    long.stats.counts = np.ones(500, np.int64).tobytes()
    long.stats.progressive = b"12"
    long.stats.scenario.append("model")
    long.stats.scenario_counts = b"123"
    for record in (short, long, pb.Record(log_id=1, first=2, end=3)):
        pulse.note(0, record, None)
    assert told(pulse)["events"]["kinds"]["impression"] == 4
    assert told(pulse)["events"]["kinds"]["click"] == 5
    assert told(pulse)["scenarios"] == []
    assert told(pulse)["dead"] == {}


def test_memory_is_bounded() -> None:
    clock, names = Clock(), [f"scenario {k}" for k in range(200)]
    pulse = Pulse(names[:32], clock, clock.wall)

    def hours(count: int, log_id: int) -> None:
        book = Book(log_id)
        for k in range(count):
            pulse.note(k % 64, book.record(k % 64, scenarios={names[k % 200]: (2, 1)}), 0.01)
            clock.now_s += 1
            pulse.sample(0.0)

    hours(1000, 1)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for log_id in range(2, 6):
        hours(1000, log_id)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # All that is there now was made since, so it is counted: some 900 points with 64 scenarios each.
    assert after - before < 8 * 2**20
    points: Any = pulse.history()["points"]
    assert len(points) == POINTS_MAX
    assert len(told(pulse)["scenarios"]) == 64


# --- the gate, and the whole -----------------------------------------------------------------------------------------


def partition_of(rules: GateRules, users: dict[int, int], *, day: int = 100, bounds: tuple[int, int]) -> pb.Partition:
    """A partition's state: so many users with so many blocks each, and users of long ago."""
    state, timeline = gate_state(rules), new_timeline(1)
    state.bounds[:] = bounds
    timeline.at[0] = day * DAY_MS + 5
    state.day[:2] = day, day - rules.window_days
    for blocks, count in users.items():
        state.users[0, bin_of(blocks)] += count
    state.users[1, 3] = 1000
    return pb.Partition(state=pack_partition(timeline, state))


def test_the_crowd_is_that_of_the_window_in_all_partitions() -> None:
    rules = GateRules(blocks_min=2, blocks_max=70)
    gates, crowd = Gates(3, rules), Crowd()
    gates.note(0, partition_of(rules, {1: 5, 2: 7, 69: 1, 72: 3}, bounds=(2, 70)))
    gates.note(2, partition_of(rules, {1: 1, 2: 1, 5000: 2}, bounds=(1, 80)))
    assert [None for _ in gates.crowds(crowd)] == [None] * 3
    found: Any = crowd.told()
    assert [(one["blocks"], one["users"]) for one in found["histogram"]][:2] == [(1, 6), (2, 8)]
    assert all(one["blocks"] <= one["to"] and one["users"] > 0 for one in found["histogram"])
    assert sum(one["users"] for one in found["histogram"]) == 20
    assert found["bands"] == {"below": 5, "in_band": 10, "above": 5}
    assert gates.pictured() == {
        "mode": "immediate", "blocks_min": 1, "blocks_max": 80, "window_days": 7, "revision": 0
    }  # fmt: skip


class Stands:
    """A model that stands as it is told."""

    def __init__(self, world: World | None) -> None:
        self.world = world

    def why_not_ready(self) -> list[str]:
        return [] if self.world is not None else ["no genesis yet"]

    def is_stale(self, world: World) -> bool:
        return True

    def popular(self, k: int, category: str = "") -> list[tuple[str, float]]:
        return [("alien", 0.5)] * k if self.world is not None else []


def shape(value: Any) -> Any:
    """The names that an object holds, at every depth."""
    return {name: shape(inner) for name, inner in value.items()} if isinstance(value, dict) else None


@pytest.mark.parametrize("there", [False, True])
def test_a_pulse_has_the_form_that_is_documented(there: bool) -> None:
    clock, world = Clock(), World(PLAN, Replica(GENESIS, Items(live_rows(DIM), LIMIT))) if there else None
    pulse = Pulse(["model"], clock, clock.wall)
    pulse.note(0, Book().record(dead={"bad_protobuf": 1}, scenarios={"model": (4, 1)}), 0.02)
    clock.now_s += 2
    pulse.sample(0.5 if there else None)
    found: Any = asyncio.run(pulse_of(pulse, PLAN, Stands(world)))
    assert list(found) == list(PULSE)
    assert shape(found) == shape(PULSE)
    assert shape(found["scenarios"][0]) == shape(PULSE["scenarios"][0])  # type: ignore[index]
    point: Any = pulse.history()["points"]
    assert list(point[0]) == list(POINT)
    assert point[0]["lag_s"] == (0.5 if there else None)
    assert (found["time"], found["uptime_s"], found["model"]) == (WALL_S + 102, 2.0, "m")
    assert (found["ready"], found["stale"], found["embedded"]) == (there, there, False)
    assert found["why_not_ready"] == ([] if there else ["no genesis yet"])
    assert found["lag"]["messages"] == found["items"] == found["users_in_memory"] == (0 if there else None)
    assert found["gate"]["blocks_max"] == 50
    assert found["gate"]["histogram"] == []
    assert len(found["top"]) == (10 if there else 0)
