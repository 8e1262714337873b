"""Base class of Gaussian mixtures, and the units in which mixtures learn.

The paper clips D, with P = D², at D_max: no variance falls below 1/D_max². Pixels that hardly vary
would otherwise get precisions without bound. Here that floor is a share of the mean variance of all
features, in which scaling the data changes nothing, unless it is given.
"""

import math
from collections.abc import Callable
from numbers import Integral
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, softmax
from sklearn.base import DensityMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from oda_rl import _validation as validation
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.diagram import LARGEST_DATA
from oda_rl.files.estimators import Filed, RandomState, Unsupervised, within
from oda_rl.files.schema import Sizes, check_fitted, flags, real, require, whole
from oda_rl.mixtures import learning
from oda_rl.mixtures.kernels import RELEASED, Mixture, Progress, Rules
from oda_rl.samples import Weighted, canonical_order, deviations_of, holes, means_of, weighted

DTYPES = [np.float64, np.float32]
_SHARE, _FULL_SHARE = 1e-3, 1e-8  # of the mean variance: the floor if none is given
_FARTHEST = {np.dtype(np.float64): 1e300, np.dtype(np.float32): 1e37}  # of scored samples
_LARGEST_SINGLE = 1e15  # of samples of single precision, as LARGEST_DATA of those of double
_WIDEST = 1e15  # root of the largest ratio of a variance to a floor: its inverse is a precision

COMPONENTS = within("[1, 10_000]", Integral)  # the square is the size of their grid
VarianceFloor = Annotated[float | npt.ArrayLike | None, within("(0, inf)"), "array-like", None]


class StreamingMixture(Unsupervised, Filed, DensityMixin, validation.TakesMissing):
    """A Gaussian mixture, however it has learned; subclasses set ``_mixture``."""

    n_components: int
    covariance_type: str
    variance_floor: VarianceFloor
    random_state: RandomState
    _mixture: Annotated[Mixture, Mixture]
    _origin: Annotated[FloatArray, real("d")]
    """In double precision, so that single precision suffices far from 0."""
    _units: Annotated[FloatArray, real("d", "(0, inf)")]
    _max_precision: Annotated[float, real("", "(0, inf)")]
    _n_samples: Annotated[float, real("", "[0, inf)")]  # that it has learned from
    _incomplete: Annotated[bool, flags()] = False  # whether values were missing in these
    n_iter_: Annotated[int, whole()]
    converged_: Annotated[bool, flags()]
    lower_bound_: Annotated[float, real()]

    _stored = {"Mixture": Mixture, "Rules": Rules}  # noqa: RUF012

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        first = [name for name in self._LEARNED if name[-1] != "_" or name == "n_iter_"]
        check_fitted((name in vars(self) for name in first), where)
        origin, units = (vars(self).get(name, 1.0) for name in ("_origin", "_units"))
        require(np.all(1e-30 * np.abs(origin) < units), f"{where}._origin is too far from 0")

    @property
    def weights_(self) -> FloatArray:
        """Weights π, shape (n_components,), which sum to 1."""
        return self._typed(self._shares())

    @property
    def means_(self) -> Array:
        """Means μ, shape (n_components, n_features)."""
        return self._typed(self._places())

    def _places(self) -> FloatArray:
        return np.asarray(self._origin + self._mixture.means.astype(np.float64) * self._units)

    @property
    def variance_floor_(self) -> FloatArray:
        """Smallest variance of a component along each feature, shape (n_features,)."""
        return np.asarray(self._units * self._units / self._max_precision)

    @property
    def precisions_(self) -> FloatArray:
        """Inverses of ``covariances_``, of the same shape."""
        return self._typed(self._covariances(1.0 / self._units, inverse=False))

    @property
    def covariances_(self) -> FloatArray:
        """Covariances.

        Shape (n_components, n_features) if diagonal, (n_components, n_features, n_features) if
        full, (n_components,) if spherical.
        """
        return self._typed(self._covariances(self._units, inverse=True))

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Most probable component of each sample, shape (n_samples,).

        X, shape (n_samples, n_features), has NaN where values are missing.
        """
        return self._by_blocks(self._checked(X), lambda logs: logs.argmax(axis=1))

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Responsibilities, shape (n_samples, n_components); X as for :meth:`predict`."""
        return self._typed(self._by_blocks(self._checked(X), lambda logs: softmax(logs, axis=1)))

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Log-likelihood of each sample, shape (n_samples,), finite; X as for :meth:`predict`."""
        points = self._checked(X)
        logs = self._by_blocks(points, lambda logs: logsumexp(logs, axis=1))
        return logs - self._log_units(points)

    def score(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> float:
        """Mean log-likelihood; weights of the samples, shape (n_samples,), are at least 0."""
        return validation.mean_score(self.score_samples(X), sample_weight)

    def sample(self, n_samples: int = 1) -> tuple[FloatArray, IntArray]:
        """Draw samples, shape (n_samples, n_features); return them and their components, sorted.

        Raises
        ------
        ValueError
            If ``n_samples`` is below 1.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"n_samples is {n_samples}: it must be at least 1")
        rng = check_random_state(self.random_state)
        counts = rng.multinomial(n_samples, self._shares())
        labels = np.repeat(np.arange(len(counts)), counts)
        values, axes = learning.covariance_parts(self._delivered)
        noise = rng.standard_normal((n_samples, self._mixture.means.shape[1]))
        noise /= np.sqrt(values)[labels]
        if axes is not None:
            noise = np.einsum("nu,nuj->nj", noise, axes[labels])
        return self.means_[labels] + self._units * noise, labels

    def aic(self, X: npt.ArrayLike) -> float:
        """Akaike's information criterion on X, shape (n_samples, n_features); lower is better."""
        total, _ = self._total(X)  # first, as it tells of a mixture that is not fitted
        return 2.0 * (self._n_parameters() - total)

    def bic(self, X: npt.ArrayLike) -> float:
        """Bayesian information criterion on X, shape (n_samples, n_features); lower is better."""
        total, n = self._total(X)
        return self._n_parameters() * math.log(n) - 2.0 * total

    def _n_parameters(self) -> int:
        k, d = self._mixture.means.shape
        shapes = {"diag": k * d, "full": k * d * (d + 1) // 2, "tied_spherical": 1}
        return int(k - 1 + k * d + shapes[self.covariance_type])

    def _total(self, X: npt.ArrayLike) -> tuple[float, int]:
        """Log-likelihood of all samples, and their number."""
        scores = self.score_samples(X)
        return float(scores.sum()), len(scores)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_mixture")

    def fit_predict(self, X: npt.ArrayLike, y: object = None, **fit_params: Any) -> IntArray:
        """Fit, and return the most probable component of each sample, shape (n_samples,)."""
        return self.fit(X, y, **fit_params).predict(X)

    def _shares(self) -> FloatArray:
        """Weights in double precision."""
        return np.asarray(self._mixture.weights / self._mixture.weights.sum())

    def _typed(self, values: FloatArray) -> Array:
        """Return values in the precision of the samples that were learned."""
        return values.astype(self._mixture.means.dtype)

    def _mean_log(self, total: float, points: Array, order: IntArray) -> float:
        """Mean log-likelihood of samples in an order, with a sum without what is constant."""
        missing = holes(points)
        if missing is None:
            features, volume = float(points.shape[1]), self._volume(points, None)
        else:
            features = points.shape[1] - float(missing[order].sum(axis=1).mean())
            volume = self._volume(points[order], None)
        return total / len(order) - 0.5 * features * math.log(2.0 * math.pi) - volume

    def _covariances(self, units: FloatArray, *, inverse: bool) -> FloatArray:
        """Precisions or their inverses, in other units of length."""
        values, axes = learning.covariance_parts(self._delivered)
        values = 1.0 / values if inverse else values
        if axes is not None:
            return np.asarray(np.einsum("kui,ku,kuj,i,j->kij", axes, values, axes, units, units))
        scaled = values * units * units
        return np.asarray(scaled[:, 0] if self.covariance_type == "tied_spherical" else scaled)

    def _learn_units(self, points: Array, weights: FloatArray | None) -> None:
        validation.check_columns(self, points)
        mantissas, exponents = np.frexp(means_of(points, weights).astype(np.float64))
        # Twenty bits are exact in single precision, and do not tell how sums were rounded.
        self._origin = np.ldexp(np.round(mantissas * 2.0**20), exponents - 20)
        size = np.fmax.reduce(np.abs(points), axis=None)
        self._set_units(deviations_of(points, weights), float(size))

    def _set_units(self, deviations: FloatArray, size: float) -> None:
        """Choose units and the bound of precisions; see :func:`units_from`."""
        floor = self._checked_floor(len(deviations))
        self._units, self._max_precision = units_from(deviations, size, floor, *self._floor_share())

    def _floor_share(self) -> tuple[float, float | None]:
        """Default floor as a share of the mean variance, and the bound of precisions if fixed."""
        return _FULL_SHARE if self.covariance_type == "full" else _SHARE, None

    @property
    def _delivered(self) -> Mixture:
        """The mixture, with full covariances bounded by their number of samples without a floor."""
        released = Progress(self._mixture.progress).phase == RELEASED
        if self._mixture.axes is None or self.variance_floor is not None or not released:
            return self._mixture
        n_samples = min(self._n_samples, self._memory)
        return learning.shrunken(self._mixture, n_samples, self._max_precision)

    @property
    def _memory(self) -> float:
        """Number of samples in the running means of moments."""
        return math.inf

    def _spherical(self) -> bool:
        return self.covariance_type == "tied_spherical"

    def _validated(self, X: npt.ArrayLike, *, reset: bool) -> Array:
        """Return samples of the mixture's precision, or of double or single precision at first."""
        dtype = DTYPES if reset else self._mixture.means.dtype
        return validation.observed(validation.validated_data(self, X, reset=reset, dtype=dtype))

    def _checked(self, X: npt.ArrayLike) -> Array:
        check_is_fitted(self)
        return self._validated(X, reset=False)

    def _scaled(self, points: Array) -> Array:
        """Return samples in the unit in which the mixture learns."""
        dtype = points.dtype
        return np.asarray((points - self._origin.astype(dtype)) / self._units.astype(dtype))

    def _log_units(self, points: Array) -> FloatArray | float:
        """Logarithm of the unit volume of the observed features, of each sample or of all."""
        logs, missing = np.log(self._units), holes(points)
        return float(logs.sum()) if missing is None else np.asarray(~missing @ logs)

    def _volume(self, points: Array, weights: FloatArray | None) -> float:
        """Mean of :meth:`_log_units`."""
        logs = self._log_units(points)
        return logs if isinstance(logs, float) else float(np.average(logs, weights=weights))

    def _by_blocks(self, points: Array, reduce: Callable[[FloatArray], Array]) -> Array:
        """Reduce the log densities of samples, shape (n, K), block by block."""
        farthest, mixture = _FARTHEST[points.dtype], self._delivered
        parts = []
        for rows in validation.chunks(len(points)):
            with np.errstate(over="ignore"):
                block = np.clip(self._scaled(points[rows]), -farthest, farthest)
            parts += [reduce(logs) for logs in learning.scores(mixture, block)]
        return np.concatenate(parts)

    def _learnable(self, X: npt.ArrayLike, *, reset: bool) -> Array:
        """Return samples to learn from, shape (n, d)."""
        points = self._validated(X, reset=reset)
        self._incomplete = (self._incomplete and not reset) or holes(points) is not None
        return validation.bounded(
            points, "X", _LARGEST_SINGLE if points.dtype == np.float32 else LARGEST_DATA
        )

    def _weighted(self, X: npt.ArrayLike, sample_weight: Any) -> Weighted:
        points = self._learnable(X, reset=True)
        self._check_many(len(points))
        return weighted(points, validation.fit_weights(self, sample_weight, points))

    def _in_units(self, data: Weighted) -> Weighted:
        """Learn the units, and return samples in these, in an order independent of them."""
        self._learn_units(data.points, data.weights)
        scaled = data._replace(points=self._scaled(data.points))
        order, _ = canonical_order(scaled.points, scaled.classes, scaled.points.shape[1])
        return Weighted(scaled.points[order], scaled.classes[order], scaled.weights[order])

    def _check_many(self, n_samples: int) -> None:
        if n_samples < self.n_components:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, "
                f"n_samples = {n_samples}: learning begins with that many samples"
            )

    def _checked_floor(self, n_features: int) -> FloatArray | None:
        """Return ``variance_floor``, of shape () or (d,)."""
        if self.variance_floor is None:
            return None
        floor = check_array(
            self.variance_floor, dtype=np.float64, ensure_2d=False, ensure_min_samples=0,
            input_name="variance_floor",
        )  # fmt: skip
        right = [()] if self._spherical() else [(), (n_features,)]
        if floor.shape not in right or floor.min() <= 0.0:
            raise ValueError(
                f"variance_floor is {self.variance_floor!r:.80}: it must be above 0, of shape "
                f"{' or '.join(map(str, right))}"
            )
        return np.asarray(floor)

    def _checked_means(self, means: npt.ArrayLike, points: Array) -> Array:
        checked = check_array(means, dtype=points.dtype, copy=True, input_name="means_init")
        wanted = self.n_components, points.shape[1]
        if checked.shape != wanted:
            raise ValueError(f"means_init has shape {checked.shape}: it must be {wanted}")
        return self._scaled(np.asarray(checked))


def units_from(
    deviations: FloatArray, size: float, floor: FloatArray | None, share: float, bound: float | None
) -> tuple[FloatArray, float]:
    """Choose units of length, shape (d,), and the largest precision in these: D_max².

    Units are proportional to the roots of the floors, shape () or (d,); without a floor it is a
    ``share`` of the mean variance of the features whose deviation is not 0 (``size`` replaces
    deviations if all are 0). ``bound`` fixes the largest precision; None: the mean variance is 1.
    """
    if floor is None:
        scale = _mean_deviation(deviations) or size or 1.0
        roots, precision = np.full(len(deviations), scale * math.sqrt(share)), 1.0 / share
    else:
        roots = np.broadcast_to(np.sqrt(floor), deviations.shape)
        width = _mean_deviation(deviations / roots) or 1.0 / math.sqrt(share)
        if width > _WIDEST:
            raise ValueError(
                f"variance_floor is {floor.tolist()}: it must be at least {_WIDEST**-2:g} times "
                "the mean variance of the features; scale X, or raise the floor"
            )
        precision = max(width * width, _WIDEST**-2)
    precision = precision if bound is None else bound
    return roots * math.sqrt(precision), precision


def _mean_deviation(deviations: FloatArray) -> float:
    """Root of the mean variance of the features that vary; 0 if none does."""
    varying = deviations[deviations > 0.0]
    if len(varying) == 0:
        return 0.0
    largest = float(varying.max())
    return largest * float(np.sqrt(np.mean((varying / largest) ** 2)))
