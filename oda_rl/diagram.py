"""The affine diagram: every partition of this package is one, and this file assigns points to it.

A diagram is an array of shape (capacity, 1 + d) of which the first ``n_cells`` rows count. Row k is
``[a_k, g_k]``, and a point x belongs to the cell with the smallest score ``a_k + <g_k, x>``. The
nearest codevector under any Bregman divergence is such a diagram (Boissonnat, Nielsen and Nock,
"Bregman Voronoi diagrams", Discrete and Computational Geometry 44, 2010, theorem 1): the term that
depends on x alone is the same for every cell.

Keep points near the origin (subtract a mean): scores are differences of large numbers otherwise.
"""

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled, inlined, integer, spliced

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LARGEST = 1e150  # of a point's components, whose squares are summed


@inlined
def assign(diagram: FloatArray, n_cells: int, point: FloatArray) -> int:
    """Cell of one point, shape (d,); the first of equals.

    Examples
    --------
    >>> import numpy as np
    >>> diagram = np.array([[1.0, 2.0], [1.0, -2.0]])  # codevectors -1 and 1 on a line
    >>> assign(diagram, 2, np.array([0.3]))
    1
    """
    d = diagram.shape[1] - 1
    cell = integer(0)
    smallest = np.inf
    for k in range(n_cells):
        score = diagram[k, 0]
        for j in range(d):
            score += diagram[k, 1 + j] * point[j]
        if score < smallest:
            smallest = score
            cell = k
    return cell


@spliced
def scores(diagram: FloatArray, n_cells: int, point: FloatArray, out: FloatArray) -> float:
    """Write the scores of one point to ``out[:n_cells]`` and return the smallest."""
    d = diagram.shape[1] - 1
    smallest = np.inf
    for k in range(n_cells):
        score = diagram[k, 0]
        for j in range(d):
            score += diagram[k, 1 + j] * point[j]
        out[k] = score
        if score < smallest:
            smallest = score
    return smallest


@compiled
def assign_batch(diagram: FloatArray, n_cells: int, points: FloatArray, out: IntArray) -> None:
    """Cells of many points, shape (n, d), written to ``out``, shape (n,)."""
    for i in range(points.shape[0]):
        out[i] = assign(diagram, n_cells, points[i])
