"""The bench of the trainer runs whole, and leaves nothing behind."""

import json

import pytest

from saros import cli
from saros.adapters.kafka import Admin, Cluster
from saros.lab.bench import shapes, train
from saros.wire.encode import events_in
from tests.broker import Broker
from tests.store import StoreServer, connect


@pytest.mark.timeout(300)
def test_all_of_it_runs(
    real_broker: Broker,
    store_server: StoreServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SAROS_KAFKA__BOOTSTRAP", real_broker.address)
    monkeypatch.setenv("SAROS_REDIS__URL", store_server.url)
    made: list[str] = []
    fill = train.fill

    def noted(cluster: Cluster, case: train.Case) -> train.Backlog:
        backlog = fill(cluster, case)
        made.append(backlog.model)
        return backlog

    monkeypatch.setattr(train, "fill", noted)
    assert cli.run(["bench", "train", "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(row["value"] > 0 for row in rows)
    assert {row["against"] for row in rows} >= {
        "its sinks off", "consume and drop", "the usual Python way", "the event itself", "the bare script",
        "one trainer",
    }  # fmt: skip
    names = {row["name"] for row in rows}
    assert {"recover from kill -9", "recover a lost shard"} <= names
    admin, redis = Admin(Cluster(real_broker.address)), connect(store_server.url)
    for model in made:
        assert admin.find(f"{model}.events") is None
        assert list(redis.scan_iter(f"{{{model}:*")) == []
    assert list(redis.scan_iter("*bench*")) == []


def test_a_batch_of_bytes_is_a_batch() -> None:
    events = shapes.singles(5, 3, shapes.keys(200, 1))
    values = [value for _, value in train.values_of(events, ["ann", "bob", "cy"])]
    assert [event.SerializeToString() for event in events_in(train._batch(values))] == values
    long = [values[0], b"\x0a\x80\x01" + b"x" * 128]
    assert [len(part) for part in events_in_batch(train._batch(long))] == [len(part) for part in long]


def events_in_batch(value: bytes) -> list[bytes]:
    """The parts of a batch, by its lengths."""
    parts, at = [], 0
    while at < len(value):
        assert value[at] == 0x0A
        size, shift, at = 0, 0, at + 1
        while True:
            size |= (value[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if value[at - 1] < 128:
                break
        parts.append(value[at : at + size])
        at += size
    return parts
