"""How long an API takes to load a catalogue from the store's shards, by its items, and the memory that it has then.

The shards are a trainer's: every item was learned in one block. Read is what the API says when it has loaded them.
"""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from saros.adapters.kafka import Admin, Cluster, Writer
from saros.adapters.names import EVENTS_SETTINGS, topics_of
from saros.adapters.redis import Address
from saros.children import SAROS
from saros.core.events import CLICK, IMPRESSION
from saros.lab.bench.measure import Row, row
from saros.lab.bench.stage import asked, port_of
from saros.lab.bench.train import DIM, PARTITIONS
from saros.lab.bench.trainers import Trainers, await_until
from saros.wire.encode import event_of, message_of
from saros.wire.partitions import partitions_of

_ITEMS, _QUICK_ITEMS = (100_000, 1_000_000), (500, 1_000)
_SLATE = 50  # items of a block
_LOADED = re.compile(r"catalogue was loaded (.*)")
_END_S = 30


def boot_lines(cluster: Cluster, store: Address, *, quick: bool) -> Iterator[Row]:
    """Seconds and megabytes, for each size of a catalogue."""
    for count in _QUICK_ITEMS if quick else _ITEMS:
        with Trainers(cluster, store, DIM, PARTITIONS) as trainers:
            model = f"bench-{uuid4().hex[:8]}"
            try:
                _show(cluster, model, count)
                trainers.learn(model)
                told = _booted(trainers, model)
            finally:
                trainers.remove(model)
        size = f"{told['items']:,.0f} items × {DIM}"
        yield row(f"boot, {size}", "s", told["seconds"], note="shards to catalogue; kernels were there")
        yield row(f"table and catalogue, {size}", "MB", told["catalogue_mb"])
        yield row(
            f"the process, {size}", "MB", told["process_mb"], note="the most it had, Python and all libraries too"
        )


def _show(cluster: Cluster, model: str, count: int) -> None:
    """Send visits, each of another user to other items."""
    topic, writer = topics_of(model).events, Writer(cluster, linger_ms=20)
    Admin(cluster).ensure(topic, PARTITIONS, 0, EVENTS_SETTINGS)
    users = [f"user-{k}" for k in range(count // _SLATE)]
    for k, (user, home) in enumerate(zip(users, partitions_of(users, PARTITIONS).tolist(), strict=True)):
        slate = [f"item-{n}" for n in range(k * _SLATE, (k + 1) * _SLATE)]
        events = [event_of(user, IMPRESSION, slate, 0), event_of(user, CLICK, slate[-1:], 0)]
        writer.send(topic, home, message_of(events))
    writer.flush(120)


def _booted(trainers: Trainers, model: str) -> dict[str, float]:
    """Start an API until it is ready; return what it said of its catalogue."""
    settings = {"SAROS_API__HOST": "127.0.0.1", "SAROS_API__PORT": "0"}
    api = trainers.launch([*SAROS, "api"], SAROS_MODEL__NAME=model, **settings)
    port = port_of(api)
    await_until(lambda: asked(port, "GET", "/readyz")[0] == 200)
    api.send_signal(signal.SIGTERM)
    api.wait(_END_S)
    told = _LOADED.search(Path(str(api.args)).read_text(errors="replace"))
    assert told is not None, "it was ready"
    return {name: float(value) for name, value in (part.split("=") for part in told[1].split())}
