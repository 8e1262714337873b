"""What the estimators of Gaussian mixtures share."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from oda_rl._parameters import RandomState
from oda_rl._threads import one_thread
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import bounded
from oda_rl.diagram import LARGEST_DATA
from oda_rl.mixtures import learning
from oda_rl.mixtures.state import Mixture

DTYPES = [np.float64, np.float32]
_VARIANCE_SAMPLES = 1000
_LARGEST_SINGLE = 1e15  # of samples of single precision, as LARGEST_DATA of those of double


def mean_variance(points: Array) -> float:
    """Mean variance of the features, of at most about 1000 of the samples."""
    some = points[:: max(1, len(points) // _VARIANCE_SAMPLES)]
    return float(some.var(axis=0, dtype=np.float64).mean())


class StreamingMixture(DensityMixin, BaseEstimator):
    """What can be asked of a Gaussian mixture, however it has learned.

    Subclasses set ``_mixture``.
    """

    n_components: int
    covariance_type: str
    max_precision: float
    random_state: RandomState
    n_iter_: int
    _mixture: Mixture

    @property
    def weights_(self) -> FloatArray:
        """Weights π, shape (n_components,), which sum to 1."""
        weights = self._mixture.weights
        return np.asarray(weights / weights.sum())

    @property
    def means_(self) -> Array:
        """Means μ, shape (n_components, n_features)."""
        return self._mixture.means.copy()

    @property
    def precisions_(self) -> FloatArray:
        """Inverses of ``covariances_``, of the same shape."""
        return self._covariances(lambda values: values)

    @property
    def covariances_(self) -> FloatArray:
        """Covariances.

        Shape (n_components, n_features) if diagonal, (n_components, n_features, n_features) if
        full, (n_components,) if spherical.
        """
        return self._covariances(lambda values: 1.0 / values)

    @property
    def precisions_cholesky_(self) -> FloatArray:
        """Roots of the precisions: upper triangular R with R Rᵀ = P if they are full."""
        if self.covariance_type != "full":
            return np.asarray(np.sqrt(self.precisions_))
        with one_thread():
            lower = np.linalg.cholesky(self.covariances_)
            return np.linalg.inv(lower).transpose(0, 2, 1)

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Find the component that most likely made each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples,)
        """
        return self._of_each(X, lambda logs: logs.argmax(axis=1))

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Responsibilities: how probably each component made each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples, n_components)
        """
        return self._of_each(X, lambda logs: np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Log-likelihood of each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples,)
            Finite, however far outside a sample is.
        """
        return self._of_each(X, lambda logs: logsumexp(logs, axis=1))

    def score(self, X: npt.ArrayLike, y: object = None) -> float:
        """Mean log-likelihood of the samples.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : Ignored

        Returns
        -------
        float
        """
        return float(self.score_samples(X).mean())

    def outlier_scores(self, X: npt.ArrayLike) -> FloatArray:
        """How unlikely each sample is: its negative log-likelihood.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples,)
            The greater the more unusual; compare with quantiles of those of known good samples.
        """
        return -self.score_samples(X)

    def sample(self, n_samples: int = 1) -> tuple[FloatArray, IntArray]:
        """Draw samples.

        Parameters
        ----------
        n_samples : int, default=1
            At least 1.

        Returns
        -------
        X : ndarray, shape (n_samples, n_features)
        y : ndarray, shape (n_samples,)
            The component of each, in rising order.

        Raises
        ------
        ValueError
            If ``n_samples`` is below 1.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"n_samples is {n_samples}: it must be at least 1")
        rng = check_random_state(self.random_state)
        counts = rng.multinomial(n_samples, self.weights_)
        labels = np.repeat(np.arange(len(counts)), counts)
        values, axes = learning.covariance_parts(self._mixture)
        noise = rng.standard_normal((n_samples, self._mixture.means.shape[1]))
        noise /= np.sqrt(values)[labels]
        if axes is not None:
            noise = np.einsum("nu,nuj->nj", noise, axes[labels])
        return self._mixture.means[labels] + noise, labels

    def aic(self, X: npt.ArrayLike) -> float:
        """Akaike's information criterion on X; the lower the better.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        """
        scores = self.score_samples(X)
        return float(2.0 * (self._n_parameters() - scores.sum()))

    def bic(self, X: npt.ArrayLike) -> float:
        """Bayes' information criterion on X; the lower the better.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        """
        scores = self.score_samples(X)
        return float(self._n_parameters() * math.log(len(scores)) - 2.0 * scores.sum())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_mixture")

    def _n_parameters(self) -> int:
        n, d = self._mixture.means.shape
        shapes: dict[str, int] = {"diag": n * d, "full": n * d * (d + 1) // 2, "tied_spherical": 1}
        return int(n - 1 + n * d + shapes[self.covariance_type])

    def _covariances(self, of: Any) -> FloatArray:
        values, axes = learning.covariance_parts(self._mixture)
        changed: FloatArray = of(values)
        if axes is not None:
            return np.asarray(np.einsum("kui,ku,kuj->kij", axes, changed, axes))
        return np.asarray(changed[:, 0] if self.covariance_type == "tied_spherical" else changed)

    def _of_each(
        self, X: npt.ArrayLike, of: Callable[[FloatArray], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        """Return what is made of the log densities of samples, block by block."""
        check_is_fitted(self)
        dtype = self._mixture.means.dtype
        with np.errstate(over="ignore", invalid="ignore"):  # in the sum of what is far outside
            points = validate_data(self, X, reset=False, dtype=dtype, order="C")
        return np.concatenate([of(logs) for logs in learning.scores(self._mixture, points)])

    # Validation.

    def _learnable(self, X: npt.ArrayLike, *, reset: bool) -> Array:
        """Return samples to learn from, of double or single precision, shape (n, d)."""
        dtype = DTYPES if reset else self._mixture.means.dtype
        with np.errstate(over="ignore", invalid="ignore"):  # in the sum of what is refused here
            points = validate_data(self, X, reset=reset, dtype=dtype, order="C")
        single = points.dtype == np.float32
        return bounded(np.asarray(points), "X", _LARGEST_SINGLE if single else LARGEST_DATA)

    def _check_many(self, points: Array) -> None:
        if len(points) < self.n_components:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, "
                f"n_samples = {len(points)}"
            )

    def _check_scale(self, variance: float) -> None:
        """Warn if the bound of the precisions is too low for the data's mean variance."""
        if self.max_precision * variance < 1.0 and variance > 0.0:
            warnings.warn(
                f"max_precision is {self.max_precision:g}: it keeps the standard deviations of "
                f"components above {self.max_precision**-0.5:.3g}, but that of the data is "
                f"{variance**0.5:.3g}; {10.0 / variance:.3g} would do",
                UserWarning,
                stacklevel=4,
            )

    def _checked_means(self, means: npt.ArrayLike, points: Array) -> Array:
        checked = check_array(means, dtype=points.dtype, copy=True, input_name="means_init")
        if checked.shape != (self.n_components, points.shape[1]):
            raise ValueError(
                f"means_init has shape {checked.shape}: it must be "
                f"{(self.n_components, points.shape[1])}"
            )
        return np.asarray(checked)
