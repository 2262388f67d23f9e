"""The stream for those who watch: its form, its limit, and its end."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from saros.api.limits import Limits
from saros.api.live import Live
from tests.api.double import Double, Served, check_problem, served
from tests.trainer.runs import await_until


@contextmanager
def watching(api: Served, path: str = "/v1/live") -> Iterator[tuple[httpx.Response, Iterator[tuple[str, Any]]]]:
    with httpx.Client(base_url=api.url, timeout=10) as client, client.stream("GET", path) as answer:
        yield answer, events_in(answer.iter_lines())


def events_in(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the data of each event; a form that is no other than this."""
    for first in lines:
        data, empty = next(lines), next(lines)
        assert (first[:7], data[:6], empty) == ("event: ", "data: ", "")
        yield first[7:], json.loads(data[6:])


def test_the_past_comes_first_and_then_a_pulse_each_second() -> None:
    with served(Double()) as api, watching(api) as (answer, events):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["x-request-id"]
        assert next(events) == ("history", {"step_s": 1.0, "points": []})
        begun_s = time.monotonic()
        found = [next(events) for _ in range(3)]
        assert 1.5 < time.monotonic() - begun_s < 4.5
        assert [name for name, _ in found] == ["pulse"] * 3
        assert [data["number"] for _, data in found] == [1, 2, 3], "made for us, and one for each second"


def test_as_many_pulses_as_are_asked_for() -> None:
    with served(Double()) as api:
        answer = api.client.get("/v1/live?count=2")
        assert [name for name, _ in events_in(iter(answer.text.splitlines()))] == ["history", "pulse", "pulse"]
        assert api.model.pulses == 2
        for query, name in (("count=0", "count"), ("count=3601", "count"), ("count=x", "count"), ("count=", "count"),
                            ("count=1&count=1", "count"), ("k=1", "k")):  # fmt: skip
            check_problem(api.client.get(f"/v1/live?{query}"), 422, "invalid", name)
        check_problem(api.client.post("/v1/live"), 405, "method-not-allowed")


def test_it_answers_before_there_is_a_model() -> None:
    model = Double()
    model.reasons = ["no genesis yet"]
    with served(model) as api, watching(api, "/v1/live?count=1") as (_, events):
        assert [data.get("ready") for _, data in events] == [None, False]


def test_one_pulse_is_for_all_and_none_for_nobody() -> None:
    with served(Double()) as api:
        await_until(lambda: api.model.samples >= 2)
        assert api.model.pulses == 0, "the past is noted, but nobody watches"
        with ExitStack() as open_ones:
            streams = [open_ones.enter_context(watching(api))[1] for _ in range(5)]
            assert {next(events)[0] for events in streams} == {"history"}
            numbers = [[next(events)[1]["number"] for _ in range(2)] for events in streams]
            assert numbers == [numbers[0]] * 5
            assert "saros_api_streams 5.0" in api.client.get("/metrics").text
        await_until(lambda: "saros_api_streams 0.0" in api.client.get("/metrics").text)
        samples, pulses = api.model.samples, api.model.pulses
        await_until(lambda: api.model.samples >= samples + 2)
        assert api.model.pulses <= pulses + 1, "those who left are not waited for"


def test_streams_have_a_limit_of_their_own_and_starve_nobody() -> None:
    with served(Double(), limits=Limits(concurrency_max=1, streams_max=3)) as api, ExitStack() as open_ones:
        streams = [open_ones.enter_context(watching(api))[1] for _ in range(3)]  # who lets go of one hangs up
        assert {next(events)[0] for events in streams} == {"history"}
        answer = api.client.get("/v1/live")
        check_problem(answer, 503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        assert "3 streams are open" in answer.json()["detail"]
        assert api.client.get("/v1/popular").status_code == 200, "one request may be in work, and streams are none"
        open_ones.close()
        await_until(lambda: api.client.get("/v1/live?count=1").status_code == 200)


def test_streams_end_when_the_server_does() -> None:
    ended: list[float] = []

    def watch(events: Iterator[tuple[str, Any]]) -> None:
        for _ in events:
            pass
        ended.append(time.monotonic())

    with ExitStack() as open_ones:
        with served(Double()) as api:
            threads = []
            for _ in range(3):
                _, events = open_ones.enter_context(watching(api))
                next(events)
                threads.append(threading.Thread(target=watch, args=[events]))
                threads[-1].start()
            begun_s = time.monotonic()
            api.stop()
        assert time.monotonic() - begun_s < 3, "within less than the time that is given to requests in work"
        for thread in threads:
            thread.join(10)
    assert len(ended) == 3, "each was ended in order, or it would have raised"


def test_a_defect_is_noted_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Double):
        """Cannot say how it stands, for a while."""

        async def pulse(self) -> dict[str, object]:
            if self.samples <= 3:
                raise ZeroDivisionError("the secret of the house")
            return await super().pulse()

    with served(Broken()) as api, watching(api, "/v1/live?count=1") as (_, events):
        assert [name for name, _ in events] == ["history", "pulse"]
    assert caplog.text.count("pulse could not be made") == 1
    assert api.model.samples == 4


def test_who_comes_after_the_end_gets_the_past_alone() -> None:
    async def late() -> list[bytes]:
        live = Live(Double())
        live.start()
        live.end()
        found = [event async for event in live.events(None)]
        await live.close()
        return found

    assert [event[:14] for event in asyncio.run(late())] == [b"event: history"]
