"""Regression by online deterministic annealing: a model of the target in each cell."""

import copy
from dataclasses import KW_ONLY, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import checked_targets, fit_weights, fitted_points, stream_weights
from oda_rl.annealing.annealer import Distribution
from oda_rl.annealing.base import BaseODA, CellEstimator
from oda_rl.annealing.classifier import MANY_FEATURES, folds
from oda_rl.divergences import Mahalanobis, is_euclidean
from oda_rl.files.estimators import COUNT, NOT_NEGATIVE, Supervised, estimator, one_of, validated
from oda_rl.files.schema import ANYTHING, MISSING, Maybe, Several, real, whole
from oda_rl.samples import counted, deviations_of, filled, holes, units_of, weighted

_SIZES = (1, 3, 8, 20, 50)  # numbers of cells that n_clusters="auto" tries
_MIN_PER_CELL = 5  # points
_SELECTION_SAMPLES = 1500  # at most, by which it chooses
_FIRST_CELLS, _FIRST_PER_CELL = 16, 10  # of the models that give a metric
_ROUNDS, _RIDGE = 2, 0.02  # of learning a metric
_SURE = 2.0  # standard errors by which cells must be better than one
_ROUNDING = 1e-10  # of a feature's standard deviation
_ENOUGH = 3  # points for each slope, or ridge regression takes the place of least squares
_PENALTIES = np.geomspace(1e-4, 1e2, 19)  # of standardised slopes
RECENT = 5000  # samples that are kept as they are, before the older half is summed up
_OLDER = real("P, d"), real("older, d+q"), real("older", "[0, inf)"), whole("older", "[0, P)")


class LocalModels(NamedTuple):
    """values[k] + slopes[k] (x − centres[k]) in cell k; shapes (K, q), (K, q, d), (K, d)."""

    values: Annotated[FloatArray, real("M, q")]
    slopes: Annotated[FloatArray, real("M, q, d")]
    centres: Annotated[FloatArray, real("M, d")]

    def predict(self, points: FloatArray, cells: IntArray) -> FloatArray:
        """Targets, shape (n, q), of points, shape (n, d), in the given cells, shape (n,)."""
        gaps = points - self.centres[cells]
        return np.asarray(self.values[cells] + (self.slopes[cells] * gaps[:, None]).sum(axis=2))


@one_thread()
def fit_local_models(
    points: FloatArray, targets: FloatArray, weights: FloatArray, cells: IntArray,
    values: FloatArray, *, linear: bool,
) -> LocalModels:  # fmt: skip
    """Fit each cell's model to its points by weighted least squares.

    Linear models are shrunk towards the ridge regression of all points, as if each cell had one
    more point on that, for its level, and d + 2 of the average spread in cells, for its slopes.

    ``targets`` have shape (n, q); ``cells``, shape (n,), are those of the points; ``values``, shape
    (K, q), are predictions of cells without points. Models have slopes if they are ``linear``.
    """
    (n_cells, n_targets), d = values.shape, points.shape[1]
    totals = np.bincount(cells, weights, minlength=n_cells)
    filled = totals[:, None] > 0.0
    safe = np.where(filled, totals[:, None], 1.0)

    def averages(table: FloatArray) -> FloatArray:
        sums = [np.bincount(cells, weights * column, minlength=n_cells) for column in table.T]
        return np.column_stack(sums) / safe

    centres = averages(points)
    if not linear:
        means = np.where(filled, averages(targets), values)
        return LocalModels(means, np.zeros((n_cells, n_targets, d)), centres)
    mean, level = (np.average(table, axis=0, weights=weights) for table in (points, targets))
    units = deviations_of(points, weights)
    units[units == 0.0] = np.inf
    _, free, common = _linear_model(points - mean, targets - level, weights, units)
    axes = _linear_model(points - centres[cells], targets, weights, units)[0]
    residuals = targets - level - (points - mean) @ common.T
    shifts, ridge = averages(residuals) * (safe / (safe + 1.0)), d + 2
    if free is not common:  # only deviations from all data are left to cells
        residuals -= (points - mean) @ (free - common).T
    values = np.where(filled, level + (centres - mean) @ common.T + shifts, values)
    slopes = np.tile(common, (n_cells, 1, 1))
    for k in np.flatnonzero(totals):
        members = cells == k
        root = np.sqrt(weights[members])[:, None]
        white = ((points[members] - centres[k]) @ axes.T) * root
        missed = residuals[members] * root
        # The step from the common slopes minimises |missed - white step|² + ridge |step|².
        if len(white) < len(axes):  # the dual is smaller
            step = white.T @ np.linalg.solve(white @ white.T + ridge * np.eye(len(white)), missed)
        else:
            step = np.linalg.solve(white.T @ white + ridge * np.eye(len(axes)), white.T @ missed)
        slopes[k] += step.T @ axes
    return LocalModels(values, slopes, centres)


def _linear_model(
    steps: FloatArray, targets: FloatArray, weights: FloatArray, units: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Whitening axes, shape (rank, d), and two slopes, shape (q, d) each, of centred points.

    The first are by least squares. So are the second, unless there are few points for each slope:
    then by ridge regression, with the penalty of each target that generalised cross-validation
    chooses. Directions in which the points vary by rounding alone, beside their ``units``, drop
    out.
    """
    n = weights.sum()
    shares = np.sqrt(weights / n)[:, None]
    left, sizes, right = np.linalg.svd(steps / units * shares, full_matrices=False)
    varying = sizes > _ROUNDING
    axes = right[varying] / sizes[varying, None] / units
    targets = targets * shares
    parts = left[:, varying].T @ targets
    free = parts.T @ axes
    if n > _ENOUGH * (len(axes) + 1):  # outliers that cross-validation misses would cost more
        return axes, free, free
    kept = 1.0 / (1.0 + _PENALTIES[:, None] / sizes[varying] ** 2)
    misses = (targets**2).sum(axis=0) - (parts**2).sum(axis=0) + (1.0 - kept) ** 2 @ parts**2
    spare = np.maximum(1.0 - (1.0 + kept.sum(axis=1)) / n, _ROUNDING)  # degrees of freedom, over n
    best = kept[(np.maximum(misses, 0.0).T / spare**2).argmin(axis=1)]
    return axes, free, (best * parts.T) @ axes


def equivalent(rows: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return at most p + 1 rows and weights of the same total, mean and covariance as n rows of p.

    Least squares gives the same for both.
    """
    n, total = rows.shape[1] + 1, weights.sum()
    if len(rows) <= n:
        return rows, weights
    mean = weights @ rows / total
    root = np.linalg.qr((rows - mean) * np.sqrt(weights / total)[:, None], "r")
    turn = np.full(n, n**-0.5)  # of a reflection, which gives each row the same weight
    turn[0] -= 1.0
    deviations = np.concatenate([np.zeros((1, n - 1)), root])
    deviations -= np.outer(turn, turn @ deviations) / (1.0 - n**-0.5)
    return mean + np.sqrt(n) * deviations, np.full(n, total / n)


class LocalRegressor(Supervised, RegressorMixin, CellEstimator):
    """Regressors with a model in each cell, fitted when it is first needed."""

    local_model: str
    n_features_in_: int
    _recent: Annotated[
        tuple[FloatArray, FloatArray],
        Several(real("recent, d+q", MISSING), real("recent", "[0, inf)")),
    ]
    _older: Annotated[
        tuple[FloatArray, FloatArray, FloatArray, IntArray] | None, Maybe(Several(*_OLDER))
    ] = None
    """Codevectors as they were, shape (P, d), and the rows of each cell: pairs, weights, cells."""

    _stored = {**BaseODA._stored, "LocalModels": LocalModels}  # noqa: RUF012
    _LEARNED: ClassVar[dict[str, Any]] = {"_models": LocalModels}  # a cached property

    @property
    def codevector_labels_(self) -> FloatArray:
        """Mean of the target in each cell, shape (K,); (K, q) with several targets."""
        return self._squeezed(self._models.values)

    @property
    def slopes_(self) -> FloatArray:
        """Slopes in each cell, zeros for constants: shape (K, d), of several targets (K, q, d)."""
        return self._squeezed(self._models.slopes)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: npt.ArrayLike) -> FloatArray:
        """Prediction of the model of each point's cell, shape (n,); (n, q) with several targets."""
        return self._squeezed(self._predicted(fitted_points(self, X)))

    def _squeezed(self, values: FloatArray) -> FloatArray:
        return values[:, 0] if values.shape[1] == 1 else values

    def _predicted(self, points: FloatArray) -> FloatArray:
        """Predictions, shape (n, q)."""
        self._divergence.check(points)
        cells = self._cells(points)
        return self._models.predict(filled(points, self._models.centres[cells]), cells)

    def _checked_pairs(self, X: Any, y: Any, *, reset: bool) -> FloatArray:
        """Return points and targets as one array, shape (n, d + q)."""
        pairs = np.column_stack(checked_targets(self, X, y, reset=reset))
        before = pairs.shape[1] if reset else self._recent[0].shape[1]
        if pairs.shape[1] != before:
            n = pairs.shape[1] - self.n_features_in_
            raise ValueError(
                f"y has {n} targets: it must have {n + before - pairs.shape[1]}, as before"
            )
        return pairs

    def _defaults(self, targets: FloatArray, weights: FloatArray) -> FloatArray:
        """Predictions of cells without samples, shape (K, q)."""
        return np.tile(weights @ targets / weights.sum(), (len(self._embedded_codevectors()), 1))

    @cached_property
    def _models(self) -> LocalModels:
        return self._fitted(*self._placed())

    def _fitted(self, pairs: FloatArray, weights: FloatArray, cells: IntArray) -> LocalModels:
        points, targets = np.split(pairs, [self.n_features_in_], axis=1)
        values, linear = self._defaults(targets, weights), self.local_model == "linear"
        return fit_local_models(points, targets, weights, cells, values, linear=linear)

    def _closed(self) -> Self:
        if hasattr(self, "_recent"):
            self._models  # noqa: B018 - a file has it
        return super()._closed()

    def _add(self, pairs: FloatArray, weights: FloatArray) -> None:
        """Remember the next samples of a stream."""
        before = getattr(self, "_recent", (pairs[:0], weights[:0]))
        self._recent = np.concatenate([before[0], pairs]), np.concatenate([before[1], weights])
        self.__dict__.pop("_models", None)
        self._sum_up()

    def _sum_up(self) -> None:
        """Replace all but the last 2,500 of 5,000 samples by equivalent rows of each cell.

        Older rows drop out of cells where the last samples are predicted better without them.
        """
        if len(self._recent[0]) < RECENT:
            return
        pairs, weights, cells = self._placed()
        n, n_older = len(pairs) - RECENT // 2, len(self._older[1]) if self._older else 0
        rows, places = np.arange(n), self._divergence.restore(self._embedded_codevectors())
        if n_older > 0:
            errors, (points, targets) = [], np.split(pairs[n:], [self.n_features_in_], axis=1)
            for part in (slice(n_older), slice(n_older, n)):
                models = self._fitted(pairs[part], weights[part], cells[part])
                missed = (models.predict(points, cells[n:]) - targets) / units_of(targets, None)
                errors.append((missed * missed).sum(axis=1) * weights[n:])
            gain = errors[0] - errors[1]
            gain, square = (np.bincount(cells[n:], g, len(places)) for g in (gain, gain**2))
            rows = rows[(gain <= np.sqrt(square))[cells[:n]] | (rows >= n_older)]
        older_cells = np.unique(cells[rows])
        groups = (rows[cells[rows] == k] for k in older_cells)
        parts = [equivalent(pairs[own], weights[own]) for own in groups]
        older, masses = (np.concatenate(tables) for tables in zip(*parts, strict=True))
        self._older = places, older, masses, older_cells.repeat([len(table) for table, _ in parts])
        self._recent = self._recent[0][-(RECENT // 2) :], self._recent[1][-(RECENT // 2) :]

    def _placed(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return rows without missing values, weights and cells of all samples, the older first.

        Older rows stay in their cell, unless it has been divided since.
        """
        pairs, weights = self._recent
        if self._older is not None:
            places, older, masses, own = self._older
            pairs, weights = np.concatenate([older, pairs]), np.concatenate([masses, weights])
        points, codevectors = self._features(pairs), self._embedded_codevectors()
        cells = self._cells(np.clip(points, self._low, self._high))  # in the divergence's domain
        if self._older is not None:
            gaps = self._divergence.between(codevectors, self._divergence.embed(places))
            nearest, present = gaps.argmin(axis=1), self._cells(places)
            counts = np.bincount(nearest, minlength=len(places))
            alone = (counts == 1) & (nearest[present] == np.arange(len(places)))
            same = alone | (counts == 0)
            cells[: len(own)] = np.where(same[own], present[own], cells[: len(own)])
        points = filled(points, self._divergence.restore(codevectors)[cells])
        return np.hstack([points, pairs[:, self.n_features_in_ :]]), weights, cells

    def _features(self, pairs: FloatArray) -> FloatArray:
        return np.ascontiguousarray(pairs[:, : self.n_features_in_])


class Candidate(NamedTuple):
    """Settings of a regressor."""

    n_clusters: int
    metric: str  # "given", or "learned": from the slopes of local models


@estimator
class ODARegressor(LocalRegressor, BaseODA):
    """Regress by a local model in each cell of an annealed codebook.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Maximum number of cells. ``"auto"`` chooses it by cross-validation within the training set,
        or within 1,500 samples of it: one cell, unless more are better by two standard errors. With
        the squared Euclidean divergence it also tries a learned metric; where values are missing,
        one weight for each feature.
    local_model : {"linear", "constant"}, default="linear"
        Model of a cell. Linear ones are shrunk towards the ridge regression of all data, the more
        the fewer points a cell has, and replace missing values by the cell's mean.
    divergence, min_temperature, target_distortion, max_samples, cooling, samples_per_cluster
        As for :class:`ODAClusterer`, as are forgetting, init, constants and random_state;
        ``min_temperature`` is 1e-3 by default.

    Attributes
    ----------
    best_params_ : dict
        Number of cells and metric, ``"given"`` or ``"learned"``, chosen by ``n_clusters="auto"``.
    codevectors_, weights_, temperature_, n_samples_seen_
        As for :class:`ODAClusterer`.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with stochastic
    approximation", section on regression: piecewise constant models over the cells.
    G. H. Golub, M. Heath, G. Wahba, "Generalized cross-validation as a method for choosing a good
    ridge parameter", Technometrics 21 (1979).

    Examples
    --------
    >>> import numpy as np
    >>> from oda_rl import ODARegressor
    >>> X = np.linspace(0.0, 6.0, 300)[:, None]
    >>> model = ODARegressor(n_clusters=12, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.99
    True
    """

    n_clusters: Annotated[int | str, COUNT, one_of("auto")] = "auto"
    _: KW_ONLY
    local_model: Annotated[str, one_of("constant", "linear")] = "linear"
    target_distortion: Annotated[float, NOT_NEGATIVE] = 0.0

    best_params_: Annotated[dict[str, Any], ANYTHING] = field(init=False)

    @validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        self.__dict__.pop("best_params_", None)  # which say whether values may be missing
        pairs = self._checked_pairs(X, y, reset=True)
        weights = fit_weights(self, sample_weight, pairs)
        distinct = weighted(pairs, weights, n_features=self.n_features_in_)
        shares = distinct.weights * (len(distinct.weights) / distinct.weights.sum())
        metric, n_clusters = "given", self.n_clusters
        if n_clusters == "auto":
            n_clusters, metric = chosen = self._select(distinct.points, shares)
            self.best_params_ = chosen._asdict()
        self._grow(distinct.points, shares, metric)
        current = self._annealer
        current.reduce_to(int(n_clusters))
        current.schedule = replace(current.schedule, max_codevectors=int(n_clusters))
        self._recent, self._older = (distinct.points, shares), None
        self._publish()
        self._settle(self._features(distinct.points), shares)
        self._models = self._fitted(*self._placed())  # to all samples as they are
        self._sum_up()
        return self

    def _select(self, pairs: FloatArray, weights: FloatArray) -> Candidate:
        """Choose among candidates by cross-validation: the best, or a single cell if as good."""
        d, classes, rng = self.n_features_in_, np.zeros(len(pairs), int), np.random.default_rng(0)
        distinct = Distribution(pairs, classes, weights, rng, d)
        pairs, classes, weights = distinct.stratified(_SELECTION_SAMPLES, 1)
        n = len(pairs)
        learns = is_euclidean(self.divergence) and d <= MANY_FEATURES
        sizes = [size for size in _SIZES if size == 1 or _MIN_PER_CELL * size <= n]
        metrics = ("given", "learned")[: 1 + learns]
        options = [Candidate(size, metric) for metric in metrics for size in sizes]
        errors, targets = np.zeros((len(options), n)), pairs[:, d:]
        spreads = units_of(targets, weights)
        for train, test in folds(classes, np.random.default_rng(n)):
            model = copy.copy(self)
            for i in range(len(options) - 1, -1, -1):  # the largest of a metric first
                size, metric = options[i]
                if size == sizes[-1]:
                    model.n_clusters = size
                    model._grow(pairs[train], weights[train], metric)
                model._annealer.reduce_to(size)
                model._recent, model._older = (pairs[train], weights[train]), None
                model._publish()
                missed = (model._predicted(pairs[test, :d]) - targets[test]) / spreads
                errors[i, test] = (missed * missed).sum(axis=1)
        best = int((errors @ weights).argmin())
        gains, shares = errors[0] - errors[best], weights / weights.sum()
        gain = float(shares @ gains)
        variance = float(shares**2 @ (gains - gain) ** 2)
        return options[best] if gain > _SURE * np.sqrt(variance) else options[0]

    def _grow(self, pairs: FloatArray, weights: FloatArray, metric: str) -> None:
        """Anneal cells in a metric: the mean outer product of the slopes of first local models."""
        model = copy.copy(self)
        if metric == "learned":
            d = self.n_features_in_
            deviations = units_of(pairs, weights)
            scale, spreads = deviations[:d], deviations[d:]
            matrix, units = np.diag(scale**-2.0), np.outer(scale, scale)
            for _ in range(_ROUNDS):
                model.divergence = Mahalanobis(matrix)
                model.n_clusters = min(_FIRST_CELLS, max(len(pairs) // _FIRST_PER_CELL, 1))
                self._take(model, pairs, weights)
                self._recent, self._older = (pairs, weights), None
                self._publish()
                slopes = self._models.slopes * scale / spreads[:, None]
                mean = np.einsum("k,kqi,kqj->ij", self.weights_, slopes, slopes)
                if holes(pairs) is not None:  # distances must be sums over features
                    mean = np.diag(mean.diagonal())
                mean = mean / (np.trace(mean) or 1.0) + _RIDGE / d * np.eye(d)
                values, vectors = np.linalg.eigh(mean)
                root = (vectors * np.sqrt(values)) @ vectors.T
                matrix = 0.5 * (root + root.T) / units
            model = copy.copy(self)
            model.divergence = Mahalanobis(matrix)
        self._take(model, pairs, weights)

    def _take(self, model: "ODARegressor", pairs: FloatArray, weights: FloatArray) -> None:
        """Take over what a copy anneals."""
        if model.n_clusters == "auto":
            model.n_clusters = _SIZES[-1]
        model._anneal(pairs, np.zeros(len(pairs), dtype=np.int64), weights)
        for name in ("_annealer", "_waiting", "_stream_seed", "_low", "_high", "_single"):
            setattr(self, name, getattr(model, name))

    @validated
    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Learn from one sample or many, each once, in their order; see :meth:`fit`.

        ``n_clusters="auto"`` counts as 40, or what ``fit`` chose. A local model is fitted to
        all samples of its cell, or to the last ones if they are predicted better by these alone.
        After ``fit`` steps are as short as after all of its samples; a sample's weight multiplies
        them.
        """
        first = not hasattr(self, "_annealer")
        pairs = self._checked_pairs(X, y, reset=first)
        weights = stream_weights(self, sample_weight, pairs, first=first)
        pairs, classes, weights = counted(pairs, np.zeros(len(pairs), dtype=np.int64), weights)
        self._stream(pairs, classes, weights, labelled=False)
        self._publish(self._annealer.schedule.max_codevectors)
        self._add(pairs, weights)
        return self

    def _takes_missing(self) -> bool:
        learned = getattr(self, "best_params_", {}).get("metric") == "learned"
        metric = self._annealer.divergence if learned else None  # an earlier level has none
        mixes = isinstance(metric, Mahalanobis) and not metric.is_diagonal
        return super()._takes_missing() and not mixes

    def _takes_single(self) -> bool:
        return False  # targets are in the same array as the features

    def _publish(self, limit: int | None = None) -> None:
        super()._publish(limit)
        self.__dict__.pop("_models", None)

    def _defaults(self, targets: FloatArray, weights: FloatArray) -> FloatArray:
        return self._codebook.codevectors[:, self.n_features_in_ :]
