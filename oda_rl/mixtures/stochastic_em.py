"""Stochastic expectation maximization of a Gaussian mixture, as a scikit-learn estimator."""

import math
from dataclasses import KW_ONLY
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions

from oda_rl._parameters import (
    COUNT,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    Seed,
    estimator,
    validated,
    within,
)
from oda_rl._threads import one_thread_of_openmp
from oda_rl._types import Array, IntArray
from oda_rl.mixtures import distances, em, learning
from oda_rl.mixtures.base import StreamingMixture, mean_variance
from oda_rl.mixtures.state import RELEASED, Progress


@estimator
class StochasticEMGaussianMixture(StreamingMixture):
    """Gaussian mixture by stochastic expectation maximization: the comparator.

    Sufficient statistics follow the samples with steps ρ_t = ρ_0 (t + 1)^(-.5 + α), but no less
    than ρ_∞; parameters follow the statistics, once those of the first tenth of a pass are
    accumulated. Unlike :class:`SGDGaussianMixture` it needs a good start, as from k-means.

    Parameters
    ----------
    n_components : int, default=1
        K ≥ 1.
    covariance_type : {"diag", "full", "tied_spherical"}, default="diag"
        As for :class:`SGDGaussianMixture`.
    init : {"k-means", "random"}, default="k-means"
        Where the means start: one run of k-means, or as those of :class:`SGDGaussianMixture`.
    batch_size : int, default=1
        Samples of a step, ≥ 1.
    max_iter : int, default=10
        Passes of ``fit`` over the samples, ≥ 1, each in a new random order.
    first_step : float, default=0.05
        ρ_0, in (0, 1).
    step_decay : float, default=0.01
        α, in [0, .5]; at .5 steps do not fall.
    last_step : float, default=1e-4
        ρ_∞, in (0, 1).
    max_precision : float, default=20.0
        Bound of the eigenvalues of the precisions.
    init_range : float, default=0.1
        Of a random start; ≥ 0.
    means_init : array-like of shape (n_components, n_features) or None, default=None
        Where the means start instead.
    random_state : int, RandomState instance or None, default=None
        Draws the start, the order of ``fit`` and :meth:`sample`.

    Attributes
    ----------
    weights_, means_, covariances_, precisions_, precisions_cholesky_ : ndarray
        As of :class:`SGDGaussianMixture`.
    n_iter_ : int
        Passes made; each ``partial_fit`` is one.
    n_features_in_ : int
        Number of features.

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

    n_components: Annotated[int, COUNT] = 1
    _: KW_ONLY
    covariance_type: Annotated[str, StrOptions({"diag", "full", "tied_spherical"})] = "diag"
    init: Annotated[str, StrOptions({"k-means", "random"})] = "k-means"
    batch_size: Annotated[int, COUNT] = 1
    max_iter: Annotated[int, COUNT] = 10
    first_step: Annotated[float, FRACTION] = 0.05
    step_decay: Annotated[float, within("[0, 0.5]")] = 0.01
    last_step: Annotated[float, FRACTION] = 1e-4
    max_precision: Annotated[float, POSITIVE] = 20.0
    init_range: Annotated[float, NOT_NEGATIVE] = 0.1
    means_init: Annotated[npt.ArrayLike | None, "array-like", None] = None
    random_state: Seed = None

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Learn anew, in passes over the samples in random orders.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            At least ``n_components`` samples.
        y : Ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there are too few samples, or ``means_init`` does not fit.
        """
        points = self._learnable(X, reset=True)
        self._check_many(points)
        self._check_scale(mean_variance(points))
        rng = check_random_state(self.random_state)
        self._start(points, rng)
        for _ in range(self.max_iter):
            self.n_iter_ += 1
            self._follow(points, rng.permutation(len(points)))
        return self

    @validated
    def partial_fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Learn from more samples, once each and in the order given.

        Batches do not reach beyond a call.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            At least ``n_components`` samples if this is the first call and begins with k-means.
        y : Ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            As for :meth:`fit`.
        """
        first = not hasattr(self, "_mixture")
        points = self._learnable(X, reset=first)
        if first:
            if self.init == "k-means" and self.means_init is None:
                self._check_many(points)
            self._start(points, check_random_state(self.random_state))
        self._follow(points, np.arange(len(points)))
        self.n_iter_ += 1
        return self

    def _start(self, points: Array, rng: np.random.RandomState) -> None:
        n = self.n_components
        if self.means_init is not None:
            means = self._checked_means(self.means_init, points)
        elif self.init == "random":
            noise = rng.uniform(-self.init_range, self.init_range, (n, points.shape[1]))
            means = points[0] + noise
        else:
            from sklearn.cluster import KMeans

            with one_thread_of_openmp():
                means = KMeans(n, n_init=1, random_state=rng).fit(points).cluster_centers_
        made = [
            learning.new_mixture(
                means.astype(points.dtype),
                self.covariance_type,
                float(self.max_precision),
                1.0,
                0.0,
            )
            for _ in range(2)
        ]
        for mixture in made:
            Progress(mixture.progress).phase = RELEASED
        self._mixture, self._statistics = made
        self._accumulate = math.ceil(0.1 * len(points))
        self._seen = 0
        self.n_iter_ = 0

    def _follow(self, points: Array, order: IntArray) -> None:
        if self._seen < self._accumulate:
            begin = order[: self._accumulate - self._seen]
            self._take(points, begin)
            order = order[len(begin) :]
            if self._seen >= self._accumulate:
                self._mixture = self._statistics
        if len(order) > 0:
            self._take(points, order)

    def _take(self, points: Array, order: IntArray) -> None:
        size = self.batch_size
        n_steps = math.ceil(len(order) / size)
        t = self._seen / size + np.arange(n_steps)
        steps = np.maximum(self.first_step * (t + 1.0) ** (self.step_decay - 0.5), self.last_step)
        bound = float(self.max_precision)
        model, statistics = self._mixture, self._statistics
        if size == 1:
            logs = np.empty((1, self.n_components))
            ones = np.ones(n_steps)
            em.follow_em(points, order, logs, steps, ones, bound, model, statistics)
        else:
            blocks = learning.Blocks(model, size)
            for s in range(n_steps):
                block, rows = blocks.take(points, order[s * size : (s + 1) * size])
                logs = blocks.logs(block, densities=True)
                distances.responsibilities(logs, 1.0)
                em.absorb(block, rows, logs, float(steps[s]), bound, statistics)
        self._seen += len(order)
