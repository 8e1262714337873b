"""A Gaussian mixture that learns from a stream by stochastic gradients."""

import math
import warnings
from dataclasses import KW_ONLY, field
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, xlogy
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import WEIGHED, stream_rows
from oda_rl.files import estimators
from oda_rl.files.schema import MISSING, Floats, Maybe, real, whole
from oda_rl.mixtures import learning
from oda_rl.mixtures.base import COMPONENTS, StreamingMixture, VarianceFloor
from oda_rl.mixtures.kernels import ANNEALING, NARROW, RELEASED, Progress, Rules
from oda_rl.samples import filled, means_of, observed_shares

_SCALE_SAMPLES = 100  # first samples of a stream, which give the scale
_RATE, _DRIFTING_RATE, _PLAIN_RATE = 0.1, 0.5, 1e-3  # ε at the beginning
_WIDTH, _DRIFTING_WIDTH = 1 / 4, 1 / 16  # of the neighbourhood at first, of the sides' sum
_PLAIN_SHARE = 0.5  # of the mean variance: on images a lower floor leaves components unused
_PLAIN_BOUND = 20.0  # of precisions: D_max of the paper, in whose unit plain gradients are taken


@estimators.estimator
class SGDGaussianMixture(StreamingMixture):
    """Gaussian mixture that learns by stochastic gradients, from a random start.

    The components lie on a periodic grid. At first a sample moves its winner and, less with
    distance on the grid, the others; when the loss is stationary the neighbourhood shrinks. So all
    components are used, and no k-means is needed. Scaling X changes nothing. Features of different
    kinds should be standardized first, or have separate variance floors.

    With ``update="natural"`` steps are natural gradients, which do not depend on the scale.
    Covariances are equal and spherical during annealing and for n_components more periods, in each
    of which the component that is needed least is relocated; then every component learns from its
    responsibilities with steps that fall with its number of samples to the power -0.6. For the
    first 0.75 n_components of these periods responsibilities are tempered: overlapping components
    find better places. ``update="sgd"`` is the algorithm as printed.

    Parameters
    ----------
    n_components : int, default=1
        K, from 1 to 10,000.
    covariance_type : {"diag", "full", "tied_spherical"}, default="diag"
        Diagonal; full, for few features; or one variance for all components and features.
    update : {"natural", "sgd"}, default="natural"
        Kind of gradient; with "sgd" covariances are not full.
    batch_size : int, default=1
        Samples of a step after annealing, ≥ 1. ``partial_fit`` keeps the remainder.
    max_iter : int, default=100
        Maximum number of passes of ``fit``, ≥ 1, each in a new random order. If they are too few,
        it warns with a ConvergenceWarning.
    tol : float, default=1e-2
        ``fit`` ends when a pass raises the mean log-likelihood by less; ≥ 0.
    learning_rate : float or None, default=None
        First ε, in (0, 1); None: 0.1, 0.5 with ``forgetting``, 0.001 with ``update="sgd"``.
    forgetting : float, default=0.0
        Smallest ε, in [0, 1). Above 0, for streams that drift, covariances stay equal and
        spherical, because those of a component without samples would collapse.
    width : float or None, default=None
        First width σ of the neighbourhood, positive, in steps of the grid; None: half of the grid's
        mean side, an eighth with ``forgetting``. Below 0.25 there is no annealing.
    variance_floor : float, array-like of shape (n_features,) or None, default=None
        Smallest variance of a component in any direction, positive, in the square of X's unit:
        1/D_max² of the paper. An array has a floor for each feature, whose square roots are then
        the units of annealing and ``init_range``, too. None: 0.001 of the mean variance of the
        features that are not constant (of a stream, in its first 100 samples), 0.5 with
        ``update="sgd"``; 1e-8 if covariances are full: at most a sample of their mean is added.
    init_range : float, default=0.1
        Means start uniformly within this distance of the first sample; ≥ 0. The unit is the root of
        the mean variance of the features; with ``update="sgd"`` that in which D_max² is 20.
    means_init : array-like of shape (n_components, n_features) or None, default=None
        Initial means instead.
    random_state : int, RandomState instance or None, default=None
        Draws the initial means, the order of ``fit`` and :meth:`sample`.

    Attributes
    ----------
    converged_ : bool
        Whether ``fit`` has ended by ``tol``; after ``partial_fit``, whether annealing has ended.
    n_iter_ : int
        Passes made; each ``partial_fit`` is one.
    lower_bound_ : float
        Mean log-likelihood of the samples during the last pass of ``fit`` (of their best component
        with ``update="sgd"`` or ``forgetting``); after it if annealing has not ended.

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

    n_components: Annotated[int, COMPONENTS] = 1
    _: KW_ONLY
    covariance_type: Annotated[str, estimators.one_of("diag", "full", "tied_spherical")] = "diag"
    update: Annotated[str, estimators.one_of("natural", "sgd")] = "natural"
    batch_size: Annotated[int, estimators.SAMPLES] = 1
    max_iter: Annotated[int, estimators.COUNT] = 100
    tol: Annotated[float, estimators.NOT_NEGATIVE] = 1e-2
    learning_rate: Annotated[float | None, estimators.FRACTION, None] = None
    forgetting: Annotated[float, estimators.within("[0, 1)")] = 0.0
    width: Annotated[float | None, estimators.POSITIVE, None] = None
    variance_floor: VarianceFloor = None
    init_range: Annotated[float, estimators.NOT_NEGATIVE] = 0.1
    means_init: Annotated[npt.ArrayLike | None, "array-like", None] = None
    random_state: estimators.Seed = None

    _owed: Annotated[float, real("", "[0, 1)")] = field(init=False)
    _weighed: Annotated[FloatArray, WEIGHED] = field(init=False)
    _rules: Annotated[Rules, Rules] = field(init=False)
    _waiting: Annotated[Array, Floats("waiting, d", MISSING)] = field(init=False)
    _first: Annotated[Array | None, Maybe(Floats("first, d", MISSING))] = field(init=False)
    _seed: Annotated[int, whole("", "[0, 2147483647]")] = field(init=False)

    @property
    def grid_shape_(self) -> tuple[int, int]:
        """Rows and columns of the grid; components are in the order of its rows."""
        return learning.near_square(len(self._mixture.weights))

    @property
    def width_(self) -> float:
        """Current width of the neighbourhood."""
        return Progress(self._mixture.progress).width

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        data = self._weighted(X, sample_weight)
        self._begin(check_random_state(self.random_state))
        self._first, self._owed, self._n_samples = None, 0.0, float(data.weights.sum())
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
                f"max_iter={self.max_iter} passes over {data.n_shown} samples were too few to "
                f"converge: the neighbourhood's width is {self.width_:.3g}",
                ConvergenceWarning,
                stacklevel=2,
            )
        if now == -math.inf:
            logs = [logsumexp(part, axis=1) for part in learning.scores(self._mixture, points)]
            mean = np.average(np.concatenate(logs), weights=data.weights)
            now = float(mean) - self._volume(points, data.weights)
        self.lower_bound_ = now
        return self

    @estimators.validated
    def partial_fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Learn from one sample or more, once each and in the order given; see :meth:`fit`.

        How samples are divided among calls makes no difference. The first 100 give the scale. A
        sample is shown as often as it weighs over the mean so far, at most 100 times; fractions
        add up.
        """
        first = not hasattr(self, "_mixture")
        points = self._learnable(X, reset=first)
        if first:
            self._begin(check_random_state(self.random_state))
            self._first = points[:0]
        shown = points[stream_rows(self, sample_weight, points, first=first)]
        self._n_samples = len(shown) + (0.0 if first else self._n_samples)
        if self._first is not None:
            room = _SCALE_SAMPLES - len(self._first)
            self._first = np.concatenate([self._first, shown[:room]])
            begin = self._first if len(self._first) > 0 else points[:1]  # which give the scale
            self._learn_units(begin, None)
            scaled = self._scaled(begin)
            centre = filled(scaled[0], means_of(scaled, None))
            self._start(centre, scaled, np.random.RandomState(self._seed))
            self._stream(scaled)
            shown = shown[room:]
            if len(self._first) == _SCALE_SAMPLES:
                self._first = None
        self._stream(self._scaled(shown))
        self.n_iter_ += 1
        self.converged_ = self._settled()
        return self

    @property
    def _memory(self) -> float:
        shown = np.asarray(Progress(self._mixture.progress).shown)
        return 1.0 / float(learning.steps_at(self._rules, self._mixture, shown))

    def _begin(self, random: np.random.RandomState) -> None:
        if self.update == "sgd" and self.covariance_type == "full":
            raise ValueError(
                "covariance_type is 'full': update='sgd' takes 'diag' or 'tied_spherical'"
            )
        self._seed = int(random.randint(2**31 - 1))
        self.n_iter_ = 0

    def _stream(self, points: Array) -> None:
        """Learn from samples in their order; what does not fill a batch waits."""
        if self.batch_size > 1:
            points = np.concatenate([self._waiting, points])
            n_full = len(points) - len(points) % self.batch_size
            self._waiting, points = points[n_full:].copy(), points[:n_full]
        if len(points) > 0:
            self._show(points, np.arange(len(points)))

    def _spherical(self) -> bool:
        return super()._spherical() or self.forgetting > 0.0

    def _floor_share(self) -> tuple[float, float | None]:
        return (_PLAIN_SHARE, _PLAIN_BOUND) if self.update == "sgd" else super()._floor_share()

    def _start(self, centre: Array, points: Array, rng: np.random.RandomState) -> None:
        n, d = self.n_components, points.shape[1]
        drifts, plain = self.forgetting > 0.0, self.update == "sgd"
        rate = _PLAIN_RATE if plain else _DRIFTING_RATE if drifts else _RATE
        rate = rate if self.learning_rate is None else float(self.learning_rate)
        min_rate = min(rate, self.forgetting) if drifts else rate
        period = max(100, round(1.0 / rate if plain else n / rate))
        if self.means_init is not None:
            means = self._checked_means(self.means_init, points)
        else:
            means = centre + rng.uniform(-self.init_range, self.init_range, (n, d))
        share = _DRIFTING_WIDTH if drifts else _WIDTH
        width = share * sum(learning.near_square(n)) if self.width is None else self.width
        bound = self._max_precision
        self._rules = Rules(
            rate=float(rate),
            min_rate=float(min_rate),
            period=int(period),
            max_precision=bound,
            periods=-1 if drifts else n,
            tempered=3 * n // 4,
            memory=1.0 - min_rate / rate,
        )
        self._mixture = learning.new_mixture(
            means.astype(points.dtype), self.covariance_type, bound, float(width), float(rate)
        )
        if self.update == "sgd":
            Progress(self._mixture.progress).phase = RELEASED
        self._waiting = points[:0]

    def _show(self, points: Array, order: IntArray) -> float:
        """Learn; return the mean log-likelihood of samples when shown, -∞ while annealing."""
        progress, plain = Progress(self._mixture.progress), self.update == "sgd"
        progress.loss = progress.losses = 0.0
        learning.learn(self._mixture, self._rules, points, order, self.batch_size, plain=plain)
        total, n = progress.loss, progress.losses
        if not self._settled():
            return -math.inf
        if self.forgetting > 0.0 and not plain:  # of the nearest, whose variance is known
            weights, observed = self._mixture.weights, np.mean(observed_shares(points[order]))
            features = points.shape[1] * float(observed)
            half_log = 0.5 * features * (1.0 + math.log(progress.variance))
            entropy = len(order) * (float(xlogy(weights, weights).sum()) - half_log)
            return self._mean_log(entropy, points, order)
        return -math.inf if n < len(order) else self._mean_log(total, points, order)

    def _settled(self) -> bool:
        """Whether annealing has ended, and covariances are released if they ever are."""
        progress = Progress(self._mixture.progress)
        if self.update == "sgd":
            return progress.width < NARROW
        return progress.phase == RELEASED or (self.forgetting > 0.0 and progress.phase != ANNEALING)
