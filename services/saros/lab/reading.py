"""Files to logs: events as JSON Lines, and ratings as tables (MovieLens, RecBole, CSV).

Invariants:

- A bad line leaves no trace: users and items are numbered by first appearance among the good lines. Each bad line is
  reported with its number and a reason; when more than 1 % are bad, the file is refused.
- Whatever the bytes are, the answer is a log or an InputError, and memory grows with the good lines only.
"""

import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from saros.core.events import CLICK, NEGATIVE
from saros.core.jit import F64, U8
from saros.errors import InputError
from saros.lab.lines import Entry, Parser, RatingParser, parse_event
from saros.lab.log import Log

EVENT_ENDINGS = (".jsonl", ".ndjson", ".json")
RATING_ENDINGS = (".inter", ".csv", ".tsv", ".dat", ".data", ".txt")
POSITIVE_FROM = 4.0
LINE_MAX = 1 << 20  # bytes

_ONE_BAD_IN = 100  # lines
_CHECK_EVERY = 10_000  # lines: a huge file of another kind is refused soon
_BOM = b"\xef\xbb\xbf"

OnBad = Callable[[int, str], None]


class Rated(NamedTuple):
    """A log of ratings, and the ratings themselves."""

    log: Log
    rating: F64  # [n] of each event


def ignore(line: int, reason: str) -> None:
    """Let a bad line pass without a word."""


def read(path: str | Path, *, positive_from: float = POSITIVE_FROM, on_bad: OnBad = ignore) -> Log:
    """Return the log in a file: events or ratings, by its ending. `-` is standard input and holds events.

    A rating of at least `positive_from` counts as a click, any other as a negative. `on_bad` is told the number and the
    reason of each bad line.
    """
    if str(path) == "-":
        return _read_events("-", "standard input", "stdin", on_bad)
    if Path(path).suffix.lower() in EVENT_ENDINGS:
        return _read_events(path, str(path), Path(path).stem, on_bad)
    return read_ratings(path, positive_from=positive_from, on_bad=on_bad).log


def read_ratings(
    path: str | Path, *, positive_from: float = POSITIVE_FROM, on_bad: OnBad = ignore, called: str | None = None
) -> Rated:
    """Return the log in a rating file, and its ratings; `called` is what errors call the file if not by its path."""
    called, ending = called or str(path), Path(path).suffix.lower()
    with opened(path) as file:
        # Asked only now: a misspelt name is no file at all, and that is the better answer.
        if ending not in RATING_ENDINGS:
            known = ", ".join(EVENT_ENDINGS + RATING_ENDINGS)
            raise InputError(f"the ending of {called} says nothing of what it holds", f"known endings are {known}")
        columns = _collect(file, called, RatingParser(called, ending), on_bad)
    rating = np.array(columns.value, np.float64)
    kind = np.where(rating >= positive_from, CLICK, NEGATIVE).astype(np.uint8)
    return Rated(columns.log(Path(path).stem, kind, sessions=False), rating)


def _read_events(path: str | Path, called: str, name: str, on_bad: OnBad) -> Log:
    with opened(path) as file:
        columns = _collect(file, called, parse_event, on_bad)
    return columns.log(name, np.array(columns.value).astype(np.uint8), sessions=True)


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`; when that cannot be done, an InputError says why."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb", buffering=1 << 18)  # noqa: SIM115 (closed below: errors inside the block are not ours)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", "give the path of a file that exists") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory", "give a file in it") from None
    except PermissionError:
        raise InputError(f"{path} may not be read", "allow it, or give another file") from None
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        raise InputError(f"{path} cannot be opened: {why(error)}", "give another file") from None
    with file:
        yield file


def why(error: OSError | ValueError) -> str:
    """Return the reason alone, without number and path."""
    return getattr(error, "strerror", None) or str(error)


class _Numbers(dict[str, int]):
    """Numbers texts in the order in which they are first asked for."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class _Columns:
    """The columns of a log as they grow.

    Entries wait in lists and are numbered and packed many at once, which takes a fraction of the time.
    """

    def __init__(self) -> None:
        self._users, self._items = _Numbers(), _Numbers()
        self._user, self._time_ms = array("i"), array("q")
        self._start, self._item = array("q", [0]), array("i")
        self.value = array("d")  # the kind of an event, or else the rating
        self._waiting: tuple[list[str], list[float], list[int], list[str], list[int]] = ([], [], [], [], [])

    def add(self, entry: Entry) -> None:
        user, value, time_ms, items = entry
        users, values, times_ms, all_items, sizes = self._waiting
        users.append(user)
        values.append(value)
        times_ms.append(time_ms)
        all_items.extend(items)
        sizes.append(len(items))

    def pack(self) -> None:
        users, values, times_ms, items, sizes = self._waiting
        self._user.extend(map(self._users.__getitem__, users))
        self.value.extend(values)
        self._time_ms.extend(times_ms)
        self._item.extend(map(self._items.__getitem__, items))
        self._start.extend(accumulate(sizes, initial=self._start.pop()))
        for column in self._waiting:
            column.clear()

    def log(self, name: str, kind: U8, sessions: bool) -> Log:
        return Log(
            name=name,
            users=list(self._users),
            items=list(self._items),
            user=np.array(self._user, np.int32),
            kind=kind,
            time_ms=np.array(self._time_ms, np.int64),
            start=np.array(self._start, np.int64),
            item=np.array(self._item, np.int32),
            sessions=sessions,
        )


def _collect(file: BinaryIO, called: str, parse: Parser, on_bad: OnBad) -> _Columns:
    """Parse all lines, and refuse the file when too many of them are bad."""
    columns, seen, bad, first_bad = _Columns(), 0, 0, ""
    try:
        for number, line in _lines(file):
            try:
                entry = parse(_text(line))
                if entry is None:
                    continue
                columns.add(entry)
            except ValueError as error:
                on_bad(number, str(error))
                bad, first_bad = bad + 1, first_bad or f"line {number}: {error}"
            seen += 1
            if seen % _CHECK_EVERY == 0:
                _check_share(bad, seen, f"the first {seen} lines of {called}", first_bad)
                columns.pack()
    except OSError as error:
        raise InputError(f"{called} cannot be read: {why(error)}", "give another file") from None
    _check_share(bad, seen, f"{seen} lines of {called}", first_bad)
    if not seen:
        raise InputError(f"{called} is empty", "give a file with one event or rating per line")
    columns.pack()
    return columns


def _check_share(bad: int, seen: int, lines: str, first_bad: str) -> None:
    if bad * _ONE_BAD_IN > seen:
        raise InputError(f"{bad} of {lines} are bad, the first is {first_bad}", "mend them; up to 1 % are skipped")


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of each line that is not blank; None stands for a line that is too long."""
    number = 0
    while line := file.readline(LINE_MAX + 1):
        number += 1
        if len(line) > LINE_MAX and not line.endswith(b"\n"):
            while len(line) > LINE_MAX and not line.endswith(b"\n"):
                line = file.readline(LINE_MAX + 1)
            yield number, None
            continue
        if number == 1:
            line = line.removeprefix(_BOM)
        if line and not line.isspace():
            yield number, line


def _text(line: bytes | None) -> str:
    if line is None:
        raise ValueError(f"longer than {LINE_MAX} bytes")
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
