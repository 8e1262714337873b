"""Classes of data that lie in blocks, by deterministic annealing with sums over all of them.

References
----------
[ODA-TNNLS] C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and
clustering", IEEE Transactions on Neural Networks and Learning Systems, 2023.
"""

from dataclasses import KW_ONLY
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from oda_rl._validation import checked_labels, checked_weights
from oda_rl.annealing.annealer import PROBE
from oda_rl.annealing.classifier import ODAClassifier
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
from oda_rl.distributed.sums import agreement, labels_of
from oda_rl.files.estimators import COUNT, estimator, validated
from oda_rl.samples import weighted


@estimator
class DistributedODAClassifier(Distributed, ODAClassifier):
    """Classify a Dask array or frame by deterministic annealing of a codebook for each class.

    As for :class:`DistributedODAClusterer` blocks answer with sums, where they lie, one for each
    codevector of their rows' classes. What follows annealing in :class:`oda_rl.ODAClassifier`, the
    temperature of prediction and fine-tuning, is done on a sample of about 50,000 rows (or 10 a
    codevector), in which a rare class has more than its share, and its rows weigh less; so is the
    choice of ``n_clusters="auto"``.

    Parameters
    ----------
    n_clusters : int or "auto", default=40
        As for :class:`oda_rl.ODAClassifier`, and so are all that are not listed here.
    samples_per_cluster : int, default=1000
        Rows of its class that a round of annealing reads for each codevector, drawn in all blocks
        alike; a larger number than there are rows reads all of them.
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
    [ODA-TNNLS] algorithm 1 with the association of eq. 15, and sums in place of single samples.

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

    _: KW_ONLY
    samples_per_cluster: Annotated[int, COUNT] = 1000

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Anneal a codebook for each class by sums, then fine-tune on a sample.

        Parameters
        ----------
        X : Dask array or frame, or array-like, shape (n, d)
            Finite, in the domain of the divergence. What is no collection is one block.
        y : Dask array, or array-like, shape (n,)
            Numbers or strings; in the blocks of X.
        sample_weight : Dask array, or array-like, shape (n,), optional
            At least 0; in the blocks of X.

        Raises
        ------
        ValueError
            If X and y are not that, or there is only one class, or varies by less than 1e-140:
            squares vanish there.
        """
        blocks = self._opened(X, y, sample_weight)
        self._seen = self.classes_.tolist()
        self._check_fine_tuning()
        training = self._survey(blocks, self.classes_)
        sample = training.sample(self._max_codevectors(len(self.classes_)))[0]
        rng = np.random.default_rng([training.seed, 1])
        rows = sample.points, sample.classes, sample.weights
        data = Distribution(*rows, rng, self.n_features_in_)
        chosen = self._settings(*rows)
        probe = data.spread(PROBE)
        self._grow(training, refined=False, probe=(data.points[probe], data.classes[probe]))
        self._conclude(data, chosen)
        self._publish()
        return self

    partial_fit = in_order(ODAClassifier.partial_fit)
    predict = by_blocks(ODAClassifier.predict, lambda self: np.empty(0, self.classes_.dtype))
    predict_proba = by_blocks(
        ODAClassifier.predict_proba, lambda self: np.empty((0, len(self.classes_)))
    )

    def score(self, X: npt.ArrayLike, y: Any, sample_weight: Any = None) -> float:
        """Share of the rows, by weight, whose class is predicted.

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
        return blocks.total(partial(agreement, model=bare(self))).mean

    def _opened(self, X: Any, y: Any, sample_weight: Any) -> Blocks:
        """Find the blocks and their classes; rows that are here get an order of their own."""
        if is_lazy(X):
            if y is None:
                raise ValueError("y is None: it must hold the classes of the rows of X")
            blocks: Blocks = blocks_of(self, X, y, sample_weight, reset=True)
            found = blocks.total(labels_of)
            labels, self._labels_are_objects = found.values, found.objects
            check_classification_targets(labels)
            self.classes_ = labels
        else:
            points, labels = checked_labels(self, X, y, reset=True)
            self._labels_are_objects = labels.dtype == object
            weights = checked_weights(sample_weight, points)
            shown = weights > 0.0
            self.classes_, classes = np.unique(labels[shown], return_inverse=True)
            data = weighted(points[shown], weights[shown], classes.astype(np.int64))
            blocks = OneBlock(Rows(data.points, self.classes_[data.classes], data.weights))
        if len(self.classes_) < 2:
            raise ValueError(
                "This solver needs samples of at least 2 classes in the data, but the data "
                f"contains only one class: {self.classes_[0]!r}"
            )
        return blocks
