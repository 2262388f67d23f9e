"""Kafka: the one place that imports its client."""

from saros.adapters.kafka.admin import Admin, Copies, Topic
from saros.adapters.kafka.checks import check_log, check_times, check_topic
from saros.adapters.kafka.cluster import Cluster
from saros.adapters.kafka.embedded import EMBEDDED_LIMITS, EMBEDDED_PARTITIONS, EmbeddedBroker
from saros.adapters.kafka.reader import LostPlaceError, Place, Polled, Reader, Received
from saros.adapters.kafka.sender import Sender
from saros.adapters.kafka.writer import Headers, TooLargeError, Writer

__all__ = [
    "EMBEDDED_LIMITS",
    "EMBEDDED_PARTITIONS",
    "Admin",
    "Cluster",
    "Copies",
    "EmbeddedBroker",
    "Headers",
    "LostPlaceError",
    "Place",
    "Polled",
    "Reader",
    "Received",
    "Sender",
    "TooLargeError",
    "Topic",
    "Writer",
    "check_log",
    "check_times",
    "check_topic",
]
