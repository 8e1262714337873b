"""What follows annealing in a classifier: moves, metrics, the temperature of prediction."""

from typing import Any

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.annealer import Annealer
from oda_rl.annealing.sampling import Distribution
from oda_rl.divergences import Divergence, Mahalanobis
from oda_rl.quantization import kernels, missing
from oda_rl.samples.missing import holes

MATRIX = "mrslvq"  # which learns the metric, too
ALGORITHMS = ("rslvq", "glvq", "lvq1")

_PASSES = 5
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_LEAST_PROBABILITY = 1e-6  # one sample among strangers does not decide


def class_log_densities(
    divergences: FloatArray, weights: FloatArray, labels: IntArray, temperature: float
) -> FloatArray:
    """Log Σ_k w_k exp(−d_k/T) over the codevectors of each class, shape (n, C).

    Parameters
    ----------
    divergences : ndarray, shape (n, K)
        From the codevectors.
    weights : ndarray, shape (K,)
        Mass of each codevector, times the prior of its class.
    labels : ndarray, shape (K,)
        Class of each codevector, rising from 0 to C - 1.
    temperature : float
        T, positive.

    Examples
    --------
    >>> class_log_densities(
    ...     np.array([[0.0, 1.0, 2.0]]), np.ones(3), np.array([0, 0, 1]), 1.0
    ... ).round(3)
    array([[ 0.313, -2.   ]])
    """
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    with np.errstate(divide="ignore"):
        logs = np.log(weights) - divergences / temperature
    return np.asarray(np.logaddexp.reduceat(logs, starts, axis=1))


def best_temperature(
    divergences: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    classes: IntArray,
    n_features: float,
) -> float:
    """Temperature at which the densities predict the classes, shape (n,), with least log loss.

    Tried are multiples of 2 D/d, where D is the mean divergence from the nearest codevector: the
    temperature of a Gaussian cell of that size.
    """
    scale = 2.0 * float(divergences.min(axis=1).mean()) / n_features
    if scale == 0.0:
        scale = float(divergences.max()) or 1.0
    losses = []
    for factor in _FACTORS:
        logs = class_log_densities(divergences, weights, labels, scale * factor)
        own = np.exp(logs[np.arange(len(logs)), classes] - np.logaddexp.reduce(logs, axis=1))
        losses.append(-np.log(own + _LEAST_PROBABILITY).mean())
    return scale * _FACTORS[int(np.argmin(losses))]


def fine_tune(
    algorithm: str,
    codevectors: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    temperature: float,
    rate: float,
    data: Distribution,
    divergence: Divergence,
) -> FloatArray:
    """Move codevectors, shape (K, d), to tell classes apart, in five passes over the data.

    ``algorithm`` is one of ``ALGORITHMS``; the temperature is that of the densities; all are in the
    coordinates of the divergence.
    """
    moved = codevectors.copy()
    order = np.concatenate([data.shuffled() for _ in range(_PASSES)])
    points: Any = data.points
    competition: Any = kernels
    if holes(points) is not None:
        competition = missing.KNOWN
        if isinstance(divergence, Mahalanobis):
            competition, points = missing.TURNED, divergence.seen_in(points)
    sample = points, data.classes, order, rate
    if algorithm == "rslvq":
        competition.rslvq(moved, weights, labels, temperature, *sample)
    elif algorithm == "glvq":
        competition.glvq(moved, labels, *sample)
    else:
        competition.lvq1(moved, labels, *sample)
    return moved


def measure_by(annealer: Annealer, divergence: Divergence) -> None:
    """Let an annealer go on with the same codevectors, and another divergence of its kernel."""
    old, d = annealer.divergence, annealer.n_features
    axes = np.eye(d)
    if np.array_equal(divergence.embed(axes), old.embed(axes)):
        return

    def moved(points: FloatArray) -> FloatArray:
        return np.column_stack([divergence.embed(old.restore(points[:, :d])), points[:, d:]])

    if annealer.probe is not None:
        annealer.probe = moved(annealer.probe[0]), annealer.probe[1]
    annealer.divergence = divergence
    annealer.replace(moved(annealer.codevectors), annealer.masses)
