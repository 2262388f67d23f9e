"""Dead letters keep the bytes and the key, and say why and where."""

from saros.adapters.dead import DeadLetters, Letter, letter_of
from saros.adapters.kafka import Admin, Cluster, EmbeddedBroker, Reader, Received, Writer
from saros.adapters.names import DEAD_SETTINGS, EVENTS_SETTINGS, topics_of
from tests.broker import Broker

LETTERS = [
    Letter("bad_utf8", b"\xff\x00raw", "saros.events", 3, 2**40, 1_700_000_000_000, key=b"ann"),
    Letter("id_missing", b"", "saros.events", 4, 7, 5, place=2),
]


def written(cluster: Cluster, topic: str, group: str, partitions: int) -> list[Letter]:
    """Write the letters and read them again."""
    DeadLetters(Writer(cluster), topic, partitions).write(LETTERS)
    reader, found = Reader(cluster, group), []
    reader.assign(topic, [(p, 0) for p in range(partitions)])
    for _ in range(100):
        found += reader.receive(10, 0.2)
        if len(found) == len(LETTERS):
            break
    reader.close()
    return sorted((letter_of(message) for message in found), key=lambda letter: letter.partition)


def test_letters_come_back_as_they_were_written(real_broker: Broker, topic: str, group: str) -> None:
    cluster = Cluster(real_broker.address)
    Admin(cluster).ensure(topic, 2, 1, DEAD_SETTINGS)
    assert written(cluster, topic, group, 2) == LETTERS


def test_the_embedded_broker_keeps_them_too(topic: str, group: str) -> None:
    broker = EmbeddedBroker()
    assert written(Cluster(broker.address), topic, group, 4) == LETTERS
    broker.close()


def test_headers_of_others_do_no_harm() -> None:
    strange = Received(0, 0, 0, b"x", None, {"saros.reason": b"\xff", "saros.offset": b"many", "other": b"1"})
    assert letter_of(strange) == Letter("\ufffd", b"x", "", -1, -1, -1)


def test_names_and_settings_of_topics(real_broker: Broker, topic: str) -> None:
    assert topics_of("films") == ("films.events", "films.redo", "films.dead")
    for settings in (EVENTS_SETTINGS, DEAD_SETTINGS):
        name = f"{topic}-{len(settings)}"
        assert Admin(Cluster(real_broker.address)).ensure(name, 1, 1, settings).partitions == 1
