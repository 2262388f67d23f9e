"""Tiles: sixteen rows of int8 codes laid out so that one vector instruction serves all of them.

A tile holds its rows in pairs of coordinates: the first two of row 0, the first two of row 1, … of row 15, then the
next two of row 0, and so on. A dot product with all sixteen rows then needs no sum across a register: each of sixteen
lanes gathers the sum of its own row. int8 is widened to int16, products of pairs are added to int32 (on x86 that is one
instruction, vpmaddwd; LLVM finds what there is on other machines). All of it is integers: the order does not matter.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from saros.core.lanes import LANES

PAIR = 2  # coordinates that lie side by side
TILE_BITS = 4  # a slot without its lowest four bits is its tile; they are its place there
assert 1 << TILE_BITS == LANES
_I32, _I64 = ir.IntType(32), ir.IntType(64)


def _add_pairs(_typing: Any, sums: Any, codes: Any, tile: Any, column: Any, pair: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        array = context.make_array(found.args[1])(context, builder, arguments[1])
        tile, column = (context.cast(builder, arguments[k], found.args[k], types.int64) for k in (2, 3))
        place = builder.gep(array.data, [builder.add(builder.mul(tile, builder.extract_value(array.shape, 1)), column)])
        count = PAIR * LANES
        narrow, middle, wide = (ir.VectorType(ir.IntType(bits), count) for bits in (8, 16, 32))
        codes = builder.load(builder.bitcast(place, narrow.as_pointer()), align=1)
        # The pair of the other side, in every lane.
        nothing = ir.Constant(ir.VectorType(_I32, LANES), ir.Undefined)
        first = builder.insert_element(
            nothing, context.cast(builder, arguments[4], found.args[4], types.int32), _I32(0)
        )
        same = builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))
        products = builder.mul(builder.sext(codes, wide), builder.sext(builder.bitcast(same, middle), wide))
        masks = (ir.Constant(ir.VectorType(_I32, LANES), list(range(k, count, PAIR))) for k in range(PAIR))
        one, other = (builder.shuffle_vector(products, ir.Constant(wide, ir.Undefined), mask) for mask in masks)
        return builder.add(arguments[0], builder.add(one, other))

    return sums(sums, codes, tile, column, pair), emit


def _bits(_typing: Any, truth: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        return builder.zext(builder.bitcast(arguments[0], ir.IntType(LANES)), _I64)

    return types.int64(truth), emit


def _lowest_bit(_typing: Any, word: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I64, ir.IntType(1)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.i64")
        word = context.cast(builder, arguments[0], found.args[0], types.int64)
        return builder.call(function, [word, ir.IntType(1)(0)])

    return types.int64(word), emit


_Function = Callable[..., Any]

# add_pairs(sums, codes, tile, column, pair): sums (int32 lanes) + the two codes of each row of the tile that begin at
# `column` of codes (int8[tiles, 16·coordinates]), times the two int16 in `pair` (an int32, the first in its low half).
add_pairs = cast(_Function, intrinsic(_add_pairs))
bits = cast(Callable[[Any], int], intrinsic(_bits))  # lanes that are true, as bits of a number
lowest_bit = cast(Callable[[int], int], intrinsic(_lowest_bit))  # the place of the lowest bit that is set
