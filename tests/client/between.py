"""A server between a client and the API, which hands requests on, and first does what it is told to do wrong."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

# Headers that are for the next hop only.
_HOP = {"connection", "host", "content-length", "transfer-encoding", "date", "server"}

Fault = Callable[["Exchange"], None]


class Exchange(BaseHTTPRequestHandler):
    """One request on its way through."""

    protocol_version = "HTTP/1.1"
    server: "Between"

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Whatever the method, it is served alike."""
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self.server.lock:
            self.server.seen.append((self.command, self.path))
            fault = self.server.faults.pop(0) if self.server.faults else self.server.always
        if fault is not None:
            fault(self)
        else:
            self.answer(self.forward())

    def forward(self, body: bytes | None = None) -> httpx.Response:
        """Hand the request on."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        url = self.server.url + self.path
        return httpx.request(
            self.command, url, headers=headers, content=self.body if body is None else body, timeout=30
        )

    def answer(self, answer: httpx.Response) -> None:
        """Hand the answer back."""
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
        self.say(answer.status_code, answer.content, headers)

    def say(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        """Answer."""
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def hang_up(self) -> None:
        """End the connection without a word."""
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


class Between(ThreadingHTTPServer):
    """The server. `faults` are done one by one, then `always`; None hands the request on."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.url, self.lock = url.rstrip("/"), threading.Lock()
        self.faults: list[Fault | None] = []
        self.always: Fault | None = None
        self.seen: list[tuple[str, str]] = []

    @property
    def own_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def standing_between(url: str) -> Iterator[Between]:
    """Run one until the block ends."""
    server = Between(url)
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def problem(status: int, name: str, retry_after: str | None = "0", **more: object) -> Fault:
    """Answer with a problem as the API has it, and do nothing."""
    body = {"type": f"urn:saros:problem:{name}", "title": name, "status": status, "detail": "of the test", **more}
    headers = {"content-type": "application/problem+json"}
    if retry_after is not None:
        headers["retry-after"] = retry_after
    return lambda exchange: exchange.say(status, json.dumps(body).encode(), headers)


def page(status: int) -> Fault:
    """Answer with a page, as proxies do."""
    return lambda exchange: exchange.say(status, b"<html>sorry</html>", {"content-type": "text/html"})


def drop_before(exchange: Exchange) -> None:
    """Hang up before the API has heard of it."""
    exchange.hang_up()


def drop_after(exchange: Exchange) -> None:
    """Let the API do it, and hang up before anybody hears of that."""
    exchange.forward()
    exchange.hang_up()


def take_some(exchange: Exchange) -> None:
    """Let the API take every other event, and say of the others what it says when Kafka does not acknowledge them."""
    lines = exchange.body.split(b"\n")
    told = exchange.forward(b"\n".join(lines[::2])).json()
    assert told["rejected"] == []
    left = list(range(1, len(lines), 2))
    problem(503, "kafka-away", accepted=told["accepted"], unacknowledged=left, rejected=[], token=told["token"])(
        exchange
    )
