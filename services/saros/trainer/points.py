"""Named points of the loop, where a test may kill or stop the process: SAROS_TEST_KILL=<point>:<n> kills it at the
n-th time, SAROS_TEST_STOP=<point>:<n> stops it there, as if the machine slept, until it is sent SIGCONT.

    learned      a micro-batch is learned and its record not sent
    sent         it is sent and not read back
    accepted     it was read back and counts, and nothing of it is in the store
    flushed      its users are in the store
    between      users are written, or are being written; shards are about to be
    shard        one shard is written, others are not
    committing   all is written, the group does not know
    committed    the group knows
    following    in the middle of following the log to its end, at the start or when partitions were gained
    mending      in the middle of writing what counts and is not in the store, when a partition was gained

Without these variables a point does nothing.
"""

import os
import signal


def _asked(name: str) -> tuple[str, int]:
    point, _, times = os.environ.get(name, "").partition(":")
    return point, int(times or 1)


_left = {signal.SIGKILL: _asked("SAROS_TEST_KILL"), signal.SIGSTOP: _asked("SAROS_TEST_STOP")}


def reach(point: str) -> None:
    """Pass a point; die or stop there if a test wants it."""
    for number, (wanted, times) in _left.items():
        if point == wanted:
            _left[number] = wanted, times - 1
            if times == 1:
                signal.raise_signal(number)  # to this thread: it does not go on for a moment
