"""Infinite-exemplar column generation: weights of exemplars that may lie anywhere.

A master problem (:mod:`oda_rl.exemplars.weights`) weights the exemplars at hand, and pricing
(:mod:`oda_rl.exemplars.pricing`) looks for others that improve on them, until there are none:
Algorithm 1 of :class:`oda_rl.INFEX`'s paper, made faster. Between two masters of the log-likelihood
the exemplars move by EM steps; pricing starts from the last modes and a few samples, and only the
last one from all.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np
from scipy.optimize import linprog

from oda_rl._types import FloatArray
from oda_rl.exemplars.pricing import KERNELS, Kernel, Samples, leaders, squared_distances
from oda_rl.exemplars.weights import Proportions, average, best_proportions, objective_value
from oda_rl.files.schema import real, whole

_MAX_LOSS = 0.01  # of the bound: columns whose price is lower by more are dropped
_PROGRESS = 1e-4  # of the objective: after a round that gains less no column is dropped
_MASTER_TOLERANCE = 1e-10
_NEAR = 0.01  # tolerances: columns whose price is higher by more join the master problem
_ROUGHLY = 100.0  # tolerances: below it a gap is measured in double precision
_FAR = 6.0  # bandwidths from all exemplars, beyond which a sample becomes one


class Problem(NamedTuple):
    """The objective and its kernel."""

    objective: str = "log_likelihood"  # one of ``weights.OBJECTIVES``
    kernel: Kernel = KERNELS["gaussian"]
    penalty: float = 1.0  # C of the objectives with a variance

    def relative(
        self, responses: FloatArray, value: float, masses: FloatArray | None = None
    ) -> float:
        """Return the unit of the tolerance of the duality gap."""
        if self.objective == "log_likelihood":
            return 1.0
        return value if self.objective == "margin" else float(average(responses, masses))

    @property
    def slides(self) -> bool:
        """Whether EM steps move exemplars without ever lowering the objective."""
        return self.objective == "log_likelihood" and self.kernel.name == "gaussian"


class Round(NamedTuple):
    """Result of a round of column generation."""

    objective: Annotated[float, real("", "[-inf, inf]")]
    """The objective before new exemplars were added, with kernels of height 1."""
    gap: Annotated[float, real("", "[-inf, inf]")]  # duality gap, by the pricing of this round
    n_exemplars: Annotated[int, whole()]


class Exemplars(NamedTuple):
    """A weighted set of exemplars and its certificate."""

    positions: FloatArray  # shape (M, d)
    weights: FloatArray  # shape (M,), positive and of sum 1
    value: float  # the objective
    gap: float  # duality gap: no solution is better by more, in the sense of ``certificate``
    certificate: str
    """As ``INFEX.certificate_``; "exact": the candidates were a finite set, all priced."""
    history: list[Round]
    failure: str | None = None  # why the tolerance was not reached, if it was not


def price_gap(problem: Problem, height: float, master: Proportions) -> float:
    """Duality gap, if no exemplar has a price above ``height``."""
    excess = max(height - master.bound, 0.0)
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
    point has a positive response to one of them; the tolerance is a relative duality gap.
    """
    samples = Samples(points, problem.kernel, masses)
    responses = samples.responses(candidates - samples.origin)
    master = best_proportions(
        responses, problem.objective, penalty=problem.penalty, tolerance=0.1 * tolerance,
        masses=masses,
    )  # fmt: skip
    gap = price_gap(problem, float((master.prices @ responses).max()), master)
    weights = (
        master.weights if problem.objective != "margin" else _corner(responses, master.weights)
    )
    used = weights > 0.0
    combined = responses[:, used] @ weights[used]
    value = objective_value(problem.objective, combined, problem.penalty, masses)
    history = [Round(value, gap, int(used.sum()))]
    failure = None
    if not master.converged:
        failure = f"the duality gap is {gap:.3g}, above tol={tolerance:g}: raise tol"
    return Exemplars(candidates[used], weights[used], value, gap, "exact", history, failure)


class Search:
    """Column generation: find the best exemplars anywhere.

    Points, shape (N, d), are in units of the bandwidth; ``rng`` chooses samples from which to
    climb. The search stops at a duality gap of ``tolerance`` units of :meth:`Problem.relative`.
    Masses of the samples, shape (N,), are positive and of sum 1, equal by default. Unless
    ``certified``, the last pricing is not from all samples, and the certificate is "local".
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
        self.problem, self.samples = problem, Samples(points, problem.kernel, masses)
        self.rng, self.tolerance, self.certified = rng, tolerance, certified
        self.history: list[Round] = []
        self._modes: FloatArray = self.samples.points[:0]
        self._best = -math.inf
        self._failure: str | None = None

    def begin(self, start: FloatArray | None) -> None:
        """Begin with exemplars, shape (M, d), and samples that have no response to them.

        The result is at least as good as the best weights of these (Theorem 2).
        """
        samples = self.samples
        kernel, reach = self.problem.kernel.name, self.problem.kernel.reach
        if start is not None:
            chosen = start - samples.origin
        elif kernel == "disc":
            # All samples, so that the result is at least as good as kernel vector quantization.
            chosen = samples.points[:0]
            if len(samples) <= 2000:  # a disc starts around each
                chosen = samples.points[leaders(samples.points, 0.0)]  # each once
        else:
            chosen, _ = samples.modes(samples.shares, self.starts())
        far = _FAR if kernel == "gaussian" else reach
        nearest = np.full(len(samples), np.inf)
        for rows in samples.exact.chunks(len(chosen)):
            squares = squared_distances(chosen[rows], samples.points, samples.exact.squares)
            nearest = np.minimum(nearest, squares.min(axis=0))
        alone = samples.points[nearest > far * far]
        chosen = np.concatenate([chosen, alone[leaders(alone, reach)]])
        self.exemplars = chosen
        self.responses = samples.responses(chosen)
        self.weights = np.full(len(chosen), 1.0 / len(chosen))

    def run(self, max_rounds: int) -> None:
        """Make rounds until the gap is small."""
        for _ in range(max_rounds):
            if self.advance():
                return
        self._failure = (
            f"the duality gap was {self.history[-1].gap:.3g} after max_rounds={max_rounds} rounds, "
            f"above tol={self.tolerance:g}: raise max_rounds or tol"
        )

    def advance(self) -> bool:
        """Make one round; return whether the gap is small enough, by pricing from all samples."""
        master = self._master()
        samples, prices = self.samples, master.prices
        unit = self.problem.relative(self.responses @ self.weights, master.value, samples.masses)
        tolerance = self.tolerance * unit
        floor = master.bound - 0.01 * abs(master.bound)  # lower ones are not finished
        known = np.concatenate([self._modes, self.exemplars])
        modes, heights = samples.modes(prices, self.starts(prices), known)
        roughly = price_gap(self.problem, heights[0], master) <= _ROUGHLY * tolerance
        if roughly or not self.problem.slides:
            modes, heights = samples.finished(prices, modes, heights, floor)
        if self.certified and price_gap(self.problem, heights[0], master) <= tolerance:
            modes, heights = samples.modes(prices, samples.points, modes)
            modes, heights = samples.finished(prices, modes, heights, floor)
        gap = price_gap(self.problem, heights[0], master)
        self.history.append(Round(master.value, gap, int((self.weights > 0.0).sum())))
        self._priced = self.exemplars, self.weights, self.responses
        if gap <= tolerance:
            return True
        self._modes = modes
        excess = float(heights[0]) - master.bound
        added = modes[heights > master.bound + 0.01 * excess]  # a mode with less is not added
        self.responses = np.concatenate([self.responses, samples.responses(added)], axis=1)
        self.exemplars = np.concatenate([self.exemplars, added])
        self.weights = np.concatenate([self.weights, np.full(len(added), 1e-3 / len(added))])
        return False

    def solution(self) -> Exemplars:
        """Return the exemplars that the last round weighted and priced."""
        problem, last = self.problem, self.history[-1]
        exemplars, weights, responses = self._priced
        if problem.objective == "margin":
            weights = _corner(responses, weights)
        used = weights > 0.0
        value = objective_value(
            problem.objective, responses[:, used] @ weights[used], problem.penalty,
            self.samples.masses,
        )  # fmt: skip
        signed = problem.objective in ("margin_variance", "mean_variance")  # prices
        certain = self.certified and problem.kernel.name != "disc" and not signed
        certificate = "all samples" if certain else "local"
        gap = last.gap + max(last.objective - value, 0.0)
        positions = exemplars[used] + self.samples.origin
        rest = certificate, self.history, self._failure
        return Exemplars(positions, weights[used], value, gap, *rest)

    def _master(self) -> Proportions:
        if not self.problem.slides:
            return self._weigh(_MASTER_TOLERANCE)
        self._weigh(1e-7)
        self._slide()
        master = self._weigh(_MASTER_TOLERANCE)
        order = np.argsort(-self.weights)
        first = order[leaders(self.exemplars[order], 0.1)]  # bandwidths
        if len(first) == len(order):
            return master
        before = self.exemplars, self.weights, self.responses
        nearest = squared_distances(self.exemplars, self.exemplars[first]).argmin(axis=1)
        self.weights = np.bincount(nearest, before[1])
        self.exemplars = np.zeros((len(first), self.exemplars.shape[1]))
        np.add.at(self.exemplars, nearest, before[1][:, None] * before[0])
        self.exemplars /= self.weights[:, None]
        self.responses = self.samples.responses(self.exemplars)
        self._slide()
        merged = self._weigh(_MASTER_TOLERANCE)
        if merged.value >= master.value - _MASTER_TOLERANCE:
            return merged
        self.exemplars, self.weights, self.responses = before
        return master

    def _slide(self) -> None:
        """Move exemplars and weights by EM steps."""
        for _ in range(20):
            shares = self.responses * self.weights
            shares = self.samples.weighed(shares / shares.sum(axis=1, keepdims=True))
            sizes = np.maximum(shares.sum(axis=0), 1e-300)
            self.weights = sizes / len(shares)
            self.exemplars = (shares.T @ self.samples.points) / sizes[:, None]
            self.responses = self.samples.responses(self.exemplars)

    def _weigh(self, tolerance: float) -> Proportions:
        """Solve the master problem and drop exemplars without weight."""
        weights, tried = self.weights.copy(), self.weights > 0.0
        while True:  # a step over all exemplars takes time that grows with their number squared
            master = best_proportions(
                self.responses[:, tried], self.problem.objective, penalty=self.problem.penalty,
                start=weights[tried], tolerance=tolerance, masses=self.samples.masses,
            )  # fmt: skip
            weights[tried] = master.weights
            heights = master.prices @ self.responses
            missed = ~tried & (heights > master.bound + _NEAR * self.tolerance * abs(master.bound))
            if not missed.any():
                break
            tried |= missed
        used = weights > 0.0
        # Exemplars that cannot move replace one another again and again: keep the dear ones.
        if not self.problem.slides:
            used |= heights > master.bound - _MAX_LOSS * abs(master.bound)
            if master.value - self._best <= _PROGRESS * abs(master.value):
                used[:] = True  # otherwise dropped exemplars may come back for ever
            self._best = max(self._best, master.value)
        self.weights = weights[used]
        self.exemplars, self.responses = self.exemplars[used], self.responses[:, used]
        return master

    def starts(self, prices: FloatArray | None = None) -> FloatArray:
        """Choose samples to climb from, as many as exemplars: at random, and by prices."""
        n = max(32, len(self.exemplars)) if prices is not None and self.certified else 32
        n = min(n, len(self.samples))
        chosen = self.rng.choice(len(self.samples), n, replace=False)
        if prices is not None:
            chosen = np.union1d(chosen, np.argpartition(-prices, n - 1)[:n])
        return np.asarray(self.samples.points[chosen])


def _corner(responses: FloatArray, interior: FloatArray) -> FloatArray:
    """Weights of the largest margin at a corner of the optimal face: few are positive.

    The interior solution is returned if the linear program is not solved.
    """
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
        return interior
    weights = np.where(solved.x[:m] > 1e-12, solved.x[:m], 0.0)
    return np.asarray(weights / weights.sum())
