"""Which three cells states are nearest to, and how much of each they are.

Eight distances at a time are vector instructions. The least of each of the eight lanes are
distances of eight cells, of which the third is a bound: few others are within it, and only those
are compared one by one.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from oda_rl._compile import compiled, integer
from oda_rl._types import FloatArray
from oda_rl.agents.engine.vectors import (
    BITS,
    NUMBA,
    VECTOR,
    WIDTH,
    aligned,
    bits_of,
    constant,
    everywhere,
    greater,
    halves,
    lesser,
    lowest,
    read,
    write,
)
from oda_rl.agents.fitting.action_codevectors import Near, Weights

_LEAST_WEIGHT = 1e-4


class Search(NamedTuple):
    """K codevectors, arranged for a search of the nearest three."""

    columns: FloatArray
    """Shape (blocks, d, 8); what is left of the last block is infinitely far."""
    squares: FloatArray
    """Room for distances, shape (8 blocks,)."""
    width: float
    """Within which cells are blended."""

    @classmethod
    def among(cls, codevectors: FloatArray, width: float) -> "Search":
        """Arrange codevectors, shape (K, d)."""
        n, d = codevectors.shape
        blocks = -(-n // WIDTH)
        rows = np.full((blocks * WIDTH, d), np.inf)
        rows[:n] = codevectors
        columns = aligned(blocks, d, WIDTH)
        columns[:] = rows.reshape(blocks, WIDTH, d).transpose(0, 2, 1)
        return cls(columns, aligned(blocks * WIDTH), width)


def _third(builder: Any, least: Any) -> Any:
    """Return the third least number of a vector of eight.

    Both halves of what is left have their first two, or three, in order, and are merged.
    """
    low, high = halves(builder, least)
    one, two = lesser(builder, low, high), greater(builder, low, high)
    (a, b), (c, d) = halves(builder, one), halves(builder, two)
    first, second = lesser(builder, a, b), lesser(builder, greater(builder, a, b), c)
    second = lesser(builder, second, d)
    third = lesser(builder, greater(builder, a, d), greater(builder, b, c))
    (a, b), (c, d), (e, f) = (halves(builder, each) for each in (first, second, third))
    third = lesser(builder, greater(builder, a, d), greater(builder, b, c))
    third = lesser(builder, third, lesser(builder, e, f))
    return builder.extract_element(third, BITS(0))


@intrinsic
def _measured(typing_context: Any, points: Any, i: Any, columns: Any, squares: Any) -> Any:
    assert points.layout == columns.layout == "C"

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, table, room = (
            context.make_array(kind)(context, builder, arguments[which])
            for kind, which in ((points, 0), (columns, 2), (squares, 3))
        )
        blocks, d, _ = NUMBA.unpack_tuple(builder, table.shape)
        point = builder.gep(row.data, [builder.mul(arguments[1], d)], inbounds=True)
        least = NUMBA.alloca_once_value(builder, constant(np.inf))
        total = NUMBA.alloca_once(builder, VECTOR)
        builder.store(constant(np.inf), least)
        with NUMBA.for_range(builder, blocks) as block:
            builder.store(constant(0.0), total)
            first = builder.mul(block.index, d)
            with NUMBA.for_range(builder, d) as loop:
                number = builder.load(builder.gep(point, [loop.index], inbounds=True))
                there = read(builder, table.data, builder.add(first, loop.index))
                gap = builder.fsub(everywhere(builder, number), there)
                builder.store(builder.fadd(builder.load(total), builder.fmul(gap, gap)), total)
            found = builder.load(total)
            builder.store(lesser(builder, found, builder.load(least)), least)
            write(builder, found, room.data, block.index)
        return _third(builder, builder.load(least))

    return types.float64(points, types.intp, columns, squares), generate


@intrinsic
def _compared(typing_context: Any, squares: Any, block: Any, bound: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        room = context.make_array(squares)(context, builder, arguments[0])
        found = read(builder, room.data, arguments[1])
        within = builder.fcmp_ordered("<=", found, everywhere(builder, arguments[2]))
        return bits_of(builder, within)

    return types.int64(squares, types.intp, types.float64), generate


@intrinsic
def _lowest(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return lowest(builder, arguments[0])

    return types.intp(types.int64), generate


measure = cast(Callable[[FloatArray, int, FloatArray, FloatArray], float], _measured)
"""``measure(points, i, columns, squares)`` writes how far row i is from all cells, squared.

Returns a bound, which at least three of these are within, if there are so many. For compiled code
only.
"""

_within = cast(Callable[[FloatArray, int, float], int], _compared)
_first_of = cast(Callable[[int], int], _lowest)


@compiled
def assign_three(points: FloatArray, search: Search, cells: Near, weights: Weights) -> None:
    """Write the three nearest cells of points, shape (n, d), and their weights, both (n, 3).

    Of cells as near as each other those of lower numbers count. Weights below 1e-4 are 0, and the
    others not divided by their sum then.
    """
    columns, squares, width = search
    assert points.shape[1] == columns.shape[1]
    for i in range(points.shape[0]):
        bound = measure(points, i, columns, squares)
        first, second, third = integer(0), integer(0), integer(0)
        a, b, c = np.inf, np.inf, np.inf
        for block in range(columns.shape[0]):
            left = _within(squares, block, bound)
            while left != 0:
                k = WIDTH * block + _first_of(left)
                left &= left - 1
                value = squares[k]
                if value < c:
                    if value < b:
                        third, c = second, b
                        if value < a:
                            second, b = first, a
                            first, a = k, value
                        else:
                            second, b = k, value
                    else:
                        third, c = k, value
        near, far = math.exp((a - b) / width), math.exp((a - c) / width)
        total = 1.0 + near + far
        cells[i, 0], cells[i, 1], cells[i, 2] = first, second, third
        weights[i, 0] = 1.0 / total
        weights[i, 1] = near / total if near > _LEAST_WEIGHT * total else 0.0
        weights[i, 2] = far / total if far > _LEAST_WEIGHT * total else 0.0
