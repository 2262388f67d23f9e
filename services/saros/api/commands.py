"""The command `saros api`."""

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import saros
from saros.errors import InputError
from saros.settings import Settings, load

if TYPE_CHECKING:
    from saros.api.guard import Guard
    from saros.api.limits import Limits
    from saros.api.plan import ApiPlan

app = typer.Typer()


def plan_of(settings: Settings) -> "ApiPlan":
    """Return what the settings tell the model side."""
    from saros.api.plan import ApiPlan

    for name, value in (("SAROS_KAFKA__BOOTSTRAP", settings.kafka.bootstrap), ("SAROS_REDIS__URL", settings.redis.url)):
        if not value:
            raise InputError(f"{name} is not set", "give an address")
    if settings.gate.mode == "session":  # no trainer runs it, so it would be told of a gate that there is not
        raise InputError("SAROS_GATE__MODE=session is not there yet", "set it to immediate or shadow")
    return ApiPlan(
        model=settings.model.name,
        cluster=settings.kafka.cluster(),
        store=settings.redis.address(),
        items_max=settings.model.items_max,
        lag_max_s=settings.api.lag_max_s,
        cache_users=settings.api.cache_users,
        step=settings.step.rules(),
        session=settings.session.rules(),
        gate=settings.gate.rules(),
        scenarios=settings.model.scenario_names(),
    )


def limits_of(settings: Settings) -> "Limits":
    """Return what the settings tell of requests."""
    from saros.api.limits import Limits

    return Limits._make(getattr(settings.api, name) for name in Limits._fields)


def guard_of(settings: Settings) -> "Guard":
    """Return the guard with the keys that the settings tell of."""
    from saros.api.guard import Guard
    from saros.api.keys import read_entries

    entries = settings.api.keys.get_secret_value().split()
    fixed = read_entries((f"entry {number} of SAROS_API__KEYS", entry) for number, entry in enumerate(entries, 1))
    file = Path(settings.api.keys_file) if settings.api.keys_file else None
    return Guard(fixed, file, metrics_open=settings.api.metrics_open)


def check_host(settings: Settings, *, asked: bool) -> bool:
    """Return whether only this machine reaches the API; refuse to be open to others unless keys are asked for."""
    host = settings.api.host
    try:
        alone = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise InputError(f"SAROS_API__HOST={host} is no address", "give one such as 127.0.0.1, or localhost") from None
    if not (alone or asked or settings.api.allow_open):
        raise InputError(
            f"SAROS_API__HOST={host} can be reached from other machines, and nobody is asked for a key",
            "give keys in SAROS_API__KEYS or SAROS_API__KEYS_FILE (`saros key new` makes one), keep 127.0.0.1, or set "
            "SAROS_API__ALLOW_OPEN=true where something else keeps strangers out",
        )
    return alone


@app.command()
def api() -> None:
    """Serve recommendations and take events, over HTTP.

    One process, which holds all items in memory and follows the model as it learns; start as many as you need. SIGTERM
    finishes the requests in work; a second one ends at once. Its documentation is at /docs.

    With keys (SAROS_API__KEYS or SAROS_API__KEYS_FILE) callers need one in X-API-Key; without, it listens only where
    nobody but this machine reaches it. `saros key new` makes one.

    Example:

      SAROS_KAFKA__BOOTSTRAP=localhost:9092 SAROS_REDIS__URL=redis://localhost:6379 saros api
    """
    settings = load()
    plan, limits, guard = plan_of(settings), limits_of(settings), guard_of(settings)
    alone = check_host(settings, asked=guard.asks)
    from saros.adapters.kafka import Sender
    from saros.adapters.names import topics_of
    from saros.api.access import AccessLog
    from saros.api.app import App
    from saros.api.model import Model
    from saros.api.room import Room
    from saros.api.server import freeze, listening, new_server, serve
    from saros.api.service import Service
    from saros.telemetry import BUILD, log, log_to_stderr

    log_to_stderr(settings.log.format)
    listener = listening(settings.api.host, settings.api.port)
    BUILD.info({"version": saros.__version__, "model": plan.model})
    sender = Sender(
        plan.cluster,
        ack_timeout_s=settings.api.ack_timeout_s,
        messages_max=settings.api.queue_max_messages,
        bytes_max=settings.api.queue_max_mb * 2**20,
    )
    room = Room(limits)
    service = Service(Model(plan, room.wait), sender, topics_of(plan.model).events, limits, room)
    failures: list[BaseException] = []

    def ready(failure: BaseException | None) -> None:
        if failure is None:
            freeze()
            return
        failures.append(failure)
        server.should_exit = True

    serving = App(service, ready, guard, AccessLog(settings.api.access_log_share))
    server = new_server(serving, settings.api.header_max_bytes, settings.api.header_timeout_s, service.end)
    reachable = "from this machine only" if alone else "from other machines, too"
    if guard.asks:
        log("everybody is asked for a key", keys=guard.keys, reachable=reachable)
    else:
        log("nobody is asked for a key", reachable=reachable)
    serve(server, listener)
    log("api has stopped", model=plan.model)
    if failures:
        raise failures[0]
