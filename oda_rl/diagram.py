"""The affine diagram, which every partition of this package is.

A diagram is an array of shape (capacity, 1 + d) with ``n_cells`` rows in use. Row k is
``[a_k, g_k]``, and a point x belongs to the cell with the smallest score ``a_k + <g_k, x>``. The
nearest codevector under any Bregman divergence is such a diagram (Boissonnat, Nielsen and Nock,
"Bregman Voronoi diagrams", Discrete and Computational Geometry 44, 2010, theorem 1).

If scores are equal but for rounding, the first cell has the point, so that a state half-way between
codevectors is in the same cell in every language.

Keep points near the origin (subtract a mean): scores are differences of large numbers otherwise.
:func:`squared_distance` is accurate anywhere.
"""

import numpy as np

from oda_rl._compile import compiled, inlined, integer, reordered, spliced
from oda_rl._types import FloatArray, IntArray

LARGEST = 1e150  # component of a point: squares are summed
LARGEST_DATA = 1e140  # component of a sample: squares are also weighted and summed over samples
_ABOVE_ROUNDING = 2.0**-46  # relative: rounding errors of a score are about 2**-52
_EQUAL = 2.0**-48  # likewise; integers up to 2**23 and their squares stay distinct


def ordered(diagram: FloatArray) -> FloatArray:
    """Return a diagram in which the first of several cells with equal scores has the smallest.

    States may be half-way between codevectors, where each language would round differently. So
    offsets rise from cell to cell by a little more than rounding errors, unless the diagram is of
    integers, which have none.
    """
    if (diagram == np.rint(diagram)).all():
        return diagram
    rows = diagram.copy()
    offsets = np.abs(diagram[:, 0]).max()  # independent of the units of points
    rounding = _ABOVE_ROUNDING * (offsets or np.abs(diagram).max())
    rows[:, 0] += rounding * np.arange(len(diagram))
    return rows


@spliced
def assign(diagram: FloatArray, n_cells: int, point: FloatArray) -> int:
    """Cell of one point, shape (d,); the first if scores are equal but for rounding."""
    d = diagram.shape[1] - 1
    cell = integer(0)
    smallest, size = np.inf, 0.0
    for k in range(n_cells):
        score = diagram[k, 0]
        for j in range(d):
            score += diagram[k, 1 + j] * point[j]
        terms = abs(diagram[k, 0]) + abs(score)
        if smallest - score > _EQUAL * (size + terms):
            smallest, size = score, terms
            cell = k
    return cell


@spliced
def three_least(values: FloatArray) -> tuple[int, int, int, float, float, float]:
    """Return the indices of the three smallest values, and these; 0 and inf if there are fewer."""
    first, second, third = integer(0), integer(0), integer(0)
    a, b, c = np.inf, np.inf, np.inf
    for k in range(values.shape[0]):
        value = values[k]
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
    return first, second, third, a, b, c


@compiled
def assign_batch(diagram: FloatArray, n_cells: int, points: FloatArray, out: IntArray) -> None:
    """Cells of many points, shape (n, d), written to ``out``, shape (n,)."""
    for i in range(points.shape[0]):
        out[i] = assign(diagram, n_cells, points[i])


@reordered
def squared_distance(points: FloatArray, i: int, codevectors: FloatArray, k: int, d: int) -> float:
    """|x_i − μ_k|² in those of the first d features that are observed (not NaN)."""
    total = 0.0
    for j in range(d):
        gap = points[i, j] - codevectors[k, j]
        total += gap * gap if gap == gap else 0.0
    return total


@inlined
def nearest_codevector(points: FloatArray, i: int, codevectors: FloatArray) -> tuple[int, float]:
    """Nearest codevector of point i, the first of equals, and its squared distance."""
    winner, smallest = 0, np.inf
    for k in range(codevectors.shape[0]):
        distance = squared_distance(points, i, codevectors, k, points.shape[1])
        if distance < smallest:
            winner, smallest = k, distance
    return winner, smallest
