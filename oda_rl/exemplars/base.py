"""Base class of mixtures of weighted exemplars."""

import math
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl._validation import ROUNDING, bounded, checked_weights, chunks, fitted_points, mean_score
from oda_rl.exemplars.column_generation import Exemplars, Round
from oda_rl.exemplars.pricing import KERNELS, Kernel, squared_distances
from oda_rl.exemplars.weights import average
from oda_rl.files.estimators import Filed, RandomState
from oda_rl.files.schema import ANYTHING, Each, Sizes, check_fitted, real, require, whole
from oda_rl.samples import weighted


def scott(points: FloatArray, masses: FloatArray | None = None, size: float | None = None) -> float:
    """Bandwidth by Scott's rule; 1 if all points are equal.

    It is the root mean variance of the features, times n^(-1/(d+4)) (D. W. Scott, "Multivariate
    density estimation", 1992, section 6.3), with n = ``size``, by default the number of points.
    """
    n = float(len(points)) if size is None else size
    gaps = points - average(points, masses)
    deviation = math.sqrt(float(average(gaps**2, masses).mean()))
    return n ** (-1.0 / (points.shape[1] + 4.0)) * deviation if deviation > 0.0 else 1.0


def distinct(
    points: FloatArray, sample_weight: Any
) -> tuple[FloatArray, FloatArray | None, BoolArray]:
    """Return distinct rows, shape (m, d), their positive weights, and which rows have such weights.

    If each row occurs once with weight 1, they keep their order, and weights are None.
    """
    weights = checked_weights(sample_weight, points)
    used = weights > 0.0
    data = weighted(points, weights)
    if len(data.points) == used.sum() and (weights[used] == 1.0).all():
        return points[used], None, used
    return data.points, data.weights, used


class ExemplarMixture(Filed, DensityMixin, ClusterMixin, BaseEstimator):
    """A mixture of weighted exemplars, however they were found."""

    exemplars_: Annotated[FloatArray, real("M, d")]
    weights_: Annotated[FloatArray, real("M", "(0, inf)")]
    bandwidth_: Annotated[float, real("", "(0, inf)")]
    objective_value_: Annotated[float, real("", "[-inf, inf]")]
    duality_gap_: Annotated[float, real("", "[-inf, inf]")]
    certificate_: Annotated[str, ANYTHING]
    history_: Annotated[list[Round], Each(Round)]
    labels_: Annotated[IntArray, whole("n_labels", "[0, M)")]
    n_iter_: Annotated[int, whole()]

    _stored = {"Round": Round}  # noqa: RUF012

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        if check_fitted((name in vars(self) for name in self._LEARNED), where):
            right = isinstance(self.certificate_, str)
            require(right, f"{where}.certificate_ is {self.certificate_!r:.80}: it must be text")

    @property
    def cluster_centers_(self) -> FloatArray:
        """The exemplars, by the name that KMeans gives them."""
        return self.exemplars_

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Log-density of each sample, shape (n_samples,); -inf beyond the reach of kernels."""
        points = fitted_points(self, X)
        logs = self._log_density(points)
        if (silent := np.isneginf(logs)).any():  # maybe beyond it by rounding to float32
            rounded = points[silent]
            gaps = self.exemplars_[self.predict(rounded)] - rounded
            unit = ROUNDING * np.abs(rounded)
            logs[silent] = self._log_density(rounded + np.clip(gaps, -unit, unit))
        return logs

    def _log_density(self, points: FloatArray) -> FloatArray:
        blocks = (self._squares(points[rows]) for rows in chunks(len(points)))
        values = [logsumexp(self._log_responses(squares), axis=1) for squares in blocks]
        d = points.shape[1]
        volume = self._kernel.log_volume(d) + d * math.log(self.bandwidth_)
        return np.asarray(np.concatenate(values) - volume)

    def score(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> float:
        """Mean log-density; weights of the samples, shape (n_samples,), are at least 0."""
        return mean_score(self.score_samples(X), sample_weight)

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Exemplar of the highest weighted response to each sample, shape (n_samples,).

        Rows of ``exemplars_``; the nearest exemplar where none responds.
        """
        return self._by_blocks(fitted_points(self, X), lambda logs: logs.argmax(axis=1))

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Share of each exemplar in the combined response, shape (n_samples, n_exemplars).

        Rows sum to 1; the nearest exemplar has 1 where none responds.
        """
        return self._by_blocks(fitted_points(self, X), lambda logs: softmax(logs, axis=1))

    def sample(
        self, n_samples: int = 1, random_state: RandomState = None
    ) -> tuple[FloatArray, IntArray]:
        """Draw samples, shape (n_samples, n_features); return them and their exemplars.

        Raises
        ------
        ValueError
            If ``n_samples`` is below 1.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"n_samples is {n_samples!r}: it must be at least 1")
        rng = check_random_state(random_state)
        labels = rng.choice(len(self.weights_), n_samples, p=self.weights_)
        d = self.exemplars_.shape[1]
        offsets = rng.normal(size=(n_samples, d))
        radii = self._kernel.radii
        if radii is not None:
            offsets /= np.linalg.norm(offsets, axis=1, keepdims=True)
            offsets *= radii(rng, d, n_samples)[:, None]
        return self.exemplars_[labels] + self.bandwidth_ * offsets, labels.astype(np.int64)

    @property
    def _kernel(self) -> Kernel:
        kernel = getattr(self, "kernel", "disc")
        return kernel if isinstance(kernel, Kernel) else KERNELS[kernel]

    def _log_responses(self, squares: FloatArray) -> FloatArray:
        """Logarithms of weighted responses, shape (n, n_exemplars)."""
        log_weights = np.log(self.weights_)
        if self._kernel.name == "gaussian":  # which would underflow
            return np.asarray(log_weights - 0.5 * squares)
        with np.errstate(divide="ignore"):
            return np.asarray(log_weights + np.log(self._kernel.response(squares)))

    def _squares(self, points: FloatArray) -> FloatArray:
        origin, h = self.exemplars_.mean(axis=0), self.bandwidth_
        return squared_distances((points - origin) / h, (self.exemplars_ - origin) / h)

    def _by_blocks(self, points: FloatArray, reduce: Callable[[FloatArray], Array]) -> Array:
        """Reduce the log responses of samples, shape (n, n_exemplars), block by block."""
        parts = []
        for rows in chunks(len(points)):
            squares = self._squares(points[rows])
            logs = self._log_responses(squares)
            silent = np.isneginf(logs).all(axis=1)
            logs[silent] = np.where(
                squares[silent] == squares[silent].min(axis=1, keepdims=True), 0.0, -np.inf
            )
            parts.append(reduce(logs))
        return np.concatenate(parts)

    def _learn(self, points: FloatArray, bandwidth: float, find: Callable[[], Exemplars]) -> None:
        """Publish what a solver finds, whether it converges or not."""
        lowest = float(np.abs(points).max()) / 1e150  # bandwidths from one to another
        if bandwidth < lowest:
            raise ValueError(
                f"bandwidth is {bandwidth:g}: it must be at least {lowest:.3g}, or squares of "
                "distances overflow"
            )
        self.bandwidth_ = bandwidth
        solution = find()
        self.exemplars_, self.weights_ = solution.positions * bandwidth, solution.weights
        self.objective_value_, self.duality_gap_ = solution.value, solution.gap
        self.certificate_, self.history_ = solution.certificate, solution.history
        self.n_iter_ = len(solution.history)
        self.labels_ = self._by_blocks(points, lambda logs: logs.argmax(axis=1))
        if solution.failure is not None:
            warnings.warn(solution.failure, ConvergenceWarning, stacklevel=4)
        elif 1 < len(np.unique(points, axis=0)) == len(np.unique(self.labels_)):
            text = f"bandwidth={bandwidth:g} is so small that every sample is its own exemplar"
            warnings.warn(text, UserWarning, stacklevel=4)


def checked_exemplars(given: npt.ArrayLike | None, n_features: int, name: str) -> FloatArray | None:
    """Check exemplars, shape (M, d), given by a parameter."""
    if given is None:
        return None
    exemplars: FloatArray = check_array(given, dtype=np.float64, order="C", input_name=name)
    if exemplars.shape[1] != n_features:
        raise ValueError(
            f"{name} has {exemplars.shape[1]} features: it must have {n_features}, as the samples"
        )
    return bounded(exemplars, name)
