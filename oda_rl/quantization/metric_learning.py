"""Matrix RSLVQ: a metric that separates classes, learned together with the codevectors.

The density of a class at x is Σ_k w_k exp(−|Ω (x − μ_k)|²) over its codevectors. L-BFGS minimises
the mean log loss of the classes over Ω, shape (d, d), and all μ_k. A penalty on Ω removes
directions that separate no classes; one on moves keeps the codevectors near the data, as a smaller
Ω with codevectors farther away decides alike.

References
----------
P. Schneider, M. Biehl, B. Hammer, "Distance learning in discriminative vector quantization", Neural
Computation 21 (2009), 2942-2969, with stochastic updates.
D. C. Liu, J. Nocedal, "On the limited memory BFGS method for large scale optimization",
Mathematical Programming 45 (1989), 503-528.
"""

from typing import NamedTuple

import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray

_STEPS = 60  # of L-BFGS: more gain little on held-out samples
_MIN_PROBABILITY = 1e-6  # limits the loss of an outlier
_FLOOR = 1e-6  # relative ridge that keeps the metric positive definite


class LearnedMetric(NamedTuple):
    """Codevectors and metric, in the coordinates of the points."""

    codevectors: FloatArray
    """Shape (K, d)."""
    matrix: FloatArray
    """M, shape (d, d), symmetric and positive definite: a class's density at x is
    Σ_k w_k exp(-(x - μ_k)ᵀ M (x - μ_k) / T), with the temperature T as given."""


def cross_entropy(
    parameters: FloatArray,
    places: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    points: FloatArray,
    classes: IntArray,
    shares: FloatArray,
    penalty: float,
) -> tuple[float, FloatArray]:
    """Mean log loss of classes, plus the penalty, and its gradient.

    ``parameters``, shape (d (d + K),), are Ω, row by row, then the codevectors, which started at
    ``places`` and have ``weights`` and ``labels``, rising from 0 to C - 1. ``shares`` of the
    samples sum to 1. The penalty is on the sum of the squares of Ω, and on the weighted mean square
    of the codevectors' moves. |Ω x|² is in all scores of x and cancels: they are affine in x.
    """
    d = points.shape[1]
    omega, codevectors = parameters[: d * d].reshape(d, d), parameters[d * d :].reshape(-1, d)
    images = codevectors @ omega.T
    scores = points @ (2.0 * images @ omega).T
    with np.errstate(divide="ignore"):
        scores += np.log(weights) - (images * images).sum(axis=1)
    scores -= scores.max(axis=1, keepdims=True)
    parts = np.exp(scores, out=scores)
    parts /= parts.sum(axis=1, keepdims=True)
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    right = np.add.reduceat(parts, starts, axis=1)[np.arange(len(points)), classes]
    loss = -float(shares @ np.log(right + _MIN_PROBABILITY))

    pulls = np.where(labels == classes[:, None], 1.0 - right[:, None], -right[:, None])
    pulls *= parts * (-shares / (right + _MIN_PROBABILITY))[:, None]
    of_slopes, of_offsets = 2.0 * pulls.T @ points, pulls.sum(axis=0)
    of_images = of_slopes @ omega.T - 2.0 * of_offsets[:, None] * images
    of_omega = images.T @ of_slopes + of_images.T @ codevectors + 2.0 * penalty * omega
    moves = codevectors - places
    pulled_back = weights[:, None] * moves
    of_codevectors = of_images @ omega + 2.0 * penalty * pulled_back
    cost = penalty * float((omega * omega).sum() + (moves * pulled_back).sum())
    return loss + cost, np.concatenate([of_omega.ravel(), of_codevectors.ravel()])


@one_thread()
def learn_metric(
    codevectors: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    temperature: float,
    points: FloatArray,
    classes: IntArray,
    sample_weight: FloatArray,
    penalty: float,
) -> LearnedMetric:
    """Learn a metric and move codevectors, shape (K, d), to separate classes.

    ``weights`` are masses times class priors, ``labels`` rise from 0 to C - 1, the temperature is
    that of the densities. The penalty, at least 0, is relative to a variance of 1 of each feature.
    """
    from scipy.optimize import minimize

    d = points.shape[1]
    shares = sample_weight / sample_weight.sum()
    centre = shares @ points
    gaps = points - centre
    variances = shares @ (gaps * gaps)
    units = np.sqrt(np.where(variances > 0.0, variances, 1.0))
    gaps /= units
    places = (codevectors - centre) / units
    start = np.eye(d) * np.sqrt(variances.mean() / temperature)
    first = np.concatenate([start.ravel(), places.ravel()])
    fixed = places, weights, labels, gaps, classes, shares, penalty
    best = minimize(
        cross_entropy, first, fixed, method="L-BFGS-B", jac=True, options={"maxiter": _STEPS}
    ).x
    omega = best[: d * d].reshape(d, d)
    matrix = omega.T @ omega
    matrix += _FLOOR * (1.0 + np.trace(matrix) / d) * np.eye(d)
    matrix *= temperature / np.outer(units, units)
    return LearnedMetric(best[d * d :].reshape(-1, d) * units + centre, 0.5 * (matrix + matrix.T))
