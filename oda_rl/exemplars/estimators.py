"""Densities by exemplars anywhere, with a certificate of optimality, and among candidates."""

import math
import warnings
from dataclasses import KW_ONLY, field
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state

from oda_rl._types import FloatArray
from oda_rl._validation import checked_points, chunks, given_weights
from oda_rl.exemplars.base import ExemplarMixture, checked_exemplars, distinct, scott
from oda_rl.exemplars.column_generation import Exemplars, Problem, Search, select
from oda_rl.exemplars.pricing import KERNELS, Kernel, squared_distances
from oda_rl.exemplars.weights import OBJECTIVES
from oda_rl.files import estimators
from oda_rl.files.estimators import one_of
from oda_rl.files.schema import Several, real, whole
from oda_rl.samples import units_of

_POOL = 1000  # samples of a stream
_IN_POOL = Several(real("pool, d"), real("pool", "[0, inf)"), real("pool", "[0, inf]"))


@estimators.estimator
class INFEX(estimators.Unsupervised, ExemplarMixture):
    """Infinite-exemplar mixture: exemplars anywhere, not only at samples, with a certificate.

    Maximises an objective of the combined responses γ_i = Σ_j q_j k((x_i - z_j)/h) over weights q
    on the simplex and any number of exemplars z. The problem is convex in q over all of space; its
    optimum has finitely many exemplars, and column generation finds them.

    Parameters
    ----------
    objective : str, default="log_likelihood"
        "log_likelihood" is mean log γ, "margin" ρ = min γ, "margin_variance" ρ - C mean (γ - ρ)²,
        and "mean_variance" mean γ - C var γ.
    kernel : {"gaussian", "epanechnikov", "disc"} or Kernel, default="gaussian"
        exp(-r²/2), max(1 - r², 0), or 1 up to r = 1, with r the distance in bandwidths; or one of
        your own (:func:`oda_rl.exemplars.pricing.radial_kernel`).
    bandwidth : float or {"auto", "scott"}, default="auto"
        h > 0, or "auto": by 3-fold likelihood cross-validation (Habbema, Hermans and van den Broek,
        1974) of up to 600 samples; h falls by √2 while it helps. For other objectives than the
        likelihood it is "scott", Scott's rule, which overfits.
    C : float, default=1.0
        Penalty of the variance, ≥ 0, in the last two objectives.
    tol : float, default=1e-6
        Duality gap at which to stop, positive: absolute for the log-likelihood, relative to a
        margin, or to the mean response for the other objectives.
    max_rounds : int, default=300
        Maximum number of rounds of column generation, ≥ 1. If they are too few, ``fit`` warns with
        a ConvergenceWarning; ``duality_gap_`` is valid anyway.
    init : array-like, shape (n, n_features), or None, default=None
        Initial exemplars. The result is at least as good as the best weights of these alone.
        Samples out of their reach are added.
    random_state : int, RandomState instance or None, default=None
        Chooses the samples from which pricing climbs.

    Attributes
    ----------
    exemplars_ : ndarray, shape (n_exemplars, n_features)
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
    n_iter_ : int
        Rounds made.

    References
    ----------
    S. Nowozin, G. Bakir, "A decoupled approach to exemplar-based unsupervised learning",
    International Conference on Machine Learning, 2008: problem (4), Algorithm 1.

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

    objective: Annotated[str, one_of(*OBJECTIVES)] = "log_likelihood"
    _: KW_ONLY
    kernel: Annotated[str | Kernel, one_of(*KERNELS), Kernel] = "gaussian"
    bandwidth: Annotated[float | str, estimators.POSITIVE, one_of("auto", "scott")] = "auto"
    C: Annotated[float, estimators.NOT_NEGATIVE] = 1.0
    tol: Annotated[float, estimators.POSITIVE] = 1e-6
    max_rounds: Annotated[int, estimators.COUNT] = 300
    init: Annotated[npt.ArrayLike | None, "array-like", None] = None
    random_state: estimators.Seed = None

    _pool: Annotated[tuple[FloatArray, FloatArray, FloatArray], _IN_POOL] = field(init=False)
    _threshold: Annotated[float, real("", "[0, inf]")] = field(init=False)
    _sums: Annotated[FloatArray, real("2", "(0, inf)")] = field(init=False)
    _chosen_at: Annotated[float, real("", "[0, inf)")] = field(init=False)
    _rng: Annotated[np.random.Generator, np.random.Generator] = field(init=False)
    _seed: Annotated[int, whole("", "[0, 2147483647]")] = field(init=False)

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        points = checked_points(self, X, reset=True)
        weights = given_weights(sample_weight, points)
        self._gather(points, weights, first=True)
        self._solve(points, weights, checked_exemplars(self.init, points.shape[1], "init"))
        return self

    @estimators.validated
    def partial_fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Learn from more samples; see :meth:`fit`.

        Exemplars and weights are found anew for a pool of 1,000 samples, from the exemplars so far:
        all samples as long as there are no more, then a random choice in proportion to their
        weights (priority sampling). The gap is that of the pool. Scott's rule knows the number of
        all samples; "auto" chooses anew each time that it has doubled.
        """
        first = not hasattr(self, "_pool")
        points = checked_points(self, X, reset=first)
        self._gather(points, given_weights(sample_weight, points), first=first)
        pool, weights, _ = self._pool
        known = checked_exemplars(self.init, points.shape[1], "init")
        self._solve(pool, np.maximum(weights, self._threshold), known if first else self.exemplars_)
        self.labels_ = self.predict(X)
        return self

    def _gather(self, points: FloatArray, weights: FloatArray, *, first: bool) -> None:
        """Put samples into the pool: those with the highest of weight / uniform number stay.

        Those that stay stand for at least the highest that does not (Duffield, Lund and Thorup,
        "Priority sampling for estimation of arbitrary subset sums", Journal of the ACM 54, 2007).
        """
        if first:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._seed, self._rng = seed, np.random.default_rng([seed, 1])
            self._pool = points[:0], weights[:0], weights[:0]
            self._threshold, self._sums, self._chosen_at = 0.0, np.zeros(2), 0.0
        self._sums = self._sums + np.array([weights.sum(), weights @ weights])
        new = points, weights, weights / (1.0 - self._rng.random(len(weights)))
        pool = [np.concatenate(pair) for pair in zip(self._pool, new, strict=True)]
        order = np.argsort(-pool[2], kind="stable")
        if len(order) > _POOL:
            self._threshold = max(self._threshold, float(pool[2][order[_POOL]]))
        kept = np.sort(order[:_POOL])
        self._pool = pool[0][kept], pool[1][kept], pool[2][kept]

    def _solve(self, rows: FloatArray, weights: FloatArray, start: FloatArray | None) -> None:
        """Find the exemplars of samples, shape (n, d), from those of ``start``, if given."""
        points, masses, _ = distinct(rows, weights)
        shares = None if masses is None else masses / masses.sum()
        bandwidth = self.bandwidth
        n = float(self._sums[0] ** 2 / self._sums[1])
        if bandwidth == "auto" and self.objective == "log_likelihood":
            if n >= 2.0 * self._chosen_at:
                self.bandwidth_, self._chosen_at = self._likeliest(), n
            bandwidth = self.bandwidth_
        elif isinstance(bandwidth, str):
            bandwidth = scott(points, shares, n)
        problem = Problem(self.objective, self._kernel, float(self.C))
        rng = np.random.default_rng(self._seed)
        search = Search(points / bandwidth, problem, rng, float(self.tol), shares)

        def find() -> Exemplars:
            search.begin(None if start is None else start / bandwidth)
            search.run(int(self.max_rounds))
            return search.solution()

        self._learn(rows, float(bandwidth), find)

    def _likeliest(self) -> float:
        """Bandwidth at which held-out samples of the pool are likeliest, from wide ones on."""
        points, given, _ = distinct(self._pool[0], np.maximum(self._pool[1], self._threshold))
        if len(points) < 3:
            return scott(points)
        chosen = np.random.default_rng([self._seed, 2]).permutation(len(points))[:600]
        points, weights = points[chosen], np.ones(len(chosen)) if given is None else given[chosen]
        points = points[:, np.ptp(points, axis=0) > 0.0]  # constants have no density
        masses, trial = weights / weights.sum(), clone(self)
        trial.set_params(init=None, tol=max(self.tol, 1e-3), random_state=self._seed)
        normal = norm.logpdf(points, masses @ points, units_of(points, masses)).sum(axis=1)

        def held_out(bandwidth: float) -> float:
            logs = normal + math.log(1e-3)  # or outliers would rule out all but the widest
            trial.set_params(bandwidth=bandwidth)
            for rest, out in KFold(3).split(points):
                trial.fit(points[rest], sample_weight=weights[rest])
                logs[out] = np.logaddexp(logs[out], trial.score_samples(points[out]))
            return float(masses @ logs)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about trials
            # From 4 times Scott's on, if the kernel is Gaussian, whose reach is 3.
            best = h = 12.0 / self._kernel.reach * scott(points, masses)
            score = -math.inf
            while (value := held_out(h)) > score:
                best, score, h = h, value, h / math.sqrt(2.0)
        return best


class Selection(estimators.Unsupervised, ExemplarMixture):
    """A mixture whose exemplars are chosen among candidates."""

    candidates: npt.ArrayLike | None

    def _select(
        self, X: Any, sample_weight: Any, bandwidth: float | str, problem: Problem, tolerance: float
    ) -> Self:
        """Weight the candidates, or the samples; ValueError if none responds to a sample."""
        everything = checked_points(self, X, reset=True)
        points, weights, used = distinct(everything, sample_weight)
        masses = None if weights is None else weights / weights.sum()
        if isinstance(bandwidth, str):
            bandwidth = scott(points, masses, None if weights is None else float(weights.sum()))
        candidates = checked_exemplars(self.candidates, points.shape[1], "candidates")
        candidates = np.unique(points, axis=0) if candidates is None else candidates
        origin = candidates.mean(axis=0)
        gaps, parts = candidates - origin, chunks(len(everything))
        nearest = [squared_distances(everything[rows] - origin, gaps).min(axis=1) for rows in parts]
        squares = np.concatenate(nearest)
        alone = np.flatnonzero(used & (problem.kernel.response(squares / bandwidth**2) <= 0.0))
        if len(alone) > 0:
            farthest = math.sqrt(squares[used].max())
            raise ValueError(
                f"{len(alone)} samples, the first in row {alone[0]}, have no candidate within "
                f"reach of bandwidth={bandwidth:g}: the farthest is at {farthest:.6g}"
            )
        scaled = points / bandwidth, candidates / bandwidth
        self._learn(
            everything, float(bandwidth), partial(select, *scaled, problem, tolerance, masses)
        )
        return self


@estimators.estimator
class ConvexClustering(Selection):
    """Convex clustering: the most likely mixture whose exemplars are samples.

    Maximises mean_i log Σ_j q_j k((x_i - x_j)/h) over q on the simplex: convex, and sparse at the
    optimum. :class:`INFEX` is never worse.

    Parameters
    ----------
    bandwidth : float or "scott", default="scott"
        h > 0, or by Scott's rule. Lashkari and Golland's β is 1/(2 h²), d the squared distance.
    kernel : {"gaussian", "epanechnikov", "disc"}, default="gaussian"
        See :class:`INFEX`.
    candidates : array-like, shape (n, n_features), or None, default=None
        Possible exemplars; None: the samples. ``fit`` raises a ValueError if a sample has no
        response to any.
    tol : float, default=1e-8
        Duality gap at which to stop, positive.

    Attributes
    ----------
    exemplars_ : ndarray, shape (n_exemplars, n_features)
        Candidates of positive weight.
    duality_gap_ : float
        No weights of the candidates are better by more.
    certificate_ : str
        "exact": all candidates are priced.
    weights_, bandwidth_, objective_value_, labels_
        As for :class:`INFEX`.

    References
    ----------
    D. Lashkari, P. Golland, "Convex clustering with exemplar-based models", Advances in Neural
    Information Processing Systems 20, 2007.

    Examples
    --------
    >>> X = [[0.0], [0.3], [0.5], [5.0], [5.3]]
    >>> ConvexClustering(bandwidth=1.0).fit(X).exemplars_
    array([[0.3],
           [5. ],
           [5.3]])
    """

    bandwidth: Annotated[float | str, estimators.POSITIVE, one_of("scott")] = "scott"
    _: KW_ONLY
    kernel: Annotated[str, one_of(*KERNELS)] = "gaussian"
    candidates: Annotated[npt.ArrayLike | None, "array-like", None] = None
    tol: Annotated[float, estimators.POSITIVE] = 1e-8

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        problem, tolerance = Problem(kernel=KERNELS[self.kernel]), float(self.tol)
        return self._select(X, sample_weight, self.bandwidth, problem, tolerance)


@estimators.estimator
class KernelVectorQuantization(Selection):
    """Kernel vector quantization: few codevectors within a given distance of every sample.

    Maximises the smallest total weight of the balls that cover a sample; the balls of positive
    weight cover all samples, and few suffice at a corner of the optimal face.

    Parameters
    ----------
    max_distortion : float, default=1.0
        Radius of the balls, > 0.
    candidates : array-like, shape (n, n_features), or None, default=None
        Possible codevectors; None: the samples. ``fit`` raises a ValueError if a sample of positive
        weight is too far from all of them.

    Attributes
    ----------
    objective_value_ : float
        The margin ρ: each sample is covered by balls of at least this weight.
    exemplars_, weights_, bandwidth_, duality_gap_, certificate_, labels_
        As for :class:`ConvexClustering`.

    References
    ----------
    M. Tipping, B. Schölkopf, "A kernel approach for vector quantization with guaranteed distortion
    bounds", AISTATS, 2001, in the form of equation 1 of Nowozin and Bakir (see :class:`INFEX`).

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [7.0]]
    >>> KernelVectorQuantization(max_distortion=1.0).fit(X).exemplars_
    array([[1.],
           [7.]])
    """

    max_distortion: Annotated[float, estimators.POSITIVE] = 1.0
    _: KW_ONLY
    candidates: Annotated[npt.ArrayLike | None, "array-like", None] = None

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        problem, radius = Problem("margin", KERNELS["disc"]), float(self.max_distortion)
        return self._select(X, sample_weight, radius, problem, 1e-8)
