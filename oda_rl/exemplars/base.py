"""What the estimators of weighted exemplars share."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils import check_array, check_random_state

from oda_rl._parameters import RandomState
from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import bounded, chunks, fitted_points
from oda_rl.exemplars.column_generation import Exemplars, Round
from oda_rl.exemplars.pricing import KERNELS, squared_distances
from oda_rl.exemplars.weights import NotConvergedError

_MOST_BANDWIDTHS = 1e150  # from one sample to another


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
