"""Missing values, which are NaN: where they are, and what is known without them.

A sample of which o features are observed has the partial distance Σ_observed (x_j - μ_j)² from a
codevector. Times d/o it is what the whole distance is expected to be if values are missing at
random (Dixon, 1979); which codevector is nearest does not depend on that factor.

References
----------
J. K. Dixon, "Pattern recognition with partly missing data", IEEE Transactions on Systems, Man, and
Cybernetics 9, 1979.
R. J. Hathaway, J. C. Bezdek, "Fuzzy c-means clustering of incomplete data", IEEE Transactions on
Systems, Man, and Cybernetics B 31, 2001: the partial distance strategy.
"""

import numpy as np

from oda_rl._types import Array, BoolArray, FloatArray, IntArray

_TINY = 1e-300


def holes(points: Array) -> BoolArray | None:
    """Where values are missing, shape (n, d); None if none is.

    >>> holes(np.array([[1.0, np.nan], [2.0, 3.0]]))
    array([[False,  True],
           [False, False]])
    """
    least = points.min(initial=0.0)  # which is NaN if any is, and needs no memory
    return None if least == least else np.isnan(points)


def means_of(points: Array, weights: FloatArray | None) -> Array:
    """Weighted means of what is observed of each feature, shape (d,).

    >>> means_of(np.array([[1.0, np.nan], [3.0, 5.0]]), np.array([3.0, 1.0]))
    array([1.5, 5. ])
    """
    missing = holes(points)
    if missing is None:
        return np.average(points, axis=0, weights=weights)
    counted = np.ma.masked_array(points, missing)
    return np.asarray(np.ma.average(counted, axis=0, weights=weights))


def filled(points: Array, values: Array) -> Array:
    """Return points with other values where theirs are missing; of any shape that fits.

    >>> filled(np.array([[np.nan, 7.0]]), np.array([2.0, 3.0]))
    array([[2., 7.]])
    """
    missing = holes(points)
    return points if missing is None else np.where(missing, values, points)


def telling(points: Array) -> BoolArray | slice:
    """Rows of points of which something is observed; a slice of all, if it is of all of them.

    >>> points = np.array([[1.0, np.nan], [np.nan, np.nan]])
    >>> points[telling(points)]
    array([[ 1., nan]])
    """
    missing = holes(points)
    if missing is None or not missing.all(axis=1).any():
        return slice(None)
    return np.asarray(~missing.all(axis=1))


def observed_shares(points: Array) -> FloatArray | float:
    """Share of the features of each point that is observed, shape (n, 1); 1 if all are.

    >>> observed_shares(np.array([[np.nan, 7.0], [2.0, 3.0]]))
    array([[0.5],
           [1. ]])
    """
    missing = holes(points)
    return 1.0 if missing is None else 1.0 - missing.mean(axis=1, keepdims=True)


def partial_squares(points: FloatArray, codevectors: FloatArray, missing: BoolArray) -> FloatArray:
    """Squared distances of points, shape (n, d), from codevectors, (m, d), expected of the whole.

    Shape (n, m).

    >>> points = np.array([[3.0, np.nan]])
    >>> partial_squares(points, np.array([[0.0, 9.0]]), np.isnan(points))
    array([[18.]])
    """
    middle = codevectors.mean(axis=0)
    known, about = np.where(missing, 0.0, points - middle), codevectors - middle
    squares = (known**2).sum(axis=1, keepdims=True) - 2.0 * known @ about.T
    squares += ~missing @ (about**2).T
    return np.asarray(np.maximum(squares, 0.0) / (1.0 - missing.mean(axis=1, keepdims=True)))


def cell_means(
    points: FloatArray, weights: FloatArray, cells: IntArray, otherwise: FloatArray
) -> FloatArray:
    """Weighted means of what is observed of each feature in each cell, shape (K, d).

    ``cells``, shape (n,), are from 0 to K - 1; ``otherwise``, shape (K, d), is what a mean is of
    which nothing is observed.

    >>> points = np.array([[1.0, np.nan], [3.0, np.nan]])
    >>> cell_means(points, np.array([3.0, 1.0]), np.zeros(2, int), np.array([[7.0, 8.0]]))
    array([[1.5, 8. ]])
    """
    known = ~np.isnan(points) * weights[:, None]
    values = filled(points, np.zeros(1)) * weights[:, None]
    sums, counts = (
        np.column_stack([np.bincount(cells, one, len(otherwise)) for one in columns.T])
        for columns in (values, known)
    )
    return np.asarray(np.where(counts > 0.0, sums / np.maximum(counts, _TINY), otherwise))
