"""Lanes do, sixteen at a time, what numpy does; rows of any length come out as if each coordinate went by itself."""

import numpy as np
import pytest

from saros.core.jit import F32, F64, I32, I64, kernel, line_zeros
from saros.core.lanes import (
    LANES,
    as_f32,
    as_i32,
    bits_as_f32,
    bits_as_i32,
    first,
    highest,
    how_many,
    load,
    lowest,
    nearest,
    prefetch,
    rint,
    spread,
    sqrt,
    store,
    total,
    where,
)
from saros.core.rowmath import DOWN, add_row, copy_row, count_far, dot_row, learn_rows, lies_within, pull_row
from saros.core.rows import ONE

DIMS = [1, 2, 5, 15, 16, 17, 31, 33, 48, 63, 64, 65, 80, 128, 150]


@kernel
def _arithmetic(x: F32, y: F32, out: F32) -> None:
    one, other = load(x, 1, 3), load(y, 0, 0)
    store(out, 0, 0, one + other)
    store(out, 1, 0, one - other)
    store(out, 2, 0, one * other)
    store(out, 3, 0, one / other)
    store(out, 4, 0, 2.0 * one - other * 0.1)
    store(out, 5, 0, rint(one * 10.0))
    store(out, 6, 0, where(one < other, one, 7.0))
    store(out, 7, 0, sqrt(other))
    store(out, 8, 0, spread(np.float32(0.25)) + 0.5)
    store(out, 9, 0, bits_as_f32(bits_as_i32(one) & 0x7FFFFFFF))
    store(out, 10, 0, as_f32(as_i32(one * 100.0) >> 1))
    store(out, 11, 0, as_f32(nearest(one * 8.0)))


def test_arithmetic_is_that_of_float32() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 20)).astype(np.float32), rng.random((1, 16)).astype(np.float32) + 1
    out, one, other = np.zeros((12, 16), np.float32), x[1, 3:19], y[0]
    _arithmetic(x, y, out)
    expected = [one + other, one - other, one * other, one / other, np.float32(2) * one - other * np.float32(0.1)]
    expected += [np.rint(one * np.float32(10)), np.where(one < other, one, np.float32(7)), np.sqrt(other)]
    expected += [np.full(16, 0.75, np.float32), abs(one), (one * np.float32(100)).astype(np.int32) >> 1]
    expected += [np.rint(one * np.float32(8))]
    assert out.tolist() == np.array(expected, np.float32).tolist()


@kernel
def _counts(x: F32, y: F32, n: int, out: I64) -> None:
    one, other = load(x, 0, 0), load(y, 0, 0)
    out[0], out[1] = how_many(one < other), how_many((one <= other) & first(n))
    out[2], out[3] = how_many((one > other) | (one >= other)), how_many(first(n))


@pytest.mark.parametrize("n", [-3, 0, 1, 7, 16, 40])
def test_truths_are_counted(n: int) -> None:
    x, y, out = np.arange(16, dtype=np.float32), np.full(16, 7, np.float32), np.zeros(4, np.int64)
    _counts(x, y, n, out)
    assert out.tolist() == [7, min(8, max(0, n)), 9, min(16, max(0, n))]


@kernel
def _reduce(x: F64, out: F64) -> None:
    lanes = load(x, 0, 0)
    out[0], out[1], out[2] = total(lanes), highest(lanes), lowest(lanes)


def test_sums_go_by_halves() -> None:
    x, out = np.random.default_rng(0).normal(size=16), np.zeros(3)
    _reduce(x, out)
    added = x.copy()
    while len(added) > 1:
        added = added[: len(added) // 2] + added[len(added) // 2 :]
    assert out.tolist() == [added[0], x.max(), x.min()]


@kernel
def _ask(rows: I32) -> None:
    for k in range(rows.shape[0]):
        prefetch(rows, k)


def test_asking_for_rows_changes_nothing() -> None:
    rows = np.arange(300, dtype=np.int32).reshape(3, 100)
    _ask(rows)
    assert rows.ravel().tolist() == list(range(300))


@kernel
def _walk(rows: I32, u: F32, users: F32, slots: I32, pulls: F32, coef: np.float32, out: F64) -> None:
    out[0] = copy_row(users, 1, u, 0)
    out[1], wide = dot_row(rows, 1, u)
    out[2] = wide
    pull_row(users, 1, rows, slots, 1, pulls, 3)
    out[3] = lies_within(users, 1, np.float32(1.0))
    out[4] = add_row(rows, 1, u, 0, coef)


@pytest.mark.parametrize("dim", DIMS)
def test_rows_of_any_length_come_out_as_coordinate_by_coordinate(dim: int) -> None:
    rng = np.random.default_rng(dim)
    rows = (rng.normal(size=(5, dim)) * ONE).astype(np.int32)
    u = rng.normal(size=(1, dim)).astype(np.float32)
    users, pulls, out = line_zeros((3, dim), np.float32), rng.normal(size=16).astype(np.float32) * DOWN, np.zeros(5)
    slots, before, coef = np.array([9, 4, 0, 2, 9], np.int32), rows.copy(), np.float32(0.37)
    _walk(rows, u, users, slots, pulls, coef, out)
    values = before.astype(np.float32)
    assert out[0] == abs(u).max()
    assert out[1] == pytest.approx(float(u[0].astype(np.float64) @ before[1]) / ONE, rel=1e-5, abs=1e-6)
    expected = u[0].copy()
    for pull, slot in zip(pulls[:3], (4, 0, 2), strict=True):
        expected += values[slot] * pull
    assert users[1].tolist() == expected.tolist()
    assert not users[[0, 2]].any()
    assert out[3] == (abs(users[1]) <= 1.0).all()
    before[1] += np.rint(u[0] * np.float32(ONE) * coef).astype(np.int32)
    assert rows.tolist() == before.tolist()
    assert out[2] == out[4] == 0


@kernel
def _learn(users: F32, u: F32, rows: I32, slots: I32, pulls: F32, coefs: F32, far: I64) -> None:
    far[0] = learn_rows(users, 1, u, rows, slots, 1, pulls, coefs, 3)
    far[1] = count_far(rows, slots, 1, 3)


@kernel
def _learn_apart(users: F32, u: F32, rows: I32, slots: I32, pulls: F32, coefs: F32, far: I64) -> None:
    pull_row(users, 1, rows, slots, 1, pulls, 3)
    for k in range(3):
        far[1] += add_row(rows, slots[1 + k], u, 0, coefs[k])
    far[0] = far[1] > 0


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("reach", [1.0, 25.0])
def test_rows_learn_in_one_go_what_they_learn_apart(dim: int, reach: float) -> None:
    rng = np.random.default_rng(dim)
    rows, u = (rng.normal(size=(5, dim)) * reach * ONE).astype(np.int32), rng.normal(size=(1, dim)).astype(np.float32)
    users, pulls = np.repeat(u, 3, axis=0), rng.normal(size=16).astype(np.float32) * DOWN
    coefs, slots = rng.normal(size=16).astype(np.float32), np.array([9, 4, 0, 2, 9], np.int32)
    twins = [(users.copy(), rows.copy(), np.zeros(2, np.int64)) for _ in range(2)]
    for learn, (own, table, far) in zip((_learn, _learn_apart), twins, strict=True):
        learn(own, u, table, slots, pulls, coefs, far)
    for one, other in zip(*twins, strict=True):
        assert one.tolist() == other.tolist()
    assert twins[0][1][[1, 3]].tolist() == rows[[1, 3]].tolist()


@pytest.mark.parametrize("dim", [1, 16, 20])
@pytest.mark.parametrize("sign", [1, -1])
def test_far_coordinates_are_seen_wherever_they_are(dim: int, sign: int) -> None:
    for place in {0, dim // 2, dim - 1}:
        for size, wide, far in ((15, 0, 0), (17, 1, 0), (63, 1, 0), (65, 1, 1)):
            rows, u, users = (
                np.zeros((2, dim), np.int32),
                np.zeros((1, dim), np.float32),
                np.zeros((2, dim), np.float32),
            )
            rows[1, place], out = sign * size * ONE, np.zeros(5)
            _walk(rows, u, users, np.zeros(5, np.int32), np.zeros(16, np.float32), np.float32(0.0), out)
            assert out[[2, 4]].tolist() == [wide, far]


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.5, 1.5])
@pytest.mark.parametrize("place", [0, 15, 16, 19])
def test_what_is_no_number_lies_beyond_every_limit(value: float, place: int) -> None:
    u, out = np.zeros((1, 20), np.float32), np.zeros(5)
    u[0, place] = value
    arrays = (np.zeros((2, 20), np.int32), u, np.zeros((2, 20), np.float32), np.zeros(5, np.int32))
    _walk(*arrays, np.zeros(16, np.float32), np.float32(0.0), out)
    assert out[3] == 0


@pytest.mark.parametrize("shape", [16, (3, 5), (0, 4), (1000, 64)])
def test_rows_begin_on_cache_lines(shape: int | tuple[int, ...]) -> None:
    array = line_zeros(shape, np.float32)
    assert array.shape == (shape if isinstance(shape, tuple) else (shape,))
    assert array.flags.carray
    assert not array.any()
    assert array.size == 0 or array.__array_interface__["data"][0] % 128 == 0
    assert LANES == 16
