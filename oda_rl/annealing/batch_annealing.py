"""Batch deterministic annealing (Rose 1998), as a scikit-learn estimator.

The papers compare online annealing with it: only the merging of codevectors is shared.
"""

import math
from dataclasses import KW_ONLY, field
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state, gen_batches

from oda_rl._types import FloatArray
from oda_rl._validation import check_enough, checked_points, checked_weights
from oda_rl.annealing.cells import mixed, ward_merge
from oda_rl.annealing.kernels import coincide
from oda_rl.divergences import SquaredEuclidean
from oda_rl.files import estimators
from oda_rl.files.schema import Each, real, whole
from oda_rl.quantization.kernels import nearest
from oda_rl.quantization.vq import VectorQuantizer
from oda_rl.samples import Weighted, weighted

_MIN_MASS = 1e-5  # share of the samples, below which a codevector is dropped
_MERGE_BELOW = 0.03  # temperatures, just below the square of the gap that a split sets
_SHIFT = 0.1  # of a split codevector, in square roots of the temperature
_BLOCK = 1_000_000  # shares in memory at a time


class AnnealingRecord(NamedTuple):
    """One temperature of a batch annealing."""

    temperature: Annotated[float, real("", "[0, inf)")]  # in squared units of the data
    n_clusters: Annotated[int, whole()]  # number of codevectors after pruning and merging
    distortion: Annotated[float, real("", "[0, inf)")]
    """Mean squared distance from the nearest of them."""
    n_samples_seen: Annotated[int, whole()]  # number of distinct samples times iterations so far


@estimators.estimator
class BatchDeterministicAnnealing(VectorQuantizer):
    """Deterministic annealing with sums over the whole data.

    It starts with one codevector at the mean and the temperature at twice the total variance. At
    each temperature T it iterates to the fixed point

        r_k(x) ∝ p_k exp(−|x − μ_k|²/T),   p_k = mean of r_k,   μ_k = mean of x weighted by r_k,

    merges codevectors with a squared distance below 0.03 T, cools, and splits each into two. A pair
    stays apart only if T is below the critical temperature of its cluster. At ``n_clusters``
    codevectors the number is fixed; excess pairs merge, the cheapest (Ward) first.

    Parameters
    ----------
    n_clusters : int, default=8
        Maximum number of codevectors, ≥ 1; fewer if the last temperature supports no more.
    cooling : float, default=0.8
        Factor of the temperature from one to the next, in (0, 1).
    max_iter : int, default=100
        Maximum number of iterations at a temperature, ≥ 1.
    tol : float, default=1e-4
        Iterate until no codevector moves farther than ``tol`` times √T; ≥ 0.
    min_temperature : float, default=1e-3
        Last temperature, relative to the total variance, > 0.
    random_state : int, RandomState instance or None, default=None
        Draws the directions of the splits.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_
        As for :class:`StochasticVQ`.
    weights_ : ndarray, shape (n_codevectors,)
        Masses p_k of the codevectors, which sum to 1.
    temperature_ : float
        Last temperature, in squared units of the data.
    n_iter_ : int
        Iterations, at all temperatures.
    history_ : list of AnnealingRecord
        One record for each temperature.

    References
    ----------
    K. Rose, "Deterministic annealing for clustering, compression, classification, regression, and
    related optimization problems", Proceedings of the IEEE 86 (1998), 2210-2239.

    Examples
    --------
    >>> X = [[0.0], [0.2], [5.0], [5.2]]
    >>> annealing = BatchDeterministicAnnealing(n_clusters=2, random_state=0).fit(X)
    >>> np.sort(annealing.cluster_centers_, axis=0).round(3)
    array([[0.1],
           [5.1]])
    >>> annealing.history_[0].n_clusters
    1
    """

    n_clusters: Annotated[int, estimators.COUNT] = 8
    _: KW_ONLY
    cooling: Annotated[float, estimators.FRACTION] = 0.8
    max_iter: Annotated[int, estimators.COUNT] = 100
    tol: Annotated[float, estimators.NOT_NEGATIVE] = 1e-4
    min_temperature: Annotated[float, estimators.POSITIVE] = 1e-3
    random_state: estimators.Seed = None

    _stored = {"AnnealingRecord": AnnealingRecord}  # noqa: RUF012
    weights_: Annotated[FloatArray, real("K", "[0, inf)")] = field(init=False)
    temperature_: Annotated[float, real("", "[0, inf)")] = field(init=False)
    history_: Annotated[list[AnnealingRecord], Each(AnnealingRecord)] = field(init=False)

    @estimators.validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        points = checked_points(self, X, reset=True)
        check_enough(self, len(points))
        data = weighted(points, checked_weights(sample_weight, points))
        rng = check_random_state(self.random_state)
        # Standardised, so that distances from products do not cancel.
        mean = np.average(data.points, axis=0, weights=data.weights)
        centred = data.points - mean
        variance = float(np.average((centred**2).sum(axis=1), weights=data.weights))
        unit = math.sqrt(variance) or 1.0
        scaled = data._replace(points=centred / unit)
        self.weights_, codevectors = self._anneal(scaled, variance, rng)
        self.cluster_centers_ = mean + unit * codevectors
        self._label(points, sample_weight)
        return self

    def _anneal(
        self, data: Weighted, variance: float, rng: np.random.RandomState
    ) -> tuple[FloatArray, FloatArray]:
        """Anneal from temperature 2, times the data's ``variance``, and record the history."""
        masses, codevectors = np.ones(1), np.zeros((1, data.points.shape[1]))
        shares = data.weights / data.weights.sum()
        temperature = max(2.0, self.min_temperature)
        self.history_: list[AnnealingRecord] = []
        self.n_iter_ = 0
        growing = True
        while True:
            masses, codevectors, n_iter = _settle(
                data.points, shares, masses, codevectors, temperature, self.max_iter, self.tol
            )
            self.n_iter_ += n_iter
            if growing:
                heavy = masses >= min(_MIN_MASS, masses.max())
                masses, codevectors = masses[heavy] / masses[heavy].sum(), codevectors[heavy]
                closest = _MERGE_BELOW * temperature
                masses, codevectors = _merge_down(masses, codevectors, self.n_clusters, closest)
                growing = len(masses) < self.n_clusters
            self.temperature_ = temperature * variance
            distortion = float(nearest(data.points, codevectors)[1] @ shares) * variance
            n_seen = self.n_iter_ * len(data.points)
            record = AnnealingRecord(self.temperature_, len(masses), distortion, n_seen)
            self.history_.append(record)
            if temperature <= self.min_temperature:
                return masses, codevectors
            temperature = max(self.cooling * temperature, self.min_temperature)
            if growing:  # each splits into two, shifted both ways in a random direction
                shifts = rng.normal(size=codevectors.shape)
                norms = np.sqrt((shifts**2).sum(axis=1, keepdims=True))
                shifts *= _SHIFT * math.sqrt(temperature) / norms
                masses = np.concatenate([masses, masses]) / 2.0
                codevectors = np.concatenate([codevectors + shifts, codevectors - shifts])


def _settle(
    points: FloatArray, shares: FloatArray, masses: FloatArray, codevectors: FloatArray,
    temperature: float, max_iter: int, tol: float,
) -> tuple[FloatArray, FloatArray, int]:  # fmt: skip
    """Iterate to the fixed point; return masses, codevectors and the number of iterations.

    The points' ``shares``, shape (n,), sum to 1. A codevector without mass does not move.
    """
    n_iter, shift = 0, np.inf
    while n_iter < max_iter and shift > tol**2 * temperature:
        totals, sums = np.zeros(len(masses)), np.zeros_like(codevectors)
        with np.errstate(divide="ignore"):  # a mass may be 0
            offsets = np.log(masses) - (codevectors**2).sum(axis=1) / temperature
        slopes = codevectors.T * (2.0 / temperature)
        for rows in gen_batches(len(points), max(1, _BLOCK // len(masses))):
            pulls = points[rows] @ slopes
            pulls += offsets
            pulls -= pulls.max(axis=1, keepdims=True)
            np.exp(pulls, out=pulls)
            pulls *= (shares[rows] / pulls.sum(axis=1))[:, None]
            totals += pulls.sum(axis=0)
            sums += pulls.T @ points[rows]
        moved = codevectors.copy()
        np.divide(sums, totals[:, None], out=moved, where=totals[:, None] > 0.0)
        shift = ((moved - codevectors) ** 2).sum(axis=1).max()
        masses, codevectors = totals, moved
        n_iter += 1
    return masses, codevectors, n_iter


def _merge_down(
    masses: FloatArray, codevectors: FloatArray, n_clusters: int, closest: float
) -> tuple[FloatArray, FloatArray]:
    """Merge codevectors closer than ``closest`` (squared), then by Ward down to ``n_clusters``."""
    labels, alive = np.zeros(len(masses), dtype=np.int64), np.ones(len(masses), dtype=bool)
    into = coincide(SquaredEuclidean(), codevectors.shape[1], codevectors, labels, alive, closest)
    codevectors = mixed(into, masses, codevectors)
    masses = np.bincount(into, masses).astype(np.float64)
    into = ward_merge(codevectors, masses, labels[: len(masses)], n_clusters)
    return np.bincount(into, masses).astype(np.float64), mixed(into, masses, codevectors)
