"""All of it: events over HTTP, Kafka, trainers and the API as processes of their own, recommendations over HTTP."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.trainer.runs import SAROS, Model, await_until, running

PATIENCE_S = 60.0
STOP_S = 10.0


class Api:
    """An API that runs as a process, and a client of it."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self._log = process, log
        await_until(lambda: self._port() is not None or process.poll() is not None, PATIENCE_S, self.words)
        assert process.poll() is None, self.words()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self._port()}", timeout=PATIENCE_S)

    def _port(self) -> str | None:
        found = re.search(r"api is listening.* \W?port\W+(\d+)", self.words())
        return found[1] if found else None

    def words(self) -> str:
        """What it said."""
        return self._log.read_text(errors="replace")

    def await_ready(self) -> None:
        await_until(lambda: self.client.get("/readyz").status_code == 200, PATIENCE_S, self.words)

    def send(self, *events: dict[str, Any]) -> str:
        """Send events, all of them good; return their token."""
        answer = self.client.post("/v1/events", json=list(events))
        assert answer.status_code == 202, answer.text
        told = answer.json()
        assert (told["accepted"], told["rejected"]) == (len(events), [])
        token: str = told["token"]
        return token

    def recommend(self, user: str, **query: Any) -> dict[str, Any]:
        answer = self.client.get("/v1/recommendations", params={"user_id": user, **query})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@contextmanager
def started(trained: Model, **more: str) -> Iterator[Api]:
    """Run `saros api`, on a free port unless one is given."""
    log = trained.scratch / f"api-{time.monotonic_ns()}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [SAROS, "api"],
            env=trained.environ(**{"SAROS_API__PORT": "0", **more}),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    with running([process]):
        api = Api(process, log)
        try:
            yield api
        finally:
            api.client.close()


def show(user: str, *items: str) -> dict[str, Any]:
    return {"kind": "impression", "user": user, "items": list(items)}


def click(user: str, item: str) -> dict[str, Any]:
    return {"kind": "click", "user": user, "item": item}


def names(answer: dict[str, Any]) -> list[str]:
    return [item["item_id"] for item in answer["items"]]


def taught(user: str, rounds: int) -> list[dict[str, Any]]:
    """Events of a user that likes what begins with "good" and passes over what begins with "bad"."""
    return [
        event
        for k in range(rounds)
        for event in (show(user, f"bad/{k}", f"bad/{k + 1}", f"good/{k}"), click(user, f"good/{k}"))
    ]


def test_a_click_changes_the_list_a_moment_later(live: Model) -> None:
    with started(live) as api:
        api.await_ready()
        events = [event for k in range(8) for event in taught(f"user/{k}", 6)]
        token = api.send(*events)
        before = api.recommend("ann", min_token=token, wait_ms=10_000)
        assert before["token_reached"]
        assert (before["source"], before["user_state"]) == ("popular", "cold")
        assert names(before)[0].startswith("good/"), "what is liked comes first for everybody"
        own = [show("ann", "good/0", "good/1", "bad/5"), click("ann", "bad/5"), show("ann", "good/2", "bad/6"),
               click("ann", "bad/6"), show("ann", "good/3", "bad/2"), click("ann", "bad/2")]  # fmt: skip
        after = api.recommend("ann", min_token=api.send(*own), wait_ms=10_000, exclude_seen=False)
        assert after["token_reached"]
        assert (after["source"], after["user_state"], after["stale"]) == ("model", "in_band", False)
        assert names(after) != names(api.recommend("ann", exclude_seen=True)), "what was clicked is left out"
        assert not {"bad/5", "bad/6", "bad/2"} & set(names(api.recommend("ann")))
        assert after["recommendation_id"] != before["recommendation_id"]
        ranked = api.client.post("/v1/rank", json={"user_id": "ann", "candidates": ["bad/5", "good/0"]}).json()
        assert set(names(ranked)) == {"bad/5", "good/0"}
        guest = api.client.post(
            "/v1/recommendations", json={"session": [{"item": "good/1", "kind": "click"}], "exclude": ["good/2"]}
        ).json()
        assert guest["source"] == "session"
        assert "good/2" not in names(guest)
        similar = api.client.get("/v1/items/good%2F1/similar?k=3").json()
        assert len(similar["items"]) == 3
        assert "good/1" not in names(similar)
        assert api.client.get("/v1/items/never/similar").status_code == 404
        assert names(api.client.get("/v1/popular?k=5").json())[0].startswith("good/")
        assert api.client.get("/v1/stats").json()["items"] > 0
        live.sent += len(events) + len(own)
        stop(api)
    live.await_learned()  # an API knows of it sooner than the store
    live.check()


def stop(api: Api) -> None:
    """End it with a signal: in time, and in order."""
    api.process.send_signal(signal.SIGTERM)
    assert api.process.wait(STOP_S) == 0, api.words()
    assert "api has stopped" in api.words()
    assert "Traceback" not in api.words()


def test_what_one_wrote_one_reads_every_time(live: Model) -> None:
    with started(live) as api:
        api.await_ready()
        items = [f"film {k}/{k % 7}" for k in range(30)]
        api.send(*[event for k in range(10) for event in (show(f"w{k}", *items), click(f"w{k}", items[k]))])
        for k in range(100):
            user, item = f"reader {k % 20}", items[k % 30]
            token = api.send(show(user, items[(k + 1) % 30], item), click(user, item))
            answer = api.recommend(user, min_token=token, wait_ms=10_000, k=30)
            assert answer["token_reached"], k
            assert item not in names(answer), f"round {k}: it was clicked, and the answer must know"


def test_an_item_that_is_hidden_is_gone_and_comes_back(live: Model) -> None:
    with started(live) as api:
        api.await_ready()
        token = api.send(*[event for k in range(4) for event in taught(f"user/{k}", 4)])
        (first, *_) = names(api.recommend("ann", min_token=token, wait_ms=10_000))
        for hidden in (True, False):
            token = api.send({"kind": "item", "item": first, "hidden": hidden, "categories": ["top"]})
            answer = api.recommend("ann", min_token=token, wait_ms=10_000, k=100)
            assert answer["token_reached"]
            assert (first in names(answer)) is not hidden
        assert names(api.recommend("ann", category="top")) == [first]


def test_before_there_is_a_model_it_is_live_and_not_ready(trained: Model) -> None:
    with started(trained) as api:
        assert api.client.get("/livez").status_code == 200
        ready = api.client.get("/readyz")
        assert (ready.status_code, ready.json()["type"]) == (503, "urn:saros:problem:not-ready")
        for answer in (api.client.post("/v1/events", json=click("a", "b")), api.client.get("/v1/popular")):
            assert (answer.status_code, answer.json()["type"]) == (503, "urn:saros:problem:not-ready")
            assert "retry-after" in answer.headers
        subprocess.run([SAROS, "init"], env=trained.environ(), check=True, capture_output=True)
        api.await_ready()
        assert api.send(click("a", "b"))
        assert "saros_build_info" in api.client.get("/metrics").text
        stop(api)


def test_requests_under_way_are_answered_when_it_is_told_to_stop(live: Model) -> None:
    with started(live) as api:
        api.await_ready()
        statuses: list[int] = []

        def ask(worker: int) -> None:
            with httpx.Client(base_url=api.client.base_url, timeout=PATIENCE_S) as client:
                for k in range(10_000):
                    try:
                        answer = client.post("/v1/events", json=click(f"user {worker}", f"item {k}"))
                    except httpx.TransportError:
                        return  # it has hung up between two requests, or no longer listens
                    statuses.append(answer.status_code)

        with ThreadPoolExecutor(4) as pool:
            done = [pool.submit(ask, worker) for worker in range(4)]
            await_until(lambda: len(statuses) > 100)
            stop(api)
            for one in done:
                one.result()
        assert set(statuses) == {202}
        live.sent += len(statuses)
        await_until(lambda: live.audit().events == len(statuses), PATIENCE_S)
    live.check()


def test_who_waits_for_a_token_is_answered_when_it_is_told_to_stop(live: Model) -> None:
    with started(live, SAROS_API__WAIT_MS_MAX="60000") as api, ThreadPoolExecutor(2) as pool:
        api.await_ready()
        far = {"min_token": "0:1000000", "wait_ms": "60000"}
        waiting = [
            pool.submit(api.client.get, "/v1/recommendations", params={"user_id": "ann", **far}),
            pool.submit(api.client.get, "/v1/gate", params=far),
        ]
        await_until(lambda: "saros_api_requests_waiting 2.0" in api.client.get("/metrics").text)
        stop(api)
        for one in waiting:
            assert (one.result().status_code, one.result().json()["token_reached"]) == (200, False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_it_is_not_open_to_others_by_accident(trained: Model, host: str) -> None:
    answer = subprocess.run(
        [SAROS, "api"], env=trained.environ(SAROS_API__HOST=host), capture_output=True, text=True, check=False
    )
    assert answer.returncode == 2
    assert "SAROS_API__ALLOW_OPEN=true" in answer.stderr
    with started(trained, SAROS_API__HOST="0.0.0.0", SAROS_API__ALLOW_OPEN="true") as api:
        assert "nobody is asked for a key reachable=from other machines, too" in api.words()


def saros(trained: Model, *arguments: str, given: str = "", **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [SAROS, *arguments], env=trained.environ(**more), capture_output=True, text=True, check=False, input=given
    )


def test_its_log_can_be_read_by_programs(trained: Model) -> None:
    with started(trained, SAROS_LOG__FORMAT="json", SAROS_API__ACCESS_LOG_SHARE="1") as api:
        assert api.client.get("/livez").status_code == 200
        stop(api)
    lines = [json.loads(line) for line in api.words().splitlines()]
    assert all({"time", "level", "event"} <= line.keys() for line in lines)
    assert {"api is listening", "api has stopped"} <= {line["event"] for line in lines}
    (asked,) = [line for line in lines if line["event"] == "request answered"]
    assert (asked["route"], asked["status"]) == ("/livez", 200)


def test_with_keys_it_is_open_to_others_who_have_one(trained: Model, tmp_path: Path) -> None:
    shop = json.loads(saros(trained, "key", "new", "shop", "--scope", "read", "--json").stdout)
    entry = saros(trained, "key", "hash", "operator", "-s", "admin", given=f"{'k' * 40}\n").stdout
    file = tmp_path / "keys"
    file.write_text(entry)
    settings = {"SAROS_API__HOST": "0.0.0.0", "SAROS_API__KEYS": shop["entry"], "SAROS_API__KEYS_FILE": str(file)}
    with started(trained, **settings, SAROS_API__ACCESS_LOG_SHARE="1") as api:
        assert "everybody is asked for a key keys=2 reachable=from other machines, too" in api.words()
        assert api.client.get("/v1/stats").status_code == 401
        for key in (shop["key"], "k" * 40):
            assert api.client.get("/v1/stats", headers={"x-api-key": key}).status_code == 200
        assert api.client.get("/livez").status_code == 200
        new = json.loads(saros(trained, "key", "new", "new", "-s", "ingest", "-s", "read", "--json").stdout)
        file.with_suffix(".new").write_text(new["entry"])
        file.with_suffix(".new").replace(file)
        await_until(lambda: api.client.get("/v1/stats", headers={"x-api-key": "k" * 40}).status_code == 401)
        assert api.client.get("/v1/stats", headers={"x-api-key": new["key"]}).status_code == 200
        api.process.send_signal(signal.SIGHUP)  # as to others, so that they read their settings again
        assert api.client.get("/v1/stats", headers={"x-api-key": new["key"]}).status_code == 200
        stop(api)
        words = api.words()
    assert "keys were changed keys=2 names=new,shop" in words
    assert re.search(
        r"request answered method=GET route=/v1/stats status=200 ms=\S+ request_id=\S+ key=operator ", words
    )
    assert not any(key in words for key in (shop["key"], "k" * 40, new["key"]))


def test_keys_that_are_wrong_are_named_and_not_shown(trained: Model, tmp_path: Path) -> None:
    key = "saros_" + "k" * 43
    for more, words in (
        ({"SAROS_API__KEYS": key}, "entry 1 of SAROS_API__KEYS is no entry of a key"),
        ({"SAROS_API__KEYS_FILE": str(tmp_path / "none")}, "cannot be read: No such file"),
    ):
        answer = saros(trained, "api", **more)
        assert (answer.returncode, words in answer.stderr) == (2, True), answer.stderr
        assert key not in answer.stdout + answer.stderr
    short = saros(trained, "key", "hash", "shop", "-s", "read", given="guess")
    assert (short.returncode, short.stdout) == (2, "")
    wrong = saros(trained, "key", "new", "shop", "-s", "write")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "none of ingest, read, admin" in wrong.stderr


def test_a_gate_that_no_trainer_runs_is_refused(trained: Model) -> None:
    answer = saros(trained, "api", SAROS_GATE__MODE="session")
    assert (answer.returncode, "SAROS_GATE__MODE=session is not there yet" in answer.stderr) == (2, True), answer.stderr


def test_a_port_that_is_taken_is_named(trained: Model) -> None:
    with started(trained) as api:
        port = str(api.client.base_url.port)
        answer = subprocess.run(
            [SAROS, "api"], env=trained.environ(SAROS_API__PORT=port), capture_output=True, text=True, check=False
        )
        assert "nobody is asked for a key reachable=from this machine only" in api.words()
    assert answer.returncode == 2
    assert f"SAROS_API__PORT={port}" in answer.stderr
