"""Compiled kernels that anneal large codebooks on blocks of samples, class by class.

A sample moves codevectors of its own class only: equation 15 of the reference of
:mod:`oda_rl.annealing.cells`, with a counter for each class. They compete for it with each other,
or with the codevectors of all classes, as algorithm 1 there prints it. Shares below a millionth of
the sum are left out.

Where values are missing (NaN), shares come from the distance in the observed features: the
posterior of a mixture of normal distributions of variance T/2 with the missing values integrated
out. A distance scaled up to all features would split cells at a higher temperature. The distortion
of a level, however, is scaled up to complete samples. A codevector has a mass for every feature,
so that it remains the mean of the observed values.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import compiled, inlined, integer, reordered
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.diagram import squared_distance
from oda_rl.divergences import CALLED, LOGARITHMIC, QUADRATIC, TINY, Divergence

MIN_SHARE = 1e-6  # of a sample: smaller ones are left out
FARTHEST = -math.log(MIN_SHARE)  # in temperatures
_MIN_DECAY = 1e-3  # of the masses: a codevector without mass would never attract again
_ROUNDING = 1e-12  # of products, relative: gaps that may be small enough are measured exactly


class Codevectors(NamedTuple):
    """Codevectors that learn, sorted by class; all but ``starts`` is updated in place."""

    codevectors: FloatArray  # shape (K, d + q), in the divergence's coordinates
    masses: FloatArray  # shape (K,), of sum 1 in each class
    starts: IntArray  # class c has the codevectors from starts[c] up to starts[c + 1]
    clocks: FloatArray  # weights n of the samples of each class at this temperature, shape (C,)
    seen: FloatArray  # sums of the divergences from the nearest codevector, and of the weights


class Pace(NamedTuple):
    """Temperature and step sizes of :func:`learn`."""

    temperature: float
    forgetting: float
    offset: float = 1.0
    slope: float = 0.9


@reordered
def _score(points: FloatArray, i: int, diagram: FloatArray, k: int) -> float:
    total: float = diagram[k, 0]
    for j in range(diagram.shape[1] - 1):
        total += diagram[k, 1 + j] * points[i, j]
    return total


@inlined
def measure(
    points: FloatArray, i: int, n_features: int, codevectors: FloatArray,
    diagram: FloatArray | None, first: int, last: int, out: FloatArray,
) -> float:  # fmt: skip
    """Write divergences from codevectors ``first`` to ``last`` - 1, and return the smallest.

    They are squared Euclidean, or those of a ``diagram``, shape (K, 1 + d), without φ(x).
    """
    smallest = np.inf
    for k in range(first, last):
        if diagram is None:
            value = squared_distance(points, i, codevectors, k, n_features)
        else:
            value = _score(points, i, diagram, k)
        out[k] = value
        smallest = value if value < smallest else smallest
    return smallest


@inlined
def weigh(
    masses: FloatArray, first: int, last: int, smallest: float, temperature: float, out: FloatArray
) -> float:
    """Turn divergences into masses times Gibbs weights, and return their sum.

    At temperature 0, as after a first sample, the nearest codevectors have all of the weight.
    """
    total, farthest = 0.0, smallest + FARTHEST * temperature
    for k in range(first, last):
        weight = 0.0
        if out[k] <= smallest:
            weight = masses[k]
        elif out[k] <= farthest:
            weight = masses[k] * math.exp((smallest - out[k]) / temperature)
        out[k] = weight
        total += weight
    return total


@inlined
def _redraw(kernel: int, codevectors: FloatArray, k: int, diagram: FloatArray) -> None:
    """Update the diagram of codevector ``k``."""
    offset = 0.0
    for j in range(diagram.shape[1] - 1):
        value = max(codevectors[k, j], TINY)
        if kernel == LOGARITHMIC:
            diagram[k, 1 + j] = -math.log(value)
            offset += value
        else:
            diagram[k, 1 + j] = 1.0 / value
            offset += math.log(value) - 1.0
    diagram[k, 0] = offset


@compiled
def _learn(
    points: FloatArray, classes: IntArray, weights: FloatArray, potentials: FloatArray,
    n_features: int, learned: Codevectors, pace: Pace, observed: FloatArray | None,
    priors: FloatArray | None, shares: FloatArray, diagram: FloatArray | None, kernel: int,
) -> None:  # fmt: skip
    """Compiled part of :func:`learn`; ``shares`` and ``diagram`` are scratch."""
    codevectors, masses, starts, clocks, seen = learned
    temperature, forgetting, offset, slope = pace
    if diagram is not None:
        for k in range(codevectors.shape[0]):
            _redraw(kernel, codevectors, k, diagram)
    for i in range(points.shape[0]):
        c, weight = classes[i], weights[i]
        first, last = starts[c], starts[c + 1]
        low, high = (first, last) if priors is None else (integer(0), masses.shape[0])
        smallest = measure(points, i, n_features, codevectors, diagram, low, high, shares)
        nearest = smallest
        if priors is not None:
            nearest = np.inf
            for k in range(first, last):
                nearest = shares[k] if shares[k] < nearest else nearest
        divergence = max(nearest + potentials[i], 0.0)
        if observed is not None:
            n_observed = integer(0)
            for j in range(n_features):
                n_observed += not math.isnan(points[i, j])
            divergence *= n_features / n_observed
        seen[0] += weight * divergence
        seen[1] += weight
        total = weigh(masses, low, high, smallest, temperature, shares)
        if priors is not None:
            total = 0.0
            for k in range(high):
                shares[k] *= priors[k]
                total += shares[k]
        size = last - first
        step = 1.0 / (1.0 + slope * (clocks[c] + offset * size))
        step = min(weight * max(step, forgetting / size), 1.0)
        clocks[c] += weight
        decay = max(1.0 - step, _MIN_DECAY)
        for k in range(first, last):
            masses[k] *= decay
            if observed is not None:
                for j in range(observed.shape[1]):
                    observed[k, j] *= decay
        for k in range(first, last):
            if shares[k] <= MIN_SHARE * total:
                continue
            gain = step * (shares[k] / total)
            masses[k] += gain
            for j in range(codevectors.shape[1]):
                mass = masses[k]
                if observed is not None:
                    if math.isnan(points[i, j]):
                        continue
                    observed[k, j] += gain
                    mass = observed[k, j]
                codevectors[k, j] += gain / mass * (points[i, j] - codevectors[k, j])
            if diagram is not None:
                _redraw(kernel, codevectors, k, diagram)


def learn(
    divergence: Divergence, n_features: int, points: FloatArray, classes: IntArray,
    weights: FloatArray, learned: Codevectors, pace: Pace, observed: FloatArray | None = None,
    priors: FloatArray | None = None,
) -> None:  # fmt: skip
    """Move codevectors towards samples of their class.

    With r_k ∝ p_k exp(−d(x, μ_k)/T) from the old state and step size α: p_k ← p_k + α (r_k − p_k),
    then μ_k ← μ_k + (α r_k / p_k)(x − μ_k). After n samples of a class with K codevectors at this
    temperature α = 1/(1 + b (n + a K)), with a the ``offset`` and b the ``slope``, and at least
    ``forgetting``/K; a weight multiplies it. With the ``priors`` of the codevectors' classes, shape
    (K,), all codevectors have shares r_k, by p_k times that; without, those of the class.

    Points, shape (n, d + q), have d features; the other columns are averaged along. If values
    are missing, ``observed`` holds the masses of each component, which are updated, too.
    """
    if divergence.kernel == CALLED:
        _learn_called(divergence, n_features, points, classes, weights, learned, pace, priors)
        return
    diagram, potentials = None, np.zeros(len(points))
    if divergence.kernel != QUADRATIC:
        diagram = np.empty((len(learned.masses), 1 + n_features))
        potentials = divergence.potential(points[:, :n_features])
    _learn(
        points, classes, weights, potentials, n_features, learned, pace, observed, priors,
        np.empty(len(learned.masses)), diagram, divergence.kernel,
    )  # fmt: skip


def _learn_called(
    divergence: Divergence, n_features: int, points: FloatArray, classes: IntArray,
    weights: FloatArray, learned: Codevectors, pace: Pace, priors: FloatArray | None,
) -> None:  # fmt: skip
    """:func:`_learn` with a divergence that is not compiled."""
    codevectors, masses, starts, clocks, seen = learned
    temperature, forgetting, offset, slope = pace
    d, diagram = n_features, divergence.diagram(codevectors[:, :n_features])
    potentials = divergence.potential(points[:, :d])
    for point, c, weight, potential in zip(points, classes, weights, potentials, strict=True):
        own = slice(starts[c], starts[c + 1])
        size = own.stop - own.start
        rivals = own if priors is None else slice(None)
        scores = diagram[:, 0] + diagram[:, 1:] @ point[:d]
        seen += weight * max(scores[own].min() + potential, 0.0), weight
        excess = np.maximum(scores - scores[rivals].min(), 0.0)
        with np.errstate(over="ignore"):
            shares = masses * np.exp(-excess / max(temperature, TINY))
        shares *= 1.0 if priors is None else priors
        shares = shares[own] / shares[rivals].sum()
        shares[shares <= MIN_SHARE] = 0.0
        step = 1.0 / (1.0 + slope * (clocks[c] + offset * size))
        step = min(weight * max(step, forgetting / size), 1.0)
        clocks[c] += weight
        masses[own] = masses[own] * max(1.0 - step, _MIN_DECAY) + step * shares
        pulled = own.start + np.flatnonzero(shares)
        pulls = step * shares[shares > 0.0] / masses[pulled]
        codevectors[pulled] += pulls[:, None] * (point - codevectors[pulled])
        diagram[pulled] = divergence.diagram(codevectors[pulled, :d])


def coincide(
    divergence: Divergence, n_features: int, codevectors: FloatArray, labels: IntArray,
    alive: BoolArray, limit: float,
) -> IntArray:  # fmt: skip
    """Return the new cell of each codevector, shape (K,), if close ones of a class merge.

    They are close if their divergence is below ``limit``. The first has the others, which are no
    longer ``alive``, shape (K,), and those that were not before have -1.
    """
    places, owners = np.ascontiguousarray(codevectors[:, :n_features]), np.arange(len(labels))
    size = max(2**20 // max(len(labels), 1), 1)  # gaps at a time
    for begin in range(0, len(labels), size):
        rows = slice(begin, begin + size)
        gaps = divergence.between(places[rows], places)
        first, second = np.nonzero(gaps < limit + _ROUNDING * gaps.max())
        first += begin
        later = (second > first) & (labels[first] == labels[second])
        if not later.any():
            continue
        first, second = first[later], second[later]
        exact = divergence.rowwise(places[first], places[second]) < limit
        for i, k in zip(first[exact].tolist(), second[exact].tolist(), strict=True):
            if alive[i] and alive[k]:
                owners[k], alive[k] = i, False
    numbers = np.cumsum(alive) - 1
    return owners if alive.all() else np.asarray(np.where(alive, numbers, -1)[owners])
