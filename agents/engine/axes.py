"""Whether the components of an observation are axes of the world, or any mixtures of them.

Where they are a position, its speed, an angle, each one's next value hangs together with few of
them: the linear law of changes is sparse. That is information, as cells are measured in standard
deviations of the components until a metric has been learned. Of observations that somebody has
turned, or mapped linearly, it is gone: the law is as dense as in any other axes. Distances are then
those that no linear map changes, in whitened coordinates (:class:`oda_rl.metric.Units`).

With x and Δ in standard deviations, less what the actions explain, Δ = B x. How many components
row i has is ``|B_i|_1 / |B_i|_2``, from 1 to √d (Hoyer 2004). It weighs R² / (1.01 - R²): what
holds exactly, as that a position changes by its speed, counts most.

References
----------
P. O. Hoyer, "Non-negative matrix factorization with sparseness constraints", JMLR 5 (2004),
1457-1469: the measure.
"""

import functools
import math

import numpy as np

from oda_rl import metric
from oda_rl._compile import brief, larger, smaller
from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.engine.memory import ACTION, COMPONENTS, GOES_ON, MARK
from oda_rl.agents.engine.state import Observations

_STEPS = 2000  # that the law is learned from
_LEAST_STEPS = 40  # of them, for each number in a row of it
_MOST_COMPONENTS = 32  # of more nobody asks
_N_TURNS = 200
_DENSE = 0.35  # from 0, one component in each row, to 1, all alike
_NOISE = 0.01  # of a change's variance, that is not told from none
_LEAST_VARIANCE = 1e-9  # of the largest, that a direction must have
_TINY = 1e-300  # keeps what is 0 from dividing 0


@one_thread()
def informative(observations: Observations, steps: FloatArray) -> bool:
    """Whether components hang together with fewer others than turned ones do.

    Parameters
    ----------
    observations : ndarray, shape (n, d)
        Rows of trajectories, as in :mod:`oda_rl.agents.engine.memory`.
    steps : ndarray, shape (n, 3 or more)
        Their steps.

    Returns
    -------
    bool
        True also where it cannot be told: of few steps, of one component or more than 32.

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
    rows = (steps[:, MARK] == GOES_ON).nonzero()[0]
    rows = rows[:: max(len(rows) // _STEPS, 1)]
    n, d = len(rows), observations.shape[1]
    if n < 2 or d > _MOST_COMPONENTS:
        return True
    points = np.asarray(observations.take(rows, axis=0), dtype=np.float64)
    mean = np.full(n, 1.0 / n) @ points
    change, before = observations.take(rows + 1, axis=0) - points, metric.less(points, mean)
    moments = np.zeros((2 * d, 2 * d))
    moments[:d, :d], moments[d:, d:] = before.T @ before, change.T @ change
    moments[d:, :d] = change.T @ before
    scale = metric.scales(mean, moments[:d, :d] / n)
    causes, inverse = _causes(steps.take(rows, axis=0))
    caused = np.concatenate([causes @ before, causes @ change], axis=1)
    moments -= caused.T @ inverse @ caused
    varying = scale.nonzero()[0]
    if len(varying) < d:
        moments = moments[np.ix_(kept := np.concatenate([varying, d + varying]), kept)]
        scale, d = scale[varying], len(varying)
    if d < 2 or n < _LEAST_STEPS * (d + len(causes)):
        return True
    units = np.concatenate([scale, scale])
    moments *= units[:, None] * units / n
    square, mixed, left = moments[:d, :d], moments[d:, :d], moments[d:, d:]
    variances, vectors = np.linalg.eigh(square)
    first = int((variances <= _LEAST_VARIANCE * variances[-1]).sum())
    if d - first < 2:
        return True
    told = vectors[:, first:]
    law = mixed @ (told / variances[first:]) @ told.T
    given = _densities(law[None], square[None], left.diagonal()[None])[0]
    return bool(given <= _DENSE or given < _densities(*_turned(law, square, left)).min())


def _causes(steps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what changes may depend on besides, and the inverse of its sums of products.

    That is which action, or its components and a constant.
    """
    if steps.shape[1] > COMPONENTS:
        causes = np.concatenate([np.ones((1, len(steps))), steps[:, COMPONENTS:].T])
        return causes, np.linalg.pinv(causes @ causes.T, hermitian=True)
    actions = steps[:, ACTION]
    causes = np.equal.outer(np.arange(actions.max() + 1.0), actions).astype(np.float64)
    return causes, np.diag(1.0 / np.maximum(causes.sum(axis=1), 1.0))


def _turned(
    law: FloatArray, points: FloatArray, changes: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a law, the moments of points and the variances of changes in turned axes.

    The arguments have shape (d, d), what is returned (m, d, d), (m, d, d) and (m, d).
    """
    turns = _turns(len(law))
    back = turns.transpose(0, 2, 1)
    return turns @ law @ back, turns @ points @ back, (turns @ changes * turns).sum(axis=2)


def _densities(laws: FloatArray, points: FloatArray, variances: FloatArray) -> FloatArray:
    """Return how dense laws are, shape (m,), from 0 to 1; each has axes of its own."""
    densities = np.empty(len(laws))
    own = np.ascontiguousarray
    _write_densities(own(laws), own(points), own(variances), densities)
    return densities


@brief
def _write_densities(
    laws: FloatArray, points: FloatArray, variances: FloatArray, densities: FloatArray
) -> None:
    d = laws.shape[1]
    for m in range(laws.shape[0]):
        law, moments, weighed, total = laws[m], points[m], 0.0, 0.0
        for i in range(d):
            explained, sizes, squares = 0.0, 0.0, 0.0
            for j in range(d):
                caused = 0.0
                for k in range(d):
                    caused += law[i, k] * moments[k, j]
                explained += caused * law[i, j]
                square = law[i, j] * law[i, j] * larger(moments[j, j], 0.0)
                sizes, squares = sizes + math.sqrt(square), squares + square
            share = smaller(explained / larger(variances[m, i], _TINY), 1.0)
            weight = share / (1.0 + _NOISE - share)
            weighed += weight * sizes / math.sqrt(larger(squares, _TINY))
            total += weight
        densities[m] = (weighed / larger(total, _TINY) - 1.0) / (math.sqrt(d) - 1.0)


@functools.lru_cache(maxsize=8)
def _turns(d: int) -> FloatArray:
    """Return orthogonal matrices, always the same ones, shape (m, d, d)."""
    drawn = np.random.default_rng(d).normal(size=(_N_TURNS, d, d))
    return np.asarray(np.linalg.qr(drawn)[0])
