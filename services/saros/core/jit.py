"""The one way kernels are compiled, and the array types they share.

A kernel takes arrays and scalars, never `self`; it releases the GIL and is cached on disk. Kernels check no bounds:
whoever calls one has checked its input.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
I8 = NDArray[np.int8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

LINE_BYTES = 64

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])

# Reordering sums lets dot products use vector registers. `nnan` and `ninf` stay out: with them NaN checks are false.
_REORDER = {"reassoc", "contract", "nsz", "arcp"}


# Kernels allocate nothing, so they run without numba's reference counts: the locked instructions cost more than most of
# the kernels' work, and twice the time to compile.
_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "_nrt": False}


def kernel(function: _Kernel) -> _Kernel:
    """Compile for exact IEEE arithmetic: every machine computes the same bits."""
    return cast(_Kernel, numba.njit(**_OPTIONS)(function))


def fast_kernel(function: _Kernel) -> _Kernel:
    """Compile with reordered sums: for values whose last bit nobody depends on."""
    return cast(_Kernel, numba.njit(**_OPTIONS, fastmath=_REORDER)(function))


def inline_kernel(function: _Kernel) -> _Kernel:
    """Compile into each caller: for small pieces of a hot loop, whose arguments would cost more than their work."""
    return cast(_Kernel, numba.njit(**_OPTIONS, inline="always")(function))


def merged_kernel(function: _Kernel) -> _Kernel:
    """Compile for exact arithmetic, to be merged into the machine code of each caller: for the parts of a hot path.

    A call hands over every array of every tuple, some hundred words, each time. (`inline_kernel` merges earlier, before
    types are known, and compiles longer.)
    """
    return cast(_Kernel, numba.njit(**_OPTIONS, forceinline=True)(function))


def allocating_kernel(function: _Kernel) -> _Kernel:
    """Compile a kernel that makes arrays of its own; not for hot paths."""
    return cast(_Kernel, numba.njit(**{**_OPTIONS, "_nrt": True})(function))


@kernel
def as_int(value: Any) -> int:
    """Return any integer as a signed 64-bit one: in a kernel, signed mixed with unsigned would become a float."""
    return np.int64(value)  # type: ignore[return-value]


def line_zeros(shape: int | tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    """Return zeros that begin with a pair of cache lines, so that rows lie on no more of them than they must.

    numpy begins 16 bytes into one: every vector of 64 bytes would then be read from two lines.
    """
    size = (shape if isinstance(shape, int) else math.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.zeros(size + 2 * LINE_BYTES, np.uint8)
    begin = -buffer.__array_interface__["data"][0] % (2 * LINE_BYTES)
    return buffer[begin : begin + size].view(dtype).reshape(shape)


def copy_columns(target: Iterable[NDArray[Any]], source: Iterable[NDArray[Any]]) -> None:
    """Copy columns into longer ones."""
    for column, before in zip(target, source, strict=True):
        column[: len(before)] = before
