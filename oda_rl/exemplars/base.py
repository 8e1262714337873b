"""What the estimators of weighted exemplars share."""

import math
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils import check_array, check_random_state

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl._validation import bounded, checked_weights, chunks, fitted_points, mean_score
from oda_rl.exemplars.column_generation import Exemplars, Round
from oda_rl.exemplars.pricing import KERNELS, squared_distances
from oda_rl.exemplars.weights import NotConvergedError, average
from oda_rl.files.estimators import Filed, RandomState
from oda_rl.files.schema import ANYTHING, Each, Optional, Sizes, check_fitted, real, require, whole
from oda_rl.samples import weighted

_MAX_BANDWIDTHS = 1e150  # from one sample to another


def rule_of_thumb(points: FloatArray, rule: str, weights: FloatArray | None = None) -> float:
    """Bandwidth by Scott's or Silverman's rule, times the root mean variance of the features.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        Not all equal; if they are, the result is 1.
    rule : {"scott", "silverman"}
        n^(-1/(d+4)), or (n (d + 2)/4)^(-1/(d+4)).
    weights : ndarray, shape (n,), optional
        A sample of weight 2 is two. All 1 by default.

    References
    ----------
    B. W. Silverman, "Density estimation for statistics and data analysis", 1986, section 4.3.2.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(1000, 2))
    >>> round(rule_of_thumb(points, "scott"), 3)
    0.316
    """
    d = points.shape[1]
    n = float(len(points) if weights is None else weights.sum())
    size = n if rule == "scott" else n * (d + 2.0) / 4.0
    deviation = root_mean_variance(points, weights)
    return size ** (-1.0 / (d + 4.0)) * deviation if deviation > 0.0 else 1.0


def root_mean_variance(points: FloatArray, weights: FloatArray | None = None) -> float:
    """Of the features of points, shape (n, d), whose weights are 1 by default."""
    masses = None if weights is None else weights / weights.sum()
    gaps = points - average(points, masses)
    return math.sqrt(float(average(gaps**2, masses).mean()))


def distinct(
    points: FloatArray, sample_weight: Any
) -> tuple[FloatArray, FloatArray | None, BoolArray]:
    """Return rows and weights such that weights are the same as rows repeated.

    Returns
    -------
    points : ndarray, shape (m, d)
        As they stand, if each is there once; else distinct ones in an order of their own.
    weights : ndarray, shape (m,), or None
        Positive; None if each is there once.
    used : ndarray of bool, shape (n,)
        Which rows have a weight above 0.
    """
    weights = checked_weights(sample_weight, points)
    used = weights > 0.0
    data = weighted(points, weights)
    if len(data.points) == used.sum() and (weights[used] == 1.0).all():
        return points[used], None, used
    return data.points, data.weights, used


class ExemplarMixture(Filed, DensityMixin, ClusterMixin, BaseEstimator):
    """What can be asked of weighted exemplars, however they were found."""

    exemplars_: FloatArray
    weights_: FloatArray
    bandwidth_: float
    duality_gap_: float
    certificate_: str
    objective_value_: float
    history_: list[Round]
    labels_: IntArray

    _stored = {"Round": Round}  # noqa: RUF012
    LEARNED: ClassVar[dict[str, Any]] = {
        "exemplars_": Optional(real("M, d")),
        "weights_": Optional(real("M", "(0, inf)")),
        "bandwidth_": Optional(real("", "(0, inf)")),
        "objective_value_": Optional(real("", "[-inf, inf]")),
        "duality_gap_": Optional(real("", "[-inf, inf]")),
        "certificate_": Optional(ANYTHING),
        "history_": Optional(Each(Round)),
        "labels_": Optional(whole("n_labels", "[0, M)")),
        "n_iter_": Optional(whole()),
    }
    """What a file may say of what was learned; parameters have their own ranges."""

    def check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError if what a file says does not belong together."""
        if check_fitted((name in vars(self) for name in self.LEARNED), where):
            right = isinstance(self.certificate_, str)
            require(right, f"{where}.certificate_ is {self.certificate_!r:.80}: it must be text")

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
        values = np.concatenate(
            [logsumexp(self._log_responses(points[rows]), axis=1) for rows in chunks(len(points))]
        )
        d = points.shape[1]
        volume = self._kernel.log_volume(d) + d * math.log(self.bandwidth_)
        return np.asarray(values - volume)

    def score(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> float:
        """Mean logarithm of the normalised density.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : Ignored
        sample_weight : array-like, shape (n_samples,), optional
            What each sample counts for, ≥ 0; 1 by default.

        Returns
        -------
        float
        """
        return mean_score(self.score_samples(X), sample_weight)

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
        return np.asarray(self._shares(fitted_points(self, X), largest=True))

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
        return np.asarray(self._shares(fitted_points(self, X), largest=False))

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

    def _shares(self, points: FloatArray, *, largest: bool) -> FloatArray | IntArray:
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
        least = float(np.abs(points).max()) / _MAX_BANDWIDTHS
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


def checked_exemplars(given: npt.ArrayLike | None, n_features: int, name: str) -> FloatArray | None:
    """Check exemplars, shape (M, d), that a parameter gives."""
    if given is None:
        return None
    exemplars: FloatArray = check_array(given, dtype=np.float64, order="C", input_name=name)
    if exemplars.shape[1] != n_features:
        raise ValueError(
            f"{name} has {exemplars.shape[1]} features: it must have {n_features}, as the samples"
        )
    return bounded(exemplars, name)
