"""Batchers against a real API: when a batch goes, what becomes of bad events, and of all while the API is away."""

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from saros.client import (
    AsyncBatcher,
    AsyncClient,
    Batcher,
    BatcherCounts,
    BusyError,
    Client,
    ClientError,
    Event,
    QueueFullError,
    Receipt,
    Rejected,
    Retries,
    UnreadableError,
    UnsentError,
    UnusableError,
)
from saros.client.batches import Room
from saros.client.events import Line
from tests.client.between import Between, drop_after, page, problem
from tests.client.conftest import KEYS
from tests.client.test_client import WAIT_MS, click, show
from tests.trainer.runs import await_until

SOON = Retries(times=1, first_s=0.01, most_s=0.05)
LONG_S = 600.0  # longer than any test


@pytest.fixture
def client(between: Between) -> Iterator[Client]:
    with Client(between.own_url, key=KEYS["admin"], retries=SOON) as found:
        yield found


def block(user: str) -> list[Event]:
    """Events that close one block."""
    return [show(user, "bad/0", "good/0"), click(user, "good/0")]


def test_a_batch_goes_when_it_is_large_enough(client: Client, between: Between) -> None:
    with client.batcher(size=4, every_s=LONG_S) as events:
        for event in (*block("size a"), *block("size b"), *block("size c")):
            events.put(event)
        await_until(lambda: events.counts == BatcherCounts(4, 0, 2))
        assert len(between.seen) == 1
    assert events.counts == BatcherCounts(6, 0, 0), "the rest goes at the end"
    assert len(between.seen) == 2


def test_a_batch_goes_when_it_has_waited_long_enough(client: Client) -> None:
    with client.batcher(size=100, every_s=0.1) as events:
        events.put(click("time a", "good/0"))
        await_until(lambda: events.counts.accepted == 1)
        events.put(click("time a", "good/1"))
        await_until(lambda: events.counts.accepted == 2)


def test_flush_returns_when_all_is_acknowledged(client: Client) -> None:
    with client.batcher(size=100, every_s=LONG_S) as events:
        for event in block("flush a"):
            events.put(event)
        events.flush()
        assert events.counts == BatcherCounts(2, 0, 0)
        events.flush()


def test_threads_share_one_and_a_users_events_stay_in_order(client: Client) -> None:
    users = [f"thread {k}" for k in range(8)]
    with client.batcher(size=7, every_s=0.01) as events:

        def work(user: str) -> None:
            for event in block(user):
                events.put(event)

        threads = [threading.Thread(target=work, args=[user]) for user in users]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    token = client.send_events([click(user, "good/1") for user in users]).token
    for answer in client.recommend_many(users, min_token=token, wait_ms=WAIT_MS):
        assert answer.user_state == "below", "a click before what was shown would have closed no block"


def test_bad_events_are_reported_and_the_others_go(client: Client) -> None:
    refused: list[tuple[Event, Rejected]] = []
    bad: list[Event] = [click("", "x"), {"kind": "what"}]

    def note(event: Event, why: Rejected) -> None:
        refused.append((event, why))
        raise RuntimeError("whatever this function does, sending goes on")

    with client.batcher(size=2, every_s=LONG_S, on_rejected=note) as events:
        for event in (bad[0], click("good one", "x"), bad[1], click("good one", "y")):
            events.put(event)
    assert [event for event, _ in refused] == bad
    assert refused[0][1].reason == "id_missing"
    assert events.counts == BatcherCounts(2, 2, 0)


def test_bad_events_are_in_the_log_where_nobody_asks_for_them(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    with caplog.at_level(logging.WARNING, "saros.client"), client.batcher() as events:
        events.put(click("", "x"))
    assert "an event was refused: id_missing" in caplog.text


def test_nothing_is_lost_nor_counted_twice_while_the_api_is_away(client: Client, between: Between) -> None:
    users = [f"away {k}" for k in range(5)]
    between.faults = [drop_after, drop_after]
    between.always = problem(503, "not-ready")
    with client.batcher(size=4, every_s=0.01, queue_max=10) as events:
        for user in users:
            for event in block(user):
                events.put(event)
        await_until(lambda: len(between.seen) > 3)
        with pytest.raises(QueueFullError, match="10 events wait"):
            events.put(click("one too many", "x"))
        await_until(lambda: events.counts == BatcherCounts(0, 0, 10))
        between.always = None
        events.put(click("patient", "good/0"), wait_s=30)
        events.flush(30)
        assert events.counts == BatcherCounts(11, 0, 0)
    token = client.send_events([click("last", "good/1")]).token
    for answer in client.recommend_many(users, min_token=token, wait_ms=WAIT_MS):
        assert answer.user_state == "below", "one block each"


def test_what_is_left_at_the_end_is_told(client: Client, between: Between) -> None:
    between.always = problem(503, "overloaded")
    events = client.batcher(size=10, every_s=LONG_S)
    for event in block("left a"):
        events.put(event)
    with pytest.raises(UnsentError, match="2 events were not acknowledged") as caught:
        events.close(0.5)
    assert isinstance(caught.value.__cause__, UnsentError)
    assert isinstance(caught.value.__cause__.__cause__, BusyError)
    with pytest.raises(ClientError, match="closed"):
        events.put(click("late", "x"))
    assert not any(thread.name == "saros-batcher" for thread in threading.enumerate())


def test_a_page_in_place_of_an_answer_costs_no_event(client: Client, between: Between) -> None:
    between.always = page(200)
    with client.batcher(size=2, every_s=LONG_S, queue_max=2) as events:
        for event in block("page a"):
            events.put(event)
        await_until(lambda: len(between.seen) > 0 and events.counts == BatcherCounts(0, 0, 2))
        with pytest.raises(UnsentError) as left:
            events.flush(0.2)
        assert isinstance(left.value.__cause__, UnsentError)
        assert isinstance(left.value.__cause__.__cause__, UnreadableError)
        with pytest.raises(QueueFullError) as full:
            events.put(click("page a", "x"))
        assert isinstance(full.value.__cause__, UnsentError)
        between.always = None
    assert events.counts == BatcherCounts(2, 0, 0)


def test_events_are_told_where_the_http_client_was_closed_first(url: str) -> None:
    http = httpx.Client()
    events = Client(url, key=KEYS["ingest"], http=http).batcher(size=10, every_s=LONG_S)
    http.close()
    events.put(click("closed", "x"))
    with pytest.raises(UnsentError, match="1 events") as caught:
        events.close(1)
    assert isinstance(caught.value.__cause__, UnsentError)
    assert isinstance(caught.value.__cause__.__cause__, UnusableError)


def test_whatever_goes_wrong_events_stay_and_are_sent_again() -> None:
    """Even where it is an error that nobody thought of."""
    asked = list[int]()

    def fails(lines: Sequence[Line]) -> Receipt:
        asked.append(len(lines))
        raise LookupError("a defect")

    async def fails_too(lines: Sequence[Line]) -> Receipt:
        return fails(lines)

    batcher = Batcher(fails, Room(1, LONG_S, 10), None)
    batcher.put(click("any", "x"))
    with pytest.raises(UnsentError) as caught:
        batcher.close(0.3)
    assert isinstance(caught.value.__cause__, UnsentError)
    assert isinstance(caught.value.__cause__.__cause__, LookupError)

    async def work() -> None:
        other = AsyncBatcher(fails_too, Room(1, LONG_S, 10), None)
        await other.put(click("any", "x"))
        with pytest.raises(UnsentError, match="defect"):
            await other.close(0.3)
        assert other.counts == BatcherCounts(0, 0, 1)

    asyncio.run(work())
    assert asked == [1, 1]


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 11, "queue_max": 10}, {"every_s": 0.0}])
def test_rooms_that_make_no_sense_are_refused(client: Client, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a batcher needs"):
        client.batcher(**wrong)


def test_the_same_to_be_awaited(between: Between) -> None:
    refused: list[Rejected] = []

    async def work() -> None:
        async with AsyncClient(between.own_url, key=KEYS["admin"], retries=SOON) as client:
            async with client.batcher(
                size=4, every_s=LONG_S, queue_max=6, on_rejected=lambda _, why: refused.append(why)
            ) as events:
                between.faults = [drop_after, problem(429, "queue-full"), problem(503, "overloaded")]
                for event in (*block("async a"), *block("async b"), click("", "x")):
                    await events.put(event, wait_s=30)
                await events.flush(30)
                assert events.counts == BatcherCounts(4, 1, 0)
                between.always = problem(503, "not-ready")
                for k in range(6):
                    await events.put(click("async c", f"good/{k}"))
                with pytest.raises(QueueFullError):
                    await events.put(click("async c", "x"))
                with pytest.raises(UnsentError):
                    await events.flush(0.3)
                between.always = None
                await events.put(click("async c", "x"), wait_s=30)
            assert events.counts == BatcherCounts(11, 1, 0)
            with pytest.raises(ClientError, match="closed"):
                await events.put(click("async c", "x"))
            token = (await client.send_events([click("last", "good/1")])).token
            answers = await client.recommend_many(["async a", "async b"], min_token=token, wait_ms=WAIT_MS)
            assert [answer.user_state for answer in answers] == ["below", "below"]

    asyncio.run(work())
    assert [why.reason for why in refused] == ["id_missing"]


def test_a_batch_goes_in_time_where_it_is_awaited(between: Between) -> None:
    async def work() -> None:
        async with AsyncClient(between.own_url, key=KEYS["ingest"]) as client, client.batcher(every_s=0.05) as events:
            await events.put(click("async time", "x"))
            async with asyncio.timeout(30):
                while events.counts.accepted == 0:
                    await asyncio.sleep(0.01)

    asyncio.run(work())
