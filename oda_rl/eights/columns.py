"""Rows of numbers as columns of blocks, and what is worked out of each eight of them."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from oda_rl._types import FloatArray
from oda_rl.eights.three import third_of, work_out
from oda_rl.eights.vectors import (
    NUMBA,
    VECTOR,
    WIDTH,
    aligned,
    everywhere,
    least_of,
    read,
)


def by_eights(rows: FloatArray) -> FloatArray:
    """Return rows, shape (K, m), as columns of blocks, shape (blocks, m + 1, 8).

    What is left of the last block is NaN. The last row of each block is room for the eight numbers
    that are worked out of the others.
    """
    n, m = rows.shape
    blocks = -(-n // WIDTH)
    columns, filled = aligned(blocks, m + 1, WIDTH), np.full((blocks * WIDTH, m), np.nan)
    filled[:n] = rows
    columns[:, :m] = filled.reshape(blocks, WIDTH, m).transpose(0, 2, 1)
    return columns


def score(builder: Any, columns: Any, first: Any, point: Any, d: Any) -> Any:
    """Generate code that scores a point by the affine functions of the block that begins there.

    Each score is added up in the order of :mod:`oda_rl.diagram`.
    """
    total = NUMBA.alloca_once(builder, VECTOR)
    builder.store(read(builder, columns, first), total)
    with NUMBA.for_range(builder, d) as loop:
        number = builder.load(builder.gep(point, [loop.index], inbounds=True))
        slopes = builder.add(first, builder.add(loop.index, loop.index.type(1)))
        part = builder.fmul(read(builder, columns, slopes), everywhere(builder, number))
        builder.store(builder.fadd(builder.load(total), part), total)
    return builder.load(total)


def _scoring(reduced: Callable[[Any, Any], Any]) -> Any:
    """Return the intrinsic function that writes scores and returns something of the least ones."""

    @intrinsic
    def scored(typing_context: Any, columns: Any, point: Any) -> Any:
        assert point.layout == columns.layout == "C"

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            table = context.make_array(columns)(context, builder, arguments[0])
            numbers = context.make_array(point)(context, builder, arguments[1]).data

            def of_block(first: Any, count: Any) -> Any:
                d = builder.sub(count, count.type(1))
                return score(builder, table.data, first, numbers, d)

            return reduced(builder, work_out(builder, table, of_block))

        return types.float64(columns, point), generate

    return scored


score_three = cast(Callable[[FloatArray, FloatArray], float], _scoring(third_of))
"""``score_three(columns, point)`` writes the scores of a point, shape (d or more,); three of them
are within what it returns. For compiled code only, as the next."""

score_all = cast(Callable[[FloatArray, FloatArray], float], _scoring(least_of))
"""``score_all(columns, point)`` likewise; it returns the least."""
