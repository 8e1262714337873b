"""Which three cells states are nearest to, and how much of each they are.

Successive rows of a memory lie close to each other. Of many cells only those are looked at that are
near the last row's nearest one: for each there is a list of others, the nearest first, and by the
triangle inequality no cell can count that is farther from it than the row is, together with the
third nearest so far. What is found is the same as among all cells, to the last bit.

References
----------
C. Elkan, "Using the triangle inequality to accelerate k-means", ICML 2003.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._compile import boolean, compiled, inlined, integer
from oda_rl._types import FloatArray
from oda_rl.agents.fitting.action_codevectors import Near, Weights
from oda_rl.diagram import three_least

_LEAST_WEIGHT = 1e-4
_AT_ONCE = 8  # cells of a list whose distances are vector instructions
_LISTED = 48  # cells in a list
_FEWEST_CELLS, _FEWEST_ROWS = 128, 20_000  # for which lists save more time than they take
_MOST_CELLS, _MOST_FEATURES = 2048, 8
_ROUNDING = 1.0 + 1e-9


class Search(NamedTuple):
    """K codevectors, arranged for a search of the nearest three."""

    columns: FloatArray
    """The codevectors, shape (d, K), and infinitely far ones where there are fewer than three."""
    others: npt.NDArray[np.uint16]
    """Around each cell itself and the nearest other ones, by eights, the nearest first: shape
    (K, B, 8). B is 0 where all are looked at."""
    places: FloatArray
    """Where these lie, shape (K, B, d, 8)."""
    gaps: FloatArray
    """How far the nearest one is that comes after each eight, shape (K, B)."""
    width: float
    """Within which cells are blended."""
    scratch: FloatArray
    """Shape (K,), at least 3."""

    @classmethod
    def among(cls, codevectors: FloatArray, width: float, n_rows: int) -> "Search":
        """Arrange codevectors, shape (K, d), for about so many rows."""
        n, d = codevectors.shape
        own = width, np.empty(max(n, 3))
        columns = np.full((d, max(n, 3)), np.inf)
        columns[:, :n] = codevectors.T
        worthwhile = _FEWEST_CELLS <= n <= _MOST_CELLS and d <= _MOST_FEATURES
        if n_rows < _FEWEST_ROWS or not worthwhile:
            others = np.empty((n, 0, _AT_ONCE), dtype=np.uint16)
            return cls(columns, others, np.empty((n, 0, d, _AT_ONCE)), np.empty((n, 0)), *own)
        squares = np.zeros((n, n))
        for component in columns:
            squares += (component[:, None] - component) ** 2
        np.fill_diagonal(squares, -1.0)  # before others that lie in the same place
        near = np.argpartition(squares, _LISTED, axis=1)[:, : _LISTED + 1]
        squares = np.take_along_axis(squares, near, axis=1)
        order = np.argsort(squares[:, :_LISTED], axis=1)  # the last is the next one anyway
        listed = np.take_along_axis(near, order, axis=1).reshape(n, -1, _AT_ONCE)
        firsts = np.take_along_axis(squares, order[:, _AT_ONCE::_AT_ONCE], axis=1)
        gaps = np.sqrt(np.column_stack([firsts, squares[:, _LISTED]]))
        places = np.ascontiguousarray(codevectors[listed].swapaxes(2, 3))
        return cls(columns, listed.astype(np.uint16), places, gaps, *own)


@inlined
def _search_all(points: FloatArray, i: int, columns: FloatArray, scratch: FloatArray) -> None:
    """Write squared distances of a row from all codevectors to ``scratch``, shape (K,)."""
    d, n_cells = columns.shape
    for k in range(n_cells):
        scratch[k] = 0.0
    for j in range(d):
        x = points[i, j]
        for k in range(n_cells):
            gap = x - columns[j, k]
            scratch[k] += gap * gap


@inlined
def _before(gap: float, k: int, other_gap: float, other: int) -> bool:
    """Whether a cell is nearer than another, or as near and has the lower number."""
    return gap < other_gap or (gap == other_gap and k < other)


@inlined
def _search_around(
    points: FloatArray, i: int, search: Search, anchor: int
) -> tuple[int, int, int, float, float, float, bool]:
    """Return the nearest three cells of a row, their squared distances, and whether it is so.

    It is not if the list of the nearest one ends too early. The search begins at a cell and goes
    on from each that is found to be nearer.
    """
    _, others, places, gaps, _, scratch = search
    d, last = points.shape[1], gaps.shape[1] - 1
    block, sure = integer(0), boolean(False)
    first, second, third = integer(0), integer(0), integer(0)
    a, b, c = np.inf, np.inf, np.inf
    while True:
        for m in range(_AT_ONCE):
            scratch[m] = 0.0
        for j in range(d):
            x = points[i, j]
            for m in range(_AT_ONCE):
                gap = x - places[anchor, block, j, m]
                scratch[m] += gap * gap
        for m in range(_AT_ONCE):
            value, k = scratch[m], integer(others[anchor, block, m])
            if _before(value, k, c, third):
                if _before(value, k, b, second):
                    third, c = second, b
                    if _before(value, k, a, first):
                        second, b = first, a
                        first, a = k, value
                    else:
                        second, b = k, value
                else:
                    third, c = k, value
        if first != anchor:
            anchor, block = first, 0
            first, second, third = 0, 0, 0
            a, b, c = np.inf, np.inf, np.inf
            continue
        sure = gaps[anchor, block] > _ROUNDING * (math.sqrt(a) + math.sqrt(c))
        if sure or block == last:
            break
        block += 1
    return first, second, third, a, b, c, sure


@compiled
def assign_three(points: FloatArray, search: Search, cells: Near, weights: Weights) -> None:
    """Write the three nearest cells of points, shape (n, d), and their weights, both (n, 3).

    Weights below 1e-4 are 0, and the others not divided by their sum then.
    """
    width, scratch = search.width, search.scratch
    first, listed = integer(0), search.gaps.shape[1] > 0
    in_vain = integer(0)
    for i in range(points.shape[0]):
        sure = boolean(False)
        # In many dimensions nearly all cells are near, and lists are of no use.
        if listed and 4 * in_vain <= 16 + i:
            first, second, third, a, b, c, sure = _search_around(points, i, search, first)
        if not sure:
            in_vain += 1
            _search_all(points, i, search.columns, scratch)
            first, second, third, a, b, c = three_least(scratch)
        near, far = math.exp((a - b) / width), math.exp((a - c) / width)
        total = 1.0 + near + far
        cells[i, 0], cells[i, 1], cells[i, 2] = first, second, third
        weights[i, 0] = 1.0 / total
        weights[i, 1] = near / total if near > _LEAST_WEIGHT * total else 0.0
        weights[i, 2] = far / total if far > _LEAST_WEIGHT * total else 0.0
