"""Exemplar-based density estimation, clustering and quantisation with an optimality certificate."""
# ruff: noqa: N803  (scikit-learn calls the data X, and the papers the penalty C)

import math
import warnings
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl._validation import RandomState, checked_points, chunks, fitted_points, validated
from oda_rl.exemplars.budget import TooFewExemplarsError, generate_within
from oda_rl.exemplars.column_generation import Exemplars, Problem, Round, generate, select
from oda_rl.exemplars.pricing import KERNELS, squared_distances
from oda_rl.exemplars.weights import OBJECTIVES, NotConvergedError

__all__ = [
    "INFEX",
    "ConvexClustering",
    "KernelVectorQuantization",
    "NotConvergedError",
    "Round",
    "rule_of_thumb",
]

_SHOWN = 5  # samples that a message names
_MOST_BANDWIDTHS = 1e150  # from one sample to another
_FOLDS = 3
_COMPARED = 7  # bandwidths
_CV_TOLERANCE = 1e-3


def rule_of_thumb(points: FloatArray, rule: str) -> float:
    """Bandwidth by Scott's or Silverman's rule, times the root mean variance of the features.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        Not all equal; if they are, the result is 1.
    rule : {"scott", "silverman"}
        n^(-1/(d+4)), or (n (d + 2)/4)^(-1/(d+4)).

    References
    ----------
    B. W. Silverman, "Density estimation for statistics and data analysis", 1986, section 4.3.2.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(1000, 2))
    >>> round(rule_of_thumb(points, "scott"), 3)
    0.316
    """
    n, d = points.shape
    size = float(n) if rule == "scott" else n * (d + 2.0) / 4.0
    deviation = math.sqrt(float(points.var(axis=0).mean()))
    return size ** (-1.0 / (d + 4.0)) * deviation if deviation > 0.0 else 1.0


class ExemplarMixture(DensityMixin, ClusterMixin, BaseEstimator):
    """What can be asked of weighted exemplars, however they were found."""

    exemplars_: FloatArray
    weights_: FloatArray
    bandwidth_: float
    duality_gap_: float
    certificate_: str
    objective_value_: float
    history_: list[Round]
    labels_: IntArray

    @property
    def cluster_centers_(self) -> FloatArray:
        """The exemplars, by the name that KMeans gives them."""
        return self.exemplars_

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Logarithm of the normalised density at each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples,)
            -inf where a kernel of finite reach does not reach.
        """
        points = fitted_points(self, X)
        values = logsumexp(self._log_responses(points), axis=1)
        d = points.shape[1]
        volume = self._kernel.log_volume(d) + d * math.log(self.bandwidth_)
        return np.asarray(values - volume)

    def score(self, X: npt.ArrayLike, y: object = None) -> float:
        """Mean logarithm of the normalised density.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : Ignored

        Returns
        -------
        float
        """
        return float(self.score_samples(X).mean())

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Exemplar of the highest weighted response to each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples,)
            Rows of ``exemplars_``; the nearest one where none responds.
        """
        return np.asarray(self._shares(X, largest=True))

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Share of each exemplar in the combined response to each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples, n_exemplars)
            Rows sum to 1; the nearest exemplar has all where none responds.
        """
        return np.asarray(self._shares(X, largest=False))

    def sample(
        self, n_samples: int = 1, random_state: RandomState = None
    ) -> tuple[FloatArray, IntArray]:
        """Draw from the density.

        Parameters
        ----------
        n_samples : int
            ≥ 1.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        X : ndarray, shape (n_samples, n_features)
        labels : ndarray, shape (n_samples,)
            The exemplar that each came from.

        Raises
        ------
        ValueError
            If ``n_samples`` is below 1.
        """
        if n_samples < 1:
            raise ValueError(f"n_samples is {n_samples!r}: it must be at least 1")
        rng = check_random_state(random_state)
        labels = rng.choice(len(self.weights_), n_samples, p=self.weights_)
        d = self.exemplars_.shape[1]
        offsets = rng.normal(size=(n_samples, d))
        exponent = self._kernel.radius_exponent
        if exponent is not None:
            offsets /= np.linalg.norm(offsets, axis=1, keepdims=True)
            offsets *= np.sqrt(rng.beta(0.5 * d, exponent, n_samples))[:, None]
        return self.exemplars_[labels] + self.bandwidth_ * offsets, labels.astype(np.int64)

    @property
    def _kernel(self) -> Any:
        return KERNELS[self._kernel_name()]

    def _kernel_name(self) -> str:
        return str(getattr(self, "kernel", "disc"))

    def _log_responses(self, points: FloatArray, squares: FloatArray | None = None) -> FloatArray:
        """Logarithms of weighted responses, shape (n, n_exemplars)."""
        if squares is None:
            squares = self._squares(points)
        log_weights = np.log(self.weights_)
        if self._kernel_name() == "gaussian":  # which would underflow
            return np.asarray(log_weights - 0.5 * squares)
        with np.errstate(divide="ignore"):
            return np.asarray(log_weights + np.log(self._kernel.response(squares)))

    def _squares(self, points: FloatArray) -> FloatArray:
        origin = self.exemplars_.mean(axis=0)
        return np.asarray(
            squared_distances(
                (points - origin) / self.bandwidth_, (self.exemplars_ - origin) / self.bandwidth_
            )
        )

    def _shares(self, X: npt.ArrayLike, *, largest: bool) -> FloatArray | IntArray:
        points = fitted_points(self, X)
        parts = []
        for rows in chunks(len(points)):
            squares = self._squares(points[rows])
            logs = self._log_responses(points[rows], squares)
            silent = np.isneginf(logs).all(axis=1)
            logs[silent] = np.where(
                squares[silent] == squares[silent].min(axis=1, keepdims=True), 0.0, -np.inf
            )
            if largest:
                parts.append(logs.argmax(axis=1))
            else:
                parts.append(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))
        return np.concatenate(parts)

    def _learn(self, points: FloatArray, bandwidth: float, find: Callable[[], Exemplars]) -> None:
        """Publish what is found; what a solver that does not converge had found, too."""
        least = float(np.abs(points).max()) / _MOST_BANDWIDTHS
        if bandwidth < least:
            raise ValueError(
                f"bandwidth is {bandwidth:g}: it must be at least {least:.3g}, or squares of "
                "distances overflow"
            )
        self.bandwidth_ = bandwidth
        failure = None
        try:
            found = find()
        except NotConvergedError as error:
            if not isinstance(error.solution, Exemplars):
                raise
            failure, found = error, error.solution
        self.exemplars_ = found.positions * bandwidth
        self.weights_ = found.weights
        self.objective_value_ = found.value
        self.duality_gap_ = found.gap
        self.certificate_ = found.certificate
        self.history_ = found.history
        self.n_iter_ = len(found.history)
        self.labels_ = np.asarray(self._shares(points, largest=True))
        if failure is not None:
            raise NotConvergedError(str(failure), self) from failure
        if 1 < len(np.unique(points, axis=0)) == len(np.unique(self.labels_)):
            warnings.warn(
                f"bandwidth={bandwidth:g} is so small that every sample is its own exemplar",
                UserWarning,
                stacklevel=4,
            )


class INFEX(ExemplarMixture):
    r"""Infinite-exemplar mixture: exemplars anywhere, not only at samples, with a certificate.

    Maximises an objective of the combined responses γ_i = Σ_j q_j k((x_i - z_j)/h) over weights q
    on the simplex and any number of exemplars z. The problem is convex in q over all of space; its
    optimum has finitely many exemplars, and column generation finds them.

    Parameters
    ----------
    objective : {"log_likelihood", "margin", "margin_variance", "mean_variance"}, \
            default="log_likelihood"
        mean log γ; ρ = min γ; ρ - C mean (γ - ρ)²; mean γ - C var γ.
    kernel : {"gaussian", "epanechnikov", "disc"}, default="gaussian"
        exp(-r²/2), max(1 - r², 0), or 1 up to r = 1, with r the distance in bandwidths.
    bandwidth : float or {"scott", "silverman", "cv"}, default="scott"
        h > 0. The rules are those of :func:`rule_of_thumb`; "cv" compares seven
        between half of Silverman's and the root mean variance of the features, by their held-out
        density over three folds.
    C : float, default=1.0
        Penalty of the variance, ≥ 0, in the last two objectives.
    tol : float, default=1e-6
        Duality gap at which to stop, positive: of the log-likelihood in itself, of a margin in
        shares of it, of the others in shares of the mean response.
    max_rounds : int, default=300
        Most rounds of column generation, ≥ 1.
    max_exemplars : int or None, default=None
        Most exemplars, ≥ 1: for bandwidths so small that the optimum has one for every few samples.
        If it would take more, what comes out is the best that was found with so many; that is no
        failure to converge. Of the log-likelihood with the Gaussian kernel it is found much sooner
        than the optimum; otherwise the heaviest exemplars of the optimum are weighted again.
    init : array-like, shape (n, n_features), or None, default=None
        Exemplars to begin with, at most ``max_exemplars``. What comes out is at least as good as
        the best weights of these alone. Samples out of their reach are taken in addition.
    warm_start : bool, default=False
        Whether ``fit`` begins with the exemplars of the last one; ``init`` is then for the first.
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
        The objective, with responses that are not normalised (of height 1).
    duality_gap_ : float
        The certificate: no weights of any exemplars, however many, have an objective better by more
        than this, as far as pricing saw. ``certificate_`` says how far.
    certificate_ : str
        "all samples": no hill climb from any sample led to an exemplar that would allow for more.
        "local": the same, but with the disc kernel, which has no gradient, or with objectives whose
        prices have both signs, the climbs are only a heuristic.
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
        ``solution`` is the estimator, fitted with the best exemplars until then and their gap.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "objective": [StrOptions(set(OBJECTIVES))],
        "kernel": [StrOptions(set(KERNELS))],
        "bandwidth": [
            Interval(Real, 0, None, closed="neither"),
            StrOptions({"scott", "silverman", "cv"}),
        ],
        "C": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_rounds": [Interval(Integral, 1, None, closed="left")],
        "max_exemplars": [Interval(Integral, 1, None, closed="left"), None],
        "init": ["array-like", None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        objective: str = "log_likelihood",
        *,
        kernel: str = "gaussian",
        bandwidth: float | str = "scott",
        C: float = 1.0,
        tol: float = 1e-6,
        max_rounds: int = 300,
        max_exemplars: int | None = None,
        init: npt.ArrayLike | None = None,
        warm_start: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.objective = objective
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.C = C
        self.tol = tol
        self.max_rounds = max_rounds
        self.max_exemplars = max_exemplars
        self.init = init
        self.warm_start = warm_start
        self.random_state = random_state

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Find exemplars and weights.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : Ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``init`` does not fit the data or exceeds ``max_exemplars``, or if with so few a
            sample would have no response.
        NotConvergedError
            If the duality gap stays above ``tol`` although ``max_exemplars`` is not reached.
        """
        points = checked_points(self, X, reset=True)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        bandwidth = self._resolved(points)
        start = self._start(points.shape[1])
        problem = Problem(self.objective, KERNELS[self.kernel], float(self.C))

        search = generate
        if self.max_exemplars is not None:
            search = partial(generate_within, int(self.max_exemplars))

        def find() -> Exemplars:
            return search(
                points / bandwidth,
                problem,
                np.random.default_rng(seed),
                start=None if start is None else start / bandwidth,
                tolerance=float(self.tol),
                max_rounds=int(self.max_rounds),
            )

        self._learn(points, bandwidth, find)
        return self

    def _start(self, n_features: int) -> FloatArray | None:
        if self.warm_start and hasattr(self, "exemplars_"):
            if self.exemplars_.shape[1] == n_features:
                # The heaviest, if there may be fewer now, in their order.
                heaviest = np.argsort(-self.weights_, kind="stable")[: self.max_exemplars]
                return self.exemplars_[np.sort(heaviest)]
            raise ValueError(
                f"warm_start needs {self.exemplars_.shape[1]} features as before, got {n_features}"
            )
        start = _checked_exemplars(self.init, n_features, "init")
        if start is not None and self.max_exemplars is not None and len(start) > self.max_exemplars:
            raise ValueError(
                f"init has {len(start)} exemplars: it must have at most "
                f"max_exemplars={self.max_exemplars}"
            )
        return start

    def _resolved(self, points: FloatArray) -> float:
        if not isinstance(self.bandwidth, str):
            return float(self.bandwidth)
        if self.bandwidth != "cv":
            return rule_of_thumb(points, self.bandwidth)
        low = 0.5 * rule_of_thumb(points, "silverman")
        high = max(math.sqrt(float(points.var(axis=0).mean())), 4.0 * low)
        return self._compared(points, np.geomspace(low, high, _COMPARED))

    def _compared(self, points: FloatArray, bandwidths: FloatArray) -> float:
        """Bandwidth of the highest held-out density."""
        n = len(points)
        if n < _FOLDS:
            raise ValueError(
                f"bandwidth='cv' needs n_samples of at least {_FOLDS}, got n_samples = {n}"
            )
        fold = np.random.default_rng(0).permutation(n) % _FOLDS
        scores = [
            sum(self._held_out(points, fold == k, float(bandwidth)) for k in range(_FOLDS))
            for bandwidth in bandwidths
        ]
        return float(bandwidths[int(np.argmax(scores))])

    def _held_out(self, points: FloatArray, held: BoolArray, bandwidth: float) -> float:
        model = INFEX(
            self.objective, kernel=self.kernel, bandwidth=bandwidth, C=self.C,
            tol=max(self.tol, _CV_TOLERANCE), max_rounds=self.max_rounds,
            max_exemplars=self.max_exemplars, random_state=0,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a bandwidth too small is not chosen
            try:
                model.fit(points[~held])
            except NotConvergedError as error:
                model = error.solution  # type: ignore[assignment]
            except TooFewExemplarsError:
                return -math.inf
        return float(model.score_samples(points[held]).sum())


class ConvexClustering(ExemplarMixture):
    """Convex clustering: a mixture whose exemplars are samples, the most likely one.

    Maximises mean_i log Σ_j q_j k((x_i - x_j)/h) over q on the simplex: convex, and sparse at the
    optimum. :class:`INFEX` is never worse.

    Parameters
    ----------
    bandwidth : float or {"scott", "silverman"}, default="scott"
        h > 0, or by :func:`rule_of_thumb`. Lashkari and Golland's β is 1/(2 h²) with d the squared
        distance.
    kernel : {"gaussian", "epanechnikov", "disc"}, default="gaussian"
        See :class:`INFEX`.
    candidates : array-like, shape (n, n_features), or None, default=None
        Exemplars to choose from; None: the samples.
    tol : float, default=1e-8
        Duality gap at which to stop, positive.

    Attributes
    ----------
    exemplars_, cluster_centers_ : ndarray, shape (n_exemplars, n_features)
        Candidates of positive weight.
    weights_ : ndarray, shape (n_exemplars,)
        Positive and of sum 1.
    bandwidth_ : float
        h.
    objective_value_ : float
        Mean log-likelihood, with kernels of height 1.
    duality_gap_ : float
        By how much other weights of the candidates could be better at most.
    certificate_ : str
        "exact": all candidates are priced.
    labels_ : ndarray, shape (n_samples,)
        Exemplar of the highest weighted response to each sample.
    n_features_in_ : int
        Number of features.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "bandwidth": [
            Interval(Real, 0, None, closed="neither"),
            StrOptions({"scott", "silverman"}),
        ],
        "kernel": [StrOptions(set(KERNELS))],
        "candidates": ["array-like", None],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        bandwidth: float | str = "scott",
        *,
        kernel: str = "gaussian",
        candidates: npt.ArrayLike | None = None,
        tol: float = 1e-8,
    ) -> None:
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.candidates = candidates
        self.tol = tol

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Weight the candidates.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : Ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``candidates`` do not fit the data, or a sample has no response to any of them.
        NotConvergedError
            If the weights do not converge.
        """
        points = checked_points(self, X, reset=True)
        given = self.bandwidth
        bandwidth = rule_of_thumb(points, given) if isinstance(given, str) else float(given)
        problem = Problem("log_likelihood", KERNELS[self.kernel])
        _fit_candidates(self, points, self.candidates, bandwidth, problem, float(self.tol))
        return self


class KernelVectorQuantization(ExemplarMixture):
    """Kernel vector quantization: few samples such that none is farther away than allowed.

    Maximises the least number of weighted balls that cover a sample; the balls of positive weight
    cover all samples, and few suffice at a corner of the optimal face.

    Parameters
    ----------
    max_distortion : float, default=1.0
        Radius of the balls, > 0.
    candidates : array-like, shape (n, n_features), or None, default=None
        Codevectors to choose from; None: the samples.

    Attributes
    ----------
    exemplars_, cluster_centers_ : ndarray, shape (n_exemplars, n_features)
        Candidates of positive weight.
    weights_ : ndarray, shape (n_exemplars,)
        Positive and of sum 1.
    objective_value_ : float
        The margin ρ: each sample is covered by balls of so much weight, at least.
    bandwidth_, duality_gap_, certificate_, labels_, n_features_in_
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_distortion": [Interval(Real, 0, None, closed="neither")],
        "candidates": ["array-like", None],
    }

    def __init__(
        self, max_distortion: float = 1.0, *, candidates: npt.ArrayLike | None = None
    ) -> None:
        self.max_distortion = max_distortion
        self.candidates = candidates

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Choose codevectors.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : Ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``candidates`` do not fit the data, or a sample is too far from all of them.
        """
        points = checked_points(self, X, reset=True)
        problem = Problem("margin", KERNELS["disc"])
        _fit_candidates(self, points, self.candidates, float(self.max_distortion), problem, 1e-8)
        return self


def _fit_candidates(
    model: ExemplarMixture,
    points: FloatArray,
    given: npt.ArrayLike | None,
    bandwidth: float,
    problem: Problem,
    tolerance: float,
) -> None:
    """Weight candidates, which are the samples if none are given."""
    candidates = _checked_exemplars(given, points.shape[1], "candidates")
    if candidates is None:
        candidates = np.unique(points, axis=0)
    _check_covered(points, candidates, bandwidth, problem)
    scaled = points / bandwidth
    model._learn(
        points, bandwidth, lambda: select(scaled, candidates / bandwidth, problem, tolerance)
    )


def _checked_exemplars(
    given: npt.ArrayLike | None, n_features: int, name: str
) -> FloatArray | None:
    if given is None:
        return None
    exemplars: FloatArray = check_array(given, dtype=np.float64, order="C", input_name=name)
    if exemplars.shape[1] != n_features:
        raise ValueError(
            f"{name} has {exemplars.shape[1]} features: it must have {n_features}, as the samples"
        )
    return exemplars


def _check_covered(
    points: FloatArray, candidates: FloatArray, bandwidth: float, problem: Problem
) -> None:
    """Raise a ValueError that says which samples no candidate responds to, and what would do."""
    origin = candidates.mean(axis=0)
    squares = np.concatenate(
        [
            squared_distances(points[rows] - origin, candidates - origin).min(axis=1)
            for rows in chunks(len(points))
        ]
    )
    covered = problem.kernel.response(squares / bandwidth**2) > 0.0
    if covered.all():
        return
    alone = np.flatnonzero(~covered)
    shown = ", ".join(map(str, alone[:_SHOWN])) + (", ..." if len(alone) > _SHOWN else "")
    farthest = math.sqrt(float(squares.max()))
    least = "above " if problem.kernel.name == "epanechnikov" else "of at least "
    if problem.kernel.name == "gaussian":  # where responses underflow
        least, farthest = "of at least ", farthest / 38.0
    raise ValueError(
        f"{len(alone)} of {len(points)} samples (rows {shown}) have no candidate within reach of "
        f"bandwidth={bandwidth:g}: a bandwidth {least}{farthest:.6g} reaches all"
    )
