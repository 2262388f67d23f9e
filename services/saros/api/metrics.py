"""What the API counts of its requests.

Requests are counted in plain numbers by the one thread that serves them, and made into metrics when somebody asks: a
library's counters with their locks would cost a tenth of the hot route.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from prometheus_client import Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

SHED = Counter("saros_api_shed", "Requests that were sent away, because too many were in work.")
BUSY = Gauge("saros_api_requests_in_work", "Requests in work, streams and those that wait for a token apart.")
WAITING = Gauge("saros_api_requests_waiting", "Requests that wait for their token.")
STREAMS = Gauge("saros_api_streams", "Streams of /v1/live that are open.")
ACCEPTED = Counter("saros_api_events_accepted", "Events that Kafka acknowledged.")
REJECTED = Counter("saros_api_events_rejected", "Events that were refused.", ["reason"])
UNACKNOWLEDGED = Counter("saros_api_events_unacknowledged", "Good events that Kafka did not acknowledge in time.")
QUEUE_MESSAGES = Gauge("saros_api_producer_queue_messages", "Messages that wait for Kafka's acknowledgement.")
QUEUE_BYTES = Gauge("saros_api_producer_queue_bytes", "Bytes that wait for Kafka's acknowledgement.")
READY = Gauge("saros_api_ready", "1: ready, as /readyz says.")


class Requests(Collector):
    """Requests by route, method and status; and how long they took, by route."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._times: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(_BOUNDS) + 1))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def note(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._counts[route, method, status] += 1
        self._times[route][bisect_left(_BOUNDS, seconds)] += 1
        self._sums[route] += seconds

    def collect(self) -> Iterable[CounterMetricFamily | HistogramMetricFamily]:
        """Return all that was counted, as metrics."""
        counts = CounterMetricFamily("saros_api_requests", "Requests answered.", labels=["route", "method", "status"])
        for (route, method, status), count in list(self._counts.items()):
            counts.add_metric([route, method, str(status)], count)
        yield counts
        times = HistogramMetricFamily("saros_api_request_seconds", "Time from request to answer.", labels=["route"])
        for route, numbers in list(self._times.items()):
            total, buckets = 0, []
            for bound, number in zip((*map(str, _BOUNDS), "+Inf"), numbers, strict=True):
                total += number
                buckets.append((bound, total))
            times.add_metric([route], buckets, self._sums[route])
        yield times


def exposed(requests: Requests) -> bytes:
    """Return all metrics of this process, with the requests of one app, as Prometheus reads them."""
    own = CollectorRegistry()
    own.register(requests)
    return generate_latest(REGISTRY) + generate_latest(own)
