"""A diagram by columns, eight cells side by side, so that vector instructions score them at once.

Each score is added up in the order of :mod:`oda_rl.diagram`, so that all bits are the same. To keep
columns in step with a diagram that changes would cost more than they save: they are filled before a
stretch in which it does not change.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from oda_rl._types import FloatArray

WIDTH = 8  # cells of a block

_numba: Any = cgutils  # of which numba does not tell the types
_BITS, _WORD, _FLOAT = ir.IntType(32), ir.IntType(64), ir.DoubleType()


def _vector(values: list[float]) -> Any:
    return ir.Constant(ir.VectorType(_FLOAT, len(values)), [_FLOAT(value) for value in values])


def _picked(builder: Any, vector: Any, lanes: list[int]) -> Any:
    """Return the vector of some elements of another."""
    nothing = ir.Constant(vector.type, ir.Undefined)
    mask = ir.Constant(ir.VectorType(_BITS, len(lanes)), [_BITS(lane) for lane in lanes])
    return builder.shuffle_vector(vector, nothing, mask)


def _everywhere(builder: Any, number: Any) -> Any:
    nothing = ir.Constant(ir.VectorType(_FLOAT, WIDTH), ir.Undefined)
    return _picked(builder, builder.insert_element(nothing, number, _BITS(0)), [0] * WIDTH)


def _lesser(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", one, other), one, other)


def _scores(builder: Any, columns: Any, block: Any, point: Any) -> Any:
    """Score the cells of a block; what is NaN counts as infinite: it is never the least."""
    (count,) = _numba.unpack_tuple(builder, point.shape)
    length = builder.add(count, count.type(1))
    first = builder.mul(builder.mul(block, length), block.type(WIDTH))
    room = ir.VectorType(_FLOAT, WIDTH).as_pointer()
    rows = builder.bitcast(builder.gep(columns.data, [first], inbounds=True), room)
    total = _numba.alloca_once_value(builder, builder.load(rows, align=8))
    with _numba.for_range(builder, count) as loop:
        place = builder.add(loop.index, loop.index.type(1))
        slope = builder.load(builder.gep(rows, [place], inbounds=True), align=8)
        number = builder.load(builder.gep(point.data, [loop.index], inbounds=True))
        part = builder.fmul(slope, _everywhere(builder, number))
        builder.store(builder.fadd(builder.load(total), part), total)
    return _lesser(builder, builder.load(total), _vector([np.inf] * WIDTH))


def _least(builder: Any, values: Any) -> tuple[Any, Any]:
    """Return the least of a block's scores, and which it is; the first of equals."""
    least = values
    for width in (4, 2, 1):
        halves = (_picked(builder, least, list(range(i, i + width))) for i in (0, width))
        least = _lesser(builder, *halves)
    least = builder.extract_element(least, _BITS(0))
    equal = builder.fcmp_ordered("==", values, _everywhere(builder, least))
    bits = builder.zext(builder.bitcast(equal, ir.IntType(WIDTH)), _WORD)
    return least, builder.cttz(bits, ir.IntType(1)(1))


def _blocks(builder: Any, n_cells: Any) -> Any:
    return builder.lshr(builder.add(n_cells, _WORD(WIDTH - 1)), _WORD(WIDTH.bit_length() - 1))


@intrinsic
def _assigned(typing_context: Any, columns: Any, n_cells: Any, point: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table = context.make_array(columns)(context, builder, arguments[0])
        place = context.make_array(point)(context, builder, arguments[2])
        smallest, cell = _least(builder, _scores(builder, table, _WORD(0), place))
        smallest = _numba.alloca_once_value(builder, smallest)
        cell = _numba.alloca_once_value(builder, cell)
        blocks = _blocks(builder, arguments[1])
        with _numba.for_range(builder, blocks, start=_WORD(1)) as loop:
            least, which = _least(builder, _scores(builder, table, loop.index, place))
            less = builder.fcmp_ordered("<", least, builder.load(smallest))
            found = builder.add(builder.mul(loop.index, _WORD(WIDTH)), which)
            builder.store(builder.select(less, found, builder.load(cell)), cell)
            builder.store(_lesser(builder, least, builder.load(smallest)), smallest)
        return builder.load(cell)

    return types.intp(columns, types.intp, point), generate


@intrinsic
def _filled(typing_context: Any, columns: Any, diagram: Any, n_cells: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table = context.make_array(columns)(context, builder, arguments[0])
        rows = context.make_array(diagram)(context, builder, arguments[1])
        length = _numba.unpack_tuple(builder, rows.shape)[1]
        all_cells = builder.mul(_blocks(builder, arguments[2]), _WORD(WIDTH))
        with (
            _numba.for_range(builder, all_cells) as cells,
            _numba.for_range(builder, length) as terms,
        ):
            k, j = cells.index, terms.index
            beyond = builder.icmp_signed(">=", k, arguments[2])
            first = builder.icmp_signed("==", j, _WORD(0))
            nowhere = builder.select(first, _FLOAT(np.inf), _FLOAT(0.0))
            row = builder.select(beyond, _WORD(0), k)
            place = builder.add(builder.mul(row, length), j)
            number = builder.load(builder.gep(rows.data, [place], inbounds=True))
            block, lane = builder.udiv(k, _WORD(WIDTH)), builder.urem(k, _WORD(WIDTH))
            to = builder.add(builder.mul(block, length), j)
            to = builder.add(builder.mul(to, _WORD(WIDTH)), lane)
            number = builder.select(beyond, nowhere, number)
            builder.store(number, builder.gep(table.data, [to], inbounds=True))
        return context.get_dummy_value()

    return types.void(columns, diagram, types.intp), generate


fill_columns = cast(Callable[[FloatArray, FloatArray, int], None], _filled)
"""``fill_columns(columns, diagram, n_cells)`` takes over the first cells of a diagram.

What is left of the last block is nearest to no point. For compiled code only.
"""

assign_in_columns = cast(Callable[[FloatArray, int, FloatArray], int], _assigned)
"""``assign_in_columns(columns, n_cells, point)``: the cell of one point, shape (d,) exactly.

The first of equals. For compiled code only.
"""


def new_columns(capacity: int, n_features: int) -> FloatArray:
    """Return room for a diagram of so many cells, shape (blocks, 1 + d, 8)."""
    shape = -(-capacity // WIDTH), 1 + n_features, WIDTH
    room = np.zeros(math.prod(shape) + WIDTH)
    begin = -room.ctypes.data // room.itemsize % WIDTH  # so that no row is in two cache lines
    return room[begin : begin + math.prod(shape)].reshape(shape)
