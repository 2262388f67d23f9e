"""Operations as one leave a store as those that went in do, and have no more in them than they need."""

import struct
from itertools import groupby

from hypothesis import example, given, settings
from hypothesis import strategies as st

from saros.wire.coalesce import coalesced
from saros.wire.operations import CLEAR, DROP, ERASE, KEEP, PUT, SET, read_operations
from tests.redo.store import Store

_USER, _NUMBER, _BYTES = st.integers(0, 3), st.integers(-1, 3), st.binary(max_size=9)


def value_of(flags: int, row: bytes, state: bytes) -> bytes:
    return bytes([flags]) + struct.pack("<H", len(row)) + row + state


def with_value(code: int, user: int, value: bytes, *number: int) -> bytes:
    return struct.pack("<BQ", code, user) + b"".join(struct.pack("<i", n) for n in number) + _sized(value)


def _sized(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def bare(code: int, user: int, *number: int) -> bytes:
    return struct.pack("<BQ", code, user) + b"".join(struct.pack("<i", n) for n in number)


_FLAGS = st.integers(0, 3)
OPERATION = st.one_of(
    st.builds(lambda u, *v: with_value(SET, u, value_of(*v)), _USER, _FLAGS, _BYTES, _BYTES),
    st.builds(lambda u, f, s: with_value(KEEP, u, bytes([f]) + s), _USER, _FLAGS, _BYTES),
    st.builds(lambda u, n, v: with_value(PUT, u, v, n), _USER, _NUMBER, _BYTES),
    st.builds(lambda u, n: bare(DROP, u, n), _USER, _NUMBER),
    st.builds(bare, st.sampled_from([CLEAR, ERASE]), _USER),
)


@settings(max_examples=400)
@given(st.lists(OPERATION, max_size=6), st.lists(OPERATION, max_size=20))
@example([], [])
@example([with_value(SET, 1, value_of(1, b"row!", b"old"))], [bare(ERASE, 1), with_value(KEEP, 1, b"\0new")])
@example([], [with_value(SET, 1, value_of(0, b"row!", b"old")), bare(CLEAR, 1), with_value(KEEP, 1, b"\1new")])
def test_a_store_ends_the_same(before: list[bytes], operations: list[bytes]) -> None:
    one_by_one, at_once = Store(), Store()
    for store in (one_by_one, at_once):
        store.do(b"".join(before))
    one_by_one.do(b"".join(operations))
    less = coalesced(b"".join(operations))
    at_once.do(less)
    assert at_once.users == one_by_one.users
    assert at_once.entries() == one_by_one.entries()
    _check_least(less, {user for _, user, _, _ in read_operations(b"".join(operations))})


def _check_least(data: bytes, users: set[int]) -> None:
    """Each user once, with at most one end, one value, and one word on each entry."""
    groups = [(user, list(each)) for user, each in groupby(read_operations(data), key=lambda one: one[1])]
    assert sorted(user for user, _ in groups) == sorted(users)
    for _, each in groups:
        codes = [code for code, *_ in each]
        assert sum(code in (CLEAR, ERASE) for code in codes) <= 1
        assert sum(code in (SET, KEEP) for code in codes) <= 1
        numbers = [number for code, _, number, _ in each if code in (PUT, DROP)]
        assert len(set(numbers)) == len(numbers)


def test_many_entries_of_many_users() -> None:
    operations = [with_value(PUT, user, b"%d" % n, n) for n in range(50) for user in range(40)]
    operations += [bare(DROP, user, n) for user in range(40) for n in range(25)]
    store = Store()
    store.do(coalesced(b"".join(operations)))
    assert store.entries() == {user: {n: b"%d" % n for n in range(25, 50)} for user in range(40)}
