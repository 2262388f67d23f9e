"""Child processes that do not outlive the one that starts them, even where that is killed.

A shell beside each waits for the end of a pipe which this process holds, and then kills the child. (Linux has a signal
for this, but it is sent when the thread that started the child ends, and macOS has none.)
"""

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import IO

# The command line, wherever its script was put. (-P: what lies in the directory we are in is not imported.)
SAROS = (sys.executable, "-P", "-m", "saros")

# The shell becomes the program, but first leaves a child that waits for the end of standard input.
_GUARDED = 'exec 3<&0; (read -r _ <&3; kill -9 $$) & exec "$@" 3<&- </dev/null'


def start(
    command: Sequence[str], output: IO[bytes], environ: Mapping[str, str] | None = None, keep: Collection[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a program that writes all it says to `output`; open files in `keep` are handed on to it."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARDED, "sh", *command],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environ,
        pass_fds=tuple(keep),
        start_new_session=True,  # so that Ctrl-C ends us first, and that there is a group to kill
    )


def end(process: subprocess.Popen[bytes], number: signal.Signals | None, wait_s: float) -> None:
    """Send a child a signal, unless it was sent one before, and return when it has ended: by itself within `wait_s`, or
    by being killed."""
    if number is not None:
        process.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
    # The guard, and the program if it did not listen.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None, "the guard's pipe"
    process.stdin.close()


def last_words(what: str, said: str, lines: int = 20) -> str:
    """Return what happened to a child, with the last lines of what it said."""
    return "\n".join([f"{what}; its last words:", *said.splitlines()[-lines:]])
