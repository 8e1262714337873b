"""Whether the components of an observation are natural axes, or mixtures of such axes.

The linear law of changes is sparse where components are a position, its velocity, an angle: the
next value of each depends on few of them. In rotated or linearly mixed observations the law is as
dense as in any other axes; distances are then measured in whitened coordinates, which no linear map
changes (:class:`oda_rl.metric.Units`).

With x and Δ in standard deviations, after regression on the actions, Δ = B x. The effective number
of components in row i is ``|B_i|_1 / |B_i|_2``, from 1 to √d (Hoyer 2004). Rows have weights
R² / (1.01 - R²), so that exact laws, such as velocity changing a position, count most.

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

_MAX_STEPS = 2000  # the law is fitted to at most twice as many
_MAX_COMPONENTS = 32
_NOISE = 0.01  # negligible share of a change's variance
_MIN_VARIANCE = 1e-9  # relative to the maximum, for a slope along a direction
_TINY = 1e-300  # makes 0/0 equal 0


@one_thread()
def informative(observations: Observations, steps: FloatArray, min_r2: float = 0.0) -> bool:
    """Whether the law of changes is sparser in components than in rotated axes, or undecided.

    It is undecided, too, if no combination of components changes by the law with an R² of at least
    ``min_r2``, which no linear map alters.
    """
    rows = np.flatnonzero(steps[:, MARK] == GOES_ON)
    if len(rows) < 2 or observations.shape[1] > _MAX_COMPONENTS:
        return True
    law = law_of_changes(observations, steps, rows[:: max(len(rows) // _MAX_STEPS, 1)])
    if law is None:
        return True
    slopes, points, changes = law
    if _predicted(slopes @ points @ slopes.T, changes) < min_r2:
        return True
    unrotated = density(slopes, points, changes.diagonal())
    if unrotated <= 0.35:  # from 0, one component in each row, to 1, all equal
        return True
    turns = _rotations(len(slopes))
    back = turns.transpose(0, 2, 1)
    variances = (turns @ changes * turns).sum(axis=2)
    return bool(unrotated < density(turns @ slopes @ back, turns @ points @ back, variances).min())


def law_of_changes(
    observations: Observations, steps: FloatArray, rows: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Fit Δ = B x by least squares to ``rows``, after regression of both on the actions.

    Returns B and the second moments of x and of Δ, each of shape (k, k), for the k components that
    vary, in standard deviations; None if they are fewer than two, or steps too few.
    """
    here = observations[rows].astype(np.float64)
    mean, covariance = metric.covariance(here)
    scale = metric.scales(mean, covariance, observations.dtype)
    varying, actions, parts = scale > 0.0, steps[rows, ACTION], steps[rows, COMPONENTS:]
    n, d = len(rows), int(varying.sum())
    n_causes = 1 + parts.shape[1] if parts.size else 1 + int(actions.max())
    if d < 2 or n < 40 * (d + n_causes):  # steps for each coefficient of a row
        return None
    if parts.size:
        causes = np.column_stack([np.ones(n), parts])
    else:
        causes = (actions[:, None] == np.arange(n_causes)).astype(np.float64)
    pair = here, observations[rows + 1]
    x, after = ((points - mean)[:, varying] * scale[varying] for points in pair)
    both = np.hstack([x, after - x])
    both -= causes @ np.linalg.lstsq(causes, both, rcond=None)[0]
    moments = both.T @ both / n
    points, mixed, changes = moments[:d, :d], moments[d:, :d], moments[d:, d:]
    variances, vectors = np.linalg.eigh(points)
    large = variances > _MIN_VARIANCE * variances[-1]
    if large.sum() < 2:
        return None
    vectors = vectors[:, large]
    return mixed @ (vectors / variances[large]) @ vectors.T, points, changes


def density(law: FloatArray, points: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the density of laws, (..., d, d): from 0, one component in a row, to 1, all equal."""
    explained = (law @ points * law).sum(axis=-1)
    squares = law**2 * np.maximum(points.diagonal(axis1=-2, axis2=-1), 0.0)[..., None, :]
    shares = np.minimum(explained / np.maximum(variances, _TINY), 1.0)
    weights = shares / (1.0 + _NOISE - shares)
    sizes = np.sqrt(squares).sum(axis=-1) / np.sqrt(np.maximum(squares.sum(axis=-1), _TINY))
    mean = (weights * sizes).sum(axis=-1) / np.maximum(weights.sum(axis=-1), _TINY)
    return np.asarray((mean - 1.0) / (np.sqrt(law.shape[-1]) - 1.0))


def _predicted(explained: FloatArray, changes: FloatArray) -> float:
    """R² of the combination of components whose changes are predicted best."""
    variances, vectors = np.linalg.eigh(changes)
    varying = variances > _MIN_VARIANCE * variances[-1]
    vectors = vectors[:, varying] / np.sqrt(variances[varying])
    return float(np.linalg.eigvalsh(vectors.T @ explained @ vectors).max(initial=0.0))


@functools.lru_cache(maxsize=8)
def _rotations(d: int) -> FloatArray:
    """Return the same random orthogonal matrices in each call, shape (m, d, d)."""
    drawn = np.random.default_rng(d).normal(size=(200, d, d))  # rotations
    return np.asarray(np.linalg.qr(drawn)[0])
