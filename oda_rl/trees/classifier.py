"""Classes by a tree of annealed codebooks.

References
----------
[MR-ODA] C. N. Mavridis, J. S. Baras, "Multi-resolution online deterministic annealing: a
hierarchical and progressive learning architecture".
"""

from dataclasses import KW_ONLY, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import checked_labels, checked_weights, fitted_points
from oda_rl.files.estimators import NOT_NEGATIVE, estimator, validated
from oda_rl.files.schema import ANYTHING, Optional, Sizes, check_classes
from oda_rl.trees.base import BaseODATree


@estimator
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
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = ODATreeClassifier(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.98
    True
    >>> model.at_depth(1).n_leaves_
    4
    """

    _supervised = True

    LEARNED: ClassVar[dict[str, Any]] = {
        **BaseODATree.LEARNED,
        "classes_": Optional(ANYTHING),
        "_seen": Optional(ANYTHING),
    }

    def check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError if what a file says does not belong together."""
        super().check_contents(sizes, where)
        if hasattr(self, "_tree"):
            check_classes(self._seen, self.classes_, sizes["tree_classes"])

    _seen: list[Any] = field(init=False)

    _: KW_ONLY
    min_samples_split: Annotated[float, NOT_NEGATIVE] = 5

    @property
    def leaf_probabilities_(self) -> FloatArray:
        """What each leaf predicts, shape (K, C)."""
        table = self._tree.table
        return np.asarray(table.shares[table.is_leaf][:, self._order()])

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Anneal level after level, where there is more than one class.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence; NaN where values are missing, which only the
            squared Euclidean divergence takes.
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
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        classes: npt.ArrayLike | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from one sample or many, each once, in their order; new classes are welcome.

        The tree grows as that of :class:`ODATreeClusterer` does, where there is more than one
        class. Sample by sample or in blocks is the same.

        Parameters
        ----------
        X, y : array-like, shapes (n, d) and (n,)
            As for :meth:`fit`.
        classes : ignored
            Classes are known when they are seen.
        sample_weight : array-like, shape (n,), optional
            At least 0: how many times as long each sample's step is.
        """
        first = not hasattr(self, "_tree")
        points, labels, weights = self._checked_all(X, y, sample_weight, reset=first)
        if first:
            self._plant(0, points)
            self._seen = []
        known = {label: index for index, label in enumerate(self._seen)}
        indices = [known.setdefault(label, len(known)) for label in labels.tolist()]
        samples = self._samples(points, np.array(indices), weights)
        self._tree.add_classes(len(known) - len(self._seen))
        self._seen = list(known)
        self.classes_ = np.unique(self._as_labels(self._seen, labels.dtype))
        self._tree.observe(samples)
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
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
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
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        reset: bool,
    ) -> tuple[FloatArray, Array, FloatArray]:
        """Return points, labels and weights, those of weight 0 left out."""
        points, labels = checked_labels(self, X, y, reset=reset)
        weights = checked_weights(sample_weight, points)
        shown = weights > 0.0
        return points[shown], labels[shown], weights[shown]

    @staticmethod
    def _as_labels(labels: list[Any], dtype: np.dtype[Any]) -> Array:
        return np.array(labels, dtype=object if dtype.kind == "O" else None)

    def _order(self) -> IntArray:
        """Sort the classes as they were first seen into the order of ``classes_``."""
        return np.argsort(self._as_labels(self._seen, self.classes_.dtype))
