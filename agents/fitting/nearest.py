"""Which three cells states are nearest to, and how much of each they are."""

import math
from typing import NamedTuple

from oda_rl._compile import sized, unlocked
from oda_rl._sizes import of_sizes, of_width
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.fitting.action_codevectors import Near, Weights
from oda_rl.eights.columns import by_eights
from oda_rl.eights.distances import squares_three
from oda_rl.eights.three import three_within
from oda_rl.eights.vectors import WIDTH, aligned

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

    def copy(self) -> "Search":
        """Return another one, for another thread: each search writes scores to its columns."""
        columns = aligned(*self.columns.shape)
        columns[:] = self.columns
        return self._replace(columns=columns)


def _assign_three(
    points: FloatArray, search: Search, rows: IntArray, cells: Near, weights: Weights
) -> None:
    """Write the three nearest cells of points, shape (n, d), and their weights, to rows of (m, 3).

    Of cells as near as each other those of lower numbers count. Weights below 1e-4 are 0, and the
    others not divided by their sum then.
    """
    columns, width = search
    points, columns = of_width(points, n_features), of_sizes(columns, n_features + 1, WIDTH)
    for i in range(points.shape[0]):
        bound = squares_three(columns, points, i)
        first, second, third, a, b, c = three_within(columns, bound)
        near, far = math.exp((a - b) / width), math.exp((a - c) / width)
        total = 1.0 + near + far
        row = rows[i]
        cells[row, 0], cells[row, 1], cells[row, 2] = first, second, third
        weights[row, 0] = 1.0 / total
        weights[row, 1] = near / total if near > _LEAST_WEIGHT * total else 0.0
        weights[row, 2] = far / total if far > _LEAST_WEIGHT * total else 0.0


assign_three = sized(_assign_three, unlocked)
"""``assign_three(n_features=d)`` is that for points of so many numbers."""
