"""A Gaussian mixture that learns from a stream by gradients, as a scikit-learn estimator."""

import math
import warnings
from dataclasses import KW_ONLY, field
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy
from sklearn.exceptions import ConvergenceWarning
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
from oda_rl._types import Array, IntArray
from oda_rl.mixtures import learning
from oda_rl.mixtures.base import StreamingMixture, mean_variance
from oda_rl.mixtures.state import RELEASED, Progress, Rules

_SCALE_SAMPLES = 100  # after which the data's scale is known
_RATE, _DRIFTING_RATE, _PLAIN_RATE = 0.1, 0.5, 1e-3  # ε at the beginning
_WIDTH, _DRIFTING_WIDTH = 1 / 4, 1 / 16  # of the neighbourhood at first, of the sides' sum
_STATIONARY = 0.05  # δ of eq. 6
_LEAST_PERIOD = 100


@estimator
class SGDGaussianMixture(StreamingMixture):
    """Gaussian mixture that learns by stochastic gradients, from a random start.

    The components stand on a periodic grid. At first a sample moves its winner and, the less the
    farther on the grid, the others; when the loss is stationary the neighbourhood shrinks. So no
    component is left behind, and no k-means is needed.

    With ``update="natural"`` steps are natural gradients, which know no scale. Covariances are held
    equal and spherical during annealing and for n_components more periods, in each of which the
    component that is needed least is moved to where it helps; then every component learns from its
    responsibilities with steps that fall with its number of samples to the power -.6. At first, for
    .75 n_components periods, responsibilities are tempered, less and less: components that overlap
    find better places. ``update="sgd"`` is the algorithm as printed.

    Parameters
    ----------
    n_components : int, default=1
        K ≥ 1, on the grid whose sides are nearest to a square's.
    covariance_type : {"diag", "full", "tied_spherical"}, default="diag"
        Diagonal; full, for few features, by eigenvalues and eigenvectors; or one variance for all
        components and features, as for quantization.
    update : {"natural", "sgd"}, default="natural"
        Kind of gradient.
    batch_size : int, default=1
        Samples of a step, ≥ 1; large ones are faster. ``partial_fit`` keeps what does not fill one.
    max_iter : int, default=100
        Most passes of ``fit`` over the samples, ≥ 1, each in a new random order.
    tol : float, default=1e-2
        ``fit`` ends when a pass raises the mean log-likelihood by less; ≥ 0.
    learning_rate : float or None, default=None
        ε at the beginning, in (0, 1); None: .1, .5 with ``forgetting``, .001 with ``update="sgd"``.
    forgetting : float, default=0.0
        For streams that drift: the rate ε never falls below it, and covariances stay equal and
        spherical, because those of a component that rests would collapse. In [0, 1); 0 is for data
        that always come from the same distribution.
    width : float or None, default=None
        First width σ of the neighbourhood, positive, in steps of the grid; None: half of its mean
        side, an eighth with ``forgetting``. Below .25 there is no annealing.
    max_precision : float, default=20.0
        Bound of the eigenvalues of the precisions P = D² (the paper's D_max²); should be well above
        the inverse of the data's variance.
    init_range : float, default=0.1
        Means start uniformly within so much of the first sample; ≥ 0.
    means_init : array-like of shape (n_components, n_features) or None, default=None
        Where they start instead.
    random_state : int, RandomState instance or None, default=None
        Draws the start, the order of ``fit`` and :meth:`sample`.

    Attributes
    ----------
    weights_ : ndarray, shape (n_components,)
    means_ : ndarray, shape (n_components, n_features)
        Row after row of the grid.
    covariances_, precisions_, precisions_cholesky_ : ndarray
        Shape (n_components, n_features) if diagonal, (n_components, n_features, n_features) if
        full, (n_components,) if spherical.
    grid_shape_ : tuple of int
        Rows and columns of the grid.
    width_ : float
        Present width of the neighbourhood.
    converged_ : bool
        Whether ``fit`` has ended by ``tol``; after ``partial_fit``, whether annealing is over.
    n_iter_ : int
        Passes made; each ``partial_fit`` is one.
    lower_bound_ : float
        Mean log-likelihood of the training samples when they were shown in the last pass of
        ``fit`` (of their best component with ``update="sgd"`` or ``forgetting``); at its end if it
        has not settled.
    n_features_in_ : int
        Number of features.

    References
    ----------
    A. Gepperth, B. Pfülb, "Gradient-based training of Gaussian mixture models for high-dimensional
    streaming data", Neural Processing Letters, 2021: eq. 1-6 and algorithm 1. Tempering is that of
    N. Ueda, R. Nakano, "Deterministic annealing EM algorithm", Neural Networks 11, 1998.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-3.0, 1.0, (500, 1)), rng.normal(3.0, 0.5, (500, 1))])
    >>> mixture = SGDGaussianMixture(2, random_state=0).fit(X)
    >>> np.sort(mixture.means_.ravel()).round(0)
    array([-3.,  3.])
    """

    n_components: Annotated[int, COUNT] = 1
    _: KW_ONLY
    covariance_type: Annotated[str, StrOptions({"diag", "full", "tied_spherical"})] = "diag"
    update: Annotated[str, StrOptions({"natural", "sgd"})] = "natural"
    batch_size: Annotated[int, COUNT] = 1
    max_iter: Annotated[int, COUNT] = 100
    tol: Annotated[float, NOT_NEGATIVE] = 1e-2
    learning_rate: Annotated[float | None, FRACTION, None] = None
    forgetting: Annotated[float, within("[0, 1)")] = 0.0
    width: Annotated[float | None, POSITIVE, None] = None
    max_precision: Annotated[float, POSITIVE] = 20.0
    init_range: Annotated[float, NOT_NEGATIVE] = 0.1
    means_init: Annotated[npt.ArrayLike | None, "array-like", None] = None
    random_state: Seed = None
    _waiting: Array = field(init=False)

    @property
    def grid_shape_(self) -> tuple[int, int]:
        """Rows and columns of the grid."""
        return learning.near_square(len(self._mixture.weights))

    @property
    def width_(self) -> float:
        """Present width of the neighbourhood."""
        return Progress(self._mixture.progress).width

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

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` passes were too few.
        UserWarning
            If ``max_precision`` is too low for the data's scale.
        """
        points = self._learnable(X, reset=True)
        self._check_many(points)
        self._check_scale(mean_variance(points))
        rng = check_random_state(self.random_state)
        order = rng.permutation(len(points))
        self._start(points[order[0]], points, rng)
        before = -math.inf
        for _ in range(self.max_iter):
            self.n_iter_ += 1
            now = self._show(points, order)
            self.converged_ = before > -math.inf and now - before < self.tol
            if self.converged_:
                break
            before = now
            order = rng.permutation(len(points))
        else:
            warnings.warn(
                f"max_iter={self.max_iter} passes over {len(points)} samples were too few to "
                f"converge: the neighbourhood's width is {self.width_:.3g}",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.lower_bound_ = now if now > -math.inf else self.score(points)
        return self

    @validated
    def partial_fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Learn from more samples, once each and in the order given.

        One by one is the same as in blocks. What does not fill a batch waits for the next call.

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
            If the number of features has changed, or ``means_init`` does not fit.

        Warns
        -----
        UserWarning
            If ``max_precision`` is too low for the scale of the first 100 samples.
        """
        first = not hasattr(self, "_mixture")
        points = self._learnable(X, reset=first)
        if first:
            self._start(points[0], points, check_random_state(self.random_state))
        self._learn_scale(points)
        if self.batch_size > 1:
            points = np.concatenate([self._waiting, points])
            whole = len(points) - len(points) % self.batch_size
            self._waiting, points = points[whole:].copy(), points[:whole]
        if len(points) > 0:
            self._show(points, np.arange(len(points)))
        self.n_iter_ += 1
        self.converged_ = self._settled()
        return self

    def fit_predict(self, X: npt.ArrayLike, y: object = None) -> IntArray:
        """Fit, and find the component that most likely made each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : Ignored

        Returns
        -------
        ndarray, shape (n_samples,)
        """
        return self.fit(X).predict(X)

    def _start(self, centre: Array, points: Array, rng: np.random.RandomState) -> None:
        n, d = self.n_components, points.shape[1]
        drifts, plain = self.forgetting > 0.0, self.update == "sgd"
        rate = _PLAIN_RATE if plain else _DRIFTING_RATE if drifts else _RATE
        rate = rate if self.learning_rate is None else float(self.learning_rate)
        least = min(rate, self.forgetting) if drifts else rate
        period = max(_LEAST_PERIOD, round(1.0 / rate if plain else n / rate))
        if self.means_init is not None:
            means = self._checked_means(self.means_init, points)
        else:
            means = centre + rng.uniform(-self.init_range, self.init_range, (n, d))
        widest = _DRIFTING_WIDTH if drifts else _WIDTH
        width = widest * sum(learning.near_square(n)) if self.width is None else self.width
        self._rules = Rules(
            rate=float(rate),
            least_rate=float(least),
            period=int(period),
            delta=_STATIONARY,
            last_width=0.01,
            max_precision=float(self.max_precision),
            periods=-1 if drifts else n,
            tempered=3 * n // 4,
            memory=1.0 - least / rate,
        )
        self._mixture = learning.new_mixture(
            means.astype(points.dtype),
            self.covariance_type,
            float(self.max_precision),
            float(width),
            float(rate),
        )
        if self.update == "sgd":
            Progress(self._mixture.progress).phase = RELEASED
        self._waiting = points[:0]
        self._first: list[Array] | None = []
        self.n_iter_ = 0

    def _show(self, points: Array, order: IntArray) -> float:
        """Learn; returns the mean log-likelihood of samples when shown, -∞ if still annealing."""
        progress, plain = Progress(self._mixture.progress), self.update == "sgd"
        progress.loss = progress.losses = 0.0
        learning.learn(self._mixture, self._rules, points, order, self.batch_size, plain=plain)
        total, n = progress.loss, progress.losses
        features = points.shape[1]
        if not self._settled():
            return -math.inf
        if self.forgetting > 0.0 and not plain:  # of the nearest, whose variance is known
            weights = self._mixture.weights
            scale = 1.0 + math.log(2.0 * math.pi * progress.variance)
            return float(xlogy(weights, weights).sum() - 0.5 * features * scale)
        if n < len(order):
            return -math.inf
        return float(total / n - 0.5 * features * math.log(2.0 * math.pi))

    def _settled(self) -> bool:
        """Whether what remains is to converge."""
        if self.update == "sgd" or self.forgetting > 0.0:
            return not learning.is_annealing(self._mixture, plain=self.update == "sgd")
        return Progress(self._mixture.progress).phase == RELEASED

    def _learn_scale(self, points: Array) -> None:
        """Keep the first samples until there are enough of them to tell the scale."""
        if self._first is None:
            return
        self._first.append(points[:_SCALE_SAMPLES].copy())
        if sum(map(len, self._first)) >= _SCALE_SAMPLES:
            first = np.concatenate(self._first)[:_SCALE_SAMPLES]
            self._first = None
            self._check_scale(float(first.var(axis=0, dtype=np.float64).mean()))
