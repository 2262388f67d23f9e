"""Sixteen numbers at once: a vector type for the hot loops of step and fold.

Left alone, a compiler asks before every short loop whether its arrays overlap and how much is left over, which at 16 to
64 coordinates costs more than the loop; and it sums in an order that depends on the machine. With lanes the order is
written down: every machine computes the same bits, however wide its registers (LLVM cuts lanes into what there is).

In a kernel, `load` gives lanes, `store` takes them, and between the two they are numbers: + - * / < > and so on work
lane by lane, a plain number standing for sixteen of them. Nothing is fused or reordered. Lanes never leave a kernel.
"""

import operator
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

from saros.core.jit import LINE_BYTES

LANES = 16
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_Any = NDArray[Any]


class Lanes(types.Type):  # type: ignore[misc]
    """The type of sixteen numbers of one kind."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        super().__init__(name=f"Lanes({kind})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    """Lanes are one LLVM vector; truths are lanes of single bits."""

    def __init__(self, manager: Any, lanes: Lanes) -> None:
        bit = lanes.kind == types.boolean
        super().__init__(
            manager, lanes, ir.VectorType(ir.IntType(1) if bit else manager[lanes.kind].get_value_type(), LANES)
        )


# --- arithmetic ------------------------------------------------------------------------------------------------------


def _spread(context: Any, builder: Any, value: Any, given: Any, kind: Any) -> Any:
    """Return a plain number as lanes of a kind; lanes stay what they are."""
    if isinstance(given, Lanes):
        return value
    value = context.cast(builder, value, given, kind)
    nothing = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    mask = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    return builder.shuffle_vector(builder.insert_element(nothing, value, _I32(0)), nothing, mask)


def _register(function: Any, of_floats: Callable[..., Any], of_ints: Callable[..., Any], compares: bool) -> None:
    """Teach numba an operator on lanes, or on lanes and a plain number."""

    @infer_global(function)
    class _Template(AbstractTemplate):  # type: ignore[misc]
        def generic(self, given: Any, named: Any) -> Any:
            kinds = [kind.kind for kind in given if isinstance(kind, Lanes)]
            if len(given) != 2 or not kinds or len(set(kinds)) > 1:
                return None
            return signature(Lanes(types.boolean if compares else kinds[0]), *given)

    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        kind = next(given.kind for given in found.args if isinstance(given, Lanes))
        values = [_spread(context, builder, *pair, kind) for pair in zip(arguments, found.args, strict=True)]
        return (of_floats if isinstance(kind, types.Float) else of_ints)(builder, *values)

    for pair in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(function, *pair)(emit)


def _compare(sign: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return (
        lambda builder, one, other: builder.fcmp_ordered(sign, one, other),
        lambda builder, one, other: builder.icmp_signed(sign, one, other),
    )


def _named(floats: str, ints: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return (
        lambda builder, one, other: getattr(builder, floats)(one, other),
        lambda builder, one, other: getattr(builder, ints)(one, other),
    )


for _function, _pair, _compares in (
    (operator.add, _named("fadd", "add"), False),
    (operator.sub, _named("fsub", "sub"), False),
    (operator.mul, _named("fmul", "mul"), False),
    (operator.truediv, _named("fdiv", "sdiv"), False),
    (operator.and_, _named("and_", "and_"), False),
    (operator.or_, _named("or_", "or_"), False),
    (operator.xor, _named("xor", "xor"), False),
    (operator.lshift, _named("shl", "shl"), False),
    (operator.rshift, _named("ashr", "ashr"), False),
    (operator.lt, _compare("<"), True),
    (operator.le, _compare("<="), True),
    (operator.gt, _compare(">"), True),
    (operator.ge, _compare(">="), True),
):
    _register(_function, *_pair, _compares)


# --- memory ----------------------------------------------------------------------------------------------------------


def _place(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
    """Return the address of array[row, column], the first three arguments; a one-dimensional array has row 0 only."""
    array = context.make_array(found.args[0])(context, builder, arguments[0])
    row, column = (context.cast(builder, arguments[k], found.args[k], types.int64) for k in (1, 2))
    length = builder.extract_value(array.shape, 1) if found.args[0].ndim == 2 else _I64(0)
    return builder.gep(array.data, [builder.add(builder.mul(row, length), column)])


def _load(_typing: Any, array: Any, row: Any, column: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        place = _place(context, builder, found, arguments)
        vector = ir.VectorType(place.type.pointee, LANES).as_pointer()
        return builder.load(builder.bitcast(place, vector), align=1)

    return Lanes(array.dtype)(array, row, column), emit


def _store(_typing: Any, array: Any, row: Any, column: Any, lanes: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        place = _place(context, builder, found, arguments)
        builder.store(arguments[3], builder.bitcast(place, arguments[3].type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(array, row, column, lanes), emit


def _ask(builder: Any, place: Any) -> None:
    """Ask for the cache line of a place: for reading, into all cache levels, as data."""
    pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
    builder.call(function, [builder.bitcast(place, pointer), _I32(0), _I32(3), _I32(1)])


def _prefetch(_typing: Any, array: Any, row: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        length = builder.extract_value(context.make_array(found.args[0])(context, builder, arguments[0]).shape, 1)
        size = context.get_abi_sizeof(context.get_data_type(found.args[0].dtype))
        first = _place(context, builder, types.void(*found.args, types.int64), [*arguments, _I64(0)])
        step = _I64(LINE_BYTES // size)
        with cgutils.for_range_slice(builder, _I64(0), length, step, _I64, True) as (at, _):
            _ask(builder, builder.gep(first, [at]))
        return context.get_dummy_value()

    return types.void(array, row), emit


def _prefetch_at(_typing: Any, array: Any, row: Any, column: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        _ask(builder, _place(context, builder, found, arguments))
        return context.get_dummy_value()

    return types.void(array, row, column), emit


# --- lanes by themselves ---------------------------------------------------------------------------------------------


def _spread_out(_typing: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        return _spread(context, builder, arguments[0], found.args[0], found.args[0])

    return Lanes(value)(value), emit


def _converted(kind: Any, given: Any, name: str) -> Any:
    """Type and emit a conversion of lanes to another kind."""

    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        vector = ir.VectorType(context.get_value_type(kind), LANES)
        return getattr(builder, name)(arguments[0], vector)

    return Lanes(kind)(given), emit


def _as_f32(_typing: Any, lanes: Any) -> Any:
    return _converted(types.float32, lanes, "sitofp")


def _as_i32(_typing: Any, lanes: Any) -> Any:
    return _converted(types.int32, lanes, "fptosi")


def _nearest(_typing: Any, lanes: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VectorType(_I32, LANES), [arguments[0].type])
        name = f"llvm.lrint.v{LANES}i32.v{LANES}f32"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    return Lanes(types.int32)(lanes), emit


def _bits_as_f32(_typing: Any, lanes: Any) -> Any:
    return _converted(types.float32, lanes, "bitcast")


def _bits_as_i32(_typing: Any, lanes: Any) -> Any:
    return _converted(types.int32, lanes, "bitcast")


def _math(name: str) -> Any:
    """Return the typing and emitting of one of LLVM's functions of a number."""

    def typed(_typing: Any, lanes: Any) -> Any:
        def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
            suffix = f"v{LANES}f{lanes.kind.bitwidth}"
            kind = ir.FunctionType(arguments[0].type, [arguments[0].type])
            function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.{suffix}")
            return builder.call(function, arguments)

        return lanes(lanes), emit

    return typed


def _where(_typing: Any, truth: Any, one: Any, other: Any) -> Any:
    kind = (one if isinstance(one, Lanes) else other).kind

    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        values = [_spread(context, builder, arguments[k], found.args[k], kind) for k in (1, 2)]
        return builder.select(arguments[0], *values)

    return Lanes(kind)(truth, one, other), emit


def _first(_typing: Any, count: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        count = context.cast(builder, arguments[0], found.args[0], types.int32)
        numbers = ir.Constant(ir.VectorType(_I32, LANES), list(range(LANES)))
        return builder.icmp_signed("<", numbers, _spread(context, builder, count, types.int32, types.int32))

    return Lanes(types.boolean)(count), emit


def _how_many(_typing: Any, truth: Any) -> Any:
    def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], ir.IntType(LANES))
        return builder.zext(builder.ctpop(bits), _I64)

    return types.int64(truth), emit


def _reduced(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Return the typing and emitting of all lanes combined, halves first."""

    def typed(_typing: Any, lanes: Any) -> Any:
        def emit(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
            vector, width = arguments[0], LANES // 2
            while width:
                nothing, kind = ir.Constant(vector.type, ir.Undefined), ir.VectorType(_I32, width)
                masks = [ir.Constant(kind, list(range(k, k + width))) for k in (0, width)]
                vector = combine(builder, *(builder.shuffle_vector(vector, nothing, mask) for mask in masks))
                width //= 2
            return builder.extract_element(vector, _I32(0))

        return lanes.kind(lanes), emit

    return typed


def _outdoing(sign: str) -> Callable[[Any, Any, Any], Any]:
    """Return how the higher or the lower of two is chosen."""
    return lambda builder, one, other: builder.select(builder.fcmp_ordered(sign, one, other), one, other)


_Function = Callable[..., Any]

# load(array, row, column): array[row, column:column + 16]; store(array, row, column, lanes) writes it.
load, store = cast(_Function, intrinsic(_load)), cast(_Function, intrinsic(_store))
# prefetch(array, row): ask for all cache lines of array[row]. Where tables are large, what a kernel needs in a moment
# is rarely in a cache, and a processor that mispredicts forgets what it was about to load.
prefetch = cast(Callable[[_Any, Any], None], intrinsic(_prefetch))
prefetch_at = cast(Callable[[_Any, Any, Any], None], intrinsic(_prefetch_at))  # the line of array[row, column] only
spread = cast(_Function, intrinsic(_spread_out))  # one number in all lanes
as_f32, as_i32 = (cast(_Function, intrinsic(x)) for x in (_as_f32, _as_i32))
bits_as_f32, bits_as_i32 = (cast(_Function, intrinsic(x)) for x in (_bits_as_f32, _bits_as_i32))
nearest = cast(_Function, intrinsic(_nearest))  # of float32 lanes within int32: rint, as whole numbers
rint, sqrt = (cast(_Function, intrinsic(_math(name))) for name in ("rint", "sqrt"))
where = cast(_Function, intrinsic(_where))  # where(truth, one, other)
first = cast(_Function, intrinsic(_first))  # first(n): true in the first n lanes
how_many = cast(_Function, intrinsic(_how_many))  # lanes that are true
total = cast(_Function, intrinsic(_reduced(lambda builder, one, other: builder.fadd(one, other))))
highest, lowest = (cast(_Function, intrinsic(_reduced(_outdoing(sign)))) for sign in (">", "<"))
