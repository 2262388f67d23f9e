"""The HTTP server: uvicorn on uvloop and httptools, and an end that is in order."""

import gc
import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from saros.api.app import App
from saros.api.protocol import protocol
from saros.errors import InputError
from saros.telemetry import log

_GRACE_S = 4
_BACKLOG = 2048
_KEEP_ALIVE_S = 75  # longer than a proxy's own, so that it is never we who hang up on a request
# Collections that find nothing cost the hot route; what is there at the start stays anyway.
_GC = (50_000, 20, 50)


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
        found.listen(_BACKLOG)  # whoever comes before the loop runs waits for it, and is not refused
    except OSError as error:
        found.close()
        raise InputError(
            f"SAROS_API__HOST={host} and SAROS_API__PORT={port} cannot be listened at: {error.strerror}",
            "give an address of this machine, and a port that is free",
        ) from None
    return found


def new_server(app: App, header_max_bytes: int, header_timeout_s: float, on_end: Callable[[], None]) -> Server:
    """Return a server for an app, which is not running yet; `on_end` is called when it is told to end."""
    return Server(
        uvicorn.Config(
            app,
            loop="uvloop",
            http=protocol(header_max_bytes, header_timeout_s, app),
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
    # uvicorn raises the signal again when it is done; that it was sent is no failure. SIGHUP, with which others read
    # their settings again, says nothing here: the file of keys is looked at anyway.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        server.run([listener])
    finally:
        listener.close()
        for number, handler in before.items():
            signal.signal(number, handler)
