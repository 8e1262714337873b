"""Gaussian mixtures: the compiled functions for samples of which features are missing (NaN).

A normal distribution of some of its features is normal: so the density of what is observed is
known, and is what likelihoods, responsibilities and gradients are about. What is missing enters the
moments by what each component expects of it (E step of Ghahramani and Jordan, 1994; gradients of
the observed likelihood are expectations of the complete one's, by Fisher's identity).

With precisions P, missing features m and observed ones o, a component expects of a sample the gap

    x_m - μ_m = -P_mm⁻¹ P_mo (x_o - μ_o),   with covariance P_mm⁻¹,

and (x_o - μ_o)ᵀ Σ_oo⁻¹ (x_o - μ_o) is the gap's Mahalanobis distance by all of P, and
det Σ_oo⁻¹ = det P / det P_mm. So only a matrix of the missing features is inverted.

Functions take a ``room``: None says that nothing is missing, and numba compiles that apart.

References
----------
Z. Ghahramani, M. I. Jordan, "Supervised learning from incomplete data via an EM approach", Advances
in Neural Information Processing Systems 6, 1994.
"""

import math
from typing import NamedTuple, Self

import numpy as np

from oda_rl._compile import compiled, inlined, integer, spliced
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.mixtures.state import RELEASED, Mixture, progress_of

_LEAST_PIVOT = 1e-15  # of what it was: the rest is rounding


class Room(NamedTuple):
    """What is written of a sample of d features and a component, in turn."""

    gaps: FloatArray
    """Expected x - μ, shape (d,)."""
    places: IntArray
    """Missing features, the first so many; shape (d,)."""
    along: FloatArray
    """Scratch, shape (d,)."""
    factor: FloatArray
    """Cholesky factor of P_mm, shape (d, d), the first so many rows and columns."""
    roots: FloatArray
    """Its inverse: the rows r have Σ r rᵀ = P_mm⁻¹."""

    @classmethod
    def of(cls, d: int) -> Self:
        """Make room."""
        vectors, squares = np.zeros((2, d)), np.zeros((2, d, d))
        return cls(vectors[0], np.zeros(d, dtype=np.int64), vectors[1], squares[0], squares[1])


@inlined
def is_missing(points: Array, i: int, j: int, room: Room | None) -> bool:
    """Whether a value is missing."""
    if room is None:
        return False
    return math.isnan(points[i, j])


@inlined
def n_known(points: Array, i: int, room: Room | None) -> int:
    """How many features of a sample are observed."""
    if room is None:
        return points.shape[1]  # type: ignore[no-any-return]
    n = integer(0)
    for j in range(points.shape[1]):
        n += not math.isnan(points[i, j])
    return n


@inlined
def known_distance(points: Array, i: int, means: Array, k: int) -> float:
    """|x_i - μ_k|² of the features that are observed."""
    total = 0.0
    for j in range(points.shape[1]):
        if not math.isnan(points[i, j]):
            gap = np.float64(points[i, j]) - means[k, j]
            total += gap * gap
    return total


@inlined
def _write_gaps(points: Array, i: int, means: Array, k: int, room: Room) -> int:
    """Write what is observed of x - μ_k, and 0 for the rest; return how much is missing."""
    n = integer(0)
    for j in range(points.shape[1]):
        if math.isnan(points[i, j]):
            room.gaps[j] = 0.0
            room.places[n] = j
            n += 1
        else:
            room.gaps[j] = np.float64(points[i, j]) - means[k, j]
    return n


@inlined
def complete(
    points: Array, i: int, means: Array, precisions: Array, axes: Array | None, k: int,
    room: Room | None,
) -> int:  # fmt: skip
    """Write what component k expects of a sample to ``room``; return how much is missing."""
    if room is None:
        return 0
    n = _write_gaps(points, i, means, k, room)
    if axes is not None and n > 0:
        _factorize(precisions, axes, k, n, room)
        _expect(precisions, axes, k, n, room)
    return n


@inlined
def _factorize(precisions: Array, axes: Array, k: int, n: int, room: Room) -> None:
    """Write the Cholesky factor of P_mm, and its inverse."""
    places, factor, roots = room.places, room.factor, room.roots
    d = axes.shape[2]
    for a in range(n):
        for b in range(a + 1):
            total = 0.0
            for u in range(d):
                total += (
                    np.float64(precisions[k, u]) * axes[k, u, places[a]] * axes[k, u, places[b]]
                )
            whole = total
            for c in range(b):
                total -= factor[a, c] * factor[b, c]
            if a == b:
                factor[a, a] = math.sqrt(max(total, _LEAST_PIVOT * whole))
            else:
                factor[a, b] = total / factor[b, b]
    for c in range(n):
        for a in range(c, n):
            total = 1.0 if a == c else 0.0
            for b in range(c, a):
                total -= factor[a, b] * roots[b, c]
            roots[a, c] = total / factor[a, a]


@inlined
def _expect(precisions: Array, axes: Array, k: int, n: int, room: Room) -> None:
    """Write -P_mm⁻¹ P_mo times the gaps that are observed to those that are not."""
    gaps, places, along, roots = room.gaps, room.places, room.along, room.roots
    _measure_along(axes, k, gaps, along)
    for a in range(n):
        pull = 0.0
        for u in range(along.shape[0]):
            pull += np.float64(precisions[k, u]) * along[u] * axes[k, u, places[a]]
        for b in range(a, n):  # gaps of missing features are 0 until their turn
            room.factor[b, a] = roots[b, a] * pull  # the factor is not needed any more
    for b in range(n):
        total = 0.0
        for a in range(b + 1):
            total += room.factor[b, a]
        for a in range(b + 1):
            gaps[places[a]] -= roots[b, a] * total


@inlined
def _measure_along(axes: Array, k: int, gaps: FloatArray, out: FloatArray) -> None:
    for u in range(out.shape[0]):
        total = 0.0
        for j in range(out.shape[0]):
            total += axes[k, u, j] * gaps[j]
        out[u] = total


@inlined
def gap_of(points: Array, i: int, means: Array, k: int, j: int, room: Room | None) -> Array:
    """X - μ_k of a feature, or what is expected of it."""
    if room is None:
        return points[i, j] - means[k, j]  # type: ignore[no-any-return]
    return means.dtype.type(room.gaps[j])  # type: ignore[no-any-return]


@inlined
def write_root(room: Room | None, root: int, gain: float, axes: Array) -> None:
    """Write a root of the covariance of what is missing, times a gain, to the scratch of axes."""
    if room is not None:
        last = axes.shape[0] - 1
        for j in range(axes.shape[2]):
            axes[last, 0, j] = 0.0
        for a in range(root + 1):
            axes[last, 0, room.places[a]] = gain * room.roots[root, a]


@inlined
def spread_along(axes: Array, k: int, u: int, n: int, room: Room | None) -> float:
    """Write C v to ``room.along``, for the covariance C of what is missing; return vᵀ C v.

    v is axis u of component k.
    """
    total = 0.0
    if room is not None:
        for j in range(room.along.shape[0]):
            room.along[j] = 0.0
        for root in range(n):
            dot = 0.0
            for a in range(root + 1):
                dot += room.roots[root, a] * axes[k, u, room.places[a]]
            for a in range(root + 1):
                room.along[room.places[a]] += dot * room.roots[root, a]
            total += dot * dot
    return total


@inlined
def turn_by_spread(axes: Array, k: int, u: int, step: float, room: Room | None) -> None:
    """Move an axis against what :func:`spread_along` has written, by a step."""
    if room is not None:
        for j in range(axes.shape[2]):
            axes[k, u, j] -= step * room.along[j]


@inlined
def _log_marginal(
    points: Array, i: int, means: Array, precisions: Array, axes: Array | None,
    half_log_dets: FloatArray, k: int, room: Room,
) -> float:  # fmt: skip
    """½ log det Σ_oo⁻¹ - ½ (x_o - μ_o)ᵀ Σ_oo⁻¹ (x_o - μ_o)."""
    n = complete(points, i, means, precisions, axes, k, room)
    gaps = room.gaps
    total = 0.0
    log = half_log_dets[k]
    if axes is None:
        for a in range(n):
            log -= 0.5 * math.log(np.float64(precisions[k, room.places[a]]))
        for j in range(gaps.shape[0]):
            total += precisions[k, j] * (gaps[j] * gaps[j])
    else:
        for a in range(n):
            log += math.log(room.roots[a, a])
        _measure_along(axes, k, gaps, room.along)
        for u in range(gaps.shape[0]):
            total += precisions[k, u] * (room.along[u] * room.along[u])
    return log - 0.5 * total  # type: ignore[no-any-return]


@spliced
def write_marginals(
    points: Array, i: int, mixture: Mixture, beta: float, out: FloatArray, row: int, room: Room
) -> None:
    """Write β (log π_k + log N(x_o; k)) of what is observed of a sample to a row of ``out``.

    It is without -(|o|/2) log 2π.
    """
    progress = progress_of(mixture.progress, 0)
    held = progress.phase != RELEASED or mixture.spherical
    half_log = 0.5 * n_known(points, i, room) * math.log(progress.variance)
    for k in range(mixture.means.shape[0]):
        log = math.log(mixture.weights[k])
        if held:
            log -= 0.5 * known_distance(points, i, mixture.means, k) / progress.variance + half_log
        else:
            log += _log_marginal(
                points, i, mixture.means, mixture.precisions, mixture.axes,
                mixture.half_log_dets, k, room,
            )  # fmt: skip
        out[row, k] = beta * log


@compiled
def log_marginals(points: Array, mixture: Mixture, out: FloatArray, room: Room) -> None:
    """Write log π_k + log N(x_o; k) of what is observed of points, shape (n, d), to ``out``.

    Shape (n, K), without -(|o|/2) log 2π.
    """
    for i in range(points.shape[0]):
        write_marginals(points, i, mixture, 1.0, out, i, room)
