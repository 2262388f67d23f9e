"""The command `saros simulate`."""

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saros.errors import InputError
from saros.lab.topics import cluster_of
from saros.settings import Settings, load

if TYPE_CHECKING:
    from saros.lab.reporting import Report
    from saros.lab.simulate import Traffic
    from saros.lab.straight import Straight

app = typer.Typer()


@app.command()
def simulate(
    api: Annotated[str, typer.Option(metavar="URL", help="Where the API is.")] = "http://127.0.0.1:8000",
    through: Annotated[
        Literal["api", "kafka"], typer.Option(help="How events are sent; recommendations always come from the API.")
    ] = "api",
    users: Annotated[int, typer.Option(min=1, max=100_000, help="People that are there at a time.")] = 300,
    items: Annotated[int, typer.Option(min=20, max=10_000, help="Films that there are.")] = 500,
    rate: Annotated[float, typer.Option(min=1, max=100_000, help="Events a second, of people and bots.")] = 200,
    bots: Annotated[int, typer.Option(min=0, max=1000, help="Bots that promote films which nobody likes.")] = 0,
    control: Annotated[
        float, typer.Option(min=0, max=1, help="Share of slates that are drawn at random, to compare with.")
    ] = 0.3,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of films, people and their choices.")] = 0,
    seconds: Annotated[float, typer.Option(min=0, max=1e9, help="How long; 0 = until it is interrupted.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only how it stands at the end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON each second and nothing else.")] = False,
) -> None:
    """Let simulated people be shown slates and click, at a service that runs, and see whether it learns to please them.

    People have tastes and films have genres and a quality, of which the service is told nothing. Slates are the API's
    own recommendations (arm `model`) or, with probability --control, drawn at random (arm `random`); both arms have the
    same people. A rate is clicks over films shown; `lift` is how much higher it is with the model, and `at least` the
    lower end of its 95 % interval: above 0, the model has learned. With --bots, the share of promoted films in the
    model's slates shows what bots reach, until the gate takes back what they taught.

    People leave after up to 45 slates, below the B of an unchanged gate, and others come. Where keys are asked for,
    SAROS_CLIENT__KEY is one with the scope admin, as films are told of, too; --through kafka uses SAROS_KAFKA__*.

    Examples:

      saros simulate

      saros simulate --users 1000 --items 2000 --rate 1000 --bots 10

      saros simulate --seconds 60 --seed 7 --json | jq -c '[.seconds, .lift, .lift_low95]'

      SAROS_KAFKA__BOOTSTRAP=localhost:9092 saros simulate --through kafka --rate 3000
    """
    if not api.startswith(("http://", "https://")):
        raise InputError(f"--api {api} is no URL", "give one such as http://127.0.0.1:8000")
    settings = load()
    from saros.lab.reporting import report_to
    from saros.lab.simulate import Traffic

    straight = _straight(settings) if through == "kafka" else None
    traffic = Traffic(users, items, rate, bots, control, seed)
    key = settings.client.key.get_secret_value() or None
    with report_to(traffic, api, quiet=quiet, as_json=as_json) as report:
        asyncio.run(_simulate(api, key, traffic, seconds, straight, report))


def _straight(settings: Settings) -> "Straight":
    """Return the way to Kafka that the settings name; the topic is made where it is missing and that is allowed."""
    from saros.adapters.kafka import Admin, Writer
    from saros.adapters.names import EVENTS_SETTINGS, topics_of
    from saros.lab.straight import Straight

    cluster, kafka = cluster_of(settings), settings.kafka
    name = topics_of(settings.model.name).events
    topic = Admin(cluster).ensure(
        name, kafka.partitions, kafka.replication, EVENTS_SETTINGS, create=kafka.create_topics
    )
    return Straight(Writer(cluster), name, topic.partitions)


async def _simulate(
    api: str, key: str | None, traffic: "Traffic", seconds: float, straight: "Straight | None", report: "Report"
) -> None:
    """Run a simulation until its time is over, or a signal ends it."""
    from saros.client import AsyncClient, Retries
    from saros.lab.simulate import Simulation, watch
    from saros.lab.sinks import ThroughApi, ThroughKafka

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with AsyncClient(api, key=key, retries=Retries(times=2, most_s=1.0)) as client:
        sink = ThroughApi(client) if straight is None else ThroughKafka(straight.send)
        await watch(Simulation(client, sink, traffic), seconds, stop, report)
