"""Codevectors that compete for samples of which features are missing (NaN).

Distances are those in what is observed, and a codevector moves in that alone; else functions are
those of :mod:`oda_rl.quantization.kernels` and :mod:`oda_rl.quantization.neighbourhood`, compiled
with these instead of theirs. The map's distances are expected of all features
(:mod:`oda_rl.samples.missing`), so that errors can be compared.

References
----------
T. Samad, S. A. Harp, "Self-organization with partial data", Network: Computation in Neural Systems
3, 1992.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from oda_rl._compile import allocating, bound_copy, compiled, inlined
from oda_rl._types import FloatArray
from oda_rl.divergences import Divergence, SquaredEuclidean
from oda_rl.quantization import kernels, neighbourhood
from oda_rl.samples import turned

_MOST_PASSES = 300


@inlined
def squared_distance(points: FloatArray, i: int, codevectors: FloatArray, k: int) -> float:
    """|x_i − μ_k|² of the features that are observed."""
    total = 0.0
    for j in range(points.shape[1]):
        if not math.isnan(points[i, j]):
            gap = points[i, j] - codevectors[k, j]
            total += gap * gap
    return total


@inlined
def nearest_codevector(points: FloatArray, i: int, codevectors: FloatArray) -> tuple[int, float]:
    """Nearest codevector of point i, the first of equals, and that distance."""
    winner, smallest = 0, np.inf
    for k in range(codevectors.shape[0]):
        distance = squared_distance(points, i, codevectors, k)
        if distance < smallest:
            winner, smallest = k, distance
    return winner, smallest


@inlined
def move(codevectors: FloatArray, k: int, points: FloatArray, i: int, step: float) -> None:
    """Move a codevector towards a point, where that is observed."""
    for j in range(points.shape[1]):
        if not math.isnan(points[i, j]):
            codevectors[k, j] += step * (points[i, j] - codevectors[k, j])


@inlined
def nearest_two(cells: FloatArray, points: FloatArray, i: int) -> tuple[int, int, float]:
    """Nearest codevector, the next, and what the squared distance is expected to be."""
    winner, second = 0, 0
    smallest, next_smallest = np.inf, np.inf
    for k in range(cells.shape[0]):
        distance, n_observed = 0.0, 0
        for j in range(points.shape[1]):
            if not math.isnan(points[i, j]):
                gap = points[i, j] - cells[k, 1 + j]
                distance += gap * gap
                n_observed += 1
        distance *= points.shape[1] / n_observed
        if distance < smallest:
            second, next_smallest = winner, smallest
            winner, smallest = k, distance
        elif distance < next_smallest:
            second, next_smallest = k, distance
    return winner, second, smallest


@inlined
def pull(cells: FloatArray, k: int, points: FloatArray, i: int, step: float) -> None:
    """Move a codevector of a map likewise."""
    for j in range(points.shape[1]):
        if not math.isnan(points[i, j]):
            cells[k, 1 + j] += step * (points[i, j] - cells[k, 1 + j])


def _known(function: Any, label: str = "_known", **names: Any) -> Any:
    return bound_copy(function.py_func, label, **names)


class Competition(NamedTuple):
    """How codevectors learn to tell classes apart: those of :mod:`oda_rl.quantization.kernels`."""

    lvq1: Any
    glvq: Any
    rslvq: Any


def _competition(label: str, **names: Any) -> Competition:
    lvq1, glvq, rslvq = (
        _known(one, label, **names) for one in (kernels.lvq1, kernels.glvq, kernels.rslvq)
    )
    return Competition(compiled(lvq1), compiled(glvq), allocating(rslvq))


KNOWN = _competition(
    "_known",
    squared_distance=squared_distance,
    nearest_codevector=nearest_codevector,
    move=move,
)
# Under a metric that mixes features points are those of oda_rl.samples.turned.
TURNED = _competition(
    "_turned",
    squared_distance=turned.squared_distance,
    nearest_codevector=inlined(
        _known(nearest_codevector, "_turned", squared_distance=turned.squared_distance)
    ),
    move=turned.move,
)
learn = compiled(_known(neighbourhood.learn, nearest_two=nearest_two, pull=pull))
rank = compiled(_known(neighbourhood.rank, nearest_two=nearest_two))


def lloyd(
    points: FloatArray,
    weights: FloatArray,
    codevectors: FloatArray,
    divergence: Divergence | None = None,
) -> FloatArray:
    """Move codevectors to the means of what is observed in their cells, until none moves.

    Every pass lowers the weighted sum of the squared distances in what is observed (k-POD of Chi,
    Chi and Baraniuk, "k-POD: a method for k-means clustering of missing data", The American
    Statistician 70, 2016, by the distances of Dixon). What no sample of a cell has stays.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        NaN where values are missing.
    weights : ndarray, shape (n,)
        At least 0.
    codevectors : ndarray, shape (K, d)
        Where to start.
    divergence : Divergence, optional
        A quadratic one, in whose coordinates all are; the squared Euclidean one by default.

    Returns
    -------
    ndarray, shape (K, d)

    Examples
    --------
    >>> points = np.array([[0.0, 1.0], [np.nan, 3.0], [9.0, np.nan], [8.0, 7.0]])
    >>> lloyd(points, np.ones(4), np.array([[0.0, 1.0], [9.0, 9.0]]))
    array([[0. , 2. ],
           [8.5, 7. ]])
    """
    own = SquaredEuclidean() if divergence is None else divergence
    before = None
    for _ in range(_MOST_PASSES):
        nearest = own.between(points, codevectors).argmin(axis=1)
        if before is not None and (nearest == before).all():
            break
        before = nearest
        codevectors = own.cell_means(points, weights, nearest, codevectors)
    return codevectors
