"""The gate as the log has it: rules, bounds and histogram of each partition, as of the last record.

A change of the gate is an event in every partition, so for a while, or where some of it was lost, partitions may have
different ones. The highest revision is the one that is meant.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import numpy as np

from saros.core.bounds import Dropped, bins, dropped
from saros.core.codec import bounds_of, unpack_partition
from saros.core.gate import BINS, ESTIMATED, MODES, SESSION, GateRules, check_rules, gate_state
from saros.core.timeline import day_of, new_timeline
from saros.wire.rare import gate_change, gate_rules, supersedes
from saros.wire.v1 import redo_pb2 as pb
from saros.wire.v1.events_pb2 import GateChange

ESTIMATES = r"mean|p[1-9][0-9]?(?:\.[0-9]{1,2})?"  # of B, in place of a number
_MODES = {number: name for name, number in MODES.items()}


class Crowd:
    """Users whose last block lies in the gate's window, of as many partitions as were added: by blocks, by band."""

    def __init__(self) -> None:
        self.users = np.zeros(BINS, np.int64)
        self.below = self.in_band = self.above = 0

    def told(self) -> dict[str, object]:
        """Return them as callers see them: the bins that have users, and the bands."""
        lows, tops = bins()
        there = np.flatnonzero(self.users)
        histogram = [
            {"blocks": low, "to": top, "users": users}
            for low, top, users in zip(
                lows[there].tolist(), tops[there].tolist(), self.users[there].tolist(), strict=True
            )
        ]
        bands = {"below": self.below, "in_band": self.in_band, "above": self.above}
        return {"histogram": histogram, "bands": bands}


class Gates:
    """The gate of all partitions."""

    def __init__(self, partitions: int, rules: GateRules, log_id: int = 0) -> None:
        """`rules` are those of the settings: what trainers may begin with, where the log says nothing yet."""
        self.log_id = log_id
        self._states = [b""] * partitions
        self._began = gate_change(rules, 0)
        self._told: dict[int, GateChange] = {}  # by partition

    def note(self, partition: int, told: pb.Partition) -> None:
        """Take what a record, or the store, says of a partition."""
        if told.state:
            self._states[partition] = told.state
        if told.HasField("gate") and told.gate != self._told.get(partition):
            change = GateChange()  # a part of a record would keep all of it in memory
            change.CopyFrom(told.gate)
            self._told[partition] = change
            if not change.revision:
                self._began = change

    def _changes(self) -> list[GateChange]:
        """Return what each partition has; one that tells nothing yet, what the model began with."""
        return [self._told.get(partition, self._began) for partition in range(len(self._states))]

    @property
    def highest(self) -> GateChange:
        """The change that wins; of revision 0 where there was none, with the rules that the model began with."""
        return reduce(lambda one, other: other if supersedes(other, one) else one, self._changes())

    def is_made_of(self, change: GateChange, revision: int, given: Mapping[str, Any]) -> bool:
        """True if a change is what settings make of a revision that a partition still has."""
        found = next((each for each in self._changes() if each.revision == revision), None)
        try:
            return found is not None and changed(gate_rules(found), given) == gate_rules(change)
        except ValueError:
            return False

    def _bounds(self, partition: int) -> tuple[int, int]:
        if self._states[partition]:
            return bounds_of(self._states[partition])
        low, high = gate_state(gate_rules(self._told.get(partition, self._began))).bounds.tolist()
        return low, high

    def told(self) -> dict[str, object]:
        """Return how the gate stands, as callers see it."""
        highest = self.highest
        rows = []
        for partition, change in enumerate(self._changes()):
            low, high = self._bounds(partition)
            rows.append({"partition": partition, "revision": change.revision, "blocks_min": low, "blocks_max": high})
        return {
            "revision": highest.revision,
            "in_force": all(change == highest for change in self._changes()),
            "settings": settings_of(gate_rules(highest)),
            "partitions": rows,
        }

    def pictured(self) -> dict[str, object]:
        """Return what is in force, as those see it who watch: the bounds are the widest of all partitions."""
        highest = self.highest
        rules, bounds = gate_rules(highest), [self._bounds(partition) for partition in range(len(self._states))]
        return {
            "mode": _MODES[rules.mode],
            "blocks_min": min(low for low, _ in bounds),
            "blocks_max": max(high for _, high in bounds),
            "window_days": rules.window_days,
            "revision": highest.revision,
        }

    def crowds(self, crowd: Crowd) -> Iterator[None]:
        """Add the users of all partitions, one partition at a time."""
        for data, change in zip(list(self._states), self._changes(), strict=True):
            if data:
                rules, timeline = gate_rules(change), new_timeline(1)
                state = gate_state(rules)
                unpack_partition(data, timeline, state)
                (low, high), today, (lows, tops) = state.bounds.tolist(), day_of(timeline.at[0]), bins()
                users = state.users[(state.day > today - rules.window_days) & (state.day <= today)].sum(axis=0)
                below, above = int(users[tops < low].sum()), int(users[lows > high].sum())
                crowd.users += users
                crowd.below, crowd.above = crowd.below + below, crowd.above + above
                crowd.in_band += int(users.sum()) - below - above
            yield

    def simulate(self, blocks_min: int, blocks_max: int) -> Iterator[Dropped]:
        """Yield what other bounds would drop, partition after partition: of all that were looked at so far."""
        total = Dropped(0, 0, 0, 0, True, True)
        for data, change in zip(list(self._states), self._changes(), strict=True):
            if data:
                rules, timeline = gate_rules(change), new_timeline(1)
                state = gate_state(rules)
                unpack_partition(data, timeline, state)
                total = total.plus(dropped(state, rules, day_of(timeline.at[0]), blocks_min, blocks_max))
            yield total


def settings_of(rules: GateRules) -> dict[str, object]:
    """Return rules by the names and in the words of the settings."""
    estimated = f"p{rules.percentile:g}" if rules.percentile else "mean"
    return {
        "blocks_min": rules.blocks_min or "min",
        "blocks_max": rules.blocks_max or estimated,
        "blocks_max_floor": rules.blocks_max_floor,
        "blocks_max_ceiling": rules.blocks_max_ceiling,
        "window_days": rules.window_days,
        "mode": _MODES[rules.mode],
        "own_row": "learn" if rules.own_row else "freeze",
        "repeat_clicks": "ignore" if rules.ignore_repeats else "learn",
    }


def changed(rules: GateRules, given: Mapping[str, Any]) -> GateRules:
    """Return rules with some of them changed, by the names of the settings; ValueError where that makes no sense."""
    more = {name: given[name] for name in ("blocks_max_floor", "blocks_max_ceiling", "window_days") if name in given}
    if "blocks_min" in given:
        more["blocks_min"] = ESTIMATED if given["blocks_min"] == "min" else given["blocks_min"]
    if "blocks_max" in given:
        high = given["blocks_max"]
        estimated = isinstance(high, str)
        more["blocks_max"] = ESTIMATED if estimated else high
        if estimated:
            more["percentile"] = 0.0 if high == "mean" else float(high[1:])
    if "mode" in given:
        more["mode"] = MODES[given["mode"]]
    if "own_row" in given:
        more["own_row"] = given["own_row"] == "learn"
    if "repeat_clicks" in given:
        more["ignore_repeats"] = given["repeat_clicks"] == "ignore"
    found = rules._replace(**more)
    check_rules(found)
    if found.mode == SESSION:
        raise ValueError("mode session is not there yet; take immediate or shadow")
    return found
