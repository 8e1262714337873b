"""A Gaussian mixture by stochastic expectation maximization."""

import copy
import math
from dataclasses import KW_ONLY, field
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import WEIGHED, checked_weights, stream_rows
from oda_rl.files import estimators
from oda_rl.files.schema import real, whole
from oda_rl.mixtures import kernels, learning
from oda_rl.mixtures.base import COMPONENTS, StreamingMixture, VarianceFloor
from oda_rl.mixtures.kernels import RELEASED, Mixture, Progress
from oda_rl.samples import Weighted, filled, means_of, weighted

_SETTLED = 1e-2  # rise of the mean log-likelihood in a pass


@estimators.estimator
class StochasticEMGaussianMixture(StreamingMixture):
    """Gaussian mixture by stochastic expectation maximization: the comparator.

    Sufficient statistics follow the samples with steps ρ_t = max(ρ_0 (t + 1)^(-0.5 + α), ρ_∞);
    parameters follow the statistics after the first tenth of a pass. Unlike
    :class:`SGDGaussianMixture` it needs a good start, as from k-means.

    Parameters
    ----------
    n_components : int, default=1
        K, from 1 to 10,000.
    covariance_type : {"diag", "full", "tied_spherical"}, default="diag"
        As for :class:`SGDGaussianMixture`.
    init : {"k-means", "random"}, default="k-means"
        Initial means: one run of k-means, or as those of :class:`SGDGaussianMixture`.
    batch_size : int, default=1
        Samples of a step, ≥ 1.
    max_iter : int, default=10
        Passes of ``fit`` over the samples, ≥ 1, each in a new random order.
    first_step : float, default=0.05
        ρ_0, in (0, 1).
    step_decay : float, default=0.01
        α, in [0, 0.5]; at 0.5 steps do not fall.
    last_step : float, default=1e-4
        ρ_∞, in (0, 1).
    variance_floor : float, array-like of shape (n_features,) or None, default=None
        As for :class:`SGDGaussianMixture`; the mean variance of a stream is that of the samples of
        the first ``partial_fit``.
    init_range : float, default=0.1
        Range of a random start, in roots of the mean variance of the features; ≥ 0.
    means_init : array-like of shape (n_components, n_features) or None, default=None
        Initial means instead.
    random_state : int, RandomState instance or None, default=None
        Draws the initial means, the order of ``fit`` and :meth:`sample`.

    Attributes
    ----------
    n_iter_ : int
        Passes made; each ``partial_fit`` is one.
    lower_bound_ : float
        Mean log-likelihood of the samples during the last pass of ``fit``.
    converged_ : bool
        Whether that pass has raised it by less than 0.01.

    References
    ----------
    O. Cappé, E. Moulines, "On-line expectation-maximization algorithm for latent data models",
    Journal of the Royal Statistical Society B 71, 2009; section 2.7 of A. Gepperth, B. Pfülb,
    "Gradient-based training of Gaussian mixture models for high-dimensional streaming data",
    Neural Processing Letters, 2021.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal([[-3.0], [3.0]], 1.0, (2, 500)).reshape(-1, 1)
    >>> mixture = StochasticEMGaussianMixture(2, random_state=0).fit(X)
    >>> np.sort(mixture.means_.ravel()).round(0)
    array([-3.,  3.])
    """

    n_components: Annotated[int, COMPONENTS] = 1
    _: KW_ONLY
    covariance_type: Annotated[str, estimators.one_of("diag", "full", "tied_spherical")] = "diag"
    init: Annotated[str, estimators.one_of("k-means", "random")] = "k-means"
    batch_size: Annotated[int, estimators.SAMPLES] = 1
    max_iter: Annotated[int, estimators.COUNT] = 10
    first_step: Annotated[float, estimators.FRACTION] = 0.05
    step_decay: Annotated[float, estimators.within("[0, 0.5]")] = 0.01
    last_step: Annotated[float, estimators.FRACTION] = 1e-4
    variance_floor: VarianceFloor = None
    init_range: Annotated[float, estimators.NOT_NEGATIVE] = 0.1
    means_init: Annotated[npt.ArrayLike | None, "array-like", None] = None
    random_state: estimators.Seed = None

    _owed: Annotated[float, real("", "[0, 1)")] = field(init=False)
    _weighed: Annotated[FloatArray, WEIGHED] = field(init=False)
    _statistics: Annotated[Mixture, Mixture] = field(init=False)
    _accumulate: Annotated[int, whole()] = field(init=False)
    _seen: Annotated[int, whole()] = field(init=False)

    def _closed(self) -> Self:
        model = copy.copy(self)
        if hasattr(self, "_statistics") and self._statistics is self._mixture:
            del model._statistics
        return model

    def _reopen(self) -> None:
        if hasattr(self, "_mixture") and not hasattr(self, "_statistics"):
            self._statistics = self._mixture

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        data = self._weighted(X, sample_weight)
        rng = check_random_state(self.random_state)
        data = self._in_units(data)
        self._start(data, rng)
        self._owed, self._n_samples = 0.0, float(data.weights.sum())
        before = -math.inf
        for _ in range(self.max_iter):
            self.n_iter_ += 1
            order = data.shown(rng)
            self.lower_bound_ = self._mean_log(self._follow(data.points, order), data.points, order)
            self.converged_ = self.lower_bound_ - before < _SETTLED
            before = self.lower_bound_
        return self

    @estimators.validated
    def partial_fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Learn from more samples, like :meth:`SGDGaussianMixture.partial_fit`.

        Batches do not reach beyond a call. A first one that begins with k-means needs at least
        ``n_components`` samples.
        """
        first = not hasattr(self, "_mixture")
        points = self._learnable(X, reset=first)
        if first:
            data = weighted(points, checked_weights(sample_weight, points))
            if self.init == "k-means" and self.means_init is None:
                self._check_many(len(points))
            self._start(self._in_units(data), check_random_state(self.random_state))
        order = stream_rows(self, sample_weight, points, first=first)
        self._n_samples = len(order) + (0.0 if first else self._n_samples)
        self._follow(self._scaled(points), order)
        self.n_iter_ += 1
        return self

    def _start(self, data: Weighted, rng: np.random.RandomState) -> None:
        means = self._first_means(data, rng).astype(data.points.dtype)
        shape = self.covariance_type, self._max_precision
        mixtures = [learning.new_mixture(means, *shape, width=1.0, rate=0.0) for _ in range(2)]
        for mixture in mixtures:
            Progress(mixture.progress).phase = RELEASED
        self._mixture, self._statistics = mixtures
        self._accumulate = math.ceil(0.1 * data.n_shown)
        self._seen = 0
        self.n_iter_ = 0

    def _first_means(self, data: Weighted, rng: np.random.RandomState) -> Array:
        n = self.n_components
        if self.means_init is not None:
            return self._checked_means(self.means_init, data.points)
        if self.init == "random":
            first = filled(data.points[0], means_of(data.points, data.weights))
            noise = rng.uniform(-self.init_range, self.init_range, (n, len(first)))
            return np.asarray(first + noise)
        return learning.k_means(data, n, rng)

    def _follow(self, points: Array, order: IntArray) -> float:
        """Learn, and return the sum of the log-likelihoods, without what is constant."""
        split, total = max(self._accumulate - self._seen, 0), 0.0
        for part in (order[:split], order[split:]):
            if len(part) > 0:
                total += self._take(points, part)
            if self._seen >= self._accumulate:
                self._mixture = self._statistics
        return total

    def _take(self, points: Array, order: IntArray) -> float:
        size, room = self.batch_size, kernels.Room.of(points, self._mixture)
        steps = self._steps(self._seen / size + np.arange(math.ceil(len(order) / size)))
        betas = np.ones(len(steps))
        self._seen, size = self._seen + len(order), min(size, len(order))
        return kernels.follow_em(
            points, order, size, steps, betas, self._max_precision, self._mixture,
            self._statistics, np.empty((size + 1, self.n_components)), room,
        )  # fmt: skip

    def _steps(self, t: Array) -> Array:
        """Return the step sizes ρ after t batches."""
        return np.maximum(self.first_step * (t + 1.0) ** (self.step_decay - 0.5), self.last_step)

    @property
    def _memory(self) -> float:
        return self.batch_size / float(self._steps(np.asarray(self._seen / self.batch_size)))
