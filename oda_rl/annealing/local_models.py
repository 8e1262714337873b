"""A constant or a linear model of the target in each cell."""

from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray

_MANY_FEATURES = 100  # whose moments take long to invert for each cell


class LocalModels(NamedTuple):
    """values[k] + <slopes[k], x − centres[k]> in cell k."""

    values: FloatArray
    """Shape (K,)."""
    slopes: FloatArray
    """Shape (K, d)."""
    centres: FloatArray
    """Shape (K, d)."""

    def predict(self, points: FloatArray, cells: IntArray) -> FloatArray:
        """Targets of points, shape (n, d), in the given cells, shape (n,)."""
        steps = (self.slopes[cells] * (points - self.centres[cells])).sum(axis=1)
        return np.asarray(self.values[cells] + steps)


def fit_local_models(
    points: FloatArray,
    targets: FloatArray,
    weights: FloatArray,
    cells: IntArray,
    values: FloatArray,
    *,
    linear: bool,
) -> LocalModels:
    """Fit each cell's model to its points by weighted least squares.

    A cell's slopes are drawn towards the slopes that all cells have in common, within cells, as if
    it had d + 2 more points of average spread that follow those: a cell of few points takes the
    common slopes, one of many has its own.

    Parameters
    ----------
    points, targets, weights, cells : ndarray, shapes (n, d), (n,), (n,), (n,)
        The data, and the cell of each.
    values : ndarray, shape (K,)
        The value of a cell that has no points.
    linear : bool
        Whether models have slopes.

    Examples
    --------
    >>> x = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> cells = (x[:, 0] > 0.0).astype(int)
    >>> models = fit_local_models(
    ...     x, np.abs(x[:, 0]), np.ones(8), cells, np.zeros(2), linear=False
    ... )
    >>> models.values.round(6)
    array([0.571429, 0.571429])
    """
    n_cells, d = len(values), points.shape[1]

    def averages(column: FloatArray) -> FloatArray:
        return np.bincount(cells, weights * column, minlength=n_cells) / safe

    totals = np.bincount(cells, weights, minlength=n_cells)
    filled = totals > 0.0
    safe = np.where(filled, totals, 1.0)
    centres = np.column_stack([averages(column) for column in points.T])
    values = np.where(filled, averages(targets), values)
    slopes = np.zeros((n_cells, d))
    if linear:
        gaps = points - np.average(points, axis=0, weights=weights)
        scale = np.sqrt(np.average(gaps * gaps, axis=0, weights=weights))
        scale[scale == 0.0] = 1.0
        steps = (points - centres[cells]) / scale
        rests = targets - values[cells]
        fit_slopes = _slopes if d <= _MANY_FEATURES else _slopes_in_subspace
        slopes = fit_slopes(steps, rests, weights, cells, n_cells) / scale
    return LocalModels(values, slopes, centres)


def _slopes(
    steps: FloatArray, rests: FloatArray, weights: FloatArray, cells: IntArray, n_cells: int
) -> FloatArray:
    """Slopes of all cells, shape (K, d); 0 in a cell of no weight.

    ``steps``, shape (n, d), are from the cells' centres, ``rests``, shape (n,), from their values.
    """
    d = steps.shape[1]
    slopes = np.zeros((n_cells, d))
    average = (steps * weights[:, None]).T @ steps / weights.sum()
    common = np.linalg.pinv(average, hermitian=True) @ (
        (steps * weights[:, None]).T @ rests / weights.sum()
    )
    prior = (d + 2) * average
    for k in np.unique(cells[weights > 0.0]):
        own = cells == k
        weighted = steps[own] * weights[own][:, None]
        moments = weighted.T @ steps[own] + prior
        slopes[k] = np.linalg.pinv(moments, hermitian=True) @ (
            weighted.T @ rests[own] + prior @ common
        )
    return slopes


def _slopes_in_subspace(
    steps: FloatArray, rests: FloatArray, weights: FloatArray, cells: IntArray, n_cells: int
) -> FloatArray:
    """Return the same as :func:`_slopes`, with one decomposition for all cells.

    In coordinates in which the average of moments is 1 the prior is a ridge, and what no step
    reaches has no coordinate. There are as few as there are samples, if these are fewer than
    features, and a cell's equations are as few as its samples.
    """
    n, d = steps.shape
    slopes = np.zeros((n_cells, d))
    shares = np.sqrt(weights / weights.sum())
    rooted = steps * shares[:, None]
    squares, vectors = np.linalg.eigh(rooted @ rooted.T if n < d else rooted.T @ rooted)
    kept = squares > max(n, d) * np.finfo(np.float64).eps * squares[-1]
    squares, vectors = squares[kept], vectors[:, kept]
    axes = (vectors / squares).T @ rooted if n < d else (vectors / np.sqrt(squares)).T
    common = axes @ (rooted.T @ (rests * shares))
    for k in np.unique(cells[weights > 0.0]):
        own = cells == k
        root = np.sqrt(weights[own])
        white = (steps[own] @ axes.T) * root[:, None]
        # Of slopes that minimise |rests - white s|² + (d + 2) |s - common|².
        gram = white @ white.T + (d + 2) * np.eye(len(white))
        missed = rests[own] * root - white @ common
        slopes[k] = (common + white.T @ np.linalg.solve(gram, missed)) @ axes
    return slopes
