"""What librdkafka says of itself, as metrics."""

import json
from typing import Any

from saros.telemetry import KAFKA_LAG, KAFKA_QUEUED, KAFKA_REBALANCES, KAFKA_ROUND_TRIP


def observe(text: str) -> None:
    """Take one report of a client, a JSON object, into the metrics."""
    report = json.loads(text)
    client = report["type"]
    KAFKA_QUEUED.labels(client).set(report["msg_cnt"] if client == "producer" else report["replyq"])
    for broker in report["brokers"].values():
        if broker["nodeid"] >= 0 and broker["rtt"]["cnt"]:
            KAFKA_ROUND_TRIP.labels(client, str(broker["nodeid"])).set(broker["rtt"]["p99"] / 1e6)
    if "cgrp" in report:
        KAFKA_REBALANCES.set(report["cgrp"]["rebalance_cnt"])
    if client == "consumer":
        _observe_lag(report["topics"])


def _observe_lag(topics: dict[str, Any]) -> None:
    for name, topic in topics.items():
        for number, partition in topic["partitions"].items():
            if partition["fetch_state"] == "active":
                KAFKA_LAG.labels(name, number).set(max(0, partition["consumer_lag"]))
            elif number != "-1":
                KAFKA_LAG.remove(name, number)  # somebody else reads it now
