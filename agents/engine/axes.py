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

import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.engine import laws
from oda_rl.agents.engine.memory import ACTION, GOES_ON, MARK
from oda_rl.agents.engine.state import Observations

_STEPS = 2000  # that the law is learned from, and less than twice as many
_MOST_COMPONENTS = 32  # of more nobody asks
_N_TURNS = 200
_DENSE = 0.35  # from 0, one component in each row, to 1, all alike


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
    rows, d = rows[:: max(len(rows) // _STEPS, 1)], observations.shape[1]
    if len(rows) < 2 or d > _MOST_COMPONENTS:
        return True
    n_causes = steps.shape[1] - MARK
    if n_causes == 1:  # an action by its number
        n_causes = int(steps[:, ACTION].max()) + 1
    if len(rows) < laws.LEAST_STEPS * (2 + n_causes):
        return True
    room, own = laws.new_room(len(rows), d, n_causes), np.ascontiguousarray
    given, d = laws.law_of_changes(own(observations), own(steps), own(rows), room)
    if given <= _DENSE:  # also if it is not known
        return True
    known = room.numbers[: 3 * d * d].reshape(3, d, d)
    return bool(given < _densities(*_turned(*known)).min())


def _turned(
    law: FloatArray, points: FloatArray, changes: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a law, the moments of points and the variances of changes in turned axes.

    The arguments have shape (d, d), what is returned (m, d, d), (m, d, d) and (m, d).
    """
    turns = _turns(len(law))
    back = turns.transpose(0, 2, 1)
    return turns @ law @ back, turns @ points @ back, (turns @ changes * turns).sum(axis=2)


def _densities(own: FloatArray, points: FloatArray, variances: FloatArray) -> FloatArray:
    """Return how dense laws are, shape (m,), from 0 to 1; each has axes of its own."""
    found, whole = np.empty(len(own)), np.ascontiguousarray
    laws.densities(whole(own), whole(points), whole(variances), found)
    return found


@functools.lru_cache(maxsize=8)
def _turns(d: int) -> FloatArray:
    """Return orthogonal matrices, always the same ones, shape (m, d, d)."""
    drawn = np.random.default_rng(d).normal(size=(_N_TURNS, d, d))
    return np.asarray(np.linalg.qr(drawn)[0])
