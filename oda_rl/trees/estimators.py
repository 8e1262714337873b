"""Clusterer, classifier and regressor by a tree of annealed codebooks."""

from dataclasses import KW_ONLY, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, ClusterMixin, RegressorMixin
from sklearn.utils._param_validation import StrOptions

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import (
    checked_labels,
    checked_points,
    checked_targets,
    checked_weights,
    fit_weights,
    fitted_points,
    promised_classes,
    stream_labels,
    stream_weights,
)
from oda_rl.annealing.regressor import LocalModels, fit_local_models
from oda_rl.files.estimators import NOT_NEGATIVE, estimator, validated
from oda_rl.files.schema import (
    ANYTHING,
    MISSING,
    Optional,
    Several,
    Sizes,
    check_classes,
    real,
    require,
)
from oda_rl.samples import counted, filled
from oda_rl.trees.base import BaseODATree


class ODATreeClusterer(ClusterMixin, BaseODATree):
    """Cluster by a tree of annealed codebooks, coarse to fine.

    Parameters
    ----------
    branching : int, default=4
        Maximum number of codevectors of a node, ≥ 2.
    max_depth : int, default=4
        Maximum number of codebooks from the root to a leaf, ≥ 1.
    min_samples_split : float, default=20
        A cell of fewer samples is not divided; with weights their effective number (Σw)²/Σw² is
        shared out in proportion to them.
    resolutions : list or tuple, optional
        The view of each level, from the root on, the last one for all levels below, too: indices of
        features, or names if X has names, or a function from points, shape (n, d), to shape
        (n, d'), row by row. By default every level sees all features.
    divergence : {"squared_euclidean", "i_divergence", "itakura_saito"} or Divergence
        Of points from codevectors, at every level and in the full space.
    cooling : float in (0, 1), default=0.8
        Factor of the temperature from one temperature level of a node to the next.
    samples_per_cluster : int, default=20
        Samples of a temperature level for each codevector.
    random_state : int, RandomState instance or None
        Order of the samples, and the shifts of splits.

    Attributes
    ----------
    codevectors_ : ndarray, shape (K, d)
        Mean of the samples of each leaf, in the full space.
    weights_ : ndarray, shape (K,)
        Share of the data in each leaf; they sum to 1.
    labels_ : ndarray, shape (n,)
        Leaf of each point of the last ``fit``; not after ``partial_fit``.
    n_leaves_ : int
        Number K of leaves.
    depth_ : int
        Codebooks from the root to the deepest leaf.
    history_ : list of TreeLevel
        Number of leaves, distortion and samples of the tree cut at each depth.
    n_features_in_, feature_names_in_
        Number of features, and their names, if X had any.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Multi-resolution online deterministic annealing: a hierarchical
    and progressive learning architecture"; but a leaf's codevector is the mean of its samples.

    Examples
    --------
    The first of four features separates two groups, which the others refine:

    >>> X = np.random.default_rng(0).normal(size=(400, 4))
    >>> X[:200, 0] += 20
    >>> model = ODATreeClusterer(2, max_depth=2, resolutions=[[0], range(4)], random_state=0).fit(X)
    >>> [level.n_leaves for level in model.history_]
    [1, 2, 4]
    >>> coarse = model.at_level(1)
    >>> sorted(coarse.codevectors_[:, 0].round().tolist())
    [0.0, 20.0]
    """

    @validated
    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Anneal level by level.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence; with the squared Euclidean one NaN where values
            are missing.
        y : ignored
        sample_weight : array-like, shape (n,), optional
            At least 0, relative to one another: a common factor makes no difference.

        Raises
        ------
        ValueError
            If X is invalid, or a function of ``resolutions`` returns something else.
        TypeError
            If a resolution is neither a function nor a sequence of features.
        """
        points = checked_points(self, X, reset=True)
        weights = fit_weights(self, sample_weight, points)
        self._grow(points, np.zeros(len(points), dtype=np.int64), weights, 1)
        self.labels_ = self.predict(X)
        return self

    @validated
    def partial_fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, each once, in their order.

        When a leaf has 100 samples its annealing begins; when that has ended, its cells are leaves
        in turn. How samples are divided among calls makes no difference.

        Parameters
        ----------
        X : array-like, shape (n, d)
            As for :meth:`fit`.
        y : ignored
        sample_weight : array-like, shape (n,), optional
            At least 0: over the mean so far they are factors of the samples' steps.
        """
        first = not hasattr(self, "_tree")
        points = checked_points(self, X, reset=first)
        weights = stream_weights(self, sample_weight, points, first=first)
        shown = weights > 0.0
        if first:
            self._plant(1, points[shown])
        classes = np.zeros(int(shown.sum()), dtype=np.int64)
        self._tree.observe(self._samples(points[shown], classes, weights[shown]))
        self.__dict__.pop("labels_", None)
        return self

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Cluster of each point, shape (n,): its leaf, as for :meth:`apply`."""
        return self.apply(X)

    def score(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> float:
        """Opposite of the mean divergence, in the full space, from the codevector of the leaf."""
        points = fitted_points(self, X)
        weights = checked_weights(sample_weight, points)
        divergence = self._tree.plan.divergence
        divergence.check(points)
        means = self._tree.table.means[self._nodes(points)]
        distances = divergence.rowwise(divergence.embed(points), means)
        return -float(np.average(distances, weights=weights))


@estimator
class ODATreeClassifier(ClassifierMixin, BaseODATree):
    """Classify by the leaves of a tree of annealed codebooks, coarse to fine.

    The codebooks do not depend on the classes, but a cell of one class is not divided further. A
    leaf predicts by the shares of its classes, with one sample's worth of its parent's.

    Parameters
    ----------
    branching, max_depth, resolutions, divergence, cooling, samples_per_cluster, random_state
        As for :class:`ODATreeClusterer`.
    min_samples_split : float, default=5
        As for :class:`ODATreeClusterer`.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        The labels so far, sorted.
    leaf_probabilities_ : ndarray, shape (K, C)
        Probabilities of the classes in each leaf.
    codevectors_, weights_, n_leaves_, depth_, history_, n_features_in_, feature_names_in_
        As for :class:`ODATreeClusterer`.

    References
    ----------
    As :class:`ODATreeClusterer`, with codebooks that all classes share.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = ODATreeClassifier(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.98
    True
    >>> model.at_level(1).n_leaves_
    4
    """

    _supervised = True

    _LEARNED: ClassVar[dict[str, Any]] = {
        **BaseODATree._LEARNED,
        "classes_": Optional(ANYTHING),
        "_seen": Optional(ANYTHING),
        "_promised": Optional(ANYTHING),
    }

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError unless the attributes in a file are consistent."""
        super()._check_contents(sizes, where)
        if hasattr(self, "_tree"):
            check_classes(self._seen, self.classes_, sizes["tree_classes"])

    _seen: list[Any] = field(init=False)

    _: KW_ONLY
    min_samples_split: Annotated[float, NOT_NEGATIVE] = 5

    @property
    def leaf_probabilities_(self) -> FloatArray:
        """Probabilities of the classes in each leaf, shape (K, C)."""
        table = self._tree.table
        return np.asarray(table.shares[table.is_leaf][:, self._order()])

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Anneal level by level, where there is more than one class.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`ODATreeClusterer.fit`, and so are errors.
        y : array-like, shape (n,)
            Numbers or strings.
        """
        points, labels = checked_labels(self, X, y, reset=True)
        points, labels, weights = counted(points, labels, fit_weights(self, sample_weight, points))
        self.classes_, classes = np.unique(labels, return_inverse=True)
        self._seen: list[Any] = self.classes_.tolist()
        self._promised: list[Any] = []
        self._grow(points, classes, weights, len(self._seen))
        return self

    @validated
    def partial_fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        classes: npt.ArrayLike | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from one sample or many, each once, in their order.

        Parameters
        ----------
        X, y : array-like, shapes (n, d) and (n,)
            As for :meth:`fit`.
        classes : array-like, optional
            Of the first call: all that may appear. Without them there may be new ones at any time.
        sample_weight : array-like, shape (n,), optional
            At least 0: over the mean so far they are factors of the samples' steps.
        """
        first = not hasattr(self, "_tree")
        points, labels = checked_labels(self, X, y, reset=first)
        weights = stream_weights(self, sample_weight, points, first=first)
        points, labels, weights = counted(points, labels, weights)
        promised = promised_classes(self, classes, first=first)
        seen = promised.copy() if first else self._seen.copy()
        indices = stream_labels(seen, labels, promised)
        if first:
            self._plant(0, points)
            self._seen = []
        samples = self._samples(points, indices, weights)
        self._tree.add_classes(len(seen) - len(self._seen))
        self._seen = seen
        self.classes_ = np.unique(self._as_labels(self._seen, labels.dtype))
        self._tree.observe(samples)
        return self

    def predict(self, X: npt.ArrayLike) -> Array:
        """Most probable class of each point, shape (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Probability of each class, in the order of ``classes_``, shape (n, C)."""
        nodes = self._nodes(fitted_points(self, X))
        return np.asarray(self._tree.table.shares[nodes][:, self._order()])

    @staticmethod
    def _as_labels(labels: list[Any], dtype: np.dtype[Any]) -> Array:
        return np.array(labels, dtype=object if dtype.kind == "O" else None)

    def _order(self) -> IntArray:
        """Order of first appearance of the classes, as indices by ``classes_``."""
        return np.argsort(self._as_labels(self._seen, self.classes_.dtype))


_RECENT = 5000  # last samples, to which the models of a stream or of a cut tree are fitted


@estimator
class ODATreeRegressor(RegressorMixin, BaseODATree):
    """Regress by a model in each leaf of a tree of annealed codebooks, coarse to fine.

    The codebooks do not depend on the target.

    Parameters
    ----------
    branching, max_depth, min_samples_split, resolutions, divergence, cooling, samples_per_cluster
        As for :class:`ODATreeClusterer`.
    local_model : {"linear", "constant"}, default="linear"
        Model of a leaf. Slopes of leaves with few points are shrunk towards those of all leaves.
    random_state : int, RandomState instance or None
        As for :class:`ODATreeClusterer`.

    Attributes
    ----------
    codevector_labels_ : ndarray, shape (K,)
        Mean of the target in each leaf.
    slopes_ : ndarray, shape (K, d)
        Slopes of the prediction in each leaf; zeros for constants.
    codevectors_, weights_, n_leaves_, depth_, history_, n_features_in_, feature_names_in_
        As for :class:`ODATreeClusterer`.

    References
    ----------
    As :class:`ODATreeClusterer`, with local models as in :class:`oda_rl.ODARegressor`.

    Examples
    --------
    >>> X = np.linspace(0.0, 6.0, 500)[:, None]
    >>> model = ODATreeRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.99
    True
    >>> model.at_level(1).n_leaves_
    4
    """

    _: KW_ONLY
    local_model: Annotated[str, StrOptions({"constant", "linear"})] = "linear"

    _LEARNED: ClassVar[dict[str, Any]] = {
        **BaseODATree._LEARNED,
        "codevector_labels_": Optional(real("leaves")),
        "slopes_": Optional(real("leaves, d")),
        "_centres": Optional(real("leaves, d")),
        "_recent": Optional(Several(real("recent, d+1", MISSING), real("recent", "[0, inf)"))),
    }

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError unless the attributes in a file are consistent."""
        super()._check_contents(sizes, where)
        models = ("codevector_labels_", "slopes_", "_centres", "_recent")
        learned = [name for name in models if hasattr(self, name)]
        complete = len(models) if hasattr(self, "_tree") else 0
        require(len(learned) == complete, f"{where} has of {models} only {learned}")
        if learned:
            n_models, n_leaves = len(self.codevector_labels_), self.n_leaves_
            require(n_models == n_leaves, f"{where} has {n_models} models for {n_leaves} leaves")

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Anneal level by level on X, and fit the model of each leaf.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`ODATreeClusterer.fit`, and so are errors. A leaf's linear model replaces
            missing values by the leaf's mean.
        y : array-like, shape (n,)
            Finite.
        """
        pairs = np.column_stack(checked_targets(self, X, y, reset=True))
        pairs, _, weights = counted(pairs, pairs, fit_weights(self, sample_weight, pairs))
        points = np.ascontiguousarray(pairs[:, :-1])
        self._grow(points, np.zeros(len(pairs), dtype=np.int64), weights, 1)
        self._remember(pairs, weights)
        return self

    @validated
    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, each once, in their order.

        The models of the leaves are fitted to the last 5,000 samples.

        Parameters
        ----------
        X, y : array-like, shapes (n, d) and (n,)
            As for :meth:`fit`.
        sample_weight : array-like, shape (n,), optional
            At least 0: over the mean so far they are factors of the samples' steps.
        """
        first = not hasattr(self, "_tree")
        pairs = np.column_stack(checked_targets(self, X, y, reset=first))
        weights = stream_weights(self, sample_weight, pairs, first=first)
        pairs, _, weights = counted(pairs, pairs, weights)
        if first:
            self._plant(1, pairs[:, :-1])
            self._recent = pairs[:0], weights[:0]
        points, classes = np.ascontiguousarray(pairs[:, :-1]), np.zeros(len(pairs), dtype=np.int64)
        self._tree.observe(self._samples(points, classes, weights))
        known, before = self._recent
        self._remember(
            np.concatenate([known, pairs])[-_RECENT:], np.concatenate([before, weights])[-_RECENT:]
        )
        return self

    def predict(self, X: npt.ArrayLike) -> FloatArray:
        """Prediction of the model of each point's leaf, shape (n,)."""
        points = fitted_points(self, X)
        models = LocalModels(self.codevector_labels_, self.slopes_, self._centres)
        leaves = self._tree.table.leaf_numbers[self._nodes(points)]
        return models.predict(filled(points, self._centres[leaves]), leaves)

    def at_level(self, level: int | None = None, *, n_clusters: int | None = None) -> Self:
        """As :meth:`ODATreeClusterer.at_level`, with models of the last 5,000 samples."""
        model = super().at_level(level, n_clusters=n_clusters)
        model._remember(*self._recent)
        return model

    def _remember(self, pairs: FloatArray, weights: FloatArray) -> None:
        """Fit the models to samples, shape (n, d + 1), and keep the last ones."""
        points, targets = pairs[:, :-1], pairs[:, -1]
        leaves = self._tree.table.leaf_numbers[self._nodes(np.ascontiguousarray(points))]
        values = np.full(self.n_leaves_, np.average(targets, weights=weights))
        known = filled(points, self.codevectors_[leaves])
        models = fit_local_models(
            known, targets, weights, leaves, values, linear=self.local_model == "linear"
        )
        self.codevector_labels_, self.slopes_, self._centres = models
        self._recent = pairs[-_RECENT:], weights[-_RECENT:]
