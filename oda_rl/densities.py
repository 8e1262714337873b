"""Classification and outlier detection by densities."""

from collections.abc import Iterator
from dataclasses import field
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin, OutlierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import has_fit_parameter

from oda_rl import _validation as validation
from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.annealing.annealer import Distribution
from oda_rl.annealing.base import BaseODA
from oda_rl.annealing.classifier import folds
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.exemplars.base import ExemplarMixture
from oda_rl.exemplars.estimators import INFEX, ConvexClustering, KernelVectorQuantization
from oda_rl.files import estimators, schema
from oda_rl.mixtures.base import StreamingMixture
from oda_rl.mixtures.sgd import SGDGaussianMixture
from oda_rl.mixtures.stochastic_em import StochasticEMGaussianMixture
from oda_rl.samples import Weighted, counted, deviations_of, means_of, weighted
from oda_rl.trees.estimators import BaseODATree, ODATreeClusterer

_COMPONENTS, _TOL, _FLOOR_SHARE = (4, 2, 1), 1e-3, 1e-3  # components: classes choose among them
_MIN_SHARE = 1e-6  # where a floor is given, full covariances get no sample of their mean
_NARROWEST = 1e-14  # of the standard deviation: a smaller root of a floor would be too small
_SIZES = ("n_components", "n_clusters")
_SELECTION_SAMPLES, _RARE = 10_000, 50  # in all, and at least of each class
_MAX_TIMES = 1000  # a sample is repeated, for estimators without weights
_KINDS: tuple[type, ...] = (
    *(ConvexClustering, INFEX, KernelVectorQuantization, ODAClusterer, ODATreeClusterer),
    *(SGDGaussianMixture, StochasticEMGaussianMixture),
)
STORED: dict[str, type] = {  # classes that a file may have of densities
    **{kind.__name__: kind for kind in _KINDS},
    **BaseODA._stored,
    **BaseODATree._stored,
    **ExemplarMixture._stored,
    **StreamingMixture._stored,
}


def common_floor(data: Weighted, share: float) -> FloatArray | None:
    """Variance floor of each feature, shape (d,), for the densities of all classes.

    It is a share of E[g⁴] / E[g²], where g is the gap from the mean of all samples. Like a share of
    the variance E[g²], it is independent of units; but it is larger for a pixel that is rarely
    bright. Outliers are clipped. None if squares vanish.
    """
    points = np.stack([_clipped(column, data.weights) for column in data.points.T], axis=1)
    gaps = np.abs(points - means_of(points, data.weights))
    largest = np.fmax.reduce(gaps, axis=0)
    shares = gaps / np.where(largest > 0.0, largest, 1.0)  # whose powers are finite
    squares, fourths = (means_of(shares**power, data.weights) for power in (2, 4))
    deviations = deviations_of(data.points, data.weights)
    varying = deviations_of(points, data.weights) > 0.0
    roots = largest[varying] * np.sqrt(share * fourths[varying] / squares[varying])
    roots = np.maximum(roots, _NARROWEST * deviations[varying])
    floor = np.full(len(varying), np.mean(roots) ** 2 if varying.any() else 0.0)
    floor[varying] = roots**2
    return floor if floor.min() > 0.0 else None  # squares of very small numbers are 0


def _clipped(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Clip a feature, shape (n,), at three times the 99 % quantile of the gaps from the median.

    Gaps of 0 do not count: a pixel that is rarely bright is not clipped.
    """
    known = ~np.isnan(values)
    middle = _quantile(values[known], weights[known], 0.5)
    gaps = np.abs(values - middle)
    some = gaps > 0.0
    width = 3.0 * _quantile(gaps[some], weights[some], 0.99) if some.any() else 0.0
    return np.clip(values, middle - width, middle + width)


def _to_fit(model: Any, data: Weighted) -> tuple[list[Any], int]:
    """Return the estimators to choose among for parts of the data, and a seed for them.

    Mixtures have the variance floors of all data, so that units do not differ between classes.
    """
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    density, share = model.estimator, _FLOOR_SHARE
    if density is None:
        density = SGDGaussianMixture(_COMPONENTS[0], tol=_TOL)
    elif not isinstance(density, StreamingMixture) or density.variance_floor is not None:
        return [density], seed
    else:
        density, share = clone(density), max(density._floor_share()[0], _MIN_SHARE)
    floor = common_floor(data, share)
    spherical = floor is not None and density._spherical()
    density.set_params(variance_floor=float(np.mean(floor)) if spherical else floor)  # type: ignore[arg-type]
    sizes = _COMPONENTS if model.estimator is None else ()
    return [clone(density).set_params(n_components=n) for n in sizes] or [density], seed


def _splits(data: Weighted) -> Iterator[tuple[Weighted, Weighted]]:
    """Training and held-out samples of five folds of at most about 10,000 samples."""
    every = Distribution(data.points, data.classes, data.weights, np.random.default_rng(0))
    data = Weighted(*every.stratified(_SELECTION_SAMPLES, _RARE))
    for train, test in folds(data.classes, np.random.default_rng(0)):
        yield _rows(data, train), _rows(data, test)


def _fitted_density(estimator: Any, data: Weighted, seed: int) -> Any:
    """Fit a copy of an estimator to weighted samples, with no more components than samples.

    The seed replaces a ``random_state`` of None.
    """
    density = clone(estimator)
    given = density.get_params(deep=False)
    changed = {name: min(given[name], len(data.points)) for name in _SIZES if name in given}
    if "random_state" in given and given["random_state"] is None:
        changed["random_state"] = seed
    density.set_params(**changed)
    if has_fit_parameter(density, "sample_weight"):
        return density.fit(data.points, sample_weight=data.weights)
    times = data.weights / data.weights.min()
    if (times != np.floor(times)).any() or times.max() > _MAX_TIMES:
        raise TypeError(
            f"{type(density).__name__} takes no weights: those of samples must be multiples of the "
            f"smallest, at most {_MAX_TIMES:,} times as large"
        )
    return density.fit(data.points.repeat(times.astype(np.int64), axis=0))


def _filled(part: Weighted, points: FloatArray) -> Weighted:
    """Fill features without a value in a class with values of all classes: they tell nothing."""
    filled = part.points.copy()
    for j in np.flatnonzero(np.isnan(filled).all(axis=0)):
        seen = points[~np.isnan(points[:, j]), j]
        filled[:, j] = np.resize(seen if len(seen) else 0.0, len(filled))
    return part._replace(points=filled)


def _check_density(density: Any, n_features: int, where: str) -> None:
    """Raise an exception unless a density from a file could have been saved."""
    fits = getattr(density, "n_features_in_", 0) == n_features
    if not isinstance(density, estimators.Filed) or not fits:
        raise TypeError(f"{where} is no density of {n_features} features")
    density._validate_params()  # type: ignore[attr-defined]
    schema.check_contents(density, {"d": n_features}, where)


def _log_densities(density: Any, points: FloatArray) -> FloatArray:
    """Log-density of samples, shape (n,), finite: at least -1e300."""
    return np.asarray(np.maximum(density.score_samples(points), -1e300))


class _OfDensities(estimators.Filed, validation.TakesMissing):
    """Estimators that take missing values if their density is a Gaussian mixture."""

    estimator: Any

    def _takes_missing(self) -> bool:
        return self.estimator is None or isinstance(self.estimator, StreamingMixture)


_MIN_LOG = -36.0  # of probabilities, about the rounding of double precision
_TEMPERATURES = np.geomspace(1.0, 4096.0, 49)


@estimators.estimator
class DensityClassifier(estimators.Supervised, ClassifierMixin, _OfDensities):
    """Classify by Bayes' rule, with one density a class.

    A density of many features is overconfident, so the logarithms are divided by a temperature.
    Five folds choose it, and the number of components of the default density: those with the lowest
    log loss on held-out samples.

    Parameters
    ----------
    estimator : estimator or None, default=None
        One with ``score_samples``: a mixture, exemplars, a tree. A copy is fitted to each class,
        with no more components than samples. None: a :class:`oda_rl.SGDGaussianMixture` of 1, 2
        or 4 components with a variance floor for each feature, independent of its unit. If ``fit``
        of it takes no weights, these must be multiples of the smallest, up to 1,000 times as large.
    random_state : int, RandomState instance or None, default=None
        Replaces a ``random_state`` of None in the densities.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        Class labels, sorted.
    class_prior_ : ndarray, shape (C,)
        Share of each class in the data.
    densities_ : list of estimator
        The density of each class.
    temperature_ : float
        From 1 to 4,096.

    References
    ----------
    C. Guo, G. Pleiss, Y. Sun, K. Weinberger, "On calibration of modern neural networks",
    International Conference on Machine Learning, 2017: scaling by a temperature.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = DensityClassifier(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.98
    True
    """

    estimator: Annotated[Any, estimators.DENSITY, None] = None
    random_state: estimators.Seed = None

    _stored = STORED
    classes_: Annotated[Array, schema.ANYTHING] = field(init=False)
    class_prior_: Annotated[FloatArray, schema.real("C", "(0, 1]")] = field(init=False)
    densities_: Annotated[list[Any], schema.ANYTHING] = field(init=False)
    temperature_: Annotated[float, schema.real("", "[1, inf)")] = field(init=False)

    def _check_contents(self, sizes: schema.Sizes, where: str) -> None:
        if schema.check_fitted((name in vars(self) for name in self._LEARNED), where):
            n = sizes["C"]
            schema.check_labels(self.classes_, n, f"{where}.classes_")
            right = isinstance(self.densities_, list) and len(self.densities_) == n
            schema.require(right, f"{where}.densities_ must be a list of {n}")
            for k, density in enumerate(self.densities_):
                _check_density(density, sizes["d"], f"{where}.densities_[{k}]")

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        points, labels = validation.checked_labels(self, X, y, reset=True)
        weights = validation.checked_weights(sample_weight, points)
        points, labels, weights = counted(points, labels, weights)
        self.classes_, classes = np.unique(labels, return_inverse=True)
        validation.check_columns(self, points)
        data = weighted(points, weights, classes.astype(np.int64))
        options, seed = _to_fit(self, data)
        density, self.temperature_ = options[0], 1.0
        if len(self.classes_) > 1:
            density, self.temperature_ = self._best(options, data, seed)
        self.class_prior_, self.densities_ = self._fitted(density, data, seed)
        return self

    def predict(self, X: npt.ArrayLike) -> Array:
        """Most probable class of each sample, shape (n,)."""
        logs = self.predict_log_proba(X)  # first: it says so where nothing has been fitted
        return np.asarray(self.classes_[logs.argmax(axis=1)])

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Probability of each of ``classes_``, shape (n, C); rows sum to 1."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict_log_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Logarithms of :meth:`predict_proba`, shape (n, C)."""
        points = validation.fitted_points(self, X)  # first: it says so if nothing is fitted
        return _posterior(_logs(self.densities_, points), self.class_prior_, self.temperature_)

    def _fitted(self, density: Any, data: Weighted, seed: int) -> tuple[FloatArray, list[Any]]:
        """Shares of the classes, and their densities."""
        n_classes = len(self.classes_)
        weights = np.bincount(data.classes, data.weights, minlength=n_classes)
        filled = [_filled(_rows(data, data.classes == c), data.points) for c in range(n_classes)]
        return weights / weights.sum(), [_fitted_density(density, one, seed) for one in filled]

    def _best(self, options: list[Any], data: Weighted, seed: int) -> tuple[Any, float]:
        """Density and temperature of the lowest log loss on held-out samples."""
        losses = np.zeros((len(options), len(_TEMPERATURES)))
        for part, held_out in _splits(data):
            right = np.arange(len(held_out.classes)), held_out.classes
            for density, loss in zip(options, losses, strict=True):
                prior, densities = self._fitted(density, part, seed)
                logs = _logs(densities, held_out.points)
                found = (_posterior(logs, prior, t)[right] for t in _TEMPERATURES)
                # One mistyped value must not decide: its loss is bounded.
                loss -= [np.maximum(logs, _MIN_LOG) @ held_out.weights for logs in found]
        best, t = divmod(int(losses.argmin()), len(_TEMPERATURES))
        return options[best], float(_TEMPERATURES[t])


def _rows(data: Weighted, rows: IntArray | BoolArray) -> Weighted:
    return Weighted(data.points[rows], data.classes[rows], data.weights[rows])


def _logs(densities: list[Any], points: FloatArray) -> FloatArray:
    return np.stack([_log_densities(density, points) for density in densities], axis=1)


def _posterior(logs: FloatArray, prior: FloatArray, temperature: float) -> FloatArray:
    """Logarithms of probabilities, shape (n, C)."""
    return np.asarray(log_softmax(np.log(prior) + logs / temperature, axis=1))


@estimators.estimator
class DensityOutlierDetector(estimators.Unsupervised, OutlierMixin, _OfDensities):
    """Detect outliers: samples of a lower density than a share of the training samples.

    Parameters
    ----------
    estimator : estimator or None, default=None
        As for :class:`oda_rl.DensityClassifier`. None: 1, 2 or 4 components, whichever make
        held-out samples most likely, without the lightest ones that have at most ``contamination``
        of the samples together, since these may be the outliers.
    contamination : float, default=0.1
        Share of the training samples that are outliers, in (0, 0.5].
    random_state : int, RandomState instance or None, default=None
        Replaces a ``random_state`` of None in the density.

    Attributes
    ----------
    density_ : estimator
        Fitted to all samples.
    offset_ : float
        Log-density below which a sample is an outlier.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> model = DensityOutlierDetector(random_state=0).fit(X)
    >>> model.predict([[0.0, 0.0], [9.0, 9.0]])
    array([ 1, -1])
    >>> int((model.predict(X) == -1).sum())
    30
    """

    estimator: Annotated[Any, estimators.DENSITY, None] = None
    contamination: Annotated[float, estimators.within("(0, 0.5]")] = 0.1
    random_state: estimators.Seed = None

    _stored = STORED
    density_: Annotated[Any, schema.ANYTHING] = field(init=False)
    offset_: Annotated[float, schema.real()] = field(init=False)

    def _check_contents(self, sizes: schema.Sizes, where: str) -> None:
        if schema.check_fitted((name in vars(self) for name in self._LEARNED), where):
            _check_density(self.density_, sizes["d"], f"{where}.density_")

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        points = validation.checked_points(self, X, reset=True)
        validation.check_columns(self, points)
        data = weighted(points, validation.checked_weights(sample_weight, points))
        options, seed = _to_fit(self, data)
        several = min(len(options), len(data.points)) > 1
        density = self._chosen(options, data, seed) if several else options[0]
        self.density_ = self._fitted(density, data, seed)
        scores = _log_densities(self.density_, data.points)
        self.offset_ = _quantile(scores, data.weights, float(self.contamination))
        return self

    def _fitted(self, density: Any, data: Weighted, seed: int) -> Any:
        """Fit a density; the default without its lightest components."""
        fitted = _fitted_density(density, data, seed)
        if self.estimator is None:
            weights = fitted._mixture.weights
            order = np.argsort(weights, kind="stable")
            light = np.cumsum(weights[order]) <= float(self.contamination) * weights.sum()
            weights[order[light]] = 1e-300  # whose logarithm is finite
        return fitted

    def _chosen(self, options: list[Any], data: Weighted, seed: int) -> Any:
        """Density of which held-out samples are most likely, but for the share of outliers."""
        scores, weights = [], []
        for part, held_out in _splits(data):
            filled = _filled(part, data.points)
            fitted = [self._fitted(density, filled, seed) for density in options]
            scores.append(_logs(fitted, held_out.points))
            weights.append(held_out.weights)
        columns, shares = np.concatenate(scores).T, np.concatenate(weights)
        lowest = [_quantile(column, shares, float(self.contamination)) for column in columns]
        means = np.maximum(columns, np.array(lowest)[:, None]) @ shares
        return options[int(np.argmax(means))]

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Log-density of each sample, shape (n,)."""
        points = validation.fitted_points(self, X)  # first: it says so if it is not
        return _log_densities(self.density_, points)

    def decision_function(self, X: npt.ArrayLike) -> FloatArray:
        """Log-density minus ``offset_``, shape (n,); negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """-1 for outliers, 1 for others, shape (n,)."""
        return np.where(self.decision_function(X) < 0.0, -1, 1)


def _quantile(scores: FloatArray, weights: FloatArray, share: float) -> float:
    """Score below which lies a share of the weight: half way between two of the scores."""
    order = np.argsort(scores, kind="stable")
    ends = np.cumsum(weights[order])
    first = int(np.searchsorted(ends, share * ends[-1] * (1.0 + 1e-9), side="right"))
    inside = float(scores[order[min(first, len(order) - 1)]])
    between = 0.5 * (inside + float(scores[order[max(first - 1, 0)]]))
    return between if between > -1e290 else inside
