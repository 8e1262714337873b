"""Missing values under a metric that mixes features: partial Mahalanobis distances.

Of (x − μ)ᵀ M (x − μ), where only the features o of x are observed, what is known is its least over
all that the others might be,

    (x_o − μ_o)ᵀ (S_oo)⁻¹ (x_o − μ_o) with S = M⁻¹,

which is the distance in what is observed of normal samples of covariance S. It is least where what
is missing is expected by them: x_m = μ_m + S_mo (S_oo)⁻¹ (x_o − μ_o).

With M = L Lᵀ whole distances are Euclidean between z = Lᵀ x and ζ = Lᵀ μ, and what is missing moves
z along rows of L. So every pattern of holes has orthonormal vectors q_j, one for each feature:
those of missing features span these rows, and the distance is Σ_observed (<q_j, z> − <q_j, ζ>)². A
point with holes is kept as <q_j, z> where feature j is observed and as NaN where it is missing: it
is as many numbers as are known. A point without holes is z itself. If M is diagonal, the q_j are
the axes.

References
----------
T. W. Anderson, "An introduction to multivariate statistical analysis", 3rd edition, Wiley, 2003,
section 2.5: marginal and conditional normal distributions.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import compiled, inlined, integer, reordered
from oda_rl._types import FloatArray, IntArray
from oda_rl.samples.missing import filled, observed_shares

_ROOM = 2**20  # numbers of the q_j that are kept; 8 MB
RIDGE = 1e-9  # of the mean information on a direction: what has less of it hardly moves


class Turned(NamedTuple):
    """Points with holes, and the q_j of as many of their patterns as there is room for."""

    values: FloatArray
    """Shape (n, d + q): the last q columns are no features."""
    patterns: IntArray
    """Number of the pattern of each point, shape (n,)."""
    root: FloatArray
    """L, shape (d, d)."""
    owners: IntArray
    """The pattern whose vectors are kept in a slot, shape (slots,); -1 if none's are."""
    vectors: FloatArray
    """Shape (slots, d, d): row j is q_j."""
    normal: FloatArray
    """Scratch, shape (d,)."""
    sums: FloatArray
    """Scratch, shape (d,)."""


def turned(points: FloatArray, root: FloatArray) -> Turned:
    """Tell the patterns of points, shape (n, d + q), under the metric of a root L, shape (d, d)."""
    d = len(root)
    packed = np.packbits(np.isnan(points[:, :d]), axis=1)
    patterns = np.unique(packed, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    n_slots = max(1, min(int(patterns.max(initial=0)) + 1, _ROOM // (d * d)))
    owners, vectors = np.full(n_slots, -1), np.empty((n_slots, d, d))
    own = np.ascontiguousarray(points), patterns, np.ascontiguousarray(root)
    return Turned(*own, owners, vectors, np.empty(d), np.empty(d))


@reordered
def _product(vectors: FloatArray, slot: int, j: int, rows: FloatArray, k: int) -> float:
    """<q_j, row k>."""
    total = 0.0
    for c in range(rows.shape[1]):
        total += vectors[slot, j, c] * rows[k, c]
    return total


@compiled
def _turn(points: Turned, i: int, slot: int) -> None:
    """Reflect the rows of L of what point ``i`` is missing into the axes of these features.

    By one of Householder's reflections after the other; the q_j of observed features are what the
    reflections, one after the other, take to the axes of these.
    """
    d, found, normal, sums = points.root.shape[0], points.vectors, points.normal, points.sums
    for j in range(d):
        for c in range(d):
            found[slot, j, c] = 1.0 if j == c else 0.0
    for j in range(d):
        if not math.isnan(points.values[i, j]):
            continue
        square = 0.0
        for r in range(d):
            done = r < j and math.isnan(points.values[i, r])
            normal[r] = 0.0 if done else _product(found, slot, r, points.root, j)
            square += normal[r] ** 2
        normal[j] += math.copysign(math.sqrt(square), normal[j])
        factor = 0.0
        for r in range(d):
            factor += normal[r] ** 2
            sums[r] = 0.0
        for r in range(d):
            for c in range(d):
                sums[c] += normal[r] * found[slot, r, c]
        for r in range(d):
            step = 2.0 * normal[r] / factor
            for c in range(d):
                found[slot, r, c] -= step * sums[c]


@inlined
def slot_of(points: Turned, i: int) -> int:
    """Where the vectors of the pattern of point ``i`` are, which are made if they are not there."""
    pattern = points.patterns[i]
    slot: int = pattern % points.owners.shape[0]
    if points.owners[slot] != pattern:
        _turn(points, i, slot)
        points.owners[slot] = pattern
    return slot


@inlined
def squared_distance(points: Turned, i: int, codevectors: FloatArray, k: int) -> float:
    """Σ (<q_j, z_i> − <q_j, ζ_k>)² of the features that are observed."""
    slot, total = slot_of(points, i), 0.0
    for j in range(points.root.shape[0]):
        if not math.isnan(points.values[i, j]):
            gap = points.values[i, j] - _product(points.vectors, slot, j, codevectors, k)
            total += gap * gap
    return total


@inlined
def move(codevectors: FloatArray, k: int, points: Turned, i: int, step: float) -> None:
    """Move a codevector towards a point, along what is known of that."""
    slot, d = slot_of(points, i), points.root.shape[0]
    for j in range(d):
        if not math.isnan(points.values[i, j]):
            way = step * (points.values[i, j] - _product(points.vectors, slot, j, codevectors, k))
            for c in range(d):
                codevectors[k, c] += way * points.vectors[slot, j, c]


@compiled
def _project(points: Turned, whole: FloatArray, out: FloatArray) -> None:
    for i in range(out.shape[0]):
        slot = slot_of(points, i)
        for j in range(points.root.shape[0]):
            out[i, j] = np.nan
            if not math.isnan(points.values[i, j]):
                out[i, j] = _product(points.vectors, slot, j, whole, i)


@inlined
def _mostly_known(points: Turned, i: int) -> bool:
    """Whether less than half of the features of a point are missing.

    It is less work then to leave out what is missing than to add up what is known.
    """
    d, n_missing = points.root.shape[0], integer(0)
    for j in range(d):
        n_missing += math.isnan(points.values[i, j])
    return bool(2 * n_missing < d)


@reordered
def _rest(points: Turned, i: int, slot: int, whole: FloatArray) -> float:
    """Square of a vector, which loses its components along what point ``i`` is missing."""
    d = whole.shape[0]
    for j in range(d):
        if math.isnan(points.values[i, j]):
            along = 0.0
            for c in range(d):
                along += points.vectors[slot, j, c] * whole[c]
            for c in range(d):
                whole[c] -= along * points.vectors[slot, j, c]
    square = 0.0
    for c in range(d):
        square += whole[c] * whole[c]
    return square


@compiled
def _between(points: Turned, codevectors: FloatArray, out: FloatArray) -> None:
    d, known, gap = points.root.shape[0], points.sums, points.normal
    for i in range(out.shape[0]):
        slot = slot_of(points, i)
        if not _mostly_known(points, i):
            for k in range(out.shape[1]):
                out[i, k] = squared_distance(points, i, codevectors, k)
            continue
        for c in range(d):
            known[c] = 0.0
        for j in range(d):
            if not math.isnan(points.values[i, j]):
                for c in range(d):
                    known[c] += points.values[i, j] * points.vectors[slot, j, c]
        for k in range(out.shape[1]):
            for c in range(d):
                gap[c] = known[c] - codevectors[k, c]
            out[i, k] = _rest(points, i, slot, gap)


@compiled
def _rowwise(points: Turned, codevectors: FloatArray, out: FloatArray) -> None:
    for i in range(out.shape[0]):
        out[i] = squared_distance(points, i, codevectors, i)


@compiled
def _complete(points: Turned, out: FloatArray) -> None:
    for i in range(out.shape[0]):
        move(out, i, points, i, 1.0)


@compiled
def _accumulate(
    points: Turned, weights: FloatArray, cells: IntArray, sums: FloatArray, known: FloatArray
) -> None:
    d = points.root.shape[0]
    for i in range(weights.shape[0]):
        slot, k, weight = slot_of(points, i), cells[i], weights[i]
        rest = _mostly_known(points, i)  # P is I but for what is missing
        if rest:
            for a in range(d):
                known[k, a, a] += weight
        for j in range(d):
            hole = math.isnan(points.values[i, j])
            if not hole:
                for a in range(d):
                    sums[k, a] += weight * points.vectors[slot, j, a] * points.values[i, j]
            if hole == rest:
                for a in range(d):
                    share = (-weight if rest else weight) * points.vectors[slot, j, a]
                    for b in range(d):
                        known[k, a, b] += share * points.vectors[slot, j, b]


def embedded(points: FloatArray, root: FloatArray) -> FloatArray:
    """Coordinates of points of which values are missing, shape (n, d).

    >>> embedded(np.array([[3.0, np.nan], [3.0, 1.0]]), np.array([[2.0, 0.0], [1.0, 1.0]]))
    array([[4.24264069,        nan],
           [7.        , 1.        ]])
    """
    whole = filled(points, np.zeros(1)) @ root
    out = np.empty_like(whole)
    _project(turned(points, root), whole, out)
    return out


def squares_between(points: FloatArray, codevectors: FloatArray, root: FloatArray) -> FloatArray:
    """Distances of embedded points, shape (n, d), from codevectors, (m, d), expected of the whole.

    Those in what is observed, times d over how many features that is. Shape (n, m).

    >>> points = embedded(np.array([[3.0, np.nan]]), np.eye(2))
    >>> squares_between(points, np.array([[0.0, 9.0]]), np.eye(2))
    array([[18.]])
    """
    out = np.empty((len(points), len(codevectors)))
    _between(turned(points, root), codevectors, out)
    return np.asarray(out / observed_shares(points))


def squares_rowwise(points: FloatArray, codevectors: FloatArray, root: FloatArray) -> FloatArray:
    """Likewise of each point from the codevector in the same row, shape (n,)."""
    out = np.empty(len(points))
    _rowwise(turned(points, root), codevectors, out)
    return np.asarray(out / np.reshape(observed_shares(points), -1))


def completed(points: FloatArray, codevectors: FloatArray, root: FloatArray) -> FloatArray:
    """Return embedded points with what is expected of them, given the codevector in the same row.

    Shape (n, d + q): in the last q columns that is the codevector's value.

    >>> root = np.linalg.cholesky(np.linalg.inv(np.array([[1.0, 0.5], [0.5, 1.0]])))
    >>> codevector = np.array([[1.0, 1.0]]) @ root
    >>> whole = completed(embedded(np.array([[3.0, np.nan]]), root), codevector, root)
    >>> np.linalg.solve(root.T, whole[0]).round(9)  # 1 + 0.5 (3 - 1)
    array([3., 2.])
    """
    d, out = len(root), filled(points, codevectors).copy()
    holed = np.isnan(points[:, :d]).any(axis=1)
    if holed.any():
        own = np.ascontiguousarray(np.broadcast_to(codevectors, points.shape)[holed, :d])
        _complete(turned(points[holed, :d], root), own)
        out[holed, :d] = own
    return out


def cell_means(
    points: FloatArray, weights: FloatArray, cells: IntArray, otherwise: FloatArray,
    root: FloatArray,
) -> FloatArray:  # fmt: skip
    """Codevectors of which the sum of the distances in what is observed of their cells is least.

    With the projections P_i = Σ_observed q_j q_jᵀ of the points i of a cell that is where
    Σ w_i P_i ζ = Σ w_i Σ_observed q_j <q_j, z_i>. In directions in which nothing is known a
    codevector is as it is ``otherwise``.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        Embedded, NaN where values are missing.
    weights : ndarray, shape (n,)
        At least 0.
    cells : ndarray, shape (n,)
        From 0 to K - 1.
    otherwise : ndarray, shape (K, d)
    root : ndarray, shape (d, d)
        L.

    Returns
    -------
    ndarray, shape (K, d)
    """
    (k, d), own = otherwise.shape, turned(points, root)
    sums, known = np.zeros((k, d)), np.zeros((k, d, d))
    _accumulate(own, weights, cells, sums, known)
    lacking = sums - np.einsum("kab,kb->ka", known, otherwise)
    mean = np.trace(known, axis1=1, axis2=2) / d
    known += (np.where(mean > 0.0, RIDGE * mean, 1.0)[:, None, None]) * np.eye(d)
    return otherwise + np.linalg.solve(known, lacking[:, :, None])[:, :, 0]
