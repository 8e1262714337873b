"""Infinite-exemplar column generation: weights of exemplars that may lie anywhere.

A master problem (:mod:`oda_rl.exemplars.weights`) weights the exemplars at hand, pricing
(:mod:`oda_rl.exemplars.pricing`) looks for others that would improve on them, and so on until
there are none: Algorithm 1 of [INFEX], made faster. Between two masters of the log-likelihood the
exemplars move by EM steps; pricing starts from the modes it knew and a few random samples, and only
the last one from every sample.

References
----------
[INFEX] S. Nowozin, G. Bakir, "A decoupled approach to exemplar-based unsupervised learning",
International Conference on Machine Learning, 2008.
"""

import math
from typing import NamedTuple, cast

import numpy as np
from scipy.optimize import linprog

from oda_rl._types import FloatArray
from oda_rl.exemplars.pricing import KERNELS, Kernel, Samples, leaders, squared_distances
from oda_rl.exemplars.weights import (
    NotConvergedError,
    Proportions,
    average,
    best_proportions,
    objective_value,
)
from oda_rl.files.schema import real, whole

_RANDOM_STARTS = 32
_EM_STEPS = 20
_ADDED = 0.01  # of the best price's excess: a mode that has less is not worth a column
_TWINS = 0.1  # bandwidths: exemplars that are nearer may well be one
_KEPT = 0.01  # of the bound: columns worth less by more are dropped
_PROGRESS = 1e-4  # of the objective: after a round with less no column is dropped
_MASTER_TOLERANCE = 1e-10
_CONTENDING = 0.01  # of the bound: modes that are lower by more are no matter of precision
_ROUGHLY = 100.0  # times the tolerance: below it a gap is measured in double precision
_MAX_BALLS = 2000  # around as many samples discs begin; of more samples, around some that cover
_FAR = 6.0  # bandwidths: farther from all exemplars a sample's response counts for nothing
_REACH = {"gaussian": 3.0, "epanechnikov": 0.9, "disc": 1.0}  # of a sample that stands for others


class Problem(NamedTuple):
    """What is to be maximised."""

    objective: str = "log_likelihood"
    """One of :data:`oda_rl.exemplars.weights.OBJECTIVES`."""
    kernel: Kernel = KERNELS["gaussian"]
    penalty: float = 1.0
    """C of the objectives with a variance."""

    def relative(
        self, responses: FloatArray, value: float, masses: FloatArray | None = None
    ) -> float:
        """Give the unit in which a duality gap is held against the tolerance."""
        if self.objective == "log_likelihood":
            return 1.0
        return value if self.objective == "margin" else float(average(responses, masses))

    @property
    def is_signed(self) -> bool:
        """Whether prices may have both signs."""
        return self.objective in ("margin_variance", "mean_variance")

    @property
    def slides(self) -> bool:
        """Whether EM steps move exemplars without ever lowering the objective."""
        return self.objective == "log_likelihood" and self.kernel.name == "gaussian"


class Round(NamedTuple):
    """What one round of column generation had come to."""

    objective: float
    """Of the weights before new exemplars were added, in kernel responses of height 1."""
    gap: float
    """By how much it could be improved at most, as far as that round's pricing saw."""
    n_exemplars: int


Round.SCHEMA = {  # type: ignore[attr-defined]  # of a tuple it cannot stand inside
    "objective": real("", "[-inf, inf]"),
    "gap": real("", "[-inf, inf]"),
    "n_exemplars": whole(),
}


class Exemplars(NamedTuple):
    """A weighted set of exemplars and its certificate."""

    positions: FloatArray
    """Shape (M, d)."""
    weights: FloatArray
    """Shape (M,), positive and of sum 1."""
    value: float
    """The objective."""
    gap: float
    """Duality gap: at most so much better is any solution, as far as ``certificate`` says."""
    certificate: str
    """"exact": the candidates were a finite set and all were priced. "all samples": no hill climb
    from any sample led to an exemplar that would improve on them. "local": neither did those of a
    pricing that is a heuristic (of discs, or with prices of both signs)."""
    history: list[Round]


def price_gap(problem: Problem, height: float, found: Proportions) -> float:
    """Duality gap, if no exemplar is worth more than ``height``."""
    excess = max(height - found.bound, 0.0)
    return math.log1p(excess) if problem.objective == "log_likelihood" else excess


def select(
    points: FloatArray,
    candidates: FloatArray,
    problem: Problem,
    tolerance: float = 1e-8,
    masses: FloatArray | None = None,
) -> Exemplars:
    """Weight a finite set of candidates: the convex special case, with an exact certificate.

    Points, shape (N, d), and candidates, shape (M, d), are in units of the bandwidth, and each
    point has a positive response to one of them; ``tolerance`` is a relative duality gap, and
    ``masses``, shape (N,), of sum 1, are all alike by default. The ``solution`` of a
    NotConvergedError has the last weights.
    """
    samples = Samples(points, masses)
    responses = samples.responses(candidates - samples.origin, problem.kernel)
    failure = None
    try:
        found = best_proportions(
            responses, problem.objective, penalty=problem.penalty, tolerance=0.1 * tolerance,
            masses=masses,
        )  # fmt: skip
    except NotConvergedError as error:
        failure, found = error, cast(Proportions, error.solution)
    gap = price_gap(problem, float((found.prices @ responses).max()), found)
    weights = found.weights
    if problem.objective == "margin" and failure is None:
        weights = _corner(responses)
    used = weights > 0.0
    combined = responses[:, used] @ weights[used]
    value = objective_value(problem.objective, combined, problem.penalty, masses)
    history = [Round(value, gap, int(used.sum()))]
    solution = Exemplars(candidates[used], weights[used], value, gap, "exact", history)
    if failure is not None:
        raise NotConvergedError(str(failure), solution) from failure
    return solution


class Search:
    """Column generation: it finds the best exemplars anywhere.

    Parameters
    ----------
    points : ndarray, shape (N, d)
        In units of the bandwidth.
    problem : Problem
    rng : numpy.random.Generator
        Chooses samples from which to climb.
    tolerance : float
        Duality gap at which to stop; of the log-likelihood in itself, of a margin in shares of it,
        of the others in shares of the mean response.
    masses : ndarray, shape (N,), optional
        What each sample counts for, positive and of sum 1; all alike by default.
    certified : bool
        Whether to price from all samples in the end; without it the certificate is "local".
    """

    def __init__(
        self,
        points: FloatArray,
        problem: Problem,
        rng: np.random.Generator,
        tolerance: float,
        masses: FloatArray | None = None,
        certified: bool = True,
    ) -> None:
        self.problem, self.samples = problem, Samples(points, masses)
        self.rng, self.tolerance, self.certified = rng, tolerance, certified
        self.history: list[Round] = []
        self._modes: FloatArray = self.samples.points[:0]
        self._best = -math.inf

    def begin(self, start: FloatArray | None, most: float = math.inf) -> bool:
        """Take exemplars to begin with, shape (M, d), and samples that have no response to them.

        The result is at least as good as the best weights of these (Theorem 2). If there were more
        than ``most``, none is taken, and False is returned.
        """
        samples, kernel = self.samples, self.problem.kernel
        if start is not None:
            chosen = start - samples.origin
        elif kernel.name == "disc":
            # All samples, so that the result is at least as good as kernel vector quantization.
            chosen = samples.points[:0]
            if len(samples) <= _MAX_BALLS:
                chosen = samples.points[leaders(samples.points, 0.0)]  # each once
        else:
            chosen, _ = samples.modes(samples.shares, kernel, self.starts())
        far = _FAR if kernel.name == "gaussian" else _REACH[kernel.name]
        nearest = np.full(len(samples), np.inf)
        for rows in samples.exact.chunks(len(chosen)):
            squares = squared_distances(chosen[rows], samples.points, samples.exact.squares)
            nearest = np.minimum(nearest, squares.min(axis=0))
        alone = samples.points[nearest > far * far]
        chosen = np.concatenate([chosen, alone[leaders(alone, _REACH[kernel.name])]])
        if len(chosen) > most:
            return False
        self.exemplars = chosen
        self.responses = samples.responses(chosen, kernel)
        self.weights = np.full(len(chosen), 1.0 / len(chosen))
        return True

    def run(self, max_rounds: int, most: float = math.inf) -> bool:
        """Make rounds until the gap is small enough.

        The result is False if more than ``most`` exemplars got a weight before.
        """
        for _ in range(max_rounds):
            try:
                ended = self.advance()
            except NotConvergedError as error:
                if not self.history:
                    raise
                raise NotConvergedError(str(error), self.solution()) from error
            if self.history[-1].n_exemplars > most:
                return False
            if ended:
                return True
        raise NotConvergedError(
            f"the duality gap was {self.history[-1].gap:.3g} after max_rounds={max_rounds} rounds, "
            f"above tol={self.tolerance:g}: raise max_rounds or tol, or take the solution that is "
            "attached",
            self.solution(),
        )

    def advance(self) -> bool:
        """Make one round; whether the gap is small enough, by pricing from all samples."""
        found = self._master()
        samples, kernel, prices = self.samples, self.problem.kernel, found.prices
        combined = self.responses @ self.weights
        unit = self.problem.relative(combined, found.value, samples.masses)
        limit = self.tolerance * unit
        floor = found.bound - _CONTENDING * abs(found.bound)
        known = np.concatenate([self._modes, self.exemplars])
        modes, heights = samples.modes(prices, kernel, self.starts(prices), known)
        roughly = price_gap(self.problem, heights[0], found) <= _ROUGHLY * limit
        if roughly or not self.problem.slides:
            modes, heights = samples.finished(prices, kernel, modes, heights, floor)
        if self.certified and price_gap(self.problem, heights[0], found) <= limit:
            modes, heights = samples.modes(prices, kernel, samples.points, modes)
            modes, heights = samples.finished(prices, kernel, modes, heights, floor)
        gap = price_gap(self.problem, heights[0], found)
        self.history.append(Round(found.value, gap, int((self.weights > 0.0).sum())))
        self._certain = self.exemplars, self.weights, self.responses
        if gap <= limit:
            return True
        self._modes = modes
        excess = float(heights[0]) - found.bound
        self._add(modes[heights > found.bound + _ADDED * excess])
        return False

    def solution(self) -> Exemplars:
        """Return what the last round weighted and priced."""
        problem, last = self.problem, self.history[-1]
        exemplars, weights, responses = self._certain
        if problem.objective == "margin":
            weights = _corner(responses)
        used = weights > 0.0
        value = objective_value(
            problem.objective, responses[:, used] @ weights[used], problem.penalty,
            self.samples.masses,
        )  # fmt: skip
        certain = self.certified and problem.kernel.name != "disc" and not problem.is_signed
        certificate = "all samples" if certain else "local"
        gap = last.gap + max(last.objective - value, 0.0)
        positions = exemplars[used] + self.samples.origin
        return Exemplars(positions, weights[used], value, gap, certificate, self.history)

    def _master(self) -> Proportions:
        if not self.problem.slides:
            return self._weigh(_MASTER_TOLERANCE)
        self._weigh(1e-7)
        self._slide()
        found = self._weigh(_MASTER_TOLERANCE)
        order = np.argsort(-self.weights)
        first = order[leaders(self.exemplars[order], _TWINS)]
        if len(first) == len(order):
            return found
        before = self.exemplars, self.weights, self.responses
        nearest = squared_distances(self.exemplars, self.exemplars[first]).argmin(axis=1)
        self.weights = np.bincount(nearest, before[1])
        self.exemplars = np.zeros((len(first), self.exemplars.shape[1]))
        np.add.at(self.exemplars, nearest, before[1][:, None] * before[0])
        self.exemplars /= self.weights[:, None]
        self.responses = self.samples.responses(self.exemplars, self.problem.kernel)
        self._slide()
        merged = self._weigh(_MASTER_TOLERANCE)
        if merged.value >= found.value - _MASTER_TOLERANCE:
            return merged
        self.exemplars, self.weights, self.responses = before
        return found

    def _slide(self) -> None:
        """Move exemplars and weights by EM steps, which never lower the likelihood."""
        for _ in range(_EM_STEPS):
            shares = self.responses * self.weights
            shares = self.samples.weighed(shares / shares.sum(axis=1, keepdims=True))
            sizes = np.maximum(shares.sum(axis=0), 1e-300)
            self.weights = sizes / len(shares)
            self.exemplars = (shares.T @ self.samples.points) / sizes[:, None]
            self.responses = self.samples.responses(self.exemplars, self.problem.kernel)

    def _weigh(self, tolerance: float) -> Proportions:
        """Solve the master problem and drop the exemplars that are not needed."""
        found = best_proportions(
            self.responses, self.problem.objective, penalty=self.problem.penalty,
            start=self.weights, tolerance=tolerance, masses=self.samples.masses,
        )  # fmt: skip
        used = found.weights > 0.0
        # Exemplars that cannot move take the places of others again and again.
        if not self.problem.slides:
            prices = found.prices @ self.responses
            used |= prices > found.bound - _KEPT * abs(found.bound)
            if found.value - self._best <= _PROGRESS * abs(found.value):
                used[:] = True  # or else what is dropped here may come back for ever
            self._best = max(self._best, found.value)
        self.weights = found.weights[used]
        self.exemplars, self.responses = self.exemplars[used], self.responses[:, used]
        return found

    def _add(self, modes: FloatArray) -> None:
        new = self.samples.responses(modes, self.problem.kernel)
        self.responses = np.concatenate([self.responses, new], axis=1)
        self.exemplars = np.concatenate([self.exemplars, modes])
        self.weights = np.concatenate([self.weights, np.full(len(modes), 1e-3 / len(modes))])

    def starts(self, prices: FloatArray | None = None) -> FloatArray:
        """Take samples to climb from: some at random, and those with the highest prices."""
        n = min(_RANDOM_STARTS, len(self.samples))
        chosen = self.rng.choice(len(self.samples), n, replace=False)
        if prices is not None:
            dear = np.argpartition(-prices, n - 1)[:n]
            chosen = np.union1d(chosen, dear)
        points: FloatArray = self.samples.points[chosen]
        return points


def _corner(responses: FloatArray) -> FloatArray:
    """Weights of largest margin at a corner of the optimal face: few are positive."""
    n, m = responses.shape
    solved = linprog(
        np.append(np.zeros(m), -1.0),
        A_ub=np.column_stack([-responses, np.ones(n)]),
        b_ub=np.zeros(n),
        A_eq=np.append(np.ones(m), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * (m + 1),
        method="highs",
    )
    if solved.x is None:
        raise NotConvergedError(f"the linear program was not solved: {solved.message}", None)
    weights = np.where(solved.x[:m] > 1e-12, solved.x[:m], 0.0)
    return np.asarray(weights / weights.sum())
