"""A part of what runs: a `saros` command as a child process, whose words go to a file of bounded size."""

import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from saros import children

LOG_MAX_BYTES = 8 * 2**20  # of a log; one that was full is kept beside it
_TAIL_BYTES = 16_384


class Part:
    """One child."""

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str], logs: Path) -> None:
        self.name, self.log = name, logs / f"{name}.log"
        self._asked_s: float | None = None
        self.log.write_bytes(b"")
        # To its end, wherever that is: so the file can be cut while the child writes.
        with self.log.open("ab") as output:
            self._process = children.start([*children.SAROS, *command], output, environ)

    @property
    def pid(self) -> int:
        """The child's process."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.poll()

    def said(self) -> str:
        """Return the last of what it said."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return log.read().decode(errors="replace")

    def bound(self) -> None:
        """Let the log begin anew where it is full; what was written in that moment may be in neither file."""
        if self.log.stat().st_size > LOG_MAX_BYTES:
            shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
            os.truncate(self.log, 0)

    def ask(self) -> None:
        """Ask it to end, once."""
        if self._asked_s is None:
            self._asked_s = time.monotonic()
            self._process.send_signal(signal.SIGTERM)

    def end(self, wait_s: float) -> None:
        """Ask it to end, and return when it has; it is killed `wait_s` after it was asked first."""
        self.ask()
        assert self._asked_s is not None, "it was asked"
        children.end(self._process, None, max(0.0, self._asked_s + wait_s - time.monotonic()))
