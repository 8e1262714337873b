"""Clusterer and classifier of data in blocks: a sample is annealed, and sums over blocks follow."""

from functools import partial
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import check_enough
from oda_rl.annealing.annealer import Annealer
from oda_rl.annealing.base import CellEstimator
from oda_rl.annealing.classifier import ODAClassifier
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.annealing.refinement import FINISH
from oda_rl.distributed.blocks import (
    Answer,
    Blocks,
    Chunk,
    Reader,
    Rows,
    Survey,
    blocks_of,
    by_blocks,
    is_lazy,
    joined,
    labels_of,
    scored_by,
)
from oda_rl.divergences import Divergence, resolve
from oda_rl.files.estimators import COUNT, estimator, one_of, validated
from oda_rl.samples import relative


def nearest_sums(
    rows: Rows, index: int, *, divergence: Divergence, codevectors: FloatArray
) -> Answer:
    """Add up over the rows of a block that are nearest to each codevector, shape (K, d).

    Returns Σ w, shape (K,), Σ w (x − μ_k), shape (K, d), and the sum of all w d(x, μ_k).
    """
    n, d = codevectors.shape
    masses, moves, error = np.zeros(n), np.zeros((n, d)), 0.0
    for points, _, weights in Reader(divergence).read(rows, index):
        embedded = divergence.embed(points)
        cells = divergence.between(embedded, codevectors).argmin(axis=1)
        masses += np.bincount(cells, weights, n)
        np.add.at(moves, cells, weights[:, None] * (embedded - codevectors[cells]))
        error += float(weights @ divergence.rowwise(embedded, codevectors[cells]))
    return [masses, moves, error]


class Distributed(CellEstimator):
    """An annealing estimator that learns from blocks."""

    random_state: Any
    _annealer: Annealer

    transform = by_blocks(
        CellEstimator.transform, lambda self: np.empty((0, len(self.codevectors_)))
    )
    score_samples = by_blocks(CellEstimator.score_samples, lambda self: np.empty(0))

    def _takes_missing(self) -> bool:
        return False

    def _takes_single(self) -> bool:
        return False

    def _fetch(
        self, blocks: Blocks, classes: Array | None, limit: int
    ) -> tuple[Survey, Chunk, bool]:
        """Survey the rows, and fetch a sample; return whether it is all rows, too."""
        reader = Reader(resolve(self.divergence), classes)
        survey = Survey.of(blocks, reader, self.n_features_in_)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return survey, *survey.sample(blocks, reader, limit, seed)

    def _stand_for(self, survey: Survey) -> None:
        """Let the codebook of a sample stand for all rows."""
        current, weights = self._annealer, survey.weights
        current.class_weights = weights * (weights.sum() / survey.squares)
        current.settle(current.distortion())
        self._weighed = np.array([weights.sum(), survey.counts.sum()])
        self._low, self._high = survey.low, survey.high


@estimator
class DistributedODAClusterer(Distributed, ODAClusterer):
    """Cluster a Dask array or frame by deterministic annealing of a sample, and sums over blocks.

    A sample of about 50,000 rows (or 10 a codevector) is annealed and refined; Lloyd's iteration
    follows, with sums over all rows, which stay where they are. Dask recomputes what is lost with a
    worker. The same blocks and ``random_state`` give the same bits on any cluster.

    It needs ``pip install "oda-rl[cluster]"``. ``fit`` reads the data up to some twenty times: call
    ``X.persist()`` before if the cluster has the memory. An array in memory is learned from as by
    :class:`oda_rl.ODAClusterer`.

    Parameters
    ----------
    n_clusters, divergence, min_temperature, target_distortion, max_samples, cooling
        As for :class:`oda_rl.ODAClusterer`, and so are ``samples_per_cluster``, ``forgetting``,
        ``init``, ``constants`` and ``random_state``.
    refine : bool, default=True
        Whether exchanges of single points on the sample and Lloyd's iteration on all rows follow
        annealing (squared Euclidean and Mahalanobis divergences only).

    Attributes
    ----------
    inertia_ : float
        Weighted sum of divergences of all rows from their codevectors.
    labels_ : ndarray, shape (n,)
        Cluster of each row; not for Dask collections.
    codevectors_, weights_, temperature_, n_samples_seen_
        As for :class:`oda_rl.ODAClusterer`, and so is ``persistence_``.

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

    @validated
    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from X, a Dask array or frame, or array-like, without missing values.

        ``sample_weight`` is like a column of X, in its blocks; all else is as for
        :meth:`oda_rl.ODAClusterer.fit`.
        """
        if not is_lazy(X):
            return super().fit(X, y, sample_weight)
        self.__dict__.pop("labels_", None)
        blocks = blocks_of(self, X, None, sample_weight, reset=True)
        survey, sample, complete = self._fetch(blocks, None, self._max_codevectors(1))
        check_enough(self, survey.n_rows)
        self._learn(sample.points, relative(sample.weights))
        self._stand_for(survey)
        current = self._annealer
        masses, moves, error = self._sums(blocks, current.codevectors)
        if self._refines():
            codevectors, before = current.codevectors, np.inf
            for _ in range(0 if complete else FINISH[0]):
                if error >= before * (1.0 - FINISH[1]):
                    break
                codevectors = codevectors + moves / np.maximum(masses, 1e-300)[:, None]
                before = error
                masses, moves, error = self._sums(blocks, codevectors)
            current.replace(codevectors, masses / masses.sum())
        self.inertia_ = error
        current.settle(error / float(masses.sum()))
        self._publish()
        self._warn_of_few(survey.n_rows)
        return self

    def _sums(self, blocks: Blocks, codevectors: FloatArray) -> Answer:
        divergence = self._annealer.divergence
        return blocks.total(partial(nearest_sums, divergence=divergence, codevectors=codevectors))

    def fit_predict(self, X: npt.ArrayLike, y: Any = None, **fit_params: Any) -> IntArray:
        """Fit, and return the cluster of each row, of a Dask collection lazily."""
        return self.fit(X, y, **fit_params).predict(X)

    predict = by_blocks(ODAClusterer.predict, lambda self: np.empty(0, np.int64))
    predict_proba = by_blocks(
        ODAClusterer.predict_proba, lambda self: np.empty((0, len(self.codevectors_)))
    )

    def score(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> float:
        """Negative mean divergence from the nearest codevector; weights are in the blocks of X."""
        if not is_lazy(X):
            return super().score(X, y, sample_weight)
        check_is_fitted(self)
        blocks = blocks_of(self, X, None, sample_weight, reset=False)
        masses, _, error = self._sums(blocks, self._embedded_codevectors())
        return -float(error / masses.sum())


@estimator
class DistributedODAClassifier(Distributed, ODAClassifier):
    """Classify a Dask array or frame by deterministic annealing of a codebook for each class.

    It learns from a sample of about 50,000 rows (or 10 a codevector), in which rare classes have
    more than their shares, with lower weights; class priors are those of all rows. Bits are as for
    :class:`DistributedODAClusterer`.

    Parameters
    ----------
    n_clusters : int or "auto", default=40
        As for :class:`oda_rl.ODAClassifier`, and so are all others.

    Attributes
    ----------
    classes_, codevectors_, codevector_labels_, weights_, class_prior_
        As for :class:`oda_rl.ODAClassifier`, and so are ``temperature_``, ``n_samples_seen_``,
        ``prediction_temperature_``, and ``best_params_``.

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

    n_clusters: Annotated[int | str, COUNT, one_of("auto")] = 40

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Learn from X as :meth:`DistributedODAClusterer.fit` does.

        The labels ``y`` are like a column of X, too, numbers or strings.
        """
        if not is_lazy(X):
            return super().fit(X, y, sample_weight)
        if y is None:
            raise ValueError("y is None: it must hold the classes of the rows of X")
        self.__dict__.pop("best_params_", None)
        blocks = blocks_of(self, X, y, sample_weight, reset=True)
        classes = np.unique(blocks.total(labels_of, joined)[0])
        check_classification_targets(classes)
        survey, sample, _ = self._fetch(blocks, classes, self._max_codevectors(len(classes)))
        self._learn(sample.points, classes[sample.classes], relative(sample.weights))
        self._stand_for(survey)
        self._publish()
        return self

    predict = by_blocks(ODAClassifier.predict, lambda self: np.empty(0, self.classes_.dtype))
    predict_proba = by_blocks(
        ODAClassifier.predict_proba, lambda self: np.empty((0, len(self.classes_)))
    )

    def score(self, X: npt.ArrayLike, y: Any, sample_weight: Any = None) -> float:
        """Weighted accuracy; labels and weights are in the blocks of X."""
        if not is_lazy(X):
            return float(super().score(X, y, sample_weight))
        total, weight, _ = scored_by(self, X, y, sample_weight)
        return float(total / weight)
