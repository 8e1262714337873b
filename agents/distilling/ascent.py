"""From a rule uphill, by real episodes."""

import math

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.climbing import Climber
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.playing import Deciding, Ground, drawn
from oda_rl.agents.distilling.races import Raced, compare, race

_SIGMA, _GENERATIONS = 0.2, 40
_LEAST_STARTS, _MOST_STARTS, _ENOUGH_STARTS = 1, 32, 2
_FLAT = 2  # generations in a row in which the better half return the same, and enough
_WIDER = 2.0  # as far, where they return the same, but not enough


def enough_steps(coding: Coding, length: float) -> float:
    """Return how many steps a climb may well take; with more, another is better than a longer one.

    Where starts differ, more of them in each generation bring less than climbing once more, from
    what was the best of all, with steps that are wide again.
    """
    return _GENERATIONS * _population(coding) * _ENOUGH_STARTS * length


def _population(coding: Coding) -> int:
    return 4 + int(3 * math.log(coding.n_moving))


class Ascent:
    """CMA-ES on the numbers of a rule, which may stop and go on.

    Parameters
    ----------
    ground : Ground
    coding : Coding
    vector : ndarray
        Where to begin.
    steps : float
        That there will be in all: so many starts in each generation that there are some forty.
    enough : float
        A return that, if all have it, leaves nothing to climb.
    rng : numpy.random.Generator
    """

    def __init__(
        self,
        ground: Ground,
        coding: Coding,
        vector: FloatArray,
        steps: float,
        enough: float,
        rng: np.random.Generator,
    ) -> None:
        self._ground, self._coding, self._rng, self._steps = ground, coding, rng, steps
        self._begin, self._enough = vector, enough
        moving, self._fixed = np.split(vector, [coding.n_moving])
        self._climber = Climber(moving, _SIGMA, _population(coding), rng)
        self._n_starts, self._flat = _LEAST_STARTS, 0
        self._means: list[FloatArray] = []

    def climb(self, steps: float) -> bool:
        """Go on for so many steps; return whether there is anything left to climb."""
        ground = self._ground
        ground.allow(steps)
        while self._flat < _FLAT:
            before = ground.steps
            asked: list[Deciding] = [self._rule(one) for one in self._climber.ask()]
            worth = compare(ground, asked, drawn(self._rng, self._n_starts))
            if worth is None:
                return True
            better = worth[np.isfinite(worth)]
            if np.ptp(better) > 0.0:
                self._flat = 0
            elif better[0] >= self._enough * self._n_starts:
                self._flat += 1
            else:
                self._climber.sigma *= _WIDER
            self._climber.tell(worth)
            self._means.append(self._climber.mean.copy())
            n = self._n_starts
            wanted = self._steps / _GENERATIONS * n / (ground.steps - before)
            self._n_starts = int(np.clip(wanted, _LEAST_STARTS, min(2 * n, _MOST_STARTS)))
        return False

    def decide(self, steps: float) -> tuple[FloatArray, Raced] | None:
        """Choose, with so many steps, between the start, the middle, the end, and the later mean.

        Returns the vector and the race that it has won; None if there is nothing to choose from.
        """
        n = len(self._means)
        if n < 2:
            return None
        found = [self._means[n // 2], self._means[-1], np.mean(self._means[n // 2 :], axis=0)]
        vectors = [self._begin, *(np.concatenate([one, self._fixed]) for one in found)]
        self._ground.allow(steps)
        rules: list[Deciding] = [self._coding.rule(one) for one in vectors]
        raced = race(self._ground, rules, self._rng, incumbent=0)
        return vectors[raced.best], raced

    def _rule(self, moving: FloatArray) -> Deciding:
        return self._coding.rule(np.concatenate([moving, self._fixed]))
