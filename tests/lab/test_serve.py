"""The bench of serving: all who are measured find the same items, and those who are missing are named."""

import json
import os
import sys

import numpy as np
import pytest

from saros import cli
from saros.adapters.kafka import Admin, Cluster
from saros.core.topk import top_k
from saros.lab.bench import requests, serve, train
from saros.lab.bench.measure import Row
from saros.lab.bench.serve import PEERS, PRIORS, K, make_subject, run_serve
from tests.broker import Broker
from tests.store import StoreServer, connect


@pytest.mark.parametrize("prior_spread", PRIORS.values())
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peers_find_what_we_find(peer: serve.Peer, prior_spread: float) -> None:
    subject = make_subject(3000, prior_spread)
    try:
        query = peer.make(subject.rows())
    except ImportError:
        pytest.skip(f"{peer.package} is not installed")
    for user, asked in zip(subject.users[:8], subject.asked()[:8], strict=True):
        assert np.asarray(query(asked)).tolist() == top_k(subject.catalogue, user, K).slots.tolist()


def test_priors_are_as_they_are_said_to_be() -> None:
    for prior_spread in PRIORS.values():
        subject = make_subject(20_000, prior_spread)
        priors = subject.catalogue.arrays.prior[:20_000]
        assert priors.mean() == pytest.approx(-2, abs=0.05)
        assert priors.std() == pytest.approx(prior_spread, abs=0.05)
        lengths = np.sqrt((subject.users**2).sum(axis=1))
        assert lengths.mean() == pytest.approx(1.0, abs=0.05)


def test_a_quick_run_gives_every_row_and_says_which_peers_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("faiss", "implicit.cpu.topk"):
        monkeypatch.setitem(sys.modules, package, None)
    told: list[Row] = []
    found = run_serve(quick=True, on_row=told.append)
    assert found == told
    left_out = [line for line in found if line.name in serve.LIVE]
    assert [line.name for line in left_out] == list(serve.LIVE)
    assert all(line.value is None and "SAROS_KAFKA__BOOTSTRAP" in line.note for line in left_out)
    found = [line for line in found if line not in left_out]
    for line in found:
        missing = line.against in {peer.name for peer in PEERS if peer.package}
        assert (line.value is None) == missing == ("make bench PEERS=" in line.note)
        assert (line.ratio is None) == (missing or not line.against)
    beside_numpy = [line for line in found if line.against == "numpy argpartition"]
    assert len(beside_numpy) == 2 * len(PRIORS)
    assert {line.goal for line in beside_numpy} == {1.0}
    assert {line.name.split(",")[0] for line in found if not line.against} == {
        "query",
        "refresh",
        "another p0",
        "catalogue",
        "item table",
    }


@pytest.mark.parametrize("group", ["topk", "growth"])
def test_one_group_can_be_asked_for(group: str) -> None:
    names = {line.name.split()[0] for line in run_serve(quick=True, only=group)}
    assert ("top-10" in names) == (group == "topk")
    assert ("query," in names) == (group == "growth")


def test_a_group_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="none of topk, growth, boot, requests, servable"):
        run_serve(quick=True, only="top")


@pytest.fixture
def models(real_broker: Broker, store_server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that a bench on a real broker makes."""
    monkeypatch.setenv("SAROS_KAFKA__BOOTSTRAP", real_broker.address)
    monkeypatch.setenv("SAROS_REDIS__URL", store_server.url)
    made: list[str] = []
    fill = train.fill

    def noted(cluster: Cluster, case: train.Case) -> train.Backlog:
        backlog = fill(cluster, case)
        made.append(backlog.model)
        return backlog

    monkeypatch.setattr(train, "fill", noted)
    return made


@pytest.mark.timeout(300)
def test_an_api_is_measured_and_nothing_stays(
    models: list[str],
    real_broker: Broker,
    store_server: StoreServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(serve, "topk_lines", lambda _: ())
    monkeypatch.setattr(serve, "growth_lines", lambda _: ())
    assert cli.run(["bench", "serve", "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(row["value"] > 0 for row in rows if not row["unit"].startswith("CPU"))
    goals = {row["against"]: row["goal"] for row in rows if row["goal"] is not None}
    assert goals == {"a raw ASGI app": 0.4, "plain FastAPI": 3.0, "250 ms": 1.0}
    hot = {(row["unit"], row["name"].rpartition(", ")[2][-3:], row["against"], row["goal"])
           for row in rows if row["name"].startswith("hot GET")}  # fmt: skip
    peers = [("a raw ASGI app", 0.4), ("empty FastAPI", None), ("plain FastAPI", 3.0)]
    assert hot == {
        *((unit, "ems", peer, goal) for unit in ("CPU µs/request", "requests/s") for peer, goal in peers),
        *(("ms", which, peer, None) for which in ("p50", "p99") for peer, _ in peers),
    }
    assert all("the aim is 0.6×" in row["note"] for row in rows if row["goal"] == 0.4)
    boots = [(row["name"], row["unit"]) for row in rows if " items × " in row["name"]]
    assert boots == [
        (f"{what}, {count} items × 64", unit)
        for count in ("500", "1,000")
        for what, unit in (("boot", "s"), ("table and catalogue", "MB"), ("the process", "MB"))
    ]
    read, modelled = (row["value"] for row in rows if row["unit"] == "% of requests")
    assert 0 < read <= 100
    assert 0 < modelled <= 100
    late = [row for row in rows if row["against"] == "250 ms"]
    assert len(late) == 2
    assert all(row["better"] == "lower" and row["met"] == (row["value"] <= 250) for row in late)
    assert len(models) == 1, "two groups share it"
    admin, redis = Admin(Cluster(real_broker.address)), connect(store_server.url)
    assert list(redis.scan_iter("{bench}*")) == []
    for model in models:
        assert admin.find(f"{model}.events") is None
        assert list(redis.scan_iter(f"{{{model}:*")) == []


def test_without_a_broker_a_group_that_needs_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SAROS_KAFKA__BOOTSTRAP", raising=False)
    assert cli.run(["bench", "serve", "--only", "requests"]) != 0
    assert "SAROS_KAFKA__BOOTSTRAP" in capsys.readouterr().err


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CPU is told on Linux only")
def test_cpu_of_a_process_is_read() -> None:
    found = requests.cpu_seconds(os.getpid())
    assert found == pytest.approx(sum(os.times()[:2]), abs=0.5)


def test_cpu_of_no_process_is_none() -> None:
    assert requests.cpu_seconds(2**30) is None
