"""A metric that tells classes apart, learned together with the codevectors: matrix RSLVQ.

Of a point x the score of codevector k is log w_k − |Ω (x − μ_k)|², and a class has the sum of its
codevectors' exponentials. Ω, shape (d, d), and all μ_k minimise the mean log loss of the classes
by L-BFGS, from what annealing has found. Squares of Ω's entries cost something: directions
that tell no classes apart vanish from the metric. So do moves of codevectors, which would else
leave the data behind, as the same decisions follow from a smaller Ω and codevectors farther away.

References
----------
P. Schneider, M. Biehl, B. Hammer, "Distance learning in discriminative vector quantization", Neural
Computation 21 (2009), 2942-2969. There a sample moves Ω and the codevectors at a time.
D. C. Liu, J. Nocedal, "On the limited memory BFGS method for large scale optimization",
Mathematical Programming 45 (1989), 503-528.
"""

from typing import NamedTuple

import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray

_STEPS = 60  # of L-BFGS: later ones gain little on samples not seen
_MIN_PROBABILITY = 1e-6  # one sample among strangers does not decide
_FLOOR = 1e-6  # of the old metric and of the new: what keeps it positive definite


class LearnedMetric(NamedTuple):
    """What was learned, in the coordinates of the points."""

    codevectors: FloatArray
    """Shape (K, d)."""
    matrix: FloatArray
    """M, shape (d, d), symmetric and positive definite: a class's density at x is
    Σ_k w_k exp(-(x - μ_k)ᵀ M (x - μ_k) / T), with the temperature T as it was."""


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
    """Mean log loss of classes, with the penalty, and its gradient.

    |Ω x|² is in all scores of x and cancels, so that they are affine in x: no product is of points
    and Ω.

    ``parameters``, shape (d (d + K),), are Ω, row by row, then the codevectors, which were at
    ``places``, with their shares of the data and classes, rising from 0 to C - 1. ``shares`` are
    those that the samples have of them all. The penalty is one of the sum of the squares of Ω, and
    of the weighted mean square of the codevectors' moves.

    Examples
    --------
    >>> loss, gradient = cross_entropy(
    ...     np.array([1.0, -1.0, 1.0]), np.array([[-1.0], [1.0]]), np.full(2, 0.5),
    ...     np.array([0, 1]), np.array([[0.0]]), np.array([0]), np.ones(1), 0.0,
    ... )
    >>> round(loss, 4), gradient.round(4)
    (0.6931, array([ 0., -1., -1.]))
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
    own = np.add.reduceat(parts, starts, axis=1)[np.arange(len(points)), classes]
    loss = -float(shares @ np.log(own + _MIN_PROBABILITY))

    pulls = np.where(labels == classes[:, None], 1.0 - own[:, None], -own[:, None])
    pulls *= parts * (-shares / (own + _MIN_PROBABILITY))[:, None]
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
    """Learn a metric and move codevectors, to tell classes apart.

    It starts from ``codevectors``, shape (K, d), with ``weights``, masses times the priors of their
    classes, and ``labels``, rising from 0 to C - 1; T is that of the densities. The penalty, at
    least 0, is of the squares of Ω and of moves, where the mean variance of a feature is 1.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(300, 2))
    >>> classes = (points[:, 0] > 0.0).astype(int)
    >>> start = np.array([[-1.0, 0.0], [1.0, 0.0]])
    >>> halves = np.full(2, 0.5), np.array([0, 1])
    >>> learned = learn_metric(start, *halves, 1.0, points, classes, np.ones(300), 0.01)
    >>> bool(learned.matrix[0, 0] > 100.0 * learned.matrix[1, 1])
    True
    """
    from scipy.optimize import minimize

    d = points.shape[1]
    shares = sample_weight / sample_weight.sum()
    centre = shares @ points
    gaps = points - centre
    unit = float(np.sqrt(np.mean(shares @ (gaps * gaps)))) or 1.0
    gaps /= unit
    places = (codevectors - centre) / unit
    first = np.concatenate([(np.eye(d) * unit / np.sqrt(temperature)).ravel(), places.ravel()])
    fixed = places, weights, labels, gaps, classes, shares, penalty
    best = minimize(
        cross_entropy, first, fixed, method="L-BFGS-B", jac=True, options={"maxiter": _STEPS}
    ).x
    omega = best[: d * d].reshape(d, d) * (np.sqrt(temperature) / unit)
    matrix = omega.T @ omega
    matrix += _FLOOR * (1.0 + np.trace(matrix) / d) * np.eye(d)
    return LearnedMetric(best[d * d :].reshape(-1, d) * unit + centre, 0.5 * (matrix + matrix.T))
