"""What `saros up` shows: one picture that moves on a terminal, plain lines elsewhere.

Invariants: nothing a child says is shown, but for its last words; on standard output there is, where it is no terminal,
the address and nothing else.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from saros.console import complain

_PICTURES_S = 0.5
_LINES_S = 10.0
SHOW_CURSOR = "\x1b[?25h"


class Row(NamedTuple):
    """How one part stands."""

    name: str
    what: str
    state: str


class Status(NamedTuple):
    """How all of it stands."""

    version: str
    url: str  # empty until the page can be seen
    ready: bool
    rows: Sequence[Row]
    kept: Sequence[tuple[str, str]]  # what is kept, what is not, and where
    pulse: dict[str, Any] | None  # what the API tells
    traffic: dict[str, Any] | None  # what the simulator tells


class Screen(Protocol):
    """Who shows."""

    def note(self, what: str) -> None:
        """Something happened."""

    def show(self, status: Status) -> None:
        """Show how it stands; it may be asked for far more often than it draws."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def new_screen() -> Screen:
    """Return what suits standard output."""
    console = Console()
    return _Picture(console) if console.is_terminal and not console.is_dumb_terminal else _Lines()


class _Picture:
    """On a terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._live.start()
        self._next_s, self._notes = 0.0, list[str]()

    def note(self, what: str) -> None:
        """Keep the last thing that happened in sight."""
        self._notes = [what]
        self._next_s = 0.0

    def show(self, status: Status) -> None:
        """Draw it anew, a few times a second at most."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _PICTURES_S
            self._live.update(_picture(status, self._notes), refresh=True)

    def close(self) -> None:
        """Leave the last picture where it is."""
        self._live.stop()


class _Lines:
    """Elsewhere: the address on standard output, all else on standard error."""

    def __init__(self) -> None:
        self._next_s, self._told = time.monotonic() + _LINES_S, False

    def note(self, what: str) -> None:
        """Write a line."""
        complain(what)

    def show(self, status: Status) -> None:
        """Write the address once, and a line of numbers now and then."""
        if status.ready and not self._told:
            self._told = True
            for name, what in status.kept:
                complain(f"{name}: {what}")
            sys.stdout.write(f"SAROS_UP_URL={status.url}\n")
            sys.stdout.flush()
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _LINES_S
            told = numbers(status)
            if told:
                complain("; ".join(f"{name}: {what}" for name, what in told))

    def close(self) -> None:
        """Nothing is left to be done."""


def _picture(status: Status, notes: Sequence[str]) -> Group:
    head = Text.assemble((f"Saros {status.version}", "bold"), "  ")
    head.append(status.url or "starting", "bold cyan" if status.url else "yellow")
    if status.url and not status.ready:
        head.append("  the page is there, the model is on its way", "yellow")
    parts, told = _grid(), _grid()
    for row in status.rows:
        style = {"runs": "green", "done": "green", "waits": "dim"}.get(row.state, "yellow")
        parts.add_row(Text(row.name, "dim"), Text.assemble((row.state, style), f"  {row.what}"))
    for name, what in [*numbers(status), *status.kept]:
        told.add_row(Text(name, "dim"), Text(what))
    said = [Text(note, "yellow") for note in notes]
    return Group(head, "", parts, "", told, *said, Text("Ctrl-C ends all of it", "dim"))


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=9, no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def numbers(status: Status) -> list[tuple[str, str]]:
    """Return what there is to tell of events, learning, clicks and the gate, as far as it is known."""
    pulse, found = status.pulse, []
    if pulse is not None:
        events, lag, servable = pulse["events"], pulse["lag"], pulse["servable_ms"]
        line = f"{events['per_s'] or 0:,.0f} a second, {events['total']:,} in all, {lag['seconds'] or 0:.1f} s behind"
        if servable["p50"] is not None:
            line += f"; served after {servable['p50']:.0f} ms (p99 {servable['p99']:.0f} ms)"
        found.append(("events", line))
        learning = pulse["learning"]
        if learning["accuracy"] is not None:
            found.append((
                "learning",
                f"{learning['accuracy']:.1%} of pairs in the right order (items' rates: {learning['baseline']:.1%}),"
                f" loss {learning['loss']:.3f} ({learning['baseline_loss']:.3f})",
            ))  # fmt: skip
        if pulse["scenarios"]:
            shown = ", ".join(f"{one['scenario']} {one['rate'] or 0:.2%}" for one in pulse["scenarios"])
            found.append(("clicks", f"of items shown: {shown}{_lift(status.traffic)}"))
        gate = pulse["gate"]
        bands = gate["bands"]
        found.append((
            "gate",
            f"users: {bands['below']:,} below b, {bands['in_band']:,} in band, {bands['above']:,} above B; "
            f"{gate['taken_back']:,} blocks taken back",
        ))  # fmt: skip
        dead = sum(pulse["dead"].values())
        if dead:
            found.append(("dead", f"{dead:,} letters"))
    return found


def _lift(traffic: dict[str, Any] | None) -> str:
    """Say by how much the model beats chance, with what is certain of it."""
    if traffic is None or traffic.get("lift_low95") is None:
        return ""
    return f"; model over random {traffic['lift']:+.2%}, with 95 % certainty at least {traffic['lift_low95']:+.2%}"
