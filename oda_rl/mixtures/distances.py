"""Gaussian mixtures: the compiled functions that say how far samples are from components.

A block of B samples are some ``rows`` of points, shape (n, d); means have the shape (K, d). A
component is not measured to the end if part of the features says that it is too far away: with 100
features and more that takes .6 of the time of :func:`oda_rl.diagram.nearest_codevector`, with ten
as much again.
"""

import math
from typing import Any

import numpy as np

from oda_rl._compile import compiled, inlined, reordered, spliced
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.mixtures.missing import Room, known_distance

LEAST_LOG = 25.0  # e^-25 is lost beside 1
_LEAST_TEMPERED_LOG = 5.0  # tempered responsibilities are rough anyway
_LEAST_PRODUCT = 1e-100
_CHUNK = 64  # features, after which a component may be seen to be too far away


@reordered
def squared_distance(points: Array, i: int, means: Array, k: int, begin: int, end: int) -> float:
    """|x_i - μ_k|², of the features from ``begin`` to ``end``."""
    total = points[i, 0] * 0
    for j in range(np.uint64(begin), np.uint64(end)):  # unsigned: no index from the end
        gap = points[i, j] - means[k, j]
        total += gap * gap
    return total  # type: ignore[no-any-return]


@reordered
def _weighted_distance(
    points: Array, i: int, means: Array, precisions: Array, k: int, begin: int, end: int
) -> float:
    total = points[i, 0] * 0
    for j in range(np.uint64(begin), np.uint64(end)):  # unsigned: no index from the end
        gap = points[i, j] - means[k, j]
        total += precisions[k, j] * (gap * gap)
    return total  # type: ignore[no-any-return]


@reordered
def _along(points: Array, i: int, means: Array, axes: Array, k: int, axis: int) -> float:
    """Measure x_i - μ_k along an axis of component k."""
    total = points[i, 0] * 0
    for j in range(points.shape[1]):
        total += axes[k, axis, j] * (points[i, j] - means[k, j])
    return total  # type: ignore[no-any-return]


@inlined
def nearness(points: Array, i: int, means: Array, k: int, limit: float) -> float:
    """|x_i - μ_k|², or infinity as soon as it is seen to exceed a limit."""
    total = 0.0
    d = points.shape[1]
    for begin in range(0, d, _CHUNK):
        total += squared_distance(points, i, means, k, begin, min(begin + _CHUNK, d))
        if not total <= limit:
            return np.inf
    return total


@inlined
def known_nearness(
    points: Array, i: int, means: Array, k: int, limit: float, room: Room | None
) -> float:
    """|x_i - μ_k|² of the features that are observed."""
    if room is None:
        return nearness(points, i, means, k, limit)
    return known_distance(points, i, means, k)


@inlined
def mahalanobis(
    points: Array, i: int, means: Array, precisions: Array, axes: Array | None, k: int, limit: float
) -> float:
    """(x_i - μ_k)ᵀ P_k (x_i - μ_k), or infinity as soon as it is seen to exceed a limit."""
    total = 0.0
    d = points.shape[1]
    if axes is None:
        for begin in range(0, d, _CHUNK):
            end = min(begin + _CHUNK, d)
            total += _weighted_distance(points, i, means, precisions, k, begin, end)
            if not total <= limit:
                return np.inf
    else:
        for axis in range(d):
            y = _along(points, i, means, axes, k, axis)
            total += precisions[k, axis] * y * y
    return total


@inlined
def half_log_det(precisions: Array, k: int) -> float:
    """½ Σ_j log p_kj, of as many factors at a time as do not overflow: logarithms are dear."""
    total, product = 0.0, 1.0
    d = precisions.shape[1]
    whole = d - d % 4
    for j in range(0, whole, 4):
        pair = np.float64(precisions[k, j]) * np.float64(precisions[k, j + 1])
        product *= pair * (np.float64(precisions[k, j + 2]) * np.float64(precisions[k, j + 3]))
        if not _LEAST_PRODUCT < product < 1.0 / _LEAST_PRODUCT:
            total += math.log(product)
            product = 1.0
    for j in range(whole, d):
        total += math.log(np.float64(precisions[k, j]))
    return 0.5 * (total + math.log(product))


@compiled
def centre(points: Array, means: Array, out: Array, squares: Array) -> None:
    """Write x - μ_0 of points, shape (n, d), to ``out``, of that shape, and |x - μ_0|².

    Examples
    --------
    >>> out, squares = np.empty((1, 2)), np.empty(1)
    >>> centre(np.array([[4.0, 5.0]]), np.ones((1, 2)), out, squares)
    >>> out, squares
    (array([[3., 4.]]), array([25.]))
    """
    for b in range(points.shape[0]):
        squares[b] = _centre_one(points, b, means, out)


@reordered
def _centre_one(points: Array, i: int, means: Array, out: Array) -> float:
    total = points[i, 0] * 0
    for j in range(points.shape[1]):
        gap = points[i, j] - means[0, j]
        out[i, j] = gap
        total += gap * gap
    return total  # type: ignore[no-any-return]


@compiled
def write_factors(
    points: Array, means: Array, precisions: Array, used: int, step: int,
    left: Array, right: Array, norms: Array,
) -> None:  # fmt: skip
    """Write matrices whose product, plus ``norms``, is -(x - μ_k)ᵀ P_k (x - μ_k) / 2.

    P_k is diagonal. ``left`` gets x - μ_0 and its squares, shape (B, 2m), ``right`` P_k (μ_k - μ_0)
    and -P_k / 2, shape (K, 2m), and ``norms`` has the shape (K,): of m features, which are the
    first ``used`` of each ``step``.
    """
    zero, m = np.uint64(0), np.uint64(left.shape[1] // 2)  # unsigned: no index from the end
    for k in range(means.shape[0]):
        _take(means, k, used, step, right, k, zero)
        _take(precisions, k, used, step, right, k, m)
    for b in range(points.shape[0]):
        _take(points, b, used, step, left, b, zero)
        for j in range(m):
            left[b, j] -= right[0, j]
        for j in range(m):
            left[b, m + j] = left[b, j] * left[b, j]
    half = means.dtype.type(-0.5)
    for k in range(means.shape[0] - 1, -1, -1):  # μ_0 is needed until the end
        norms[k] = half * _weigh(right, k, m)
        for j in range(m):
            right[k, m + j] *= half


@inlined
def _take(source: Array, i: int, used: int, step: int, out: Array, b: int, to: Any) -> None:
    d = source.shape[1]
    for begin in range(0, d, step):
        first, n = np.uint64(begin), np.uint64(min(used, d - begin))
        for j in range(n):
            out[b, to + j] = source[i, first + j]
        to += n


@reordered
def _weigh(right: Array, k: int, m: Any) -> float:
    total = right[k, 0] * 0
    for j in range(m):
        gap = right[k, j] - right[0, j]
        pull = right[k, m + j] * gap
        right[k, j] = pull
        total += pull * gap
    return total  # type: ignore[no-any-return]


@spliced
def write_distances(
    points: Array, i: int, means: Array, out: FloatArray, room: Room | None
) -> None:
    """Write -|x_i - μ_k|² to the first row of ``out``, shape (≥ 1, K)."""
    for k in range(means.shape[0]):
        out[0, k] = -known_nearness(points, i, means, k, np.inf, room)


@inlined
def two_nearest(points: Array, i: int, means: Array, room: Room | None) -> tuple[int, float, float]:
    """Find the nearest component, its squared distance and the next one; -1 if there is none."""
    winner, nearest, second = -1, np.inf, np.inf
    for k in range(means.shape[0]):
        distance = known_nearness(points, i, means, k, second, room)
        if distance < nearest:
            winner, nearest, second = k, distance, nearest
        elif distance < second:
            second = distance
    return winner, nearest, second


@inlined
def two_best(logs: FloatArray, b: int) -> tuple[int, int]:
    """Find the nearest component and the next; (-1, ·) if no distance is a number."""
    winner, second = -1, -1
    highest, next_highest = -np.inf, -np.inf
    for k in range(logs.shape[1]):
        if logs[b, k] > highest:
            second, next_highest = winner, highest
            winner, highest = k, logs[b, k]
        elif logs[b, k] > next_highest:
            second, next_highest = k, logs[b, k]
    return winner, second


@inlined
def least_log(beta: float) -> float:
    """Logarithm of the share of the highest density below which a component has no part."""
    return LEAST_LOG if beta == 1.0 else _LEAST_TEMPERED_LOG


@spliced
def responsibilities(logs: FloatArray, beta: float) -> float:
    """Turn log densities times β, shape (B, K), into responsibilities; returns their Σ log Σ exp.

    A sample whose density is no number gets none.
    """
    total = 0.0
    margin = least_log(beta)
    for b in range(logs.shape[0]):
        highest = -np.inf
        for k in range(logs.shape[1]):
            if logs[b, k] > highest:
                highest = logs[b, k]
        if highest == -np.inf:
            for k in range(logs.shape[1]):
                logs[b, k] = 0.0
            continue
        evidence = 0.0
        for k in range(logs.shape[1]):
            log = logs[b, k] - highest
            logs[b, k] = math.exp(log) if log > -margin else 0.0
            evidence += logs[b, k]
        for k in range(logs.shape[1]):
            logs[b, k] /= evidence
        total += highest + math.log(evidence)
    return total


@compiled
def measure_rest(
    points: Array, means: Array, precisions: Array, used: int, step: int, logs: FloatArray,
    likely: IntArray,
) -> None:  # fmt: skip
    """Let log densities, shape (B, K), be of all features, not of some as in `write_factors`.

    Those that are seen to be e^25 times smaller than another become -∞. ``likely``, shape (K,), is
    scratch.
    """
    d = means.shape[1]
    for b in range(points.shape[0]):
        first, _ = two_best(logs, b)
        if first < 0:
            continue
        best = logs[b, first]
        for begin in range(used, d, step):
            end = min(begin + step - used, d)
            best -= 0.5 * _weighted_distance(points, b, means, precisions, first, begin, end)
        least = best - LEAST_LOG
        n = _keep_likely(logs, b, least, likely, means.shape[0], True)
        for begin in range(used, d, step):
            end = min(begin + step - used, d)
            for place in range(n):
                k = likely[place]
                distance = _weighted_distance(points, b, means, precisions, k, begin, end)
                logs[b, k] -= 0.5 * distance
            n = _keep_likely(logs, b, least, likely, n, False)
        for k in range(means.shape[0]):
            if not logs[b, k] > least:
                logs[b, k] = -np.inf


@inlined
def _keep_likely(
    logs: FloatArray, b: int, least: float, likely: IntArray, n: int, all_of_them: bool
) -> int:
    kept = 0
    for place in range(n):
        k = place if all_of_them else likely[place]
        likely[kept] = k
        kept += logs[b, k] > least  # no branch, which could not be foreseen
    return kept
