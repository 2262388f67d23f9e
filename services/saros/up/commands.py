"""The command `saros up`."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saros.console import complain
from saros.errors import InputError
from saros.settings import Settings, load

if TYPE_CHECKING:
    from saros.up.plan import Plan

app = typer.Typer()


@app.command()
def up(
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of API and page. Without it 8000, or the next that is free."),
    ] = None,
    data_dir: Annotated[
        Path, typer.Option(file_okay=False, help="Where the embedded store and the logs are kept.")
    ] = Path(".saros"),
    traffic: Annotated[bool, typer.Option("--traffic/--no-traffic", help="Simulate people, or leave that out.")] = True,
    users: Annotated[int, typer.Option(min=1, max=100_000, help="People who are there at a time.")] = 300,
    items: Annotated[int, typer.Option(min=20, max=10_000, help="Films that they are shown.")] = 500,
    rate: Annotated[float, typer.Option(min=1, max=100_000, help="Events a second.")] = 200,
    bots: Annotated[int, typer.Option(min=0, max=1000, help="Bots that promote poor films.")] = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of people and films.")] = 0,
) -> None:
    """Run all of it: broker, store, trainer, API with its page, and simulated people. Ctrl-C ends it.

    What is configured is used (SAROS_KAFKA__BOOTSTRAP, SAROS_REDIS__URL), what is not is started: an embedded broker,
    and an embedded store whose data stays in the data directory. The broker has its log in memory, so the next start
    gives the model of the store a new one. All children write their logs to files there. The first start compiles the
    kernels, which takes a minute or two; the page is there before.

    Where standard output is no terminal it has one line, SAROS_UP_URL=…, as soon as the API is ready.

    Examples:

      saros up

      saros up --port 9000 --bots 5 --rate 500

      SAROS_KAFKA__BOOTSTRAP=localhost:9092 SAROS_REDIS__URL=redis://localhost:6379 saros up --no-traffic
    """
    settings = load()
    if traffic and not settings.kafka.bootstrap:
        check_rate(rate)
    options = {"users": users, "items": items, "rate": f"{rate:g}", "bots": bots, "seed": seed}
    words = tuple(word for name, value in options.items() for word in (f"--{name}", str(value)))
    plan = plan_of(settings, data_dir, port, words if traffic else ())
    from saros.up.run import DiedError, Up
    from saros.up.screen import new_screen

    screen = new_screen()
    try:
        Up(plan, screen).run()
    except DiedError as error:
        screen.close()
        for line in error.words.splitlines():
            typer.echo(line, err=True)
        raise
    finally:
        screen.close()
    complain("all has ended")


def check_rate(rate: float) -> None:
    """Raise where people would send more than the embedded broker has memory for."""
    from saros.up.plan import EMBEDDED_RATE_MAX

    if rate > EMBEDDED_RATE_MAX:
        raise InputError(
            f"--rate {rate:g} is above {EMBEDDED_RATE_MAX}, the most that the embedded broker's memory covers for 10 s",
            "give less, or a broker of your own by SAROS_KAFKA__BOOTSTRAP",
        )


def plan_of(settings: Settings, data_dir: Path, port: int | None, traffic: tuple[str, ...]) -> "Plan":
    """Return what settings and options tell."""
    from saros.up.plan import Plan

    api, redis = settings.api, settings.redis
    for name in ("username", "password", "ca_file", "cert_file", "key_file"):
        if getattr(redis, name) and not redis.url:
            variable = f"SAROS_REDIS__{name.upper()}"
            raise InputError(f"{variable} is set, and SAROS_REDIS__URL is not", f"set that too, or unset {variable}")
    return Plan(
        data_dir=data_dir,
        environ=dict(os.environ),
        model=settings.model.name,
        items_max=settings.model.items_max,
        bootstrap=settings.kafka.bootstrap,
        options=json.loads(settings.kafka.options.get_secret_value()),
        store=settings.redis.address(),
        host=api.host,
        port=port or api.port,
        port_given=port is not None or "port" in api.model_fields_set,
        asks_for_keys=bool(api.keys.get_secret_value() or api.keys_file),
        metrics_port=settings.trainer.metrics_port,
        traffic=traffic,
    )
