"""Annealing of samples of which features are missing, under a metric that mixes features.

As in :mod:`oda_rl.annealing.missing` codevectors are associated with samples by what is observed,
and remain those from which the weighted sum of these distances is least. Where features are mixed,
it is not a mass for every feature that this takes but a matrix: with P the projection of a sample
on what is known of it (:mod:`oda_rl.samples.turned`) and g the share of the sample,

    A ← A + g P,  ζ ← ζ + g A⁻¹ P (z − ζ),

which keeps A ζ = Σ g P z: recursive least squares. A sample whose missing values are filled in with
what the codevector expects moves it by g P (z − ζ) over its whole mass instead. That is at rest in
the same place, but comes there the more slowly the less is observed of a direction. If the metric
is diagonal, A is the masses of features.

References
----------
L. Ljung, T. Söderström, "Theory and practice of recursive identification", MIT Press, 1983,
chapter 2: recursive least squares.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from oda_rl._compile import bound_copy, compiled, inlined, reordered
from oda_rl._types import FloatArray
from oda_rl.annealing import missing
from oda_rl.divergences import Divergence, Mahalanobis
from oda_rl.files.schema import require
from oda_rl.samples.turned import RIDGE, Turned, slot_of


class Information(NamedTuple):
    """What is known of codevectors."""

    matrices: FloatArray
    """A of each, shape (K, d, d)."""
    root: FloatArray
    """Scratch, shape (d, d)."""
    step: FloatArray
    """Scratch, shape (d,)."""


@reordered
def _gap(points: Turned, i: int, slot: int, j: int, columns: FloatArray, k: int) -> float:
    gap: float = points.values[i, j]
    for c in range(points.root.shape[0]):
        gap -= points.vectors[slot, j, c] * columns[c, k]
    return gap


@inlined
def _value(points: Turned, i: int, j: int) -> float:
    value: float = points.values[i, j]
    return value


@reordered
def _shared(root: FloatArray, a: int, b: int) -> float:
    total = 0.0
    for c in range(b):
        total += root[a, c] * root[b, c]
    return total


@compiled
def _solve(matrix: FloatArray, root: FloatArray, step: FloatArray) -> None:
    """Write to ``step`` what a matrix, with a ridge, takes to it; by Cholesky's decomposition."""
    d, trace = step.shape[0], 0.0
    for a in range(d):
        trace += matrix[a, a]
    ridge = RIDGE * trace / d
    for a in range(d):
        for b in range(a + 1):
            total = matrix[a, b] - _shared(root, a, b)
            if a == b:
                root[a, a] = math.sqrt(max(total, 0.0) + ridge)
            else:
                root[a, b] = total / root[b, b]
    for a in range(d):
        for c in range(a):
            step[a] -= root[a, c] * step[c]
        step[a] /= root[a, a]
    for b in range(d):
        a = d - 1 - b
        for c in range(a + 1, d):
            step[a] -= root[c, a] * step[c]
        step[a] /= root[a, a]


@inlined
def attract(
    points: Turned,
    i: int,
    n_features: int,
    columns: FloatArray,
    masses: FloatArray,
    known: Information,
    k: int,
    gain: float,
) -> None:
    """Move codevector ``k`` towards a sample, along what is known of that."""
    slot = slot_of(points, i)
    for c in range(n_features):
        known.step[c] = 0.0
    for j in range(n_features):
        if not math.isnan(points.values[i, j]):
            pull = gain * _gap(points, i, slot, j, columns, k)
            for a in range(n_features):
                known.step[a] += pull * points.vectors[slot, j, a]
                share = gain * points.vectors[slot, j, a]
                for b in range(n_features):
                    known.matrices[k, a, b] += share * points.vectors[slot, j, b]
    _solve(known.matrices[k], known.root, known.step)
    for c in range(n_features):
        columns[c, k] += known.step[c]
    for j in range(n_features, points.values.shape[1]):  # of what is no feature nothing is missing
        columns[j, k] += gain / masses[k] * (points.values[i, j] - columns[j, k])


@inlined
def fade(known: Information, k: int, scale: float) -> None:
    """Scale what is known of codevector ``k``."""
    for a in range(known.step.shape[0]):
        for b in range(known.step.shape[0]):
            known.matrices[k, a, b] *= scale


_MEASURE: Any = missing.measure
_LEARN: Any = missing.learn_known
_measure = inlined(
    bound_copy(_MEASURE.py_func, "_turned", slot_of=slot_of, value_of=_value, gap_to=_gap)
)
learn_turned = compiled(
    bound_copy(_LEARN.py_func, "_turned", measure=_measure, attract=attract, fade=fade)
)


def first_known(divergence: Divergence, n_rows: int, masses: FloatArray) -> FloatArray:
    """Return what is known of codevectors, shape (rows, K), when all has been observed.

    Rows are the ``n_rows`` components of a codevector; under a metric the d² of its matrix A.
    """
    if isinstance(divergence, Mahalanobis):
        return np.outer(np.eye(len(divergence.matrix)), masses)
    return np.tile(masses, (n_rows, 1))


def known_of(divergence: Divergence, point: FloatArray) -> FloatArray:
    """Return what is known of a codevector that is one embedded sample, shape (rows,)."""
    if not isinstance(divergence, Mahalanobis):
        return ~np.isnan(point) * 1.0
    seen = divergence.seen_in(point[None])
    slot_of(seen, 0)
    vectors = seen.vectors[0][~np.isnan(point[: len(divergence.matrix)])]
    return np.asarray(vectors.T @ vectors).reshape(-1)


def check_known(divergence: Divergence, n_rows: int, known: FloatArray | None, where: str) -> None:
    """Raise InvalidFileError unless that may be known of codevectors of ``n_rows`` components."""
    if known is None:
        return
    if not isinstance(divergence, Mahalanobis):
        require(len(known) == n_rows, f"{where}._known has {len(known)} rows: not {n_rows}")
        require(bool((known >= 0.0).all()), f"{where}._known has a mass below 0")
        return
    d = len(divergence.matrix)
    require(len(known) == d * d, f"{where}._known has {len(known)} rows: not {d * d}")
    matrices = known.T.reshape(-1, d, d)
    masses = np.diagonal(matrices, axis1=1, axis2=2)
    mirrored = np.allclose(matrices, matrices.transpose(0, 2, 1))
    right = mirrored and bool((masses >= 0.0).all() and (masses.max(axis=1) > 0.0).all())
    require(right, f"{where}._known has a matrix that nothing could have been known by")
