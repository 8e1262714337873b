"""Base class of trees of annealed codebooks: coarse at the top, finer below.

A codebook of a few codevectors divides the data, and each of its cells is divided by another
codebook, annealed on the samples of that cell alone, and so on. Each level may see the data at
another resolution: some of the features, or a transform of them. A point finds its cell in depth
times branching comparisons, however many cells there are.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from oda_rl import divergences
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import WEIGHED, TakesMissing, check_columns, fitted_points
from oda_rl.annealing.base import is_wide, log_density, normal_log_density
from oda_rl.annealing.levels import Distribution
from oda_rl.divergences import NAMED, QUADRATIC, Divergence
from oda_rl.files.estimators import COUNT, FRACTION, NOT_NEGATIVE, Filed, Seed, estimator
from oda_rl.files.schema import Each, Optional, Sizes, real, require, whole
from oda_rl.samples import counted, filled
from oda_rl.trees.growth import Plan, Tree
from oda_rl.trees.nodes import Cells, Node, Partial, Samples, Statistics


@dataclass(frozen=True)
class TreeLevel:
    """The tree cut at a depth."""

    depth: int
    """Codebooks from the root to the deepest leaf."""
    n_leaves: int
    """Number of leaves."""
    distortion: float
    """Mean divergence of all samples, in the full space, from the means of these leaves."""
    n_samples: float
    """Effective number of samples in nodes at this depth."""


_KINDS: tuple[type, ...] = (
    *(Tree, Plan, Node, Cells, Statistics, Partial),
    divergences.Mahalanobis,
    *NAMED.values(),
)
_STORED = {kind.__name__: kind for kind in _KINDS}

Resolution = IntArray | Callable[[FloatArray], Any]


@estimator
class BaseODATree(Filed, ClassNamePrefixFeaturesOutMixin, TransformerMixin, TakesMissing):
    """Base of the estimators with a :class:`oda_rl.trees.growth.Tree`."""

    branching: Annotated[int, Interval(Integral, 2, None, closed="left")] = 4
    _: KW_ONLY
    max_depth: Annotated[int, COUNT] = 4
    min_samples_split: Annotated[float, NOT_NEGATIVE] = 20
    resolutions: Annotated[Any, list, tuple, None] = None
    divergence: Annotated[str | Divergence, StrOptions(set(NAMED)), Divergence] = (
        "squared_euclidean"
    )
    cooling: Annotated[float, FRACTION] = 0.8
    samples_per_cluster: Annotated[int, COUNT] = 20
    random_state: Seed = None
    _supervised = False
    _stored = _STORED

    _tree: Tree = field(init=False)
    _resolutions: list[Resolution] = field(init=False)
    _widths: list[int] = field(init=False)
    _low: FloatArray = field(init=False)
    _high: FloatArray = field(init=False)

    _LEARNED: ClassVar[dict[str, Any]] = {
        "_tree": Optional(Tree),
        "_resolutions": Optional(Each(whole("width", "[0, d)"))),
        "_widths": Optional(Each(whole("", "[1, inf)"))),
        "labels_": Optional(whole("n")),
        "_weighed": WEIGHED,
        "_low": Optional(real("d")),
        "_high": Optional(real("d")),
    }
    """Schema of the learned attributes in a file; parameters have their own ranges."""

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError unless the attributes in a file are consistent."""
        learned = [name for name in ("_tree", "_resolutions", "_widths") if hasattr(self, name)]
        require(len(learned) in (0, 3), f"{where} has been fitted by half")
        if learned:
            widths = [len(one) for one in self._resolutions if isinstance(one, np.ndarray)]
            require(min(widths, default=0) > 0, f"{where}._resolutions have no features")
            require(
                self._widths in ([], widths), f"{where}._widths is {self._widths}: not {widths}"
            )
            require(len(self._tree.nodes) > 0, f"{where}._tree has no root")
            sizes["tree_classes"] = len(self._tree.nodes[0].statistics.class_weights)
            self._tree.check_nodes(widths, sizes, f"{where}._tree")
            kernel = divergences.resolve(self.divergence).kernel
            same = kernel == self._tree.plan.divergence.kernel
            require(same, f"{where}.divergence is not that of the tree")

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
        """For each depth, the tree cut there."""
        return [self._level(depth) for depth in range(self.depth_ + 1)]

    def _takes_missing(self) -> bool:
        return divergences.is_euclidean(self.divergence)

    def apply(self, X: npt.ArrayLike) -> IntArray:
        """Leaf of each point, found in depth times branching comparisons.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence. With the squared Euclidean one values may be missing
            (NaN): cells are compared by the observed features of their level, and the heaviest is
            taken if there are none.

        Returns
        -------
        ndarray, shape (n,)
            From 0 to ``n_leaves_`` - 1: an index into ``codevectors_``.
        """
        nodes = self._nodes(fitted_points(self, X))
        return self._tree.table.leaf_numbers[nodes]

    @property
    def _n_features_out(self) -> int:
        return self.n_leaves_

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Distances of points, in the full space, from the codevectors of the leaves.

        Divergences, if these are not squared distances.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence. With the squared Euclidean one values may be missing
            (NaN): distances are those in the observed features, times d over their number.

        Returns
        -------
        ndarray, shape (n, K)
        """
        points, table = fitted_points(self, X), self._tree.table
        divergence = self._tree.plan.divergence
        divergence.check(points)
        found = divergence.between(divergence.embed(points), table.means[table.is_leaf])
        return np.sqrt(found) if divergence.kernel == QUADRATIC else found

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Log-density of the histogram over the leaves: mass by volume.

        Parameters, shapes and errors are those of :meth:`oda_rl.ODAClusterer.score_samples`.
        """
        points, table = fitted_points(self, X), self._tree.table
        embed = self._tree.plan.divergence.embed
        if is_wide(self._low, self._high) and self._tree.plan.refines:
            distortion = self.history_[-1].distortion or 1.0
            means = table.means[table.is_leaf]
            logs = normal_log_density(embed(points), means, self.weights_, distortion)
            return np.asarray(logs + np.linalg.slogdet(embed(np.eye(points.shape[1])))[1])

        def assign(points: FloatArray) -> IntArray:
            return table.leaf_numbers[self._nodes(points)]

        return log_density(points, assign, self.weights_, self._low, self._high)

    def at_level(self, level: int | None = None, *, n_clusters: int | None = None) -> Self:
        """Return the model whose tree is cut at a depth, without refitting.

        It is independent of this one, and ``partial_fit`` lets it grow again.

        Parameters
        ----------
        level : int, optional
            The depth, from 0, which leaves the root alone, to ``depth_``.
        n_clusters : int, optional
            Instead: the largest number of leaves, ≥ 1.

        Raises
        ------
        ValueError
            If not exactly one of the two is given, or there is no such level.
        """
        check_is_fitted(self)
        if (level is None) == (n_clusters is None):
            raise ValueError("give either level or n_clusters")
        if n_clusters is not None:
            if n_clusters < 1:
                raise ValueError(f"n_clusters must be at least 1, got {n_clusters}")
            level = max(one.depth for one in self.history_ if one.n_leaves <= n_clusters)
        depth = int(level)  # type: ignore[arg-type]
        if not 0 <= depth <= self.depth_:
            raise ValueError(f"level must be from 0 to {self.depth_}, got {depth}")
        model = copy.copy(self)
        model._tree = self._tree.cut(depth)
        model.__dict__.pop("labels_", None)
        return model

    def _closed(self) -> Self:
        model = copy.copy(self)
        if hasattr(model, "_tree"):
            model._tree.forget_table()
        if model.resolutions is not None:
            model.resolutions = [
                entry if callable(entry) else list(entry) for entry in model.resolutions
            ]
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
        """Make the root."""
        check_columns(self, points)
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
        views = []
        for i, resolution in enumerate(self._resolutions[:depth]):
            width = self._widths[i] if self._widths else None
            views.append(_view(points, resolution, i, width, self._tree.plan.divergence))
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
            n_leaves=int(leaves.sum()),
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
    indices = []
    for feature in entry:
        if isinstance(feature, str):
            if names is None or feature not in names:
                known = "has no names" if names is None else f"has {', '.join(names)}"
                raise ValueError(f"{where} has feature {feature!r}, but X {known}")
            indices.append(int(np.flatnonzero(names == feature)[0]))
        elif isinstance(feature, bool | np.bool_) or not isinstance(feature, Integral):
            raise TypeError(f"{where} must have indices or names of features, got {feature!r}")
        elif not 0 <= int(feature) < n_features:
            raise ValueError(f"{where} must have indices from 0 to {n_features - 1}, got {feature}")
        else:
            indices.append(int(feature))
    if not indices:
        raise ValueError(f"{where} must name at least one feature, got none")
    return np.array(indices)


def _view(
    points: FloatArray, resolution: Resolution, i: int, width: int | None, divergence: Divergence
) -> FloatArray:
    """Points, shape (n, d), as level ``i`` sees them, in the divergence's coordinates.

    ``width`` is the number of features that the level had before, if it is not new.
    """
    if callable(resolution):
        view = _transformed(points, resolution, i)
    else:
        view = points.take(resolution, axis=1)
    if width is not None and view.shape[1] != width:
        raise ValueError(
            f"resolutions[{i}] must return {width} features as before, got {view.shape[1]}"
        )
    try:
        divergence.check(view)
    except ValueError as error:
        raise ValueError(f"at level {i} of the tree: {error}") from error
    return divergence.embed(view)


def _transformed(points: FloatArray, transform: Callable[[FloatArray], Any], i: int) -> FloatArray:
    returned = transform(points.copy())  # it may change its argument
    try:
        view = np.ascontiguousarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"resolutions[{i}] must return numbers: {error}") from error
    if view.ndim != 2 or len(view) != len(points) or view.shape[1] == 0:
        raise ValueError(
            f"resolutions[{i}] must return shape ({len(points)}, d'), got {np.shape(returned)}"
        )
    incomplete = np.isnan(points).any(axis=1, keepdims=True)
    if not np.isfinite(filled(view, np.where(incomplete, 0.0, np.nan))).all():
        raise ValueError(
            f"resolutions[{i}] must return finite numbers, got NaN or infinity: only for a sample "
            "of which values are missing may they be NaN"
        )
    return view
