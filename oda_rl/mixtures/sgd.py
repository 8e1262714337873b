"""A Gaussian mixture that learns from a stream by gradients, as a scikit-learn estimator."""

import math
import warnings
from dataclasses import KW_ONLY, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions

from oda_rl._types import Array, IntArray
from oda_rl._validation import stream_rows
from oda_rl.files.estimators import (
    COUNT,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    Seed,
    estimator,
    validated,
    within,
)
from oda_rl.files.schema import MISSING, Floats, Maybe, Optional, flags, real, whole
from oda_rl.mixtures import learning
from oda_rl.mixtures.base import StreamingMixture, VarianceFloor
from oda_rl.mixtures.state import RELEASED, Progress, Rules
from oda_rl.samples import filled, holes, means_of

_SCALE_SAMPLES = 100  # the first of a stream, which give the scale
_RATE, _DRIFTING_RATE, _PLAIN_RATE = 0.1, 0.5, 1e-3  # ε at the beginning
_WIDTH, _DRIFTING_WIDTH = 1 / 4, 1 / 16  # of the neighbourhood at first, of the sides' sum
_STATIONARY = 0.05  # δ of eq. 6
_MIN_PERIOD = 100
_PLAIN_SHARE = 0.5  # of the mean variance: on images a lower floor leaves components unused
_PLAIN_BOUND = 20.0  # of precisions: D_max of the paper, in whose unit plain gradients are taken


@estimator
class SGDGaussianMixture(StreamingMixture):
    """Gaussian mixture that learns by stochastic gradients, from a random start.

    The components stand on a periodic grid. At first a sample moves its winner and, the less the
    farther on the grid, the others; when the loss is stationary the neighbourhood shrinks. So no
    component is left behind, and no k-means is needed. All features have one unit: scaling X
    changes nothing. Features that differ in kind should be scaled first, for example by
    scikit-learn's ``StandardScaler``, or have variance floors of their own.

    With ``update="natural"`` steps are natural gradients, which know no scale. Covariances are held
    equal and spherical during annealing and for n_components more periods, in each of which the
    component that is needed least is moved to where it helps; then every component learns from its
    responsibilities with steps that fall with its number of samples to the power -0.6. At first,
    for 0.75 n_components periods, responsibilities are tempered, less and less: components that
    overlap find better places. ``update="sgd"`` is the algorithm as printed.

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
        Samples of a step after annealing, which takes them one by one; ≥ 1. ``partial_fit`` keeps
        what does not fill one.
    max_iter : int, default=100
        Most passes of ``fit`` over the samples, ≥ 1, each in a new random order.
    tol : float, default=1e-2
        ``fit`` ends when a pass raises the mean log-likelihood by less; ≥ 0.
    learning_rate : float or None, default=None
        ε at the beginning, in (0, 1); None: 0.1, or 0.5 with ``forgetting``, or 0.001 with
        ``update="sgd"``.
    forgetting : float, default=0.0
        For streams that drift: the rate ε never falls below it, and covariances stay equal and
        spherical, because those of a component that rests would collapse. In [0, 1); 0 is for data
        that always come from the same distribution.
    width : float or None, default=None
        First width σ of the neighbourhood, positive, in steps of the grid; None: half of its mean
        side, an eighth with ``forgetting``. Below 0.25 there is no annealing.
    variance_floor : float, array-like of shape (n_features,) or None, default=None
        Smallest variance that a component can have in any direction, positive, in the square of
        X's unit: 1/D_max² of the paper, where P = D² and D ≤ D_max. Pixels that hardly vary would
        otherwise get precisions without bound. An array has a floor for each feature: differences
        are then measured in its square roots, in annealing and in ``init_range``, too. None: 0.001
        of the mean variance of the features that are not constant, 0.00001 if covariances are
        full, 0.5 with ``update="sgd"``, which needs most of it on images. Of a stream, that of
        the first 100 samples.
    init_range : float, default=0.1
        Means start uniformly within so much of the first sample; ≥ 0. The unit is the root of the
        mean variance of the features; with ``update="sgd"`` that in which D_max² is 20.
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
    variance_floor_ : ndarray, shape (n_features,)
        The floor of each feature.
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
    variance_floor: VarianceFloor = None
    init_range: Annotated[float, NOT_NEGATIVE] = 0.1
    means_init: Annotated[npt.ArrayLike | None, "array-like", None] = None
    random_state: Seed = None
    _waiting: Array = field(init=False)
    _owed: float = field(init=False)
    _first: Array | None = field(init=False)

    LEARNED: ClassVar[dict[str, Any]] = {
        **StreamingMixture.LEARNED,
        "_owed": Optional(real("", "[0, 1)")),
        "_rules": Optional(Rules),
        "_waiting": Optional(Floats("waiting, d", MISSING)),
        "_first": Optional(Maybe(Floats("first, d", MISSING))),
        "_seed": Optional(whole("", "[0, 2147483647]")),
        "converged_": Optional(flags()),
        "lower_bound_": Optional(real()),
    }

    @property
    def grid_shape_(self) -> tuple[int, int]:
        """Rows and columns of the grid."""
        return learning.near_square(len(self._mixture.weights))

    @property
    def width_(self) -> float:
        """Present width of the neighbourhood."""
        return Progress(self._mixture.progress).width

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Learn anew, in passes over the samples in random orders.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            At least ``n_components`` samples; NaN where values are missing.
        y : Ignored
        sample_weight : array-like, shape (n_samples,), optional
            At least 0; a weight of 2 is the same as a row that stands there twice.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there are too few samples, or ``means_init`` or ``variance_floor`` does not fit; if
            nothing is observed of a sample, or of a feature.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` passes were too few.
        """
        data = self._weighted(X, sample_weight)
        self._begin(check_random_state(self.random_state))
        self._first = None
        rng = np.random.RandomState(self._seed)
        data = self._in_units(data)
        points, order = data.points, data.shown(rng)
        self._start(filled(points[order[0]], means_of(points, data.weights)), points, rng)
        before = -math.inf
        for _ in range(self.max_iter):
            self.n_iter_ += 1
            now = self._show(points, order)
            self.converged_ = before > -math.inf and now - before < self.tol
            if self.converged_:
                break
            before = now
            order = data.shown(rng)
        else:
            warnings.warn(
                f"max_iter={self.max_iter} passes over {data.size} samples were too few to "
                f"converge: the neighbourhood's width is {self.width_:.3g}",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.lower_bound_ = now if now > -math.inf else self._mean_score(data)
        return self

    @validated
    def partial_fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Learn from more samples, once each and in the order given.

        One by one is the same as in blocks. The first 100 samples give the scale. What does not
        fill a batch waits for the next call.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            NaN where values are missing.
        y : Ignored
        sample_weight : array-like, shape (n_samples,), optional
            At least 0: how often each sample is shown; fractions add up.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the number of features has changed, or ``means_init`` or ``variance_floor`` does not
            fit; if nothing is observed of a sample, or, in the first call, of a feature.
        """
        first = not hasattr(self, "_mixture")
        points = self._learnable(X, reset=first)
        if first:
            self._begin(check_random_state(self.random_state))
            self._first = points[:0]
        order, self._owed = stream_rows(sample_weight, points, self._owed)
        shown = points[order]
        if self._first is not None:
            room = _SCALE_SAMPLES - len(self._first)
            self._first = np.concatenate([self._first, shown[:room]])
            self._start_stream(self._first if len(self._first) > 0 else points[:1])
            shown = shown[room:]
            if len(self._first) == _SCALE_SAMPLES:
                self._first = None
        self._stream(self._scaled(shown))
        self.n_iter_ += 1
        self.converged_ = self._settled()
        return self

    def _begin(self, random: np.random.RandomState) -> None:
        self._seed = int(random.randint(2**31 - 1))
        self._owed, self.n_iter_ = 0.0, 0

    def _start_stream(self, first: Array) -> None:
        """Start anew from the first samples, which tell the scale."""
        self._learn_units(first, None)
        scaled = self._scaled(first)
        centre = filled(scaled[0], means_of(scaled, None))
        self._start(centre, scaled, np.random.RandomState(self._seed))
        self._stream(scaled)

    def _stream(self, points: Array) -> None:
        """Show samples in their order; what does not fill a batch waits."""
        if self.batch_size > 1:
            points = np.concatenate([self._waiting, points])
            whole = len(points) - len(points) % self.batch_size
            self._waiting, points = points[whole:].copy(), points[:whole]
        if len(points) > 0:
            self._show(points, np.arange(len(points)))

    def fit_predict(self, X: npt.ArrayLike, y: object = None) -> IntArray:
        """Fit, and find the component that most likely made each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            NaN where values are missing.
        y : Ignored

        Returns
        -------
        ndarray, shape (n_samples,)
        """
        return self.fit(X).predict(X)

    def _spherical(self) -> bool:
        return super()._spherical() or self.forgetting > 0.0

    def _floor_share(self) -> float:
        return _PLAIN_SHARE if self.update == "sgd" else super()._floor_share()

    def _paper_bound(self) -> float | None:
        return _PLAIN_BOUND if self.update == "sgd" else None

    def _start(self, centre: Array, points: Array, rng: np.random.RandomState) -> None:
        n, d = self.n_components, points.shape[1]
        drifts, plain = self.forgetting > 0.0, self.update == "sgd"
        rate = _PLAIN_RATE if plain else _DRIFTING_RATE if drifts else _RATE
        rate = rate if self.learning_rate is None else float(self.learning_rate)
        least = min(rate, self.forgetting) if drifts else rate
        period = max(_MIN_PERIOD, round(1.0 / rate if plain else n / rate))
        if self.means_init is not None:
            means = self._checked_means(self.means_init, points)
        else:
            means = centre + rng.uniform(-self.init_range, self.init_range, (n, d))
        widest = _DRIFTING_WIDTH if drifts else _WIDTH
        width = widest * sum(learning.near_square(n)) if self.width is None else self.width
        bound = self._max_precision
        self._rules = Rules(
            rate=float(rate),
            min_rate=float(least),
            period=int(period),
            delta=_STATIONARY,
            last_width=0.01,
            max_precision=bound,
            periods=-1 if drifts else n,
            tempered=3 * n // 4,
            memory=1.0 - least / rate,
        )
        self._mixture = learning.new_mixture(
            means.astype(points.dtype), self.covariance_type, bound, float(width), float(rate)
        )
        if self.update == "sgd":
            Progress(self._mixture.progress).phase = RELEASED
        self._waiting = points[:0]

    def _show(self, points: Array, order: IntArray) -> float:
        """Learn; returns the mean log-likelihood of samples when shown, -∞ if still annealing."""
        progress, plain = Progress(self._mixture.progress), self.update == "sgd"
        progress.loss = progress.losses = 0.0
        learning.learn(self._mixture, self._rules, points, order, self.batch_size, plain=plain)
        total, n = progress.loss, progress.losses
        missing = holes(points)
        if missing is None:
            features, volume = float(points.shape[1]), self._volume(points, None)
        else:
            features = points.shape[1] - float(missing[order].sum(axis=1).mean())
            volume = self._volume(points[order], None)
        if not self._settled():
            return -math.inf
        if self.forgetting > 0.0 and not plain:  # of the nearest, whose variance is known
            weights = self._mixture.weights
            scale = 1.0 + math.log(2.0 * math.pi * progress.variance) + 2.0 * volume / features
            return float(xlogy(weights, weights).sum() - 0.5 * features * scale)
        if n < len(order):
            return -math.inf
        constant = 0.5 * features * math.log(2.0 * math.pi)
        return float(total / n - constant - volume)

    def _settled(self) -> bool:
        """Whether what remains is to converge."""
        if self.update == "sgd" or self.forgetting > 0.0:
            return not learning.is_annealing(self._mixture, plain=self.update == "sgd")
        return Progress(self._mixture.progress).phase == RELEASED
