"""Components of observations that are noise: nothing predicts them, and they predict nothing.

They would be in the way of all that measures distances, and each is a chance to be misled by. What
counts is how surely a quantity is correlated with another, or with a product of two: below some
standard errors, of thousands of pairs that have been looked at, it is chance.
"""

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.worlds.coordinates import Coordinates

_BY_CHANCE = 5.0  # standard errors of a correlation that thousands of pairs do not reach
_MOST = 4_000  # steps to look at
_FEWEST = 100  # of which less is not told
_MOST_DEVIATIONS = 3.0  # to which columns are cut: their tails would reach farther by chance


def noise_among(
    at: Coordinates,
    before: FloatArray,
    codes: FloatArray,
    rewards: FloatArray,
    after: FloatArray,
    ended: BoolArray,
) -> BoolArray:
    """Say which components are noise, shape (d,).

    Parameters
    ----------
    at : Coordinates
    before : ndarray, shape (n, d)
        Observations before each step.
    codes : ndarray, shape (n, C)
        Of the actions.
    rewards : ndarray, shape (n,)
    after : ndarray, shape (n, d)
        Observations that they led to.
    ended : ndarray of bool, shape (n,)
        Whether the episode terminated there.

    Examples
    --------
    >>> from oda_rl.agents.worlds.coordinates import read
    >>> rng = np.random.default_rng(0)
    >>> seen = np.column_stack([np.sin(0.1 * np.arange(300)), rng.normal(size=300)])
    >>> steps = seen[:-1], np.ones((299, 1)), np.zeros(299), seen[1:], np.zeros(299, dtype=bool)
    >>> noise_among(read(seen[:-1], seen[1:])[0], *steps)
    array([False,  True])
    """
    n, d = before.shape
    nothing = np.zeros(d, dtype=np.bool_)
    if n < _FEWEST:
        return nothing
    rows = slice(-_MOST, None)
    x, y = _unit(before[rows]), _unit(after[rows])
    own = codes[rows]
    persists = _standard_errors((x * y).mean(axis=0), len(x)) >= _BY_CHANCE
    varies = (np.ptp(before, axis=0) > 0.0) & (np.ptp(after, axis=0) > 0.0)
    likely = np.flatnonzero(varies & ~persists)
    likely = np.setdiff1d(likely, at.circles)
    likely = likely[~_predicted(x, own, y[:, likely])]
    while len(likely):
        kept = np.setdiff1d(np.arange(d), likely)
        ends, gains = ended[rows].astype(np.float64), rewards[rows]
        rest = _rest(np.concatenate([x[:, kept], own], axis=1), y[:, kept])
        told = [_predicts(x, kept, j, own, rest) for j in likely.tolist()]
        both = _rest(
            np.concatenate([x[:, kept], y[:, kept], own], axis=1), np.column_stack([gains, ends])
        )
        told = [
            one or _predicts(x, kept, j, own, both) or _predicts(y, kept, j, own, both)
            for one, j in zip(told, likely.tolist(), strict=True)
        ]
        if not any(told):
            break
        likely = likely[~np.array(told)]
    nothing[likely] = True
    return nothing


def _unit(values: FloatArray) -> FloatArray:
    """Return columns of mean 0 and variance 1, or of 0 where they are constant."""
    centred = values - values.mean(axis=0)
    deviation = centred.std(axis=0)
    tiny = 1e-9 * np.abs(values).max(axis=0)
    return np.asarray(centred / np.where(deviation > tiny, deviation, np.inf))


def _standard_errors(correlations: FloatArray, n: int) -> FloatArray:
    return np.asarray(np.abs(correlations) * np.sqrt(n))


def _rest(columns: FloatArray, targets: FloatArray) -> FloatArray:
    """Return what an affine law leaves of targets, standardised."""
    with_one = np.column_stack([np.ones(len(columns)), columns])
    return _unit(targets - with_one @ np.linalg.lstsq(with_one, targets, rcond=None)[0])


def _reaches(columns: FloatArray, targets: FloatArray) -> BoolArray:
    """Say which targets are correlated with any of the columns."""
    if not targets.shape[1]:
        return np.zeros(0, dtype=np.bool_)
    cut = (
        np.clip(_unit(values), -_MOST_DEVIATIONS, _MOST_DEVIATIONS) for values in (columns, targets)
    )
    units = [_unit(values) for values in cut]
    found = units[0].T @ units[1] / len(targets)
    return np.asarray(_standard_errors(found, len(targets)).max(axis=0) >= _BY_CHANCE)


def _predicted(x: FloatArray, codes: FloatArray, targets: FloatArray) -> BoolArray:
    """Say which targets depend on actions, components, or products of any two of these."""
    found = _reaches(codes, targets)
    for j in range(x.shape[1]):
        columns = np.concatenate([x[:, j : j + 1], x[:, j : j + 1] * x[:, j:]], axis=1)
        found |= _reaches(np.concatenate([columns, x[:, j : j + 1] * codes], axis=1), targets)
    return found


def _predicts(
    x: FloatArray, kept: IntArray, j: int, codes: FloatArray, targets: FloatArray
) -> bool:
    """Say whether any target depends on a component, alone or with kept ones or actions."""
    own = x[:, j : j + 1]
    columns = [own, np.abs(own), own * own, own * x[:, kept], own * codes]
    return bool(_reaches(np.concatenate(columns, axis=1), targets).any())
