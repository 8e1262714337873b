"""Stochastic and learning vector quantization, with the squared Euclidean distance."""

from dataclasses import KW_ONLY, field
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import check_array, check_random_state

from oda_rl import _validation as validation
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.files import estimators, schema
from oda_rl.quantization.kernels import compete, glvq, lvq1, measure, nearest, rslvq
from oda_rl.samples import Weighted, counted, drawn, observed_shares, weighted

_MAX_PASSES = 10_000


def checked_codevectors(init: npt.ArrayLike, n_codevectors: int, n_features: int) -> FloatArray:
    """Check codevectors to start from, and copy them."""
    codevectors: FloatArray = check_array(
        init, dtype=np.float64, order="C", copy=True, input_name="init"
    )
    if codevectors.shape != (n_codevectors, n_features):
        raise ValueError(
            f"The shape of the initial codevectors {codevectors.shape} does not match the number "
            f"of codevectors and of features {(n_codevectors, n_features)}."
        )
    return validation.bounded(codevectors, "init")


class VectorQuantizer(
    estimators.Unsupervised,
    estimators.Filed,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClusterMixin,
    BaseEstimator,
):
    """Estimators with codevectors: predict, transform, score."""

    cluster_centers_: Annotated[FloatArray, schema.real("K, d")]
    labels_: Annotated[IntArray, schema.whole("n_labels", "[0, K)")]
    inertia_: Annotated[float, schema.real("", "[0, inf]")]
    n_iter_: Annotated[int, schema.whole()]

    def _check_contents(self, sizes: schema.Sizes, where: str) -> None:
        schema.check_fitted((name in vars(self) for name in self._LEARNED), where)

    @property
    def codevectors_(self) -> FloatArray:
        """Another name of ``cluster_centers_``."""
        return self.cluster_centers_

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Nearest codevector of each sample, shape (n_samples,): rows of ``cluster_centers_``."""
        return nearest(validation.fitted_points(self, X), self.cluster_centers_)[0]

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Distances from the codevectors, shape (n_samples, n_clusters)."""
        points = validation.fitted_points(self, X)
        squares = np.empty((len(points), len(self.cluster_centers_)))
        measure(points, self.cluster_centers_, squares)
        return np.sqrt(squares / observed_shares(points))

    def _label(self, points: FloatArray, sample_weight: Any) -> None:
        self.labels_, squares = nearest(points, self.cluster_centers_)
        self.inertia_ = float(validation.given_weights(sample_weight, points) @ squares)

    def score(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> float:
        """Negative weighted mean squared distance from the nearest codevector."""
        squares = nearest(validation.fitted_points(self, X), self.cluster_centers_)[1]
        return -validation.mean_score(squares, sample_weight)


class OnlineQuantizer(VectorQuantizer):
    """Quantizers that learn from one sample after another."""

    max_iter: int
    random_state: Any
    history_: Annotated[list[tuple[int, float]], schema.HISTORY]
    _owed: Annotated[float, schema.real("", "[0, 1)")]
    _weighed: Annotated[FloatArray, validation.WEIGHED]

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        points = validation.checked_points(self, X, reset=True)
        rng = check_random_state(self.random_state)
        data = self._begin(points, validation.fit_weights(self, sample_weight, points), rng)
        for _ in range(self.max_iter):
            self._record(data.n_shown, self._pass(data.points, data.shown(rng), self.max_iter))
        self._label(points, sample_weight)
        return self

    @estimators.validated
    def partial_fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Learn from more samples, once each and in the order given; see :meth:`fit`.

        Codevectors start from the samples of the first call, unless ``init`` says where. A sample
        is repeated as often as it weighs over the mean so far, at most 100 times; fractions add up.
        """
        first = not hasattr(self, "cluster_centers_")
        points = validation.checked_points(self, X, reset=first)
        if first:
            rng = check_random_state(self.random_state)
            self._begin(points, validation.checked_weights(sample_weight, points), rng)
        order = validation.stream_rows(self, sample_weight, points, first=first)
        self.cluster_centers_ = self.cluster_centers_.copy()
        self._record(len(order), self._pass(points, order, None))
        self._label(points, sample_weight)
        return self

    def _begin(
        self, points: FloatArray, weights: FloatArray, rng: np.random.RandomState
    ) -> Weighted:
        validation.check_enough(self, len(points))
        data = weighted(points, weights)
        self.n_iter_, self.history_, self._owed = 0, [], 0.0
        self._start(data, rng)
        return data

    def _start(self, data: Weighted, rng: np.random.RandomState) -> None:
        """Set ``cluster_centers_`` and other attributes to start from."""
        raise NotImplementedError

    def _pass(self, points: FloatArray, order: IntArray, n_passes: int | None) -> float:
        """Learn from points; return the sum of their squared distances. ``n_passes``: of a fit."""
        raise NotImplementedError

    def _record(self, n: int, total: float) -> None:
        """Record a pass over n samples with a sum of their squared distances."""
        self.n_iter_ += 1
        if n == 0:  # weights below 1 that do not add up to 1 yet
            return
        before = self.history_[-1][0] if self.history_ else 0
        self.history_.append((before + n, total / n))
        del self.history_[:-_MAX_PASSES]


@estimators.estimator
class StochasticVQ(OnlineQuantizer):
    """Online competitive learning: each sample moves its nearest codevector only.

    The step size of a codevector is 1/(1 + 0.9 n), where n counts its first position and the
    samples that it has won.

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
    cluster_centers_ : ndarray, shape (n_clusters, n_features)
        The codevectors.
    labels_ : ndarray, shape (n_samples,)
        Nearest codevector of each sample of the last ``fit`` or ``partial_fit``.
    inertia_ : float
        Weighted sum of their squared distances from it.
    n_iter_ : int
        Number of passes; each ``partial_fit`` is one.
    history_ : list of tuple (int, float)
        After each pass: total number of samples, and the pass's mean squared distance from the
        winner before it moved; the last 10,000.

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

    n_clusters: Annotated[int, estimators.COUNT] = 8
    _: KW_ONLY
    max_iter: Annotated[int, estimators.COUNT] = 10
    init: Annotated[str | npt.ArrayLike, estimators.one_of("random"), "array-like"] = "random"
    random_state: estimators.Seed = None

    _counts: Annotated[FloatArray, schema.real("K", "[0, inf)")] = field(init=False)

    def _start(self, data: Weighted, rng: np.random.RandomState) -> None:
        if isinstance(self.init, str):
            self.cluster_centers_ = data.points[data.draw(self.n_clusters, rng)]
        else:
            d = data.points.shape[1]
            self.cluster_centers_ = checked_codevectors(self.init, self.n_clusters, d)
        self._counts = np.ones(self.n_clusters)

    def _pass(self, points: FloatArray, order: IntArray, n_passes: int | None) -> float:
        return compete(self.cluster_centers_, self._counts, points, order)


@estimators.estimator
class LVQ(estimators.Supervised, estimators.Filed, ClassifierMixin, BaseEstimator):
    """Learning vector quantization: the class of the nearest codevector.

    Parameters
    ----------
    n_prototypes : int, default=8
        Codevectors of each class, ≥ 1; a class with fewer samples gets one for each.
    algorithm : {"lvq1", "glvq", "rslvq"}, default="lvq1"
        :func:`lvq1`, :func:`glvq` or :func:`rslvq`, the last with equal masses and temperature 2σ²,
        where σ² is the mean squared distance, per feature, of the samples from the nearest
        codevector of their class at the start.
    max_iter : int, default=30
        Passes over the samples, ≥ 1, each in a new random order.
    rate : float, default=0.05
        First step size, in (0, 1); it falls to 0 linearly.
    init : "random" or array-like, default="random"
        Where the codevectors start. "random" draws samples of their class. An array has shape
        (n_classes * n_prototypes, n_features), sorted by class.
    random_state : int, RandomState instance or None, default=None
        Draws the start and the order of the samples.

    Attributes
    ----------
    codevectors_ : ndarray, shape (n_codevectors, n_features)
        The codevectors, sorted by class.
    codevector_labels_ : ndarray, shape (n_codevectors,)
        Class label of each codevector.
    classes_ : ndarray, shape (n_classes,)
        Class labels.
    n_iter_ : int
        Number of passes.

    Examples
    --------
    >>> X, y = [[0.0], [0.2], [5.0], [5.2]], ["low", "low", "high", "high"]
    >>> LVQ(random_state=0).fit(X, y).predict([[1.0], [4.0]])
    array(['low', 'high'], dtype='<U4')
    """

    n_prototypes: Annotated[int, estimators.COUNT] = 8
    _: KW_ONLY
    algorithm: Annotated[str, estimators.one_of("lvq1", "glvq", "rslvq")] = "lvq1"
    max_iter: Annotated[int, estimators.COUNT] = 30
    rate: Annotated[float, estimators.FRACTION] = 0.05
    init: Annotated[str | npt.ArrayLike, estimators.one_of("random"), "array-like"] = "random"
    random_state: estimators.Seed = None

    codevectors_: Annotated[FloatArray, schema.real("K, d")] = field(init=False)
    codevector_labels_: Annotated[Array, schema.ANYTHING] = field(init=False)
    classes_: Annotated[Array, schema.ANYTHING] = field(init=False)
    n_iter_: Annotated[int, schema.whole()] = field(init=False)

    def _check_contents(self, sizes: schema.Sizes, where: str) -> None:
        if schema.check_fitted((name in vars(self) for name in self._LEARNED), where):
            schema.check_labels(self.codevector_labels_, sizes["K"], f"{where}.codevector_labels_")
            schema.check_labels(self.classes_, np.size(self.classes_), f"{where}.classes_")
            known = np.isin(self.codevector_labels_, self.classes_).all()
            schema.require(known, f"{where}.codevector_labels_ has a label that is not in classes_")

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        points, classes = validation.checked_labels(self, X, y, reset=True)
        points, classes, weights = counted(
            points, classes, validation.checked_weights(sample_weight, points)
        )
        self.classes_, indices = np.unique(classes, return_inverse=True)
        data = weighted(points, weights, indices.astype(np.int64))
        rng = check_random_state(self.random_state)
        codevectors, labels = self._start(data, rng)
        order = np.concatenate([data.shown(rng) for _ in range(self.max_iter)])
        samples = data.points, data.classes, order, self.rate
        if self.algorithm == "rslvq":
            error = 0.0  # about the nearest codevector of the class
            for label in np.unique(data.classes):
                own = data.classes == label
                squares = nearest(data.points[own], codevectors[labels == label])[1]
                error += float(squares @ data.weights[own])
            temperature = float(2.0 * error / (float(data.weights.sum()) * points.shape[1]))
            rslvq(codevectors, np.ones(len(labels)), labels, temperature, *samples)
        else:
            (lvq1 if self.algorithm == "lvq1" else glvq)(codevectors, labels, *samples)
        self.codevectors_ = codevectors
        self.codevector_labels_ = self.classes_[labels]
        self.n_iter_ = self.max_iter
        return self

    def predict(self, X: npt.ArrayLike) -> Array:
        """Class of the nearest codevector of each sample, shape (n_samples,)."""
        winners, _ = nearest(validation.fitted_points(self, X), self.codevectors_)
        return np.asarray(self.codevector_labels_[winners])

    def decision_function(self, X: npt.ArrayLike) -> FloatArray:
        """Negative squared distance of each sample from the nearest codevector of each class.

        Shape (n_samples, n_classes); with two classes that of the second minus that of the first,
        shape (n_samples,).
        """
        points = validation.fitted_points(self, X)
        own = [self.codevectors_[self.codevector_labels_ == label] for label in self.classes_]
        scores = -np.stack([nearest(points, codevectors)[1] for codevectors in own], axis=1)
        return np.asarray(scores[:, 1] - scores[:, 0] if len(own) == 2 else scores)

    def _start(self, data: Weighted, rng: np.random.RandomState) -> tuple[FloatArray, IntArray]:
        points, targets, weights = data
        n_classes = len(self.classes_)
        if not isinstance(self.init, str):
            n_codevectors = n_classes * self.n_prototypes
            codevectors = checked_codevectors(self.init, n_codevectors, points.shape[1])
            return codevectors, np.repeat(np.arange(n_classes), self.n_prototypes)
        chosen = []
        for label in range(n_classes):
            rows = np.flatnonzero(targets == label)
            chosen.append(rows[drawn(weights[rows], min(self.n_prototypes, len(rows)), rng)])
        return points[np.concatenate(chosen)], targets[np.concatenate(chosen)]
