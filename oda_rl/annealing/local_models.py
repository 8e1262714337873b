"""A constant or a linear model of the target in each cell."""

from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray


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
        scale = points.std(axis=0)
        scale[scale == 0.0] = 1.0
        steps = (points - centres[cells]) / scale
        rests = targets - values[cells]
        average = (steps * weights[:, None]).T @ steps / weights.sum()
        common = np.linalg.pinv(average, hermitian=True) @ (
            (steps * weights[:, None]).T @ rests / weights.sum()
        )
        prior = (d + 2) * average
        unit = weights.mean()
        for k in np.flatnonzero(filled):
            own = cells == k
            weighted = steps[own] * (weights[own] / unit)[:, None]
            moments = weighted.T @ steps[own] + prior
            slopes[k] = np.linalg.pinv(moments, hermitian=True) @ (
                weighted.T @ rests[own] + prior @ common
            )
        slopes /= scale
    return LocalModels(values, slopes, centres)
