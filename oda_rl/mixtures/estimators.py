"""Gaussian mixtures that learn from streams, as scikit-learn estimators."""
# ruff: noqa: N803  (scikit-learn calls the data X)

import math
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, xlogy
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import RandomState, validated
from oda_rl.mixtures import distances, learning, updates

_DTYPES = [np.float64, np.float32]
_SCALE_SAMPLES = 100  # after which the data's scale is known
_VARIANCE_SAMPLES = 1000
_RATE, _DRIFTING_RATE, _PLAIN_RATE = 0.1, 0.5, 1e-3  # ε at the beginning
_WIDTH, _DRIFTING_WIDTH = 1 / 4, 1 / 16  # of the neighbourhood at first, of the sides' sum
_STATIONARY = 0.05  # δ of eq. 6
_LEAST_PERIOD = 100


def _mean_variance(points: Array) -> float:
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
    _mixture: updates.Mixture

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
        return np.asarray(self._logs(X).argmax(axis=1))

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Responsibilities: how probably each component made each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples, n_components)
        """
        logs = self._logs(X)
        return np.asarray(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))

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
        return np.asarray(logsumexp(self._logs(X), axis=1))

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

    def _logs(self, X: npt.ArrayLike) -> FloatArray:
        check_is_fitted(self)
        dtype = self._mixture.means.dtype
        points = validate_data(self, X, reset=False, dtype=dtype, order="C")
        return learning.score(self._mixture, points)

    # Validation.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"diag", "full", "tied_spherical"})],
        "update": [StrOptions({"natural", "sgd"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1, closed="neither"), None],
        "forgetting": [Interval(Real, 0, 1, closed="left")],
        "width": [Interval(Real, 0, None, closed="neither"), None],
        "max_precision": [Interval(Real, 0, None, closed="neither")],
        "init_range": [Interval(Real, 0, None, closed="left")],
        "means_init": ["array-like", None],
        "random_state": ["random_state"],
    }
    _waiting: Array

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "diag",
        update: str = "natural",
        batch_size: int = 1,
        max_iter: int = 100,
        tol: float = 1e-2,
        learning_rate: float | None = None,
        forgetting: float = 0.0,
        width: float | None = None,
        max_precision: float = 20.0,
        init_range: float = 0.1,
        means_init: npt.ArrayLike | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.update = update
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.forgetting = forgetting
        self.width = width
        self.max_precision = max_precision
        self.init_range = init_range
        self.means_init = means_init
        self.random_state = random_state

    @property
    def grid_shape_(self) -> tuple[int, int]:
        """Rows and columns of the grid."""
        return learning.near_square(len(self._mixture.weights))

    @property
    def width_(self) -> float:
        """Present width of the neighbourhood."""
        return float(self._mixture.control[updates.WIDTH])

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
        points = validate_data(self, X, dtype=_DTYPES, order="C")
        self._check_many(points)
        self._check_scale(_mean_variance(points))
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
        dtype = _DTYPES if first else self._mixture.means.dtype
        points = validate_data(self, X, reset=first, dtype=dtype, order="C")
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
        self._rules = updates.Rules(
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
            self._mixture.control[updates.PHASE] = updates.RELEASED
        self._waiting = points[:0]
        self._first: list[Array] | None = []
        self.n_iter_ = 0

    def _show(self, points: Array, order: IntArray) -> float:
        """Learn; returns the mean log-likelihood of samples when shown, -∞ if still annealing."""
        control, plain = self._mixture.control, self.update == "sgd"
        control[updates.LOSS] = control[updates.LOSSES] = 0.0
        learning.learn(self._mixture, self._rules, points, order, self.batch_size, plain=plain)
        total, n = control[updates.LOSS], control[updates.LOSSES]
        features = points.shape[1]
        if not self._settled():
            return -math.inf
        if (
            self.forgetting > 0.0 and not plain
        ):  # of the nearest components, whose variance is known
            weights = self._mixture.weights
            scale = 1.0 + math.log(2.0 * math.pi * control[updates.VARIANCE])
            return float(xlogy(weights, weights).sum() - 0.5 * features * scale)
        if n < len(order):
            return -math.inf
        return float(total / n - 0.5 * features * math.log(2.0 * math.pi))

    def _settled(self) -> bool:
        """Whether what remains is to converge."""
        if self.update == "sgd" or self.forgetting > 0.0:
            return not learning.is_annealing(self._mixture, plain=self.update == "sgd")
        return bool(self._mixture.control[updates.PHASE] == updates.RELEASED)

    def _learn_scale(self, points: Array) -> None:
        """Keep the first samples until there are enough of them to tell the scale."""
        if self._first is None:
            return
        self._first.append(points[:_SCALE_SAMPLES].copy())
        if sum(map(len, self._first)) >= _SCALE_SAMPLES:
            first = np.concatenate(self._first)[:_SCALE_SAMPLES]
            self._first = None
            self._check_scale(float(first.var(axis=0, dtype=np.float64).mean()))


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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"diag", "full", "tied_spherical"})],
        "init": [StrOptions({"k-means", "random"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "first_step": [Interval(Real, 0, 1, closed="neither")],
        "step_decay": [Interval(Real, 0, 0.5, closed="both")],
        "last_step": [Interval(Real, 0, 1, closed="neither")],
        "max_precision": [Interval(Real, 0, None, closed="neither")],
        "init_range": [Interval(Real, 0, None, closed="left")],
        "means_init": ["array-like", None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "diag",
        init: str = "k-means",
        batch_size: int = 1,
        max_iter: int = 10,
        first_step: float = 0.05,
        step_decay: float = 0.01,
        last_step: float = 1e-4,
        max_precision: float = 20.0,
        init_range: float = 0.1,
        means_init: npt.ArrayLike | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.init = init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.first_step = first_step
        self.step_decay = step_decay
        self.last_step = last_step
        self.max_precision = max_precision
        self.init_range = init_range
        self.means_init = means_init
        self.random_state = random_state

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
        points = validate_data(self, X, dtype=_DTYPES, order="C")
        self._check_many(points)
        self._check_scale(_mean_variance(points))
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
        dtype = _DTYPES if first else self._mixture.means.dtype
        points = validate_data(self, X, reset=first, dtype=dtype, order="C")
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
            mixture.control[updates.PHASE] = updates.RELEASED
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
            updates.follow_em(points, order, logs, steps, ones, bound, model, statistics)
        else:
            blocks = learning.Blocks(model, size)
            for s in range(n_steps):
                block, rows = blocks.take(points, order[s * size : (s + 1) * size])
                logs = blocks.logs(model, block, densities=True)
                distances.responsibilities(logs, 1.0)
                updates.absorb(block, rows, logs, float(steps[s]), bound, statistics)
        self._seen += len(order)
