"""Regression by online deterministic annealing: a model of the target in each cell."""

from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils._param_validation import StrOptions

from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import checked_targets, fit_weights, fitted_points, stream_weights
from oda_rl.annealing.base import BaseODA
from oda_rl.files.estimators import NOT_NEGATIVE, estimator, validated
from oda_rl.files.schema import MISSING, Optional, Several, real
from oda_rl.samples import filled

_RECENT = 5000  # last samples of a stream, to which local models are fitted


class LocalModels(NamedTuple):
    """values[k] + <slopes[k], x − centres[k]> in cell k; shapes (K,), (K, d), (K, d)."""

    values: FloatArray
    slopes: FloatArray
    centres: FloatArray

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

    Slopes are shrunk towards the common slopes within cells, as if each cell had d + 2 more points
    of average spread on those.

    ``cells``, shape (n,), are those of the points; ``values``, shape (K,), are predictions of cells
    without points. Models have slopes if they are ``linear``.
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
        residuals = targets - values[cells]
        steps = (points - centres[cells]) / scale
        slopes = _slopes(steps, residuals, weights, cells, n_cells) / scale
    return LocalModels(values, slopes, centres)


def _slopes(
    steps: FloatArray, residuals: FloatArray, weights: FloatArray, cells: IntArray, n_cells: int
) -> FloatArray:
    """Slopes of all cells, shape (K, d); 0 in a cell of no weight.

    ``steps``, shape (n, d), are from the cells' centres, ``residuals``, shape (n,), from their
    values. In whitened coordinates the prior is a ridge, and directions without steps drop out.
    With fewer samples than features, or a cell's samples than coordinates, the dual is solved.
    """
    n, d = steps.shape
    slopes = np.zeros((n_cells, d))
    shares = np.sqrt(weights / weights.sum())
    rooted = steps * shares[:, None]
    squares, vectors = np.linalg.eigh(rooted @ rooted.T if n < d else rooted.T @ rooted)
    varying = squares > max(n, d) * np.finfo(np.float64).eps * squares[-1]
    squares, vectors = squares[varying], vectors[:, varying]
    axes = (vectors / squares).T @ rooted if n < d else (vectors / np.sqrt(squares)).T
    common = axes @ (rooted.T @ (residuals * shares))
    for k in np.unique(cells[weights > 0.0]):
        members = cells == k
        root = np.sqrt(weights[members])
        white = (steps[members] @ axes.T) * root[:, None]
        # The step s from the common slopes minimises |missed - white s|² + (d + 2) |s|².
        missed = residuals[members] * root - white @ common
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
    """Regress by a local model in each cell of an annealed codebook.

    Parameters
    ----------
    n_clusters : int, default=40
        Maximal number of cells.
    local_model : {"linear", "constant"}, default="linear"
        Model of a cell. Slopes of cells with few points are shrunk towards the common slopes.
    divergence, min_temperature, target_distortion, max_samples, cooling, samples_per_cluster
        As for :class:`ODAClusterer`, as are forgetting, init and random_state;
        ``min_temperature`` is 1e-3 by default.

    Attributes
    ----------
    codevector_labels_ : ndarray, shape (K,)
        Mean of the target in each cell.
    slopes_ : ndarray, shape (K, d)
        Slope of the prediction for each feature in each cell; zeros for constants.
    codevectors_, cluster_centers_, weights_, temperature_, history_, n_samples_seen_
        As for :class:`ODAClusterer`, as are ``n_features_in_`` and ``feature_names_in_``.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with stochastic
    approximation", section on regression: piecewise constant models over the cells.

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

    _LEARNED: ClassVar[dict[str, Any]] = {
        **BaseODA._LEARNED,
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
            In the domain of the divergence. The squared Euclidean one takes NaN, a missing value:
            local models use the cell's mean instead.
        y : array-like, shape (n,)
            Finite.
        sample_weight : array-like, shape (n,), optional
            At least 0, relative to one another: a common factor makes no difference.
        """
        pairs = self._checked_pairs(X, y, reset=True)
        weights = fit_weights(self, sample_weight, pairs)
        self._anneal(pairs, np.zeros(len(pairs), dtype=np.int64), weights)
        self._annealer.settle(self._annealer.history[-1].distortion)
        self._recent = pairs, weights
        self._publish()
        self._recent = pairs[-_RECENT:], weights[-_RECENT:]
        return self

    @validated
    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, each once, in their order; see :meth:`fit`.

        The local models are fitted to the last 5000 samples. After ``fit`` steps are as short as
        after all of its samples; a sample's weight multiplies them.
        """
        first = not hasattr(self, "_annealer")
        pairs = self._checked_pairs(X, y, reset=first)
        weights = stream_weights(self, sample_weight, pairs, first=first)
        recent = (pairs[:0], weights[:0]) if first else self._recent
        self._stream(pairs, np.zeros(len(pairs), dtype=np.int64), weights, labelled=False)
        self._recent = (
            np.concatenate([recent[0], pairs])[-_RECENT:],
            np.concatenate([recent[1], weights])[-_RECENT:],
        )
        self._publish(self._max_codevectors(1))
        return self

    def predict(self, X: npt.ArrayLike) -> FloatArray:
        """Prediction of the model of each point's cell, shape (n,)."""
        points, cells = fitted_points(self, X), self._nearest(self._embedded(X))
        models = LocalModels(self.codevector_labels_, self.slopes_, self._centres)
        return models.predict(filled(points, self._centres[cells]), cells)

    def _takes_single(self) -> bool:
        return False  # targets are in the same array as the features

    def _checked_pairs(self, X: Any, y: Any, *, reset: bool) -> FloatArray:
        """Return points and targets as one array, shape (n, d + 1)."""
        return np.column_stack(checked_targets(self, X, y, reset=reset))

    def _publish(self, limit: int | None = None) -> None:
        super()._publish(limit)
        pairs, weights = self._recent
        d = self.n_features_in_
        points = pairs[:, :d]
        cells = self._nearest(self._annealer.divergence.embed(points))
        models = fit_local_models(
            filled(points, self.codevectors_[cells]),
            pairs[:, d],
            weights,
            cells,
            self._codebook.codevectors[:, d],
            linear=self.local_model == "linear",
        )
        self.codevector_labels_, self.slopes_, self._centres = models
