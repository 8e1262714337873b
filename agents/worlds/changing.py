"""Whether a world is no longer the one that was learned, and since when.

It is asked only where the newest steps are predicted far worse than steps held out ever were: after
a change, laws of old and new steps are wrong about both, and it may take several plans until there
are enough new ones to see why. Then laws of the newest half, quarter, eighth of the steps are
compared with one of all, on what is held out of the newest ones. Laws of fewer states fit these
better in any world; so the newest steps are looked at that are most like old ones: only where the
law of all is far worse there, and the better one is as wrong about those old ones, and where steps
from states so near to each other did not lead so far apart before, the world has changed.
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
_TINY = 1e-12  # squared, of standardised observations


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
    expected = learned.chosen.least + _FAR_WORSE
    if len(newest) < _FEWEST or _error(learned, learned, seen, newest) < expected:
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
    compared = np.arange(older)[-_COMPARED:]
    places = np.concatenate([learned.at.standardised(seen.before), seen.codes], axis=1)
    old, new = _alike(places, compared, held)
    own = _error(learned, laws[best], seen, new)
    others = _error(learned, laws[0], seen, new), _error(learned, laws[best], seen, old)
    if min(others) < max(own + _FAR_WORSE, _HARMLESS):
        return 0
    some = compared[:: max(len(compared) // len(held), 1)]
    changes = learned.at.standardised(seen.after) - learned.at.standardised(seen.before)
    before = _steepness(places, changes, *_alike(places, compared, some))
    return first if _steepness(places, changes, old, new) > before else 0


def _error(learned: Learned, law: Learned, seen: CodedSteps, rows: IntArray) -> float:
    """Return the mean logarithm of a law's squared errors of steps."""
    left = residuals_of(without_noise(law.arrays), learned.at, seen, rows)
    return float(log_errors(left).mean())


def _alike(places: FloatArray, old: IntArray, new: IntArray) -> tuple[IntArray, IntArray]:
    """Return pairs of old and new steps that are most alike, but not of one stretch."""
    gaps = squared_gaps(places[new], places[old])
    gaps[np.abs(new[:, None] - old[None, :]) < _STRETCH] = np.inf
    nearest, least = gaps.argmin(axis=1), gaps.min(axis=1)
    close = least <= np.quantile(least, _ALIKE)
    return old[nearest[close]], new[close]


def _steepness(places: FloatArray, changes: FloatArray, old: IntArray, new: IntArray) -> float:
    """Return the mean logarithm of how far pairs of steps lead apart for how far they lie apart."""
    apart = ((places[old] - places[new]) ** 2).sum(axis=1)
    differ = ((changes[old] - changes[new]) ** 2).sum(axis=1)
    return float(np.log((differ + _TINY) / (apart + _TINY)).mean())
