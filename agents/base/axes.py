"""Whether the components of an observation mean something, or are mixtures of what does.

The linear law of changes is sparse where components are a position, its speed, an angle: each one's
next value depends on few of them. That is information, because cells are measured in standard
deviations of the components until a metric has been learned. In observations that were rotated, or
mapped linearly, the law is as dense as in any other axes. Distances are then those that no linear
map changes, in whitened coordinates (:class:`oda_rl.metric.Units`).

With x and Δ in standard deviations, less what the actions explain, Δ = B x. The number of
components in row i is ``|B_i|_1 / |B_i|_2``, from 1 to √d (Hoyer 2004). Rows are weighted by
R² / (1.01 - R²): a law that holds exactly, such as a position that changes by its speed, counts
most.

References
----------
P. O. Hoyer, "Non-negative matrix factorization with sparseness constraints", JMLR 5 (2004),
1457-1469: the measure.
"""

import functools

import numpy as np

from oda_rl import metric
from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.memory import ACTION, COMPONENTS, GOES_ON, MARK
from oda_rl.agents.base.state import Observations

_MAX_STEPS = 2000  # the law is fitted to so many, or up to twice as many
_STEPS_PER_COEFFICIENT = 40  # of a row of the law, at least
_MAX_COMPONENTS = 32
_N_TURNS = 200
_DENSE = 0.35  # from 0, one component in each row, to 1, all alike
_NOISE = 0.01  # share of a change's variance that cannot be told from none
_MIN_VARIANCE = 1e-9  # of the largest, that a direction needs for a slope along it
_TINY = 1e-300  # keeps 0/0 from being NaN


@one_thread()
def informative(observations: Observations, steps: FloatArray) -> bool:
    """Whether the law of changes is sparser in the components than in turned axes.

    Parameters
    ----------
    observations : ndarray, shape (n, d)
        Rows of trajectories, as in :mod:`oda_rl.agents.base.memory`.
    steps : ndarray, shape (n, 3 or more)
        Their steps.

    Returns
    -------
    bool
        True also where it cannot be told: too few steps, one component, or more than 32.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> points = np.zeros((1000, 3))  # a position, its speed, and a force that wanders
    >>> for x, y in zip(points, points[1:]):
    ...     y[:] = x[0] + x[1], 0.9 * x[1] + x[2] - 0.1 * x[0], 0.9 * x[2] + rng.normal()
    >>> steps = np.tile([0.0, 0.0, GOES_ON], (1000, 1))
    >>> steps[-1, MARK] = 3.0
    >>> turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    >>> informative(points, steps), informative(points / points.std(axis=0) @ turn, steps)
    (True, False)
    """
    rows = np.flatnonzero(steps[:, MARK] == GOES_ON)
    if len(rows) < 2 or observations.shape[1] > _MAX_COMPONENTS:
        return True
    law = law_of_changes(observations, steps, rows[:: max(len(rows) // _MAX_STEPS, 1)])
    if law is None:
        return True
    slopes, points, changes = law
    given = density(slopes, points, changes.diagonal())
    if given <= _DENSE:
        return True
    turns = _turns(len(slopes))
    back = turns.transpose(0, 2, 1)
    variances = (turns @ changes * turns).sum(axis=2)
    return bool(given < density(turns @ slopes @ back, turns @ points @ back, variances).min())


def law_of_changes(
    observations: Observations, steps: FloatArray, rows: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Fit Δ = B x by least squares, after both are cleared of what the actions explain.

    Parameters
    ----------
    observations, steps : ndarray
        As in :func:`informative`.
    rows : ndarray of int64, shape (m,)
        Rows from which steps were taken.

    Returns
    -------
    tuple of ndarray, or None
        B and the second moments of x and of Δ, each of shape (k, k), for the k components that
        vary, in their standard deviations. None if there are too few steps, or fewer than two
        directions that vary.
    """
    here = observations[rows].astype(np.float64)
    mean, covariance = metric.covariance(here)
    scale = metric.scales(mean, covariance)
    varying, actions, parts = scale > 0.0, steps[rows, ACTION], steps[rows, COMPONENTS:]
    n, d = len(rows), int(varying.sum())
    n_causes = 1 + parts.shape[1] if parts.size else 1 + int(actions.max())
    if d < 2 or n < _STEPS_PER_COEFFICIENT * (d + n_causes):
        return None
    if parts.size:
        causes = np.column_stack([np.ones(n), parts])
    else:
        causes = (actions[:, None] == np.arange(n_causes)).astype(np.float64)
    x, after = ((own - mean)[:, varying] * scale[varying] for own in (here, observations[rows + 1]))
    both = np.hstack([x, after - x])
    both -= causes @ np.linalg.lstsq(causes, both, rcond=None)[0]
    moments = both.T @ both / n
    points, mixed, changes = moments[:d, :d], moments[d:, :d], moments[d:, d:]
    variances, vectors = np.linalg.eigh(points)
    known = variances > _MIN_VARIANCE * variances[-1]
    if known.sum() < 2:
        return None
    vectors = vectors[:, known]
    return mixed @ (vectors / variances[known]) @ vectors.T, points, changes


def density(law: FloatArray, points: FloatArray, variances: FloatArray) -> FloatArray:
    """How dense laws are, from 0 (one component in each row) to 1 (all alike).

    Laws and the moments of points have shape (..., d, d), the variances of changes (..., d).
    """
    explained = (law @ points * law).sum(axis=-1)
    squares = law**2 * np.maximum(points.diagonal(axis1=-2, axis2=-1), 0.0)[..., None, :]
    shares = np.minimum(explained / np.maximum(variances, _TINY), 1.0)
    weights = shares / (1.0 + _NOISE - shares)
    sizes = np.sqrt(squares).sum(axis=-1) / np.sqrt(np.maximum(squares.sum(axis=-1), _TINY))
    mean = (weights * sizes).sum(axis=-1) / np.maximum(weights.sum(axis=-1), _TINY)
    return np.asarray((mean - 1.0) / (np.sqrt(law.shape[-1]) - 1.0))


@functools.lru_cache(maxsize=8)
def _turns(d: int) -> FloatArray:
    """Return orthogonal matrices, always the same ones, shape (m, d, d)."""
    drawn = np.random.default_rng(d).normal(size=(_N_TURNS, d, d))
    return np.asarray(np.linalg.qr(drawn)[0])
