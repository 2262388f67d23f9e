"""The HTTP server: uvicorn on uvloop and httptools, with a limit on headers and an end that is in order."""

import gc
import logging
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from saros.api.app import App
from saros.api.door import JSON_HEADERS
from saros.api.problems import BAD_REQUEST, HEAD_TOO_LARGE, MEDIA_TYPE, Kind, ProblemError
from saros.api.short import Connection, Head, read_head
from saros.errors import InputError
from saros.telemetry import log

_GRACE_S = 4
_KEEP_ALIVE_S = 75  # longer than a proxy's own, so that it is never we who hang up on a request
# Collections that find nothing cost the hot route; what is there at the start stays anyway.
_GC = (50_000, 20, 50)


class _Whole:
    """A transport that holds the head of a response back until its body begins.

    uvicorn writes them one after the other, each with a call of the system: a quarter of all that a small answer costs.
    (ASGI has it so, too: nothing is to be sent before a body has come.)
    """

    def __init__(self, transport: Any) -> None:
        self._transport, self._head = transport, b""
        self.get_extra_info, self.is_closing = transport.get_extra_info, transport.is_closing
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading

    def write(self, data: bytes) -> None:
        """Send bytes, with a head that waits for them; or let a head wait."""
        if self._head:
            self._transport.write(self._head + data)
            self._head = b""
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n") and not data.startswith(b"HTTP/1.1 1"):
            self._head = data
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Send a head that waits for nothing more."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Send what waits, and close."""
        self.flush()
        self._transport.close()


class _Heads:
    """The head of an answer, as far as it is the same for all of a second."""

    def __init__(self) -> None:
        self._given: list[tuple[bytes, bytes]] | None = None
        self._head = b""

    def until_id(self, given: list[tuple[bytes, bytes]]) -> bytes:
        """Return it up to the id of the request; `given` is what all answers have: a date, another one each second."""
        if given is not self._given:
            self._given = given
            lines = [name + b": " + value for name, value in (*given, *JSON_HEADERS)]
            self._head = b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"x-request-id: "])
        return self._head


def protocol(header_max_bytes: int, short: Callable[[Head, Connection], bool]) -> type[HttpToolsProtocol]:
    """Return the protocol of a connection. httptools by itself takes headers of any size, and keeps them.

    `short` takes a request the short way (`saros.api.short`), or says False.
    """

    heads = _Heads()

    class Bounded(HttpToolsProtocol):
        """Ends a connection whose request line and headers are too large, and knows the short way."""

        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self._in_head = self._in_message = self._refused = False
            self._head_bytes = 0  # received since the head began, at most; other requests' may be among them
            self._taken = b""  # the request that is on the short way
            self._behind = b""  # what came after it
            self._answered_s = 0.0  # when the last one was
            self._is_last = False

        def connection_made(self, transport: Any) -> None:
            """A connection begins."""
            self._write = transport.write
            super().connection_made(_Whole(transport))  # type: ignore[arg-type]

        def data_received(self, data: bytes) -> None:
            """Take bytes, which go the short way if nothing else is under way."""
            if self._taken:
                self._behind += data
                if len(self._behind) > header_max_bytes:
                    self.flow.pause_reading()
                return
            resting = not self._in_message and (self.cycle is None or self.cycle.response_complete)
            if resting and len(data) <= header_max_bytes and not self.flow.write_paused:
                head = read_head(data)
                if head is not None:
                    self._taken = data
                    if short(head, self):
                        return
                    self._taken = b""
            self._take_long(data)

        # --- the short way -------------------------------------------------------------------------------------------

        def answer(self, body: bytes, request_id: bytes) -> None:
            """Answer the request that went the short way."""
            self._taken = b""
            if self.transport.is_closing():
                return
            begin, last = heads.until_id(self.server_state.default_headers), b"connection: close\r\n"
            self._write(
                b"%b%b\r\ncontent-length: %d\r\n%b\r\n%b"
                % (begin, request_id, len(body), last if self._is_last else b"", body)
            )
            self.server_state.total_requests += 1
            self._answered_s = time.perf_counter()
            if self._is_last:
                self.transport.close()
            elif self.timeout_keep_alive_task is None:
                self._stay(self.timeout_keep_alive)
            if self._behind:
                data, self._behind = self._behind, b""
                self.flow.resume_reading()
                self.data_received(data)

        def go_long(self) -> None:
            """Let the request that went the short way go the other one, with what came after it."""
            data, self._taken, self._behind = self._taken + self._behind, b"", b""
            if not self.transport.is_closing():
                self._take_long(data)
                if self._is_last:
                    super().shutdown()

        def _stay(self, seconds: float) -> None:
            """Keep the connection for so long, if nothing comes."""
            self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

        def timeout_keep_alive_handler(self) -> None:
            """Hang up. A request on the short way does not set the clock anew: it is asked here when the last was."""
            left_s = self._answered_s + self.timeout_keep_alive - time.perf_counter()
            if self._taken or left_s > 0:
                self._stay(self.timeout_keep_alive if self._taken else left_s)
            else:
                super().timeout_keep_alive_handler()

        def shutdown(self) -> None:
            """End, but finish what is under way."""
            if self._taken:
                self._is_last = True
            else:
                super().shutdown()

        # --- the long way --------------------------------------------------------------------------------------------

        def _take_long(self, data: bytes) -> None:
            """Let the parser take bytes; those of a head that does not end must not become too many."""
            self._head_bytes = self._head_bytes + len(data) if self._in_head else len(data)
            super().data_received(data)
            if self._in_head and self._head_bytes > header_max_bytes and not self._refused:
                self._refuse(HEAD_TOO_LARGE, f"more than {header_max_bytes} bytes")

        def on_response_complete(self) -> None:
            """A response is out, or its head is all there is of it."""
            self.transport.flush()  # type: ignore[attr-defined]
            super().on_response_complete()

        def on_message_begin(self) -> None:
            """A request begins."""
            super().on_message_begin()
            self._in_head = self._in_message = True

        def on_headers_complete(self) -> None:
            """A request's head is here, maybe all at once: its size is looked at before anybody sees it."""
            self._in_head = False
            if self._head_bytes > header_max_bytes:
                size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
                if size > header_max_bytes:
                    self._refuse(HEAD_TOO_LARGE, f"{size} bytes, more than {header_max_bytes}")
            if not self._refused:
                super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            """Take a part of a body, but not of a request that was refused."""
            if not self._refused:
                super().on_body(body)

        def on_message_complete(self) -> None:
            """A request is here, but not one that was refused."""
            if not self._refused:
                self._in_message = False
                super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            """Answer bytes that are no HTTP."""
            if not self._refused:
                self._refuse(BAD_REQUEST, msg)

        def _refuse(self, kind: Kind, detail: str) -> None:
            self._refused = self._in_message = True
            body = ProblemError(kind, detail).body()
            head = (
                f"HTTP/1.1 {kind.status} {kind.title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.transport.close()

    return Bounded


class Server(uvicorn.Server):
    """A server that a second signal ends at once, and that tells when the end begins."""

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_end = on_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin the end: what would stay open for ever is ended first, or it would be waited for in vain."""
        self._on_end()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if self.should_exit:
            self.force_exit = True
        super().handle_exit(sig, frame)


def freeze() -> None:
    """Let the collector leave what is there alone, and come seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Before all else is begun: a port that is taken is the user's to mend."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise InputError(
            f"SAROS_API__HOST={host} and SAROS_API__PORT={port} cannot be listened at: {error.strerror}",
            "give an address of this machine, and a port that is free",
        ) from None
    return found


def new_server(app: App, header_max_bytes: int, on_end: Callable[[], None]) -> Server:
    """Return a server for an app, which is not running yet; `on_end` is called when it is told to end."""
    return Server(
        uvicorn.Config(
            app,
            loop="uvloop",
            http=protocol(header_max_bytes, app.short),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
        ),
        on_end,
    )


def _log_as_we_do() -> None:
    """Let uvicorn's errors be lines like ours. Its warnings are about what strangers send: there is no end of them."""
    theirs = logging.getLogger("uvicorn.error")
    theirs.handlers[:] = logging.getLogger("saros").handlers
    theirs.propagate = False
    theirs.setLevel(logging.ERROR)


def serve(server: Server, listener: socket.socket) -> None:
    """Serve until a signal comes; then finish what is in work, and return."""
    host, port = listener.getsockname()[:2]
    _log_as_we_do()
    log("api is listening", host=host, port=port)
    # uvicorn raises the signal again when it is done; that it was sent is no failure.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        server.run([listener])
    finally:
        listener.close()
        signal.signal(signal.SIGTERM, before)
