"""Online deterministic annealing as scikit-learn estimators: clusterer, classifier, regressor.

One codevector (of each class) becomes two, four, ... as the temperature falls, where the data ask
for it: the number of codevectors is the result of the annealing, and every stage of it stays
available (``history_``, ``at_level``).

References
----------
[ODA-TNNLS] C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and
clustering", IEEE Transactions on Neural Networks and Learning Systems, 2023.

[ODA-RL] C. N. Mavridis, J. S. Baras, "Progressive learning and reinforcement learning by online
deterministic annealing".
"""

import copy
import warnings
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, ClusterMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import checked_points, checked_weights, chunks, validated
from oda_rl.annealing.base import FAST, SLOW, BaseODA, Pace
from oda_rl.annealing.fine_tuning import (
    ALGORITHMS,
    best_temperature,
    class_log_densities,
    fine_tune,
)
from oda_rl.annealing.local_models import LocalModels, fit_local_models
from oda_rl.annealing.refinement import refine
from oda_rl.annealing.sampling import Distribution
from oda_rl.annealing.selection import Candidate, candidates, doubts, select
from oda_rl.divergences import QUADRATIC, Divergence, resolve

_STREAM_CLUSTERS = 40
_RECENT = 5000  # samples of a stream that local models are fitted to
_PREDICTION_SAMPLES = 2000


class ODAClusterer(ClusterMixin, BaseODA):
    """Cluster by online deterministic annealing.

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters to find. The codebook grows to twice as many, which are then merged, the
        cheapest pair first. Fewer come out if another criterion ends the annealing before, or if
        there are fewer distinct points.
    divergence : {"squared_euclidean", "i_divergence", "itakura_saito"} or Divergence
        How far a point is from a codevector; :mod:`oda_rl.divergences` has these, the Mahalanobis
        divergence, and ``BregmanDivergence`` for one of your own.
    min_temperature : float in [0, 1), default=0
        Annealing ends at this temperature, relative to the mean divergence of the data from their
        mean.
    target_distortion : float, default=0
        Annealing ends when the mean divergence from the nearest codevector is at most this.
    max_samples : int, optional
        Annealing ends when it has seen so many samples, each time a sample is drawn counted.
    cooling : float in (0, 1), optional
        Factor of the temperature from one level to the next: 0.8 by default, and 0.6 where ``fit``
        refines, which makes good for it.
    samples_per_cluster : int, optional
        Samples that a level has for each codevector: 20 by default, and 5 where ``fit`` refines.
    forgetting : float in [0, 1], default=0
        A codevector goes at least this share of the way to each sample of its own: with more than 0
        a cluster that moves is followed. 0 averages over all that was seen at a temperature.
    refine : bool, default=True
        Whether ``fit`` ends with exchanges of single points between clusters until none lowers the
        distortion (squared Euclidean and Mahalanobis divergences only).
    init : array-like, shape (k, d), optional
        Codevectors to start from, instead of the mean.
    random_state : int, RandomState instance or None
        Order of the samples, and the shifts of splits.

    Attributes
    ----------
    codevectors_, cluster_centers_ : ndarray, shape (K, d)
        The codevectors.
    codevector_labels_ : ndarray, shape (K,)
        The cluster of each: 0 to K - 1.
    weights_ : ndarray, shape (K,)
        Share of the data that each stands for; they sum to 1.
    labels_ : ndarray, shape (n,)
        Cluster of each point of the last ``fit``.
    inertia_ : float
        Weighted sum of divergences of the points of the last ``fit`` from their codevectors.
    temperature_ : float
        Temperature that has been reached.
    history_ : list of Level
        For each temperature level: temperature, number of codevectors, distortion, samples seen,
        codevectors, weights and lineage; see :class:`oda_rl.annealing.annealer.Level`.
    n_samples_seen_ : int
        Samples learned from, each time one is drawn counted.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray, shape (d,)
        Names of the features, where X had names.

    References
    ----------
    [ODA-TNNLS] algorithm 1, with one class.

    Examples
    --------
    >>> import numpy as np
    >>> from oda_rl import ODAClusterer
    >>> X = np.array([[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> model = ODAClusterer(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.round(6).tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> bool(model.predict([[0, 0]])[0] == model.labels_[0])
    True
    """

    _parameter_constraints = {  # noqa: RUF012
        **BaseODA._parameter_constraints,
        "target_distortion": [Interval(Real, 0, None, closed="left")],
        "refine": ["boolean"],
        "cooling": [*BaseODA._parameter_constraints["cooling"], None],
        "samples_per_cluster": [*BaseODA._parameter_constraints["samples_per_cluster"], None],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        divergence: str | Divergence = "squared_euclidean",
        min_temperature: float = 0.0,
        target_distortion: float = 0.0,
        max_samples: int | None = None,
        cooling: float | None = None,
        samples_per_cluster: int | None = None,
        forgetting: float = 0.0,
        refine: bool = True,
        init: npt.ArrayLike | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.divergence = divergence
        self.min_temperature = min_temperature
        self.target_distortion = target_distortion
        self.max_samples = max_samples
        self.cooling = cooling
        self.samples_per_cluster = samples_per_cluster
        self.forgetting = forgetting
        self.refine = refine
        self.init = init
        self.random_state = random_state

    @validated
    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Anneal on samples drawn from X until there are ``n_clusters``.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence.
        y : ignored
        sample_weight : array-like, shape (n,), optional
            At least 0; a weight of 2 is the same as a row that stands there twice.

        Raises
        ------
        ValueError
            If X is not that, or has fewer than ``n_clusters`` rows.
        """
        points = checked_points(self, X, reset=True)
        if len(points) < self.n_clusters:
            raise ValueError(f"n_samples={len(points)} should be >= n_clusters={self.n_clusters}.")
        weights = checked_weights(sample_weight, points)
        refines = self._refines()
        data = self._anneal(points, np.zeros(len(points), dtype=np.int64), weights, refined=refines)
        if refines:
            self._refine(data)
        self._publish()
        embedded = self._annealer.divergence.embed(points)
        self.labels_ = self._nearest(embedded, self._own())
        own = self._annealer.divergence.rowwise(embedded, self._own()[self.labels_])
        self.inertia_ = float(own @ weights)
        distinct = len(data.points)
        if distinct < self.n_clusters:
            warnings.warn(
                f"Number of distinct clusters ({len(self.codevectors_)}) found smaller than "
                f"n_clusters ({self.n_clusters}): X has {distinct} distinct points.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    @validated
    def partial_fit(
        self,
        X: npt.ArrayLike,  # noqa: N803
        y: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from one sample or many, each once, in their order.

        Sample by sample or in blocks is the same. The first 100 samples give the scale.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence.
        y : ignored
        sample_weight : array-like, shape (n,), optional
            At least 0: how many times as long each sample's step is.
        """
        points = checked_points(self, X, reset=not hasattr(self, "_annealer"))
        weights = checked_weights(sample_weight, points)
        self._stream(points, np.zeros(len(points), dtype=np.int64), weights, labelled=False)
        self._publish(self._max_codevectors(1))
        return self

    def predict(self, X: npt.ArrayLike) -> IntArray:  # noqa: N803
        """Nearest codevector of each point.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n,)
            From 0 to K - 1.
        """
        points = self._embedded(X)
        return self._nearest(points, self._own())

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:  # noqa: N803
        """Gibbs association of points with codevectors at the temperature that was reached.

        Returns
        -------
        ndarray, shape (n, K)
            Rows sum to 1. [ODA-TNNLS] eq. 9.
        """
        scores = self.transform(X)
        scores -= scores.min(axis=1, keepdims=True)
        temperature = self.temperature_
        shares = (scores == 0.0) * 1.0 if temperature == 0.0 else np.exp(-scores / temperature)
        shares *= self.weights_
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def score(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Opposite of the mean divergence from the nearest codevector."""
        points = self._embedded(X)
        weights = checked_weights(sample_weight, points)
        own = self._own()
        nearest = self._nearest(points, own)
        distances = self._annealer.divergence.rowwise(points, own[nearest])
        return -float(np.average(distances, weights=weights))

    def _target_distortion(self) -> float:
        return float(self.target_distortion)

    def _refines(self) -> bool:
        return self.refine and resolve(self.divergence).kernel == QUADRATIC

    def _pace(self, refined: bool) -> Pace:
        pace = FAST if refined else SLOW
        return Pace(
            pace.cooling if self.cooling is None else float(self.cooling),
            pace.samples if self.samples_per_cluster is None else int(self.samples_per_cluster),
        )

    def _publish(self, limit: int | None = None) -> None:
        super()._publish(limit)
        self.codevector_labels_ = np.arange(len(self.codevectors_))

    def _refine(self, data: Distribution) -> None:
        current = self._annealer
        rng = np.random.default_rng(len(data.points))
        codevectors = refine(data.points, data.weights, current.codevectors, rng)
        nearest = self._nearest(data.points, codevectors)
        masses = np.bincount(nearest, data.weights, minlength=len(codevectors))
        current.replace(codevectors, masses / masses.sum())


class ODAClassifier(ClassifierMixin, BaseODA):
    """Classify by online deterministic annealing of a codebook for each class.

    The codevectors of a class see the samples of that class only, at a temperature common to all:
    classes whose shape needs more codevectors get more. ``fit`` draws every class as often as its
    codevectors need, however rare it is, and puts the priors back in at prediction.

    Parameters
    ----------
    n_clusters : int or "auto", default=40
        How many codevectors there may be over all classes (at least one each). ``"auto"``: this
        number and the rate of fine-tuning are chosen by cross-validation within the training set,
        from one annealing a fold.
    divergence : {"squared_euclidean", "i_divergence", "itakura_saito"} or Divergence
        As for :class:`ODAClusterer`.
    prediction : {"density", "nearest"}, default="density"
        Whether the class with the largest summed class-conditional density wins, or the class of
        the nearest codevector.
    fine_tuning : {"rslvq", "glvq", "lvq1"} or None, default="rslvq"
        What ``fit`` moves the codevectors with when annealing has ended; for the squared Euclidean
        and the Mahalanobis divergence, with others it must be None.
    rate : float, default=0.05
        First step size of fine-tuning, falling to 0.
    min_temperature : float in [0, 1), default=1e-3
        As for :class:`ODAClusterer`, relative to the mean divergence from the class means.
    target_error : float in [0, 1], default=0
        Annealing ends when the nearest codevector is of another class for no more than this share
        of the samples.
    max_samples, cooling, samples_per_cluster, forgetting, random_state
        As for :class:`ODAClusterer`.
    init : array-like, shape (k, d), optional
        Codevectors to start from, k a multiple of the number of classes: the first k/C are of the
        first class, and so on.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        The labels that were seen, sorted.
    codevectors_, cluster_centers_ : ndarray, shape (K, d)
        The codevectors.
    codevector_labels_ : ndarray, shape (K,)
        The class of each.
    weights_, temperature_, history_, n_samples_seen_, n_features_in_, feature_names_in_
        As for :class:`ODAClusterer`; the levels of the history have an accuracy, and their labels
        are indices in the order in which classes were first seen (sorted, for ``fit``).
    class_prior_ : ndarray, shape (C,)
        Share of each class in the data.
    prediction_temperature_ : float
        Temperature of the densities that ``predict_proba`` compares: the one with the lowest log
        loss on the training data; for a stream, from the distortion of the current level.
    best_params_ : dict
        What ``n_clusters="auto"`` chose.

    References
    ----------
    [ODA-TNNLS] algorithm 1 with the association of eq. 15, and a counter for each class.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from oda_rl import ODAClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = ODAClassifier(n_clusters=12, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.98
    True
    >>> smaller = model.at_level(n_clusters=4)
    >>> len(smaller.codevectors_) <= 4
    True
    """

    _parameter_constraints = {  # noqa: RUF012
        **BaseODA._parameter_constraints,
        "n_clusters": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "target_error": [Interval(Real, 0, 1, closed="both")],
        "prediction": [StrOptions({"density", "nearest"})],
        "fine_tuning": [StrOptions(set(ALGORITHMS)), None],
        "rate": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_clusters: int | str = 40,
        *,
        divergence: str | Divergence = "squared_euclidean",
        prediction: str = "density",
        fine_tuning: str | None = "rslvq",
        rate: float = 0.05,
        min_temperature: float = 1e-3,
        target_error: float = 0.0,
        max_samples: int | None = None,
        cooling: float = 0.8,
        samples_per_cluster: int = 20,
        forgetting: float = 0.0,
        init: npt.ArrayLike | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.divergence = divergence
        self.prediction = prediction
        self.fine_tuning = fine_tuning
        self.rate = rate
        self.min_temperature = min_temperature
        self.target_error = target_error
        self.max_samples = max_samples
        self.cooling = cooling
        self.samples_per_cluster = samples_per_cluster
        self.forgetting = forgetting
        self.init = init
        self.random_state = random_state

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:  # noqa: N803
        """Anneal a codebook for each class, then fine-tune.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence.
        y : array-like, shape (n,)
            Numbers or strings.
        sample_weight : array-like, shape (n,), optional
            At least 0; a weight of 2 is the same as a row that stands there twice.

        Raises
        ------
        ValueError
            If X and y are not that, or there is only one class.
        """
        points, labels = self._checked_pair(X, y, reset=True)
        weights = checked_weights(sample_weight, points)
        shown = weights > 0.0
        points, labels, weights = points[shown], labels[shown], weights[shown]
        self.classes_, classes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"This solver needs samples of at least 2 classes in the data, but the data "
                f"contains only one class: {self.classes_[0]!r}"
            )
        self._seen = self.classes_.tolist()
        self._check_fine_tuning()
        n_clusters, rate = self.n_clusters, self.rate
        if n_clusters == "auto":
            n_clusters, rate = self._select(points, classes, weights)
            self.best_params_ = {"n_clusters": n_clusters, "rate": rate}
        data = self._anneal(points, classes, weights)
        self._conclude(data, int(n_clusters), rate)
        self._publish()
        return self

    @validated
    def partial_fit(
        self,
        X: npt.ArrayLike,  # noqa: N803
        y: npt.ArrayLike,
        classes: npt.ArrayLike | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from one sample or many, each once, in their order; new classes are welcome.

        Sample by sample or in blocks is the same. Nothing is fine-tuned, and ``n_clusters="auto"``
        counts as 40.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence.
        y : array-like, shape (n,)
            Numbers or strings.
        classes : ignored
            Classes are known when they are seen.
        sample_weight : array-like, shape (n,), optional
            At least 0: how many times as long each sample's step is.
        """
        first = not hasattr(self, "_annealer")
        points, labels = self._checked_pair(X, y, reset=first)
        weights = checked_weights(sample_weight, points)
        if first:
            self._seen = []
        shown = weights > 0.0
        known = {label: index for index, label in enumerate(self._seen)}
        indices = [known.setdefault(label, len(known)) for label in labels[shown].tolist()]
        self._seen = list(known)
        self._stream(points[shown], np.array(indices), weights[shown], labelled=True)
        current = self._annealer
        distortion = current.distortion() or current.scale or 1.0
        self.prediction_temperature_ = 2.0 * distortion / points.shape[1]
        self._publish(self._max_codevectors(1))
        return self

    def predict(self, X: npt.ArrayLike) -> Array:  # noqa: N803
        """Most probable class of each point.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n,)
        """
        best = self._log_scores(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:  # noqa: N803
        """Probability of each class, in the order of ``classes_``.

        From summed class-conditional densities Σ_k w_k exp(−d(x, μ_k)/T) at the prediction
        temperature; with ``prediction="nearest"`` from the nearest codevector of each class alone.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n, C)
            Rows sum to 1.
        """
        scores = self._log_scores(X)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _log_scores(self, X: npt.ArrayLike) -> FloatArray:  # noqa: N803
        """Unnormalised log-probabilities, shape (n, C)."""
        points, own = self._embedded(X), self._own()
        scores = [self._block_scores(points[rows], own) for rows in chunks(len(points))]
        return np.concatenate(scores)[:, np.argsort(np.array(self._seen))]

    def _block_scores(self, points: FloatArray, own: FloatArray) -> FloatArray:
        divergences = self._annealer.divergence.between(points, own)
        temperature, labels = self.prediction_temperature_, self._codebook.labels
        if self.prediction == "density":
            return class_log_densities(divergences, self.weights_, labels, temperature)
        starts = np.flatnonzero(np.diff(labels, prepend=-1))
        return np.asarray(-np.minimum.reduceat(divergences, starts, axis=1) / temperature)

    def _checked_pair(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        reset: bool,
    ) -> tuple[FloatArray, Array]:
        points, labels = validate_data(self, X, y, reset=reset, dtype=np.float64, order="C")
        check_classification_targets(labels)
        labels = np.asarray(column_or_1d(labels, warn=True))
        self._labels_are_objects = labels.dtype == object
        return points, labels

    def _check_fine_tuning(self) -> None:
        kernel = resolve(self.divergence).kernel
        if self.fine_tuning is not None and kernel != QUADRATIC:
            raise ValueError(
                f"fine_tuning={self.fine_tuning!r} takes the squared Euclidean or the Mahalanobis "
                f"divergence, got divergence={self.divergence!r}: set fine_tuning=None"
            )

    def _target_error(self) -> float:
        return float(self.target_error) if self.target_error > 0.0 else -1.0

    def _max_codevectors(self, n_classes: int) -> int:
        if self.n_clusters != "auto":
            return max(int(self.n_clusters), n_classes)
        return self._largest if hasattr(self, "_largest") else _STREAM_CLUSTERS

    def _publish(self, limit: int | None = None) -> None:
        super()._publish(limit)
        weights = self._annealer.class_weights
        self._seen = self._seen[: len(weights)]  # an earlier level may know fewer classes
        seen = np.array(self._seen, dtype=object if self._labels_are_objects else None)
        self.codevector_labels_ = seen[self._codebook.labels]
        self.classes_, order = np.unique(seen, return_index=True)
        self.class_prior_ = (weights / weights.sum())[order]

    def _step_back(self) -> None:
        distortion = self.history_[-1].distortion or 1.0
        self.prediction_temperature_ = 2.0 * distortion / self.n_features_in_

    def _select(self, points: FloatArray, classes: IntArray, weights: FloatArray) -> Candidate:
        """Choose the number of codevectors and the rate by validation within the training set."""
        distinct = Distribution(points, classes, weights, np.random.default_rng(0))
        points, classes, weights = distinct.points, distinct.classes, distinct.weights
        fine_tuned = self.fine_tuning is not None
        options = candidates(len(self.classes_), len(points), fine_tuned, self.rate)
        self._largest = options[-1].n_clusters

        def losses(train: IntArray, test: IntArray) -> FloatArray:
            model = copy.copy(self)
            data = model._anneal(points[train], classes[train], weights[train])
            grown = model._annealer
            found = []
            for option in options:
                model._annealer = copy.deepcopy(grown)
                model._conclude(data, *option)
                model.weights_ = model._codebook.weights
                scores = model._log_scores(points[test])
                found.append(float(doubts(scores, classes[test]) @ weights[test]))
            return np.array(found)

        rng = np.random.default_rng(len(points))
        return select(options, losses, classes, rng)

    def _conclude(self, data: Distribution, n_clusters: int, rate: float) -> None:
        """Merge down to what is wanted, choose the prediction temperature, fine-tune."""
        current = self._annealer
        current.reduce_to(n_clusters)
        rows = data.spread(_PREDICTION_SAMPLES)
        points, classes = data.points[rows], data.classes[rows]

        for final in (self.fine_tuning is None, True):
            self._codebook = current.view(None)
            weights, labels = self._codebook.weights, self._codebook.labels
            self.prediction_temperature_ = temperature = best_temperature(
                current.divergence.between(points, self._own()),
                weights,
                labels,
                classes,
                points.shape[1],
            )
            if final:
                break
            moved = fine_tune(
                str(self.fine_tuning), self._own(), weights, labels, temperature, rate, data
            )
            current.replace(moved, current.masses)


class ODARegressor(RegressorMixin, BaseODA):
    """Regress by a model of its own in each cell of an annealed codebook.

    Parameters
    ----------
    n_clusters : int, default=40
        How many cells there may be.
    local_model : {"linear", "constant"}, default="linear"
        What is fitted in a cell. Linear models of cells with few points lean on the slopes that all
        cells have in common.
    divergence, min_temperature, target_distortion, max_samples, cooling, samples_per_cluster
        As for :class:`ODAClusterer`; ``min_temperature`` is 1e-3 by default.
    forgetting, init, random_state
        As for :class:`ODAClusterer`.

    Attributes
    ----------
    codevectors_, cluster_centers_ : ndarray, shape (K, d)
        The codevectors.
    codevector_labels_ : ndarray, shape (K,)
        Mean of the target in each cell.
    slopes_ : ndarray, shape (K, d)
        Change of the prediction for each feature in each cell; zeros for constants.
    weights_, temperature_, history_, n_samples_seen_, n_features_in_, feature_names_in_
        As for :class:`ODAClusterer`.

    References
    ----------
    [ODA-RL], section on regression: piecewise constant models over the cells.

    Examples
    --------
    >>> import numpy as np
    >>> from oda_rl import ODARegressor
    >>> X = np.linspace(0.0, 6.0, 300)[:, None]
    >>> model = ODARegressor(n_clusters=12, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.99
    True
    """

    _parameter_constraints = {  # noqa: RUF012
        **BaseODA._parameter_constraints,
        "local_model": [StrOptions({"constant", "linear"})],
        "target_distortion": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_clusters: int = 40,
        *,
        local_model: str = "linear",
        divergence: str | Divergence = "squared_euclidean",
        min_temperature: float = 1e-3,
        target_distortion: float = 0.0,
        max_samples: int | None = None,
        cooling: float = 0.8,
        samples_per_cluster: int = 20,
        forgetting: float = 0.0,
        init: npt.ArrayLike | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.local_model = local_model
        self.divergence = divergence
        self.min_temperature = min_temperature
        self.target_distortion = target_distortion
        self.max_samples = max_samples
        self.cooling = cooling
        self.samples_per_cluster = samples_per_cluster
        self.forgetting = forgetting
        self.init = init
        self.random_state = random_state

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:  # noqa: N803
        """Anneal a codebook on X, and fit the model of each cell.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence.
        y : array-like, shape (n,)
            Finite.
        sample_weight : array-like, shape (n,), optional
            At least 0; a weight of 2 is the same as a row that stands there twice.
        """
        pairs = self._checked_pairs(X, y, reset=True)
        weights = checked_weights(sample_weight, pairs)
        self._anneal(pairs, np.zeros(len(pairs), dtype=np.int64), weights)
        self._recent = pairs, weights
        self._publish()
        self._recent = pairs[-_RECENT:], weights[-_RECENT:]
        return self

    @validated
    def partial_fit(
        self,
        X: npt.ArrayLike,  # noqa: N803
        y: npt.ArrayLike,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from one sample or many, each once, in their order.

        The local models are fitted to the last 5000 samples.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence.
        y : array-like, shape (n,)
            Finite.
        sample_weight : array-like, shape (n,), optional
            At least 0: how many times as long each sample's step is.
        """
        first = not hasattr(self, "_annealer")
        pairs = self._checked_pairs(X, y, reset=first)
        weights = checked_weights(sample_weight, pairs)
        recent = (pairs[:0], weights[:0]) if first else self._recent
        self._stream(pairs, np.zeros(len(pairs), dtype=np.int64), weights, labelled=False)
        self._recent = (
            np.concatenate([recent[0], pairs])[-_RECENT:],
            np.concatenate([recent[1], weights])[-_RECENT:],
        )
        self._publish(self._max_codevectors(1))
        return self

    def predict(self, X: npt.ArrayLike) -> FloatArray:  # noqa: N803
        """Prediction of the model of each point's cell.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n,)
        """
        cells = self._nearest(self._embedded(X), self._own())
        models = LocalModels(self.codevector_labels_, self.slopes_, self._centres)
        return models.predict(checked_points(self, X, reset=False), cells)

    def _checked_pairs(self, X: Any, y: Any, *, reset: bool) -> FloatArray:  # noqa: N803
        """Return points and targets as one array, shape (n, d + 1)."""
        points, targets = validate_data(
            self, X, y, reset=reset, dtype=np.float64, order="C", y_numeric=True
        )
        return np.column_stack([points, np.asarray(targets, dtype=np.float64)])

    def _target_distortion(self) -> float:
        return float(self.target_distortion)

    def _publish(self, limit: int | None = None) -> None:
        super()._publish(limit)
        pairs, weights = self._recent
        d = self.n_features_in_
        points = pairs[:, :d]
        cells = self._nearest(self._annealer.divergence.embed(points), self._own())
        models = fit_local_models(
            points,
            pairs[:, d],
            weights,
            cells,
            self._codebook.codevectors[:, d],
            linear=self.local_model == "linear",
        )
        self.codevector_labels_, self.slopes_, self._centres = models
