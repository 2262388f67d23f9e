"""What a reader holds of partitions that move: taken once, and fetched again after a pause."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from saros.adapters.kafka import Admin, Cluster, Reader, Writer
from saros.errors import BrokerError
from tests.broker import Broker


@pytest.fixture
def cluster(real_broker: Broker) -> Cluster:
    return Cluster(real_broker.address)


@pytest.fixture
def made(cluster: Cluster, topic: str) -> str:
    """A topic with ten messages in each of two partitions."""
    Admin(cluster).ensure(topic, 2, 1, {})
    send(cluster, topic)
    return topic


def send(cluster: Cluster, topic: str) -> None:
    writer = Writer(cluster)
    for k in range(20):
        writer.send(topic, k % 2, b"%d" % k)
    writer.flush()


class Member:
    """A reader in a group, and what it has."""

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self.reader, self.next = Reader(cluster, group), dict[int, int]()
        self.reader.subscribe(topic, self.gained, self.lost)

    def gained(self, partitions: list[int]) -> list[tuple[int, int]]:
        self.next |= dict.fromkeys(partitions, 0)
        return [(partition, 0) for partition in partitions]

    def lost(self, partitions: list[int]) -> None:
        for partition in partitions:
            del self.next[partition]

    def poll(self) -> None:
        polled = self.reader.poll(100, 0.05)
        for k, partition in enumerate(polled.partition.tolist()):
            assert polled.offset(k) == self.next[partition], "each once, in order"
            self.next[partition] += 1


def until(true: Callable[[], bool], *work: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        for each in work:
            each()


def test_a_partition_that_was_lost_while_paused_is_fetched_when_it_comes_back(
    cluster: Cluster, made: str, group: str
) -> None:
    one = Member(cluster, made, group)
    until(lambda: one.next == {0: 10, 1: 10}, one.poll)
    assert not one.reader.stay()
    two = Member(cluster, made, group)
    until(lambda: len(two.next) == 1 == len(one.next), one.reader.stay, two.poll)
    one.reader.resume()
    two.reader.close()
    until(lambda: len(one.next) == 2, one.poll)
    until(lambda: one.next == {0: 10, 1: 10}, one.poll)
    one.reader.close()


def test_a_partition_that_is_gained_in_a_pause_is_paused_too(cluster: Cluster, made: str, group: str) -> None:
    one = Member(cluster, made, group)
    until(lambda: one.next == {0: 10, 1: 10}, one.poll)
    two = Member(cluster, made, group)
    until(lambda: len(two.next) == 1 == len(one.next), one.poll, two.poll)
    one.reader.stay()
    two.reader.close()
    until(lambda: len(one.next) == 2, one.reader.stay)
    assert one.reader.poll(100, 1.0).values == []
    one.reader.resume()
    until(lambda: one.next == {0: 10, 1: 10}, one.poll)
    one.reader.close()


def test_what_was_kept_of_a_partition_goes_with_it(cluster: Cluster, made: str, group: str) -> None:
    one = Member(cluster, made, group)
    until(lambda: len(one.next) == 2, one.poll)
    for partition in (0, 1):
        one.reader.seek(made, (partition, 0))
    until(lambda: len(one.reader._kept) == 20, lambda: one.reader._kept.extend(one.reader._client.consume(20, 0.1)))
    two = Member(cluster, made, group)
    until(lambda: len(two.next) == 1 == len(one.next), one.reader.stay, two.poll)
    assert {message.partition() for message in one.reader._kept} == set(one.next)
    two.reader.close()
    until(lambda: len(one.next) == 2, one.reader.stay)
    one.reader.resume()
    for partition in one.next:
        one.next[partition] = 0
    until(lambda: one.next == {0: 10, 1: 10}, one.poll)
    one.reader.close()


class Moving:
    """A client in one of whose calls a partition begins anew, as a rebalance has it."""

    def __init__(self, reader: Reader, topic: str, call: int) -> None:
        self._client, self._reader, self._topic, self._left = reader._client, reader, topic, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        self._left -= 1
        if self._left == 0:
            self._reader.seek(self._topic, (0, 0))
        return list(self._client.consume(count, timeout_s))


def test_a_partition_that_begins_anew_within_a_poll_is_taken_once(
    cluster: Cluster, made: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, found = Reader(cluster, group), list[int]()
    reader.assign(made, [(0, 3)])
    monkeypatch.setattr(reader, "_client", Moving(reader, made, 2))
    until(lambda: bool(found), lambda: found.extend(polled_offsets(reader)))
    until(lambda: len(found) >= 10, lambda: found.extend(polled_offsets(reader)))
    assert found == list(range(10))
    reader.close()


def polled_offsets(reader: Reader) -> list[int]:
    polled = reader.poll(100, 0.1, 0.5)
    return [polled.offset(k) for k in range(len(polled.values))]


def test_what_is_dropped_while_we_stay_does_not_come_back(
    cluster: Cluster, made: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, found = Reader(cluster, group), list[int]()
    reader.assign(made, [(0, 3)])
    until(lambda: len(reader._kept) == 7, lambda: reader._kept.extend(reader._client.consume(7, 0.1)))
    monkeypatch.setattr(reader, "_client", Moving(reader, made, 1))
    assert not reader.stay()
    reader.resume()
    until(lambda: len(found) >= 10, lambda: found.extend(polled_offsets(reader)))
    assert found == list(range(10))
    reader.close()


def test_what_is_kept_has_an_end(cluster: Cluster, made: str, group: str) -> None:
    reader = Reader(cluster, group)
    reader.assign(made, [(0, 0)])
    until(lambda: len(reader._kept) == 10, lambda: reader._kept.extend(reader._client.consume(10, 0.1)))
    reader._kept *= 101
    with pytest.raises(BrokerError, match="came from partitions that are paused"):
        reader.stay()
    reader.close()


def test_a_seek_that_failed_half_way_can_be_made_again(cluster: Cluster, made: str, group: str) -> None:
    reader, found = Reader(cluster, group), list[int]()
    reader.assign(made, [(0, 5), (1, 10)])
    reader._client.incremental_unassign([each for each in reader._client.assignment() if each.partition == 0])
    reader.seek(made, (0, 8))
    until(lambda: len(found) >= 2, lambda: found.extend(polled_offsets(reader)))
    assert found == [8, 9]
    reader.close()
