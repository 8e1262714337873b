"""Which three cells states are nearest to, and how much of each they are."""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import integer, unlocked
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.fitting.action_codevectors import Near, Weights
from oda_rl.agents.policies.cells import with_another

_LEAST_WEIGHT = 1e-4


class Search(NamedTuple):
    """K codevectors, arranged for a search of the nearest three."""

    columns: FloatArray
    """Their components, shape (d, K): loops over all cells are vector instructions so."""
    width: float
    """Within which cells are blended."""

    @classmethod
    def among(cls, codevectors: FloatArray, width: float) -> "Search":
        """Arrange codevectors, shape (K, d)."""
        return cls(np.ascontiguousarray(codevectors.T), width)


def assign_three(
    points: FloatArray, search: Search, rows: IntArray, cells: Near, weights: Weights
) -> None:
    """Write the three nearest cells of points, shape (n, d), and their weights, to rows of (m, 3).

    Of cells as near as each other those of lower numbers count. Weights below 1e-4 are 0, and the
    others not divided by their sum then.
    """
    _assign_three(points, *search, np.empty(search.columns.shape[1]), rows, cells, weights)


@unlocked
def _assign_three(
    points: FloatArray,
    columns: FloatArray,
    width: float,
    squares: FloatArray,
    rows: IntArray,
    cells: Near,
    weights: Weights,
) -> None:
    d, n_cells = columns.shape
    for i in range(points.shape[0]):
        for k in range(n_cells):
            squares[k] = 0.0
        for j in range(d):
            x = points[i, j]
            for k in range(n_cells):
                gap = x - columns[j, k]
                squares[k] += gap * gap
        three = integer(0), integer(0), integer(0), np.inf, np.inf, np.inf
        for k in range(n_cells):
            if squares[k] < three[5]:
                three = with_another(three, k, squares[k])
        first, second, third, a, b, c = three
        near, far = math.exp((a - b) / width), math.exp((a - c) / width)
        total = 1.0 + near + far
        row = rows[i]
        cells[row, 0], cells[row, 1], cells[row, 2] = first, second, third
        weights[row, 0] = 1.0 / total
        weights[row, 1] = near / total if near > _LEAST_WEIGHT * total else 0.0
        weights[row, 2] = far / total if far > _LEAST_WEIGHT * total else 0.0
