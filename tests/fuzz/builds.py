"""One decoder, built three times, and what an input is put through: all builds and the twin must make the same of it.

Plain: every kernel is the Python it is written in. atheris sees into it, and a read outside the buffer raises, be it
before its start. Checked: compiled with bounds checked, the hashes too. Real: what users run; it also decodes each
input in the middle of a larger buffer, once among zeros and once among ones, so no byte around it may have a say.

A build imports the kernels' modules afresh while `numba.njit` is another function; nobody else sees these modules.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import saros
from saros.core.ids import siphash
from saros.core.jit import I32, I64, U8, U64
from saros.wire import columns, decode
from saros.wire.columns import Decoded
from saros.wire.rare import read_rare
from tests.naive import wire as naive
from tests.wire.test_decode import KEY, SCENARIOS, WORDS, agree, rows_of

AROUND = 64  # bytes before and behind an input in the larger buffer
STALE = 77  # stands in all columns before they are filled

Function = Callable[..., Any]
Change = Callable[[Function], Function]


class OutsideError(Exception):
    """A byte outside the buffer was read."""


class DisagreementError(Exception):
    """Two decoders make different things of the same bytes."""


class Input(NamedTuple):
    """What one run of the fuzzer decodes. Message k came from partition k, modulo their number; 0: nobody asks."""

    messages: list[bytes]
    partitions: int

    @classmethod
    def of(cls, data: bytes) -> "Input":
        """Take any bytes: the first says how many messages there are, and partitions; then the lengths of all but the
        last, then the messages."""
        how = data[0] if data else 0
        count = how % 3 + 1
        messages, rest = [], data[count:]
        for length in data[1:count]:
            messages.append(rest[:length])
            rest = rest[length:]
        return cls([*messages, rest], how // 3 % 3)

    def to_bytes(self) -> bytes:
        """Return the bytes that this is made of."""
        how = len(self.messages) - 1 + 3 * self.partitions
        return bytes([how, *map(len, self.messages[:-1])]) + b"".join(self.messages)


class Watched:
    """A buffer for plain Python that cannot be read outside. numpy would take what is before its start from its end."""

    def __init__(self, array: U8) -> None:
        self.array, self.data = array, array.tobytes()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, at: int) -> int:
        if not 0 <= at < len(self.data):
            raise OutsideError(f"byte {at} of {len(self.data)} was read")
        return self.data[at]


def array_of(data: bytes) -> U8:
    """Return bytes as the decoder takes them."""
    return np.frombuffer(data, np.uint8)


def watched_siphash(k0: np.uint64, k1: np.uint64, buffer: Watched, start: int, end: int) -> np.uint64:
    """Hash with the compiled kernel, as Python takes a millisecond for an id; the checked build looks into it."""
    if not 0 <= start <= end <= len(buffer):
        raise OutsideError(f"bytes {start} to {end} of {len(buffer)} were hashed")
    return siphash(k0, k1, buffer.array, start, end)


def careless(span: Function) -> Function:
    """Return `span` without its question whether so many bytes are there."""
    length_at: Function = span.__globals__["_short_varint"]

    def beyond(buffer: Any, at: int, end: int) -> tuple[int, int]:
        length, at = length_at(buffer, at, end)
        return (0, -1) if at < 0 else (at, at + length)

    return beyond


def watching(decode_all: Function) -> Function:
    """Return the outermost kernel with its buffer watched."""
    return lambda buffer, *others: decode_all(Watched(buffer), *others)


# `as_int`, as atheris follows comparisons of Python's own numbers only.
PLAIN: dict[str, Change] = {"as_int": lambda _: int, "siphash": lambda _: watched_siphash, "_decode": watching}
BROKEN: dict[str, Change] = {"span": careless}


@dataclass(frozen=True)
class Build:
    """A decoder with its kernels."""

    module: ModuleType = decode

    def decode(self, whole: bytes, bounds: I64, partition: I32, partitions: int) -> Decoded:
        """Decode into columns that are short, so they must grow, and full of what is left of others."""
        decoder = self.module.Decoder(KEY, partitions, SCENARIOS)
        decoder._out = Decoded.empty(1, 16)
        for column in decoder._out:
            column.fill(STALE)
        with np.errstate(over="ignore"):  # hashes overflow on purpose
            found: Decoded = decoder.decode(array_of(whole), bounds, partition)
        return found


@contextmanager
def _fresh_modules() -> Iterator[None]:
    """Import core and wire anew in here, and put back in the end what was there before.

    The columns stay one class, without kernels: numba takes ten times longer for calls with two of the same name.
    """

    def ours() -> list[str]:
        return [name for name in sys.modules if f"{name}.".startswith(("saros.core.", "saros.wire."))]

    modules = {name: sys.modules.pop(name) for name in ours()}
    sys.modules[columns.__name__] = columns
    try:
        with mock.patch.dict(vars(saros)):
            yield
    finally:
        for name in ours():
            del sys.modules[name]
        sys.modules.update(modules)


def _build(njit: Function) -> Build:
    """Build with another `numba.njit`."""
    numba = importlib.import_module("numba")  # saros says where kernels are kept, and has to be imported before
    kept = os.environ["NUMBA_CACHE_DIR"] + "-checked"
    with mock.patch.object(numba, "njit", njit), mock.patch.object(numba.config, "CACHE_DIR", kept), _fresh_modules():
        return Build(importlib.import_module("saros.wire.decode"))


def plain(changes: dict[str, Change] = PLAIN, instrument: Change = lambda function: function) -> Build:
    """Build of plain Python, with some kernels changed."""

    def build(function: Function) -> Function:
        change = changes.get(function.__name__)
        return change(instrument(function)) if change else instrument(function)

    return _build(lambda **_: build)


def checked() -> Build:
    """Build where an index outside an array raises IndexError."""
    compiled = importlib.import_module("numba").njit
    return _build(lambda **options: compiled(**{**options, "boundscheck": True}))


def _columns(found: Decoded, offset: int) -> dict[str, bytes]:
    """Return all columns but the scratch, with places counted from an offset."""
    filled = found._asdict()
    del filled["fields"]
    for name in ("first", "end", "item_first", "item_end"):
        filled[name] = filled[name] - offset
    return {name: column.tobytes() for name, column in filled.items()}


@dataclass(frozen=True)
class Harness:
    """All that an input is put through."""

    plain: Build
    checked: Build
    real: Build = field(default_factory=Build)

    def __post_init__(self) -> None:
        """Compile, before somebody takes the time."""
        self.run(b"")

    def run(self, data: bytes) -> None:
        """Raise if anything outside the buffer is read or has a say, or if two decoders disagree."""
        messages, partitions = Input.of(data)
        whole = b"".join(messages)
        bounds = np.cumsum([0, *map(len, messages)]).astype(np.int64)
        partition = np.arange(len(messages), dtype=np.int32) % np.int32(max(partitions, 1))
        wanted = _columns(self.plain.decode(whole, bounds, partition, partitions), 0)
        self._same("checked", wanted, self.checked.decode(whole, bounds, partition, partitions), 0)
        for filling in (b"\x00", b"\xff"):
            around = filling * AROUND
            found = self.real.decode(around + whole + around, bounds + AROUND, partition, partitions)
            self._same(f"real, among {filling!r},", wanted, found, AROUND)
        found = self.real.decode(whole, bounds, partition, partitions)
        self._same("real", wanted, found, 0)
        read_rare(array_of(whole), found, partition, partitions)
        self._as_the_twin(messages, partition, partitions, found)

    @staticmethod
    def _same(build: str, wanted: dict[str, bytes], found: Decoded, offset: int) -> None:
        """Require the same columns, byte by byte."""
        filled = _columns(found, offset)
        wrong = [name for name in wanted if filled[name] != wanted[name]]
        if wrong:
            raise DisagreementError(f"the {build} build fills other columns than plain Python: {', '.join(wrong)}")

    @staticmethod
    def _as_the_twin(messages: list[bytes], partition: I32, partitions: int, found: Decoded) -> None:
        """Require what protobuf's own decoder and plain rules make of the messages."""
        twin = naive.Wire(WORDS, partitions, SCENARIOS)
        wanted = [(k, row) for k, part in enumerate(messages) for row in twin.message(part, int(partition[k]))]
        rows = rows_of(messages, found)
        if [message for message, _ in rows] != [message for message, _ in wanted]:
            raise DisagreementError(f"rows of other messages than the twin's: {rows} and {wanted}")
        for row, ((_, mine), (_, other)) in enumerate(zip(rows, wanted, strict=True)):
            if not agree(mine, other):
                raise DisagreementError(f"the twin has another row {row}: {mine} and {other}")
            items: U64 = found.item[found.start[row] : found.start[row + 1]]
            if not mine.reason and items.tolist() != [twin.hash(item) for item in mine.items]:
                raise DisagreementError(f"the twin has other hashes of items in row {row}")
