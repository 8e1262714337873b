"""Clusters by online deterministic annealing.

One codevector becomes two, four, ... as the temperature falls, where the data ask for it: the
number of codevectors is the result of the annealing, and every stage of it stays available
(``history_``, ``at_level``).

References
----------
[ODA-TNNLS] C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and
clustering", IEEE Transactions on Neural Networks and Learning Systems, 2023.
"""

import warnings
from dataclasses import KW_ONLY
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning

from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import checked_points, checked_weights, chunks
from oda_rl.annealing.base import FAST, FASTEST, SAMPLES, SLOW, BaseODA
from oda_rl.annealing.levels import FEW_POINTS
from oda_rl.annealing.refinement import refine
from oda_rl.divergences import QUADRATIC, resolve
from oda_rl.files.estimators import (
    COUNT,
    FRACTION,
    NOT_NEGATIVE,
    Flag,
    estimator,
    validated,
    within,
)
from oda_rl.samples import observed_shares


@estimator
class ODAClusterer(ClusterMixin, BaseODA):
    """Cluster by online deterministic annealing.

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters to find. The codebook grows to twice as many (in proportion to fewer where
        ``fit`` refines and there are fewer than 20 distinct points a cluster), which are then
        merged, the cheapest pair first, and it goes on splitting and merging as long as that lowers
        the distortion by a tenth. Fewer come out if another criterion ends the annealing before, or
        if there are fewer distinct points.
    divergence : {"squared_euclidean", "i_divergence", "itakura_saito"} or Divergence
        How far a point is from a codevector; :mod:`oda_rl.divergences` has these, the Mahalanobis
        divergence, and ``BregmanDivergence`` for one of your own.
    min_temperature : float in [0, 1), default=0
        Annealing ends at this temperature, relative to the mean divergence of the data from their
        mean.
    target_distortion : float, default=0
        Annealing ends when the mean divergence from the nearest codevector is at most this.
    max_samples : int, optional
        Annealing ends when it has seen so many samples, each time a sample is drawn counted.
    cooling : float in (0, 1), optional
        Factor of the temperature from one level to the next: 0.8 by default, and where ``fit``
        refines, which makes good for it, 0.6, or 0.5 of fewer than 20 points a cluster.
    samples_per_cluster : int, optional
        Samples that a level has for each codevector: 20 by default, and where ``fit`` refines so
        few that 2 ``n_clusters`` codevectors see each distinct point about once.
    forgetting : float in [0, 1], default=0
        A codevector goes at least this share of the way to each sample of its own: with more than 0
        a cluster that moves is followed. 0 averages over all that was seen at a temperature.
    refine : bool, default=True
        Whether ``fit`` ends with exchanges of single points between clusters until none lowers the
        distortion (squared Euclidean and Mahalanobis divergences only). Where values are missing
        that is the distortion in what is observed.
    init : array-like, shape (k, d), optional
        Codevectors to start from, instead of the mean.
    random_state : int, RandomState instance or None
        Order of the samples, and the shifts of splits.

    Attributes
    ----------
    codevectors_, cluster_centers_ : ndarray, shape (K, d)
        The codevectors.
    codevector_labels_ : ndarray, shape (K,)
        The cluster of each: 0 to K - 1.
    weights_ : ndarray, shape (K,)
        Share of the data that each stands for; they sum to 1.
    labels_ : ndarray, shape (n,)
        Cluster of each point of the last ``fit``.
    inertia_ : float
        Weighted sum of divergences of the points of the last ``fit`` from their codevectors.
    temperature_ : float
        Temperature that has been reached.
    history_ : list of Level
        For each temperature level: temperature, number of codevectors, distortion, samples seen,
        codevectors, weights and lineage; see :class:`oda_rl.annealing.levels.Level`.
    n_samples_seen_ : int
        Samples learned from, each time one is drawn counted.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray, shape (d,)
        Names of the features, where X had names.

    References
    ----------
    [ODA-TNNLS] algorithm 1, with one class.

    Examples
    --------
    >>> import numpy as np
    >>> from oda_rl import ODAClusterer
    >>> X = np.array([[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> model = ODAClusterer(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.round(6).tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> bool(model.predict([[0, 0]])[0] == model.labels_[0])
    True
    """

    n_clusters: Annotated[int, COUNT] = 8
    _: KW_ONLY
    min_temperature: Annotated[float, within("[0, 1)")] = 0.0
    target_distortion: Annotated[float, NOT_NEGATIVE] = 0.0
    cooling: Annotated[float | None, FRACTION, None] = None
    samples_per_cluster: Annotated[int | None, COUNT, None] = None
    refine: Flag = True

    @validated
    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Anneal on samples drawn from X until there are ``n_clusters``.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence; NaN where values are missing, which the
            squared Euclidean one takes.
        y : ignored
        sample_weight : array-like, shape (n,), optional
            At least 0; a weight of 2 is the same as a row that stands there twice.

        Raises
        ------
        ValueError
            If X is not that, or has fewer than ``n_clusters`` rows.
        """
        points = checked_points(self, X, reset=True)
        if len(points) < self.n_clusters:
            raise ValueError(f"n_samples={len(points)} should be >= n_clusters={self.n_clusters}.")
        weights = checked_weights(sample_weight, points)
        refines = self._refines()
        data = self._anneal(points, np.zeros(len(points), dtype=np.int64), weights, refined=refines)
        current = self._annealer
        if refines:
            rng = np.random.default_rng(len(data.points))
            codevectors = refine(data.points, data.weights, current.codevectors, rng)
            current.replace(codevectors, np.full(len(codevectors), 1.0 / len(codevectors)))
        embedded = current.divergence.embed(points)
        self.labels_ = self._nearest(embedded, current.codevectors)
        if refines:
            masses = np.bincount(self.labels_, weights, len(current.codevectors))
            current.masses = masses / masses.sum()
        self._publish()
        self.inertia_ = float(self._distances(embedded, self.labels_) @ weights)
        current.settle(self.inertia_ / float(weights.sum()))
        self._warn_of_few(len(data.points))
        return self

    @validated
    def partial_fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, each once, in their order.

        Sample by sample or in blocks is the same. The first 100 samples give the scale. After
        ``fit`` steps are as short as after all of its samples.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.
        sample_weight : array-like, shape (n,), optional
            At least 0: how many times as long each sample's step is.
        """
        points = checked_points(self, X, reset=not hasattr(self, "_annealer"))
        weights = checked_weights(sample_weight, points)
        self._stream(points, np.zeros(len(points), dtype=np.int64), weights, labelled=False)
        self._publish(self._max_codevectors(1))
        return self

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Nearest codevector of each point.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n,)
            From 0 to K - 1.
        """
        points = self._embedded(X)
        return self._nearest(points, self._own())

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Gibbs association of points with codevectors at the temperature that was reached.

        Returns
        -------
        ndarray, shape (n, K)
            Rows sum to 1. [ODA-TNNLS] eq. 9.
        """
        return self._of_each(self._embedded(X), self._associations)

    def _associations(self, points: FloatArray, divergences: FloatArray) -> FloatArray:
        scores = divergences * observed_shares(points)  # what is missing says nothing
        scores -= scores.min(axis=1, keepdims=True)
        temperature = self.temperature_
        shares = (scores == 0.0) * 1.0 if temperature == 0.0 else np.exp(-scores / temperature)
        shares *= self.weights_
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def score(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> float:
        """Opposite of the mean divergence from the nearest codevector."""
        points = self._embedded(X)
        weights = checked_weights(sample_weight, points)
        distances = self._distances(points, self._nearest(points, self._own()))
        return -float(np.average(distances, weights=weights))

    def _distances(self, points: FloatArray, cells: IntArray) -> FloatArray:
        """Divergence of each embedded point from the codevector of its cell, shape (n,)."""
        own, rowwise = self._own(), self._annealer.divergence.rowwise
        parts = [rowwise(points[rows], own[cells[rows]]) for rows in chunks(len(points))]
        return np.concatenate(parts)

    def _warn_of_few(self, distinct: int) -> None:
        """Warn if there were too few distinct points."""
        if distinct < self.n_clusters:
            warnings.warn(
                f"Number of distinct clusters ({len(self.codevectors_)}) found smaller than "
                f"n_clusters ({self.n_clusters}): X has {distinct} distinct points.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _refines(self) -> bool:
        return self.refine and resolve(self.divergence).kernel == QUADRATIC

    def _pace(self, refined: bool, n_points: float) -> tuple[float, int]:
        cooling, samples = SLOW, SAMPLES
        if refined:
            cooling = FASTEST if n_points < FEW_POINTS * self.n_clusters else FAST
            samples = int(min(max(n_points / (2 * self.n_clusters), 1), SAMPLES))
        return (
            cooling if self.cooling is None else float(self.cooling),
            samples if self.samples_per_cluster is None else int(self.samples_per_cluster),
        )

    def _publish(self, limit: int | None = None) -> None:
        super()._publish(limit)
        self.codevector_labels_ = np.arange(len(self.codevectors_))
