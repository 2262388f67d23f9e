"""The trainer's commands."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

import saros
from saros.console import Json, progress
from saros.errors import InputError
from saros.settings import Settings, load

if TYPE_CHECKING:
    from saros.trainer.plan import Plan

app = typer.Typer()
user_app = typer.Typer(help="Look at a user, or have it forgotten.", no_args_is_help=True)
app.add_typer(user_app, name="user")


def plan_of(settings: Settings) -> "Plan":
    """Return what the settings tell a trainer."""
    from saros.core.rows import live_rows, paper_rows
    from saros.trainer.plan import LoopRules, Plan

    for name, value in (("SAROS_KAFKA__BOOTSTRAP", settings.kafka.bootstrap), ("SAROS_REDIS__URL", settings.redis.url)):
        if not value:
            raise InputError(f"{name} is not set", "give an address")
    rows = (live_rows if settings.step.kind == "live" else paper_rows)(settings.model.dim, settings.model.seed)
    return Plan(
        model=settings.model.name,
        cluster=settings.kafka.cluster(),
        partitions=settings.kafka.partitions,
        replication=settings.kafka.replication,
        create_topics=settings.kafka.create_topics,
        store=settings.redis.address(),
        rows=rows,
        step=settings.step.rules(),
        session=settings.session.rules(),
        gate=settings.gate.rules(),
        items_max=settings.model.items_max,
        users_max=settings.model.users_max,
        memory_bytes=settings.trainer.memory_mb * 2**20,
        latest=settings.trainer.start == "latest",
        instance=settings.trainer.instance,
        rules=LoopRules(
            poll_messages=settings.trainer.poll_messages,
            user_ttl_s=2 * settings.session.user_ttl_s,
            stop_at_gap=settings.kafka.stop_at_gap,
            record_bytes=settings.trainer.record_kb * 1024,
            shards_every_s=settings.trainer.shards_every_ms / 1000,
            scenarios=settings.model.scenario_names(),
        ),
    )


@app.command()
def trainer(
    until_drained: Annotated[
        bool,
        typer.Option("--until-drained", help="Stop when the events that are there now are learned, and in the store."),
    ] = False,
    accept_expired: Annotated[
        bool, typer.Option("--accept-expired", help="Go on where the store may have let users go that still count.")
    ] = False,
) -> None:
    """Learn from the events on Kafka and keep the model in Redis.

    Any number of trainers share the partitions. SIGTERM finishes the batch in hand, writes everything and leaves the
    group; a second one ends at once, and nothing is lost.

    Example:

      SAROS_KAFKA__BOOTSTRAP=localhost:9092 SAROS_REDIS__URL=redis://localhost:6379 saros trainer
    """
    settings = load()
    plan = plan_of(settings)
    plan = plan._replace(rules=plan.rules._replace(accept_expired=accept_expired))
    from saros.kernels import warm
    from saros.telemetry import BUILD, log, log_to_stderr
    from saros.trainer.start import Service
    from saros.trainer.stop import Stop, StoppedError

    def go_on(done: int, what: str) -> None:
        if stop.asked:
            raise typer.Exit

    log_to_stderr(settings.log.format)
    stop = Stop()
    # Before the group is joined: whoever joins and then compiles keeps the others waiting.
    warm(go_on)
    if settings.trainer.metrics_port:
        from prometheus_client import disable_created_metrics, start_http_server

        disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series each: when it began
        BUILD.info({"version": saros.__version__, "model": plan.model})
        start_http_server(settings.trainer.metrics_port, settings.trainer.metrics_host)
    try:
        service = Service(plan, stop)
    except StoppedError:
        raise typer.Exit from None
    log("trainer was started", model=plan.model)
    try:
        service.run(until_drained=until_drained)
    except BaseException as error:
        service.give_up(error)
        raise
    log("trainer has stopped", model=plan.model)


@app.command()
def init() -> None:
    """Make the topics and the genesis of a model, which a trainer does too when it finds none."""
    plan = plan_of(load())
    from saros.adapters.redo import RedoLog
    from saros.trainer.start import ensure_genesis, ensure_topics, open_store

    events, redo_topic = ensure_topics(plan)
    redo = RedoLog(plan.cluster, redo_topic)
    genesis = ensure_genesis(plan, redo, events, redo_topic)
    open_store(plan, genesis).close()
    redo.close()
    typer.echo(
        f"model {plan.model}: {genesis.partitions} partitions, {genesis.shards} shards, rows of {genesis.rows.dim}"
    )


@app.command()
def rebase(as_json: Json = False) -> None:
    """Go on with what the store holds after the redo topic was lost.

    Rows, users and what waits in their ledgers are kept; a new log is begun, its topic made where it is missing; the
    events go on where the store's users stand. Trainers that still run stop by themselves. Where it was ended, run it
    again; where nothing is to be done, it does nothing.

    Where the store held items and users of different moments, what was added leaves the ledgers: what was taught until
    then can no longer be taken back.

    Example:

      saros rebase && saros trainer
    """
    settings = load()
    plan = plan_of(settings)
    from saros.telemetry import log_to_stderr
    from saros.trainer.rebase import rebased

    log_to_stderr(settings.log.format)
    with progress("rebasing"):
        found = rebased(plan)
    genesis = found.genesis
    if as_json:
        typer.echo(json.dumps({
            "model": plan.model, "log": f"{genesis.log_id:x}", "base": [f"{log_id:x}" for log_id in genesis.base],
            "shards": found.shards, "first": genesis.first, "clears": genesis.clears, "cleared": found.cleared,
            "notes": found.notes,
        }))  # fmt: skip
        return
    if not found.shards:
        typer.echo(f"model {plan.model}: nothing to do, all {genesis.shards} shards are on log {genesis.log_id:x}")
        return
    typer.echo(f"model {plan.model}: {found.shards} of {genesis.shards} shards were put on log {genesis.log_id:x}")
    typer.echo("  kept: rows of items, users, and the blocks that wait")
    if genesis.clears:
        typer.echo(
            f"  {found.cleared:,} blocks left the ledgers, as items and users were of different moments: what was "
            "taught until now can no longer be taken back"
        )
    else:
        typer.echo("  kept: ledgers; what was taught within the gate's window can still be taken back")
    places = ", ".join(f"{partition} at {first:,}" for partition, first in enumerate(genesis.first))
    typer.echo(f"  events go on in partition {places}")
    for note in found.notes:
        typer.echo(f"  {note}")


@app.command()
def audit(as_json: Json = False) -> None:
    """Compare the store with the logs, exactly: nothing may differ.

    The redo log is replayed and the events are counted again from the first one on; rows and names of items, users,
    ledgers and the state of each partition have to be those. SAROS_SESSION__… have to be as the model began. It may run
    beside trainers. Exits with 1 where something differs, and says what. Behind a `saros rebase` only users, ledgers
    and partitions can be compared, as far as the new log speaks of them. Where retention took events away they are not
    counted again, and it says so.

    Example:

      saros audit --json | jq .differences
    """
    plan = plan_of(load())
    from saros.trainer.audit import audited

    with progress("comparing"):
        found = audited(plan)
    if as_json:
        typer.echo(json.dumps(found._asdict()))
    else:
        typer.echo(
            f"{found.differences:,} differences in {found.users:,} users and {found.items:,} items, "
            f"after {found.events:,} events and {found.records:,} records"
        )
        for line in [*found.notes, *found.told]:
            typer.echo(f"  {line}")
    if found.differences:
        raise typer.Exit(1)


@app.command()
def status(as_json: Json = False) -> None:
    """Show how a model stands: who reads which partition, how far behind, how fast, and how far the store has come.

    It looks twice, a second apart: that is what the rates are taken over.

    Example:

      saros status --json | jq '[.partitions[].lag] | add'
    """
    plan = plan_of(load())
    from saros.trainer.status import status_of

    found = status_of(plan)
    if as_json:
        typer.echo(json.dumps({**found._asdict(), "partitions": [row._asdict() for row in found.partitions]}))
        return
    typer.echo(f"model {found.model}: {len(found.partitions)} partitions, {found.shards} shards, rows of {found.dim}")
    rows: list[tuple[str, ...]] = [
        (
            "partition",
            "next event",
            "end",
            "lag",
            "in/s",
            "learned/s",
            "store at record",
            "items at",
            "log ends",
            "owner",
        )
    ]
    rows += [
        tuple(str(value) for value in (
            row.partition, row.next, row.end, row.lag, f"{row.incoming_per_s:g}", f"{row.learned_per_s:g}",
            row.redo_offset, row.items_offset, row.redo_end, row.owner or "nobody",
        ))
        for row in found.partitions
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)) + f"  {row[-1]}")


_UserId = Annotated[str, typer.Argument(metavar="USER", help="The user's id, as events name it.")]


@user_app.command("show")
def show_user(user_id: _UserId, as_json: Json = False) -> None:
    """Show what the store knows of a user: its blocks, its place in the gate's band, its ledger.

    Example:

      saros user show ann --json | jq .band
    """
    plan = plan_of(load())
    from saros.trainer.people import find_person

    found = find_person(plan, user_id)
    if found is None:
        raise InputError(
            f"nothing is known of user {user_id!r}", "its events may still be on their way: `saros status`"
        )
    told = found._asdict() | {"left_out": found.left_out}
    if as_json:
        typer.echo(json.dumps(told))
    else:
        for name, value in told.items():
            typer.echo(f"{name:>14}  {value}")


@user_app.command("erase")
def erase_user(user_id: _UserId) -> None:
    """Have a user forgotten: row, state and ledger, and what it taught within the gate's window is taken back.

    It is an event like any other. What it taught before the window stays, as does what Kafka still holds.

    Example:

      saros user erase ann
    """
    plan = plan_of(load())
    from saros.trainer.people import erase_person

    erase_person(plan, user_id)
    typer.echo("the erasure was sent; it is done when the trainer has come to it")
