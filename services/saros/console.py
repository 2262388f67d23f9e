"""What commands share when they speak to a terminal.

Invariants: standard output carries answers only; what is said beside them goes to standard error, one line each.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_SILENT_S = 2.0

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def complain(what: str) -> None:
    """Print one line to standard error, whatever line breaks `what` holds."""
    typer.echo(f"saros: {' '.join(what.split())}", err=True)


@contextmanager
def progress(what: str, total: int | None = None, silent_s: float = _SILENT_S) -> Iterator[Callable[[int], None]]:
    """Show how far a long piece of work is, on standard error; yield a function that counts steps done.

    Nothing is shown in the first `silent_s` seconds, nor when standard error is no terminal. Without `total` only the
    time is shown.
    """
    if not sys.stderr.isatty():
        yield lambda steps: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    # rich would send what is printed meanwhile to standard error too; an answer must stay on standard output.
    bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
    task = bar.add_task(what, total=total)
    # A timer and not a look at the clock at each step: compiling a kernel takes seconds and has no steps.
    timer = threading.Timer(silent_s, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda steps: bar.advance(task, steps)
    finally:
        timer.cancel()
        # The bar may be starting at this very moment; only after the join it is either started or never will be.
        timer.join()
        if bar.live.is_started:
            bar.stop()
