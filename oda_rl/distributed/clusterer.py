"""Clusters of data that lie in blocks, by deterministic annealing with sums over all of them.

References
----------
[ODA-TNNLS] C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and
clustering", IEEE Transactions on Neural Networks and Learning Systems, 2023.
"""

from dataclasses import KW_ONLY
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from oda_rl._types import IntArray
from oda_rl._validation import checked_points, checked_weights
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.distributed.annealing import Distributed
from oda_rl.distributed.blocks import (
    Blocks,
    OneBlock,
    Rows,
    blocks_of,
    by_blocks,
    in_order,
    is_lazy,
)
from oda_rl.files.estimators import COUNT, estimator, validated
from oda_rl.samples import weighted


@estimator
class DistributedODAClusterer(Distributed, ODAClusterer):
    """Cluster a Dask array or frame by deterministic annealing, block by block where they lie.

    At each temperature every block adds up what it would give each codevector; the sums of all
    blocks move the codevectors, which split as the temperature falls. Rows stay where they are, but
    for a sample of about 50,000 (or 10 a codevector), on which ``fit`` begins to refine: it goes on
    with sums over all rows. Dask computes again what is lost with a worker. The same blocks and the
    same ``random_state`` give the same bits, whatever computes them.

    It needs ``pip install "oda-rl[cluster]"``. ``fit`` reads the data once a round, some dozens of
    times: call ``X.persist()`` before if the cluster has the memory.

    Parameters
    ----------
    n_clusters : int, default=8
        As for :class:`oda_rl.ODAClusterer`, and so are ``divergence``, ``min_temperature``,
        ``target_distortion``, ``max_samples``, ``cooling``, ``init`` and ``random_state``.
    samples_per_cluster : int, default=1000
        Rows that a round of annealing reads for each codevector, drawn in all blocks alike; a
        larger number than there are rows reads all of them.
    refine : bool, default=True
        Whether ``fit`` ends with exchanges of single points on a sample, and Lloyd's iteration on
        all rows (squared Euclidean and Mahalanobis divergences only).
    forgetting : float in [0, 1], default=0
        Of ``partial_fit``, as for :class:`oda_rl.ODAClusterer`.

    Attributes
    ----------
    codevectors_, cluster_centers_ : ndarray, shape (K, d)
        The codevectors.
    weights_ : ndarray, shape (K,)
        Share of the data that each stands for; they sum to 1.
    inertia_ : float
        Weighted sum of divergences of all rows from their codevectors.
    labels_ : ndarray, shape (n,)
        Cluster of each row, if X was no Dask collection; of those ask ``predict``.
    temperature_, history_, n_samples_seen_, n_features_in_, feature_names_in_
        As for :class:`oda_rl.ODAClusterer`.

    References
    ----------
    [ODA-TNNLS] algorithm 1 with one class, and sums in place of single samples: K. Rose,
    "Deterministic annealing for clustering, compression, classification, regression, and related
    optimization problems", Proceedings of the IEEE 86 (1998), 2210-2239.

    Examples
    --------
    >>> import dask.array as da
    >>> from oda_rl import DistributedODAClusterer
    >>> X = da.from_array([[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], chunks=(2, 2))
    >>> model = DistributedODAClusterer(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.round(6).tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> model.predict(X).chunks
    ((2, 2, 2),)
    """

    n_clusters: Annotated[int, COUNT] = 8
    _: KW_ONLY
    samples_per_cluster: Annotated[int, COUNT] = 1000

    @validated
    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Anneal by sums until there are ``n_clusters``.

        Parameters
        ----------
        X : Dask array or frame, or array-like, shape (n, d)
            Finite, in the domain of the divergence. What is no collection is one block.
        y : ignored
        sample_weight : Dask array, or array-like, shape (n,), optional
            At least 0; in the blocks of X.

        Raises
        ------
        ValueError
            If X is not that, or has fewer than ``n_clusters`` rows, or varies by less than 1e-140:
            squares vanish there.
        """
        blocks = self._opened(X, sample_weight)
        training = self._survey(blocks, None)
        n_rows, refines = int(training.moments.counts.sum()), self._refines()
        if is_lazy(X) and n_rows < self.n_clusters:
            raise ValueError(f"n_samples={n_rows} should be >= n_clusters={self.n_clusters}.")
        self._grow(training, refined=refines)
        sums = training.refine(self._annealer) if refines else training.ask(self._annealer, 0.0)
        self.inertia_ = float(sums.distortions.sum())
        self._annealer.settle(self.inertia_ / float(self._annealer.class_weights.sum()))
        self._publish()
        if not is_lazy(X):
            self.labels_ = self.predict(X)
        elif hasattr(self, "labels_"):
            del self.labels_
        self._warn_of_few(n_rows)
        return self

    def fit_predict(self, X: npt.ArrayLike, y: Any = None, **fit_params: Any) -> IntArray:
        """Fit, and return the cluster of each row, of a Dask collection lazily.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.
        **fit_params
            ``sample_weight``.

        Returns
        -------
        ndarray or dask.array.Array, shape (n,)
        """
        return self.fit(X, y, **fit_params).predict(X)

    partial_fit = in_order(ODAClusterer.partial_fit)
    predict = by_blocks(ODAClusterer.predict, lambda self: np.empty(0, np.int64))
    predict_proba = by_blocks(
        ODAClusterer.predict_proba, lambda self: np.empty((0, len(self.codevectors_)))
    )

    def score(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> float:
        """Opposite of the mean divergence from the nearest codevector.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n, d)
            Of a collection blocks answer with sums, too.
        y : ignored
        sample_weight : as X is, shape (n,), optional
            At least 0.
        """
        if not is_lazy(X):
            return super().score(X, y, sample_weight)
        check_is_fitted(self)
        sums = self._measured(blocks_of(self, X, None, sample_weight, reset=False))
        return -float(sums.distortions.sum() / sums.weights.sum())

    def _opened(self, X: Any, sample_weight: Any) -> Blocks:
        """Check rows that are here, and put them into an order of their own; or find the blocks."""
        if is_lazy(X):
            return blocks_of(self, X, None, sample_weight, reset=True)
        points = checked_points(self, X, reset=True)
        if len(points) < self.n_clusters:
            raise ValueError(f"n_samples={len(points)} should be >= n_clusters={self.n_clusters}.")
        data = weighted(points, checked_weights(sample_weight, points))
        return OneBlock(Rows(data.points, None, data.weights))
