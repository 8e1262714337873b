"""Exemplars anywhere, of which there may be only so many.

That bound makes a convex problem a combinatorial one, whose optimum nothing here certifies: the
certificate says how much better any number of exemplars could be. For the log-likelihood with the
Gaussian kernel, column generation goes on until it takes more than are allowed. From there on the
best modes come in, those go that the likelihood misses least, and EM steps move all, until that
gains no more. For other objectives and kernels the heaviest of the unbounded solution stay.
"""

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.exemplars.column_generation import Exemplars, Problem, Round, Search, generate
from oda_rl.exemplars.pricing import Samples, squared_distances
from oda_rl.exemplars.weights import (
    NotConvergedError,
    average,
    best_proportions,
    objective_value,
)

_SLOW = 1e-2  # of the mean log-likelihood: an EM step or a round that gains less is the last
_EM_STEPS = 200
_TURNOVER = 0.25  # of the exemplars: so many come at most in a round, and go at a time
_MASTER_TOLERANCE = 1e-9
_CONTENDING = 0.01  # of the best mode's height: modes that are lower by more are not finished


class TooFewExemplarsError(ValueError):
    """So few exemplars leave samples without a response."""


def generate_within(
    limit: int,
    points: FloatArray,
    problem: Problem,
    rng: np.random.Generator,
    *,
    start: FloatArray | None = None,
    tolerance: float = 1e-6,
    max_rounds: int = 300,
    masses: FloatArray | None = None,
) -> Exemplars:
    """Find good exemplars anywhere, at most ``limit`` of them.

    Parameters
    ----------
    limit : int
        ≥ 1. If column generation never takes more, its result is returned.
    points, problem, rng, tolerance, max_rounds, masses
        As for :func:`oda_rl.exemplars.column_generation.generate`.
    start : ndarray, shape (M, d), optional
        Exemplars to begin with, M ≤ ``limit``: the result is at least as good as the best weights
        of these alone.

    Raises
    ------
    NotConvergedError
        If the gap stays above the tolerance although ``limit`` is not reached.
    TooFewExemplarsError
        If the heaviest ``limit`` exemplars leave samples without a response.
    """
    if problem.slides:
        search = Search(points, problem, rng, tolerance, certified=True, masses=masses)
        if search.begin(start, limit) and search.run(max_rounds, limit):
            return search.solution()
        mixture = _BoundedMixture(search, limit, start)
        for _ in range(max(max_rounds - len(search.history), 1)):
            if not mixture.advance():
                break
        return mixture.solution()
    try:
        found = generate(
            points, problem, rng, start=start, tolerance=tolerance, max_rounds=max_rounds,
            masses=masses,
        )  # fmt: skip
    except NotConvergedError as error:
        if not isinstance(error.solution, Exemplars) or len(error.solution.weights) <= limit:
            raise
        found = error.solution
    if len(found.weights) <= limit:
        return found
    return _heaviest(found, limit, Samples(points, masses), problem, start)


def _heaviest(
    found: Exemplars,
    limit: int,
    samples: Samples,
    problem: Problem,
    start: FloatArray | None,
) -> Exemplars:
    """Weigh the heaviest exemplars again, or those of the start if they are better."""
    masses = samples.masses
    heaviest = found.positions[np.sort(np.argsort(-found.weights, kind="stable")[:limit])]
    best = None
    for positions in (heaviest, start):
        if positions is None:
            continue
        responses = samples.responses(positions - samples.origin, problem.kernel)
        if problem.objective != "mean_variance" and responses.max(axis=1).min() <= 0.0:
            continue
        weights = best_proportions(
            responses, problem.objective, penalty=problem.penalty, masses=masses
        ).weights
        value = objective_value(problem.objective, responses @ weights, problem.penalty, masses)
        if best is None or value > best.value:
            used = weights > 0.0
            gap = found.value + found.gap - value
            history = [*found.history, Round(value, gap, int(used.sum()))]
            best = Exemplars(positions[used], weights[used], value, gap, found.certificate, history)
    if best is None:
        raise TooFewExemplarsError(
            f"max_exemplars is {limit}: the heaviest {limit} of {len(found.weights)} exemplars "
            f"leave samples without a response; {len(found.weights)} are enough at this bandwidth"
        )
    return best


class _BoundedMixture:
    """A Gaussian mixture that has reached its bound.

    All of few exemplars may be so far from a sample that their responses underflow: responses here
    are in units of each sample's highest one, whose logarithm is kept.
    """

    def __init__(self, search: Search, limit: int, start: FloatArray | None) -> None:
        self.search, self.limit = search, limit
        self.samples, self.kernel = search.samples, search.problem.kernel
        self._modes = self.samples.points[:0]
        self._best = -np.inf, self._modes, self.samples.shares, self.samples.shares
        if start is not None:
            self._place(start - self.samples.origin)
        elif search.history:
            self._place(search.exemplars)
        else:
            self._place(self.samples.modes(self.samples.shares, self.kernel, search.starts())[0])
        self._weigh(np.full(len(self.exemplars), 1.0 / len(self.exemplars)))

    def advance(self) -> bool:
        """Make one round; whether it has gained enough for another."""
        self._drop()
        self._slide()
        self._weigh(self.weights)
        logs = self._log_densities()
        value, before = self._mean(logs), self._best[0]
        if value > before:
            self._best = value, self.exemplars, self.weights, logs
        known = np.concatenate([self._modes, self.exemplars])
        self._modes, worth = self._priced(logs, self.search.starts(-logs), known)
        gap = max(float(worth[0]), 0.0)
        self.search.history.append(Round(value, gap, len(self.weights)))
        new = self._modes[worth > 0.0][: max(1, int(_TURNOVER * self.limit))]
        if value - before < _SLOW or len(new) == 0:
            return False
        self._place(np.concatenate([self.exemplars, new]))
        self._weigh(np.concatenate([self.weights, np.full(len(new), 1e-3 / len(new))]))
        return True

    def solution(self) -> Exemplars:
        """Return the best of all rounds, and its certificate.

        Prices of any density of the samples bound the optimum. Those of the best are exact where it
        is the optimum, but samples far from all exemplars make them loose: half of a density that
        has an exemplar at each sample is better then.
        """
        value, exemplars, weights, logs = self._best
        samples = self.samples
        kernels = np.log(samples.heights(samples.points, samples.shares, self.kernel))
        bounds = []
        for density in (logs, np.logaddexp(logs, kernels) - np.log(2.0)):
            modes, worth = self._priced(density, self.search.starts(-density), self._modes)
            bounds.append((self._mean(density) + float(worth[0]), density, modes))
        _, density, modes = min(bounds, key=lambda bound: bound[0])
        _, worth = self._priced(density, samples.points, modes, to_the_end=True)
        gap = max(self._mean(density) + float(worth[0]) - value, 0.0)
        history = [*self.search.history, Round(value, gap, len(weights))]
        positions = exemplars + self.samples.origin
        return Exemplars(positions, weights, value, gap, "all samples", history)

    def _mean(self, values: FloatArray) -> float:
        return float(average(values, self.samples.masses))

    def _place(self, exemplars: FloatArray) -> None:
        self.exemplars = exemplars
        squares = squared_distances(self.samples.points, exemplars)
        least = squares.min(axis=1)
        self._highest = -0.5 * least
        self.responses = self.kernel.response(squares - least[:, None])

    def _log_densities(self) -> FloatArray:
        return np.asarray(np.log(self.responses @ self.weights) + self._highest)

    def _shares(self) -> FloatArray:
        shares = self.responses * self.weights
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def _weigh(self, weights: FloatArray) -> None:
        """Find the best weights, and drop the exemplars that get none."""
        found = best_proportions(
            self.responses, start=weights, tolerance=_MASTER_TOLERANCE, masses=self.samples.masses
        )
        used = found.weights > 0.0
        self.weights = found.weights[used]
        self._place(self.exemplars[used])

    def _slide(self) -> None:
        """Move exemplars and weights by EM steps, which never lower the likelihood."""
        last = -np.inf
        for _ in range(_EM_STEPS):
            value = self._mean(self._log_densities())
            if value - last < _SLOW:
                break
            last = value
            shares = self.samples.weighed(self._shares())
            sizes = np.maximum(shares.sum(axis=0), 1e-300)
            self.weights = sizes / len(shares)
            self._place(shares.T @ self.samples.points / sizes[:, None])

    def _drop(self) -> None:
        """Drop the exemplars without which the likelihood would lose least."""
        while len(self.weights) > self.limit:
            shares = np.minimum(self._shares(), 1.0 - 1e-12)
            missed = -self.samples.weighed(np.log1p(-shares)).sum(axis=0)
            n = max(self.limit, int((1.0 - _TURNOVER) * len(missed)))
            kept = np.sort(np.argsort(-missed, kind="stable")[:n])
            self.weights = self.weights[kept] / self.weights[kept].sum()
            self._place(self.exemplars[kept])

    def _priced(
        self, logs: FloatArray, starts: FloatArray, known: FloatArray, *, to_the_end: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Modes of the prices of log densities, and the logarithms of what they are worth."""
        samples, kernel, least = self.samples, self.kernel, logs.min()
        prices = self.samples.weighed(np.exp(least - logs)) / len(logs)
        modes, heights = samples.modes(prices, kernel, starts, known)
        if to_the_end:
            floor = (1.0 - _CONTENDING) * float(heights[0])
            modes, heights = samples.finished(prices, kernel, modes, heights, floor)
        with np.errstate(divide="ignore"):
            return modes, np.log(heights) - least
