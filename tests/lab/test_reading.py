"""Whole files: what they become, what happens to bad lines, and which files are refused."""

import io
import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from saros.core.events import CLICK, NEGATIVE
from saros.errors import InputError
from saros.lab import reading
from saros.lab.reading import EVENT_ENDINGS, LINE_MAX, RATING_ENDINGS, read, read_ratings
from tests.lab.files import BOM, CLICK_LINE, RATING_LINE, as_csv, assert_same, write
from tests.lab.logs import log_of


def refusal(path: str | Path) -> InputError:
    with pytest.raises(InputError) as raised:
        read(path)
    return raised.value


def test_standard_input_holds_events_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BOM + CLICK_LINE)))
    assert_same(read("-"), log_of([("ann", "click", ("alien",), 1000)], name="stdin"))
    assert not sys.stdin.closed
    assert refusal("-").message == "standard input is empty"


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".json", ".JSONL"])
def test_endings_of_events(tmp_path: Path, ending: str) -> None:
    assert read(write(tmp_path / f"a{ending}", CLICK_LINE)).sessions


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".dat", ".data", ".inter", ".txt", ".CSV"])
def test_endings_of_ratings(tmp_path: Path, ending: str) -> None:
    assert not read(str(write(tmp_path / f"a{ending}", RATING_LINE.replace(b",", b"::")))).sessions


def test_a_rating_counts_as_a_click_from_a_limit_on(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", *(b"ann,%d,%s\n" % (k, text) for k, text in enumerate((b"3.9", b"4", b"4.5", b"5")))
    )
    assert read(path).kind.tolist() == [NEGATIVE, CLICK, CLICK, CLICK]
    assert read(path, positive_from=4.5).kind.tolist() == [NEGATIVE, NEGATIVE, CLICK, CLICK]
    log, rating = read_ratings(path, positive_from=3)
    assert log.kind.tolist() == [CLICK] * 4
    assert rating.tolist() == [3.9, 4.0, 4.5, 5.0]


def test_long_files_are_numbered_as_short_ones(tmp_path: Path) -> None:
    count = 2 * reading._CHECK_EVERY + 7
    users, items = [f"u{k * k % 97}" for k in range(count)], [f"i{k * k % 1009}" for k in range(count)]
    lines = [(user, "click", (item,), 1000 * k) for k, (user, item) in enumerate(zip(users, items, strict=True))]
    assert_same(read(write(tmp_path / "log.csv", b"\n".join(as_csv(lines)))), log_of(lines, sessions=False))


@pytest.mark.parametrize(("bad", "good", "fine"), [(1, 99, True), (1, 98, False), (2, 198, True), (2, 197, False)])
def test_one_line_in_a_hundred_may_be_bad(tmp_path: Path, bad: int, good: int, fine: bool) -> None:
    # Neither the header nor blank lines count.
    path = write(tmp_path / "a.csv", b"\n\nuser,item,rating,ts\n", *[RATING_LINE, b"\n"] * good, *[b"a,b,x,1\n"] * bad)
    if fine:
        assert len(read(path).user) == good
        return
    error = refusal(path)
    first = 4 + 2 * good
    assert error.message == (
        f"{bad} of {bad + good} lines of {path} are bad, the first is line {first}: rating 'x' is not a number"
    )
    assert error.hint == "mend them; up to 1 % are skipped"


@pytest.mark.parametrize("bad", [100, 101])
def test_a_file_of_another_kind_is_refused_early(tmp_path: Path, bad: int) -> None:
    path = write(tmp_path / "a.jsonl", CLICK_LINE, *[b"{}\n"] * bad, *[CLICK_LINE] * 20_000)
    if bad == 100:
        assert len(read(path).user) == 20_001
    else:
        text = f"101 of the first 10000 lines of {path} are bad, the first is line 2: no kind"
        assert refusal(path).message == text


@pytest.mark.parametrize("content", [b"", b"\n \n", BOM, BOM + b"\n"])
@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_empty_files_are_refused(tmp_path: Path, content: bytes, ending: str) -> None:
    path = write(tmp_path / f"a{ending}", content)
    assert str(refusal(path)) == f"{path} is empty: give a file with one event or rating per line"


def test_a_header_alone_is_an_empty_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"user,item,rating\n")
    assert refusal(path).message == f"{path} is empty"


def test_a_header_that_lacks_a_column_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"user,film,rating\n", RATING_LINE)
    assert refusal(path).message == f"the header of {path} names no item, only 'user', 'film', 'rating'"


@pytest.mark.parametrize("line", [b"\xff" + CLICK_LINE, CLICK_LINE.replace(b"ann", b"\xed\xa0\x80")])
def test_what_is_not_utf_8_is_bad(tmp_path: Path, line: bytes) -> None:
    told: list[tuple[int, str]] = []
    read(write(tmp_path / "a.jsonl", line, *[CLICK_LINE] * 99), on_bad=lambda *what: told.append(what))
    assert told == [(1, "not UTF-8")]


@pytest.mark.parametrize(("size", "fine"), [(64, True), (65, False), (66, False), (130, False), (195, False)])
@pytest.mark.parametrize("start", [b"", BOM])
@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_lines_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, fine: bool, start: bytes, end: bytes
) -> None:
    monkeypatch.setattr(reading, "LINE_MAX", 64)
    long = start + RATING_LINE[:-1].rjust(size - len(start), b"x")
    first = write(tmp_path / "first.csv", long, end or b"\n", *[RATING_LINE] * 100)
    last = write(tmp_path / "last.csv", *[RATING_LINE] * 100, long, end)
    told: list[str] = []
    assert len(read(first, on_bad=lambda _, reason: told.append(reason)).user) == 100 + fine
    if not start:
        assert len(read(last, on_bad=lambda _, reason: told.append(reason)).user) == 100 + fine
    assert set(told) == (set() if fine else {"longer than 64 bytes"})


def test_a_line_without_end_takes_little_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", RATING_LINE, b"x" * (32 * LINE_MAX), b"\n", *[RATING_LINE] * 99)
    told: list[tuple[int, str]] = []
    tracemalloc.start()
    try:
        assert len(read(path, on_bad=lambda *what: told.append(what)).user) == 100
        assert tracemalloc.get_traced_memory()[1] < 5 * LINE_MAX
    finally:
        tracemalloc.stop()
    assert told == [(2, "longer than 1048576 bytes")]


def test_an_unknown_ending_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    error = refusal(write(tmp_path / "log.parquet", b"PAR1"))
    assert error.message == f"the ending of {tmp_path / 'log.parquet'} says nothing of what it holds"
    assert set(error.hint.removeprefix("known endings are ").split(", ")) == {*EVENT_ENDINGS, *RATING_ENDINGS}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "ml-10m"])
def test_files_that_are_missing_or_directories_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert str(refusal(path)) == f"there is no file {path}: give the path of a file that exists"
    path.mkdir()
    assert str(refusal(path)) == f"{path} is a directory: give a file in it"


def test_files_that_cannot_be_opened_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    assert refusal(loop).message.startswith(f"{loop} cannot be opened: ")
    assert refusal("a\0.csv").message == "a\0.csv cannot be opened: embedded null byte"

    def forbid(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    # By hand, since root may read everything.
    monkeypatch.setattr(reading, "open", forbid, raising=False)
    assert str(refusal("a.csv")) == "a.csv may not be read: allow it, or give another file"


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="a file that opens but cannot be read")
def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.symlink_to("/proc/self/mem")
    assert refusal(path).message == f"{path} cannot be read: Input/output error"


def test_what_a_caller_raises_for_a_bad_line_stops_the_reading(tmp_path: Path) -> None:
    def stop(line: int, reason: str) -> None:
        raise InputError(f"line {line}: {reason}", "mend it")

    with pytest.raises(InputError, match="line 2: no kind"):
        read(write(tmp_path / "a.jsonl", CLICK_LINE, b"{}\n"), on_bad=stop)


def test_movielens_100k(ml_100k: Path) -> None:
    told: list[int] = []
    log = read(ml_100k, on_bad=lambda line, _: told.append(line))
    assert told == []
    assert (log.name, log.sessions) == ("ml-100k", False)
    assert (len(log.user), len(log.users), len(log.items)) == (100_000, 943, 1_682)
    assert (log.kind == CLICK).sum() == 34_174 + 21_201  # its ratings of 4 and of 5


def test_movielens_1m(ml_1m: Path) -> None:
    told: list[int] = []
    log = read(ml_1m, on_bad=lambda line, _: told.append(line))
    assert told == []
    assert (log.name, log.sessions) == ("ml-1m", False)
    assert (len(log.user), len(log.users), len(log.items)) == (1_000_209, 6_040, 3_706)
    assert (log.kind == CLICK).sum() == 348_971 + 226_310  # its ratings of 4 and of 5
