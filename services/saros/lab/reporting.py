"""How a simulation is shown while it runs: a table on a terminal, lines elsewhere, or JSON."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from saros.lab.lift import ARMS
from saros.lab.simulate import Traffic

Told = dict[str, Any]
Report = Callable[[Told, bool], None]  # how it stands, and whether that is the last word

_LINE_EVERY_S = 5.0


@contextmanager
def report_to(traffic: Traffic, api: str, *, quiet: bool, as_json: bool) -> Iterator[Report]:
    """Yield what shows how a simulation stands."""
    if not quiet and not as_json and sys.stdout.isatty():
        title = (
            f"{traffic.users:,} people, {traffic.items:,} films, {traffic.rate:g} events/s at {api}"
            f"{f', {traffic.bots:,} bots' if traffic.bots else ''}, seed {traffic.seed}"
        )
        with Live(console=Console(), auto_refresh=False) as live:
            yield lambda told, last: live.update(_picture(title, told), refresh=True)
        return
    yield _Lines(_json_line if as_json else line_of, 0.0 if as_json else _LINE_EVERY_S, quiet=quiet)


class _Lines:
    """Prints a line from time to time, and at the end."""

    def __init__(self, text: Callable[[Told], str], every_s: float, *, quiet: bool) -> None:
        self._text, self._every_s, self._quiet, self._next_s = text, every_s, quiet, 0.0

    def __call__(self, told: Told, last: bool) -> None:
        due = told["seconds"] >= self._next_s and not self._quiet
        if due or last:
            typer.echo(self._text(told))
            self._next_s = told["seconds"] + self._every_s


def _json_line(told: Told) -> str:
    return json.dumps(told)


def line_of(told: Told) -> str:
    """Return how it stands in one line."""
    arms = ", ".join(f"{arm} {_percent(told[arm]['rate'])} of {told[arm]['shown']:,}" for arm in ARMS)
    parts = [
        f"{told['seconds']:.0f} s: {told['sent']:,} events, {told['slates']:,} slates",
        f"clicked {arms}",
        f"lift {_percent(told['lift'], '+')}, at least {_percent(told['lift_low95'], '+')}",
    ]
    if told["bots"]["bots"]:
        parts.append(f"{told['bots']['blocks']:,} blocks of bots, {_percent(told['bots']['share'])} of places theirs")
    parts += [f"{what} {told[what]:,}" for what in ("away", "rejected") if told[what]]
    return "; ".join(parts)


def _picture(title: str, told: Told) -> Group:
    """Return how it stands as a table."""
    table = Table("", box=SIMPLE_HEAD, title=Text(title), title_justify="left", title_style="bold")
    recent = told["recent"]
    for name in ("shown", "clicked", "rate", "95 %", f"last {recent['seconds']} s"):
        table.add_column(name, justify="right")
    for arm in ARMS:
        row = told[arm]
        bounds = "–" if row["rate"] is None else f"{100 * row['low95']:.2f} – {100 * row['high95']:.2f}"
        cells = [arm, f"{row['shown']:,}", f"{row['clicked']:,}", _percent(row["rate"]), bounds]
        table.add_row(*cells, _percent(recent[arm]["rate"]))
    learned = told["lift_low95"] is not None and told["lift_low95"] > 0
    lift = ["lift", "", "", _percent(told["lift"], "+"), f"at least {_percent(told['lift_low95'], '+')}"]
    table.add_row(*lift, _percent(recent["lift"], "+"), style="bold green" if learned else "bold")
    said = [f"{told['seconds']:.0f} s, {told['sent']:,} events, {told['slates']:,} slates, {told['people']:,} people"]
    if told["bots"]["bots"]:
        share = _percent(told["bots"]["share"])
        said.append(f"bots closed {told['bots']['blocks']:,} blocks; their films have {share} of the model's places")
    said += [f"{what}: {told[what]:,}" for what in ("away", "rejected") if told[what]]
    return Group(table, Text("  " + "\n  ".join(said)))


def _percent(share: float | None, sign: str = "") -> str:
    """Return a share for people; a dash where it is not known."""
    return "–" if share is None else f"{100 * share:{sign}.2f} %"
