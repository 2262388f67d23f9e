"""The client against a real API: every call, every error, and what it does when something in between goes wrong."""

import asyncio
import inspect
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from saros.api.data_schemas import GateChangeBody, ItemBody, ItemChange
from saros.api.live import event_of
from saros.api.schemas import RankBody, RecommendBody
from saros.client import (
    ApiError,
    AsyncClient,
    BusyError,
    Client,
    Event,
    ForbiddenError,
    InvalidError,
    LiveEvent,
    NoAnswerError,
    NotFoundError,
    Receipt,
    Retries,
    ServerError,
    SessionEvent,
    UnauthorizedError,
    UnreadableError,
    UnsentError,
    UnusableError,
    admin,
    calls,
)
from saros.errors import SarosError
from tests.api.test_end_to_end import started
from tests.client.between import Between, drop_after, drop_before, page, problem, take_some
from tests.client.conftest import BODY_MAX, EVENTS_MAX, KEYS
from tests.servers import free_ports
from tests.trainer.runs import Model, running

README = Path(__file__).parents[2] / "README.md"
SOON = Retries(first_s=0.01, most_s=0.05)
WAIT_MS = 10_000


@pytest.fixture
def client(url: str) -> Any:
    with Client(url, key=KEYS["admin"], retries=SOON) as found:
        yield found


@pytest.fixture
def through(between: Between) -> Any:
    """A client whose requests go through a server that misbehaves."""
    with Client(between.own_url, key=KEYS["admin"], retries=SOON) as found:
        yield found


def show(user: str, *items: str) -> Event:
    return {"kind": "impression", "user": user, "items": items}


def click(user: str, item: str) -> Event:
    return {"kind": "click", "user": user, "item": item}


def taught(*users: str) -> list[Event]:
    """Users that like what begins with "good": two blocks each, as many as the gate asks for."""
    return [
        event
        for user in users
        for k in range(2)
        for event in (show(user, f"bad/{k}", f"good/{k}"), click(user, f"good/{k}"))
    ]


# --- every call -----------------------------------------------------------------------------------------------------


def test_every_call(client: Client) -> None:
    receipt = client.send_events(taught("ann", "bob", "cy"))
    assert (receipt.accepted, receipt.rejected) == (12, ())
    answer = client.recommend(
        "ann", k=2, exclude=["good/0"], exclude_seen=False, scenario="home", min_token=receipt.token, wait_ms=WAIT_MS
    )
    assert (answer.source, answer.user_state, answer.token_reached, answer.scenario) == (
        "model",
        "in_band",
        True,
        "home",
    )
    assert [item.rank for item in answer.items] == [1, 2]
    assert "good/0" not in [item.item_id for item in answer.items]
    assert answer.model_time is not None
    long = client.recommend("ann", exclude=[f"nothing/{k}" for k in range(30)], exclude_seen=False)
    assert {item.item_id for item in long.items} >= {"good/0", "good/1"}, "a long list goes as a body"
    assert client.recommend("ann", category="none of that name").items == ()
    one, two = client.recommend_many(["ann", "nobody"], k=1)
    assert (one.user_id, one.source, two.user_id, two.source) == ("ann", "model", "nobody", "popular")
    session = [SessionEvent("bad/0", "impression"), SessionEvent("good/0", "click")]
    guest = client.recommend_guest(session, k=3, exclude_seen=False, explain=True, diversity=0.1, explore=0.0, seed="s")
    assert guest.source == "session"
    assert guest.items[0].item_id == "good/0", "what it clicked is not left out"
    assert guest.items[0].explain is not None
    ranked = client.rank("nobody", ["bad/0", "good/0"])
    assert [item.item_id for item in ranked.items] == ["good/0", "bad/0"]
    clicked = [SessionEvent("good/1", "click")]
    assert len(client.rank_guest(clicked, ["bad/1", "good/0"], k=1).items) == 1
    (left,) = client.rank_guest(clicked, ["bad/1", "good/1"], exclude_seen=True).items
    assert left.item_id == "bad/1"
    near = client.similar("good/0", k=2, exclude=["bad/0"])
    assert near.item_id == "good/0"
    assert len(near.items) == 2
    assert client.popular(k=1).items[0].item_id.startswith("good/")
    assert client.stats()["items"] >= 4


def test_watching_it_live(client: Client, url: str) -> None:
    first, *pulses = client.live(count=2)
    assert (first.name, set(first.data)) == ("history", {"step_s", "points"})
    assert [(one.name, one.data["ready"]) for one in pulses] == [("pulse", True)] * 2
    assert pulses[1].data["time"] - pulses[0].data["time"] > 0.5
    for _ in client.live():
        break  # who has seen enough hangs up
    with pytest.raises(InvalidError, match="count"):
        next(client.live(count=0))
    with Client(url, key=KEYS["ingest"]) as stranger, pytest.raises(ForbiddenError):
        next(stranger.live())
    with Client(f"http://127.0.0.1:{free_ports(1)[0]}") as nobody, pytest.raises(NoAnswerError):
        next(nobody.live())

    async def watch() -> list[str]:
        async with AsyncClient(url, key=KEYS["read"]) as watching:
            with pytest.raises(InvalidError):
                await anext(watching.live(count=3601))
            return [event.name async for event in watching.live(count=1)]

    assert asyncio.run(watch()) == ["history", "pulse"]


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_ids_in_the_stream_hold_what_ends_lines_elsewhere(piece: int) -> None:
    """The API's JSON escapes control characters, and none of these; pieces end wherever they end."""
    item = "a\x85b\u2028c\u2029d"
    told = event_of("history", {"step_s": 1.0}) + event_of("pulse", {"top": [{"item_id": item}]})
    wanted = [("history", {"step_s": 1.0}), ("pulse", {"top": [{"item_id": item}]})]

    def pieces() -> Iterator[bytes]:
        yield from (told[first : first + piece] for first in range(0, len(told), piece))

    async def awaited() -> AsyncIterator[bytes]:
        for each in pieces():
            yield each

    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=pieces()))
    with httpx.Client(transport=transport) as http:
        assert list(Client("http://api", http=http).live()) == wanted

    async def watch() -> list[LiveEvent]:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=awaited()))
        async with httpx.AsyncClient(transport=transport) as http:
            return [event async for event in AsyncClient("http://api", http=http).live()]

    assert asyncio.run(watch()) == wanted


def test_every_call_of_one_client_is_a_call_of_the_other() -> None:
    def calls(kind: type) -> dict[str, inspect.Signature]:
        found = {name: one for name, one in vars(kind).items() if not name.startswith("_") and callable(one)}
        return {name: inspect.signature(one) for name, one in found.items() if hasattr(one, "__wrapped__")}

    assert calls(Client) == calls(AsyncClient)
    assert {"recommend", "recommend_many", "rank", "similar", "popular"} <= set(calls(Client))
    assert all(
        name in vars(kind) for kind in (Client, AsyncClient) for name in ("send_events", "batcher", "live", "close")
    )


def test_the_same_to_be_awaited(url: str) -> None:
    async def ask() -> None:
        async with AsyncClient(url, key=KEYS["admin"], retries=SOON) as client:
            receipt = await client.send_events([*taught("dee"), click("", "x")])
            assert (receipt.accepted, [bad.index for bad in receipt.rejected]) == (4, [4])
            answers = await asyncio.gather(
                *(client.recommend("dee", k=k, min_token=receipt.token, wait_ms=WAIT_MS) for k in (1, 2))
            )
            assert [answer.source for answer in answers] == ["model", "model"]
            assert (await client.rank("dee", ["good/0"])).items[0].item_id == "good/0"
            with pytest.raises(NotFoundError):
                await client.similar("nothing of that name")

    asyncio.run(ask())


@pytest.mark.parametrize("user", ["a/b?c#d", ".", "..", "a b+c", "é🙂", "%2F", "&=;", "a\x00b", "x" * 256])
def test_ids_hold_anything(client: Client, user: str) -> None:
    token = client.send_events(taught(user)).token
    answer = client.recommend(user, min_token=token, wait_ms=WAIT_MS)
    assert (answer.source, answer.user_state) == ("model", "in_band")
    assert client.recommend_many([user])[0].user_id == user


# --- errors ---------------------------------------------------------------------------------------------------------


def test_errors_say_what_the_api_says(client: Client, url: str) -> None:
    with pytest.raises(NotFoundError) as missing:
        client.similar("nothing of that name")
    assert (missing.value.status, missing.value.type) == (404, "urn:saros:problem:unknown-item")
    assert missing.value.request_id in str(missing.value)
    with pytest.raises(InvalidError) as wrong:
        client.recommend("ann", k=0)
    assert wrong.value.errors[0]["name"] == "k"
    for key, kind in ((None, UnauthorizedError), ("k" * 40, UnauthorizedError), (KEYS["ingest"], ForbiddenError)):
        with Client(url, key=key, retries=SOON) as other, pytest.raises(kind):
            other.popular()
    assert issubclass(ApiError, SarosError)


def test_nobody_there_is_no_answer() -> None:
    start = time.monotonic()
    with Client(f"http://127.0.0.1:{free_ports(1)[0]}", retries=SOON) as client:
        with pytest.raises(NoAnswerError) as caught:
            client.popular()
        with pytest.raises(UnsentError) as unsent:
            client.send_events(taught("ann"))
    assert not caught.value.sent
    assert unsent.value.unsent == (0, 1, 2, 3)
    assert isinstance(unsent.value.__cause__, NoAnswerError)
    assert time.monotonic() - start < 5


def test_a_defect_and_what_is_none_of_the_api_are_not_tried_again(between: Between, through: Client) -> None:
    for fault, kind in (
        (problem(500, "internal"), ServerError),
        (problem(418, "teapot"), InvalidError),
        (page(302), UnreadableError),
        (page(200), UnreadableError),
        (lambda exchange: exchange.say(200, b'{"items": 3}', {}), UnreadableError),
    ):
        between.seen.clear()
        between.faults = [fault]
        with pytest.raises(kind):
            through.popular()
        assert len(between.seen) == 1, kind


# --- trying again ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "faults",
    [
        [problem(429, "queue-full")],
        [problem(503, "overloaded"), problem(503, "not-ready")],
        [problem(503, "kafka-away", retry_after=None)],
        [page(502), page(503), page(504)],
        [drop_before],
        [drop_after, drop_before, problem(429, "queue-full")],
    ],
)
def test_it_is_tried_again_and_counts_once(between: Between, through: Client, faults: list[Any]) -> None:
    user = f"once {len(faults)} {time.monotonic_ns()}"
    between.faults = list(faults)
    receipt = through.send_events([show(user, "bad/0", "good/0"), click(user, "good/0")])
    assert receipt.accepted == 2
    assert len(between.seen) == len(faults) + 1
    between.seen.clear()
    between.faults = list(faults)
    answer = through.recommend(user, min_token=receipt.token, wait_ms=WAIT_MS)
    assert len(between.seen) == len(faults) + 1
    # The gate asks for two blocks. If the click had counted twice, with what was shown, there would be two.
    assert (answer.token_reached, answer.user_state) == (True, "below")
    between.faults = list(faults)
    assert through.rank("ann", ["good/0"]).items


def test_it_gives_up_in_the_end(between: Between, through: Client) -> None:
    between.always = problem(503, "not-ready")
    with pytest.raises(BusyError) as caught:
        through.popular()
    assert caught.value.retry_after_s == 0
    assert len(between.seen) == 1 + SOON.times
    with pytest.raises(UnsentError) as unsent:
        through.send_events(taught("ann"))
    assert isinstance(unsent.value.__cause__, BusyError)


def test_it_waits_as_long_as_it_is_told_to_and_not_longer_than_it_may(between: Between, through: Client) -> None:
    between.faults = [problem(503, "overloaded", "1")]
    start = time.monotonic()
    through.popular()
    assert 1.0 <= time.monotonic() - start < 3
    between.seen.clear()
    between.faults = [problem(503, "overloaded", "31")]
    with pytest.raises(BusyError) as caught:
        through.popular()
    assert caught.value.retry_after_s == 31
    assert len(between.seen) == 1
    between.faults = [problem(503, "overloaded", "Wed, 21 Oct 2015 07:28:00 GMT")]
    assert through.popular().items, "a date that has passed is now"


def test_of_events_that_were_taken_in_part_the_rest_is_sent_again(between: Between, through: Client) -> None:
    users = [f"part {k}" for k in range(6)]
    events = [event for user in users for event in (show(user, "bad/0", "good/0"), click(user, "good/0"))]
    between.faults = [take_some, take_some, problem(429, "queue-full")]
    receipt = through.send_events(events)
    assert receipt == Receipt(12, (), receipt.token)
    assert len(between.seen) == 4
    for answer in through.recommend_many(users, min_token=receipt.token, wait_ms=WAIT_MS):
        assert (answer.token_reached, answer.user_state) == (True, "below"), "one block each, in order and once"


def test_more_than_a_request_takes_goes_as_several(between: Between, through: Client) -> None:
    events: list[Event] = [click(f"crowd {k}", "good/0") for k in range(3 * EVENTS_MAX)]
    huge: Event = {"kind": "item", "item": "huge", "properties": {"text": "x" * BODY_MAX}}
    receipt = through.send_events([*events[:7], huge, *events[7:], click("", "nobody"), click("a" * 300, "long")])
    assert receipt.accepted == len(events)
    assert [(bad.index, bad.reason) for bad in receipt.rejected] == [
        (7, "too_large"), (len(events) + 1, "id_missing"), (len(events) + 2, "id_too_long"),
    ]  # fmt: skip
    assert len(between.seen) > 3
    assert len(receipt.token.split(",")) == 3, "all of the three partitions"


def test_what_earlier_requests_did_is_told_whatever_the_last_one_met(between: Between, through: Client) -> None:
    between.faults = [None, None, page(200)]  # the first one is too large
    with pytest.raises(UnsentError, match="not JSON") as caught:
        through.send_events([click(f"some {k}", "good/0") for k in range(EVENTS_MAX)] * 2)
    error = caught.value
    assert isinstance(error.__cause__, UnreadableError)
    assert error.receipt.accepted + len(error.unsent) == 2 * EVENTS_MAX
    assert error.receipt.accepted == EVENTS_MAX
    assert error.receipt.token


@pytest.mark.parametrize("content", [b"[]", b'{"accepted": 1}', b'{"accepted": 1, "rejected": [], "token": null}'])
def test_an_answer_that_cannot_be_read_to_its_end_counts_nothing(
    between: Between, through: Client, content: bytes
) -> None:
    between.always = lambda exchange: exchange.say(202, content, {})
    with pytest.raises(UnsentError) as caught:
        through.send_events([click("torn", "x")])
    assert (caught.value.unsent, caught.value.receipt.accepted) == ((0,), 0)


def test_who_cannot_ask_says_so_at_once(url: str) -> None:
    closed = Client(url)
    closed.close()
    for client in (closed, Client("http://[::1")):
        with pytest.raises(UnusableError, match="cannot be asked"):
            client.stats()
        with pytest.raises(UnusableError):
            next(client.live())
        with pytest.raises(UnsentError):
            client.send_events([click("any", "x")])

    async def work() -> None:
        async with AsyncClient("http://[::1") as client:
            with pytest.raises(UnusableError):
                await client.stats()

    asyncio.run(work())


def test_all_bad_is_a_receipt_too(client: Client) -> None:
    receipt = client.send_events([click("", "x"), {"kind": "nothing"}])
    assert (receipt.accepted, receipt.token, [bad.index for bad in receipt.rejected]) == (0, "", [0, 1])
    assert client.send_events([]) == Receipt(0, (), "")


def test_what_is_no_json_is_the_callers_mistake(client: Client) -> None:
    with pytest.raises(TypeError):
        client.send_events([{"kind": "click", "user": b"ann", "item": "x"}])  # type: ignore[typeddict-item]
    with pytest.raises(ValueError, match="JSON"):
        client.send_events([{"kind": "click", "user": "ann", "item": "x", "time": float("nan")}])


def test_all_that_a_body_may_hold_has_a_parameter() -> None:
    def given(call: Callable[..., object]) -> set[str]:
        return set(inspect.signature(call).parameters)

    whose = {"user_id", "users", "session"}
    recommending = set(RecommendBody.model_fields) - whose
    assert given(calls.recommend) - whose == recommending
    assert given(calls.recommend_many) - whose == recommending
    assert given(calls.recommend_guest) - whose == recommending
    assert given(calls.rank) - whose == given(calls.rank_guest) - whose == set(RankBody.model_fields) - whose
    assert given(admin.change_gate) == set(GateChangeBody.model_fields)
    assert given(admin.put_item) == {"item_id", *ItemBody.model_fields}
    assert given(admin.patch_item) == {"item_id", *ItemChange.model_fields}


# --- alone, and in the README -----------------------------------------------------------------------------------------


def test_it_imports_nothing_of_the_service() -> None:
    script = (
        "import sys, saros.client\n"
        "own = {'saros', 'saros.errors'}\n"
        "heavy = {'numba', 'numpy', 'confluent_kafka', 'redis', 'fastapi', 'pydantic', 'orjson', 'google.protobuf'}\n"
        "print(sorted(heavy & set(sys.modules)),\n"
        "      sorted(m for m in sys.modules if m.split('.')[0] == 'saros' and not m.startswith('saros.client')))"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told == "[] ['saros', 'saros.errors']\n"


def test_an_http_client_of_ones_own_stays_open(url: str) -> None:
    with httpx.Client() as http:
        for _ in range(2):
            with Client(url, key=KEYS["read"], http=http) as client:
                assert client.stats()
        assert not http.is_closed


def test_the_example_of_the_readme(trained: Model, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs as it stands there, but for the port; and prints what it says it prints."""
    (block,) = re.findall(r"```python\n(from saros\.client.*?)```", README.read_text(), re.DOTALL)
    expected = re.findall(r"print\(.*\)  # (.*)", block)
    trained.settings["SAROS_GATE__BLOCKS_MIN"] = "1"  # as it is where nobody sets it
    with running([trained.trainer()]), started(trained) as api:
        api.await_ready()
        exec(compile(block.replace("http://127.0.0.1:8000", str(api.client.base_url)), "README.md", "exec"), {})
        assert capsys.readouterr().out.splitlines() == expected
        accepted = re.search(r"^saros_api_events_accepted_total (\S+)$", api.client.get("/metrics").text, re.MULTILINE)
    assert accepted is not None
    assert float(accepted[1]) == 4, "the batcher's two, too"
