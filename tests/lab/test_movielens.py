"""What has to be reached on MovieLens, as README.md promises it, by the commands it names."""

import json
from pathlib import Path
from typing import Any

import pytest

from saros import cli


@pytest.fixture
def replay(ml_1m: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `saros replay ml-1m` with more flags."""

    def run(*flags: str) -> Any:
        assert cli.run(["replay", "ml-1m", "--json", *flags]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_one_pass(replay: Any, seed: str) -> None:
    answer = replay("--progressive", "--seed", seed)
    counts = {"users": 6040, "items": 3706, "train": 797_758, "test": 202_451, "blocks": 144_195}
    assert {name: answer[name] for name in counts} == counts
    assert answer["authors"]["map@5"] >= 0.862
    assert answer["authors"]["ndcg@10"] >= 0.894
    assert answer["loss"] <= 0.560
    judged = answer["progressive"]
    assert judged["accuracy"] >= 0.667
    assert judged["accuracy"] - judged["item_positive_rate_accuracy"] >= 0.019
    assert judged["accuracy"] > judged["popularity_accuracy"]


@pytest.mark.parametrize("partitions", ["1", "4"])
@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_the_gate_costs_little(replay: Any, partitions: str, seed: str) -> None:
    answer = replay("--gate", "default", "--partitions", partitions, "--seed", seed)
    assert answer["authors"]["map@5"] >= 0.859
    assert len(answer["blocks_max"]) == int(partitions)
    assert all(len(highs) > 10 for highs in answer["blocks_max"]), "B moves when the day changes"
    assert answer["counts"]["taken_back"] > 0


@pytest.mark.parametrize("rule", ["click", "algorithm"])
def test_ten_passes(replay: Any, rule: str) -> None:
    answer = replay("--passes", "10", "--dim", "64", "--rule", rule)
    assert answer["authors"]["map@5"] >= 0.863
    assert answer["authors"]["ndcg@10"] >= 0.894
    assert answer["loss"] <= 0.561


def test_the_paper_s_own_step(replay: Any) -> None:
    paper = replay()["baselines"]["paper, SAROS"]
    assert paper["loss"] == 0.608
    answer = replay("--step", "paper", "--order", "paper")
    assert answer["loss"] < paper["loss"]
    assert answer["authors"]["map@5"] > paper["authors"]["map@5"]


def test_baselines_are_those_of_the_notes(replay: Any) -> None:
    baselines = replay()["baselines"]
    rate = baselines["item positive rate"]
    assert rate["loss"] == pytest.approx(0.577, abs=0.0005)
    assert list(rate["authors"].values()) == pytest.approx([0.848, 0.821, 0.802, 0.883], abs=0.0005)
    assert rate["standard"]["map@5"] == pytest.approx(0.718, abs=0.0005)
    assert list(baselines["popularity"]["authors"].values()) == pytest.approx([0.812, 0.783, 0.759, 0.857], abs=0.0005)


@pytest.mark.parametrize(
    ("rule", "blocks", "median", "mean", "most"),
    [("click", 144_195, 14, 23.94, 348), ("authors", 468_842, 47, 77.8, 1206)],
)
def test_blocks_of_a_user(
    ml_1m: Path, capsys: pytest.CaptureFixture[str], rule: str, blocks: int, median: int, mean: float, most: int
) -> None:
    assert cli.run(["blocks", "ml-1m", "--json", "--rule", rule]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["blocks"], answer["median"], answer["max"], answer["part"]) == (blocks, median, most, "train")
    assert answer["mean"] == pytest.approx(mean, abs=0.05)


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_the_small_data_set(ml_100k: Path, capsys: pytest.CaptureFixture[str], seed: str) -> None:
    assert cli.run(["replay", "ml-100k", "--json", "--seed", seed]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["users"], answer["items"], answer["train"] + answer["test"]) == (943, 1682, 100_000)
    rate = answer["baselines"]["item positive rate"]
    assert answer["authors"]["map@5"] >= rate["authors"]["map@5"] + 0.003
    assert answer["loss"] < rate["loss"]
