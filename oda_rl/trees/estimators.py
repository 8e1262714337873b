"""Trees of annealed codebooks: clusterer, classifier and regressor, coarse at the top, finer below.

A codebook of a few codevectors divides the data, and each of its cells is divided by another
codebook, annealed on the samples of that cell alone, and so on. Each level may see the data at
another resolution: some of the features, or a transform of them. A point finds its cell in depth
times branching comparisons, however many cells there are.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, ClusterMixin
from sklearn.utils import check_random_state

from oda_rl import _validation as validation
from oda_rl import divergences
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.annealing.annealer import Distribution
from oda_rl.annealing.base import CellEstimator
from oda_rl.annealing.regressor import LocalRegressor
from oda_rl.divergences import NAMED, Divergence
from oda_rl.files import estimators, schema
from oda_rl.samples import counted, filled
from oda_rl.trees.tree import Cells, Node, Plan, Samples, Statistics, Tree


@dataclass(frozen=True)
class TreeLevel:
    """The tree cut at a depth."""

    depth: int  # codebooks from the root to the deepest leaf
    n_clusters: int  # number of leaves
    distortion: float
    """Mean divergence of all samples, in the full space, from the means of these leaves."""
    n_samples: float  # effective number of samples in nodes at this depth


_KINDS: tuple[type, ...] = (
    *(Tree, Plan, Node, Cells, Statistics),
    divergences.Mahalanobis,
    *NAMED.values(),
)
_STORED = {kind.__name__: kind for kind in _KINDS}

Resolution = IntArray | Callable[[FloatArray], Any]
_RESOLUTIONS = schema.Each(schema.whole("width", "[0, d)"))  # functions are not saved


@estimators.estimator
class BaseODATree(CellEstimator):
    """Base of the estimators with a :class:`oda_rl.trees.tree.Tree`."""

    branching: Annotated[int, estimators.within("[2, 1_000_000]", Integral)] = 4
    _: KW_ONLY
    max_depth: Annotated[int, estimators.COUNT] = 4
    min_samples_split: Annotated[float, estimators.NOT_NEGATIVE] = 20
    resolutions: Annotated[Any, list, tuple, None] = None
    divergence: Annotated[str | Divergence, estimators.one_of(*NAMED), Divergence] = (
        "squared_euclidean"
    )
    cooling: Annotated[float, estimators.FRACTION] = 0.8
    samples_per_cluster: Annotated[int, estimators.COUNT] = 20
    random_state: estimators.Seed = None
    _supervised = False
    _stored = _STORED

    _tree: Annotated[Tree, Tree] = field(init=False)
    _resolutions: Annotated[list[Resolution], _RESOLUTIONS] = field(init=False)
    _widths: Annotated[list[int], schema.Each(schema.whole("", "[1, inf)"))] = field(init=False)
    labels_: Annotated[IntArray, schema.whole("n")] = field(init=False)
    _weighed: Annotated[FloatArray, validation.WEIGHED] = field(init=False)
    _low: Annotated[FloatArray, schema.real("d")] = field(init=False)
    _high: Annotated[FloatArray, schema.real("d")] = field(init=False)

    def _check_contents(self, sizes: schema.Sizes, where: str) -> None:
        names = "_tree", "_resolutions", "_widths"
        if schema.check_fitted((hasattr(self, name) for name in names), where):
            widths = [len(one) for one in self._resolutions if isinstance(one, np.ndarray)]
            schema.require(min(widths, default=0) > 0, f"{where}._resolutions have no features")
            right = self._widths in ([], widths)
            schema.require(right, f"{where}._widths is {self._widths}: not {widths}")
            schema.require(len(self._tree.nodes) > 0, f"{where}._tree has no root")
            sizes["tree_classes"] = len(self._tree.nodes[0].statistics.class_weights)
            self._tree.check_nodes(widths, sizes, f"{where}._tree")
            same = divergences.resolve(self.divergence).kernel == self._tree.plan.divergence.kernel
            schema.require(same, f"{where}.divergence is not that of the tree")

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
        return self._divergence.restore(self._embedded_codevectors())

    @property
    def weights_(self) -> FloatArray:  # type: ignore[override]
        """Share of the data in each leaf, shape (K,); they sum to 1."""
        weights = self._tree.table.weights[self._tree.table.is_leaf]
        return np.asarray(weights / weights.sum())

    @property
    def history_(self) -> list[TreeLevel]:
        """Leaves, distortion and samples of the tree cut at each depth: a list of TreeLevel."""
        return [self._level(depth) for depth in range(self.depth_ + 1)]

    @property
    def _divergence(self) -> Divergence:
        return self._tree.plan.divergence

    def _embedded_codevectors(self) -> FloatArray:
        return np.asarray(self._tree.table.means[self._tree.table.is_leaf])

    def _cells(self, points: FloatArray) -> IntArray:
        return self._tree.table.leaf_numbers[self._nodes(points)]

    def _distortion(self) -> float:
        return self.history_[-1].distortion or 1.0

    def apply(self, X: npt.ArrayLike) -> IntArray:
        """Leaf of each point, shape (n,): an index into ``codevectors_``.

        X, shape (n, d), is in the domain of the divergence. With the squared Euclidean one values
        may be missing (NaN): cells are compared by the observed features of their level, and the
        heaviest is taken if there are none.
        """
        return self._cells(validation.fitted_points(self, X))

    def at_level(self, level: int | None = None, *, n_clusters: int | None = None) -> Self:
        """Return the model whose tree is cut at a depth, without refitting.

        It is independent of this one, and ``partial_fit`` lets it grow again. Parameters and errors
        are those of :meth:`oda_rl.ODAClusterer.at_level`; level 0 leaves the root alone.
        """
        depth, model = self._level_index(level, n_clusters), copy.copy(self)
        model._tree.cut(depth)
        for name in ("labels_", "_models"):  # of the whole tree
            model.__dict__.pop(name, None)
        return model

    def __copy__(self) -> Self:
        """Return an independent copy: learning changes the tree in place."""
        return copy.deepcopy(self)

    def _closed(self) -> Self:
        model = copy.copy(self)
        if hasattr(model, "_tree"):
            model._tree._table = None
        if model.resolutions is not None:
            model.resolutions = [one if callable(one) else list(one) for one in model.resolutions]
        return model

    # Learning.

    def _grow(
        self, points: FloatArray, classes: IntArray, weights: FloatArray, n_classes: int
    ) -> None:
        """Grow a new tree on points, shape (n, d), and classes from 0 to ``n_classes`` - 1."""
        self._plant(n_classes, counted(points, classes, weights)[0])
        self._tree.plan.divergence.check(points)
        data = Distribution(points, classes, weights, np.random.default_rng(0))
        self._tree.grow(self._samples(data.points, data.classes, data.weights))

    def _plant(self, n_classes: int, points: FloatArray) -> None:
        validation.check_columns(self, points)
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
        self._resolutions = _resolved(self.resolutions, d, names)[: plan.max_depth]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._tree, self._widths = Tree(plan, seed, d, n_classes), []
        self._low, self._high = np.full(d, np.inf), np.full(d, -np.inf)

    def _samples(self, points: FloatArray, classes: IntArray, weights: FloatArray) -> Samples:
        divergence = self._tree.plan.divergence
        divergence.check(points)
        levels = self._views(points, len(self._resolutions))
        self._widths = [level.shape[1] for level in levels]
        self._low = np.fmin(self._low, np.fmin.reduce(points, axis=0, initial=np.inf))
        self._high = np.fmax(self._high, np.fmax.reduce(points, axis=0, initial=-np.inf))

        def view(others: FloatArray) -> list[FloatArray]:
            return self._views(divergence.restore(others), len(self._resolutions))

        return Samples(divergence.embed(points), classes, weights, levels, view)

    def _views(self, points: FloatArray, depth: int) -> list[FloatArray]:
        """Points as the uppermost levels see them, in the divergence's coordinates."""
        divergence, views = self._tree.plan.divergence, []
        for i, resolution in enumerate(self._resolutions[:depth]):
            if callable(resolution):
                view = _transformed(points, resolution, i)
            else:
                view = points.take(resolution, axis=1)
            if self._widths and view.shape[1] != self._widths[i]:
                raise ValueError(
                    f"resolutions[{i}] must return {self._widths[i]} features as before, got "
                    f"{view.shape[1]}"
                )
            divergence.check(view)
            views.append(divergence.embed(view))
        return views

    def _nodes(self, points: FloatArray) -> IntArray:
        """Node of each point's leaf, as an index into the tree's table."""
        depth = max(self.depth_, 1)
        levels = self._views(points, depth)
        widths = np.array([level.shape[1] for level in levels])
        features = levels[0] if len(levels) == 1 else np.concatenate(levels, axis=1)
        at = np.minimum(np.arange(depth), len(levels) - 1)
        columns = np.cumsum(widths) - widths
        return self._tree.table.routes.follow(features, columns[at], widths[at])

    def _level(self, depth: int) -> TreeLevel:
        table = self._tree.table
        leaves = (table.depths == depth) | (table.is_leaf & (table.depths < depth))
        return TreeLevel(
            depth=depth,
            n_clusters=int(leaves.sum()),
            distortion=float(table.errors[leaves].sum() / table.weights[leaves].sum()),
            n_samples=float(table.weights[table.depths == depth].sum()),
        )


def _resolved(
    resolutions: Sequence[Any] | None, n_features: int, names: Array | None
) -> list[Resolution]:
    """Check resolutions, and turn the names of features, shape (n_features,), into indices."""
    if resolutions is None:
        return [np.arange(n_features)]
    if len(resolutions) == 0:
        raise ValueError("resolutions must have an entry for the first level, got none")
    return [
        entry if callable(entry) else _indices(entry, i, n_features, names)
        for i, entry in enumerate(resolutions)
    ]


def _indices(entry: Any, i: int, n_features: int, names: Array | None) -> IntArray:
    where = f"resolutions[{i}]"
    if isinstance(entry, str) or not isinstance(entry, Iterable):
        raise TypeError(f"{where} must be a function or a sequence of features, got {entry!r}")
    places = dict(zip(() if names is None else names, range(n_features), strict=False))
    indices = [places.get(feature, feature) for feature in entry]
    right = (isinstance(j, Integral) and 0 <= int(j) < n_features for j in indices)
    if not indices or not all(right):
        raise ValueError(
            f"{where} must have names of features, or indices from 0 to {n_features - 1}, got "
            f"{list(entry)!r:.80}"
        )
    return np.array(indices, dtype=np.int64)


def _transformed(points: FloatArray, transform: Callable[[FloatArray], Any], i: int) -> FloatArray:
    returned = transform(points.copy())  # it may change its argument
    view = np.ascontiguousarray(returned, dtype=np.float64)
    if view.ndim != 2 or len(view) != len(points) or view.shape[1] == 0:
        raise ValueError(
            f"resolutions[{i}] must return shape ({len(points)}, d'), got {np.shape(returned)}"
        )
    incomplete = np.isnan(points).any(axis=1, keepdims=True)
    if not np.isfinite(filled(view, np.where(incomplete, 0.0, np.nan))).all():
        raise ValueError(
            f"resolutions[{i}] must return finite numbers, got NaN or infinity: NaN is for "
            "samples with missing values only"
        )
    return view


@estimators.estimator
class ODATreeClusterer(estimators.Unsupervised, ClusterMixin, BaseODATree):
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
        (n, d'), row by row. By default every level sees all features. ``fit`` raises a TypeError
        for other entries.
    divergence : {"squared_euclidean", "i_divergence", "itakura_saito"} or Divergence
        Divergence of points from codevectors, at every level and in the full space.
    cooling : float in (0, 1), default=0.8
        Factor of the temperature from one temperature level of a node to the next.
    samples_per_cluster : int, default=20
        Samples of a temperature level for each codevector.
    random_state : int, RandomState instance or None
        Order of the samples, and the shifts of splits.

    Attributes
    ----------
    labels_ : ndarray, shape (n,)
        Leaf of each point of the last ``fit``; not after ``partial_fit``.

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
    >>> [level.n_clusters for level in model.history_]
    [1, 2, 4]
    >>> coarse = model.at_level(1)
    >>> sorted(coarse.codevectors_[:, 0].round().tolist())
    [0.0, 20.0]
    """

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        points = validation.checked_points(self, X, reset=True)
        weights = validation.fit_weights(self, sample_weight, points)
        self._grow(points, np.zeros(len(points), dtype=np.int64), weights, 1)
        self.labels_ = self.predict(X)
        return self

    @estimators.validated
    def partial_fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, each once, in their order; see :meth:`fit`.

        When a leaf has 10 ``branching`` samples its annealing begins; when that has ended, its
        cells are leaves in turn. How samples are divided among calls makes no difference. Weights
        count over their mean so far.
        """
        first = not hasattr(self, "_tree")
        points = validation.checked_points(self, X, reset=first)
        weights = validation.stream_weights(self, sample_weight, points, first=first)
        points, classes, weights = counted(points, np.zeros(len(points), dtype=np.int64), weights)
        if first:
            self._plant(1, points)
        self._tree.observe(self._samples(points, classes, weights))
        self.__dict__.pop("labels_", None)
        return self

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Cluster of each point, shape (n,): its leaf, as for :meth:`apply`."""
        return self.apply(X)

    def score(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> float:
        """Negative mean divergence, in the full space, from the codevector of the leaf."""
        points = validation.fitted_points(self, X)
        weights = validation.checked_weights(sample_weight, points)
        divergence = self._tree.plan.divergence
        divergence.check(points)
        means = self._tree.table.means[self._nodes(points)]
        distances = divergence.rowwise(divergence.embed(points), means)
        return -float(np.average(distances, weights=weights))


@estimators.estimator
class ODATreeClassifier(estimators.Supervised, ClassifierMixin, BaseODATree):
    """Classify by the leaves of a tree of annealed codebooks, coarse to fine.

    The codebooks do not depend on the classes, but a cell of one class is not divided further. A
    leaf predicts by the shares of its classes, smoothed by those of the nodes above, as much as
    makes each sample most likely given all others.

    Parameters
    ----------
    branching, max_depth, resolutions, divergence, cooling, samples_per_cluster, random_state
        As for :class:`ODATreeClusterer`.
    min_samples_split : float, default=5
        As for :class:`ODATreeClusterer`. With fewer samples in all, predictions are constant: lower
        it for one or two samples of each class.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        The labels so far, sorted.

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

    classes_: Annotated[Array, schema.ANYTHING] = field(init=False)
    _seen: Annotated[list[Any], schema.ANYTHING] = field(init=False)
    _promised: Annotated[list[Any], schema.ANYTHING] = field(init=False)

    def _check_contents(self, sizes: schema.Sizes, where: str) -> None:
        super()._check_contents(sizes, where)
        if hasattr(self, "_tree"):
            schema.check_classes(self._seen, self.classes_, sizes["tree_classes"])

    _: KW_ONLY
    min_samples_split: Annotated[float, estimators.NOT_NEGATIVE] = 5

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        points, labels = validation.checked_labels(self, X, y, reset=True)
        points, labels, weights = counted(
            points, labels, validation.fit_weights(self, sample_weight, points)
        )
        self.classes_, classes = np.unique(labels, return_inverse=True)
        self._seen = self.classes_.tolist()
        self._promised = []
        self._grow(points, classes, weights, len(self._seen))
        return self

    @estimators.validated
    def partial_fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        classes: npt.ArrayLike | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from one sample or many, each once, in their order; see :meth:`fit`.

        ``classes`` of the first call are those that may appear; without them new ones may at any
        time. The rest is as for :meth:`ODATreeClusterer.partial_fit`.
        """
        first = not hasattr(self, "_tree")
        points, labels = validation.checked_labels(self, X, y, reset=first)
        weights = validation.stream_weights(self, sample_weight, points, first=first)
        points, labels, weights = counted(points, labels, weights)
        promised = validation.promised_classes(self, classes, first=first)
        seen = promised.copy() if first else self._seen.copy()
        indices = validation.stream_labels(seen, labels, promised)
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
        shares = self.predict_proba(X)  # first: it says so where nothing has been fitted
        return np.asarray(self.classes_[shares.argmax(axis=1)])

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Probability of each class, in the order of ``classes_``, shape (n, C)."""
        nodes = self._nodes(validation.fitted_points(self, X))
        return np.asarray(self._tree.table.shares[nodes][:, self._order()])

    @staticmethod
    def _as_labels(labels: list[Any], dtype: np.dtype[Any]) -> Array:
        return np.array(labels, dtype=object if dtype.kind == "O" else None)

    def _order(self) -> IntArray:
        """Order of first appearance of the classes, as indices by ``classes_``."""
        return np.argsort(self._as_labels(self._seen, self.classes_.dtype))


@estimators.estimator
class ODATreeRegressor(LocalRegressor, BaseODATree):
    """Regress by a model in each leaf of a tree of annealed codebooks, coarse to fine.

    The codebooks do not depend on the target.

    Parameters
    ----------
    branching, max_depth, min_samples_split, resolutions, divergence, cooling, samples_per_cluster
        As for :class:`ODATreeClusterer`.
    local_model : {"linear", "constant"}, default="linear"
        Model of a leaf. Slopes of leaves with few points are shrunk towards those of all leaves;
        missing values are replaced by the leaf's mean.
    random_state : int, RandomState instance or None
        As for :class:`ODATreeClusterer`.

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
    local_model: Annotated[str, estimators.one_of("constant", "linear")] = "linear"

    _stored = {**LocalRegressor._stored, **_STORED}  # noqa: RUF012

    def _check_contents(self, sizes: schema.Sizes, where: str) -> None:
        super()._check_contents(sizes, where)
        if schema.check_fitted(
            (hasattr(self, name) for name in ("_tree", "_models", "_recent")), where
        ):
            n_models, n_leaves = len(self._models.values), self.n_leaves_
            schema.require(
                n_models == n_leaves, f"{where} has {n_models} models for {n_leaves} leaves"
            )

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        pairs = self._checked_pairs(X, y, reset=True)
        pairs, _, weights = counted(
            pairs, pairs, validation.fit_weights(self, sample_weight, pairs)
        )
        self._grow(self._features(pairs), np.zeros(len(pairs), dtype=np.int64), weights, 1)
        self._recent, self._older = (pairs, weights), None
        self._models = self._fitted(*self._placed())  # to all samples as they are
        self._sum_up()
        return self

    @estimators.validated
    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, as :meth:`ODATreeClusterer.partial_fit` does.

        A leaf's model is fitted as by :meth:`ODARegressor.partial_fit`.
        """
        first = not hasattr(self, "_tree")
        pairs = self._checked_pairs(X, y, reset=first)
        weights = validation.stream_weights(self, sample_weight, pairs, first=first)
        pairs, _, weights = counted(pairs, pairs, weights)
        if first:
            self._plant(1, self._features(pairs))
        points, classes = self._features(pairs), np.zeros(len(pairs), dtype=np.int64)
        self._tree.observe(self._samples(points, classes, weights))
        self._add(pairs, weights)
        return self
