"""Writing from an event loop: offsets come back, nothing is left behind, and a broker that is away is said at once."""

import asyncio
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from saros.adapters.kafka import Admin, Cluster, Reader, Sender
from saros.errors import BrokerError, LimitError
from tests.broker import Broker, java
from tests.servers import UnavailableError


@pytest.fixture
def made(real_broker: Broker, topic: str) -> str:
    """A topic with one partition."""
    Admin(Cluster(real_broker.address)).ensure(topic, 1, 1, {})
    return topic


def test_what_a_client_has_not_answered_that_is_given_up_is_an_error_at_once() -> None:
    """Nobody is there: without an end of their own these messages would wait for a minute."""

    async def main() -> None:
        sender = Sender(Cluster("127.0.0.1:1"), ack_timeout_s=60, messages_max=10, bytes_max=1000)
        sender.start()
        first = [sender.send("t", 0, b"12345") for _ in range(3)]
        assert (sender.waiting_messages, sender.waiting_bytes) == (3, 15)
        first[0].cancel()  # whoever waited for it has gone
        sender._broken = True  # as after a fatal error
        second = sender.send("t", 0, b"123")
        for one in first[1:]:
            with pytest.raises(BrokerError, match="begin anew"):
                await asyncio.wait_for(one, 5)
        assert (sender.waiting_messages, sender.waiting_bytes) == (1, 3)
        assert not second.done()
        assert await sender.close(0.1) == 1

    asyncio.run(main())


def test_a_partition_that_is_not_there_is_an_error(real_broker: Broker, made: str) -> None:
    async def send() -> None:
        sender = Sender(Cluster(real_broker.address), ack_timeout_s=10, messages_max=2000, bytes_max=10**6)
        sender.start()
        with pytest.raises(BrokerError):
            await sender.send(made, 7, b"")
        assert await sender.send(made, 0, b"good") == 0, "it goes on"
        assert (sender.waiting_messages, sender.waiting_bytes) == (0, 0)
        await sender.close(10)

    asyncio.run(send())


def test_a_sender_that_stops_leaves_nothing_behind(real_broker: Broker, made: str, group: str) -> None:
    async def send() -> list[int]:
        sender = Sender(Cluster(real_broker.address), ack_timeout_s=10, messages_max=2000, bytes_max=10**6)
        sender.start()
        futures = [sender.send(made, 0, b"%d" % k) for k in range(1000)]
        assert await sender.close(10) == 0
        return [future.result() for future in futures]

    assert asyncio.run(send()) == list(range(1000))
    reader = Reader(Cluster(real_broker.address), group)
    assert reader.watermarks(made, 0) == (0, 1000)
    reader.assign(made, [(0, 0)])
    found: list[bytes] = []
    until = time.monotonic() + 20
    while len(found) < 1000 and time.monotonic() < until:
        found += reader.poll(1000, 0.2).values
    assert found == [b"%d" % k for k in range(1000)]
    reader.close()


def test_a_broker_that_goes_away_is_noticed(tmp_path: Path) -> None:
    """A broker of its own, which is killed."""
    with ExitStack() as stack:
        try:
            address = stack.enter_context(java(tmp_path))
        except UnavailableError as error:
            pytest.skip(str(error))
        Admin(Cluster(address)).ensure("t", 1, 1, {})

        async def first_message(sender: Sender) -> None:
            """A broker that has just started needs a moment."""
            for _ in range(20):
                with suppress(BrokerError):
                    assert await sender.send("t", 0, b"0") >= 0
                    return
            raise AssertionError("no message was taken")

        async def main() -> None:
            sender = Sender(Cluster(address), ack_timeout_s=1.0, messages_max=10, bytes_max=1000)
            sender.start()
            await first_message(sender)
            stack.close()
            with pytest.raises(BrokerError):
                await sender.send("t", 0, b"1")
            probe = sender.send("t", 0, b"2")
            with pytest.raises(BrokerError, match="no broker answers"):
                sender.check_room(1, 1)
            with pytest.raises(BrokerError):
                await probe
            sender.check_room(1, 1)
            with pytest.raises(LimitError):
                sender.check_room(11, 1)
            await sender.close(1.0)

        asyncio.run(main())
