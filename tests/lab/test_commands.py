"""The lab's commands as a user types them, on files made by hand."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from saros import cli

METRICS = {"map@5", "map@10", "ndcg@5", "ndcg@10"}


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out)


Saros = Callable[..., Answer]


@pytest.fixture
def saros(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Saros:
    """Run a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        code = cli.run(arguments)
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def ratings(tmp_path: Path) -> str:
    """Ratings of 60 users with two tastes: even ones like even items and odd ones odd items."""
    chance, lines = random.Random(5), ["user,item,rating,timestamp"]
    for user in range(60):
        for k, item in enumerate(chance.sample(range(40), 30)):
            rating = 5 if (user + item) % 2 == 0 else 2
            lines.append(f"u{user},i{item},{rating},{1000 + 100 * k + user}")
    path = tmp_path / "tastes.csv"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture
def events(tmp_path: Path) -> str:
    """Ann closes three blocks within an hour, Bob none; one item is shown first and clicked later."""
    lines = []
    for k in range(3):
        lines.append({"user": "ann", "items": [f"a{k}", f"b{k}"], "kind": "impression", "time": 1e9 + 60 * k})
        lines.append({"user": "ann", "item": f"b{k}", "kind": "click", "time": 1e9 + 60 * k + 5})
    lines.append({"user": "bob", "item": "a0", "kind": "impression", "time": 1e9})
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def test_replay_answers_as_json(saros: Saros, ratings: str) -> None:
    answer = saros("replay", ratings, "--json", "--seed", "3").json()
    wanted = {
        "dataset": "tastes", "users": 60, "items": 40, "train": 60 * 24, "test": 60 * 6,
        "rule": "click", "order": "stream", "passes": 1, "seed": 3, "dim": 16, "step": "live", "gate": "none",
    }  # fmt: skip
    assert {key: answer[key] for key in wanted} == wanted
    assert answer["train_seconds"] > 0
    assert answer["authors"].keys() == answer["standard"].keys() == METRICS
    rate = answer["baselines"]["item positive rate"]
    assert rate.keys() == {"loss", "authors", "standard"}
    assert not any(name.startswith("paper") for name in answer["baselines"]), "the paper knows nothing of this file"
    assert "progressive" not in answer


def test_replay_learns_tastes_that_no_baseline_can_know(saros: Saros, ratings: str) -> None:
    answer = saros("replay", ratings, "--json", "--passes", "10").json()
    assert answer["authors"]["map@5"] > 0.95
    assert answer["authors"]["map@5"] > answer["baselines"]["item positive rate"]["authors"]["map@5"] + 0.1


@pytest.mark.parametrize(
    "flags",
    [
        ("--order", "paper"),
        ("--rule", "algorithm"),
        ("--rule", "authors"),
        ("--step", "paper", "--lr", "0.1"),
        ("--step", "paper", "--mu", "0.01"),
        ("--step", "paper", "--passes", "2", "--mu", "0.01", "--lr", "0.05"),
        ("--passes", "2", "--lr-user", "0.4", "--lr-item", "0.1", "--mu", "0"),
        ("--lr-user", "0.3", "--lr-item", "0.2", "--dim", "8"),
        ("--gate", "default", "--partitions", "4"),
        ("--gate", "3"),
        ("--gate", "mean", "--passes", "2"),
    ],
)
def test_every_flag_changes_the_model(saros: Saros, ratings: str, flags: tuple[str, ...]) -> None:
    plain, other = saros("replay", ratings, "--json").json(), saros("replay", ratings, "--json", *flags).json()
    for flag, value in zip(flags[::2], flags[1::2], strict=True):
        if flag[2:] in other:
            assert str(other[flag[2:]]) == value
    assert other["train"] == plain["train"]
    if flags != ("--gate", "default", "--partitions", "4"):
        assert other["loss"] != plain["loss"]
    assert other == {**saros("replay", ratings, "--json", *flags).json(), "train_seconds": other["train_seconds"]}


def test_replay_prints_tables(saros: Saros, ratings: str) -> None:
    answer = saros("replay", ratings, "--progressive", "--gate", "5", "--partitions", "2")
    assert (answer.code, answer.err) == (0, "")
    assert "tastes: 60 users, 40 items, 1,440 train, 360 test" in answer.out
    for text in ("this run", "item positive rate", "popularity", "MAP@5", "NDCG@10", "gate: partition 1: B 5", "all"):
        assert text in answer.out


def test_progressive_as_json(saros: Saros, ratings: str) -> None:
    answer = saros("replay", ratings, "--progressive", "--json").json()
    assert answer["progressive"]["blocks"] == answer["blocks"] == answer["progressive"]["windows"][0]["blocks"]
    for name in ("accuracy", "reciprocal_rank", "item_positive_rate_accuracy", "popularity_reciprocal_rank"):
        assert 0 < answer["progressive"][name] < 1


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_replay_draws_the_loss(saros: Saros, ratings: str, tmp_path: Path, ending: str) -> None:
    assert saros("replay", ratings, "--plot", f"loss.{ending}").code == 0
    start = (tmp_path / f"loss.{ending}").read_bytes()[:200]
    assert b"PNG" in start if ending == "png" else b"<?xml" in start


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--lr", "0.1"), "--lr is of --step paper and of several passes — one live pass has --lr-user and --lr-item"),
        (("--mu", "0.1"), "--mu is of --step paper and of several passes — one live pass has --lr-user and --lr-item"),
        (
            ("--step", "paper", "--lr-user", "1"),
            "--lr-user and --lr-item are of --step live — the paper's step has --lr",
        ),
        (("--passes", "2", "--mu", "nan"), "--mu nan is out of range — give a number from 0 to 10"),
        (("--passes", "2", "--order", "stream"), "several passes and --mu go user by user — leave out --order stream"),
        (("--passes", "2", "--progressive"), "--progressive judges one live pass — leave out --passes and --mu"),
        (("--lr-user", "11"), "--lr-user 11.0 is too large — give a number above 0 up to 10"),
        (("--gate", "soon"), "--gate soon is not understood — give a whole number from 1 to 1000000000, 'mean' or a "),
        (("--plot", "loss"), "--plot loss does not say what kind of picture — end the name in one of "),
        (("--plot", "no/loss.png"), "the folder of --plot no/loss.png does not exist — make it first, or name another"),
        (
            ("--passes", "0"),
            "Invalid value for '--passes': Input should be greater than or equal to 1 — see 'saros replay --help'",
        ),
        (("--positive-from", "nan"), "--positive-from nan is no number — "),
    ],
)
def test_flags_that_make_no_sense_are_refused(
    saros: Saros, ratings: str, flags: tuple[str, ...], complaint: str
) -> None:
    answer = saros("replay", ratings, *flags)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"saros: {complaint}")
    assert answer.err.count("\n") == 1


def test_rating_data_has_no_sessions_to_wait_for(
    saros: Saros, ratings: str, events: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAROS_GATE__MODE", "session")
    refused = saros("replay", ratings, "--gate", "default")
    assert (refused.code, refused.err.count("no sessions")) == (2, 1)
    assert saros("blocks", events, "--gate", "default", "--json").json()["blocks"] == 3


@pytest.mark.parametrize("command", ["replay", "blocks"])
@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("empty.csv", "", "is empty"),
        ("none.csv", None, "there is no file none.csv"),
        ("odd.xyz", "1", "the ending of odd.xyz"),
        ("bad.jsonl", '{"user": 1}\n' * 3, "3 of 3 lines of bad.jsonl are bad, the first is line 1: no kind"),
    ],
)
def test_wrong_files(saros: Saros, tmp_path: Path, command: str, name: str, text: str | None, complaint: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    answer = saros(command, name)
    assert (answer.code, answer.out) == (2, "")
    assert complaint in answer.err.splitlines()[-1]


def test_a_data_set_that_is_not_here(saros: Saros, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answer = saros("replay", "ml-1m")
    assert answer == (2, "", "saros: ml-1m is not here — get it with: saros data fetch ml-1m\n")


def test_bad_lines_are_told_and_skipped(saros: Saros, ratings: str) -> None:
    whole = saros("replay", ratings, "--json").json()
    with open(ratings, "a") as file:
        file.write("\n" + "\n".join(["u1,i1,x,1"] * 12))
    answer = saros("replay", ratings, "--json")
    lines = answer.err.splitlines()
    assert lines[0] == "saros: line 1802 is skipped: rating 'x' is not a number"
    assert (len(lines), lines[-1]) == (11, "saros: 12 lines are skipped in all")
    assert json.loads(answer.out)["loss"] == whole["loss"]


def test_too_little_to_split(saros: Saros, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("a,b,5,1\n")
    answer = saros("replay", "one.csv")
    assert (answer.code, answer.err) == (
        2,
        "saros: one.csv has too few events to split — give users with at least two events each\n",
    )


def test_blocks_of_a_file(saros: Saros, events: str) -> None:
    answer = saros("blocks", events, "--json").json()
    wanted = {"users": 1, "blocks": 3, "clicks": 3, "median": 3.0, "mean": 3.0, "max": 3, "p95": 3, "part": "all"}
    assert {key: answer[key] for key in wanted} == wanted
    assert answer["users_without_blocks"] == 1
    shown = saros("blocks", events)
    assert "events (all): 3 blocks of 1 users, rule click" in shown.out
    for text in ("median", "2–3", "paper", "p95", "0 (0.0%)"):
        assert text in shown.out


@pytest.mark.parametrize(("gate", "signs"), [("none", [1, 1, 1]), ("2", [-1, -1, 0]), ("3", [1, 1, 1])])
def test_blocks_one_by_one(saros: Saros, events: str, gate: str, signs: list[int]) -> None:
    answer = saros("blocks", events, "--list", "--gate", gate)
    assert [json.loads(line) for line in answer.out.splitlines()] == [
        {"user": "ann", "block": k, "positives": [f"b{k}"], "negatives": [f"a{k}"], "sign": sign}
        for k, sign in enumerate(signs)
    ]


def test_blocks_of_standard_input(saros: Saros, events: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(events) as file:
        monkeypatch.setattr("sys.stdin", file)
        assert saros("blocks", "-", "--json").json()["dataset"] == "stdin"


def test_blocks_answers_one_thing(saros: Saros, events: str) -> None:
    assert saros("blocks", events, "--list", "--json").code == 2


def test_no_blocks_at_all(saros: Saros, tmp_path: Path) -> None:
    (tmp_path / "shown.jsonl").write_text('{"user": 1, "item": 2, "kind": "impression", "time": 3}')
    assert saros("blocks", "shown.jsonl", "--json").json()["blocks"] == 0
    assert "0 blocks of 0 users" in saros("blocks", "shown.jsonl").out


def test_bench_answers_in_rows(saros: Saros) -> None:
    rows = saros("bench", "core", "--quick", "--only", "fold", "--json").json()["rows"]
    assert rows
    for row in rows:
        assert {"name", "value", "unit", "against", "ratio", "goal", "met"} <= row.keys()
    shown = saros("bench", "core", "--quick", "--only", "fold")
    assert "fold, d 64" in shown.out
    assert "µs/block" in shown.out
    growth = saros("bench", "serve", "--quick", "--only", "growth", "--json").json()["rows"]
    assert {row["unit"] for row in growth} == {"µs/query", "ns/item", "MB"}
    assert "ns/item" in saros("bench", "serve", "--quick", "--only", "growth").out


def test_fetch_takes_the_copy_one_has(saros: Saros, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ratings.dat").write_text("1::2::3::4\n")
    answer = saros("data", "fetch", "ml-1m", "ratings.dat")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("saros: ratings.dat ")
    unknown = saros("data", "fetch", "ml-2m")
    assert (unknown.code, "ml-1m" in unknown.err) == (2, True)
    assert not list(tmp_path.rglob("*.inter"))


def test_attack_answers_as_json(saros: Saros, ratings: str) -> None:
    asked = ("--attack", "fast", "--attack", "click-only", "--bots", "3", "--blocks", "20", "--targets", "2")
    answer = saros("attack", ratings, *asked, "--json", "--seed", "4").json()
    assert (answer["dataset"], answer["targets"], answer["seed"], answer["blocks_max"]) == ("tastes", 2, 4, "p97")
    columns = {"attack", "mode", "repeat_clicks", "bots", "blocks", "peak", "final", "clean_cost"}
    assert all(row.keys() == columns for row in answer["rows"])
    tried = {(row["attack"], row["mode"], row["repeat_clicks"]) for row in answer["rows"]}
    modes = ("none", "immediate", "session", "shadow")
    assert tried == {(a, m, r) for a in ("fast", "click-only") for m in modes for r in ("learn", "ignore")}
    by_mode = {(row["attack"], row["mode"]): row for row in answer["rows"] if row["repeat_clicks"] == "learn"}
    same = ("peak", "final", "clean_cost")
    for attack in ("fast", "click-only"):
        none, shadow = by_mode[attack, "none"], by_mode[attack, "shadow"]
        assert [none[name] for name in same] == [shadow[name] for name in same], "a shadow changes nothing"
    assert saros("attack", ratings, *asked, "--json", "--seed", "4").json() == answer


def test_attack_prints_a_table_and_draws_a_picture(saros: Saros, ratings: str, tmp_path: Path) -> None:
    asked = (
        "--attack",
        "slow",
        "--mode",
        "session",
        "--bots",
        "2",
        "--blocks",
        "9",
        "--every-s",
        "1900",
        "--gate",
        "5",
    )
    answer = saros("attack", ratings, *asked, "--plot", "slow.svg")
    assert answer.code == 0, answer.err
    for text in ("tastes: 60 users, 40 items, 10 of them", "B 5", "2 × 9", "session", "ignore", "clean cost"):
        assert text in answer.out
    assert "<svg" in (tmp_path / "slow.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (["--gate", "none"], {}, "none is one of the modes"),
        (["--targets", "40"], {}, "has 40 items"),
        (["--bots", "1000", "--blocks", "301"], {}, "301,000 blocks are too many"),
        (["--mode", "loud"], {}, "--mode"),
        (["--plot", "slow.poem"], {}, "what kind of picture"),
        ([], {"SAROS_SESSION__GAP_S": "0"}, "never ends a session"),
    ],
)
def test_attack_refuses_what_makes_no_sense(
    saros: Saros,
    ratings: str,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environ: dict[str, str],
    said: str,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    answer = saros("attack", ratings, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_attack_needs_no_sessions_for_other_modes(saros: Saros, ratings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAROS_SESSION__GAP_S", "0")
    asked = ("--attack", "fast", "--mode", "immediate", "--bots", "2", "--blocks", "3", "--json")
    assert len(saros("attack", ratings, *asked).json()["rows"]) == 2
