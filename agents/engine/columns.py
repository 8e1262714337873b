"""A diagram by columns, eight cells side by side, so that vector instructions score them at once.

Each score is added up in the order of :mod:`oda_rl.diagram`, so that all bits are the same. To keep
columns in step with a diagram that changes would cost more than they save: they are filled before a
stretch in which it does not change.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from oda_rl._types import FloatArray
from oda_rl.eights.columns import score
from oda_rl.eights.vectors import (
    FLOAT,
    NUMBA,
    WIDTH,
    WORD,
    aligned,
    bits_of,
    constant,
    everywhere,
    least_of,
    lesser,
    lowest,
)


def _scores(builder: Any, columns: Any, block: Any, point: Any) -> Any:
    """Score the cells of a block; what is NaN counts as infinite: it is never the least."""
    (d,) = NUMBA.unpack_tuple(builder, point.shape)
    first = builder.mul(block, builder.add(d, d.type(1)))
    return lesser(builder, score(builder, columns.data, first, point.data, d), constant(np.inf))


def _least(builder: Any, values: Any) -> tuple[Any, Any]:
    """Return the least of a block's scores, and which it is; the first of equals."""
    least = least_of(builder, values)
    equal = builder.fcmp_ordered("==", values, everywhere(builder, least))
    return least, lowest(builder, bits_of(builder, equal))


def _blocks(builder: Any, n_cells: Any) -> Any:
    return builder.lshr(builder.add(n_cells, WORD(WIDTH - 1)), WORD(WIDTH.bit_length() - 1))


@intrinsic
def _assigned(typing_context: Any, columns: Any, n_cells: Any, point: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table = context.make_array(columns)(context, builder, arguments[0])
        place = context.make_array(point)(context, builder, arguments[2])
        smallest, cell = _least(builder, _scores(builder, table, WORD(0), place))
        smallest = NUMBA.alloca_once_value(builder, smallest)
        cell = NUMBA.alloca_once_value(builder, cell)
        blocks = _blocks(builder, arguments[1])
        with NUMBA.for_range(builder, blocks, start=WORD(1)) as loop:
            least, which = _least(builder, _scores(builder, table, loop.index, place))
            less = builder.fcmp_ordered("<", least, builder.load(smallest))
            found = builder.add(builder.mul(loop.index, WORD(WIDTH)), which)
            builder.store(builder.select(less, found, builder.load(cell)), cell)
            builder.store(lesser(builder, least, builder.load(smallest)), smallest)
        return builder.load(cell)

    return types.intp(columns, types.intp, point), generate


@intrinsic
def _filled(typing_context: Any, columns: Any, diagram: Any, n_cells: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table = context.make_array(columns)(context, builder, arguments[0])
        rows = context.make_array(diagram)(context, builder, arguments[1])
        length = NUMBA.unpack_tuple(builder, rows.shape)[1]
        all_cells = builder.mul(_blocks(builder, arguments[2]), WORD(WIDTH))
        with (
            NUMBA.for_range(builder, all_cells) as cells,
            NUMBA.for_range(builder, length) as terms,
        ):
            k, j = cells.index, terms.index
            beyond = builder.icmp_signed(">=", k, arguments[2])
            first = builder.icmp_signed("==", j, WORD(0))
            nowhere = builder.select(first, FLOAT(np.inf), FLOAT(0.0))
            row = builder.select(beyond, WORD(0), k)
            place = builder.add(builder.mul(row, length), j)
            number = builder.load(builder.gep(rows.data, [place], inbounds=True))
            block, lane = builder.udiv(k, WORD(WIDTH)), builder.urem(k, WORD(WIDTH))
            to = builder.add(builder.mul(block, length), j)
            to = builder.add(builder.mul(to, WORD(WIDTH)), lane)
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
    return aligned(-(-capacity // WIDTH), 1 + n_features, WIDTH)
