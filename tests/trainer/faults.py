"""What the tests break, and how long they do it: in `make test` shortly, with SAROS_TEST_FAULTS=1 at length.

SAROS_TEST_SEED repeats a run: the choices are the same, though not the moments.
"""

import os
import secrets
import subprocess
from pathlib import Path

from saros.adapters.redis import EmbeddedStore

LONG = os.environ.get("SAROS_TEST_FAULTS") == "1"
SEED = int(os.environ.get("SAROS_TEST_SEED") or (secrets.randbelow(1_000_000) if LONG else 0))
ONLY_LONG = "the long form: SAROS_TEST_FAULTS=1, as `make test-faults` does"


def aof_of(node: EmbeddedStore) -> Path:
    """The file that a server appends its writes to."""
    return max((node.data_dir / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)


def forget(node: EmbeddedStore, size: int) -> None:
    """Kill a server and take away what it wrote behind a place in its file; start it again."""
    node.kill()
    with aof_of(node).open("r+b") as file:
        file.truncate(min(size, file.seek(0, os.SEEK_END)))
    node.restart()


def ended(process: subprocess.Popen[bytes]) -> bool:
    """True if a trainer has given up, which it may only do because a server was away."""
    code = process.poll()
    assert code in (None, 1), code
    return code is not None
