"""Codebooks to compare online deterministic annealing with, and to fine-tune what it has found.

Stochastic vector quantization, learning vector quantization and batch deterministic annealing, all
with the squared Euclidean distance, as scikit-learn estimators. The compiled functions
:func:`lvq1`, :func:`glvq` and :func:`rslvq` move the codevectors of a classifier, wherever those
come from. They take

``codevectors``, shape (K, d)
    Changed in place.
``labels``, shape (K,), int64
    The class of each codevector.
``points``, shape (n, d), and ``targets``, shape (n,), int64
    The samples and their classes.
``order``, shape (m,), int64
    Which samples are shown, one after another. The step size falls from ``rate``, below 1, to 0
    linearly over these m presentations.

They know no absolute length: scaled data gives scaled codevectors. A sample so far away that its
squared distance is no longer a number is passed over, so what was finite remains so.
"""
# ruff: noqa: N803  (scikit-learn calls the data X)

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_array, check_random_state, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from oda_rl._compile import compiled, inlined

F = TypeVar("F", bound=Callable[..., Any])
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
RandomState = int | np.random.RandomState | None

_LEAST_PULL = 1e-6  # of the step size: a weaker pull on a codevector is left out
_FARTHEST = 40.0  # in temperatures: exp(-40) is lost beside 1
_SLOPE = 4.0  # of GLVQ's sigmoid
_LEAST_MASS = 1e-5
_MERGE_BELOW = 0.3  # in temperatures
_SHIFT = 0.1  # of a split codevector, in square roots of the temperature
_BLOCK = 1_000_000  # shares that batch annealing holds in memory at a time

# Makes fit check the constructor's arguments against _parameter_constraints.
_validated = cast(Callable[[F], F], _fit_context(prefer_skip_nested_validation=True))


@inlined
def _squared_distance(points: FloatArray, i: int, codevectors: FloatArray, k: int) -> float:
    # Four sums that do not wait for one another: with one, each addition waits for the last.
    d = points.shape[1]
    fours = d - d % 4
    a, b, c, e = 0.0, 0.0, 0.0, 0.0
    for j in range(0, fours, 4):
        a += (points[i, j] - codevectors[k, j]) ** 2
        b += (points[i, j + 1] - codevectors[k, j + 1]) ** 2
        c += (points[i, j + 2] - codevectors[k, j + 2]) ** 2
        e += (points[i, j + 3] - codevectors[k, j + 3]) ** 2
    for j in range(fours, d):
        a += (points[i, j] - codevectors[k, j]) ** 2
    return (a + b) + (c + e)


@inlined
def _winner(points: FloatArray, i: int, codevectors: FloatArray) -> tuple[int, float]:
    # The nearest codevector of one point, the first of equals, and its squared distance.
    winner = 0
    smallest = np.inf
    for k in range(codevectors.shape[0]):
        distance = _squared_distance(points, i, codevectors, k)
        if distance < smallest:
            smallest = distance
            winner = k
    return winner, smallest


@inlined
def _move(codevectors: FloatArray, k: int, points: FloatArray, i: int, step: float) -> None:
    # Towards the point, or away from it if the step is negative.
    for j in range(points.shape[1]):
        codevectors[k, j] += step * (points[i, j] - codevectors[k, j])


@inlined
def _boltzmann(gap: float, temperature: float) -> float:
    # exp(-gap / temperature), and its limit at temperature 0.
    if gap <= 0.0:
        return 1.0
    if gap > _FARTHEST * temperature:
        return 0.0
    return math.exp(-gap / temperature)


@compiled
def _measure(points: FloatArray, codevectors: FloatArray, out: FloatArray) -> None:
    """Write squared distances, shape (n, K)."""
    for i in range(points.shape[0]):
        for k in range(codevectors.shape[0]):
            out[i, k] = _squared_distance(points, i, codevectors, k)


@compiled
def _assign(
    points: FloatArray, codevectors: FloatArray, labels: IntArray, distances: FloatArray
) -> None:
    """Write the nearest codevector of each point and its squared distance, both of shape (n,)."""
    for i in range(points.shape[0]):
        labels[i], distances[i] = _winner(points, i, codevectors)


@compiled
def _compete(
    codevectors: FloatArray, counts: FloatArray, points: FloatArray, order: IntArray
) -> float:
    """Move the winner of each sample by 1/(1 + .9 n), n the samples it had before.

    Returns
    -------
    float
        Sum of the squared distances from the winners before they moved.
    """
    total = 0.0
    for t in range(order.shape[0]):
        i = order[t]
        winner, smallest = _winner(points, i, codevectors)
        total += smallest
        if smallest < np.inf:
            _move(codevectors, winner, points, i, 1.0 / (1.0 + 0.9 * counts[winner]))
            counts[winner] += 1.0
    return total


@compiled
def lvq1(
    codevectors: FloatArray,
    labels: IntArray,
    points: FloatArray,
    targets: IntArray,
    order: IntArray,
    rate: float,
) -> None:
    """Move the winner towards samples of its class and away from others (Kohonen's LVQ1).

    Examples
    --------
    >>> codevectors, labels = np.array([[0.0], [4.0]]), np.array([0, 1])
    >>> points, targets = np.array([[1.0], [3.0]]), np.array([0, 0])
    >>> lvq1(codevectors, labels, points, targets, order=np.array([0, 1]), rate=0.5)
    >>> codevectors
    array([[0.5 ],
           [4.25]])

    References
    ----------
    T. Kohonen, "Self-organizing maps", Springer, 1995, section 6.1.
    """
    n_shown = order.shape[0]
    for t in range(n_shown):
        i = order[t]
        winner, smallest = _winner(points, i, codevectors)
        if smallest < np.inf:
            step = rate * (1.0 - t / n_shown)
            if labels[winner] != targets[i]:
                step = -step
            _move(codevectors, winner, points, i, step)


@compiled
def glvq(
    codevectors: FloatArray,
    labels: IntArray,
    points: FloatArray,
    targets: IntArray,
    order: IntArray,
    rate: float,
) -> None:
    """Descend a sigmoid f of (d⁺ − d⁻)/(d⁺ + d⁻) (generalized LVQ).

    d⁺ and d⁻ are the squared distances of a sample from the nearest codevector of its own class and
    of any other; the first moves towards the sample by rate f′ d⁻/(d⁺ + d⁻), the second away from
    it by rate f′ d⁺/(d⁺ + d⁻). That is the gradient times (d⁺ + d⁻)/4, which rids it of the unit of
    length. A sample of a class that has no codevector, or of the only class, moves nothing.

    References
    ----------
    A. Sato, K. Yamada, "Generalized learning vector quantization", NIPS 8, 1995.
    """
    n_shown = order.shape[0]
    for t in range(n_shown):
        i = order[t]
        right, wrong = 0, 0
        near, far = np.inf, np.inf
        for k in range(codevectors.shape[0]):
            distance = _squared_distance(points, i, codevectors, k)
            if labels[k] == targets[i]:
                if distance < near:
                    near, right = distance, k
            elif distance < far:
                far, wrong = distance, k
        total = near + far
        if 0.0 < total < np.inf:
            sigmoid = 1.0 / (1.0 + math.exp(_SLOPE * (far - near) / total))
            step = rate * (1.0 - t / n_shown) * _SLOPE * sigmoid * (1.0 - sigmoid) / total
            _move(codevectors, right, points, i, step * far)
            _move(codevectors, wrong, points, i, -step * near)


@compiled
def rslvq(
    codevectors: FloatArray,
    masses: FloatArray,
    labels: IntArray,
    temperature: float,
    points: FloatArray,
    targets: IntArray,
    order: IntArray,
    rate: float,
) -> None:
    """Ascend log p(c|x), with p(k|x) ∝ p_k exp(−|x − μ_k|²/T) (robust soft LVQ).

    Codevectors of the sample's own class move towards it by rate p(k|c, x) (1 − p(c|x)), others
    away from it by rate p(k|x). That is the gradient times T/2, which rids it of the unit of
    length. A sample of a class that has no codevector moves nothing.

    Parameters
    ----------
    masses : ndarray, shape (K,)
        The p_k, ≥ 0; only their ratios matter. They stay as they are.
    temperature : float
        T ≥ 0, in squared units of the data. At 0 only the nearest of either kind moves.

    References
    ----------
    S. Seo, K. Obermayer, "Soft learning vector quantization", Neural Computation 15, 2003.
    """
    n_codevectors = codevectors.shape[0]
    n_shown = order.shape[0]
    weights = np.empty(n_codevectors)
    for t in range(n_shown):
        i = order[t]
        own, nearest = np.inf, np.inf
        for k in range(n_codevectors):
            weights[k] = _squared_distance(points, i, codevectors, k)
            if masses[k] > 0.0:
                nearest = min(nearest, weights[k])
                if labels[k] == targets[i]:
                    own = min(own, weights[k])
        if own == np.inf:
            continue
        # Each kind has its own reference, so that neither sum underflows.
        right, wrong = 0.0, 0.0
        for k in range(n_codevectors):
            if labels[k] == targets[i]:
                weights[k] = masses[k] * _boltzmann(weights[k] - own, temperature)
                right += weights[k]
            else:
                weights[k] = masses[k] * _boltzmann(weights[k] - nearest, temperature)
                wrong += weights[k]
        total = wrong + right * _boltzmann(own - nearest, temperature)
        mistaken = wrong / total  # 1 - p(c|x), and no pull is stronger
        if mistaken <= _LEAST_PULL:
            continue
        step = rate * (1.0 - t / n_shown)
        for k in range(n_codevectors):
            own_class = labels[k] == targets[i]
            pull = weights[k] / right * mistaken if own_class else -weights[k] / total
            if abs(pull) > _LEAST_PULL:
                _move(codevectors, k, points, i, step * pull)


def _nearest(points: FloatArray, codevectors: FloatArray) -> tuple[IntArray, FloatArray]:
    """Nearest codevector of each point, shape (n,), and its squared distance, shape (n,)."""
    labels = np.empty(len(points), dtype=np.int64)
    distances = np.empty(len(points))
    _assign(points, codevectors, labels, distances)
    return labels, distances


def _fitted_points(estimator: BaseEstimator, X: npt.ArrayLike) -> FloatArray:
    check_is_fitted(estimator)
    points: FloatArray = validate_data(estimator, X, reset=False, dtype=np.float64, order="C")
    return points


def _check_enough(points: FloatArray, n_clusters: int) -> None:
    if len(points) < n_clusters:
        raise ValueError(f"n_samples={len(points)} should be >= n_clusters={n_clusters}.")


def _given_codevectors(init: npt.ArrayLike, n_codevectors: int, n_features: int) -> FloatArray:
    """Check codevectors to start from, and copy them."""
    codevectors: FloatArray = check_array(
        init, dtype=np.float64, order="C", copy=True, input_name="init"
    )
    if codevectors.shape != (n_codevectors, n_features):
        raise ValueError(
            f"The shape of the initial codevectors {codevectors.shape} does not match the number "
            f"of codevectors and of features {(n_codevectors, n_features)}."
        )
    return codevectors


class _VectorQuantizer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    """What can be asked of codevectors, however they were found."""

    cluster_centers_: FloatArray

    @property
    def codevectors_(self) -> FloatArray:
        """Another name of ``cluster_centers_``."""
        return self.cluster_centers_

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Find the nearest codevector of each sample.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples,)
            Rows of ``cluster_centers_``.
        """
        return _nearest(_fitted_points(self, X), self.cluster_centers_)[0]

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Measure the squared distances of each sample from all codevectors.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples, n_clusters)
        """
        points = _fitted_points(self, X)
        divergences = np.empty((len(points), len(self.cluster_centers_)))
        _measure(points, self.cluster_centers_, divergences)
        return divergences

    def score(self, X: npt.ArrayLike, y: object = None) -> float:
        """Give the opposite of the mean squared distance from the nearest codevector.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : Ignored

        Returns
        -------
        float
            At most 0; the nearer to 0 the better.
        """
        return -float(_nearest(_fitted_points(self, X), self.cluster_centers_)[1].mean())


class StochasticVQ(_VectorQuantizer):
    """Online competitive learning: each sample attracts its nearest codevector, and no other.

    The step size of a codevector is 1/(1 + .9 n), where n counts the samples it has won and its
    first position.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of codevectors, ≥ 1.
    max_iter : int, default=10
        Passes of ``fit`` over the samples, ≥ 1, each in a new random order.
    init : "random" or array-like of shape (n_clusters, n_features), default="random"
        Where the codevectors start; "random" draws samples without replacement.
    random_state : int, RandomState instance or None, default=None
        Draws the start and the order of the samples.

    Attributes
    ----------
    cluster_centers_, codevectors_ : ndarray, shape (n_clusters, n_features)
        The codevectors.
    labels_ : ndarray, shape (n_samples,)
        Nearest codevector of each sample of the last ``fit`` or ``partial_fit``.
    n_features_in_ : int
        Number of features.
    n_iter_ : int
        Passes made; each ``partial_fit`` is one.
    history_ : list of tuple (int, float)
        After each pass: samples seen so far, and their mean squared distance in that pass from
        their winner, measured before it moved.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and clustering",
    IEEE Transactions on Neural Networks and Learning Systems, 2023, definition 1.

    Examples
    --------
    >>> X = [[0.0], [0.2], [5.0], [5.2]]
    >>> quantizer = StochasticVQ(n_clusters=2, init=[[0.0], [5.0]], random_state=0).fit(X)
    >>> quantizer.cluster_centers_.round(1)
    array([[0.1],
           [5.1]])
    >>> quantizer.predict([[1.0], [4.0]])
    array([0, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"random"}), "array-like"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        max_iter: int = 10,
        init: str | npt.ArrayLike = "random",
        random_state: RandomState = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.init = init
        self.random_state = random_state

    @_validated
    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Place the codevectors anew.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            At least ``n_clusters`` samples.
        y : Ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there are too few samples, or ``init`` does not fit the data or ``n_clusters``.
        """
        points: FloatArray = validate_data(self, X, dtype=np.float64, order="C")
        rng = check_random_state(self.random_state)
        self._start(points, rng)
        for _ in range(self.max_iter):
            self._pass(points, rng.permutation(len(points)))
        self.labels_ = _nearest(points, self.cluster_centers_)[0]
        return self

    @_validated
    def partial_fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Let more samples attract the codevectors, once each and in the order given.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            At least ``n_clusters`` samples if this is the first call.
        y : Ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            As for :meth:`fit`.
        """
        first = not hasattr(self, "cluster_centers_")
        points: FloatArray = validate_data(self, X, reset=first, dtype=np.float64, order="C")
        if first:
            self._start(points, check_random_state(self.random_state))
        self._pass(points, np.arange(len(points)))
        self.labels_ = _nearest(points, self.cluster_centers_)[0]
        return self

    def _start(self, points: FloatArray, rng: np.random.RandomState) -> None:
        _check_enough(points, self.n_clusters)
        if isinstance(self.init, str):
            chosen = rng.choice(len(points), self.n_clusters, replace=False)
            self.cluster_centers_ = points[chosen]
        else:
            self.cluster_centers_ = _given_codevectors(self.init, self.n_clusters, points.shape[1])
        self._counts = np.ones(self.n_clusters)
        self.n_iter_ = 0
        self.history_: list[tuple[int, float]] = []

    def _pass(self, points: FloatArray, order: IntArray) -> None:
        total = _compete(self.cluster_centers_, self._counts, points, order)
        seen = self.history_[-1][0] if self.history_ else 0
        self.history_.append((seen + len(points), total / len(points)))
        self.n_iter_ += 1


class LVQ(ClassifierMixin, BaseEstimator):
    """Learning vector quantization: the class of the nearest codevector.

    Parameters
    ----------
    n_prototypes : int, default=1
        Codevectors of each class, ≥ 1; a class with fewer samples gets one for each.
    algorithm : {"lvq1", "glvq", "rslvq"}, default="lvq1"
        :func:`lvq1`, :func:`glvq` or :func:`rslvq`. The temperature of the last is 2σ², with σ² the
        mean squared distance, per feature, of the samples from the nearest codevector of their
        class at the start; all its masses are equal.
    max_iter : int, default=30
        Passes over the samples, ≥ 1, each in a new random order.
    rate : float, default=0.05
        First step size, in (0, 1); it falls to 0 linearly.
    init : "random" or array-like, default="random"
        Where the codevectors start. "random" draws samples of their class. An array has shape
        (n_classes * n_prototypes, n_features): first the codevectors of ``classes_[0]``, and so on.
    random_state : int, RandomState instance or None, default=None
        Draws the start and the order of the samples.

    Attributes
    ----------
    codevectors_ : ndarray, shape (n_codevectors, n_features)
        Those of ``classes_[0]`` first.
    codevector_labels_ : ndarray, shape (n_codevectors,)
        Class label of each codevector.
    classes_ : ndarray, shape (n_classes,)
        Class labels.
    n_features_in_ : int
        Number of features.
    n_iter_ : int
        Passes made.

    Examples
    --------
    >>> X, y = [[0.0], [0.2], [5.0], [5.2]], ["low", "low", "high", "high"]
    >>> LVQ(random_state=0).fit(X, y).predict([[1.0], [4.0]])
    array(['low', 'high'], dtype='<U4')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_prototypes": [Interval(Integral, 1, None, closed="left")],
        "algorithm": [StrOptions({"lvq1", "glvq", "rslvq"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "rate": [Interval(Real, 0, 1, closed="neither")],
        "init": [StrOptions({"random"}), "array-like"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_prototypes: int = 1,
        *,
        algorithm: str = "lvq1",
        max_iter: int = 30,
        rate: float = 0.05,
        init: str | npt.ArrayLike = "random",
        random_state: RandomState = None,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.algorithm = algorithm
        self.max_iter = max_iter
        self.rate = rate
        self.init = init
        self.random_state = random_state

    @_validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Place the codevectors anew.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
        y : array-like, shape (n_samples,)
            Class labels.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``y`` holds no classes, or ``init`` does not fit the data or ``n_prototypes``.
        """
        points, y = validate_data(self, X, y, dtype=np.float64, order="C")
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        targets = indices.astype(np.int64)
        rng = check_random_state(self.random_state)
        codevectors, labels = self._start(points, targets, rng)
        order = np.concatenate([rng.permutation(len(points)) for _ in range(self.max_iter)])
        if self.algorithm == "rslvq":
            temperature = _class_temperature(codevectors, labels, points, targets)
            masses = np.ones(len(labels))
            rslvq(codevectors, masses, labels, temperature, points, targets, order, self.rate)
        else:
            learn = lvq1 if self.algorithm == "lvq1" else glvq
            learn(codevectors, labels, points, targets, order, self.rate)
        self.codevectors_ = codevectors
        self.codevector_labels_ = self.classes_[labels]
        self.n_iter_ = self.max_iter
        return self

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Give each sample the class of its nearest codevector.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)

        Returns
        -------
        ndarray, shape (n_samples,)
        """
        nearest, _ = _nearest(_fitted_points(self, X), self.codevectors_)
        labels: npt.NDArray[Any] = self.codevector_labels_[nearest]
        return labels

    def _start(
        self, points: FloatArray, targets: IntArray, rng: np.random.RandomState
    ) -> tuple[FloatArray, IntArray]:
        n_classes = len(self.classes_)
        if not isinstance(self.init, str):
            n_codevectors = n_classes * self.n_prototypes
            codevectors = _given_codevectors(self.init, n_codevectors, points.shape[1])
            return codevectors, np.repeat(np.arange(n_classes), self.n_prototypes)
        members = [np.flatnonzero(targets == label) for label in range(n_classes)]
        chosen = np.concatenate(
            [rng.choice(own, min(self.n_prototypes, len(own)), replace=False) for own in members]
        )
        return points[chosen], targets[chosen]


def _class_temperature(
    codevectors: FloatArray, labels: IntArray, points: FloatArray, targets: IntArray
) -> float:
    """2σ², with σ² the variance per feature about the nearest codevector of the class."""
    total = 0.0
    for label in np.unique(targets):
        own = points[targets == label]
        total += float(_nearest(own, codevectors[labels == label])[1].sum())
    return 2.0 * total / points.size


class AnnealingRecord(NamedTuple):
    """One temperature of a batch annealing.

    Parameters
    ----------
    temperature : float
        In squared units of the data.
    n_clusters : int
        Codevectors once those too light or too close have gone.
    distortion : float
        Mean squared distance from the nearest of them.
    n_samples_seen : int
        Number of samples times iterations so far.
    """

    temperature: float
    n_clusters: int
    distortion: float
    n_samples_seen: int


class BatchDeterministicAnnealing(_VectorQuantizer):
    """Deterministic annealing with sums over the whole data.

    It starts with one codevector at the mean and the temperature at twice the total variance. At
    each temperature T it iterates to the fixed point

        r_k(x) ∝ p_k exp(−|x − μ_k|²/T),   p_k = mean of r_k,   μ_k = mean of x weighted by r_k,

    merges codevectors with a squared distance below .3 T, cools, and splits each into two. A pair
    stays apart only if T is below the critical temperature of its cluster. From ``n_clusters``
    codevectors on (if a split overshoots, Ward's cheapest pairs merge) the number stays.

    Parameters
    ----------
    n_clusters : int, default=8
        Most codevectors, ≥ 1. There are fewer if the last temperature does not support as many,
        as with fewer distinct samples.
    cooling : float, default=0.8
        Each temperature over the one before, in (0, 1).
    max_iter : int, default=100
        Most iterations at a temperature, ≥ 1.
    tol : float, default=1e-4
        Iterate until no codevector moves farther than ``tol`` times √T; ≥ 0.
    min_temperature : float, default=1e-3
        Last temperature over the total variance, > 0.
    random_state : int, RandomState instance or None, default=None
        Draws the directions of the splits.

    Attributes
    ----------
    cluster_centers_, codevectors_ : ndarray, shape (n_codevectors, n_features)
        The codevectors.
    weights_ : ndarray, shape (n_codevectors,)
        Their masses p_k, which sum to 1.
    labels_ : ndarray, shape (n_samples,)
        Nearest codevector of each sample.
    temperature_ : float
        Last temperature, in squared units of the data.
    n_features_in_ : int
        Number of features.
    n_iter_ : int
        Iterations, at all temperatures.
    history_ : list of AnnealingRecord
        One record for each temperature.

    References
    ----------
    K. Rose, "Deterministic annealing for clustering, compression, classification, regression, and
    related optimization problems", Proceedings of the IEEE 86 (1998), 2210-2239.

    Examples
    --------
    >>> X = [[0.0], [0.2], [5.0], [5.2]]
    >>> annealing = BatchDeterministicAnnealing(n_clusters=2, random_state=0).fit(X)
    >>> np.sort(annealing.cluster_centers_, axis=0).round(3)
    array([[0.1],
           [5.1]])
    >>> annealing.history_[0].n_clusters
    1
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "cooling": [Interval(Real, 0, 1, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "min_temperature": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        cooling: float = 0.8,
        max_iter: int = 100,
        tol: float = 1e-4,
        min_temperature: float = 1e-3,
        random_state: RandomState = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.cooling = cooling
        self.max_iter = max_iter
        self.tol = tol
        self.min_temperature = min_temperature
        self.random_state = random_state

    @_validated
    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Place the codevectors.

        Parameters
        ----------
        X : array-like, shape (n_samples, n_features)
            At least ``n_clusters`` samples.
        y : Ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there are too few samples.
        """
        points: FloatArray = validate_data(self, X, dtype=np.float64, order="C")
        _check_enough(points, self.n_clusters)
        rng = check_random_state(self.random_state)
        # In units of the data's own every temperature is a plain number, and distances from
        # products do not cancel.
        mean = points.mean(axis=0)
        centred = points - mean
        variance = float((centred**2).sum(axis=1).mean())
        unit = math.sqrt(variance) or 1.0
        masses, codevectors = self._anneal(centred / unit, variance, rng)
        self.weights_ = masses
        self.cluster_centers_ = mean + unit * codevectors
        self.labels_ = _nearest(points, self.cluster_centers_)[0]
        return self

    def _anneal(
        self, points: FloatArray, variance: float, rng: np.random.RandomState
    ) -> tuple[FloatArray, FloatArray]:
        """Anneal from temperature 2 down to ``min_temperature``, and keep the records.

        ``variance`` takes temperatures back to the units of the data.
        """
        masses, codevectors = np.ones(1), np.zeros((1, points.shape[1]))
        temperature = max(2.0, self.min_temperature)
        self.history_: list[AnnealingRecord] = []
        self.n_iter_ = 0
        growing = True
        while True:
            masses, codevectors, n_iter = _settle(
                points, masses, codevectors, temperature, self.max_iter, self.tol
            )
            self.n_iter_ += n_iter
            if growing:
                masses, codevectors = _prune(masses, codevectors)
                masses, codevectors = _merge_close(masses, codevectors, _MERGE_BELOW * temperature)
                masses, codevectors = _merge_down(masses, codevectors, self.n_clusters)
                growing = len(masses) < self.n_clusters
            self.temperature_ = temperature * variance
            distortion = float(_nearest(points, codevectors)[1].mean()) * variance
            seen = self.n_iter_ * len(points)
            self.history_.append(AnnealingRecord(self.temperature_, len(masses), distortion, seen))
            if temperature <= self.min_temperature:
                return masses, codevectors
            temperature = max(self.cooling * temperature, self.min_temperature)
            if growing:
                masses, codevectors = _split(masses, codevectors, temperature, rng)


def _settle(
    points: FloatArray,
    masses: FloatArray,
    codevectors: FloatArray,
    temperature: float,
    max_iter: int,
    tol: float,
) -> tuple[FloatArray, FloatArray, int]:
    """Iterate to the fixed point at one temperature; masses, codevectors, iterations made."""
    n_iter, shift = 0, np.inf
    while n_iter < max_iter and shift > tol**2 * temperature:
        masses, moved = _iterate(points, masses, codevectors, temperature)
        shift = ((moved - codevectors) ** 2).sum(axis=1).max()
        codevectors = moved
        n_iter += 1
    return masses, codevectors, n_iter


def _iterate(
    points: FloatArray, masses: FloatArray, codevectors: FloatArray, temperature: float
) -> tuple[FloatArray, FloatArray]:
    """Masses and codevectors after one iteration; one that attracts nothing stays where it is."""
    totals = np.zeros(len(masses))
    sums = np.zeros_like(codevectors)
    with np.errstate(divide="ignore"):  # of a mass of 0
        offsets = np.log(masses) - (codevectors**2).sum(axis=1) / temperature
    slopes = codevectors.T * (2.0 / temperature)
    for rows in gen_batches(len(points), max(1, _BLOCK // len(masses))):
        shares = points[rows] @ slopes
        shares += offsets
        shares -= shares.max(axis=1, keepdims=True)
        np.exp(shares, out=shares)
        shares /= shares.sum(axis=1, keepdims=True)
        totals += shares.sum(axis=0)
        sums += shares.T @ points[rows]
    moved = codevectors.copy()
    np.divide(sums, totals[:, None], out=moved, where=totals[:, None] > 0.0)
    return totals / len(points), moved


def _prune(masses: FloatArray, codevectors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Drop what attracts next to nothing."""
    kept = masses >= min(_LEAST_MASS, masses.max())
    return masses[kept] / masses[kept].sum(), codevectors[kept]


def _merge_close(
    masses: FloatArray, codevectors: FloatArray, closest: float
) -> tuple[FloatArray, FloatArray]:
    """Merge the closest pair until none has a squared distance below ``closest``."""
    while len(masses) > 1:
        costs = _pair_distances(codevectors)
        if costs.min() >= closest:
            break
        masses, codevectors = _merge_cheapest(masses, codevectors, costs)
    return masses, codevectors


def _merge_down(
    masses: FloatArray, codevectors: FloatArray, n_clusters: int
) -> tuple[FloatArray, FloatArray]:
    """Merge down to ``n_clusters`` the pairs that raise the distortion least (Ward)."""
    while len(masses) > n_clusters:
        products = masses[:, None] * masses / (masses[:, None] + masses)
        costs = products * _pair_distances(codevectors)
        masses, codevectors = _merge_cheapest(masses, codevectors, costs)
    return masses, codevectors


def _pair_distances(codevectors: FloatArray) -> FloatArray:
    """Squared distances of all pairs, shape (K, K); infinite from itself."""
    squares: FloatArray = euclidean_distances(codevectors, squared=True)
    np.fill_diagonal(squares, np.inf)
    return squares


def _merge_cheapest(
    masses: FloatArray, codevectors: FloatArray, costs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    first, second = np.unravel_index(costs.argmin(), costs.shape)
    masses, codevectors = masses.copy(), codevectors.copy()
    masses[first] += masses[second]
    share = masses[second] / masses[first]
    codevectors[first] += share * (codevectors[second] - codevectors[first])
    return np.delete(masses, second), np.delete(codevectors, second, axis=0)


def _split(
    masses: FloatArray, codevectors: FloatArray, temperature: float, rng: np.random.RandomState
) -> tuple[FloatArray, FloatArray]:
    """Split each codevector into two, shifted by .1 √T both ways in a random direction."""
    shifts = rng.normal(size=codevectors.shape)
    norms = np.sqrt((shifts**2).sum(axis=1, keepdims=True))
    shifts *= _SHIFT * math.sqrt(temperature) / norms
    halves = np.concatenate([masses, masses]) / 2.0
    return halves, np.concatenate([codevectors + shifts, codevectors - shifts])
