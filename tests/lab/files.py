"""Logs as files: what `saros.lab.reading` is to read back."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from saros.lab.log import Log
from tests.lab.logs import Line

BOM = b"\xef\xbb\xbf"
CLICK_LINE = b'{"user": "ann", "item": "alien", "kind": "click", "time": 1}\n'
RATING_LINE = b"ann,alien,5,1\n"


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(lines))
    return path


def time_of(time_ms: int) -> float:
    """Return seconds where they can be told from milliseconds, else milliseconds."""
    return time_ms / 1000 if time_ms < 10**14 else time_ms


def as_events(lines: Sequence[Line]) -> list[bytes]:
    return [
        json.dumps({"user": user, "kind": kind, "items": items, "time": time_of(time_ms)}).encode()
        for user, kind, items, time_ms in lines
    ]


def as_csv(lines: Sequence[Line]) -> list[bytes]:
    """Return a header and a line for each rating: 4 counts as a click and 3.9 does not."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("timestamp", "userId", "movieId", "rating"))
    for user, kind, (item,), time_ms in lines:
        writer.writerow((repr(time_of(time_ms)), user, item, "4" if kind == "click" else "3.9"))
    return text.getvalue().encode().split(b"\n")[:-1]


def assert_same(got: Log, expected: Log) -> None:
    assert got.users == expected.users
    assert got.items == expected.items
    assert (got.name, got.sessions) == (expected.name, expected.sessions)
    for name in ("user", "kind", "time_ms", "start", "item"):
        column, wanted = getattr(got, name), getattr(expected, name)
        np.testing.assert_array_equal(column, wanted, err_msg=name)
        assert column.dtype == wanted.dtype, name
        assert column.flags.carray, f"{name} must be contiguous and writeable"
