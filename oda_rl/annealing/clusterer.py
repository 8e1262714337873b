"""Clustering by online deterministic annealing."""

import warnings
from dataclasses import KW_ONLY, field, replace
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning

from oda_rl import _validation as validation
from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.annealer import FAST_COOLING, FEW_CLUSTERS, FEW_POINTS, NEGLIGIBLE
from oda_rl.annealing.base import BaseODA
from oda_rl.annealing.refinement import refine
from oda_rl.divergences import QUADRATIC, TINY, resolve
from oda_rl.files import estimators
from oda_rl.files.schema import ANYTHING
from oda_rl.samples import observed_shares

_COOLING, _SPARSE_COOLING, _FASTEST_COOLING = 0.8, 0.5, 0.25  # factors: see ``cooling``
_SAMPLES = 20  # of a level for each codevector
_CLEAR = 1.0  # persistence, in log T, of clusters
_ALIKE = 0.9  # share of the longest persistence: of such numbers the largest is right more often


@estimators.estimator
class ODAClusterer(estimators.Unsupervised, ClusterMixin, BaseODA):
    """Cluster by online deterministic annealing.

    As the temperature falls codevectors split where the data require it; every stage stays
    available (``history_``, ``at_level``).

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        How many clusters to find. The codebook grows to up to twice as many, which then merge, the
        cheapest pair first; it splits and merges as long as that lowers the distortion by a tenth,
        or only once where ``fit`` refines and they are at most 20.
        Fewer remain if another criterion ends the annealing, or there are fewer distinct points.
        ``"auto"`` takes the number, from 2 to 32, that persists longest as the temperature falls:
        over the longest interval of log T; the largest within a tenth. If there are more than 32,
        it may be any. It warns if none persists over more than 1.
    divergence : {"squared_euclidean", "i_divergence", "itakura_saito"} or Divergence
        Divergence of a point from a codevector; see :mod:`oda_rl.divergences`.
    min_temperature : float in [0, 1), default=0
        Last temperature, relative to the mean divergence of the data from their mean.
    target_distortion : float, default=0
        Annealing ends when the mean divergence from the nearest codevector is at most this.
    max_samples : int, optional
        Annealing ends after this many samples; one that is drawn twice counts twice.
    cooling : float in (0, 1), optional
        Factor of the temperature from one level to the next. Default: 0.9 with
        ``n_clusters="auto"``, else 0.8; where ``fit`` refines 0.6, or 0.5 with fewer than 20 points
        a cluster, or 0.25 with at most 20 clusters.
    samples_per_cluster : int, optional
        Samples of a level for each codevector. Default: 20; where ``fit`` refines n distinct
        points n / (2 ``n_clusters``), between 1 and 20.
    forgetting : float in [0, 1], default=0
        Minimum step size of a codevector. A positive one follows clusters that move, and moves
        codevectors that are no longer needed to new clusters, unless all classes compete. With 0
        all samples of a temperature have the same weight.
    refine : bool, default=True
        Whether ``fit`` ends with exchanges of single points between clusters until none lowers the
        distortion (in the observed features), or where there are many points with those of a
        sample and Lloyd's iteration. For squared Euclidean and Mahalanobis divergences.
    init : array-like, shape (k, d), optional
        Codevectors to start from, instead of the mean.
    constants : :class:`oda_rl.annealing.AnnealingConstants`, optional
        Thresholds and step sizes of the slow timescale.
    random_state : int, RandomState instance or None
        Draws the samples and the shifts of splits.

    Attributes
    ----------
    codevectors_ : ndarray, shape (K, d)
        The codevectors.
    codevector_labels_ : ndarray, shape (K,)
        The cluster of each: 0 to K - 1.
    weights_ : ndarray, shape (K,)
        Share of the data of each; they sum to 1.
    labels_ : ndarray, shape (n,)
        Cluster of each point of the last ``fit``.
    inertia_ : float
        Weighted sum of divergences of the points of the last ``fit`` from their codevectors.
    persistence_ : dict of int to float
        With ``n_clusters="auto"``: how long each number of clusters persisted, in log T.
    temperature_ : float
        Last temperature.
    n_samples_seen_ : int
        Samples learned from; one that is drawn twice counts twice.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and clustering",
    IEEE Transactions on Neural Networks and Learning Systems, 2023: algorithm 1 with one class.

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

    n_clusters: Annotated[int | str, estimators.COUNT, estimators.one_of("auto")] = 8
    _: KW_ONLY
    min_temperature: Annotated[float, estimators.within("[0, 1)")] = 0.0
    target_distortion: Annotated[float, estimators.NOT_NEGATIVE] = 0.0
    cooling: Annotated[float | None, estimators.FRACTION, None] = None
    samples_per_cluster: Annotated[int | None, estimators.COUNT, None] = None
    refine: estimators.Flag = True

    _stream_clusters = 8
    persistence_: Annotated[dict[int, float], ANYTHING] = field(init=False)

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        points = validation.checked_points(self, X, reset=True)
        validation.check_enough(self, len(points))
        weights = validation.fit_weights(self, sample_weight, points)
        n_distinct, current = self._learn(points, weights), self._annealer
        self._codebook = current.view(None)
        self.labels_, divergences = self._assigned(current.divergence.embed(points))
        if self._refines():
            masses = np.bincount(self.labels_, weights, len(current.codevectors))
            current.masses = masses / masses.sum()
        self._publish()
        distortion = float(divergences @ weights / weights.sum())
        self.inertia_ = distortion * float(self._weighed[0])
        current.settle(distortion)
        self._warn_of_few(n_distinct)
        return self

    def _learn(self, points: FloatArray, weights: FloatArray) -> int:
        """Anneal, choose the number of clusters, refine; return the number of distinct points."""
        limit, refines = None, self._refines()
        if self.n_clusters == "auto":
            limit = min(33, max(int(weights.sum()) // 4, 3))  # 4 points a cluster
        classes = np.zeros(len(points), dtype=np.int64)
        refined = refines or limit is not None
        data = self._anneal(points, classes, weights, refined=refined, limit=limit)
        current = self._annealer
        if limit is not None:
            self._choose(limit)
        if refines:
            codevectors = refine(data.points, data.weights, current.codevectors, data.rng)
            current.replace(codevectors, np.full(len(codevectors), 1.0 / len(codevectors)))
        return len(data.points)

    def _choose(self, limit: int) -> None:
        """Go back to the number of clusters below ``limit`` that persisted longest."""
        current = self._annealer
        coldest = NEGLIGIBLE * current.scale
        if current.distortion() > coldest:  # else each point has its codevector
            coldest = max(current.temperature, coldest)
        temperatures = np.array([*(level.temperature for level in current.history), coldest])
        lengths = -np.diff(np.log(np.maximum(temperatures, TINY)))
        sizes = [level.n_clusters for level in current.history]
        self.persistence_ = {
            size: float(lengths[np.equal(sizes, size)].sum()) for size in sorted(set(sizes))
        }
        offered = {size: length for size, length in self.persistence_.items() if 1 < size < limit}
        longest = max(offered.values(), default=np.inf)
        alike = (size for size, length in offered.items() if length >= _ALIKE * longest)
        chosen = max(alike, default=sizes[-1])
        if longest < _CLEAR:
            message = f"X may have no clusters: {chosen} persist for only {longest:.2f} in log T"
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
        current.return_to(len(sizes) - 1 - sizes[::-1].index(chosen))
        current.schedule = replace(current.schedule, max_codevectors=chosen)
        current.active = False

    @estimators.validated
    def partial_fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, each once, in their order; see :meth:`fit`.

        The size of blocks makes no difference. The first 100 samples give the scale, or the next
        ones if these are equal. After ``fit`` steps are as short as after all of its samples; a
        sample's weight over the mean so far multiplies them. ``n_clusters="auto"`` counts as 8, or
        what ``fit`` chose.
        """
        first = not hasattr(self, "_annealer")
        points = validation.checked_points(self, X, reset=first)
        weights = validation.stream_weights(self, sample_weight, points, first=first)
        self._stream(points, np.zeros(len(points), dtype=np.int64), weights, labelled=False)
        self._publish(self._annealer.schedule.max_codevectors)
        return self

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Nearest codevector of each point, shape (n,), from 0 to K - 1."""
        return self._assigned(self._embedded(X)[0])[0]

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Gibbs association with each codevector at the last temperature, shape (n, K).

        Rows sum to 1. Equation 9 of the reference.
        """
        return self._of_each(X, self._associations)

    def _associations(self, points: FloatArray, divergences: FloatArray) -> FloatArray:
        scores = divergences * observed_shares(points)  # not scaled up to missing features
        scores -= scores.min(axis=1, keepdims=True)
        temperature = self.temperature_
        shares = (scores == 0.0) * 1.0 if temperature == 0.0 else np.exp(-scores / temperature)
        shares *= self.weights_
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def score(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> float:
        """Negative mean divergence from the nearest codevector."""
        return -validation.mean_score(self._assigned(self._embedded(X)[0])[1], sample_weight)

    def _warn_of_few(self, distinct: int) -> None:
        if self.n_clusters != "auto" and distinct < int(self.n_clusters):
            warnings.warn(
                f"Number of distinct clusters ({len(self.codevectors_)}) found smaller than "
                f"n_clusters ({self.n_clusters}): X has {distinct} distinct points.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _refines(self) -> bool:
        return self.refine and resolve(self.divergence).kernel == QUADRATIC

    def _pace(self, refined: bool, n_points: float) -> tuple[float, int]:
        cooling, samples, n_clusters = _COOLING, _SAMPLES, self._max_codevectors(1)
        if self.n_clusters == "auto":
            cooling = 0.9  # so that one level adds few codevectors
        elif refined:
            cooling = FAST_COOLING if n_points >= FEW_POINTS * n_clusters else _SPARSE_COOLING
            cooling = _FASTEST_COOLING if n_clusters <= FEW_CLUSTERS else cooling
            samples = int(min(max(n_points / (2 * n_clusters), 1), _SAMPLES))
        return (
            cooling if self.cooling is None else float(self.cooling),
            samples if self.samples_per_cluster is None else int(self.samples_per_cluster),
        )

    def _publish(self, limit: int | None = None) -> None:
        super()._publish(limit)
        self.codevector_labels_ = np.arange(len(self.codevectors_))
