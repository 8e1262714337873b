"""Clusters by a tree of annealed codebooks.

References
----------
[MR-ODA] C. N. Mavridis, J. S. Baras, "Multi-resolution online deterministic annealing: a
hierarchical and progressive learning architecture".
"""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClusterMixin

from oda_rl._types import IntArray
from oda_rl._validation import checked_points, checked_weights, fitted_points
from oda_rl.files.estimators import validated
from oda_rl.trees.base import BaseODATree


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
    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Anneal level after level.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence; NaN where values are missing, which only the
            squared Euclidean divergence takes.
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
    def partial_fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, each once, in their order.

        A sample goes down to a leaf. When a leaf has 100 samples its annealing begins, and when
        that has ended its cells are leaves in turn. Sample by sample or in blocks is the same.

        Parameters
        ----------
        X : array-like, shape (n, d)
            As for :meth:`fit`.
        y : ignored
        sample_weight : array-like, shape (n,), optional
            At least 0: how many times as long each sample's step is.
        """
        first = not hasattr(self, "_tree")
        points = checked_points(self, X, reset=first)
        weights = checked_weights(sample_weight, points)
        shown = weights > 0.0
        if first:
            self._plant(1, points[shown])
        classes = np.zeros(int(shown.sum()), dtype=np.int64)
        self._tree.observe(self._samples(points[shown], classes, weights[shown]))
        self.__dict__.pop("labels_", None)
        return self

    def predict(self, X: npt.ArrayLike) -> IntArray:
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

    def score(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> float:
        """Opposite of the mean divergence, in the full space, from the codevector of the leaf."""
        points = fitted_points(self, X)
        weights = checked_weights(sample_weight, points)
        divergence = self._tree.plan.divergence
        divergence.check(points)
        means = self._tree.table.means[self._nodes(points)]
        distances = divergence.rowwise(divergence.embed(points), means)
        return -float(np.average(distances, weights=weights))
