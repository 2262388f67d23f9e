"""Named points of the loop, where a test may kill the process: SAROS_TEST_KILL=<point>:<n> kills it at the n-th time.

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

Without that variable a point does nothing.
"""

import os
import signal

_point, _, _times = os.environ.get("SAROS_TEST_KILL", "").partition(":")
_left = int(_times or 1)


def reach(point: str) -> None:
    """Pass a point; die there if a test wants it."""
    global _left
    if point != _point:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
