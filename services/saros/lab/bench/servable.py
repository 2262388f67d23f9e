"""From an event that was acknowledged until it is in what is served, while other events come in at a rate.

The whole way, as a caller sees it: `POST /v1/events`, and from its 202 on the time until a GET with the token of it
answers that the model has learned from it.
"""

import http.client
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from saros.adapters.kafka import Cluster
from saros.errors import SarosError
from saros.lab.bench.measure import Row, row
from saros.lab.bench.stage import Stage, Traffic, asked

SERVABLE_MS = 250.0
_RATES, _QUICK_RATES = (1_000, 10_000), (100, 500)
_CALLERS = 4
_WAIT_MS = 5_000
_PAUSE_S = 0.05  # between two tries, at most: at random, so that they meet the trainer anywhere in its turn
_LAST_S = 60  # no try begins later
_SETTLE_S = 3.0


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
