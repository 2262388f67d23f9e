"""The bench of serving: all who are measured find the same items, and those who are missing are named."""

import sys

import numpy as np
import pytest

from saros.core.topk import top_k
from saros.lab.bench import serve
from saros.lab.bench.measure import Row
from saros.lab.bench.serve import PEERS, PRIORS, K, make_subject, run_serve


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


@pytest.mark.parametrize("group", serve.GROUPS)
def test_one_group_can_be_asked_for(group: str) -> None:
    names = {line.name.split()[0] for line in run_serve(quick=True, only=group)}
    assert ("top-10" in names) == (group == "topk")
    assert ("query," in names) == (group == "growth")


def test_a_group_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="none of topk, growth"):
        run_serve(quick=True, only="top")
