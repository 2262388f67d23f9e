"""Answers of the lab as text for people and as values for JSON."""

import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from saros.lab.attack import Trial
from saros.lab.bench.measure import Row
from saros.lab.experiment import Outcome
from saros.lab.model import METRICS, ranking_json

_PIPE_WIDTH = 110  # of a table that goes to no terminal
_BAR = 40


def print_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> None:
    """Print a table of numbers; the columns `left` hold text."""
    table = Table(box=SIMPLE_HEAD, title=Text(title), title_justify="left", title_style="bold")
    for k, header in enumerate(headers):
        table.add_column(header, justify="left" if k in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)


def replay_json(asked: dict[str, Any], outcome: Outcome, baselines: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of `saros replay`."""
    answer = {
        **asked,
        "blocks": outcome.counts["blocks"],
        "train_seconds": outcome.seconds,
        **ranking_json(outcome.ranking),
        "baselines": baselines,
        "blocks_max": outcome.highs,
        "counts": {name: count for name, count in outcome.counts.items() if count},
    }
    if outcome.progressive is not None:
        answer["progressive"] = {**outcome.progressive.total(), "windows": outcome.progressive.windows()}
    return answer


def print_replay(answer: dict[str, Any]) -> None:
    """Print the answer of `saros replay`."""
    a, seconds = answer, answer["train_seconds"]
    passes = "1 pass" if a["passes"] == 1 else f"{a['passes']} passes"
    typer.echo(f"{a['dataset']}: {a['users']:,} users, {a['items']:,} items, {a['train']:,} train, {a['test']:,} test")
    typer.echo(
        f"rule {a['rule']}, order {a['order']}, step {a['step']}, dim {a['dim']}, {passes}, gate {a['gate']}, "
        f"{a['partitions']} partition{'s' * (a['partitions'] > 1)}, seed {a['seed']}"
    )
    typer.echo(f"{a['blocks']:,} blocks, learned in {seconds:.2f} s (kernels were compiled before)")
    if a["gate"] != "none":
        _print_gate(a["counts"], a["blocks_max"])
    named = {"this run": a, **a["baselines"]}
    rows = []
    for name, row in named.items():
        time = f"{seconds:.2f} s" if name == "this run" else ("1 h" if name.startswith("paper") else "")
        cells = [name, _number(row["loss"]), *(_number(row["authors"][metric]) for metric in METRICS), time]
        rows.append(cells)
    print_table("As the paper's authors measure", ["", "test loss", *map(str.upper, METRICS), "training"], rows)
    rows = [
        [name, *(_number(row["standard"][metric]) for metric in METRICS)]
        for name, row in named.items()
        if row["standard"]
    ]
    print_table("Standard metrics", ["", *map(str.upper, METRICS)], rows)
    if "progressive" in a:
        _print_progressive(a["progressive"])


def _print_gate(counts: dict[str, int], blocks_max: list[list[int]]) -> None:
    learned, over, crossed, back = (counts.get(name, 0) for name in ("learned", "over", "crossed", "taken_back"))
    typer.echo(
        f"gate: {learned:,} blocks learned, {over:,} above B, {crossed:,} users passed B, {back:,} blocks taken back"
    )
    for p, highs in enumerate(blocks_max):
        moves = f", moved {len(highs) - 1:,} times between {min(highs)} and {max(highs)}" if len(highs) > 1 else ""
        typer.echo(f"gate: partition {p}: B {highs[-1]}{moves}")


def _print_progressive(judged: dict[str, Any]) -> None:
    names = ("", "item_positive_rate_", "popularity_")
    headers = ["blocks", "accuracy", "item rate", "popularity", "rec. rank", "item rate", "popularity"]
    rows, seen = [], 0
    for window in judged["windows"]:
        seen += int(window["blocks"])
        rows.append([f"{seen:,}", *_judged(window, names)])
    rows.append(["all", *_judged(judged, names)])
    print_table("Judged before it is learned, by windows of blocks", headers, rows)


def _judged(window: dict[str, Any], names: Sequence[str]) -> list[str]:
    return [_number(window[name + what]) for what in ("accuracy", "reciprocal_rank") for name in names]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def print_blocks(answer: dict[str, Any]) -> None:
    """Print the answer of `saros blocks`."""
    a = answer
    window = f", the most in {a['window_days']} days" if a["window_days"] else ""
    typer.echo(
        f"{a['dataset']} ({a['part']}): {a['blocks']:,} blocks of {a['users']:,} users, rule {a['rule']}{window}"
    )
    typer.echo(f"{a['users_without_blocks']:,} users have no block")
    if not a["users"]:
        return
    names = ("min", "median", "mean", "p90", "p95", "p99", "max")
    print_table("Blocks of a user", ["", *names], [["", *(f"{a[name]:,.4g}" for name in names)]])
    most = max(row["users"] for row in a["histogram"])
    rows = []
    for low, high, users in (row.values() for row in a["histogram"]):
        span = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        rows.append([span, f"{users:,}", "█" * round(_BAR * users / most)])
    print_table("Users by blocks", ["blocks", "users", ""], rows, left=(0, 2))
    rows = [
        [
            e["name"], str(e["b"]), str(e["B"]),
            *(f"{e[what + '_dropped']:,} ({e[what + '_dropped'] / max(a[what], 1):.1%})"
              for what in ("users", "blocks", "clicks")),
        ]
        for e in a["estimates"]
    ]  # fmt: skip
    print_table("What a gate [b, B] would drop", ["", "b", "B", "users", "blocks", "clicks"], rows)


def attack_json(asked: dict[str, Any], trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the answer of `saros attack`."""
    rows = [{name: value for name, value in trial._asdict().items() if name != "curve"} for trial in trials]
    return {**asked, "rows": rows}


def print_attack(answer: dict[str, Any]) -> None:
    """Print the answer of `saros attack`."""
    a = answer
    typer.echo(f"{a['dataset']}: {a['users']:,} users, {a['items']:,} items, {a['targets']} of them promoted by bots")
    typer.echo(
        f"gate: b {a['blocks_min']}, B {a['blocks_max']}, window {a['window_days']} days, in mode session a wait of "
        f"{a['wait_s']:,} s a block, {a['partitions']} partition{'s' * (a['partitions'] > 1)}, seed {a['seed']}"
    )
    lines, last = [], None
    for row in a["rows"]:
        who = [row["attack"], f"{row['bots']:,} × {row['blocks']:,}"] if row["attack"] != last else ["", ""]
        shares = [f"{row[name]:.3f}" for name in ("peak", "final")]
        lines.append([*who, row["mode"], row["repeat_clicks"], *shares, f"{row['clean_cost']:.4f}"])
        last = row["attack"]
    headers = ["attack", "bots × blocks", "mode", "repeat clicks", "peak", "final", "clean cost"]
    print_table("Share of honest users with a promoted item in their top 10", headers, lines, left=(0, 2, 3))


def print_bench(rows: Sequence[Row]) -> None:
    """Print what a bench measured, and what its rows note."""
    notes = list(dict.fromkeys(row.note for row in rows if row.note))
    lines = []
    for row in rows:
        mark = f" [{notes.index(row.note) + 1}]" if row.note else ""
        goal = "" if row.goal is None else f"{'≥' if row.better == 'higher' else '≤'} {row.goal:g}×"
        met = {None: "", True: "met", False: "MISSED"}[row.met]
        value = "–" if row.value is None else f"{row.value:,.3g}" if row.value < 1000 else f"{row.value:,.0f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.3g}×"
        lines.append([row.name, value, row.unit, row.against + mark, ratio, goal, met])
    print_table("Speed", ["", "value", "unit", "against", "ratio", "goal", ""], lines, left=(0, 2, 3, 6))
    for number, note in enumerate(notes, start=1):
        typer.echo(f"[{number}] {note}")
