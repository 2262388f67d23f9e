"""A log that was shortened and a log that was replaced are told apart."""

import time

import pytest

from saros.adapters.kafka import Admin, Cluster, LostPlaceError, Reader, Writer
from saros.adapters.places import ANOTHER_LOG, Same, start_of
from saros.errors import RefusedError
from saros.telemetry import EVENTS_LOST
from tests.broker import Broker


@pytest.fixture
def cluster(real_broker: Broker) -> Cluster:
    return Cluster(real_broker.address)


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> str:
    """A topic with ten messages, of which the first six are gone."""
    admin, writer = Admin(cluster), Writer(cluster)
    admin.ensure(topic, 1, 1, {})
    for k in range(10):
        writer.send(topic, 0, b"%d" % k)
    writer.flush()
    admin.trim(topic, 0, 6)
    return topic


def test_what_retention_took_is_counted_and_left_out(cluster: Cluster, filled: str, group: str) -> None:
    reader, before = Reader(cluster, group), EVENTS_LOST._value.get()
    assert start_of(reader, filled, 0, 2, stop_at_gap=False) == 6
    assert EVENTS_LOST._value.get() - before == 4
    assert [start_of(reader, filled, 0, at, stop_at_gap=True) for at in (6, 8, 10)] == [6, 8, 10]
    assert EVENTS_LOST._value.get() - before == 4
    reader.close()


def test_or_it_stops_there(cluster: Cluster, filled: str, group: str) -> None:
    reader = Reader(cluster, group)
    with pytest.raises(RefusedError, match="4 messages from 2 on are lost") as caught:
        start_of(reader, filled, 0, 2, stop_at_gap=True)
    assert "SAROS_KAFKA__STOP_AT_GAP=false" in caught.value.hint
    reader.close()


def test_retention_that_overtakes_a_reader_is_an_error_and_its_neighbours_are_kept(
    cluster: Cluster, topic: str, group: str
) -> None:
    admin, writer = Admin(cluster), Writer(cluster)
    admin.ensure(topic, 2, 1, {})
    for k in range(20):
        writer.send(topic, k % 2, b"%d" % k)
    writer.flush()
    admin.trim(topic, 0, 5)
    reader, lost = Reader(cluster, group), 0
    found: list[tuple[int, bytes]] = []
    reader.assign(topic, [(0, 2), (1, 0)])
    until = time.monotonic() + 30
    while len(found) < 15 and time.monotonic() < until:
        try:
            polled = reader.poll(100, 0.2)
        except LostPlaceError:
            lost += 1
            reader.seek(topic, (0, start_of(reader, topic, 0, 2, stop_at_gap=False)))
        else:
            found += zip(polled.partition.tolist(), polled.values, strict=True)
    assert lost == 1
    assert [int(value) for partition, value in found if partition == 0] == [10, 12, 14, 16, 18]
    assert [int(value) for partition, value in found if partition == 1] == list(range(1, 20, 2))
    reader.close()


def test_a_topic_made_anew_is_refused(cluster: Cluster, filled: str, group: str) -> None:
    admin = Admin(cluster)
    old = admin.find(filled)
    assert old is not None
    same = Same(cluster, filled, old.id, ANOTHER_LOG)
    same.check()
    admin.delete(filled)
    until = time.monotonic() + 30
    while admin.find(filled) is not None:
        assert time.monotonic() < until
    refuses(same)
    new = admin.ensure(filled, 1, 1, {})
    refuses(same)
    Same(cluster, filled, new.id, ANOTHER_LOG).check()
    Same(cluster, filled, "", ANOTHER_LOG).check()  # of a broker that has no ids
    reader = Reader(cluster, group)
    with pytest.raises(RefusedError, match="ends at 0, before 8"):
        start_of(reader, filled, 0, 8, stop_at_gap=False)
    reader.close()


def refuses(same: Same) -> None:
    with pytest.raises(RefusedError, match="is gone, or was made anew") as caught:
        same.check()
    assert "saros rebase" in caught.value.hint
