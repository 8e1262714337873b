"""Regression by a tree of annealed codebooks: a model of the target in each leaf.

References
----------
[MR-ODA] C. N. Mavridis, J. S. Baras, "Multi-resolution online deterministic annealing: a
hierarchical and progressive learning architecture".
[ODA-RL] C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with
stochastic approximation".
"""

from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils._param_validation import StrOptions

from oda_rl._types import FloatArray
from oda_rl._validation import checked_targets, checked_weights, fitted_points
from oda_rl.annealing.regressor import LocalModels, fit_local_models
from oda_rl.files.estimators import estimator, validated
from oda_rl.files.schema import MISSING, Optional, Several, Sizes, real, require
from oda_rl.samples import filled
from oda_rl.trees.base import BaseODATree

_RECENT = 5000  # samples that are kept: models of a stream, and of a tree that is cut, are of these


@estimator
class ODATreeRegressor(RegressorMixin, BaseODATree):
    """Regress by a model in each leaf of a tree of annealed codebooks, coarse to fine.

    The codebooks do not look at the target.

    Parameters
    ----------
    branching, max_depth, min_samples_split, resolutions, divergence, cooling, samples_per_cluster
        As for :class:`ODATreeClusterer`.
    local_model : {"linear", "constant"}, default="linear"
        What is fitted in a leaf. Linear models of leaves with few points lean on the slopes that
        all leaves have in common.
    random_state : int, RandomState instance or None
        As for :class:`ODATreeClusterer`.

    Attributes
    ----------
    codevector_labels_ : ndarray, shape (K,)
        Mean of the target in each leaf.
    slopes_ : ndarray, shape (K, d)
        Change of the prediction for each feature in each leaf; zeros for constants.
    codevectors_, weights_, n_leaves_, depth_, history_, n_features_in_, feature_names_in_
        As for :class:`ODATreeClusterer`.

    References
    ----------
    [MR-ODA], with local models over the leaves as over the cells of [ODA-RL], section on
    regression.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0.0, 6.0, 500)[:, None]
    >>> model = ODATreeRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.99
    True
    >>> model.at_depth(1).n_leaves_
    4
    """

    _: KW_ONLY
    local_model: Annotated[str, StrOptions({"constant", "linear"})] = "linear"

    LEARNED: ClassVar[dict[str, Any]] = {
        **BaseODATree.LEARNED,
        "codevector_labels_": Optional(real("leaves")),
        "slopes_": Optional(real("leaves, d")),
        "_centres": Optional(real("leaves, d")),
        "_recent": Optional(Several(real("recent, d+1", MISSING), real("recent", "[0, inf)"))),
    }

    def check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError if what a file says does not belong together."""
        super().check_contents(sizes, where)
        models = ("codevector_labels_", "slopes_", "_centres", "_recent")
        learned = [name for name in models if hasattr(self, name)]
        complete = len(models) if hasattr(self, "_tree") else 0
        require(len(learned) == complete, f"{where} has of {models} only {learned}")
        if learned:
            n_models, n_leaves = len(self.codevector_labels_), self.n_leaves_
            require(n_models == n_leaves, f"{where} has {n_models} models for {n_leaves} leaves")

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Anneal level after level on X, and fit the model of each leaf.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence; NaN where values are missing, which only the
            squared Euclidean divergence takes. A leaf's linear model takes its mean for these.
        y : array-like, shape (n,)
            Finite.
        sample_weight : array-like, shape (n,), optional
            At least 0; a weight of 2 is the same as a row that stands there twice.

        Raises
        ------
        ValueError
            If X and y are not that, or a resolution can't be had from X.
        TypeError
            If a resolution is neither a function nor a sequence of features.
        """
        pairs, weights = self._checked_pairs(X, y, sample_weight, reset=True)
        points = np.ascontiguousarray(pairs[:, :-1])
        self._grow(points, np.zeros(len(pairs), dtype=np.int64), weights, 1)
        self._remember(pairs, weights)
        return self

    @validated
    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, each once, in their order.

        The tree grows as that of :class:`ODATreeClusterer` does; the models of its leaves are
        fitted to the last 5000 samples.

        Parameters
        ----------
        X, y : array-like, shapes (n, d) and (n,)
            As for :meth:`fit`.
        sample_weight : array-like, shape (n,), optional
            At least 0: how many times as long each sample's step is.
        """
        first = not hasattr(self, "_tree")
        pairs, weights = self._checked_pairs(X, y, sample_weight, reset=first)
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
        """Prediction of the model of each point's leaf.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n,)
        """
        points = fitted_points(self, X)
        models = LocalModels(self.codevector_labels_, self.slopes_, self._centres)
        leaves = self._tree.table.leaf_numbers[self._nodes(points)]
        return models.predict(filled(points, self._centres[leaves]), leaves)

    def at_depth(self, depth: int) -> Self:
        """Return the model whose tree is cut at a depth; models are of the last 5000 samples.

        As :meth:`ODATreeClusterer.at_depth`.
        """
        model = super().at_depth(depth)
        model._remember(*self._recent)
        return model

    def _checked_pairs(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Return points and targets, shape (n, d + 1), and weights; those of 0 are left out."""
        pairs = np.column_stack(checked_targets(self, X, y, reset=reset))
        weights = checked_weights(sample_weight, pairs)
        shown = weights > 0.0
        return pairs[shown], weights[shown]

    def _remember(self, pairs: FloatArray, weights: FloatArray) -> None:
        """Fit the models to samples, shape (n, d + 1), of which the last ones are kept."""
        points, targets = pairs[:, :-1], pairs[:, -1]
        leaves = self._tree.table.leaf_numbers[self._nodes(np.ascontiguousarray(points))]
        values = np.full(self.n_leaves_, np.average(targets, weights=weights))
        known = filled(points, self.codevectors_[leaves])
        models = fit_local_models(
            known, targets, weights, leaves, values, linear=self.local_model == "linear"
        )
        self.codevector_labels_, self.slopes_, self._centres = models
        self._recent = pairs[-_RECENT:], weights[-_RECENT:]
