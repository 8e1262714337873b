"""Regression by online deterministic annealing: a model of the target in each cell.

References
----------
[ODA-RL] C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with
stochastic approximation".
"""

from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils._param_validation import StrOptions

from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import checked_targets, checked_weights, chunks, fitted_points
from oda_rl.annealing.base import BaseODA
from oda_rl.files.estimators import NOT_NEGATIVE, estimator, validated
from oda_rl.files.schema import MISSING, Optional, Several, real
from oda_rl.samples import filled

_RECENT = 5000  # samples of a stream that local models are fitted to


class LocalModels(NamedTuple):
    """values[k] + <slopes[k], x − centres[k]> in cell k."""

    values: FloatArray
    """Shape (K,)."""
    slopes: FloatArray
    """Shape (K, d)."""
    centres: FloatArray
    """Shape (K, d)."""

    def predict(self, points: FloatArray, cells: IntArray) -> FloatArray:
        """Targets of points, shape (n, d), in the given cells, shape (n,)."""
        steps = (self.slopes[cells] * (points - self.centres[cells])).sum(axis=1)
        return np.asarray(self.values[cells] + steps)


def fit_local_models(
    points: FloatArray,
    targets: FloatArray,
    weights: FloatArray,
    cells: IntArray,
    values: FloatArray,
    *,
    linear: bool,
) -> LocalModels:
    """Fit each cell's model to its points by weighted least squares.

    A cell's slopes are drawn towards the slopes that all cells have in common, within cells, as if
    it had d + 2 more points of average spread that follow those: a cell of few points takes the
    common slopes, one of many has its own.

    ``cells``, shape (n,), are those of the points; ``values``, shape (K,), is what a cell without
    points predicts. Models have slopes if they are ``linear``.

    Examples
    --------
    >>> x = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> cells = (x[:, 0] > 0.0).astype(int)
    >>> models = fit_local_models(
    ...     x, np.abs(x[:, 0]), np.ones(8), cells, np.zeros(2), linear=False
    ... )
    >>> models.values.round(6)
    array([0.571429, 0.571429])
    """
    n_cells, d = len(values), points.shape[1]

    def averages(column: FloatArray) -> FloatArray:
        return np.bincount(cells, weights * column, minlength=n_cells) / safe

    totals = np.bincount(cells, weights, minlength=n_cells)
    filled = totals > 0.0
    safe = np.where(filled, totals, 1.0)
    centres = np.column_stack([averages(column) for column in points.T])
    values = np.where(filled, averages(targets), values)
    slopes = np.zeros((n_cells, d))
    if linear:
        gaps = points - np.average(points, axis=0, weights=weights)
        scale = np.sqrt(np.average(gaps * gaps, axis=0, weights=weights))
        scale[scale == 0.0] = 1.0
        rests = targets - values[cells]
        slopes = _slopes((points - centres[cells]) / scale, rests, weights, cells, n_cells) / scale
    return LocalModels(values, slopes, centres)


def _slopes(
    steps: FloatArray, rests: FloatArray, weights: FloatArray, cells: IntArray, n_cells: int
) -> FloatArray:
    """Slopes of all cells, shape (K, d); 0 in a cell of no weight.

    ``steps``, shape (n, d), are from the cells' centres, ``rests``, shape (n,), from their values.
    In coordinates in which the average of moments is 1 the prior is a ridge, and what no step
    reaches has no coordinate: there are as few as there are samples, if these are fewer than
    features. A cell's equations are as few as its samples, if these are fewer than coordinates.
    """
    n, d = steps.shape
    slopes = np.zeros((n_cells, d))
    shares = np.sqrt(weights / weights.sum())
    rooted = steps * shares[:, None]
    squares, vectors = np.linalg.eigh(rooted @ rooted.T if n < d else rooted.T @ rooted)
    kept = squares > max(n, d) * np.finfo(np.float64).eps * squares[-1]
    squares, vectors = squares[kept], vectors[:, kept]
    axes = (vectors / squares).T @ rooted if n < d else (vectors / np.sqrt(squares)).T
    common = axes @ (rooted.T @ (rests * shares))
    for k in np.unique(cells[weights > 0.0]):
        own = cells == k
        root = np.sqrt(weights[own])
        white = (steps[own] @ axes.T) * root[:, None]
        # Of slopes that minimise |missed - white s|² + (d + 2) |s|², s from the common ones.
        missed = rests[own] * root - white @ common
        ridge = d + 2
        if len(white) < len(common):
            gram = white @ white.T + ridge * np.eye(len(white))
            step = white.T @ np.linalg.solve(gram, missed)
        else:
            gram = white.T @ white + ridge * np.eye(len(common))
            step = np.linalg.solve(gram, white.T @ missed)
        slopes[k] = (common + step) @ axes
    return slopes


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
            squared Euclidean one takes. A cell's linear
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
        X, y
            As for :meth:`fit`.
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
            parts.append(models.predict(filled(points[rows], self._centres[cells]), cells))
        return np.concatenate(parts)

    def _takes_single(self) -> bool:
        return False  # targets lie beside the features

    def _checked_pairs(self, X: Any, y: Any, *, reset: bool) -> FloatArray:
        """Return points and targets as one array, shape (n, d + 1)."""
        return np.column_stack(checked_targets(self, X, y, reset=reset))

    def _publish(self, limit: int | None = None) -> None:
        super()._publish(limit)
        pairs, weights = self._recent
        d = self.n_features_in_
        points = pairs[:, :d]
        cells = self._nearest(self._annealer.divergence.embed(points), self._own())
        models = fit_local_models(
            filled(points, self.codevectors_[cells]),
            pairs[:, d],
            weights,
            cells,
            self._codebook.codevectors[:, d],
            linear=self.local_model == "linear",
        )
        self.codevector_labels_, self.slopes_, self._centres = models
