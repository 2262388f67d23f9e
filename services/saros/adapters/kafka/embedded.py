"""The embedded broker."""

from confluent_kafka import Producer

EMBEDDED_PARTITIONS = 4
EMBEDDED_LIMITS = "4 partitions, about 5 MB of each kept in memory, nothing survives the process, no transactions"


class EmbeddedBroker:
    """librdkafka's in-process cluster on a port of this machine, for as long as this object is open.

    It speaks Kafka's protocol, so any client may use it. Topics come into being when somebody first writes to them.
    Exactly once is promised on a real broker only.
    """

    def __init__(self, timeout_s: float = 10.0) -> None:
        self._client: Producer | None = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._client.list_topics(timeout=timeout_s).brokers.values()
        self.address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def close(self) -> None:
        """End the broker and all it holds."""
        self._client = None
