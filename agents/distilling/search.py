"""Search by real episodes: CMA-ES, and races on common starts."""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.playing import BudgetedEnv, Deciding, draw_seeds

_ENOUGH = 0.5  # standard errors by which an incumbent must be beaten


class Raced(NamedTuple):
    """How a race has ended."""

    best: int
    returns: list[list[float]]
    """Of each, from the first of the starts."""
    seeds: list[int]
    """Of the starts."""

    @property
    def last(self) -> FloatArray:
        """Returns of those that have played longest, shape (m, n)."""
        most = max(map(len, self.returns))
        return np.array([one for one in self.returns if len(one) == most])

    @property
    def order(self) -> list[int]:
        """All of them, the best first: those that have played longest, by their mean returns."""
        means = [float(np.mean(one)) if one else 0.0 for one in self.returns]
        others = sorted(range(len(means)), key=lambda i: (-len(self.returns[i]), -means[i]))
        return [self.best, *(i for i in others if i != self.best)]


def race(
    env: BudgetedEnv,
    rules: list[Deciding],
    rng: np.random.Generator,
    incumbent: int | None = None,
) -> Raced:
    """Find the best rule with the steps that are allowed: the worse half drops out, and so on.

    All that are left play from the same starts; each round has an equal share of the steps, and the
    first at least one start. If steps end before all have played from it, those that have are
    better: let those come first that promise most. An
    incumbent stays to the end, and is replaced only by one that is better by half a standard error
    of the paired differences.
    """
    seeds: list[int] = []
    returns: list[list[float]] = [[] for _ in rules]
    alive = list(range(len(rules)))
    rounds = max(1, math.ceil(math.log2(len(rules))))
    for r in range(rounds):
        reserved = env.left * (rounds - r - 1) // (rounds - r)
        while env.left > (reserved if seeds else 0):
            (seed,) = draw_seeds(rng, 1)
            found = [env.play(rules[i], [seed]).tolist() for i in alive]
            if not all(found) and seeds:
                break
            seeds.append(seed)
            for i, one in zip(alive, found, strict=True):
                returns[i] += one
        alive.sort(key=lambda i: (-len(returns[i]), -float(np.mean(returns[i] or [0.0]))))
        kept = alive[: (len(alive) + 1) // 2]
        if incumbent is not None and incumbent not in kept:
            kept = [*kept[: max(len(kept) - 1, 1)], incumbent]
        alive = kept
    if incumbent is None:
        return Raced(alive[0], returns, seeds)
    others = [i for i in alive if i != incumbent]
    n = len(returns[incumbent])
    if (
        others
        and better_by(returns[others[0]][:n], returns[incumbent][: len(returns[others[0]])])
        > _ENOUGH
    ):
        return Raced(others[0], returns, seeds)
    return Raced(incumbent, returns, seeds)


def better_by(ours: list[float], theirs: list[float]) -> float:
    """Return by how many standard errors paired returns are better; 0 of fewer than two.

    >>> round(better_by([2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 1.0, 1.0]), 3)
    3.873
    """
    if len(ours) < 2:
        return 0.0
    change = np.subtract(ours, theirs)
    error = float(change.std(ddof=1)) / math.sqrt(len(change))
    mean = float(change.mean())
    return mean / error if error > 0.0 else math.copysign(math.inf, mean) if mean else 0.0


def compare(env: BudgetedEnv, rules: list[Deciding], seeds: list[int]) -> FloatArray | None:
    """Return sums by which rules can be ranked, shape (n,); None if steps do not last for that.

    All play from the first half of the starts, as long as they may be among the better half; only
    those also play from the others. The worth of the rest is minus infinity.
    """
    half, n_best = (len(seeds) + 1) // 2, (len(rules) + 1) // 2
    sums: list[float] = []
    for rule in rules:
        floor = sorted(sums)[-n_best] if len(sums) >= n_best else -np.inf
        found = _sum(env, rule, seeds[:half], floor)
        if found is None:
            return None
        sums.append(found)
    worth = np.full(len(rules), -np.inf)
    for i in np.argsort(-np.array(sums), kind="stable")[:n_best]:
        found = _sum(env, rules[i], seeds[half:], -np.inf)
        if found is None:
            return None
        worth[i] = sums[i] + found
    return worth


def _sum(env: BudgetedEnv, rule: Deciding, seeds: list[int], floor: float) -> float | None:
    """Return the sum of returns; minus infinity as soon as it will surely be below the floor."""
    total = 0.0
    for seed in seeds:
        returns = env.play(rule, [seed], floor=floor - total)
        if len(returns) == 0:
            return None
        total += float(returns[0])
        if total == -np.inf:
            break
    return total


class Climber:
    """Maximises by :meth:`ask` and :meth:`tell`; names are those of the tutorial.

    Parameters
    ----------
    mean : ndarray, shape (n,)
        Where to begin.
    sigma : float
        Step size.
    population : int
        Candidates a generation, at least 4.
    rng : numpy.random.Generator

    Examples
    --------
    >>> climber = Climber(np.ones(3), 0.5, 10, np.random.default_rng(0))
    >>> for _ in range(100):
    ...     candidates = climber.ask()
    ...     climber.tell(-(candidates**2).sum(axis=1))
    >>> bool(np.abs(climber.mean).max() < 1e-6)
    True
    """

    def __init__(
        self, mean: FloatArray, sigma: float, population: int, rng: np.random.Generator
    ) -> None:
        n = len(mean)
        self.mean, self.sigma = mean.copy(), sigma
        self._population, self._rng = population, rng
        weights = math.log((population + 1) / 2) - np.log(np.arange(1, population // 2 + 1))
        self._weights = weights / weights.sum()
        mass = self._mass = 1.0 / (self._weights**2).sum()
        self._c_sigma = (mass + 2.0) / (n + mass + 5.0)
        self._c_path = (4.0 + mass / n) / (n + 4.0 + 2.0 * mass / n)
        self._c_one = 2.0 / ((n + 1.3) ** 2 + mass)
        c_mu = 2.0 * (mass - 2.0 + 1.0 / mass) / ((n + 2.0) ** 2 + mass)
        self._c_mu = min(1.0 - self._c_one, c_mu)
        excess = max(0.0, math.sqrt((mass - 1.0) / (n + 1.0)) - 1.0)
        self._damping = 1.0 + 2.0 * excess + self._c_sigma
        self._expected = math.sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n))
        self._covariance, self._axes, self._lengths = np.eye(n), np.eye(n), np.ones(n)
        self._path, self._path_sigma = np.zeros(n), np.zeros(n)
        self._generation = 0
        self._steps = np.zeros((0, n))

    def ask(self) -> FloatArray:
        """Draw candidates, shape (population, n)."""
        draws = self._rng.standard_normal((self._population, len(self.mean)))
        self._steps = (draws * self._lengths) @ self._axes.T
        return self.mean + self.sigma * self._steps

    def tell(self, worth: FloatArray) -> None:
        """Take note of what the candidates are worth, shape (population,)."""
        n = len(self.mean)
        self._generation += 1
        best = self._steps[np.argsort(-worth, kind="stable")[: len(self._weights)]]
        step = self._weights @ best
        self.mean = self.mean + self.sigma * step
        white = self._axes @ ((self._axes.T @ step) / self._lengths)
        c = self._c_sigma
        self._path_sigma *= 1.0 - c
        self._path_sigma += math.sqrt(c * (2.0 - c) * self._mass) * white
        length = float(np.linalg.norm(self._path_sigma))
        settled = length / math.sqrt(1.0 - (1.0 - c) ** (2 * self._generation))
        goes_on = float(settled < (1.4 + 2.0 / (n + 1.0)) * self._expected)
        c = self._c_path
        self._path *= 1.0 - c
        self._path += goes_on * math.sqrt(c * (2.0 - c) * self._mass) * step
        self._covariance *= (
            1.0 - self._c_one - self._c_mu + (1.0 - goes_on) * self._c_one * c * (2.0 - c)
        )
        self._covariance += self._c_one * np.outer(self._path, self._path)
        self._covariance += self._c_mu * (best.T * self._weights) @ best
        self.sigma *= math.exp(
            min(1.0, self._c_sigma / self._damping * (length / self._expected - 1.0))
        )
        every = max(1, int(1.0 / (10.0 * n * (self._c_one + self._c_mu))))
        if self._generation % every == 0:
            squares, self._axes = np.linalg.eigh(0.5 * (self._covariance + self._covariance.T))
            self._lengths = np.sqrt(np.maximum(squares, 1e-20))


_SIGMA, _GENERATIONS = 0.2, 40
_MIN_STARTS, _MAX_STARTS, _ENOUGH_STARTS = 1, 32, 2
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
    env : BudgetedEnv
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
        env: BudgetedEnv,
        coding: Coding,
        vector: FloatArray,
        steps: float,
        enough: float,
        rng: np.random.Generator,
    ) -> None:
        self._env, self._coding, self._rng, self._steps = env, coding, rng, steps
        self._begin, self._enough = vector, enough
        moving, self._fixed = np.split(vector, [coding.n_moving])
        self._climber = Climber(moving, _SIGMA, _population(coding), rng)
        self._n_starts, self._flat = _MIN_STARTS, 0
        self._means: list[FloatArray] = []

    def climb(self, steps: float) -> bool:
        """Go on for so many steps; return whether there is anything left to climb."""
        env = self._env
        env.allow(steps)
        while self._flat < _FLAT:
            before = env.steps
            asked: list[Deciding] = [self._rule(one) for one in self._climber.ask()]
            worth = compare(env, asked, draw_seeds(self._rng, self._n_starts))
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
            wanted = self._steps / _GENERATIONS * n / (env.steps - before)
            self._n_starts = int(np.clip(wanted, _MIN_STARTS, min(2 * n, _MAX_STARTS)))
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
        self._env.allow(steps)
        rules: list[Deciding] = [self._coding.rule(one) for one in vectors]
        raced = race(self._env, rules, self._rng, incumbent=0)
        return vectors[raced.best], raced

    def _rule(self, moving: FloatArray) -> Deciding:
        return self._coding.rule(np.concatenate([moving, self._fixed]))
