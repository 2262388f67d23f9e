"""The short way: what may take it, and that nobody can tell it from the long one."""

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saros.api import server
from saros.api.app import App
from saros.api.limits import Limits
from saros.api.short import Connection, Head, read_head
from tests.api.double import Double, Served, served
from tests.api.test_http_server import release

PLAIN = b"GET /v1/users/ann/recommendations?k=2 HTTP/1.1\r\nHost: x\r\nX-Request-ID:  abc\r\n\r\n"


class _Parsed:
    """What the parser of the long way makes of a head."""

    def __init__(self, data: bytes) -> None:
        self.url, self.headers, self.whole = b"", dict[bytes, bytes](), 0
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(data)
        self.keeps = self._parser.should_keep_alive()
        self.method = self._parser.get_method()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_message_complete(self) -> None:
        self.whole += 1


def test_a_plain_head_is_read() -> None:
    target, headers = b"/v1/users/ann/recommendations?k=2", {b"host": b"x", b"x-request-id": b"abc"}
    assert read_head(PLAIN) == Head(target, headers)
    assert read_head(PLAIN.replace(b"Host: x", b"Connection: Keep-Alive")) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"GET", b"HEAD"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"Host: x", b"Connection: close"),
        (b"Host: x", b"Connection: keep-alive\r\nconnection: close"),
        (b"Host: x", b"connection: keep-alive\r\nContent-Length: 0"),
        (b"Host: x", b"Transfer-Encoding: chunked"),
        (b"Host: x", b"Expect: 100-continue"),
        (b"Host: x", b"Upgrade: websocket\r\nConnection: upgrade"),
        (b"Host: x", b"Host: x\r\n folded"),
        (b"Host: x", b"Host : x"),
        (b"Host: x", b"Host"),
        (b"Host: x", b"Host: \xff"),
        (b"Host: x", b"Host: x\nA: b"),
        (b"Host: x", b"Host: x\rA: b"),
        (b"?k=2", b"?k=2#there"),
        (b" /v1", b" http://x/v1"),
        (b"\r\n\r\n", b"\r\n"),
        (b"\r\n\r\n", b"\r\n\r\nGET /"),
        (b"\r\n", b"\n"),
        (b"ann", b"a b"),
        (b"ann", b"caf\xc3\xa9"),
    ],
)
def test_what_is_odd_is_not(old: bytes, new: bytes) -> None:
    assert old in PLAIN
    assert read_head(PLAIN.replace(old, new)) is None


_BYTES = st.binary(max_size=12) | st.text('aZ9-_:;, \t\r\n"#?/%', max_size=12).map(str.encode)
_NAMES = st.sampled_from([b"Host", b"connection", b"content-length", b"x-a", b"expect"]) | _BYTES


@given(
    st.sampled_from([b"GET ", b"GET  ", b"get ", b"POST "]), _BYTES.map(lambda path: b"/" + path),
    st.sampled_from([b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"\r\n", b" HTTP/1.1\n"]),
    st.lists(st.tuples(_NAMES, st.sampled_from([b":", b": ", b":\t", b" :"]), _BYTES), max_size=3),
    st.sampled_from([b"\r\n", b"\r\nx", b""]),
)  # fmt: skip
@example(b"GET ", b"/a", b" HTTP/1.1\r\n", [(b"Host", b": ", b" x\t ")], b"\r\n")
@example(b"GET ", b"/a?b=%20", b" HTTP/1.1\r\n", [(b"connection", b":", b"keep-alive"), (b"x-a", b":", b"")], b"\r\n")
def test_what_is_read_the_parser_reads_too(
    method: bytes, path: bytes, version: bytes, lines: list[tuple[bytes, bytes, bytes]], end: bytes
) -> None:
    data = method + path + version + b"".join([b"%b%b%b\r\n" % line for line in lines]) + end
    found = read_head(data)
    if found is not None:
        parsed = _Parsed(data)
        assert (parsed.method, parsed.url, parsed.headers) == (b"GET", *found)
        assert (parsed.whole, parsed.keeps) == (1, True)


# --- over a connection -----------------------------------------------------------------------------------------------


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether requests were taken the short way, one by one, as far as they were asked whether they may."""
    asked, short = list[bool](), App.short

    def noted(self: App, head: Head, connection: Connection) -> bool:
        asked.append(short(self, head, connection))
        return asked[-1]

    monkeypatch.setattr(App, "short", noted)
    return asked


@contextmanager
def connected(api: Served) -> Iterator[socket.socket]:
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        yield line


def answer_of(line: socket.socket) -> tuple[bytes, bytes]:
    """Return the head and the body of the next answer, and take nothing of the one behind it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += _received(line, 1)
    return head, _received(line, int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))


def _received(line: socket.socket, size: int) -> bytes:
    data = line.recv(size, socket.MSG_WAITALL)
    assert len(data) == size, "it hung up"
    return data


def without_time(body: bytes) -> bytes:
    return body.partition(b'"items"')[2].partition(b'"took_ms"')[0]


def names_of(head: bytes) -> list[bytes]:
    return sorted(part.partition(b":")[0] for part in head.split(b"\r\n"))


def test_both_ways_answer_alike(taken: list[bool]) -> None:
    with served(Double()) as api, connected(api) as line:
        line.sendall(PLAIN)
        short = answer_of(line)
        assert taken == [True]
        line.sendall(PLAIN[:20])
        time.sleep(0.1)
        line.sendall(PLAIN[20:])
        long = answer_of(line)
        assert taken == [True], "one in pieces is not asked about"
        line.sendall(PLAIN)
        answer_of(line)
        assert taken == [True, True], "after it the way is open again"
        assert b"x-request-id: abc" in short[0]
        assert (names_of(short[0]), without_time(short[1])) == (names_of(long[0]), without_time(long[1]))
        text = api.client.get("/metrics").text
    route = 'route="/v1/users/{user_id}/recommendations"'
    assert f'saros_api_requests_total{{method="GET",{route},status="200"}} 3.0' in text
    assert "saros_api_requests_in_work 1.0" in text, "the one that asks"


def test_a_common_client_takes_it_and_what_is_wrong_does_not(taken: list[bool]) -> None:
    with served(Double(), limits=Limits(k_max=5)) as api:
        assert api.client.get("/v1/users/a%2Fb/recommendations?scenario=home").status_code == 200
        assert taken == [True]
        assert api.client.get("/v1/users/ann/recommendations?k=6").status_code == 422
        assert api.client.get("/v1/users/ann/recommendations?min_token=0:1").status_code == 200
        assert api.client.get("/v1/users/ann/recommendations?explain=true").status_code == 200
        assert api.client.get("/livez").status_code == 200
        assert taken == [True, False, False, False, False]
        assert [wish.user_id for wish in api.model.asked] == ["a/b", "ann", "ann"]
        assert "saros_api_requests_in_work 1.0" in api.client.get("/metrics").text


def test_requests_that_come_together_are_answered_in_order(taken: list[bool]) -> None:
    with served(Double()) as api, connected(api) as line:
        one, two = PLAIN.replace(b"abc", b"one"), PLAIN.replace(b"abc", b"two")
        line.sendall(one + two + one)
        assert [answer_of(line)[0].partition(b"x-request-id: ")[2][:3] for _ in range(3)] == [b"one", b"two", b"one"]
        api.model.go_on = asyncio.Event()
        line.sendall(one)
        while len(api.model.asked) < 4:
            time.sleep(0.01)
        line.sendall(two[:30])  # while the first is under way
        time.sleep(0.1)
        line.sendall(two[30:] + one)
        time.sleep(0.1)
        assert len(api.model.asked) == 4, "they wait"
        release(api)
        assert [answer_of(line)[0].partition(b"x-request-id: ")[2][:3] for _ in range(3)] == [b"one", b"two", b"one"]
        assert taken == [True]


def test_who_hangs_up_is_forgotten() -> None:
    with served(Double()) as api:
        api.model.go_on = asyncio.Event()
        with connected(api) as line:
            line.sendall(PLAIN)
            assert api.model.entered.acquire(timeout=10)
        time.sleep(0.1)
        release(api)
        api.model.go_on = None
        assert api.client.get("/v1/users/bob/recommendations").status_code == 200
        assert "saros_api_requests_in_work 1.0" in api.client.get("/metrics").text


def test_the_last_answer_says_that_it_is() -> None:
    with served(Double()) as api, connected(api) as line, ThreadPoolExecutor(1) as pool:
        api.model.go_on = asyncio.Event()
        line.sendall(PLAIN)
        assert api.model.entered.acquire(timeout=10)
        api.stop()
        waiting = pool.submit(answer_of, line)
        time.sleep(0.3)
        release(api)
        assert b"connection: close" in waiting.result()[0]
        assert line.recv(1) == b""


def test_a_connection_stays_as_long_as_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_KEEP_ALIVE_S", 1)
    with served(Double()) as api, connected(api) as line:
        begun_s = time.monotonic()
        for _ in range(6):
            line.sendall(PLAIN)
            answer_of(line)
            time.sleep(0.3)
        answered_s = time.monotonic()
        assert answered_s - begun_s > 1.5
        assert line.recv(1) == b"", "nothing came for so long"
        assert time.monotonic() - answered_s < 5
