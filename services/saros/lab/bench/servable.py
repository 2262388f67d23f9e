"""From an event that was acknowledged until it is in what is served, while other events come in at a rate.

The whole way, as a caller sees it: `POST /v1/events`, and from its 202 on the time until a GET with the token of it
answers that the model has learned from it.
"""

import http.client
import math
import random
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from saros.adapters.kafka import Cluster, Writer
from saros.adapters.names import topics_of
from saros.core.events import CLICK, IMPRESSION
from saros.errors import SarosError
from saros.lab.bench.measure import Row, row
from saros.lab.bench.stage import Stage, Traffic, asked
from saros.lab.bench.train import PARTITIONS
from saros.lab.bench.trainers import await_until
from saros.wire.encode import event_of
from saros.wire.partitions import partitions_of

SERVABLE_MS = 250.0
_RATES, _QUICK_RATES = (1_000, 10_000), (100, 500)
_CALLERS = 4
_WAIT_MS = 5_000
_PAUSE_S = 0.05  # between two tries, at most: at random, so that they meet the trainer anywhere in its turn
_LAST_S = 60  # no try begins later
_SETTLE_S = 3.0
_SLATE = 20
_SLICES = re.compile(r'^saros_api_slice_seconds_bucket\{le="(\S+)"\} (\S+)', re.MULTILINE)


def servable_lines(cluster: Cluster, stage: Stage, *, quick: bool) -> Iterator[Row]:
    """Milliseconds at each rate."""
    tries, settle_s = (5, 0.5) if quick else (200, _SETTLE_S)
    for rate in _QUICK_RATES if quick else _RATES:
        with Traffic(cluster, stage, rate, 5 if quick else 40), ThreadPoolExecutor(_CALLERS) as pool:
            time.sleep(settle_s)
            before_s, before = time.monotonic(), _events(stage)
            callers = [pool.submit(_tried, stage.port, f"{rate}-{k}", tries) for k in range(_CALLERS)]
            took_ms = [ms for caller in callers for ms in caller.result()]
            came = (_events(stage) - before) / (time.monotonic() - before_s)
        p50, p99 = np.percentile(took_ms, [50, 99]).tolist()
        name = f"event to servable, {rate:,} events/s"
        note = f"{len(took_ms):,} events, from the 202 of POST /v1/events until a GET with its token has it"
        yield row(f"{name}, p50", "ms", p50, note=note)
        yield row(f"{name}, p99", "ms", p99, against=f"{SERVABLE_MS:g} ms", peer=SERVABLE_MS, ratio=p99 / SERVABLE_MS,
                  better="lower", goal=1.0, note=note)  # fmt: skip
        yield row(f"{name}: came in", "events/s", came)


def slice_lines(cluster: Cluster, stage: Stage, *, quick: bool) -> Iterator[Row]:
    """How long queries wait for updates where thousands of items come at once that nobody has seen before."""
    visits, before = (20 if quick else 1000), _slices(stage)
    names = [f"newcomer-{k}" for k in range(visits)]
    homes, writer, topic = partitions_of(names, PARTITIONS).tolist(), Writer(cluster), topics_of(stage.model).events
    learned = _events(stage)
    for k, (name, home) in enumerate(zip(names, homes, strict=True)):
        slate = [f"new-{k}-{n}" for n in range(_SLATE)]
        for event in (event_of(name, IMPRESSION, slate, 0), event_of(name, CLICK, slate[-1:], 0)):
            writer.send(topic, home, event.SerializeToString())
    writer.flush()
    await_until(lambda: _events(stage) >= learned + 2 * visits)
    after = _slices(stage)
    counts = {bound: count - before.get(bound, 0.0) for bound, count in after.items()}
    total = counts[math.inf]
    note = f"{int(total)} slices, in which {visits * _SLATE:,} new items came; from saros_api_slice_seconds"
    yield row("slices of updates of up to 1 ms", "%", 100 * counts[0.001] / total, note=note)
    longest = min(bound for bound, count in counts.items() if count == total)
    yield row("the longest slice of updates, at most", "ms", 1e3 * longest, note=note)


def _slices(stage: Stage) -> dict[float, float]:
    """Return how many slices took no longer than each bound."""
    return {float(bound): float(count) for bound, count in _SLICES.findall(asked(stage.port, "GET", "/metrics")[1])}


def _events(stage: Stage) -> int:
    """Return how many events the API has followed, one in a message."""
    return int(sum(asked(stage.port, "GET", "/v1/stats")[1]["next"]))


def _tried(port: int, caller: str, tries: int) -> list[float]:
    """Send a visit, wait for it, and so on; return the milliseconds of each."""
    rng, took_ms, last_s = random.Random(caller), list[float](), time.monotonic() + _LAST_S
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT_MS / 1000 + 10)
    for k in range(tries):
        if time.monotonic() > last_s:
            break
        user, item = f"caller-{caller}-{k}", f"item-{k}"
        visit = [{"kind": "impression", "user": user, "items": [item, f"other-{item}"]},
                 {"kind": "click", "user": user, "item": item}]  # fmt: skip
        status, told = asked(port, "POST", "/v1/events", visit, connection)
        start = time.perf_counter()
        if status != 202:
            raise SarosError(f"POST /v1/events answered {status}: {told}")
        path = f"/v1/users/{user}/recommendations?min_token={told['token']}&wait_ms={_WAIT_MS}"
        status, answer = asked(port, "GET", path, None, connection)
        took_ms.append(1e3 * (time.perf_counter() - start))
        if status != 200 or not answer["token_reached"]:
            raise SarosError(f"an event was not served within {_WAIT_MS} ms: {status}, {answer}")
        time.sleep(rng.random() * _PAUSE_S)
    connection.close()
    return took_ms
