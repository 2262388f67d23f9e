"""What a trainer tells Prometheus: all of what the docs list and nothing else, and numbers that add up."""

import re
from collections import defaultdict
from pathlib import Path
from urllib.request import urlopen

from saros.core.gate import GateRules, bin_of, gate_state
from saros.trainer.observe import users_by_band
from tests.servers import free_ports
from tests.trainer.runs import Model, await_until, running

DOCS = Path(__file__).parents[2] / "docs" / "trainer.md"
SENT = 2500
# Of a run in which nothing goes wrong these, and no others, have nothing to tell.
QUIET = {
    "saros_kafka_round_trip_seconds", "saros_cas_mismatches_total", "saros_rollbacks_repaired_total",
    "saros_records_rejected_total", "saros_foreign_records_total", "saros_events_lost_messages_total",
    "saros_users_expired_total", "saros_non_finite_total", "saros_clamped_total", "saros_far_total",
    "saros_duplicates_total", "saros_late_events_total", "saros_ahead_events_total", "saros_bot_events_total",
    "saros_capped_total", "saros_kafka_lag_messages", "saros_kafka_queued_messages", "saros_waiting_blocks_lost_total",
    "saros_lag_seconds", "saros_pauses_total",
}  # fmt: skip


class Metrics:
    """The metrics that a process serves."""

    def __init__(self, port: int) -> None:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        self.names = set(re.findall(r"^# TYPE (saros_\w+) ", text, flags=re.MULTILINE))
        self._samples: dict[str, dict[str, float]] = defaultdict(dict)
        for name, labels, value in re.findall(r"^(saros_\w+)(?:{(.*)})? (\S+)$", text, flags=re.MULTILINE):
            self._samples[name][labels] = float(value)

    def sum(self, name: str, label: str = "") -> float:
        """Return the sum over all series of a name, or over those with a label."""
        return sum(value for labels, value in self._samples[name].items() if label in labels)

    def nonzero(self) -> set[str]:
        """Return the names that have something to tell."""
        return {name for name in self.names if self.sum(name) or self.sum(f"{name}_count")}


def test_the_docs_list_what_is_served_and_it_adds_up(model: Model) -> None:
    model.send(SENT)
    (port,) = free_ports(1)
    trainer = model.trainer(SAROS_TRAINER__METRICS_PORT=str(port))
    with running([trainer]):
        await_until(lambda: "trainer was started" in model.logs(1000), what=model.logs)
        await_until(lambda: Metrics(port).sum("saros_events_total") == SENT, what=model.logs)
        # What is told once a second, and Kafka's statistics.
        told = ("saros_item_row_norm", "saros_kafka_rebalances", "saros_users", "saros_kafka_round_trip_seconds")
        await_until(lambda: all(Metrics(port).sum(name) for name in told), what=model.logs)
        await_until(lambda: Metrics(port).sum("saros_lag_seconds") == 0, what=model.logs)
        found = Metrics(port)
    listed = re.findall(r"^\| `(saros_\w+)", DOCS.read_text(), flags=re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert found.names == set(listed)
    assert found.names - found.nonzero() <= QUIET
    total = found.sum
    assert total("saros_messages_total") == SENT + total("saros_dead_letters_total", 'reason="bad_protobuf"')
    assert total("saros_batch_events_sum") == SENT
    assert total("saros_gate_decisions_total") == total("saros_blocks_closed_total")
    assert total("saros_gate_decisions_total", 'outcome="over"') > 0
    assert total("saros_block_items_total") > 2 * total("saros_blocks_closed_total") > 0
    assert total("saros_gate_bound", 'bound="B"') == 3 * 12
    assert 0 < total("saros_users", 'band="above"') < total("saros_users") <= 60
    assert total("saros_pairs_total") > total("saros_gate_decisions_total", 'outcome="learn"') > 0
    learned = total("saros_progressive_blocks_total", 'decision="learn"')
    assert 0 < learned <= total("saros_gate_decisions_total", 'outcome="learn"')
    for name, most in (("accuracy", 1), ("reciprocal_rank", 1), ("loss", 5)):
        for by in ("model", "positive_rate"):
            mean = total(f"saros_progressive_{name}_total", f'by="{by}",decision="learn"') / learned
            assert 0 < mean < most, (name, by)
    norms = [total("saros_item_row_norm", f'stat="{stat}"') for stat in ("mean", "max")]
    assert 0 < norms[0] < norms[1] < 32
    model.drain()
    model.check()


def test_users_by_band_are_those_of_the_window() -> None:
    state = gate_state(GateRules(blocks_min=2, blocks_max=70))
    state.day[:3] = 100, 101, 94
    for day, count, users in ((0, 1, 5), (1, 2, 7), (1, 69, 1), (0, 70, 2), (1, 72, 3), (0, 5000, 1), (2, 2, 50)):
        state.users[day, bin_of(count)] += users
    assert users_by_band(state, 7) == {"below": 5, "in_band": 10, "above": 4}
    assert users_by_band(state, 8)["in_band"] == 60
    assert users_by_band(state, 1) == {"below": 0, "in_band": 8, "above": 3}
    assert users_by_band(gate_state(GateRules()), 7) == {"below": 0, "in_band": 0, "above": 0}
