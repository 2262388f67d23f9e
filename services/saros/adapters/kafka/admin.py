"""Topics: what is there, and what is not yet."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from saros.adapters.kafka.cluster import Cluster, new_client, text_of
from saros.adapters.kafka.embedded import EMBEDDED_PARTITIONS
from saros.errors import BrokerError, InputError

# Below these a topic may lose what it acknowledged when a broker is lost.
REPLICAS_LEAST, IN_SYNC_LEAST = 3, 2
IN_SYNC = "min.insync.replicas"

_ROOM_S = 0.05


class Topic(NamedTuple):
    """A topic as it is."""

    name: str
    id: str  # empty where the broker has no ids
    partitions: int


class Copies(NamedTuple):
    """How many brokers have what a topic holds."""

    replicas: int  # of the partition that has the fewest
    in_sync: int | None  # that must have a message before it is acknowledged; None: the broker does not tell


class Admin:
    """Topics: what is there, and what is not yet."""

    def __init__(self, cluster: Cluster, timeout_s: float = 10.0) -> None:
        self._client: AdminClient = new_client(AdminClient, cluster.config())
        self._timeout_s = timeout_s

    def _there(self, name: str | None = None) -> ClusterMetadata:
        """Return what there is."""
        try:
            # All of them, unless it is to be made: a broker may make a topic because somebody asks for it by name.
            return self._client.list_topics(name, timeout=self._timeout_s)
        except KafkaException as error:
            raise BrokerError(f"the broker does not answer: {text_of(error.args[0])}") from error

    def find(self, name: str) -> Topic | None:
        """Return a topic, or None where there is none."""
        there = self._there()
        found = there.topics.get(name)
        if found is None:
            return None
        if _is_embedded(there):
            return Topic(name, "", EMBEDDED_PARTITIONS)
        if found.error is not None:
            raise BrokerError(f"topic {name} cannot be looked at: {text_of(found.error)}")
        return Topic(name, self.id_of(name) or "", len(found.partitions))

    def id_of(self, name: str) -> str | None:
        """Return the id of a topic, which another one of the same name has not; None: no topic, empty: nobody knows."""
        try:
            described = self._client.describe_topics(TopicCollection([name]), request_timeout=self._timeout_s)
            return str(described[name].result().topic_id)
        except KafkaException as error:
            return None if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART else ""

    def copies(self, name: str) -> Copies | None:
        """Return how many brokers have what a topic holds; None where there is no topic, or nobody can tell."""
        there = self._there()
        if _is_embedded(there) or name not in there.topics or not there.topics[name].partitions:
            return None
        replicas = min(len(partition.replicas) for partition in there.topics[name].partitions.values())
        settings = self._settings(name)
        return Copies(replicas, int(settings[IN_SYNC]) if IN_SYNC in settings else None)

    def settings(self, name: str) -> dict[str, str]:
        """Return a topic's settings, those of the brokers where it has none of its own; empty: nobody can tell."""
        there = self._there()
        return {} if _is_embedded(there) or name not in there.topics else self._settings(name)

    def _settings(self, name: str) -> dict[str, str]:
        asked = ConfigResource(ConfigResource.Type.TOPIC, name)
        try:
            answer = self._client.describe_configs([asked], request_timeout=self._timeout_s)[asked].result()
        except KafkaException:  # a client may be allowed to read and write, and not to look at settings
            return {}
        return {setting: entry.value for setting, entry in answer.items() if entry.value is not None}

    def ensure(
        self, name: str, partitions: int, replication: int, settings: Mapping[str, str], *, create: bool = True
    ) -> Topic:
        """Return a topic, made with these settings where there is none and making it is allowed."""
        found = self.find(name)
        if replication >= REPLICAS_LEAST:
            # Not with fewer: then a single broker that is away would stop all writing.
            settings = {**settings, IN_SYNC: str(IN_SYNC_LEAST)}
        if found is None:
            if not create:
                raise InputError(
                    f"topic {name} does not exist, and SAROS_KAFKA__CREATE_TOPICS is false",
                    f"make it with {partitions} partitions and {', '.join(f'{k}={v}' for k, v in settings.items())}",
                )
            # -1 is the brokers' own default.
            self._create(NewTopic(name, partitions, replication or -1, config=dict(settings)))
            found = self._await(name)
        if found.partitions != partitions:
            raise InputError(
                f"topic {name} has {found.partitions} partitions, not {partitions}",
                f"set SAROS_KAFKA__PARTITIONS={found.partitions}, or name another model",
            )
        return found

    def delete(self, name: str) -> None:
        """Delete a topic with all it holds."""
        try:
            self._client.delete_topics([name], request_timeout=self._timeout_s)[name].result()
        except KafkaException as error:
            raise BrokerError(f"topic {name} cannot be deleted: {text_of(error.args[0])}") from error

    def owners(self, group: str, topic: str) -> dict[int, str]:
        """Return who in a group reads which partition: a name that stays, or host and client."""
        try:
            found = self._client.describe_consumer_groups([group], request_timeout=self._timeout_s)[group].result()
        except KafkaException as error:
            raise BrokerError(f"group {group} cannot be looked at: {text_of(error.args[0])}") from error
        return {
            place.partition: member.group_instance_id or f"{member.host.lstrip('/')} {member.member_id[-8:]}"
            for member in found.members
            for place in (member.assignment.topic_partitions if member.assignment else ())
            if place.topic == topic
        }

    def trim(self, name: str, partition: int, before: int) -> None:
        """Let go of all messages of a partition before an offset."""
        place = TopicPartition(name, partition, before)
        try:
            self._client.delete_records([place], request_timeout=self._timeout_s)[place].result()
        except KafkaException as error:
            raise BrokerError(f"{name}/{partition} cannot be trimmed: {text_of(error.args[0])}") from error

    def _create(self, topic: NewTopic) -> None:
        """Make a topic; that somebody else has made it meanwhile is as good."""
        if _is_embedded(self._there()):
            self._there(topic.topic)  # it knows no other way
            return
        try:
            self._client.create_topics([topic], request_timeout=self._timeout_s)[topic.topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise BrokerError(f"topic {topic.topic} cannot be made: {text_of(error.args[0])}") from error

    def _await(self, name: str) -> Topic:
        """Return a topic that was just made; brokers tell each other in their own time."""
        until = time.monotonic() + self._timeout_s
        while True:
            found = self.find(name)
            if found is not None:
                return found
            if time.monotonic() > until:
                raise BrokerError(f"topic {name} was made and is not there after {self._timeout_s:g} s")
            time.sleep(_ROOM_S)


def _is_embedded(there: ClusterMetadata) -> bool:
    """True on the embedded broker, which describes nothing."""
    return str(there.cluster_id).startswith("mockCluster")
