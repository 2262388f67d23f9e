"""Simulated people at a service: what is sent is what the seed says, at the pace that is asked for, and each slate
counts once, in what the simulator tells and in the model."""

import asyncio
import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from saros import cli
from saros.adapters.kafka import Admin, Cluster, Reader, Writer
from saros.adapters.names import EVENTS_SETTINGS
from saros.api.plan import Answer, Wish
from saros.api.views import ItemView
from saros.client import AsyncClient, Event, Retries, UnsentError
from saros.errors import BrokerError, SarosError
from saros.lab import people, reporting, simulate
from saros.lab.bots import AROUND, Gang, bot_id, events_a_second
from saros.lab.pacing import Allowance
from saros.lab.people import NOBODY
from saros.lab.simulate import SLATE, Simulation, Traffic, watch
from saros.lab.sinks import ThroughApi, ThroughKafka
from saros.lab.straight import Straight
from saros.wire.encode import events_in
from saros.wire.partitions import partitions_of
from tests.api.double import TIME_MS, Double, served
from tests.api.test_end_to_end import Api, started, stop
from tests.broker import Broker
from tests.servers import free_ports
from tests.store import StoreServer
from tests.trainer.runs import SAROS, Model, await_until, running

FILMS = 40
SMALL = Traffic(users=20, items=FILMS, rate=50_000, seed=3)

# --- pace and bots ---------------------------------------------------------------------------------------------------


@given(
    st.floats(0, 1000), st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), max_size=50), st.floats(0.1, 5)
)  # fmt: skip
def test_an_allowance_is_kept_and_never_floods(rate: float, turns: list[tuple[float, float]], most_s: float) -> None:
    now_s, spent = 0.0, 0
    allowance = Allowance(rate, 0.0, most_s)
    for passed_s, share in turns:
        now_s += passed_s
        left = allowance.left(now_s)
        assert left <= rate * most_s + 1e-6, "a pause is made up for in part only"
        assert spent + left <= rate * now_s + 1e-6
        spend = int(max(0.0, left) * share)
        allowance.spend(spend)
        spent += spend
    allowance.spend(10)
    before = allowance.left(now_s)
    assert allowance.left(now_s + 1.0) == pytest.approx(min(rate * most_s, before + rate)), "what went too soon is owed"


@given(st.integers(1, 30), st.integers(2, 60), st.lists(st.integers(0, 20), max_size=4))
def test_bots_take_turns_and_click_what_nobody_likes(bots: int, films: int, counts: list[int]) -> None:
    world = people.new_world(2, films)
    gang = Gang(world, bots)
    made = [block for count in counts for block in gang.next(count)]
    assert made == Gang(world, bots).next(sum(counts)), "however they are asked"
    assert gang.blocks == len(made) == sum(counts)
    targets = set(world.poorest(min(10, films // 2)).tolist())
    for number, block in enumerate(made):
        *around, clicked = block.films
        assert (block.bot, clicked in targets) == (number % bots, True)
        assert len(set(around)) == len(around) == min(AROUND, films - len(targets))
        assert not targets & set(around)


def test_bots_have_a_fifth_of_the_events_at_most() -> None:
    assert events_a_second(0, 100) == 0
    assert events_a_second(3, 100) == 6, "a block a second each, of two events"
    assert events_a_second(1000, 100) == 20


# --- slates, with an API that knows its answers by heart -------------------------------------------------------------


class Films(Double):
    """Recommends films in their order, and an item that is none of them; up to user `met` it has met everybody."""

    def __init__(self, met: int = 0) -> None:
        super().__init__()
        self.met = met

    def stats(self) -> dict[str, object]:
        return {"ready": not self.reasons, "why_not_ready": self.reasons}

    def item(self, item_id: str) -> ItemView | None:
        return ItemView(item_id, [], False, TIME_MS, {}, True, 0, 0, 0)

    def _answer(self, wish: Wish, items: Sequence[str]) -> Answer:
        number = int((wish.user_id or "u0")[1:])
        ranked = ["of another world", *(people.film_id((number + k) % FILMS) for k in range(SLATE))]
        state = "in_band" if number <= self.met else "cold"
        return super()._answer(wish, ranked)._replace(user_state=state)


class Kept:
    """Keeps what it is sent."""

    def __init__(self, most: int) -> None:
        self.events, self.most, self.done = list[Event](), most, asyncio.Event()

    async def send(self, events: Sequence[Event]) -> int:
        self.events += events
        if len(self.events) >= self.most:
            self.done.set()
        return 0


def simulated(model: Films, traffic: Traffic, most: int = 2000) -> tuple[list[Event], dict[str, Any]]:
    """Run a simulation until so many events were sent; return them without the films, and what is told of it."""

    async def run() -> tuple[list[Event], dict[str, Any]]:
        kept, told = Kept(most), list[dict[str, Any]]()
        with served(model) as api:
            async with AsyncClient(api.url) as client:
                simulation = Simulation(client, kept, traffic)
                await watch(simulation, 0, kept.done, lambda now, last: told.append(now))
        return [event for event in kept.events if event["kind"] != "item"], told[-1]

    return asyncio.run(run())


def by_slate(events: list[Event]) -> Iterator[tuple[Event, Event | None]]:
    """Yield each impression with its click."""
    for place, event in enumerate(events):
        if event["kind"] == "impression":
            after = events[place + 1] if place + 1 < len(events) else None
            yield event, after if after is not None and after["kind"] == "click" else None


def test_slates_are_the_apis_own_or_random_and_clicks_are_on_what_was_shown() -> None:
    events, told = simulated(Films(), SMALL)
    shown = {"model": 0, "random": 0}
    clicked = dict(shown)
    for impression, click in by_slate(events):
        arm, items = impression["scenario"], impression["items"]
        number = int(str(impression["user"])[1:])
        own = ["of another world", *(people.film_id((number + k) % FILMS) for k in range(SLATE - 1))]
        assert ((list(items) == own), "recommendation_id" in impression) == ((arm == "model"),) * 2
        assert len(set(items)) == len(items)
        shown[arm] += len(items)
        if click is not None:
            clicked[arm] += 1
            assert {name: click.get(name) for name in ("user", "scenario", "session_id", "recommendation_id")} == {
                name: impression.get(name) for name in ("user", "scenario", "session_id", "recommendation_id")
            }
            assert items[click["position"] - 1] == click["item"] != "of another world"
    ids = [event["event_id"] for event in events]
    assert len(set(ids)) == len(ids)
    for arm in shown:
        assert (told[arm]["shown"], told[arm]["clicked"]) == (shown[arm], clicked[arm])
    assert 0.2 < sum(1 for one, _ in by_slate(events) if one["scenario"] == "random") / told["slates"] < 0.4
    assert told["sent"] == len(events) + FILMS
    assert told["people"] > SMALL.users, "some have left, and others came"
    assert told["bots"] == {"bots": 0, "blocks": 0, "share": None, "targets": []}


def choices(events: list[Event]) -> dict[tuple[str, str, int], tuple[tuple[str, ...], str]]:
    """Return, of each slate of a session, what was shown and taken."""
    found, numbers = {}, dict[tuple[str, str], int]()
    for impression, click in by_slate(events):
        whose = str(impression["user"]), impression.get("session_id", "")
        numbers[whose] = number = numbers.get(whose, 0) + 1
        found[*whose, number] = tuple(map(str, impression["items"])), str(click["item"]) if click else ""
    return found


def test_the_seed_says_what_is_shown_and_taken() -> None:
    traffic = SMALL._replace(control=1.0, bots=2)
    first, second = (choices(simulated(Films(), traffic)[0]) for _ in range(2))
    both = set(first) & set(second)
    assert len(both) > 0.8 * min(len(first), len(second)) > 100, "how many a run has is a matter of time"
    assert {key: first[key] for key in both} == {key: second[key] for key in both}
    other = choices(simulated(Films(), traffic._replace(seed=4))[0])
    assert not [key for key in set(other) & both if other[key] == first[key]]


def test_bots_are_told_of() -> None:
    events, told = simulated(Films(), SMALL._replace(bots=2))
    world = people.new_world(SMALL.seed, FILMS)
    targets = [people.film_id(film) for film in world.poorest(10).tolist()]
    assert told["bots"]["targets"] == targets
    clicks = [event for event in events if str(event["user"]).startswith("bot-") and event["kind"] == "click"]
    assert told["bots"]["blocks"] == len(clicks)
    assert {str(event["user"]) for event in clicks} <= {bot_id(0), bot_id(1)}
    assert {event["item"] for event in clicks} <= set(targets)


@pytest.mark.parametrize("met", [0, 1, 37, 5000])
def test_a_run_begins_with_strangers(met: int) -> None:
    events, _ = simulated(Films(met), SMALL._replace(users=10), most=100)
    people_seen = {int(str(event["user"])[1:]) for event in events}
    assert min(people_seen) > met
    assert min(people_seen) <= max(2 * met, 1) + 40, "and goes on not far behind"


def test_an_api_that_is_never_ready_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "READY_S", 0.3)
    model = Films()
    model.reasons = ["there is no log"]
    with pytest.raises(SarosError, match=r"not ready within 0\.3 s: there is no log"):
        simulated(model, SMALL)


# --- straight to Kafka -----------------------------------------------------------------------------------------------


def test_straight_events_stand_in_the_partition_of_their_user(broker: Broker, topic: str, group: str) -> None:
    cluster = Cluster(broker.address)
    Admin(cluster).ensure(topic, 3, 1, EVENTS_SETTINGS)
    clicks: list[Event] = [
        {"kind": "click", "user": f"u{k % 9}", "item": f"i{k}", "event_id": f"c{k}"} for k in range(1300)
    ]
    items: list[Event] = [{"kind": "item", "item": f"i{k}", "event_id": f"i{k}"} for k in range(5)]
    asyncio.run(ThroughKafka(Straight(Writer(cluster), topic, 3).send).send([*clicks, *items]))
    reader, found = Reader(cluster, group), dict[str, tuple[int, Any]]()
    reader.assign(topic, [(partition, 0) for partition in range(3)])

    def has_all() -> bool:
        for message in reader.receive(100, 0.1):
            for event in events_in(message.value):
                found.setdefault(event.event_id, (message.partition, event))
        return len(found) == len(clicks) + len(items)

    await_until(has_all)
    reader.close()
    owners = [event.user_id or event.item_upsert.item_id for _, event in found.values()]
    assert partitions_of(owners, 3).tolist() == [partition for partition, _ in found.values()]
    for user in range(9):
        mine = [event.click.item_id for _, event in found.values() if event.user_id == f"u{user}"]
        assert mine == [one["item"] for one in clicks if one["user"] == f"u{user}"], "in order"


@pytest.mark.parametrize("then", [202, 400])
def test_what_the_api_rejects_counts_whatever_becomes_of_the_rest(then: int) -> None:
    """The API takes the first, rejects the second, and Kafka does not acknowledge the third; then it is asked again."""
    bad = {"index": 1, "reason": "bad_kind", "detail": "no"}
    away = {"type": "urn:saros:problem:kafka-away", "unacknowledged": [2], "rejected": [bad], "token": "0:1"}
    rest = {"accepted": 1, "rejected": [], "token": "0:2"}
    answers = iter([httpx.Response(503, json={**away, "accepted": 1}), httpx.Response(then, json=rest)])
    events: list[Event] = [{"kind": "click", "user": user, "item": "x"} for user in "abc"]

    async def send() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: next(answers))) as http:
            sink = ThroughApi(AsyncClient("http://api", retries=Retries(times=0), http=http))
            if then == 202:
                assert await sink.send(events) == 1
            else:
                with pytest.raises(UnsentError):
                    await sink.send(events)
            assert sink.rejected == 1

    asyncio.run(send())


def test_what_kafka_does_not_acknowledge_is_sent_again() -> None:
    tries: list[int] = []

    def send(events: Sequence[Event]) -> None:
        tries.append(len(events))
        if len(tries) < 3:
            raise BrokerError("away")

    assert asyncio.run(ThroughKafka(send).send([{"kind": "click"}] * 4)) == 2
    assert tries == [4, 4, 4]


# --- the command, at a service ---------------------------------------------------------------------------------------


@pytest.fixture
def learning(broker: Broker, store_server: StoreServer, model_name: str, tmp_path: Path) -> Iterator[Model]:
    """A model that a trainer works on."""
    model, (port,) = Model(model_name, broker.address, store_server.url, tmp_path), free_ports(1)
    model.settings |= {"SAROS_TRAINER__METRICS_PORT": str(port), "SAROS_GATE__BLOCKS_MAX": "50"}
    with running([model.trainer()]):
        yield model


@contextmanager
def simulating(model: Model, api: Api, *options: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Run the command; yield what tells the last that it said."""
    output = model.scratch / "simulate.log"
    command = [SAROS, "simulate", "--api", str(api.client.base_url), "--items", "40", "--users", "30", "--rate", "300"]
    with output.open("wb") as said:
        process = subprocess.Popen([*command, "--json", *options], env=model.environ(), stdout=said, stderr=said)

    def told() -> dict[str, Any]:
        lines = output.read_text().splitlines(keepends=True)
        assert not [line for line in lines if not line.startswith("{")], lines
        whole = [line for line in lines if line.endswith("\n")]
        return json.loads(whole[-1]) if whole else {"slates": 0}

    with running([process]):
        yield told
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0, output.read_text()


def counted(model: Model) -> dict[str, dict[str, int]]:
    """Return what the trainer counted, by scenario."""
    address = f"http://127.0.0.1:{model.settings['SAROS_TRAINER__METRICS_PORT']}/metrics"
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, dict[str, int]] = {"model": {}, "random": {}}
    for what, name in (("items", "shown"), ("clicks", "clicked")):
        for scenario, value in re.findall(rf'^saros_scenario_{what}_total{{scenario="(\w+)"}} (\S+)$', text, re.M):
            found.setdefault(scenario, {})[name] = int(float(value))
    return found


def check_counts(model: Model, told: dict[str, Any]) -> None:
    """All that the simulator says was shown and clicked has reached the model, and once."""
    expected = {arm: {name: told[arm][name] for name in ("shown", "clicked")} for arm in ("model", "random")}
    await_until(lambda: counted(model) == expected, 20, lambda: f"{counted(model)} is not {expected}")
    assert told["rejected"] == 0
    assert min(expected["model"]["shown"], expected["random"]["shown"]) > 0


def test_it_goes_on_where_the_api_is_away_and_every_slate_counts_once(learning: Model) -> None:
    (port,) = free_ports(1)
    with ExitStack() as apis:
        api = apis.enter_context(started(learning, SAROS_API__PORT=str(port)))
        with simulating(learning, api) as told:
            await_until(lambda: told()["slates"] > 100, 60, lambda: f"{told()}\n{api.words()}")
            stop(api)
            before = told()["slates"]
            apis.enter_context(started(learning, SAROS_API__PORT=str(port)))
            await_until(lambda: told()["slates"] > before + 100, 60)
    assert told()["away"] > 0
    check_counts(learning, told())


def test_straight_to_kafka_every_slate_counts_once_too(learning: Model) -> None:
    with started(learning) as api, simulating(learning, api, "--through", "kafka", "--bots", "2") as told:
        await_until(lambda: told()["slates"] > 100 and told()["bots"]["blocks"] > 0, 60, lambda: f"{told()}")
    check_counts(learning, told())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--api", "localhost:8000"), "--api localhost:8000 is no URL"),
        (("--items", "19"), "--items"),
        (("--through", "post"), "--through"),
        (("--through", "kafka"), "SAROS_KAFKA__BOOTSTRAP"),
    ],
)
def test_what_makes_no_sense_is_said(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SAROS_KAFKA__BOOTSTRAP", raising=False)
    assert cli.run(["simulate", *arguments]) == 2
    assert said in capsys.readouterr().err


# --- how it is shown -------------------------------------------------------------------------------------------------


def told_of(slates: int, bots: int = 0) -> dict[str, Any]:
    """Return what a simulation says that has shown so many slates."""

    class Nowhere:
        async def send(self, events: Sequence[Event]) -> int:
            raise AssertionError

    simulation = Simulation(AsyncClient("http://127.0.0.1:1"), Nowhere(), SMALL._replace(bots=bots))
    rows = np.arange(slates)
    shown = np.tile(np.arange(4), (slates, 1))
    simulation._tally.add(0.0, rows % 2, shown, np.where(rows % 3 == 0, shown[:, 0], NOBODY))
    return simulation.told()


def test_it_is_told_in_a_line_before_and_after_there_is_something_to_tell() -> None:
    nothing = reporting.line_of(told_of(0))
    assert nothing == "0 s: 0 events, 0 slates; clicked model – of 0, random – of 0; lift –, at least –"
    some = reporting.line_of(told_of(600, bots=3))
    assert "clicked model 8.33 % of 1,200, random 8.33 % of 1,200; lift +0.00 %, at least -" in some
    assert re.search(r"; 0 blocks of bots, \d+\.\d\d % of places theirs$", some)


def test_on_a_terminal_it_is_a_table() -> None:
    for told in (told_of(0), told_of(600, bots=3)):
        screen = Console(file=StringIO(), width=100)
        screen.print(reporting._picture("30 people", told))
        text = screen.file.getvalue()  # type: ignore[attr-defined]
        for word in ("30 people", "shown", "clicked", "95 %", "last 60 s", "model", "random", "lift"):
            assert word in text
    assert "8.33 %" in text
    assert "bots closed 0 blocks" in text


@pytest.mark.parametrize(("quiet", "as_json", "lines"), [(False, True, 3), (True, True, 1), (False, False, 2)])
def test_lines_come_now_and_then_and_at_the_end(
    quiet: bool, as_json: bool, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    told = told_of(30)
    with reporting.report_to(SMALL, "http://api", quiet=quiet, as_json=as_json) as report:
        for seconds, last in ((0.0, False), (1.0, False), (2.0, True)):
            report({**told, "seconds": seconds}, last)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == lines
    if as_json:
        assert json.loads(said[-1]) == {**told, "seconds": 2.0}
