"""A client that asks and asks: `python -m saros.lab.bench.load PORT FIRST COUNT CONNECTIONS`, prints a line of JSON.

It is connected when it prints an empty line, and begins when it is sent one: so that who measures a server leaves out
the time in which this process starts and ends.

Each connection has one request on its way and sends the next when the answer is there. It reads of an answer what it
must, so that it is lighter than any server: see `cpu_s` beside theirs.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import cast

import uvloop

_TIMEOUT_S = 60
_LENGTH = b"content-length: "


class Connection(asyncio.Protocol):
    """One connection, kept alive."""

    def __init__(self, asks: Iterator[bytes], took_s: list[float], done: "asyncio.Future[int]") -> None:
        """It asks until there is nothing more; `done` gets the number of answers from a user's own row."""
        self._asks, self._took_s, self._done = asks, took_s, done
        self._data, self._modelled = b"", 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait until all are connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is no subclass of it

    def ask(self) -> None:
        """Ask for the next."""
        request = next(self._asks, None)
        if request is None:
            self._done.set_result(self._modelled)
            self._transport.close()
            return
        self._start = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer; when it is whole, ask for the next."""
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        at = head.index(_LENGTH) + len(_LENGTH)
        if len(body) < int(head[at:].partition(b"\r")[0]):
            return
        self._took_s.append(time.perf_counter() - self._start)
        if not head.startswith(b"HTTP/1.1 200 "):
            self._fail(self._data.decode(errors="replace")[:500])
            return
        self._modelled += b'"source":"model"' in body
        self._data = b""
        self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        """The server hung up, or all is done."""
        if not self._done.done():
            self._fail(f"the connection was lost: {error}")

    def _fail(self, why: str) -> None:
        self._done.set_exception(RuntimeError(why))
        self._transport.close()


def told_to_begin() -> None:
    """Say that we could, and wait until we are told to."""
    sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stdin.readline()


async def run(port: int, first: int, count: int, width: int) -> dict[str, object]:
    """Ask for so many users in turn; return how long it took, and each."""
    loop, took_s, end = asyncio.get_running_loop(), list[float](), b"?k=10 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    asks = iter([b"GET /v1/users/user-%d/recommendations" % user + end for user in range(first, first + count)])
    done = [loop.create_future() for _ in range(width)]
    connections = [
        (await loop.create_connection(lambda each=each: Connection(asks, took_s, each), "127.0.0.1", port))[1]  # type: ignore[misc]
        for each in done
    ]
    told_to_begin()
    start, cpu_s = time.perf_counter(), time.process_time()
    for connection in connections:
        connection.ask()
    modelled = await asyncio.wait_for(asyncio.gather(*done), _TIMEOUT_S)
    seconds = time.perf_counter() - start
    assert len(took_s) == count, (len(took_s), count)
    return {
        "seconds": seconds, "cpu_s": time.process_time() - cpu_s, "modelled": sum(modelled),
        "took_ms": [round(1e3 * took, 3) for took in took_s],
    }  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(run(*map(int, sys.argv[1:])))) + "\n")
