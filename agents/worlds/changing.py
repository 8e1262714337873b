"""Whether a world is no longer the one that was learned, and since when.

It is asked only where the newest steps are predicted far worse than steps held out once were. Then
laws of the newest half, quarter, eighth of the steps are compared with one of all, on what is held
out of the newest ones. Laws of fewer states fit these better in any world; so the newest steps are
looked at that are most like old ones: only where the law of all is far worse there, and the better
one is as wrong about those old ones, the world has changed.
"""

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.worlds.judging import refitted
from oda_rl.agents.worlds.laws import squared_gaps
from oda_rl.agents.worlds.learning import CodedSteps, Learned, log_errors, residuals_of
from oda_rl.agents.worlds.trajectories import without_noise

_NEWEST, _FEWEST = 0.13, 100  # share of the steps, and least number, that are the newest
_STRETCH = 25  # steps in a row that are held out together
_FAR_WORSE = 1.0  # difference of mean logarithms of squared errors
_HARMLESS = float(np.log(1e-3))  # such errors matter to no rule
_ENOUGH = 0.5  # of what is gained: with more steps, though some are older, more is known
_COMPARED, _ALIKE = 20_000, 0.25  # old steps to compare with; share of pairs that are most alike


def outdated(learned: Learned, seen: CodedSteps, rng: np.random.Generator) -> int:
    """Return how many of the oldest steps are of a world that is no more.

    Parameters
    ----------
    learned : Learned
        From before the newest steps.
    seen : CodedSteps
    rng : numpy.random.Generator
        Of the laws that are compared.
    """
    n = len(seen.before)
    newest = np.arange(n - min(max(_FEWEST, int(_NEWEST * n)), n // 2), n)
    expected = learned.chosen.errors[learned.chosen.form.name]
    if len(newest) < _FEWEST or _error(learned, learned, seen, newest) < expected + _FAR_WORSE:
        return 0
    held = newest[newest // _STRETCH % 2 == 0]
    sizes = [n]
    while sizes[-1] // 2 >= _FEWEST:
        sizes.append(sizes[-1] // 2)
    motion = seen._replace(rewards=np.zeros(n), ended=np.zeros(n, dtype=np.bool_))
    laws = [
        refitted(learned, motion, np.setdiff1d(np.arange(n - size, n), held), rng) for size in sizes
    ]
    errors = np.array([_error(learned, law, seen, held) for law in laws])
    gain = errors[0] - errors.min()
    if gain < _FAR_WORSE:
        return 0
    best = int(np.argmax(errors <= errors[0] - _ENOUGH * gain))
    first = n - sizes[best]
    older = n - sizes[best - 1] or first // 2  # between these and the first it has changed
    old, new = _alike(learned, seen, np.arange(older)[-_COMPARED:], held)
    own = _error(learned, laws[best], seen, new)
    others = _error(learned, laws[0], seen, new), _error(learned, laws[best], seen, old)
    return first if min(others) >= max(own + _FAR_WORSE, _HARMLESS) else 0


def _error(learned: Learned, law: Learned, seen: CodedSteps, rows: IntArray) -> float:
    """Return the mean logarithm of a law's squared errors of steps."""
    left = residuals_of(without_noise(law.arrays), learned.at, seen, rows)
    return float(log_errors(left).mean())


def _alike(
    learned: Learned, seen: CodedSteps, old: IntArray, new: IntArray
) -> tuple[IntArray, IntArray]:
    """Return pairs of old and new steps that are most alike, in state and action."""

    def places(chosen: IntArray) -> FloatArray:
        points = learned.at.standardised(seen.before[chosen])
        return np.concatenate([points, seen.codes[chosen]], axis=1)

    gaps = squared_gaps(places(new), places(old))
    nearest, least = gaps.argmin(axis=1), gaps.min(axis=1)
    close = least <= np.quantile(least, _ALIKE)
    return old[nearest[close]], new[close]
