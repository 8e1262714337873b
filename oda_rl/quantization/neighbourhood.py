"""Self-organising maps: compiled functions that pull codevectors towards samples.

The codevectors of a map stand on a grid of ``n_rows`` by ``n_columns``, row after row; one row is
a chain. A sample pulls its nearest codevector, the winner, and the winner's neighbours on the grid
the less the farther they are from it there:

    μ_k ← μ_k + ε exp(−|r_k − r_winner|² / (2σ²)) (x − μ_k)

with a rate ε and a width σ that the caller lets fall. A ``periodic`` grid has no border: its sides
are glued together, and the map is a ring or a torus.

References
----------
T. Kohonen, "Self-organizing maps", Springer, 1995, section 3.2.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import compiled, inlined
from oda_rl._types import FloatArray, IntArray
from oda_rl.diagram import Codevectors, assign, move
from oda_rl.divergences import quadratic_gradient

_LEAST_PULL = 1e-9  # a weaker pull is left out


@inlined
def _gaussian(steps: int, n: int, periodic: bool, width: float) -> float:
    # Of the distance between two places of a line of n.
    apart = float(abs(steps))
    if periodic:
        apart = min(apart, n - apart)
    return math.exp(-apart * apart / (2.0 * width * width))


class Grid(NamedTuple):
    """Where the codevectors stand."""

    n_rows: int
    n_columns: int
    periodic: bool


@compiled
def write_pulls(winner: int, grid: Grid, width: float, out: FloatArray) -> None:
    """Write the pull on each codevector, 1 for the winner, to ``out``, shape (≥ K,).

    Examples
    --------
    >>> out = np.empty(4)
    >>> write_pulls(1, Grid(1, 4, False), 1.0, out)
    >>> out.round(2)
    array([0.61, 1.  , 0.61, 0.14])
    """
    n_rows, n_columns, periodic = grid
    row, column = winner // n_columns, winner % n_columns
    for c in range(n_columns):
        out[c] = _gaussian(c - column, n_columns, periodic, width)
    for r in range(n_rows - 1, -1, -1):  # the first row last: it holds the columns' factors
        factor = _gaussian(r - row, n_rows, periodic, width)
        for c in range(n_columns):
            out[r * n_columns + c] = factor * out[c]


@compiled
def observe(
    codevectors: Codevectors, grid: Grid, point: FloatArray, rate: float, width: float
) -> None:
    """Let one sample pull the codevectors of a map; each counts the samples that it has won."""
    n_cells = grid.n_rows * grid.n_columns
    winner = assign(codevectors.diagram, n_cells, point)
    codevectors.cells[winner, 0] += 1.0
    pulls = codevectors.weights
    write_pulls(winner, grid, width, pulls)
    quadratic_gradient(codevectors.metric, point, codevectors.gradient)
    for k in range(n_cells):
        if pulls[k] >= _LEAST_PULL:
            move(codevectors, k, point, rate * pulls[k])


@compiled
def nearest_two(cells: FloatArray, points: FloatArray, i: int) -> tuple[int, int, float]:
    """Nearest codevector of a point, the first of equals, the next, and the squared distance."""
    # One sum of squares where oda_rl.diagram.squared_distance has four: other bits.
    winner, second = 0, 0
    smallest, next_smallest = np.inf, np.inf
    for k in range(cells.shape[0]):
        distance = 0.0
        for j in range(points.shape[1]):
            gap = points[i, j] - cells[k, 1 + j]
            distance += gap * gap
        if distance < smallest:
            second, next_smallest = winner, smallest
            winner, smallest = k, distance
        elif distance < next_smallest:
            second, next_smallest = k, distance
    return winner, second, smallest


@inlined
def pull(cells: FloatArray, k: int, points: FloatArray, i: int, step: float) -> None:
    """Move a codevector towards a point by a share of the way."""
    for j in range(points.shape[1]):
        cells[k, 1 + j] += step * (points[i, j] - cells[k, 1 + j])


@compiled
def learn(
    cells: FloatArray,
    points: FloatArray,
    order: IntArray,
    grid: Grid,
    rates: FloatArray,
    widths: FloatArray,
    pulls: FloatArray,
) -> float:
    """Let points, shape (n, d), pull the codevectors in an order, shape (m,).

    ``cells``, shape (K, 1 + d): row k holds how many samples codevector k has won, and μ_k.
    ``rates`` and ``widths``, shape (m,), are those of each presentation; ``pulls`` (K,) is scratch.

    Returns
    -------
    float
        Sum of the squared distances from the winners before they moved.
    """
    total = 0.0
    for t in range(order.shape[0]):
        i = order[t]
        winner, _, smallest = nearest_two(cells, points, i)
        total += smallest
        if not smallest < np.inf:
            continue  # too far away for its distance to be a number
        cells[winner, 0] += 1.0
        write_pulls(winner, grid, widths[t], pulls)
        for k in range(cells.shape[0]):
            if pulls[k] >= _LEAST_PULL:
                pull(cells, k, points, i, rates[t] * pulls[k])
    return total


@compiled
def rank(cells: FloatArray, points: FloatArray, winners: IntArray) -> None:
    """Write the nearest codevector of each point and the next, shape (n, 2)."""
    for i in range(points.shape[0]):
        winners[i, 0], winners[i, 1], _ = nearest_two(cells, points, i)
