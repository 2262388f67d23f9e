"""A pulse, put together: what the records have said, and how the model stands at this moment."""

import time
from typing import Protocol

import saros
from saros.api.desk import SLICE_S, give_way
from saros.api.gates import Crowd, Gates
from saros.api.plan import ApiPlan
from saros.api.pulse import Pulse
from saros.api.world import World

_TOP = 10  # items


class Watched(Protocol):
    """What is asked of a model."""

    @property
    def world(self) -> World | None:
        """What answers come from; None before the first boot."""

    def why_not_ready(self) -> list[str]:
        """Return what is in the way of good answers."""

    def is_stale(self, world: World) -> bool:
        """True if answers may be older than the log."""

    def popular(self, k: int, category: str = "") -> list[tuple[str, float]]:
        """Return what is liked of late."""


async def pulse_of(pulse: Pulse, plan: ApiPlan, model: Watched) -> dict[str, object]:
    """Return how a model stands. Before there is one, what is not known is null, and the gate is that of the plan."""
    world, begun_s, crowd = model.world, time.perf_counter(), Crowd()
    gates = world.gates if world is not None else Gates(1, plan.gate)
    for _ in gates.crowds(crowd):  # there may be a thousand partitions, and queries wait
        if time.perf_counter() - begun_s > SLICE_S:
            begun_s = await give_way(begun_s)
    told, reasons = pulse.told(), model.why_not_ready()
    return {
        "time": pulse.time,
        "model": plan.model,
        "version": saros.__version__,
        "ready": not reasons,
        "why_not_ready": reasons,
        "stale": world is not None and model.is_stale(world),
        "uptime_s": pulse.uptime_s,
        # Only the embedded broker has topics without ids.
        "embedded": world is not None and not world.replica.genesis.redo_topic_id,
        "events": told["events"],
        "lag": {
            "messages": world.lag_messages() if world is not None else None,
            "seconds": round(world.lag_s(), 3) if world is not None else None,
        },
        "servable_ms": told["servable_ms"],
        "learning": told["learning"],
        "scenarios": told["scenarios"],
        "gate": {**gates.pictured(), **crowd.told(), **pulse.gate_work()},
        "dead": told["dead"],
        "items": world.replica.items.table.size if world is not None else None,
        "users_in_memory": world.people.size if world is not None else None,
        "top": [{"item_id": item, "rate": rate} for item, rate in model.popular(_TOP)],
    }
