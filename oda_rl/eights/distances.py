"""Squared Euclidean distances of points from others that are arranged by eights."""

from collections.abc import Callable
from typing import Any, cast

from numba.core import types
from numba.extending import intrinsic

from oda_rl._compile import sized
from oda_rl._sizes import of_sizes, of_width
from oda_rl._types import FloatArray, IntArray
from oda_rl.eights.three import first_of, third_of, within, work_out
from oda_rl.eights.vectors import NUMBA, VECTOR, WIDTH, constant, everywhere, least_of, read

n_features = 0  # of points: a constant in the loop below


def _measuring(reduced: Callable[[Any, Any], Any]) -> Any:
    """Return the intrinsic function that writes squares and returns something of the least ones."""

    @intrinsic
    def measured(typing_context: Any, columns: Any, points: Any, i: Any) -> Any:
        assert points.layout == columns.layout == "C"

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            table = context.make_array(columns)(context, builder, arguments[0])
            rows = context.make_array(points)(context, builder, arguments[1])
            length = NUMBA.unpack_tuple(builder, rows.shape)[1]
            point = builder.gep(rows.data, [builder.mul(arguments[2], length)], inbounds=True)
            total = NUMBA.alloca_once(builder, VECTOR)

            def square(first: Any, count: Any) -> Any:
                builder.store(constant(0.0), total)
                with NUMBA.for_range(builder, count) as loop:
                    number = builder.load(builder.gep(point, [loop.index], inbounds=True))
                    there = read(builder, table.data, builder.add(first, loop.index))
                    gap = builder.fsub(everywhere(builder, number), there)
                    builder.store(builder.fadd(builder.load(total), builder.fmul(gap, gap)), total)
                return builder.load(total)

            return reduced(builder, work_out(builder, table, square))

        return types.float64(columns, points, types.intp), generate

    return measured


squares_three = cast(Callable[[FloatArray, FloatArray, int], float], _measuring(third_of))
"""``squares_three(columns, points, i)`` writes the squares of point i, of which three are within
what it returns. For compiled code only, as the next."""

squares_all = cast(Callable[[FloatArray, FloatArray, int], float], _measuring(least_of))
"""``squares_all(columns, points, i)`` likewise; it returns the least."""


@sized
def nearest(points: FloatArray, columns: FloatArray, which: IntArray, squares: FloatArray) -> None:
    """Write which of others, by eights, points are nearest to, shape (n, d), and how near, (n,).

    The first of equals.
    """
    points, columns = of_width(points, n_features), of_sizes(columns, n_features + 1, WIDTH)
    for i in range(points.shape[0]):
        least = squares_all(columns, points, i)
        squares[i] = least
        for block in range(columns.shape[0]):
            found = within(columns, block, least)
            if found != 0:
                which[i] = WIDTH * block + first_of(found)
                break
