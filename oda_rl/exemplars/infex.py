"""Density estimation by exemplars anywhere, with a certificate of optimality."""

import math
import warnings
from dataclasses import KW_ONLY
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions

from oda_rl._types import BoolArray, FloatArray
from oda_rl._validation import checked_points
from oda_rl.exemplars.base import (
    ExemplarMixture,
    NotConvergedError,
    checked_exemplars,
    distinct,
    root_mean_variance,
    rule_of_thumb,
)
from oda_rl.exemplars.column_generation import Exemplars, Problem, Round, Search
from oda_rl.exemplars.pricing import KERNELS, squared_distances
from oda_rl.exemplars.weights import OBJECTIVES, average, best_proportions
from oda_rl.files.estimators import COUNT, NOT_NEGATIVE, POSITIVE, Flag, Seed, estimator, validated

_SLOW = 1e-2  # of the mean log-likelihood: an EM step or a round that gains less is the last
_EM_STEPS = 200
_TURNOVER = 0.25  # of the exemplars: at most these are added in a round, or dropped at a time
_MASTER_TOLERANCE = 1e-9
_CONTENDING = 0.01  # of the best mode's height: modes that are lower by more are not finished


class TooFewExemplarsError(ValueError):
    """``max_exemplars`` leaves samples without a response."""


def _search_within(
    search: Search, limit: int, start: FloatArray | None, max_rounds: int
) -> Exemplars:
    """Find at most ``limit`` exemplars: by column generation, if that never takes more."""
    if not search.problem.slides:
        search.begin(start)
        search.run(max_rounds)
        optimum = search.solution()
        return (
            optimum if len(optimum.weights) <= limit else _heaviest(optimum, limit, search, start)
        )
    if search.begin(start, limit):
        search.run(max_rounds, limit)
        if search.history[-1].n_exemplars <= limit:
            return search.solution()
    mixture = _BoundedMixture(search, limit, start)
    for _ in range(max(max_rounds - len(search.history), 1)):
        if not mixture.advance():
            break
    return mixture.solution()


def _heaviest(
    optimum: Exemplars, limit: int, search: Search, start: FloatArray | None
) -> Exemplars:
    """Weight the heaviest exemplars again, or those of the start if they are better."""
    samples, (objective, _, penalty) = search.samples, search.problem
    heaviest = optimum.positions[np.sort(np.argsort(-optimum.weights, kind="stable")[:limit])]
    best = None
    for positions in (heaviest, start):
        if positions is None:
            continue
        responses = samples.responses(positions - samples.origin)
        if objective != "mean_variance" and responses.max(axis=1).min() <= 0.0:
            continue
        weighted = best_proportions(responses, objective, penalty=penalty, masses=samples.masses)
        if best is None or weighted.value > best.value:
            value, used = weighted.value, weighted.weights > 0.0
            gap = optimum.value + optimum.gap - value
            history = [*optimum.history, Round(value, gap, int(used.sum()))]
            chosen = positions[used], weighted.weights[used]
            best = Exemplars(*chosen, value, gap, optimum.certificate, history)
    if best is None:
        raise TooFewExemplarsError(
            f"max_exemplars is {limit}: the heaviest {limit} of {len(optimum.weights)} exemplars "
            f"leave samples without a response; {len(optimum.weights)} are enough at this bandwidth"
        )
    return best


class _BoundedMixture:
    """A Gaussian mixture that has reached its bound.

    Responses are in units of each sample's highest one, whose logarithm is kept: all of them may
    underflow if there are few exemplars.
    """

    def __init__(self, search: Search, limit: int, start: FloatArray | None) -> None:
        self.search, self.limit = search, limit
        self.samples = search.samples
        self._modes = self.samples.points[:0]
        self._best = -np.inf, self._modes, self.samples.shares, self.samples.shares
        if start is not None:
            self._place(start - self.samples.origin)
        elif search.history:
            self._place(search.exemplars)
        else:
            self._place(self.samples.modes(self.samples.shares, search.starts())[0])
        self._weigh(np.full(len(self.exemplars), 1.0 / len(self.exemplars)))

    def advance(self) -> bool:
        """Make one round; return whether it has gained enough for another."""
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

        Prices by any density bound the optimum. Those of the best density are tight if it is the
        optimum, but loose if samples are far from all exemplars: its mean with a kernel density
        estimate is better then.
        """
        value, exemplars, weights, logs = self._best
        samples = self.samples
        kernels = np.log(samples.heights(samples.points, samples.shares))
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
        nearest = squares.min(axis=1)
        self._highest = -0.5 * nearest
        self.responses = self.samples.kernel.response(squares - nearest[:, None])

    def _log_densities(self) -> FloatArray:
        return np.asarray(np.log(self.responses @ self.weights) + self._highest)

    def _shares(self) -> FloatArray:
        shares = self.responses * self.weights
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def _weigh(self, weights: FloatArray) -> None:
        """Find the best weights, and drop the exemplars without weight."""
        best = best_proportions(
            self.responses, start=weights, tolerance=_MASTER_TOLERANCE, masses=self.samples.masses
        )
        used = best.weights > 0.0
        self.weights = best.weights[used]
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
        """Drop the exemplars whose removal lowers the likelihood least."""
        while len(self.weights) > self.limit:
            shares = np.minimum(self._shares(), 1.0 - 1e-12)
            missed = -self.samples.weighed(np.log1p(-shares)).sum(axis=0)
            n = max(self.limit, int((1.0 - _TURNOVER) * len(missed)))
            chosen = np.sort(np.argsort(-missed, kind="stable")[:n])
            self.weights = self.weights[chosen] / self.weights[chosen].sum()
            self._place(self.exemplars[chosen])

    def _priced(
        self, logs: FloatArray, starts: FloatArray, known: FloatArray, *, to_the_end: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Modes of the prices of log densities, and the logarithms of their heights."""
        samples, lowest = self.samples, logs.min()
        prices = self.samples.weighed(np.exp(lowest - logs)) / len(logs)
        modes, heights = samples.modes(prices, starts, known)
        if to_the_end:
            floor = (1.0 - _CONTENDING) * float(heights[0])
            modes, heights = samples.finished(prices, modes, heights, floor)
        with np.errstate(divide="ignore"):
            return modes, np.log(heights) - lowest


_FOLDS = 3
_COMPARED = 7  # bandwidths
_CV_TOLERANCE = 1e-3


@estimator
class INFEX(ExemplarMixture):
    """Infinite-exemplar mixture: exemplars anywhere, not only at samples, with a certificate.

    Maximises an objective of the combined responses γ_i = Σ_j q_j k((x_i - z_j)/h) over weights q
    on the simplex and any number of exemplars z. The problem is convex in q over all of space; its
    optimum has finitely many exemplars, and column generation finds them.

    Parameters
    ----------
    objective : str, default="log_likelihood"
        "log_likelihood" is mean log γ, "margin" ρ = min γ, "margin_variance" ρ - C mean (γ - ρ)²,
        and "mean_variance" mean γ - C var γ.
    kernel : {"gaussian", "epanechnikov", "disc"}, default="gaussian"
        exp(-r²/2), max(1 - r², 0), or 1 up to r = 1, with r the distance in bandwidths.
    bandwidth : float or {"scott", "silverman", "cv"}, default="scott"
        h > 0, or by Scott's or Silverman's rule; "cv" compares seven between half of Silverman's
        and the root mean variance of the features by three-fold cross-validated log-density.
    C : float, default=1.0
        Penalty of the variance, ≥ 0, in the last two objectives.
    tol : float, default=1e-6
        Duality gap at which to stop, positive: absolute for the log-likelihood, relative to a
        margin, or to the mean response for the other objectives.
    max_rounds : int, default=300
        Maximum number of rounds of column generation, ≥ 1.
    max_exemplars : int or None, default=None
        Maximum number of exemplars, ≥ 1: for bandwidths so small that the optimum has one for every
        few samples. If the optimum has more, the result is the best that was found with this many.
        That is fast for the log-likelihood with the Gaussian kernel; otherwise the heaviest
        exemplars of the optimum are weighted again.
    init : array-like, shape (n, n_features), or None, default=None
        Initial exemplars, at most ``max_exemplars``. The result is at least as good as the best
        weights of these alone. Samples out of their reach are added.
    warm_start : bool, default=False
        Whether ``fit`` begins with the exemplars of the last ``fit``, if there was one.
    random_state : int, RandomState instance or None, default=None
        Chooses the samples from which pricing climbs.

    Attributes
    ----------
    exemplars_, cluster_centers_ : ndarray, shape (n_exemplars, n_features)
        z.
    weights_ : ndarray, shape (n_exemplars,)
        q, positive and of sum 1.
    bandwidth_ : float
        h.
    objective_value_ : float
        The objective, with kernels of height 1.
    duality_gap_ : float
        No weights of any exemplars, however many, are better by more than this, in the sense of
        ``certificate_``.
    certificate_ : str
        "all samples": no hill climb from any sample led to an exemplar that would allow for more.
        "local": the same, but climbs are a heuristic, as with the disc kernel, which has no
        gradient, and with objectives whose prices have both signs.
    history_ : list of Round
        Objective, gap and number of exemplars of each round.
    labels_ : ndarray, shape (n_samples,)
        Exemplar of the highest weighted response to each sample.
    n_features_in_ : int
        Number of features.
    n_iter_ : int
        Rounds made.

    Raises
    ------
    NotConvergedError
        By ``fit``, if the gap stays above ``tol`` although ``max_exemplars`` is not reached; its
        ``solution`` is the estimator, fitted with the best exemplars so far and their gap.

    References
    ----------
    S. Nowozin, G. Bakir, "A decoupled approach to exemplar-based unsupervised learning",
    International Conference on Machine Learning, 2008: problem (4), Algorithm 1. Equation 13 and
    Algorithm 1 print the sign of Σ α k wrongly; the conjugate of objective 2 is
    -1 - log N - mean log(-α); objectives 3 and 4 have prices of both signs.

    Examples
    --------
    >>> X = np.array([[0.0], [0.4], [5.0], [5.4], [5.2], [4.8]])
    >>> model = INFEX(bandwidth=1.0, random_state=0).fit(X)
    >>> model.exemplars_.round(2), model.weights_.round(2)
    (array([[5.1],
           [0.2]]), array([0.67, 0.33]))
    >>> model.duality_gap_ < 1e-6
    True
    >>> model.predict([[1.0], [4.0]])
    array([1, 0])
    """

    objective: Annotated[str, StrOptions(set(OBJECTIVES))] = "log_likelihood"
    _: KW_ONLY
    kernel: Annotated[str, StrOptions(set(KERNELS))] = "gaussian"
    bandwidth: Annotated[float | str, POSITIVE, StrOptions({"scott", "silverman", "cv"})] = "scott"
    C: Annotated[float, NOT_NEGATIVE] = 1.0
    tol: Annotated[float, POSITIVE] = 1e-6
    max_rounds: Annotated[int, COUNT] = 300
    max_exemplars: Annotated[int | None, COUNT, None] = None
    init: Annotated[npt.ArrayLike | None, "array-like", None] = None
    warm_start: Flag = False
    random_state: Seed = None

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Find exemplars and weights.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : Ignored
        sample_weight : array-like, shape (n_samples,), optional
            At least 0, relative to one another: a common factor makes no difference.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``init`` does not fit the data or exceeds ``max_exemplars``, or if with that many
            exemplars a sample has no response.
        NotConvergedError
            If the duality gap stays above ``tol`` although ``max_exemplars`` is not reached.
        """
        everything = checked_points(self, X, reset=True)
        points, weights, _ = distinct(everything, sample_weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        bandwidth = self._resolved(points, weights)
        start = self._start(points.shape[1])
        problem = Problem(self.objective, KERNELS[self.kernel], float(self.C))

        masses = None if weights is None else weights / weights.sum()
        search = Search(
            points / bandwidth, problem, np.random.default_rng(seed), float(self.tol), masses
        )
        start = None if start is None else start / bandwidth

        def find() -> Exemplars:
            if self.max_exemplars is not None:
                return _search_within(search, self.max_exemplars, start, int(self.max_rounds))
            search.begin(start)
            search.run(int(self.max_rounds))
            return search.solution()

        self._learn(everything, bandwidth, find)
        return self

    def _start(self, n_features: int) -> FloatArray | None:
        if self.warm_start and hasattr(self, "exemplars_"):
            if self.exemplars_.shape[1] == n_features:
                heaviest = np.argsort(-self.weights_, kind="stable")[: self.max_exemplars]
                return self.exemplars_[np.sort(heaviest)]
            raise ValueError(
                f"warm_start needs {self.exemplars_.shape[1]} features as before, got {n_features}"
            )
        start = checked_exemplars(self.init, n_features, "init")
        if start is not None and self.max_exemplars is not None and len(start) > self.max_exemplars:
            raise ValueError(
                f"init has {len(start)} exemplars: it must have at most "
                f"max_exemplars={self.max_exemplars}"
            )
        return start

    def _resolved(self, points: FloatArray, weights: FloatArray | None) -> float:
        """Return the bandwidth: given, by a rule, or by cross-validation."""
        if not isinstance(self.bandwidth, str):
            return float(self.bandwidth)
        if self.bandwidth != "cv":
            return rule_of_thumb(points, self.bandwidth, weights)
        low = 0.5 * rule_of_thumb(points, "silverman", weights)
        high = max(root_mean_variance(points, weights), 4.0 * low)
        n = len(points)
        if n < _FOLDS:
            raise ValueError(
                f"bandwidth='cv' needs n_samples of at least {_FOLDS}, got n_samples = {n}"
            )
        known = np.ones(n) if weights is None else weights
        fold = np.random.default_rng(0).permutation(n) % _FOLDS
        bandwidths = np.geomspace(low, high, _COMPARED)
        scores = [
            sum(self._held_out(points, known, fold == k, float(bandwidth)) for k in range(_FOLDS))
            for bandwidth in bandwidths
        ]
        return float(bandwidths[int(np.argmax(scores))])

    def _held_out(
        self, points: FloatArray, weights: FloatArray, test: BoolArray, bandwidth: float
    ) -> float:
        """Weighted sum of held-out log-densities; -∞ if samples have no response."""
        model = INFEX(
            self.objective, kernel=self.kernel, bandwidth=bandwidth, C=self.C,
            tol=max(self.tol, _CV_TOLERANCE), max_rounds=self.max_rounds,
            max_exemplars=self.max_exemplars, random_state=0,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a bandwidth too small is not chosen
            try:
                model.fit(points[~test], sample_weight=weights[~test])
            except NotConvergedError as error:
                model = error.solution  # type: ignore[assignment]
            except TooFewExemplarsError:
                return -math.inf
        return float(weights[test] @ model.score_samples(points[test]))
