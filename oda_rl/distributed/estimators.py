"""Clusterer and classifier of data in blocks, by deterministic annealing with sums over them."""

from dataclasses import KW_ONLY
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from oda_rl._types import IntArray
from oda_rl._validation import checked_labels, checked_points, given_weights
from oda_rl.annealing.annealer import PROBE
from oda_rl.annealing.classifier import ODAClassifier
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.annealing.levels import Distribution
from oda_rl.distributed.annealing import Distributed
from oda_rl.distributed.blocks import (
    Blocks,
    OneBlock,
    Rows,
    bare,
    blocks_of,
    by_blocks,
    in_order,
    is_lazy,
)
from oda_rl.distributed.sums import labels_of, scored
from oda_rl.files.estimators import COUNT, estimator, validated
from oda_rl.samples import counted, weighted


@estimator
class DistributedODAClusterer(Distributed, ODAClusterer):
    """Cluster a Dask array or frame by deterministic annealing, with sums over its blocks.

    At each temperature the sums of all blocks move the codevectors, which split as the temperature
    falls. Rows stay where they are, except for a sample of about 50,000 (or 10 a codevector), on
    which refinement begins; it goes on with sums over all rows. Dask recomputes what is lost with a
    worker. The same blocks and ``random_state`` give the same bits on any cluster.

    It needs ``pip install "oda-rl[cluster]"``. ``fit`` reads the data once a round, some dozens of
    times: call ``X.persist()`` before if the cluster has the memory.

    Parameters
    ----------
    n_clusters : int, default=8
        As for :class:`oda_rl.ODAClusterer`, and so are ``divergence``, ``min_temperature``,
        ``target_distortion``, ``max_samples``, ``cooling``, ``init`` and ``random_state``.
    samples_per_cluster : int, default=1000
        Rows that a round of annealing reads for each codevector, drawn from all blocks.
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
        Share of the data of each; they sum to 1.
    inertia_ : float
        Weighted sum of divergences of all rows from their codevectors.
    labels_ : ndarray, shape (n,)
        Cluster of each row; not for Dask collections.
    temperature_, history_, n_samples_seen_, n_features_in_, feature_names_in_
        As for :class:`oda_rl.ODAClusterer`.

    References
    ----------
    As :class:`oda_rl.ODAClusterer`, with sums in place of single samples: K. Rose, "Deterministic
    annealing for clustering, compression, classification, regression, and related optimization
    problems", Proceedings of the IEEE 86 (1998), 2210-2239.

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
            Finite, in the domain of the divergence.
        y : ignored
        sample_weight : Dask array, or array-like, shape (n,), optional
            At least 0; in the blocks of X.

        Raises
        ------
        ValueError
            If X is invalid, has fewer than ``n_clusters`` rows, or varies by less than 1e-140.
        """
        blocks = self._opened(X, sample_weight)
        training = self._survey(blocks, None)
        n_rows, refines = int(training.moments.counts.sum()), self._refines()
        if is_lazy(X) and n_rows < self.n_clusters:
            raise ValueError(f"n_samples={n_rows} should be >= n_clusters={self.n_clusters}.")
        self._grow(training, refined=refines)
        sums = training.refine(self._annealer) if refines else training.ask(self._annealer, 0.0)
        self.inertia_ = float(sums.distortions.sum())
        self._annealer.settle(self.inertia_ / float(sums.weights.sum()))
        self._publish()
        if not is_lazy(X):
            self.labels_ = self.predict(X)
        elif hasattr(self, "labels_"):
            del self.labels_
        self._warn_of_few(n_rows)
        return self

    def fit_predict(self, X: npt.ArrayLike, y: Any = None, **fit_params: Any) -> IntArray:
        """Fit, and return the cluster of each row, of a Dask collection lazily."""
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
        """Return the blocks of a collection, or checked rows in canonical order."""
        if is_lazy(X):
            return blocks_of(self, X, None, sample_weight, reset=True)
        points = checked_points(self, X, reset=True)
        if len(points) < self.n_clusters:
            raise ValueError(f"n_samples={len(points)} should be >= n_clusters={self.n_clusters}.")
        data = weighted(points, given_weights(sample_weight, points))
        return OneBlock(Rows(data.points, None, data.weights))


@estimator
class DistributedODAClassifier(Distributed, ODAClassifier):
    """Classify a Dask array or frame by deterministic annealing of a codebook for each class.

    As for :class:`DistributedODAClusterer`, blocks return sums for each codevector. The steps of
    :class:`oda_rl.ODAClassifier` after annealing, the temperature of prediction and fine-tuning,
    and the choice of ``n_clusters="auto"`` use a sample of about 50,000 rows (or 10 a codevector),
    in which rare classes have more than their shares, with lower weights.

    Parameters
    ----------
    n_clusters : int or "auto", default=40
        As for :class:`oda_rl.ODAClassifier`, and so are all that are not listed here.
    samples_per_cluster : int, default=1000
        Rows that a round of annealing reads for each codevector, drawn from all blocks.
    forgetting : float in [0, 1], default=0
        Of ``partial_fit``, as for :class:`oda_rl.ODAClusterer`.

    Attributes
    ----------
    classes_, codevectors_, cluster_centers_, codevector_labels_, weights_, class_prior_
        As for :class:`oda_rl.ODAClassifier`, and so are ``temperature_``, ``history_``,
        ``n_samples_seen_``, ``prediction_temperature_``, ``best_params_``, ``n_features_in_`` and
        ``feature_names_in_``.

    References
    ----------
    As :class:`oda_rl.ODAClassifier`, with sums in place of single samples.

    Examples
    --------
    >>> import dask.array as da
    >>> from sklearn.datasets import make_moons
    >>> from oda_rl import DistributedODAClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> X, y = da.from_array(X, chunks=(100, 2)), da.from_array(y, chunks=100)
    >>> model = DistributedODAClassifier(n_clusters=12, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.98
    True
    """

    n_clusters: Annotated[int | str, COUNT, StrOptions({"auto"})] = 40
    _: KW_ONLY
    samples_per_cluster: Annotated[int, COUNT] = 1000

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Anneal a codebook for each class by sums, then fine-tune on a sample.

        Parameters
        ----------
        X : Dask array or frame, or array-like, shape (n, d)
            Finite, in the domain of the divergence.
        y : Dask array, or array-like, shape (n,)
            Numbers or strings; in the blocks of X.
        sample_weight : Dask array, or array-like, shape (n,), optional
            At least 0; in the blocks of X.

        Raises
        ------
        ValueError
            If X or y is invalid, there is only one class, or X varies by less than 1e-140.
        """
        blocks = self._opened(X, y, sample_weight)
        self._seen, self._promised = self.classes_.tolist(), []
        self._check_fine_tuning()
        training = self._survey(blocks, self.classes_)
        sample = training.sample(self._max_codevectors(len(self.classes_)))[0]
        rng = np.random.default_rng([training.seed, 1])
        rows = sample.points, sample.classes, sample.weights
        data = Distribution(*rows, rng, self.n_features_in_)
        chosen, caution = self._settings(*rows)
        probe = data.spread(PROBE)
        self._grow(training, refined=False, probe=(data.points[probe], data.classes[probe]))
        self._conclude(data, chosen, caution)
        self._publish()
        return self

    partial_fit = in_order(ODAClassifier.partial_fit)
    predict = by_blocks(ODAClassifier.predict, lambda self: np.empty(0, self.classes_.dtype))
    predict_proba = by_blocks(
        ODAClassifier.predict_proba, lambda self: np.empty((0, len(self.classes_)))
    )

    def score(self, X: npt.ArrayLike, y: Any, sample_weight: Any = None) -> float:
        """Weighted accuracy.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n, d)
        y, sample_weight : as X is, shape (n,)
            Labels, and weights at least 0.
        """
        if not is_lazy(X):
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        blocks = blocks_of(self, X, y, sample_weight, reset=False)
        return blocks.total(partial(scored, model=bare(self))).mean

    def _opened(self, X: Any, y: Any, sample_weight: Any) -> Blocks:
        """Return the blocks of a collection, or checked rows in canonical order; set classes."""
        if is_lazy(X):
            if y is None:
                raise ValueError("y is None: it must hold the classes of the rows of X")
            blocks: Blocks = blocks_of(self, X, y, sample_weight, reset=True)
            self.classes_ = labels = blocks.total(labels_of).values
            check_classification_targets(labels)
        else:
            points, labels = checked_labels(self, X, y, reset=True)
            weights = given_weights(sample_weight, points)
            points, labels, weights = counted(points, labels, weights)
            self.classes_, classes = np.unique(labels, return_inverse=True)
            data = weighted(points, weights, classes.astype(np.int64))
            blocks = OneBlock(Rows(data.points, self.classes_[data.classes], data.weights))
        self._labels_are_objects = labels.dtype == object
        if len(self.classes_) < 2:
            raise ValueError(
                "This solver needs samples of at least 2 classes in the data, but the data "
                f"contains only one class: {self.classes_[0]!r}"
            )
        return blocks
