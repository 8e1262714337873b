"""Trees of annealed codebooks as scikit-learn estimators: coarse at the top, finer below.

The data are divided by a codebook of a few codevectors, each of its cells by a codebook of its own
that is annealed on the samples of that cell alone, and so on. A level may see the data at a
resolution of its own: some of the features, or a transform of them. A point finds its cell in
depth times branching comparisons, however many cells there are.

References
----------
[MR-ODA] C. N. Mavridis, J. S. Baras, "Multi-resolution online deterministic annealing: a
hierarchical and progressive learning architecture".
"""

import copy
import os
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from oda_rl import divergences
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import checked_points, checked_weights, fitted_points, validated
from oda_rl.annealing.annealer import Level, Schedule
from oda_rl.annealing.codebook import Balls, Layout
from oda_rl.annealing.files import load_estimator, save_estimator
from oda_rl.annealing.sampling import Distribution
from oda_rl.divergences import NAMED, Divergence
from oda_rl.trees.growth import Plan, Tree
from oda_rl.trees.nodes import Cells, Node, NodeAnnealer, Samples, Statistics
from oda_rl.trees.resolutions import Resolution, resolve_all, view


@dataclass(frozen=True)
class TreeLevel:
    """The tree as it is when cut at a depth."""

    depth: int
    """Codebooks from the root to the deepest leaf."""
    n_leaves: int
    """Number of leaves of the tree that is cut here."""
    distortion: float
    """Mean divergence of all samples, in the full space, from the means of these leaves."""
    n_samples: float
    """Weight of the samples that have come to nodes at just this depth."""


_KINDS: tuple[type, ...] = (
    *(Tree, Plan, Node, Cells, Statistics, NodeAnnealer, Balls, Layout, Level, Schedule),
    divergences.Mahalanobis,
    *NAMED.values(),
)
_STORED = {kind.__name__: kind for kind in _KINDS}


class BaseODATree(BaseEstimator):
    """Common part of the estimators over :class:`oda_rl.trees.growth.Tree`."""

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's way
        "branching": [Interval(Integral, 2, None, closed="left")],
        "max_depth": [Interval(Integral, 1, None, closed="left")],
        "min_samples_split": [Interval(Real, 0, None, closed="left")],
        "resolutions": [list, tuple, None],
        "divergence": [StrOptions(set(NAMED)), Divergence],
        "cooling": [Interval(Real, 0, 1, closed="neither")],
        "samples_per_cluster": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _supervised = False

    _tree: Tree
    _resolutions: list[Resolution]
    _widths: list[int]

    def __init__(
        self,
        branching: int = 4,
        *,
        max_depth: int = 4,
        min_samples_split: float = 20,
        resolutions: Any = None,
        divergence: str | Divergence = "squared_euclidean",
        cooling: float = 0.8,
        samples_per_cluster: int = 20,
        random_state: Any = None,
    ) -> None:
        self.branching = branching
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.resolutions = resolutions
        self.divergence = divergence
        self.cooling = cooling
        self.samples_per_cluster = samples_per_cluster
        self.random_state = random_state

    @property
    def n_leaves_(self) -> int:
        """Number K of leaves."""
        return int(self._tree.table.is_leaf.sum())

    @property
    def depth_(self) -> int:
        """Codebooks from the root to the deepest leaf."""
        return self._tree.table.depth

    @property
    def codevectors_(self) -> FloatArray:
        """Mean of the samples of each leaf, in the full space: shape (K, d)."""
        table = self._tree.table
        return self._tree.plan.divergence.restore(table.means[table.is_leaf])

    @property
    def weights_(self) -> FloatArray:
        """Share of the data in each leaf, shape (K,)."""
        weights: FloatArray = self._tree.table.weights[self._tree.table.is_leaf]
        return np.asarray(weights / weights.sum())

    @property
    def history_(self) -> list[TreeLevel]:
        """For each depth, the tree as it is when cut there."""
        return [self._level(depth) for depth in range(self.depth_ + 1)]

    def apply(self, X: npt.ArrayLike) -> IntArray:  # noqa: N803
        """Leaf that each point comes to, in depth times branching comparisons.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n,)
            From 0 to ``n_leaves_`` - 1: an index into ``codevectors_``.
        """
        nodes = self._nodes(fitted_points(self, X))
        return self._tree.table.leaf_numbers[nodes]

    def at_depth(self, depth: int) -> Self:
        """Return the model whose tree is cut at a depth, without refitting.

        It is independent of this one, and ``partial_fit`` lets it grow again.

        Parameters
        ----------
        depth : int
            From 0, which leaves the root alone, to ``depth_``.

        Raises
        ------
        ValueError
            If it is not that.
        """
        check_is_fitted(self)
        if not 0 <= depth <= self.depth_:
            raise ValueError(f"depth must be from 0 to {self.depth_}, got {depth}")
        model = copy.copy(self)
        model._tree = self._tree.cut(depth)
        model.__dict__.pop("labels_", None)
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file of arrays and JSON; nothing is pickled.

        Raises
        ------
        TypeError
            If a parameter is code, as a resolution that is a function, or a Bregman divergence of
            one's own.
        """
        model = copy.copy(self)
        if hasattr(model, "_tree"):
            model._tree.forget_table()
        if model.resolutions is not None:
            model.resolutions = [
                entry if callable(entry) else list(entry) for entry in model.resolutions
            ]
        save_estimator(path, model, _STORED)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote; it goes on learning as the saved one would have.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, or of something else.
        """
        model = load_estimator(path, cls, _STORED)
        if hasattr(model, "_tree"):
            for node in model._tree.nodes:
                if node.annealer is not None:
                    node.annealer.reopen()
        return model  # type: ignore[no-any-return]

    # Learning.

    def _grow(
        self, points: FloatArray, classes: IntArray, weights: FloatArray, n_classes: int
    ) -> None:
        """Grow a new tree on points, shape (n, d), and classes from 0 to ``n_classes`` - 1."""
        self._plant(n_classes)
        self._tree.plan.divergence.check(points)
        data = Distribution(points, classes, weights, np.random.default_rng(0))
        self._tree.grow(self._samples(data.points, data.classes, data.weights))

    def _plant(self, n_classes: int) -> None:
        """Begin with the root alone."""
        plan = Plan(
            divergence=divergences.resolve(self.divergence),
            branching=int(self.branching),
            max_depth=int(self.max_depth),
            min_samples_split=float(self.min_samples_split),
            cooling=float(self.cooling),
            samples_per_cluster=int(self.samples_per_cluster),
            supervised=self._supervised,
        )
        d = self.n_features_in_
        names = getattr(self, "feature_names_in_", None)
        self._resolutions = resolve_all(self.resolutions, d, names)[: plan.max_depth]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._tree, self._widths = Tree(plan, seed, d, n_classes), []

    def _samples(self, points: FloatArray, classes: IntArray, weights: FloatArray) -> Samples:
        divergence = self._tree.plan.divergence
        divergence.check(points)
        levels = self._views(points, len(self._resolutions))
        self._widths = [level.shape[1] for level in levels]
        return Samples(divergence.embed(points), classes, weights, levels)

    def _views(self, points: FloatArray, depth: int) -> list[FloatArray]:
        """Points as the uppermost levels see them, in the divergence's coordinates."""
        views = []
        for i, resolution in enumerate(self._resolutions[:depth]):
            width = self._widths[i] if self._widths else None
            views.append(view(points, resolution, i, width, self._tree.plan.divergence))
        return views

    def _nodes(self, points: FloatArray) -> IntArray:
        """Node of each point's leaf, by its place in the tree's table."""
        depth = max(self.depth_, 1)
        levels = self._views(points, depth)
        widths = np.array([level.shape[1] for level in levels])
        features = levels[0] if len(levels) == 1 else np.concatenate(levels, axis=1)
        at = np.minimum(np.arange(depth), len(levels) - 1)
        columns = np.cumsum(widths) - widths
        return self._tree.table.routes.follow(features, columns[at], widths[at])[0]

    def _level(self, depth: int) -> TreeLevel:
        table = self._tree.table
        leaves = (table.depths == depth) | (table.is_leaf & (table.depths < depth))
        return TreeLevel(
            depth=depth,
            n_leaves=int(leaves.sum()),
            distortion=float(table.errors[leaves].sum() / table.weights[leaves].sum()),
            n_samples=float(table.weights[table.depths == depth].sum()),
        )


class ODATreeClusterer(ClusterMixin, BaseODATree):
    """Cluster by a tree of annealed codebooks, coarse to fine.

    Parameters
    ----------
    branching : int, default=4
        Codevectors of a node at most, 2 or more.
    max_depth : int, default=4
        Codebooks from the root to a leaf at most, 1 or more.
    min_samples_split : float, default=20
        A cell whose samples weigh less (without weights: that are fewer) is not divided.
    resolutions : list or tuple, optional
        What each level sees of the data, from the root on, the last entry being for all levels
        below, too: the indices of some features, or their names if X has names, or a function that
        takes points, shape (n, d), and returns shape (n, d'), each row by itself. By default every
        level sees all features.
    divergence : {"squared_euclidean", "i_divergence", "itakura_saito"} or Divergence
        How far a point is from a codevector, at every level and in the full space.
    cooling : float in (0, 1), default=0.8
        Factor of the temperature from one temperature level of a node to the next.
    samples_per_cluster : int, default=20
        Samples that a temperature level has for each codevector.
    random_state : int, RandomState instance or None
        Order of the samples, and the shifts of splits.

    Attributes
    ----------
    codevectors_ : ndarray, shape (K, d)
        Mean of the samples of each leaf, in the full space.
    weights_ : ndarray, shape (K,)
        Share of the data in each leaf; they sum to 1.
    labels_ : ndarray, shape (n,)
        Leaf of each point of the last ``fit``; there are none after ``partial_fit``.
    n_leaves_ : int
        Number K of leaves.
    depth_ : int
        Codebooks from the root to the deepest leaf.
    history_ : list of TreeLevel
        For each depth, the tree that is cut there: number of leaves, distortion and samples.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray, shape (d,)
        Names of the features, where X had names.

    References
    ----------
    [MR-ODA], with the mean of the samples in a leaf as its codevector.

    Examples
    --------
    Four features, of which the first tells two groups apart and the others refine them:

    >>> import numpy as np
    >>> from oda_rl.trees.estimators import ODATreeClusterer
    >>> X = np.random.default_rng(0).normal(size=(400, 4))
    >>> X[:200, 0] += 20
    >>> model = ODATreeClusterer(2, max_depth=2, resolutions=[[0], range(4)], random_state=0).fit(X)
    >>> [level.n_leaves for level in model.history_]
    [1, 2, 4]
    >>> coarse = model.at_depth(1)
    >>> sorted(coarse.codevectors_[:, 0].round().tolist())
    [0.0, 20.0]
    """

    @validated
    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Anneal level after level.

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
            If X is not that, or a resolution can't be had from it.
        TypeError
            If a resolution is neither a function nor a sequence of features.
        """
        points = checked_points(self, X, reset=True)
        weights = checked_weights(sample_weight, points)
        self._grow(points, np.zeros(len(points), dtype=np.int64), weights, 1)
        self.labels_ = self.predict(X)
        return self

    @validated
    def partial_fit(
        self,
        X: npt.ArrayLike,  # noqa: N803
        y: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from one sample or many, each once, in their order.

        A sample goes down to a leaf. When a leaf has 100 samples its annealing begins, and when
        that has ended its cells are leaves in turn. Sample by sample or in blocks is the same.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence.
        y : ignored
        sample_weight : array-like, shape (n,), optional
            At least 0: how many times as long each sample's step is.
        """
        first = not hasattr(self, "_tree")
        points = checked_points(self, X, reset=first)
        weights = checked_weights(sample_weight, points)
        if first:
            self._plant(1)
        shown = weights > 0.0
        classes = np.zeros(int(shown.sum()), dtype=np.int64)
        self._tree.observe(self._samples(points[shown], classes, weights[shown]))
        self.__dict__.pop("labels_", None)
        return self

    def predict(self, X: npt.ArrayLike) -> IntArray:  # noqa: N803
        """Cluster of each point: the leaf it comes to, as :meth:`apply` has it.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n,)
            From 0 to K - 1.
        """
        return self.apply(X)

    def score(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Opposite of the mean divergence, in the full space, from the codevector of the leaf."""
        points = fitted_points(self, X)
        weights = checked_weights(sample_weight, points)
        divergence = self._tree.plan.divergence
        divergence.check(points)
        means = self._tree.table.means[self._nodes(points)]
        distances = divergence.rowwise(divergence.embed(points), means)
        return -float(np.average(distances, weights=weights))


class ODATreeClassifier(ClassifierMixin, BaseODATree):
    """Classify by the leaves of a tree of annealed codebooks, coarse to fine.

    The codebooks do not look at the classes, but where samples are of one class they are not
    divided further. A leaf predicts by the shares of its classes, with one sample's worth of its
    parent's.

    Parameters
    ----------
    branching, max_depth, resolutions, divergence, cooling, samples_per_cluster, random_state
        As for :class:`ODATreeClusterer`.
    min_samples_split : float, default=5
        As for :class:`ODATreeClusterer`.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        The labels that were seen, sorted.
    leaf_probabilities_ : ndarray, shape (K, C)
        What each leaf predicts.
    codevectors_, weights_, n_leaves_, depth_, history_, n_features_in_, feature_names_in_
        As for :class:`ODATreeClusterer`.

    References
    ----------
    [MR-ODA], with codebooks that all classes share.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from oda_rl.trees.estimators import ODATreeClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = ODATreeClassifier(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.98
    True
    >>> model.at_depth(1).n_leaves_
    4
    """

    _supervised = True

    _seen: list[Any]

    def __init__(
        self,
        branching: int = 4,
        *,
        max_depth: int = 4,
        min_samples_split: float = 5,
        resolutions: Any = None,
        divergence: str | Divergence = "squared_euclidean",
        cooling: float = 0.8,
        samples_per_cluster: int = 20,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            branching,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
            resolutions=resolutions,
            divergence=divergence,
            cooling=cooling,
            samples_per_cluster=samples_per_cluster,
            random_state=random_state,
        )

    @property
    def leaf_probabilities_(self) -> FloatArray:
        """What each leaf predicts, shape (K, C)."""
        table = self._tree.table
        return np.asarray(table.shares[table.is_leaf][:, self._order()])

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:  # noqa: N803
        """Anneal level after level, where there is more than one class.

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
            If X and y are not that, or a resolution can't be had from X.
        TypeError
            If a resolution is neither a function nor a sequence of features.
        """
        points, labels, weights = self._checked_all(X, y, sample_weight, reset=True)
        self.classes_, classes = np.unique(labels, return_inverse=True)
        self._seen = self.classes_.tolist()
        self._grow(points, classes, weights, len(self._seen))
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

        The tree grows as that of :class:`ODATreeClusterer` does, where there is more than one
        class. Sample by sample or in blocks is the same.

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
        first = not hasattr(self, "_tree")
        points, labels, weights = self._checked_all(X, y, sample_weight, reset=first)
        if first:
            self._plant(0)
            self._seen = []
        known = {label: index for index, label in enumerate(self._seen)}
        indices = [known.setdefault(label, len(known)) for label in labels.tolist()]
        samples = self._samples(points, np.array(indices), weights)
        self._tree.add_classes(len(known) - len(self._seen))
        self._seen = list(known)
        self.classes_ = np.unique(self._as_labels(self._seen, labels.dtype))
        self._tree.observe(samples)
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
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:  # noqa: N803
        """Probability of each class, in the order of ``classes_``.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n, C)
            Rows sum to 1.
        """
        nodes = self._nodes(fitted_points(self, X))
        return np.asarray(self._tree.table.shares[nodes][:, self._order()])

    def _checked_all(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any,
        *,
        reset: bool,
    ) -> tuple[FloatArray, Array, FloatArray]:
        """Return points, labels and weights, those of weight 0 left out."""
        points, labels = validate_data(self, X, y, reset=reset, dtype=np.float64, order="C")
        check_classification_targets(labels)
        labels = np.asarray(column_or_1d(labels, warn=True))
        weights = checked_weights(sample_weight, points)
        shown = weights > 0.0
        return points[shown], labels[shown], weights[shown]

    @staticmethod
    def _as_labels(labels: list[Any], dtype: np.dtype[Any]) -> Array:
        return np.array(labels, dtype=object if dtype.kind == "O" else None)

    def _order(self) -> IntArray:
        """Sort the classes as they were first seen into the order of ``classes_``."""
        return np.argsort(self._as_labels(self._seen, self.classes_.dtype))
