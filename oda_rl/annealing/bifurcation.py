"""Critical temperatures: where a codevector splits.

A codevector μ that stands for points of covariance C splits as the temperature falls below

    T_c = λ_max(∇²φ(μ) C),

where φ generates the divergence: 2 λ_max(C) for the squared Euclidean one (Rose 1998), and with the
weights 1/μ and 1/μ² of the features for the I-divergence and Itakura-Saito's. Two codevectors
μ ± v that share these points attract x with shares 1/2 ± <∇²φ(μ) v, x − μ>/2T to first order, so
that one step to their means takes v to ∇²φ(μ) C v / T: it grows below T_c.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array

from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import checked_weights
from oda_rl.divergences import TINY, Divergence, resolve

_ITERATIONS = 10, 300  # of the power method, at least and at most
_MAX_EXACT = 50  # features: with fewer it begins at eigenvectors of the covariances
SHIFT = 0.7  # standard deviations along the direction: about where the halves' means are
MAX_POINTS = 4000  # give λ_max to about 2 %
_MIN_PER_CELL = 50  # points: with fewer λ_max says little
_MAX_WORK = 2_000_000  # points times codevectors times features


def critical_temperature(
    X: npt.ArrayLike,
    *,
    divergence: str | Divergence = "squared_euclidean",
    sample_weight: Any = None,
) -> float:
    """Temperature below which one codevector at the mean of all points splits.

    It is twice the largest eigenvalue of the covariance, in squared units of the data (Rose 1998,
    section II.C); for another divergence λ_max(∇²φ(mean) C), in its units.

    Parameters
    ----------
    X : array-like, shape (n, d)
        Finite, in the domain of the divergence.
    divergence : {"squared_euclidean", "i_divergence", "itakura_saito"} or Divergence
    sample_weight : array-like, shape (n,), optional
        At least 0.

    Examples
    --------
    >>> critical_temperature([[-3.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    9.0
    """
    points = check_array(X, dtype=np.float64)
    measure = resolve(divergence)
    measure.check(points)
    weights = checked_weights(sample_weight, points)
    points = measure.embed(points)
    mean = np.average(points, axis=0, weights=weights)
    gaps = points - mean
    covariance = (gaps.T * (weights / weights.sum())) @ gaps
    products = measure.curved(np.tile(mean, (len(mean), 1)), covariance)
    return float(np.linalg.eigvals(products).real.max())


def critical(
    points: FloatArray,
    weights: FloatArray,
    classes: IntArray,
    codevectors: FloatArray,
    masses: FloatArray,
    labels: IntArray,
    temperature: float,
    divergence: Divergence,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray] | None:
    """Where codevectors, shape (K, d), split, by the power method; None if points are few.

    Returns critical temperatures, shape (K,), and shifts, shape (K, d): 0.7 standard deviations
    along the directions in which they split.

    The covariances are those of the points, shape (n, d), weighted with their Gibbs shares among
    the codevectors of their class. More than 4,000 points, or 2e6 / (K d), would take too long.
    """
    n, d = points.shape
    n_cells = len(codevectors)
    if n < _MIN_PER_CELL * n_cells or n * n_cells * d > _MAX_WORK:
        return None
    shares = divergence.between(points, codevectors)
    shares[labels != classes[:, None]] = np.inf
    shares -= shares.min(axis=1, keepdims=True)
    shares = masses * np.exp(-shares / temperature)
    shares *= (weights / shares.sum(axis=1))[:, None]
    totals = np.maximum(shares.sum(axis=0), TINY)[:, None]
    centre = points.mean(axis=0)
    gaps = points - centre  # whose products do not cancel
    means = shares.T @ gaps / totals

    def spread(directions: FloatArray) -> FloatArray:
        """Covariance of each cell times its direction."""
        along = gaps @ directions.T - (means * directions).sum(axis=1)
        along *= shares
        return np.asarray((along.T @ gaps - along.sum(axis=0)[:, None] * means) / totals)

    steps, temperatures = rng.normal(size=codevectors.shape), np.zeros(n_cells)
    if d <= _MAX_EXACT:  # where the method might settle at the second eigenvector
        moments = [(gaps.T * shares[:, k]) @ gaps / totals[k] for k in range(n_cells)]
        covariances = np.array(moments) - means[:, :, None] * means[:, None]
        steps = np.linalg.eigh(covariances)[1][:, :, -1]
    steps = spread(steps)
    for i in range(_ITERATIONS[1]):
        steps /= np.maximum(np.abs(steps).max(axis=1, keepdims=True), TINY)
        curved = divergence.curved(means + centre, steps)
        products = spread(curved)
        lengths = np.maximum((curved * steps).sum(axis=1), TINY)
        before, temperatures = temperatures, (curved * products).sum(axis=1) / lengths
        former, steps = steps, products
        settled = np.abs(temperatures - before) <= 1e-4 * temperatures  # in an iteration
        if i >= _ITERATIONS[0] and settled.all():
            break
    # With the length <v, H v> = 1 the variance along v is T_c.
    sizes = SHIFT * np.sqrt(temperatures / lengths)
    shifts = divergence.inside(codevectors, former * sizes[:, None])
    return (temperatures, shifts) if np.isfinite(shifts).all() else None
