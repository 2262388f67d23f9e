"""The lab's benches: `saros bench core` and `serve`; `ingest`, which needs a broker, is in `saros.lab.topics`.

As in `saros.lab.commands`, numba is imported by what a command does, not by this module.
"""

import json
from typing import Annotated, Literal

import typer

from saros.console import Json, progress

bench_app = typer.Typer(help="Measure speed, side by side with others.")

_Quick = Annotated[bool, typer.Option("--quick", help="A few seconds, to see that all runs: no numbers to rely on.")]


@bench_app.command()
def core(
    only: Annotated[
        Literal["step", "feed", "fold", "growth"] | None, typer.Option(help="One group of measurements.")
    ] = None,
    quick: _Quick = False,
    as_json: Json = False,
) -> None:
    """Measure the core in one thread: step, feed and gate, fold, and how cost grows.

    Ratios are taken side by side in one run. Peers that are not installed are named; `make bench` installs them. A
    goal is met from above where a higher ratio is better, and from below where cost grows.

    Examples:

      saros bench core

      saros bench core --only step --json | jq '.rows[] | select(.goal)'
    """
    from saros.lab.bench.core import run_core
    from saros.lab.report import print_bench

    with progress("measuring"):
        rows = run_core(quick=quick, only=only)
    if as_json:
        typer.echo(json.dumps({"rows": [row._asdict() for row in rows]}))
    else:
        print_bench(rows)


@bench_app.command()
def serve(
    only: Annotated[Literal["topk", "growth"] | None, typer.Option(help="One group of measurements.")] = None,
    quick: _Quick = False,
    as_json: Json = False,
) -> None:
    """Measure exact top-K in one thread, beside faiss, implicit and numpy, and how its cost and memory grow.

    Ratios are taken side by side in one run. Peers that are not installed are named; `make bench` installs them.

    Examples:

      saros bench serve

      saros bench serve --only topk --json | jq '.rows[] | select(.goal)'
    """
    from saros.lab.bench.serve import run_serve
    from saros.lab.report import print_bench

    with progress("measuring"):
        rows = run_serve(quick=quick, only=only)
    if as_json:
        typer.echo(json.dumps({"rows": [row._asdict() for row in rows]}))
    else:
        print_bench(rows)
