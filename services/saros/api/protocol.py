"""A connection: uvicorn's protocol on httptools, with limits on what a client may send and how long it may take.

httptools by itself takes heads, trailers and the extensions of chunks of any size, and keeps the former two; uvicorn
lets a client that has sent half a head keep its connection for ever. Here bytes that are no body are counted, trailers
are not kept, and who has the word, and does not come to the end of a head or of a body that nobody waits for any more,
is cut off. What is refused here is counted, logged and answered as all requests are.
"""

import time
from asyncio import TimerHandle
from typing import Any, ClassVar, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from saros.api.access import Headers, request_id_of
from saros.api.door import JSON_HEADERS
from saros.api.problems import BAD_REQUEST, HEAD_TOO_LARGE, MEDIA_TYPE, TIMEOUT, Kind, ProblemError
from saros.api.short import Connection, Head, read_head


class Served(Protocol):
    """What is behind the connections."""

    def short(self, head: Head, connection: Connection) -> bool:
        """Take a request the short way (`saros.api.short`), or say False."""

    def refused(
        self, status: int, seconds: float, headers: Headers, request_id: bytes, client: tuple[str, int] | None
    ) -> None:
        """Hear of bytes that were answered with an error, as they became no request."""


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


class Bounded(HttpToolsProtocol):
    """Ends a connection that is sent too much, or too slowly, and knows the short way."""

    app_behind: ClassVar[Served]
    header_max_bytes: ClassVar[int]
    header_timeout_s: ClassVar[float]
    heads: ClassVar[_Heads]

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._in_head = self._in_message = self._refused = False
        self._bytes = 0  # received since the head began or the last of a body came; others may be among them
        self._fed = 0  # came last
        self._ended = False  # a message did, with the bytes that came last
        self._begun_s = 0.0  # when the message began
        self._due: TimerHandle | None = None  # until when the client has to come to the end of what it has begun
        self._taken = b""  # the request that is on the short way
        self._behind = b""  # what came after it
        self._answered_s = 0.0  # when the last one was
        self._is_last = False

    def connection_made(self, transport: Any) -> None:
        """A connection begins; something has to come of it."""
        self._write = transport.write
        super().connection_made(_Whole(transport))  # type: ignore[arg-type]
        self._due = self.loop.call_later(self.header_timeout_s, self._be_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection has ended."""
        self._be_in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, which go the short way if nothing else is under way."""
        if self._taken:
            self._behind += data
            if len(self._behind) > self.header_max_bytes:
                self.flow.pause_reading()
            return
        resting = not self._in_message and (self.cycle is None or self.cycle.response_complete)
        if resting and len(data) <= self.header_max_bytes and not self.flow.write_paused:
            head = read_head(data)
            if head is not None:
                self._taken = data
                if self.app_behind.short(head, self):
                    self._be_in_time()
                    return
                self._taken = b""
        self._take_long(data)

    # --- the client has the word -------------------------------------------------------------------------------------

    def _be_in_time(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _look_after(self) -> None:
        """See to it that a client that has the word does not keep it for ever."""
        if self._refused or self.transport.is_closing() or not (self.cycle is None or self.cycle.response_complete):
            return
        if self._ended and not self._in_message:  # of a request that was answered before its end
            self._be_in_time()
            self._stay(self.timeout_keep_alive)
        elif self._due is None:
            self._due = self.loop.call_later(self.header_timeout_s, self._be_late)

    def _be_late(self) -> None:
        """Hang up on a client that has begun something and does not come to its end."""
        self._due = None
        if self._in_head:
            self._refuse(TIMEOUT, f"the head took more than {self.header_timeout_s:g} s")
        else:
            self.transport.close()

    def _stay(self, seconds: float) -> None:
        """Keep the connection for so long, if nothing comes."""
        self._unset_keepalive_if_required()
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

    # --- the short way -----------------------------------------------------------------------------------------------

    def answer(self, body: bytes, request_id: bytes) -> None:
        """Answer the request that went the short way."""
        self._taken = b""
        if self.transport.is_closing():
            return
        begin, last = self.heads.until_id(self.server_state.default_headers), b"connection: close\r\n"
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

    # --- the long way ------------------------------------------------------------------------------------------------

    def _take_long(self, data: bytes) -> None:
        """Let the parser take bytes; those that are no body must not become too many."""
        self._fed = len(data)
        self._bytes = self._bytes + self._fed if self._in_message else self._fed
        self._ended = False
        super().data_received(data)
        if self._in_message and self._bytes > self.header_max_bytes and not self._refused:
            where = "the head has" if self._in_head else "the body has, beside itself,"
            self._refuse(HEAD_TOO_LARGE, f"{where} more than {self.header_max_bytes} bytes")
        self._look_after()

    def on_response_complete(self) -> None:
        """A response is out, or its head is all there is of it."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()
        if self._in_message:
            self._look_after()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head = self._in_message = True
        self._begun_s = time.perf_counter()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; not one behind the body, where nobody looks for it any more."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A request's head is here, maybe all at once: its size is looked at before anybody sees it."""
        self._in_head = False
        self._be_in_time()
        if max(self._bytes, self._fed) > self.header_max_bytes:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self.header_max_bytes:
                self._refuse(HEAD_TOO_LARGE, f"{size} bytes, more than {self.header_max_bytes}")
        self._bytes = 0
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, but not of a request that was refused."""
        self._bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is here, but not one that was refused."""
        if not self._refused:
            self._in_message, self._ended = False, True
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP."""
        if not self._refused:
            self._refuse(BAD_REQUEST, msg)

    def _refuse(self, kind: Kind, detail: str) -> None:
        """Answer with an error, and hang up; only the latter where another answer has begun."""
        in_body, begun = self._in_message and not self._in_head, self._in_message
        self._refused = self._in_message = True
        self._be_in_time()
        headers = dict(self.headers) if begun else {}  # else they are those of the request before
        request_id = request_id_of(headers)
        if not (in_body and self.cycle is not None and self.cycle.response_started):
            body = ProblemError(kind, detail).body(request_id.decode())
            head = (
                f"HTTP/1.1 {kind.status} {kind.title}\r\ncontent-type: {MEDIA_TYPE}\r\ncache-control: no-store\r\n"
                f"x-request-id: {request_id.decode()}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
        seconds = time.perf_counter() - self._begun_s if begun else 0.0
        self.app_behind.refused(kind.status, seconds, headers, request_id, self.client)


def protocol(max_bytes: int, timeout_s: float, behind: Served) -> type[Bounded]:
    """Return the protocol of connections to an app; the limits are those of a request's head."""

    class Ours(Bounded):
        header_max_bytes, header_timeout_s, app_behind, heads = max_bytes, timeout_s, behind, _Heads()

    return Ours
