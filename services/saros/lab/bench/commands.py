"""The benches: `saros bench core`, `serve`, `ingest` and `train`."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saros.console import Json, progress
from saros.lab.topics import cluster_of
from saros.settings import Settings, load

if TYPE_CHECKING:
    from saros.adapters.redis import Address
    from saros.lab.bench.measure import Row


app = typer.Typer(help="Measure speed, side by side with others.")
_Quick = Annotated[bool, typer.Option("--quick", help="A few seconds, to see that all runs: no numbers to rely on.")]


@app.command()
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

    with progress("measuring"):
        rows = run_core(quick=quick, only=only)
    _tell(rows, as_json=as_json)


@app.command()
def serve(
    only: Annotated[
        Literal["topk", "growth", "boot", "requests", "servable"] | None,
        typer.Option(help="One group of measurements."),
    ] = None,
    quick: _Quick = False,
    as_json: Json = False,
) -> None:
    """Measure exact top-K in one thread, beside faiss, implicit and numpy, and how its cost and memory grow; how an
    API boots; requests to it, beside a raw ASGI app and plain FastAPI; and how soon an event is served.

    Ratios are taken side by side in one run. Peers that are not installed are named; `make bench` installs them. The
    groups `boot`, `requests` and `servable` need a broker in SAROS_KAFKA__BOOTSTRAP, a real one, and are left out
    without; `make bench` starts one. The store is that of SAROS_REDIS__URL, or an embedded one. Topics and keys are
    made and removed.

    Examples:

      saros bench serve

      saros bench serve --only topk --json | jq '.rows[] | select(.goal)'
    """
    from saros.lab.bench.serve import LIVE, Live, run_serve

    settings = load()
    with ExitStack() as stack:
        live = None
        if only in LIVE or (only is None and settings.kafka.bootstrap):
            live = Live(cluster_of(settings), stack.enter_context(_store(settings)))
        with progress("measuring"):
            rows = run_serve(quick=quick, only=only, live=live)
    _tell(rows, as_json=as_json)


@app.command()
def ingest(
    quick: _Quick = False,
    as_json: Json = False,
) -> None:
    """Measure what comes in through Kafka: from consuming to the step, beside consuming alone and the usual Python way.

    Needs a broker in SAROS_KAFKA__BOOTSTRAP, a real one; `make bench` starts one. Its topics are made and deleted.

    Example:

      saros bench ingest --json | jq '.rows[] | select(.goal)'
    """
    from saros.lab.bench.ingest import run_ingest

    cluster = cluster_of(load())
    with progress("measuring"):
        rows = run_ingest(cluster, quick=quick)
    _tell(rows, as_json=as_json)


@app.command()
def train(
    only: Annotated[
        Literal["speed", "redo", "growth", "repair"] | None, typer.Option(help="One group of measurements.")
    ] = None,
    quick: _Quick = False,
    as_json: Json = False,
) -> None:
    """Measure the trainer: a backlog on Kafka, learned into Redis, beside its sinks off, consuming alone, and the usual
    Python way; what the log takes; recoveries; growth.

    Needs a broker in SAROS_KAFKA__BOOTSTRAP, a real one; `make bench` starts one. The store is that of
    SAROS_REDIS__URL, or an embedded one. Topics and keys are made and removed.

    Example:

      saros bench train --only speed --json | jq '.rows[] | select(.goal)'
    """
    from saros.lab.bench.train import run_train

    settings = load()
    cluster = cluster_of(settings)
    with _store(settings) as address, progress("measuring"):
        rows = run_train(cluster, address, quick=quick, only=only)
    _tell(rows, as_json=as_json)


@contextmanager
def _store(settings: Settings) -> "Iterator[Address]":
    """Yield the store that is set, or an embedded one."""
    from saros.adapters.redis import Address, EmbeddedStore

    address = settings.redis.address()
    if address.url:
        yield address
        return
    with tempfile.TemporaryDirectory() as scratch, EmbeddedStore(Path(scratch)) as store:
        yield Address(store.address)


def _tell(rows: "Sequence[Row]", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"rows": [row._asdict() for row in rows]}))
    else:
        from saros.lab.report import print_bench

        print_bench(rows)
