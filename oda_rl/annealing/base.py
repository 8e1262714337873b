"""Base class of the annealing estimators: validation, streams, earlier levels, files."""

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, field
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.stats import qmc
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from oda_rl import _validation as validation
from oda_rl import divergences
from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing import annealer
from oda_rl.annealing.annealer import Annealer, AnnealingConstants, Codebook, Distribution, Schedule
from oda_rl.divergences import NAMED, QUADRATIC, Divergence
from oda_rl.files.estimators import COUNT, FRACTION, SAMPLES, Filed, Seed, estimator, one_of, within
from oda_rl.files.schema import (
    ANYTHING,
    MISSING,
    Each,
    Floats,
    Maybe,
    Several,
    Sizes,
    check_fitted,
    flags,
    real,
    require,
    whole,
)
from oda_rl.quantization.kernels import nearest
from oda_rl.samples import cell_means, counted, filled, holes

_FINE = 0.7  # cooling from which critical temperatures are measured: a faster one misses them
MAX_BOX_DIMENSION = 12  # more would take too many points to fill a box
_LOG2_POINTS = 16  # of a Sobol sequence, which must have a power of 2
_Samples = tuple[FloatArray, IntArray, FloatArray]  # points, classes and weights
_WAITING = Maybe(Each(Several(real("n, D", MISSING), whole("n"), real("n", "[0, inf)"))))

_PARTS = Annealer, AnnealingConstants, Codebook, annealer.Level, Schedule
_STORED: dict[str, type] = {
    kind.__name__: kind for kind in (*_PARTS, divergences.Mahalanobis, *NAMED.values())
}


class CellEstimator(
    Filed, ClassNamePrefixFeaturesOutMixin, TransformerMixin, validation.TakesMissing
):
    """Estimators with a codevector in each cell of a box around the training data."""

    divergence: Any
    history_: Any
    weights_: FloatArray
    _low: FloatArray
    _high: FloatArray

    @property
    def _divergence(self) -> Divergence:
        raise NotImplementedError

    def _embedded_codevectors(self) -> FloatArray:
        """Codevectors in the divergence's coordinates, shape (K, d)."""
        raise NotImplementedError

    def _cells(self, points: FloatArray) -> IntArray:
        """Cell of each point, shape (n,)."""
        raise NotImplementedError

    def _distortion(self) -> float:
        """Mean divergence, as given, of the data from the nearest codevectors, above 0."""
        raise NotImplementedError

    @property
    def _n_features_out(self) -> int:
        return len(self._embedded_codevectors())

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Distances of points, shape (n, d), from the codevectors, shape (n, K).

        Divergences, if these are not squared distances. Where values are missing, squared distances
        in the observed features are scaled up to all.
        """
        squared = divergences.resolve(self.divergence).kernel == QUADRATIC
        return self._of_each(X, lambda _, gaps: np.sqrt(gaps) if squared else gaps)

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Log-density of the histogram over the cells, shape (n,): mass divided by volume.

        Volumes are those inside the bounding box of the training data; outside, where held-out
        points may lie, it is -inf. ``SGDGaussianMixture`` and ``INFEX`` estimate densities.
        If more than 12 features vary, volumes can't be measured: the density is that of normal
        distributions at the codevectors, of the mean distortion (:func:`normal_log_density`).

        Raises
        ------
        ValueError
            If values of X, shape (n, d), are missing, or more than 12 features vary and the
            divergence is neither squared Euclidean nor Mahalanobis.
        """
        points, given = validation.fitted_points(self, X), divergences.resolve(self.divergence)
        self._divergence.check(points)
        if is_wide(self._low, self._high) and given.kernel == QUADRATIC:
            codevectors = given.embed(self._divergence.restore(self._embedded_codevectors()))
            logs = normal_log_density(
                given.embed(points), codevectors, self.weights_, self._distortion()
            )
            return np.asarray(logs + np.linalg.slogdet(given.embed(np.eye(points.shape[1])))[1])
        return log_density(points, self._cells, self.weights_, self._low, self._high)

    def _takes_missing(self) -> bool:
        return divergences.is_euclidean(self.divergence)

    def _level_index(self, level: int | None, n_clusters: int | None) -> int:
        """Index into ``history_`` of a level, or of the last with at most ``n_clusters``."""
        check_is_fitted(self)
        if (level is None) == (n_clusters is None):
            raise ValueError("give either level or n_clusters")
        sizes = [entry.n_clusters for entry in self.history_]
        if n_clusters is not None:
            if min(sizes) > n_clusters:
                raise ValueError(f"n_clusters must be at least {min(sizes)}, got {n_clusters}")
            return max(i for i, size in enumerate(sizes) if size <= n_clusters)
        assert level is not None
        if not -len(sizes) <= level < len(sizes):
            raise ValueError(f"level must be below {len(sizes)}, got {level}")
        return range(len(sizes))[level]

    def _embedded(self, X: Any) -> tuple[FloatArray, np.dtype[Any]]:
        """Points for a fitted model, in the divergence's coordinates, and the precision of X.

        In a learned metric they have double precision: differences far from 0 would be lost.
        """
        points = validation.fitted_points(self, X)
        self._divergence.check(points)
        return self._divergence.embed(points), points.dtype

    def _of_each(
        self, X: Any, function: Callable[[FloatArray, FloatArray], FloatArray]
    ) -> FloatArray:
        """Call a function of embedded points and their divergences, shape (n, K), in blocks."""
        points, precision = self._embedded(X)
        between, codevectors = self._divergence.between, self._embedded_codevectors()
        values = np.empty((len(points), len(codevectors)), dtype=precision)
        largest = np.finfo(precision).max
        for rows in validation.chunks(*values.shape):
            block = function(points[rows], between(points[rows], codevectors))
            values[rows] = np.minimum(block, largest)
        return values


@estimator
class BaseODA(validation.TakesSingle, CellEstimator):
    """Estimators over :class:`oda_rl.annealing.annealer.Annealer`."""

    n_clusters: Annotated[Any, COUNT] = 40
    _: KW_ONLY
    divergence: Annotated[str | Divergence, one_of(*NAMED), Divergence] = "squared_euclidean"
    min_temperature: Annotated[float, within("[0, 1)")] = 1e-3
    max_samples: Annotated[int | None, SAMPLES, None] = None
    cooling: Annotated[Any, FRACTION] = 0.8
    samples_per_cluster: Annotated[Any, COUNT] = 20
    forgetting: Annotated[float, within("[0, 1]")] = 0.0
    init: Annotated[npt.ArrayLike | None, "array-like", None] = None
    constants: Annotated[AnnealingConstants | None, AnnealingConstants, None] = None
    random_state: Seed = None

    _stored = _STORED
    _stream_clusters = 40  # of "auto"
    _annealer: Annotated[Annealer, Annealer] = field(init=False)
    _codebook: Annotated[Codebook, Codebook] = field(init=False)
    _low: Annotated[FloatArray, real("d")] = field(init=False)
    _high: Annotated[FloatArray, real("d")] = field(init=False)
    _waiting: Annotated[list[_Samples] | None, _WAITING] = field(init=False)
    _single: Annotated[bool, flags()] = field(init=False, default=False)
    """Whether samples came in single precision."""
    _given_share: Annotated[float, real("", "[0, inf)")] = field(init=False, default=1.0)
    """Mean divergence as given, over that by which the codebook learns."""
    _weighed: Annotated[FloatArray, validation.WEIGHED] = field(init=False)
    _stream_seed: Annotated[int, whole("", "[0, 4294967295]")] = field(init=False)
    codevectors_: Annotated[FloatArray, Floats("M, d")] = field(init=False)
    weights_: Annotated[FloatArray, real("M", "[0, inf)")] = field(init=False)
    temperature_: Annotated[float, real("", "[0, inf)")] = field(init=False)
    n_samples_seen_: Annotated[int, whole()] = field(init=False)
    codevector_labels_: Annotated[Any, ANYTHING] = field(init=False)
    labels_: Annotated[IntArray, whole("n_labels", "[0, M)")] = field(init=False)
    inertia_: Annotated[float, real("", "[0, inf)")] = field(init=False)

    @property
    def history_(self) -> list[annealer.Level]:
        """The state at the end of each temperature, a :class:`oda_rl.annealing.annealer.Level`."""
        return self._annealer.history

    @property
    def cluster_centers_(self) -> FloatArray:
        """Another name of ``codevectors_``, as KMeans has it."""
        return self.codevectors_

    @property
    def _divergence(self) -> Divergence:
        return self._annealer.divergence

    def _cells(self, points: FloatArray) -> IntArray:
        return self._assigned(self._divergence.embed(points))[0]

    def _distortion(self) -> float:
        current = self._annealer
        return self._given_share * current.distortion() or current.scale or 1.0

    def _settle(self, points: FloatArray, weights: FloatArray, least: float = 0.0) -> None:
        """Measure the distortion of points, or ``least``, and make steps as short as after them."""
        given, learned = divergences.resolve(self.divergence), self._annealer.divergence
        gaps = self._assigned(learned.embed(points))[1]
        distortion, self._given_share = float(np.average(gaps, weights=weights)), 1.0
        if given.kernel == QUADRATIC and distortion > 0.0:
            codevectors = given.embed(learned.restore(self._embedded_codevectors()))
            _, gaps = nearest(given.embed(points), np.ascontiguousarray(codevectors))
            self._given_share = float(np.average(gaps, weights=weights)) / distortion
        self._annealer.settle(max(distortion, least))

    def at_level(self, level: int | None = None, *, n_clusters: int | None = None) -> Self:
        """Return the model as it was when a temperature level ended, without refitting.

        Refinement, fine-tuning and a learned metric are undone. ``partial_fit`` anneals on.

        Parameters
        ----------
        level : int, optional
            Index into ``history_``.
        n_clusters : int, optional
            Instead: the last level with at most this many codevectors.

        Raises
        ------
        ValueError
            If not exactly one of the two is given, or there is no such level.
        """
        i = self._level_index(level, n_clusters)
        model = copy.copy(self)
        model._annealer = copy.deepcopy(self._annealer)
        model._annealer.measure_by(divergences.resolve(self.divergence))
        model._annealer.return_to(i)
        model._publish()
        model._step_back()
        for name in {"labels_", "inertia_"} & set(vars(model)):
            delattr(model, name)
        return model

    # Subclasses may override these.

    def _takes_single(self) -> bool:
        return divergences.is_euclidean(self.divergence)

    def _step_back(self) -> None:
        """Bring other learned attributes to the level that was returned to."""

    def _pace(self, refined: bool, n_points: float) -> tuple[float, int]:
        """Cooling factor, and samples of a level for each codevector."""
        return float(self.cooling), int(self.samples_per_cluster)

    def _max_codevectors(self, n_classes: int) -> int:
        if self.n_clusters != "auto":
            return max(int(self.n_clusters), n_classes)
        return getattr(self, "_largest", self._stream_clusters)

    def _publish(self, limit: int | None = None) -> None:
        """Set the public attributes from the annealer's state."""
        current = self._annealer
        self._codebook = current.view(limit)
        self.codevectors_ = current.divergence.restore(self._embedded_codevectors())
        if self._single:
            self.codevectors_ = self.codevectors_.astype(np.float32)
        self.weights_ = self._codebook.weights
        self.temperature_ = current.temperature
        self.n_samples_seen_ = current.n_samples_seen

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        names = ("_annealer", "_codebook", "_low", "_high", "_waiting", "codevectors_", "weights_",
                 "codevector_labels_")  # fmt: skip
        if check_fitted((hasattr(self, name) for name in names), where):
            labels = self.codevector_labels_
            right = isinstance(labels, np.ndarray) and labels.shape[:1] == (sizes["M"],)
            require(right, f"{where}.codevector_labels_ are not of {sizes['M']} codevectors")
            same = divergences.resolve(self.divergence).kernel == self._annealer.divergence.kernel
            require(same, f"{where}.divergence is not that of the codebook")
            require((self._low <= self._high).all(), f"{where}._low is above _high")
            waiting = sum(len(block[0]) for block in self._waiting or [])
            largest = annealer.LEVEL_SAMPLES + sizes["classes"]
            require(waiting < largest, f"{where}._waiting has {waiting} samples")

    def _checked_init(self, divergence: Divergence, n_classes: int) -> FloatArray | None:
        if self.init is None:
            return None
        init = check_array(self.init, dtype=np.float64, copy=True, input_name="init")
        if init.shape[1] != self.n_features_in_ or len(init) % n_classes:
            raise ValueError(
                f"init must have shape (k, {self.n_features_in_}) with k a multiple of "
                f"{n_classes}, got {init.shape}"
            )
        divergence.check(validation.bounded(init, "init"))
        return divergence.embed(init)

    @property
    def _first_divergence(self) -> Divergence:
        """That of annealing, before a metric is learned."""
        return getattr(self, "_scaled", None) or divergences.resolve(self.divergence)

    def _embedded_codevectors(self) -> FloatArray:
        return self._codebook.codevectors[:, : self.n_features_in_]

    def _assigned(self, points: FloatArray) -> tuple[IntArray, FloatArray]:
        """Nearest codevector of embedded points, and its divergence; both of shape (n,)."""
        divergence, codevectors = self._annealer.divergence, self._embedded_codevectors()
        if divergence.kernel == QUADRATIC and len(codevectors) <= annealer.FEW_CLUSTERS:
            return nearest(points, np.array(codevectors, order="C"))  # sooner than matrices
        cells, gaps = [], []
        for rows in validation.chunks(len(points), len(codevectors)):
            cells.append(divergence.between(points[rows], codevectors).argmin(axis=1))
            gaps.append(divergence.rowwise(points[rows], codevectors.take(cells[-1], axis=0)))
        return np.concatenate(cells), np.concatenate(gaps)

    def _new_annealer(
        self, n_classes: int, rng: np.random.Generator, refined: bool = False,
        n_points: float = np.inf, limit: int | None = None,
    ) -> Annealer:  # fmt: skip
        """Make an annealer; one whose codebook is ``refined`` afterwards ends when it is full."""
        cooling, samples = self._pace(refined, n_points)
        schedule = Schedule(
            max_codevectors=limit or self._max_codevectors(n_classes),
            min_temperature=float(self.min_temperature),
            cooling=cooling,
            samples_per_codevector=samples,
            max_samples=np.inf if self.max_samples is None else int(self.max_samples),
            target_distortion=float(getattr(self, "target_distortion", 0.0)),
            ends_full=refined,
            forgetting=float(self.forgetting),
            constants=self.constants or Schedule.constants,
            class_competition=getattr(self, "class_competition", True),
            measures=cooling >= _FINE,
        )
        return Annealer(schedule, self._first_divergence, self.n_features_in_, rng)

    def _embed_all(self, divergence: Divergence, points: FloatArray) -> FloatArray:
        """Embed the features of points, shape (n, d + q), and leave the other columns."""
        d = self.n_features_in_
        divergence.check(points[:, :d])
        if points.shape[1] == d:
            return divergence.embed(points)
        return np.concatenate([divergence.embed(points[:, :d]), points[:, d:]], axis=1)

    def _anneal(
        self, points: FloatArray, classes: IntArray, weights: FloatArray, *, refined: bool = False,
        limit: int | None = None,
    ) -> Distribution:  # fmt: skip
        """Anneal a new codebook of at most ``limit`` on samples of points, shape (n, d + q)."""
        self._stream_seed = validation.seed_of(self.random_state)
        rng = np.random.default_rng(self._stream_seed)
        self._single = bool(points.dtype == np.float32)
        points, classes, weights = counted(points, classes, weights)
        validation.check_columns(self, points)
        n_classes = int(classes.max()) + 1
        embedded = self._embed_all(self._first_divergence, points)
        data = Distribution(embedded, classes, weights, rng, self.n_features_in_)
        current = self._new_annealer(n_classes, rng, refined, len(data.points), limit)
        if n_classes > 1 or self.forgetting > 0.0:
            probe = data.spread(annealer.PROBE)
            current.probe = data.points[probe].astype(np.float64), data.classes[probe]
        current.anneal(data, self._checked_init(current.divergence, n_classes))
        self._annealer, self._waiting = current, None
        if current.scale == 0.0:  # a stream gives it
            self._waiting = [self._joined(points.astype(np.float64), classes, weights)]
        self._low = self._high = points[0, : self.n_features_in_]
        self._see(points)
        return data

    def _see(self, points: FloatArray) -> None:
        """Extend the bounding box of the data; NaN does not count."""
        columns = points.T[: self.n_features_in_].copy()  # of which extremes take less time
        corners = [np.fmin.reduce(columns, axis=1), np.fmax.reduce(columns, axis=1)]
        if hasattr(self, "_low"):
            corners += [self._low, self._high]
        box = np.array(corners, dtype=np.float64)
        self._low, self._high = np.fmin.reduce(box, axis=0), np.fmax.reduce(box, axis=0)

    def _stream(
        self, points: FloatArray, classes: IntArray, weights: FloatArray, labelled: bool
    ) -> None:
        """Learn from points, shape (n, d + q), in their order, each once.

        The first 100 give the scale, or the next ones if those of a class are equal: until then
        each call starts anew from all of them.
        """
        first = not hasattr(self, "_annealer")
        if first:
            self._stream_seed = validation.seed_of(self.random_state)
            self._waiting = []
            self._single = bool(points.dtype == np.float32)
        points, classes, weights = counted(points, classes, weights)
        if first:
            validation.check_columns(self, points)
        elif len(points) == 0:
            return
        self._see(points)
        while self._waiting is not None and len(points) > 0:
            before = self._annealer.n_samples_seen if hasattr(self, "_annealer") else 0
            n = annealer.LEVEL_SAMPLES - before % annealer.LEVEL_SAMPLES
            self._waiting.append((points[:n].astype(np.float64), classes[:n], weights[:n]))
            columns = zip(*self._waiting, strict=True)
            first_points, *marks = (np.concatenate(column) for column in columns)
            n_classes = int(marks[0].max()) + 1
            current = self._new_annealer(n_classes, np.random.default_rng(self._stream_seed))
            current.n_samples_seen = before + len(points[:n]) - len(first_points)
            embedded = self._embed_all(current.divergence, first_points)
            current.probe = (embedded, marks[0]) if labelled or self.forgetting > 0.0 else None
            current.begin(embedded, *marks, init=self._checked_init(current.divergence, n_classes))
            self._annealer = current
            if len(points) >= n:
                still = current.scale == 0.0
                self._waiting = [self._joined(first_points, *marks)] if still else None
            points, classes, weights = points[n:], classes[n:], weights[n:]
        if len(points) > 0:
            embedded = self._embed_all(self._annealer.divergence, points)
            self._annealer.observe(embedded, classes, weights)

    def _joined(self, points: FloatArray, classes: IntArray, weights: FloatArray) -> _Samples:
        """Return the mean of each class, whose features are equal, and all of its weight."""
        owners, rows = np.unique(classes, return_index=True)
        means = cell_means(points, weights, classes, np.full_like(points[rows], np.nan))
        d = self.n_features_in_  # whose values must not drift by rounding
        means[:, :d] = filled(points[rows, :d], means[:, :d])
        return means, owners, np.bincount(classes, weights).astype(np.float64)


def log_cell_volumes(
    assign: Callable[[FloatArray], IntArray], n_cells: int, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Logarithms of the volumes of cells inside a box, shape (n_cells,), by Sobol's 2^16 points.

    ``assign`` takes points, shape (n, d), and returns their cells, shape (n,). The box is from
    ``low`` to ``high``, shape (d,); sides of length 0 do not count. A cell without points counts
    as half of one. Raises a ValueError if the box has more than 12 dimensions.
    """
    sides = high - low
    wide = sides > 0.0
    if wide.sum() > MAX_BOX_DIMENSION:
        raise ValueError(
            f"the volume of cells cannot be measured in {int(wide.sum())} dimensions: at most "
            f"{MAX_BOX_DIMENSION} features may vary"
        )
    if not wide.any():
        return np.zeros(n_cells)
    points = np.tile(low, (2**_LOG2_POINTS, 1))
    unit = qmc.Sobol(int(wide.sum()), scramble=False).random_base2(_LOG2_POINTS)
    points[:, wide] += (unit + 0.5 / len(unit)) * sides[wide]
    shares = np.maximum(np.bincount(assign(points), minlength=n_cells), 0.5) / len(points)
    return np.asarray(np.log(shares) + np.log(sides[wide]).sum())


def with_rim(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a box that also has its points as single precision rounds them, shape (d,) each."""
    return low - validation.ROUNDING * np.abs(low), high + validation.ROUNDING * np.abs(high)


def is_wide(low: FloatArray, high: FloatArray) -> bool:
    """Whether more than 12 sides of a box have a length."""
    return bool((high > low).sum() > MAX_BOX_DIMENSION)


def normal_log_density(
    points: FloatArray, codevectors: FloatArray, weights: FloatArray, distortion: float
) -> FloatArray:
    """Log-density of normal distributions at codevectors, shape (K, d); shape (n,).

    Their variance is ``distortion``/d in each direction; ``weights`` have shape (K,). Raises a
    ValueError if values of points, shape (n, d), are missing.
    """
    check_complete(points)
    d, between = points.shape[1], divergences.SquaredEuclidean().between
    with np.errstate(divide="ignore"):
        logs = np.log(weights) - 0.5 * d * np.log(2.0 * np.pi * distortion / d)
    scale = -0.5 * d / distortion
    parts = [
        scale * between(points[rows], codevectors) + logs for rows in validation.chunks(len(points))
    ]
    return np.concatenate([np.logaddexp.reduce(part, axis=1) for part in parts])


def check_complete(points: FloatArray) -> None:
    """Raise ValueError if values are missing."""
    if holes(points) is not None:
        raise ValueError("X has missing values: the density of cells needs complete samples")


def log_density(
    points: FloatArray, assign: Callable[[FloatArray], IntArray], weights: FloatArray,
    low: FloatArray, high: FloatArray,
) -> FloatArray:  # fmt: skip
    """Log-density of the histogram at points, shape (n, d); -inf outside the box.

    ``weights``, shape (n_cells,), are the masses of the cells. Consistent as the temperature goes
    to 0 and the number of samples to infinity (Mavridis and Baras, "Annealing optimization for
    progressive learning with stochastic approximation", section on density estimation). Raises a
    ValueError if values are missing, or the box has more than 12 dimensions.
    """
    check_complete(points)
    volumes = log_cell_volumes(assign, len(weights), low, high)
    with np.errstate(divide="ignore"):
        values = np.log(weights) - volumes
    low, high = with_rim(low, high)
    inside = ((points >= low) & (points <= high)).all(axis=1)
    return np.where(inside, values[assign(points)], -np.inf)
