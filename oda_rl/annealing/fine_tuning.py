"""What follows annealing in a classifier: moves, metrics, temperatures, and the choice of these."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.annealer import Annealer
from oda_rl.annealing.levels import Distribution
from oda_rl.divergences import Divergence
from oda_rl.quantization.kernels import glvq, lvq1, rslvq

MATRIX = "mrslvq"  # which learns the metric, too
ALGORITHMS = ("rslvq", "glvq", "lvq1")

_PASSES = 5
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_MIN_PROBABILITY = 1e-6  # one sample among strangers does not decide

N_FOLDS = 5
_PER_CLASS = (1, 2, 4, 8, 16, 32)
_RATES = (0.01, 0.05, 0.2)
_PENALTIES = (0.001, 0.01, 0.1)
_HONEST = 0.99  # no single sample costs more than log 100


def class_log_densities(
    divergences: FloatArray, weights: FloatArray, labels: IntArray, temperature: float
) -> FloatArray:
    """Log Σ_k w_k exp(−d_k/T) over the codevectors of each class, shape (n, C).

    ``divergences``, shape (n, K), are those from the codevectors, ``weights``, shape (K,), masses
    times priors of the classes, ``labels``, shape (K,), classes, rising from 0 to C - 1.

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
        losses.append(-np.log(own + _MIN_PROBABILITY).mean())
    return scale * _FACTORS[int(np.argmin(losses))]


def fine_tune(
    algorithm: str,
    codevectors: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    temperature: float,
    rate: float,
    data: Distribution,
) -> FloatArray:
    """Move codevectors, shape (K, d), to tell classes apart, in five passes over the data.

    ``algorithm`` is one of ``ALGORITHMS``; the temperature is that of the densities; all are in the
    coordinates of the divergence.
    """
    moved = codevectors.copy()
    order = np.concatenate([data.shuffled() for _ in range(_PASSES)])
    sample = data.points, data.classes, order, rate
    if algorithm == "rslvq":
        rslvq(moved, weights, labels, temperature, *sample)
    else:
        (glvq if algorithm == "glvq" else lvq1)(moved, labels, *sample)
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


class Candidate(NamedTuple):
    """What is chosen."""

    n_clusters: int
    fine_tuning: str | None
    rate: float
    penalty: float


def candidates(
    n_classes: int, n_samples: int, algorithms: Sequence[str | None], rate: float, penalty: float
) -> list[Candidate]:
    """Candidates, the simplest first: up to 32 codevectors a class, and one for 5 samples.

    Of each algorithm of fine-tuning three rates are tried, or penalties, and of what it does not
    have the one given.
    """
    sizes = sorted({min(n * n_classes, max(n_classes, n_samples // 5)) for n in _PER_CLASS})
    ways: list[tuple[str | None, float, float]] = []
    for one in algorithms:
        if one == MATRIX:
            ways += [(one, rate, each) for each in _PENALTIES]
        else:
            ways += [(one, each, penalty) for each in (_RATES if one else (rate,))]
    return [Candidate(n, *way) for n in sizes for way in ways]


def doubts(scores: FloatArray, classes: IntArray) -> FloatArray:
    """Error plus log loss of each prediction, shape (n,).

    The error alone is a small number of samples, and chooses by chance. ``scores``, shape (n, C),
    are log-probabilities up to a constant.
    """
    logs = scores - np.logaddexp.reduce(scores, axis=1)[:, None]
    own = np.exp(logs[np.arange(len(logs)), classes])
    return np.asarray((scores.argmax(axis=1) != classes) - np.log(_HONEST * own + 1.0 - _HONEST))


def folds(classes: IntArray, rng: np.random.Generator) -> Iterator[tuple[IntArray, IntArray]]:
    """Training and test rows of each fold; every class is spread evenly over the folds.

    Classes with a single member stay in every training set.
    """
    fold = np.empty(len(classes), dtype=np.int64)
    for c in range(int(classes.max()) + 1):
        members = rng.permutation(np.flatnonzero(classes == c))
        fold[members] = np.arange(len(members)) % N_FOLDS if len(members) > 1 else -1
    for k in range(N_FOLDS):
        if (fold == k).any():
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)
