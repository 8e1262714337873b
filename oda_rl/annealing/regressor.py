"""Regression by online deterministic annealing: a model of the target in each cell.

References
----------
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
from oda_rl._validation import checked_targets, checked_weights, chunks, fitted_points
from oda_rl.annealing.base import BaseODA
from oda_rl.annealing.local_models import LocalModels, fit_local_models
from oda_rl.files.estimators import NOT_NEGATIVE, estimator, validated
from oda_rl.files.schema import MISSING, Optional, Several, real
from oda_rl.samples.missing import holes

_RECENT = 5000  # samples of a stream that local models are fitted to


@estimator
class ODARegressor(RegressorMixin, BaseODA):
    """Regress by a model of its own in each cell of an annealed codebook.

    Parameters
    ----------
    n_clusters : int, default=40
        How many cells there may be.
    local_model : {"linear", "constant"}, default="linear"
        What is fitted in a cell. Linear models of cells with few points lean on the slopes that all
        cells have in common.
    divergence, min_temperature, target_distortion, max_samples, cooling, samples_per_cluster
        As for :class:`ODAClusterer`; ``min_temperature`` is 1e-3 by default.
    forgetting, init, random_state
        As for :class:`ODAClusterer`.

    Attributes
    ----------
    codevectors_, cluster_centers_ : ndarray, shape (K, d)
        The codevectors.
    codevector_labels_ : ndarray, shape (K,)
        Mean of the target in each cell.
    slopes_ : ndarray, shape (K, d)
        Change of the prediction for each feature in each cell; zeros for constants.
    weights_, temperature_, history_, n_samples_seen_, n_features_in_, feature_names_in_
        As for :class:`ODAClusterer`.

    References
    ----------
    [ODA-RL], section on regression: piecewise constant models over the cells.

    Examples
    --------
    >>> import numpy as np
    >>> from oda_rl import ODARegressor
    >>> X = np.linspace(0.0, 6.0, 300)[:, None]
    >>> model = ODARegressor(n_clusters=12, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.99
    True
    """

    _: KW_ONLY
    local_model: Annotated[str, StrOptions({"constant", "linear"})] = "linear"
    target_distortion: Annotated[float, NOT_NEGATIVE] = 0.0

    LEARNED: ClassVar[dict[str, Any]] = {
        **BaseODA.LEARNED,
        "codevector_labels_": Optional(real("M")),
        "slopes_": Optional(real("M, d")),
        "_centres": Optional(real("M, d")),
        "_recent": Optional(Several(real("recent, d+1", MISSING), real("recent", "[0, inf)"))),
    }

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Anneal a codebook on X, and fit the model of each cell.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence; NaN where values are missing, which the
            squared Euclidean and the Mahalanobis divergence take. A cell's linear
            model takes for these what the cell expects.
        y : array-like, shape (n,)
            Finite.
        sample_weight : array-like, shape (n,), optional
            At least 0; a weight of 2 is the same as a row that stands there twice.
        """
        pairs = self._checked_pairs(X, y, reset=True)
        weights = checked_weights(sample_weight, pairs)
        self._anneal(pairs, np.zeros(len(pairs), dtype=np.int64), weights)
        self._annealer.settle(self._annealer.history[-1].distortion)
        self._recent = pairs, weights
        self._publish()
        self._recent = pairs[-_RECENT:], weights[-_RECENT:]
        return self

    @validated
    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, each once, in their order.

        The local models are fitted to the last 5000 samples. After ``fit`` steps are as short as
        after all of its samples.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Finite, in the domain of the divergence; NaN where values are missing, which the
            squared Euclidean and the Mahalanobis divergence take. A cell's linear
            model takes for these what the cell expects.
        y : array-like, shape (n,)
            Finite.
        sample_weight : array-like, shape (n,), optional
            At least 0: how many times as long each sample's step is.
        """
        first = not hasattr(self, "_annealer")
        pairs = self._checked_pairs(X, y, reset=first)
        weights = checked_weights(sample_weight, pairs)
        recent = (pairs[:0], weights[:0]) if first else self._recent
        self._stream(pairs, np.zeros(len(pairs), dtype=np.int64), weights, labelled=False)
        self._recent = (
            np.concatenate([recent[0], pairs])[-_RECENT:],
            np.concatenate([recent[1], weights])[-_RECENT:],
        )
        self._publish(self._max_codevectors(1))
        return self

    def predict(self, X: npt.ArrayLike) -> FloatArray:
        """Prediction of the model of each point's cell.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray, shape (n,)
        """
        points = fitted_points(self, X)
        divergence, own = self._annealer.divergence, self._own()
        divergence.check(points)
        models = LocalModels(self.codevector_labels_, self.slopes_, self._centres)
        parts = []
        for rows in chunks(len(points)):
            cells = self._nearest(divergence.embed(points[rows]), own)
            known = self._completed(points[rows], self._centres[cells])
            parts.append(models.predict(known, cells))
        return np.concatenate(parts)

    def _completed(self, points: FloatArray, centres: FloatArray) -> FloatArray:
        """Return points with what cells of these centres expect where values are missing."""
        if holes(points) is None:
            return points
        divergence = self._annealer.divergence
        known, own = divergence.embed(points), divergence.embed(centres)
        return divergence.restore(divergence.completed(known, own))

    def _takes_single(self) -> bool:
        return False  # targets lie beside the features

    def _checked_pairs(self, X: Any, y: Any, *, reset: bool) -> FloatArray:
        """Return points and targets as one array, shape (n, d + 1)."""
        return np.column_stack(checked_targets(self, X, y, reset=reset))

    def _target_distortion(self) -> float:
        return float(self.target_distortion)

    def _publish(self, limit: int | None = None) -> None:
        super()._publish(limit)
        pairs, weights = self._recent
        d = self.n_features_in_
        points = pairs[:, :d]
        cells = self._nearest(self._annealer.divergence.embed(points), self._own())
        models = fit_local_models(
            self._completed(points, self.codevectors_[cells]),
            pairs[:, d],
            weights,
            cells,
            self._codebook.codevectors[:, d],
            linear=self.local_model == "linear",
        )
        self.codevector_labels_, self.slopes_, self._centres = models
