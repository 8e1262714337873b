"""Annealing of samples of which features are missing (of a metric: see ``turned``).

A codevector is associated with a sample by the distance in what is observed of it. That is the
posterior of a mixture of normal distributions of variance T/2 when what is missing is integrated
out, and it splits a cell along a feature at the temperature at which it would if nothing were
missing: a distance that is scaled up to all features would do so at a higher one, for no reason but
holes. The distortion of a level, in contrast, is an estimate of that of whole samples, and so are
the distances that estimators show (:mod:`oda_rl.samples.missing`).

A codevector moves in the features that are observed, by the share that the sample has in what it
has seen of each: with a mass for every feature it remains the mean of what was observed. With one
mass for all, what came first would count for the more the more is missing. Masses of features begin
a level, or where the first value is missing, as those of their codevectors.
"""

import math

import numpy as np

from oda_rl._compile import compiled, inlined
from oda_rl._state import Raw
from oda_rl._types import FloatArray, IndexArray, IntArray
from oda_rl.annealing.codebook import (
    FARTHEST,
    LEAST_SHARE,
    SMALLEST_SCALE,
    Stage,
    seen_of,
    step_of,
)
from oda_rl.annealing.refinement import refine
from oda_rl.divergences import Divergence, SquaredEuclidean
from oda_rl.quantization.missing import lloyd
from oda_rl.samples.missing import holes, observed_shares

_ROUNDS, _BETTER = 10, 1.0 - 1e-9  # of refinement


def class_means(
    divergence: Divergence, n_features: int, points: FloatArray, classes: IntArray,
    weights: FloatArray,
) -> FloatArray:  # fmt: skip
    """Weighted mean of each class, shape (C, D), of what is observed, in divergence's coordinates.

    Of a feature that is never observed in a class it is that of all; if it is in none, 0. Columns
    from ``n_features`` on are averages of their own.
    """
    totals = np.bincount(classes, weights)
    if holes(points) is None:
        sums = [np.bincount(classes, weights * column) for column in points.T]
        return np.asarray(np.column_stack(sums) / totals[:, None])
    d, all_one = n_features, np.zeros_like(classes)

    def means(of: Divergence, part: FloatArray) -> FloatArray:
        common = of.cell_means(part, weights, all_one, np.zeros((1, part.shape[1])))
        return of.cell_means(part, weights, classes, np.repeat(common, len(totals), axis=0))

    own = means(divergence, points[:, :d])
    if points.shape[1] == d:
        return own
    return np.concatenate([own, means(SquaredEuclidean(), points[:, d:])], axis=1)


def first_with_holes(points: FloatArray) -> int:
    """Return the first row of which a feature is missing, and their number if there is none."""
    missing = holes(points)
    return len(points) if missing is None else int(missing.any(axis=1).argmax())


@inlined
def slot_of(points: FloatArray, i: int) -> int:
    """Where directions of a sample are kept, where they are no axes."""
    return 0


@inlined
def value_of(points: FloatArray, i: int, j: int) -> float:
    """Return what is observed of a sample along direction ``j``, or NaN."""
    value: float = points[i, j]
    return value


@inlined
def gap_to(points: FloatArray, i: int, slot: int, j: int, columns: FloatArray, k: int) -> float:
    """How far a sample is from codevector ``k`` along direction ``j``."""
    gap: float = points[i, j] - columns[j, k]
    return gap


@inlined
def measure(
    points: FloatArray,
    i: int,
    n_features: int,
    columns: FloatArray,
    first: np.uint64,
    last: np.uint64,
    out: FloatArray,
) -> int:
    """Write squared distances in what is observed of a sample, and return how much that is."""
    slot, n_observed = slot_of(points, i), 0
    for k in range(first, last):
        out[k] = 0.0
    for j in range(n_features):
        if not math.isnan(value_of(points, i, j)):
            n_observed += 1
            for k in range(first, last):
                gap = gap_to(points, i, slot, j, columns, k)
                out[k] += gap * gap
    return n_observed


@inlined
def attract(
    points: FloatArray,
    i: int,
    n_features: int,
    columns: FloatArray,
    masses: FloatArray,
    known: FloatArray,
    k: int,
    gain: float,
) -> None:
    """Move codevector ``k`` towards a sample, each feature by its own mass."""
    for j in range(points.shape[1]):
        x = points[i, j]
        if not math.isnan(x):
            known[j, k] += gain
            columns[j, k] += gain / known[j, k] * (x - columns[j, k])


@inlined
def fade(known: FloatArray, k: int, scale: float) -> None:
    """Scale what is known of codevector ``k``."""
    for j in range(known.shape[0]):
        known[j, k] *= scale


@compiled
def learn_known(
    n_features: int,
    points: FloatArray,
    classes: IntArray,
    weights: FloatArray,
    columns: FloatArray,
    masses: FloatArray,
    known: FloatArray,
    starts: IndexArray,
    owners: IndexArray,
    temperature: float,
    forgetting: float,
    scales: FloatArray,
    clocks: FloatArray,
    raw: Raw,
    shares: FloatArray,
) -> None:
    """Do as :func:`oda_rl.annealing.codebook.learn` with samples that may have holes.

    ``known``, shape (D, K), has the mass of each feature of a codevector, over the scale of its
    class.
    """
    stage = Stage(temperature, forgetting, scales, clocks, raw)
    seen = seen_of(raw, 0)
    for i in range(classes.shape[0]):
        c, weight = classes[i], weights[i]
        first, last = starts[owners[c]], starts[owners[c + 1]]
        n_observed = measure(points, i, n_features, columns, first, last, shares)
        smallest = np.inf
        for k in range(first, last):
            smallest = shares[k] if shares[k] < smallest else smallest
        seen.distortion += weight * smallest * (n_features / n_observed)
        seen.weight += weight
        total = 0.0
        for k in range(first, last):
            gap = (shares[k] - smallest) / temperature
            shares[k] = masses[k] * math.exp(-gap) if gap <= FARTHEST else 0.0
            total += shares[k]
        step = step_of(stage, c, last - first, weight)
        for k in range(first, last):
            if shares[k] > LEAST_SHARE * total:
                gain = step * (shares[k] / total) / scales[c]
                masses[k] += gain
                attract(points, i, n_features, columns, masses, known, k, gain)
        if scales[c] < SMALLEST_SCALE:
            for k in range(first, last):
                masses[k] *= scales[c]
                fade(known, k, scales[c])
            scales[c] = 1.0


def refined(
    points: FloatArray, weights: FloatArray, codevectors: FloatArray, rng: np.random.Generator,
    divergence: Divergence,
) -> FloatArray:  # fmt: skip
    """Lower the weighted sum of the squared distances in what is observed from K codevectors.

    Without holes that is :func:`oda_rl.annealing.refinement.refine`. With holes it is Lloyd's
    iteration (:func:`oda_rl.quantization.missing.lloyd`), and from where it ends ``refine`` of
    samples in which what is missing is what their codevector expects, as long as that helps: what
    is lower by these is lower in what is observed (Chi, Chi and Baraniuk, 2016).

    Parameters
    ----------
    points : ndarray, shape (n, d)
        NaN where values are missing.
    weights : ndarray, shape (n,)
        Positive.
    codevectors : ndarray, shape (K, d)
        Where to start.
    rng : numpy.random.Generator
        As for ``refine``.
    divergence : Divergence
        A quadratic one, in whose coordinates all are.

    Returns
    -------
    ndarray, shape (K, d)
    """
    if holes(points) is None:
        return refine(points, weights, codevectors, rng)
    best, error = codevectors, np.inf
    for _ in range(_ROUNDS):
        moved = lloyd(points, weights, codevectors, divergence)
        squares = divergence.between(points, moved)
        nearest, own = squares.argmin(axis=1), squares.min(axis=1)
        after = float(weights @ (own * np.reshape(observed_shares(points), -1)))
        if after >= error * _BETTER:
            break
        best, error = moved, after
        codevectors = refine(divergence.completed(points, moved[nearest]), weights, moved, rng)
    return best
