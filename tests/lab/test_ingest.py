"""The bench of what comes in runs whole, and leaves no topic behind."""

import json

import pytest

from saros import cli
from saros.adapters.kafka import Admin, Cluster
from saros.lab.bench import ingest
from tests.broker import Broker


def test_all_of_it_runs(
    real_broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAROS_KAFKA__BOOTSTRAP", real_broker.address)
    assert cli.run(["bench", "ingest", "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    goals = [(row["against"], row["goal"], row["better"]) for row in rows if row["goal"]]
    assert goals == [
        ("consume and drop", 2.5, "lower"), ("the usual Python way", 5.0, "higher"),
        ("the usual Python way", 15.0, "higher"),
    ]  # fmt: skip
    assert all(row["value"] > 0 for row in rows)


def test_topics_are_deleted_when_it_fails(real_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def fail(cluster: Cluster, topic: str, count: int, batch: int) -> int:
        made.append(topic)
        raise RuntimeError("no")

    monkeypatch.setattr(ingest, "_send", fail)
    with pytest.raises(RuntimeError, match="no"):
        ingest.run_ingest(Cluster(real_broker.address), quick=True)
    assert [Admin(Cluster(real_broker.address)).find(topic) for topic in made] == [None]
