"""Which three cells states are nearest to, and how much of each they are."""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import integer, sized, spliced
from oda_rl._sizes import of_sizes, of_width
from oda_rl._types import Float32Array, FloatArray, IntArray
from oda_rl.agents.fitting.action_codevectors import Near, Weights
from oda_rl.eights.columns import by_eights
from oda_rl.eights.distances import squares_three
from oda_rl.eights.three import first_of, none_yet, three_with, within
from oda_rl.eights.vectors import WIDTH

_LEAST_WEIGHT = 1e-4
_ROUNDING = 2.0**-19  # 32 u: twice what two squares may be off together
_SMALLEST = 1e-40  # what is less is rounded to multiples of 1.4e-45, and added up

n_features = 0  # of points: a constant in the loop below


class Search(NamedTuple):
    """K codevectors, arranged for a search of the nearest three."""

    columns: FloatArray
    """As :func:`by_eights` has them; what is left of the last block is near to nothing."""
    singles: Float32Array
    """The same, rounded."""
    single: Float32Array
    """Room for a rounded point, shape (1, d)."""
    width: float
    """Within which cells are blended."""

    @classmethod
    def among(cls, codevectors: FloatArray, width: float) -> "Search":
        """Arrange codevectors, shape (K, d)."""
        with np.errstate(over="ignore"):
            singles = codevectors.astype(np.float32)
        room = np.empty((1, codevectors.shape[1]), dtype=np.float32)
        return cls(by_eights(codevectors), by_eights(singles), room, width)


@spliced
def _bound(third: float, points: FloatArray, i: int) -> float:
    """Return within which the squares of the nearest three cells are, rounded as they may be.

    ``third``, T, is such a square: three are not greater. Rounding to single precision, u = 2⁻²⁴,
    moves point and cell by u (2 |x| + 2 √T), and adding up takes u (d + 1) T. So no square is off
    by more than 8 u (|x|² + (d + 8) T), neither T nor that of a cell that is as near.
    """
    size, d = 0.0, points.shape[1]
    for j in range(d):
        size += points[i, j] * points[i, j]
    bound: float = third + _ROUNDING * (size + (d + 8) * third) + _SMALLEST
    return bound


@spliced
def _square(columns: FloatArray, block: int, lane: int, points: FloatArray, i: int) -> float:
    total = 0.0
    for j in range(points.shape[1]):
        gap = points[i, j] - columns[block, j, lane]
        total += gap * gap
    return total


@sized
def assign_three(
    points: FloatArray, search: Search, rows: IntArray, cells: Near, weights: Weights
) -> None:
    """Write the three nearest cells of points, shape (n, d), and their weights, to rows of (m, 3).

    Of cells as near as each other those of lower numbers count. Weights below 1e-4 are 0, and the
    others not divided by their sum then.

    All cells are looked through in single precision, in half the time; those that may be among the
    three, which are seldom more, in double precision.
    """
    columns, singles, single, width = search
    points, columns = of_width(points, n_features), of_sizes(columns, n_features + 1, WIDTH)
    singles, single = of_sizes(singles, n_features + 1, WIDTH), of_width(single, n_features)
    for i in range(points.shape[0]):
        for j in range(n_features):
            single[0, j] = points[i, j]
        bound = _bound(squares_three(singles, single, 0), points, i)
        unbounded = integer(0 if bound < np.inf else 255)  # NaN too: rounding has left nothing
        three = none_yet()
        for block in range(columns.shape[0]):
            left = within(singles, block, bound) | unbounded
            while left != 0:
                lane = first_of(left)
                left &= left - 1
                square = _square(columns, block, lane, points, i)
                three = three_with(three, WIDTH * block + lane, square)
        first, second, third, a, b, c = three
        near, far = math.exp((a - b) / width), math.exp((a - c) / width)
        total = 1.0 + near + far
        row = rows[i]
        cells[row, 0], cells[row, 1], cells[row, 2] = first, second, third
        weights[row, 0] = 1.0 / total
        weights[row, 1] = near / total if near > _LEAST_WEIGHT * total else 0.0
        weights[row, 2] = far / total if far > _LEAST_WEIGHT * total else 0.0
