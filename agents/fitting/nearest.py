"""Which three cells states are nearest to, and how much of each they are."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from numba.core import types
from numba.extending import intrinsic

from oda_rl._compile import sized
from oda_rl._sizes import of_sizes, of_width
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.fitting.action_codevectors import Near, Weights
from oda_rl.eights.columns import by_eights
from oda_rl.eights.three import third_of, three_within, work_out
from oda_rl.eights.vectors import NUMBA, VECTOR, WIDTH, constant, everywhere, read

_LEAST_WEIGHT = 1e-4

n_features = 0  # of points: a constant in the loop below


class Search(NamedTuple):
    """K codevectors, arranged for a search of the nearest three."""

    columns: FloatArray
    """As :func:`by_eights` has them; what is left of the last block is near to nothing."""
    width: float
    """Within which cells are blended."""

    @classmethod
    def among(cls, codevectors: FloatArray, width: float) -> "Search":
        """Arrange codevectors, shape (K, d)."""
        return cls(by_eights(codevectors), width)


@intrinsic
def _measured(typing_context: Any, columns: Any, points: Any, i: Any) -> Any:
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

        return third_of(builder, work_out(builder, table, square))

    return types.float64(columns, points, types.intp), generate


_measure = cast(Callable[[FloatArray, FloatArray, int], float], _measured)


@sized
def assign_three(
    points: FloatArray, search: Search, rows: IntArray, cells: Near, weights: Weights
) -> None:
    """Write the three nearest cells of points, shape (n, d), and their weights, to rows of (m, 3).

    Of cells as near as each other those of lower numbers count. Weights below 1e-4 are 0, and the
    others not divided by their sum then.
    """
    columns, width = search
    points, columns = of_width(points, n_features), of_sizes(columns, n_features + 1, WIDTH)
    for i in range(points.shape[0]):
        bound = _measure(columns, points, i)
        first, second, third, a, b, c = three_within(columns, bound)
        near, far = math.exp((a - b) / width), math.exp((a - c) / width)
        total = 1.0 + near + far
        row = rows[i]
        cells[row, 0], cells[row, 1], cells[row, 2] = first, second, third
        weights[row, 0] = 1.0 / total
        weights[row, 1] = near / total if near > _LEAST_WEIGHT * total else 0.0
        weights[row, 2] = far / total if far > _LEAST_WEIGHT * total else 0.0
