"""How the server behaves: under load, when something breaks, before it is ready, at its end; and odd connections."""

import asyncio
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from saros.api.limits import Limits
from saros.api.server import listening
from tests.api.double import Double, Served, check_problem, served

PLAIN = b"GET /v1/users/ann/recommendations?k=2 HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture
def api() -> Iterator[Served]:
    with served(Double()) as running:
        yield running


def test_a_body_that_does_not_come_is_408() -> None:
    with served(Double(), limits=Limits(body_timeout_s=0.2)) as api:
        address = api.url.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1]))) as slow:
            head = "POST /v1/rank HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
            slow.sendall(head.encode())
            answer = slow.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"urn:saros:problem:timeout" in answer


def test_what_is_unexpected_is_500_and_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model = Double()
    model.fails = ZeroDivisionError("the secret of the house")
    with served(model) as api, caplog.at_level(logging.ERROR, "saros.api"):
        for answer in (
            api.client.get("/v1/users/ann/recommendations"),
            api.client.post("/v1/recommendations", json={"user_id": "ann"}),
        ):
            check_problem(answer, 500, "internal")
            assert "secret" not in answer.text
        model.fails = ValueError("no token was given, so this is a defect")
        check_problem(api.client.get("/v1/users/ann/recommendations"), 500, "internal")
        model.fails = ValueError("a token was given, and it is a defect all the same")
        check_problem(api.client.get("/v1/users/ann/recommendations?min_token=0:1"), 500, "internal")
        body = {"user_id": "ann", "min_token": "0:1"}
        check_problem(api.client.post("/v1/recommendations", json=body), 500, "internal")
        text = api.client.get("/metrics").text
    assert 'saros_api_requests_total{method="POST",route="/v1/recommendations",status="500"} 2.0' in text
    assert caplog.text.count("the secret of the house") == 2


def test_what_is_too_much_is_sent_away_and_the_rest_is_served() -> None:
    model = Double()
    with served(model, limits=Limits(concurrency_max=2)) as api, ThreadPoolExecutor(2) as pool:
        model.go_on = asyncio.Event()
        busy = [pool.submit(api.client.get, "/v1/users/ann/recommendations") for _ in range(2)]
        assert all(model.entered.acquire(timeout=10) for _ in busy)
        shed = metric(api, "saros_api_shed_total")
        for path in ("/v1/users/bob/recommendations", "/v1/stats"):
            answer = api.client.get(path)
            check_problem(answer, 503, "overloaded")
            assert int(answer.headers["retry-after"]) >= 1
        assert api.client.get("/livez").status_code == 200
        text = api.client.get("/metrics").text
        assert "saros_api_requests_in_work 3.0" in text
        assert metric(api, "saros_api_shed_total") == shed + 2
        release(api)
        assert [one.result().status_code for one in busy] == [200, 200]
        assert api.client.get("/v1/users/bob/recommendations").status_code == 200


def test_who_waits_for_a_token_has_a_limit_of_its_own_and_starves_nobody() -> None:
    model, path = Double(), "/v1/users/ann/recommendations?min_token=0:1"
    limits = Limits(concurrency_max=1, waits_max=3)
    with served(model, limits=limits) as api, ThreadPoolExecutor(3) as pool:
        model.go_on = asyncio.Event()
        waiting = [pool.submit(api.client.get, path) for _ in range(3)]
        assert all(model.entered.acquire(timeout=10) for _ in waiting)
        assert api.client.get("/v1/popular").status_code == 200, "one may be in work, and those who wait are not"
        text = api.client.get("/metrics").text
        assert "saros_api_requests_waiting 3.0" in text
        assert "saros_api_requests_in_work 1.0" in text
        answer = api.client.get(path)
        check_problem(answer, 503, "overloaded")
        assert "3 requests wait for a token" in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) >= 1
        release(api)
        assert [one.result().status_code for one in waiting] == [200] * 3
        text = api.client.get("/metrics").text
        assert "saros_api_requests_waiting 0.0" in text
        assert "saros_api_requests_in_work 1.0" in text, "the one that asks"


def metric(api: Served, name: str) -> float:
    """Return what a metric without labels says."""
    (found,) = re.findall(rf"^{name} (\S+)$", api.client.get("/metrics").text, flags=re.MULTILINE)
    return float(found)


def release(api: Served) -> None:
    """Let the requests go on that wait in the model."""
    event = api.model.go_on
    assert event is not None
    loop = event._loop  # type: ignore[attr-defined]
    loop.call_soon_threadsafe(event.set)


def test_requests_in_work_are_finished_before_the_end() -> None:
    model = Double()
    with served(model) as api:
        model.go_on = asyncio.Event()
        with ThreadPoolExecutor(1) as pool:
            busy = pool.submit(api.client.get, "/v1/users/ann/recommendations")
            assert model.entered.acquire(timeout=10)
            timer = threading.Timer(0.5, release, [api])
            timer.start()
            api.stop()
            answer = busy.result()
    assert answer.status_code == 200
    assert model.closed
    timer.join()


def test_who_comes_before_the_server_runs_waits_for_it() -> None:
    with closing(listening("127.0.0.1", 0)) as listener:
        socket.create_connection(listener.getsockname(), timeout=5).close()


def test_it_is_live_before_it_is_ready_and_answers_on_when_it_is_late() -> None:
    model = Double()
    model.reasons = ["the catalogue is not loaded", "9 s behind"]
    with served(model) as api:
        assert api.client.get("/livez").json() == {"status": "live"}
        answer = api.client.get("/readyz")
        check_problem(answer, 503, "not-ready")
        assert answer.json()["reasons"] == model.reasons
        assert "9 s behind" in answer.json()["detail"]
        assert "saros_api_ready 0.0" in api.client.get("/metrics").text
        for path in ("/v1/users/ann/recommendations", "/v1/popular", "/v1/items/item%2F1/similar"):
            check_problem(api.client.get(path), 503, "not-ready")
        check_problem(api.client.post("/v1/rank", json={"user_id": "a", "candidates": ["b"]}), 503, "not-ready")
        model.reasons = []
        assert api.client.get("/readyz").json() == {"status": "ready"}
        model.dead = "the feed has ended: a defect"
        answer = api.client.get("/livez")
        check_problem(answer, 503, "not-live")
        assert answer.json()["detail"] == model.dead
        assert api.client.get("/v1/users/ann/recommendations").status_code == 200
        model.reasons = ["31 s behind"]
        assert api.client.get("/readyz").status_code == 503
        assert api.client.get("/v1/users/ann/recommendations").status_code == 200, "late is better than never"


def test_metrics_have_routes_and_no_ids() -> None:
    with served(Double()) as api:
        for user in ("ann", "bob"):
            api.client.get(f"/v1/users/{user}/recommendations")
        api.client.get("/v1/users/ann/recommendations?k=x")
        api.client.get("/secret-path")
        api.client.post("/v1/rank", json={"user_id": "a", "candidates": ["b"]})
        text = api.client.get("/metrics").text
    template = 'route="/v1/users/{user_id}/recommendations"'
    assert f'saros_api_requests_total{{method="GET",{template},status="200"}} 2.0' in text
    assert f'saros_api_requests_total{{method="GET",{template},status="422"}} 1.0' in text
    assert 'saros_api_requests_total{method="GET",route="other",status="404"} 1.0' in text
    assert 'saros_api_requests_total{method="POST",route="/v1/rank",status="200"} 1.0' in text
    assert f'saros_api_request_seconds_bucket{{le="+Inf",{template}}} 3.0' in text
    assert "ann" not in re.findall(r'"([^"]*)"', text)
    assert "secret" not in text


def test_headers_that_are_too_large_are_431() -> None:
    with served(Double(), header_max_bytes=2000) as api:
        check_problem(api.client.get("/livez", headers={"x": "y" * 2000}), 431, "headers-too-large")
        check_problem(api.client.get(f"/v1/popular?category={'y' * 2000}"), 431, "headers-too-large")
        assert api.client.get("/livez", headers={"x": "y" * 1500}).status_code == 200
        host, port = api.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as endless:
            endless.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nx: ")
            for _ in range(4):  # a header without an end, bit by bit
                endless.sendall(b"y" * 600)
                time.sleep(0.05)
            assert endless.makefile("rb").read().startswith(b"HTTP/1.1 431 ")


@contextmanager
def connected(api: Served) -> Iterator[socket.socket]:
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        yield line


CHUNKED = b"transfer-encoding: chunked\r\ncontent-type: application/json\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize("route", [b"POST /v1/rank", b"GET /livez", b"GET /v1/popular"])
@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"1\r\n{\r\n0\r\n", b"x: " + b"y" * 500 + b"\r\n"),  # trailers
        (b"1\r\n{\r\n0\r\nx: ", b"y" * 500),  # one without an end
        (b"1\r\n{\r\n1;x=", b"y" * 500),  # an extension of a chunk
    ],
)
def test_what_is_in_a_body_beside_itself_does_not_become_too_much(route: bytes, begin: bytes, more: bytes) -> None:
    with served(Double(), header_max_bytes=4000, limits=Limits(body_timeout_s=60)) as api, connected(api) as line:
        line.sendall(route + b" HTTP/1.1\r\n" + CHUNKED + begin)
        sent = 0
        try:
            while sent < 2**23:
                line.sendall(more)
                sent += len(more)
                if sent < 10_000:
                    time.sleep(0.005)  # bit by bit, as far as it is to be let in
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert sent < 2**23, "it has hung up"
        if b"rank" in route:
            assert counted(api, "-", "other", 431) == 1


def test_a_body_in_small_pieces_is_none_of_that(api: Served) -> None:
    body = b'{"user_id": "ann", "candidates": [%b"x"]}' % (b'"item",' * 900)
    pieces = b"".join(b"1;some=more\r\n%c\r\n" % byte for byte in body)
    assert len(pieces) > 2 * 32_768
    with connected(api) as line:
        line.sendall(b"POST /v1/rank HTTP/1.1\r\nconnection: close\r\n" + CHUNKED + pieces)
        line.sendall(b"0\r\nx-api-key: of nobody\r\n\r\n")
        assert line.makefile("rb").read().startswith(b"HTTP/1.1 200 ")


def counted(api: Served, method: str, route: str, status: int) -> float:
    labels = f'{{method="{method}",route="{route}",status="{status}"}}'
    found = re.search(rf"^saros_api_requests_total{labels} (\S+)$", api.client.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


HALF = b"GET /livez HTTP/1.1\r\nhost: x\r\nx-request-id: half\r\n"


@pytest.mark.parametrize("before", [b"", PLAIN, HALF + b"\r\n", HALF + b"content-length: 2\r\n\r\n{}"])
@pytest.mark.parametrize("half", [b"", b"\r\n", HALF, HALF + b"content-length: 9\r\n\r\n{"])
def test_who_begins_and_does_not_go_on_is_cut_off(before: bytes, half: bytes) -> None:
    """Slowly, so that it is not the pause between bytes that counts; whatever went well before on the connection."""
    with served(Double(), header_timeout_s=0.4) as api, connected(api) as line:
        if before:
            line.sendall(before)
            assert line.recv(2**16).startswith(b"HTTP/1.1 200 ")
        if before and not half:
            time.sleep(0.8)
            line.sendall(HALF + b"\r\n")
            assert line.recv(2**16).startswith(b"HTTP/1.1 200 "), "between requests there is more time"
            return
        begun = time.monotonic()
        try:
            for k in range(100):
                line.sendall(half[k : k + 1] if k < len(half) - 1 else b"")
                time.sleep(0.001)
            line.sendall(half[100:])
            got = line.makefile("rb").read()
        except ConnectionResetError:
            got = b""
        assert 0.2 < time.monotonic() - begun < 10
        assert got.startswith(b"HTTP/1.1 408 ") is (half == HALF), got
        assert counted(api, "-", "other", 408) == (half == HALF)


def test_an_answer_may_take_longer_than_a_head() -> None:
    model = Double()
    with served(model, header_timeout_s=0.2) as api, ThreadPoolExecutor(1) as pool:
        model.go_on = asyncio.Event()
        for method, content in (("GET", b""), ("POST", b'{"user_id": "ann"}')):
            model.go_on.clear()
            path = "/v1/users/ann/recommendations" if method == "GET" else "/v1/recommendations"
            busy = pool.submit(
                api.client.request, method, path, content=content, headers={"content-type": "application/json"}
            )
            assert model.entered.acquire(timeout=10)
            time.sleep(0.5)
            release(api)
            assert busy.result().status_code == 200


@pytest.mark.parametrize("noise", [b"nonsense\r\n\r\n", b"GET /caf\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n"])
def test_what_is_no_http_is_400(api: Served, noise: bytes, caplog: pytest.LogCaptureFixture) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    before = counted(api, "-", "other", 400)
    with socket.create_connection((host, int(port))) as odd, caplog.at_level(logging.INFO, "saros"):
        odd.sendall(noise)
        answer = odd.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    told = json.loads(body)
    assert told["type"] == "urn:saros:problem:bad-request"
    assert f"x-request-id: {told['request_id']}\r\n".encode() in head
    assert counted(api, "-", "other", 400) == before + 1
    (line,) = [one.__dict__["fields"] for one in caplog.records if one.getMessage() == "request answered"]
    assert (line["method"], line["route"], line["status"]) == ("-", "other", 400)
    assert (line["request_id"], line["peer"]) == (told["request_id"], "127.0.0.1")


def test_what_is_refused_has_the_id_that_it_came_with(api: Served) -> None:
    large = api.client.get("/livez", headers={"x-request-id": "mine", "x": "y" * 40_000})
    check_problem(large, 431, "headers-too-large")
    assert large.headers["x-request-id"] == large.json()["request_id"] == "mine"
    with connected(api) as line:
        line.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-request-id: mine\r\n\r\nnonsense\r\n\r\n")
        answers = line.makefile("rb").read()
    assert answers.count(b"x-request-id: mine\r\n") <= 1, "what comes behind a request is another"
