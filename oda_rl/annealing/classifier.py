"""Classes by online deterministic annealing: the codebook of each class anneals by itself.

References
----------
[ODA-TNNLS] C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and
clustering", IEEE Transactions on Neural Networks and Learning Systems, 2023.
"""

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import StrOptions

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import checked_labels, checked_weights, chunks
from oda_rl.annealing.base import BaseODA
from oda_rl.annealing.fine_tuning import (
    ALGORITHMS,
    MATRIX,
    Candidate,
    best_temperature,
    candidates,
    class_log_densities,
    doubts,
    fine_tune,
    folds,
    measure_by,
)
from oda_rl.annealing.levels import Distribution
from oda_rl.divergences import QUADRATIC, Mahalanobis, resolve
from oda_rl.files.estimators import COUNT, POSITIVE, estimator, validated, within
from oda_rl.files.schema import ANYTHING, Optional, Sizes, check_classes, flags, real, whole
from oda_rl.quantization.metric_learning import learn_metric
from oda_rl.samples import counted, holes, observed_shares

_STREAM_CLUSTERS = 40
_PREDICTION_SAMPLES = 2000
_METRIC_SAMPLES = 20_000
_MANY_FEATURES = 200  # too many for a matrix of them to be worth a try


@estimator
class ODAClassifier(ClassifierMixin, BaseODA):
    """Classify by online deterministic annealing of a codebook for each class.

    The codevectors of a class see the samples of that class only, at a temperature common to all:
    classes whose shape needs more codevectors get more. ``fit`` draws every class as often as its
    codevectors need, however rare it is, and puts the priors back in at prediction.

    Parameters
    ----------
    n_clusters : int or "auto", default=40
        How many codevectors there may be over all classes (at least one each). ``"auto"``: this
        number, and the algorithm of fine-tuning and its rate or penalty, are chosen by
        cross-validation within the training set, from one annealing a fold.
    divergence : {"squared_euclidean", "i_divergence", "itakura_saito"} or Divergence
        As for :class:`ODAClusterer`.
    prediction : {"density", "nearest"}, default="density"
        Whether the class with the largest summed class-conditional density wins, or the class of
        the nearest codevector.
    fine_tuning : {"auto", "rslvq", "mrslvq", "glvq", "lvq1"} or None, default="auto"
        What ``fit`` moves the codevectors with when annealing has ended; for the squared Euclidean
        and the Mahalanobis divergence, with others it must be None. ``"mrslvq"`` learns the metric
        with them (:mod:`oda_rl.quantization.metric_learning`), and takes no missing values.
        ``"auto"``: ``"rslvq"``; with ``n_clusters="auto"`` that or ``"mrslvq"``, which is tried
        where no values are missing and features are at most 200; if it is chosen, none may be
        missing later.
    rate : float, default=0.05
        First step size of fine-tuning, falling to 0; ``"mrslvq"`` has none.
    penalty : float, default=0.01
        Of ``"mrslvq"``: what the squares of the entries of the metric's root cost, where features
        have a variance of 1 on average. The larger it is, the fewer directions matter.
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
        loss on the training data; for a stream, from the distortion of the current level, which
        after ``fit`` begins at that temperature.
    best_params_ : dict
        What ``n_clusters="auto"`` chose, by the names of the parameters.

    References
    ----------
    [ODA-TNNLS] algorithm 1 with the association of eq. 15, and a counter for each class.
    P. Schneider, M. Biehl, B. Hammer, "Distance learning in discriminative vector quantization",
    Neural Computation 21 (2009): ``"mrslvq"``.

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

    n_clusters: Annotated[int | str, COUNT, StrOptions({"auto"})] = 40
    _: KW_ONLY
    prediction: Annotated[str, StrOptions({"density", "nearest"})] = "density"
    fine_tuning: Annotated[str | None, StrOptions({"auto", MATRIX, *ALGORITHMS}), None] = "auto"
    rate: Annotated[float, POSITIVE] = 0.05
    penalty: Annotated[float, within("[0, inf)")] = 0.01
    target_error: Annotated[float, within("[0, 1]")] = 0.0

    _missing_needs = "divergence='squared_euclidean' and without fine_tuning='mrslvq'"
    LEARNED: ClassVar[dict[str, Any]] = {
        **BaseODA.LEARNED,
        "classes_": Optional(ANYTHING),
        "class_prior_": Optional(real("classes", "[0, 1]")),
        "prediction_temperature_": Optional(real("", "(0, inf)")),
        "best_params_": Optional(ANYTHING),
        "_seen": Optional(ANYTHING),
        "_labels_are_objects": Optional(flags()),
        "_largest": Optional(whole("", "[1, inf)")),
    }

    def check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError if what a file says does not belong together."""
        super().check_contents(sizes, where)
        if hasattr(self, "_annealer"):
            check_classes(self._seen, self.classes_, sizes["classes"])

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Anneal a codebook for each class, then fine-tune.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence; NaN where values are missing, which the
            squared Euclidean one takes.
        y : array-like, shape (n,)
            Numbers or strings.
        sample_weight : array-like, shape (n,), optional
            At least 0; a weight of 2 is the same as a row that stands there twice.

        Raises
        ------
        ValueError
            If X and y are not that, or there is only one class.
        """
        if hasattr(self, "best_params_"):
            del self.best_params_  # which say whether values may be missing
        points, labels = checked_labels(self, X, y, reset=True)
        self._labels_are_objects = labels.dtype == object
        weights = checked_weights(sample_weight, points)
        points, labels, weights = counted(points, labels, weights)
        self.classes_, classes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"This solver needs samples of at least 2 classes in the data, but the data "
                f"contains only one class: {self.classes_[0]!r}"
            )
        self._seen = self.classes_.tolist()
        self._check_fine_tuning()
        chosen = self._settings(points, classes, weights)
        data = self._anneal(points, classes, weights)
        self._conclude(data, chosen)
        self._publish()
        return self

    @validated
    def partial_fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        classes: npt.ArrayLike | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from one sample or many, each once, in their order; new classes are welcome.

        Sample by sample or in blocks is the same. After ``fit`` steps are as short as after all of
        its samples. Nothing is fine-tuned, and ``n_clusters="auto"`` counts as 40.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.
        classes : ignored
            Classes are known when they are seen.
        sample_weight : array-like, shape (n,), optional
            At least 0: how many times as long each sample's step is.
        """
        first = not hasattr(self, "_annealer")
        points, labels = checked_labels(self, X, y, reset=first)
        self._labels_are_objects = labels.dtype == object
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

    def predict(self, X: npt.ArrayLike) -> Array:
        """Most probable class of each point.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n,)
        """
        best = self._log_scores(self._embedded(X)).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
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
        points = self._embedded(X)
        scores = self._log_scores(points)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True), dtype=points.dtype)

    def _log_scores(self, points: FloatArray) -> FloatArray:
        """Unnormalised log-probabilities of embedded points, shape (n, C)."""
        own = self._own()
        scores = [self._block_scores(points[rows], own) for rows in chunks(len(points))]
        return np.concatenate(scores)[:, np.argsort(np.array(self._seen))]

    def _block_scores(self, points: FloatArray, own: FloatArray) -> FloatArray:
        divergences = self._annealer.divergence.between(points, own)
        temperature, labels = self.prediction_temperature_, self._codebook.labels
        if self.prediction == "density":
            known = divergences * observed_shares(points)  # what is missing says nothing
            return class_log_densities(known, self.weights_, labels, temperature)
        starts = np.flatnonzero(np.diff(labels, prepend=-1))
        return np.asarray(-np.minimum.reduceat(divergences, starts, axis=1) / temperature)

    def _check_fine_tuning(self) -> None:
        kernel = resolve(self.divergence).kernel
        if self.fine_tuning is not None and kernel != QUADRATIC:
            raise ValueError(
                f"fine_tuning={self.fine_tuning!r} takes the squared Euclidean or the Mahalanobis "
                f"divergence, got divergence={self.divergence!r}: set fine_tuning=None"
            )

    def _takes_missing(self) -> bool:
        # Directions of hardly any weight would explain away whatever is missing.
        chosen = getattr(self, "best_params_", {}).get("fine_tuning", self.fine_tuning)
        return super()._takes_missing() and chosen != MATRIX

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

    def _algorithms(self, points: FloatArray) -> Sequence[str | None]:
        """Algorithms of fine-tuning to choose from; the first is that of a fixed number."""
        if self.fine_tuning != "auto":
            return (self.fine_tuning,)
        learns = points.shape[1] <= _MANY_FEATURES and holes(points) is None
        return ("rslvq", MATRIX) if learns else ("rslvq",)

    def _settings(self, points: FloatArray, classes: IntArray, weights: FloatArray) -> Candidate:
        """Return the number of codevectors and what follows, which may have to be chosen."""
        if self.n_clusters != "auto":
            algorithm = self._algorithms(points)[0]
            return Candidate(int(self.n_clusters), algorithm, float(self.rate), float(self.penalty))
        chosen = self._select(points, classes, weights)
        self.best_params_ = chosen._asdict()
        return chosen

    def _select(self, points: FloatArray, classes: IntArray, weights: FloatArray) -> Candidate:
        """Choose the number of codevectors and the rate by validation within the training set."""
        distinct = Distribution(points, classes, weights, np.random.default_rng(0))
        points, classes, weights = distinct.points, distinct.classes, distinct.weights
        settings = self._algorithms(points), float(self.rate), float(self.penalty)
        options = candidates(len(self.classes_), len(points), *settings)
        self._largest = options[-1].n_clusters

        totals = np.zeros(len(options))
        for train, test in folds(classes, np.random.default_rng(len(points))):
            model = copy.copy(self)
            data = model._anneal(points[train], classes[train], weights[train])
            grown = model._annealer
            for i, option in enumerate(options):
                model._annealer = copy.deepcopy(grown)
                model._conclude(data, option)
                model.weights_ = model._codebook.weights
                scores = model._log_scores(model._annealer.divergence.embed(points[test]))
                totals[i] += doubts(scores, classes[test]) @ weights[test]
        return options[int(totals.argmin())]  # the simplest of equals

    def _conclude(self, data: Distribution, chosen: Candidate) -> None:
        """Merge down to what is wanted, choose the prediction temperature, fine-tune."""
        current = self._annealer
        current.reduce_to(chosen.n_clusters)
        self._choose_temperature(data)
        if chosen.fine_tuning == MATRIX:
            self._learn_metric(data, chosen.penalty)
        elif chosen.fine_tuning is not None:
            weights, labels = self._codebook.weights, self._codebook.labels
            temperature = self.prediction_temperature_
            moved = fine_tune(
                chosen.fine_tuning, self._own(), weights, labels, temperature, chosen.rate, data
            )
            current.replace(moved, current.masses)
            self._choose_temperature(data)
        current.settle(0.5 * self.n_features_in_ * self.prediction_temperature_)

    def _choose_temperature(self, data: Distribution) -> None:
        """Choose the prediction temperature by the log loss on some of the data."""
        self._codebook = self._annealer.view(None)
        rows = data.spread(_PREDICTION_SAMPLES)
        points = data.points[rows]
        shares = observed_shares(points)
        self.prediction_temperature_ = best_temperature(
            self._annealer.divergence.between(points, self._own()) * shares,
            self._codebook.weights, self._codebook.labels, data.classes[rows],
            self.n_features_in_ * float(np.mean(shares)),
        )  # fmt: skip

    def _learn_metric(self, data: Distribution, penalty: float) -> None:
        """Move codevectors and turn the metric; the temperature of prediction remains."""
        current, (own, weights, labels) = self._annealer, self._codebook
        rows, shares = np.arange(len(data.points)), data.weights
        if len(shares) > _METRIC_SAMPLES:
            rows, shares = data.spread(_METRIC_SAMPLES), np.ones(_METRIC_SAMPLES)
        points = data.points[rows].astype(np.float64)
        learned = learn_metric(
            own, weights, labels, self.prediction_temperature_, points, data.classes[rows], shares,
            penalty,
        )  # fmt: skip
        root = current.divergence.embed(np.eye(self.n_features_in_))  # of the metric as it was
        current.replace(learned.codevectors, current.masses)
        measure_by(current, Mahalanobis(root @ learned.matrix @ root.T))
        self._codebook = current.view(None)
