"""Refinement of codevectors at temperature zero.

:func:`refine` lowers the weighted mean squared distance from the nearest codevector in two ways:

- Exchange: a point x of weight w moves from cell a, of mass n_a, to cell b if
  n_b / (n_b + w) |x − μ_b|² < n_a / (n_a − w) |x − μ_a|²; both means follow at once (Hartigan,
  "Clustering Algorithms", 1975; Telgarsky and Vattani, "Hartigan's method: k-means clustering
  without Voronoi", AISTATS 2010). Its optima are also optima of Lloyd's iteration.
- Breathing: a few codevectors are added where errors are large, points exchange, as many
  codevectors that are least needed are removed, points exchange again; a step without improvement
  is undone and the last one (Fritzke, "The breathing k-means algorithm", arXiv:2006.15666, 2020).

Lower bounds on all distances, reduced by the way that the codevector has moved since, spare most of
the distances (Elkan, "Using the triangle inequality to accelerate k-means", ICML 2003).

Where values are missing (NaN), Lloyd's iteration by the distances in the observed features
alternates with refinement of points whose missing values are filled in from their codevectors (Chi,
Chi and Baraniuk, "k-POD: a method for k-means clustering of missing data", The American
Statistician 70, 2016).
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import compiled, inlined, integer
from oda_rl._types import Array, ByteArray, FloatArray, IntArray
from oda_rl.diagram import squared_distance
from oda_rl.divergences import SquaredEuclidean
from oda_rl.quantization import kernels
from oda_rl.samples import filled, holes, observed_shares

_PASSES = 5  # over all points at most, until the last exchange
_LIMIT = 1000  # passes of the last exchange: a guard against cycles by rounding
_SAMPLE = 4_000_000  # bounds (points times codevectors); 16 MB
_MANY = 2 * _SAMPLE  # bounds: so many are whole numbers of one byte, as memory is dear
_HIGHEST = 255.0  # bound
_BELOW = 1.0 - 2e-7  # so that bounds remain bounds in single precision
_PER_CELL, _MIN_PER_CELL = 250, 5  # points: more place codevectors hardly better, before Lloyd's
_FEW, _MIN_POINTS = 20, 700  # codevectors, of which fewer points are enough, in proportion
FINISH = 100, 1e-4  # iterations and tolerance of Lloyd's after refining on a sample
_ROUNDS, _BETTER = 10, 1.0 - 1e-9  # of refinement where values are missing

_GAIN = 1.0 - 1e-12  # an exchange must be an improvement in spite of rounding
_EMPTY = 1e-9  # share of its mass that a cell has by rounding without its last point


class _Cells(NamedTuple):
    """n points of dimension d, and m cells; those of mass 0 do not exist."""

    points: Array  # (n, d), single or double precision
    weights: FloatArray  # (n,), positive
    labels: IntArray  # (n,), cell of each point
    errors: FloatArray  # (n,), squared distance from its codevector, unless its cell changed
    bounds: Array  # (n, m), minus drift: lower bounds of distances; (0, m) without bounds
    codevectors: FloatArray  # (m, d)
    masses: FloatArray  # (m,)
    drift: FloatArray  # (m,), length of the way of each codevector
    changed: ByteArray  # (m,), 2: in the latest pass, 1: in the one before
    all: IntArray  # (m,), 0 to m - 1
    listed: IntArray  # (m,), scratch: the changed cells
    gaps: FloatArray  # (m, d), scratch


@inlined
def _square(cells: _Cells, i: int, k: int) -> float:
    return squared_distance(cells.points, i, cells.codevectors, k, cells.points.shape[1])


@compiled
def _assign(cells: _Cells, n_cells: int) -> float:
    """Set labels, the nearest of the first ``n_cells``, errors and bounds; return the error."""
    total = 0.0
    for i in range(cells.points.shape[0]):
        nearest, smallest = integer(0), np.inf
        for k in range(n_cells):
            squared = _square(cells, i, k)
            if cells.bounds.shape[0] > 0:
                cells.bounds[i, k] = min(_BELOW * math.sqrt(squared), _HIGHEST)
            if squared < smallest:
                nearest, smallest = k, squared
        cells.labels[i], cells.errors[i] = nearest, smallest
        total += cells.weights[i] * smallest
    return total


@compiled
def _centre(cells: _Cells) -> None:
    """Move the codevectors to the means of their cells, if any, and recount the masses."""
    gaps, masses = cells.gaps, cells.masses  # from the codevectors: accurate far from the origin
    masses[:], gaps[:] = 0.0, 0.0
    for i in range(cells.points.shape[0]):
        k, weight = cells.labels[i], cells.weights[i]
        masses[k] += weight
        for j in range(gaps.shape[1]):
            gaps[k, j] += weight * (cells.points[i, j] - cells.codevectors[k, j])
    for k in range(masses.shape[0]):
        if masses[k] > 0.0:
            way = 0.0
            for j in range(gaps.shape[1]):
                step = gaps[k, j] / masses[k]
                cells.codevectors[k, j] += step
                way += step * step
            cells.drift[k] += math.sqrt(way)
            cells.changed[k] = 2


@compiled
def _move(cells: _Cells, i: int, goal: int) -> None:
    """Move point i from its cell, unless that has no mass, to another."""
    home, weight = cells.labels[i], cells.weights[i]
    for k, change in ((home, -weight), (goal, weight)):
        if k == home and cells.masses[k] == 0.0:
            continue
        cells.masses[k] += change
        share, way = change / cells.masses[k], 0.0
        for j in range(cells.points.shape[1]):
            step = share * (cells.points[i, j] - cells.codevectors[k, j])
            cells.codevectors[k, j] += step
            way += step * step
        cells.drift[k] += math.sqrt(way)
        cells.changed[k] = 2
    cells.labels[i] = goal


@inlined
def _best(
    cells: _Cells, i: int, candidates: IntArray, n_candidates: int, limit: float
) -> tuple[int, float]:
    """Return which other cell point i would best join, and by how much the error, over w, rises.

    Its own, and ``limit``, if it rises by less in no other.
    """
    home = cells.labels[i]
    goal = home
    for t in range(n_candidates):
        k = candidates[t]
        mass = cells.masses[k]
        if k == home or mass == 0.0:
            continue
        joint = mass + cells.weights[i]
        bound = max(cells.bounds[i, k] - cells.drift[k], 0.0)
        if bound * bound * mass >= limit * joint:
            continue
        squared = _square(cells, i, k)
        cells.bounds[i, k] = min(_BELOW * (math.sqrt(squared) + cells.drift[k]), _HIGHEST)
        if mass * squared < limit * joint:
            goal, limit = k, mass * squared / joint
    return goal, limit


@compiled
def _exchange(cells: _Cells, passes: int) -> float:
    """Move single points as long as that lowers the error, in at most ``passes`` over all points.

    Updates all errors and returns their weighted sum.
    """
    for _ in range(passes):
        n_changed = integer(0)
        for k in range(cells.masses.shape[0]):
            cells.changed[k] >>= 1
            if cells.changed[k] > 0:
                cells.listed[n_changed] = k
                n_changed += 1
        if n_changed == 0:
            break
        for i in range(cells.points.shape[0]):
            home = cells.labels[i]
            changed = cells.changed[home] > 0
            if changed:
                cells.errors[i] = _square(cells, i, home)
            others = cells.masses[home] - cells.weights[i]
            if others <= _EMPTY * cells.masses[home]:
                continue
            fall = cells.masses[home] / others * cells.errors[i] * _GAIN
            candidates = cells.all if changed else cells.listed
            goal, _ = _best(
                cells, i, candidates, cells.all.shape[0] if changed else n_changed, fall
            )
            if goal != home:
                _move(cells, i, goal)
    total = 0.0
    for i in range(cells.points.shape[0]):
        if cells.changed[cells.labels[i]] > 0:
            cells.errors[i] = _square(cells, i, cells.labels[i])
        total += cells.weights[i] * cells.errors[i]
    return total


@compiled
def _leave(cells: _Cells, members: IntArray, rises: FloatArray) -> None:
    """Write the rise of the error, over w, if a point joined the best of the other cells.

    Points whose cell has lost its mass move there.
    """
    for t in range(members.shape[0]):
        i = members[t]
        goal, rises[i] = _best(cells, i, cells.all, cells.all.shape[0], np.inf)
        if cells.masses[cells.labels[i]] == 0.0:
            _move(cells, i, goal)


def _inhale(cells: _Cells, uniforms: FloatArray) -> int:
    """Add up to ``len(uniforms)`` cells of one point each, and return how many.

    Points are drawn in proportion to their weighted errors (as by k-means++: Arthur and
    Vassilvitskii, SODA 2007).
    """
    for added, uniform in enumerate(uniforms):
        _exchange(cells, 0)
        sums = np.cumsum(cells.weights * cells.errors)
        seed = int(sums.searchsorted(uniform * sums[-1], side="right"))
        if seed == len(sums):  # no errors
            return added
        mass = cells.masses[cells.labels[seed]]
        if mass - cells.weights[seed] <= _EMPTY * mass:
            return added
        _move(cells, seed, int(np.flatnonzero(cells.masses == 0.0)[-1]))
    return len(uniforms)


def _exhale(cells: _Cells, count: int) -> None:
    """Remove the ``count`` cheapest cells, if possible no neighbours. Errors must be up to date."""
    n, m = len(cells.points), len(cells.masses)
    rises, spared = np.empty(n), np.zeros(m)
    _leave(cells, np.arange(n), rises)
    costs = np.bincount(cells.labels, cells.weights * (rises - cells.errors), m)
    costs[cells.masses == 0.0] = np.inf
    for _ in range(count):
        worst = int((costs + spared).argmin())
        if spared[worst] > 0.0:
            worst = int(costs.argmin())
        costs[worst], cells.masses[worst], cells.changed[worst] = np.inf, 0.0, 0
        members = np.flatnonzero(cells.labels == worst)
        _leave(cells, members, rises)
        spared[cells.labels[members]] = np.inf


def _open(
    points: FloatArray, weights: FloatArray, codevectors: FloatArray, spare: int, bounded: bool
) -> _Cells:
    """Allocate cells, ``spare`` of them empty, and bounds if ``bounded``."""
    m = len(codevectors) + spare
    n, d = points.shape
    n_bounded = n if bounded else 0
    return _Cells(
        points=np.ascontiguousarray(points),
        weights=np.ascontiguousarray(weights, dtype=np.float64),
        labels=np.zeros(n, np.int64),
        errors=np.zeros(n),
        bounds=np.zeros((n_bounded, m), np.float32 if n_bounded * m < _MANY else np.uint8),
        codevectors=np.concatenate([codevectors, np.zeros((spare, d))]),
        masses=np.zeros(m),
        drift=np.zeros(m),
        changed=np.zeros(m, np.uint8),
        all=np.arange(m),
        listed=np.zeros(m, np.int64),
        gaps=np.zeros((m, d)),
    )


def _refine_all(
    points: FloatArray,
    weights: FloatArray,
    codevectors: FloatArray,
    rng: np.random.Generator,
    effort: int,
) -> FloatArray:
    """:func:`refine` with more points than codevectors, breathing ``effort`` times at most."""
    n_cells = len(codevectors)
    breath = math.ceil(n_cells / 20)  # one in 20 codevectors is added and removed at a time
    # The largest distance is at most the highest bound; a power of 2 rounds nothing.
    diagonal = math.hypot(*np.ptp(points, axis=0).tolist())
    scale = 2.0 ** math.ceil(math.log2(diagonal / _HIGHEST or 1.0))
    cells = _open(points / scale, weights, codevectors / scale, breath, True)
    before = _assign(cells, n_cells)
    _centre(cells)
    _inhale(cells, rng.random(n_cells - np.count_nonzero(cells.masses)))
    error = _exchange(cells, _PASSES)
    kept: list[Array] = [cells.codevectors, cells.masses, cells.labels, cells.errors, cells.changed]
    for _ in range(effort if n_cells > 1 else 0):
        former = [array.copy() for array in kept]
        added = _inhale(cells, rng.random(breath))
        _exchange(cells, _PASSES)
        _exhale(cells, added)
        after = _exchange(cells, _PASSES)
        if after >= error * _GAIN:  # to undo it is one more move for the bounds
            cells.drift[:] += np.sqrt(((cells.codevectors - former[0]) ** 2).sum(axis=1))
            for array, values in zip(kept, former, strict=True):
                array[:] = values
            break
        error = after
    _exchange(cells, _LIMIT)
    _centre(cells)  # without the rounding errors of many small steps
    if _exchange(cells, 0) >= before:
        return codevectors.copy()
    return scale * np.resize(cells.codevectors[cells.masses > 0.0], codevectors.shape)


def refine(
    points: FloatArray, weights: FloatArray, codevectors: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Lower the weighted mean squared distance of points from the nearest of K codevectors.

    The result is never worse than the start, and no move of a single point to another cell
    improves it; each codevector is the nearest to some point, or the points are repeated if n ≤ K.
    With more than 250 K (12.5 K² if K < 20) or ``4e6 / K`` points, and more than 5 K and 700, a
    random sample of these is refined, and Lloyd's iteration over all points follows.

    Distinct points, shape (n, d), may have NaN, a missing value; weights, shape (n,), are ≥ 0,
    codevectors have shape (K, d). It breathes at most once from 10 points a codevector on, twice
    from 20, three times from 60; each takes about as long as 5 to 10 iterations of Lloyd's.
    """
    used = weights > 0.0
    if not used.all():
        points, weights = points[used], weights[used]
    if holes(points) is not None:
        return _refine_observed(points, weights, codevectors, rng)
    n, n_cells = len(points), len(codevectors)
    if n <= n_cells:
        alone = np.resize(points, codevectors.shape) if n else codevectors
        return alone.astype(np.float64)
    effort = sum(n >= ratio * n_cells for ratio in (10, 20, 60))  # one more breath from each
    size = min(_SAMPLE // n_cells, _PER_CELL * n_cells * min(n_cells, _FEW) // _FEW)
    size = max(size, _MIN_PER_CELL * n_cells, _MIN_POINTS)
    sample = rng.choice(n, min(n, size), replace=False)  # shuffled: sorted points end up worse
    refined = _refine_all(points[sample], weights[sample], codevectors, rng, effort)
    if n <= size:
        return refined
    cells = _open(points, weights, codevectors, 0, False)
    before, after = _assign(cells, n_cells), math.inf
    cells.codevectors[:] = refined
    for _ in range(FINISH[0]):
        error, after = after, _assign(cells, n_cells)
        if after >= error * (1.0 - FINISH[1]):
            break
        _centre(cells)
    return cells.codevectors if after < before else codevectors.copy()


def _refine_observed(
    points: FloatArray, weights: FloatArray, codevectors: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """:func:`refine` where values are missing."""
    best, error = codevectors, np.inf
    for _ in range(_ROUNDS):
        moved = kernels.lloyd(points, weights, codevectors)
        squares = SquaredEuclidean().between(points, moved)
        squares *= observed_shares(points)
        after = float(weights @ squares.min(axis=1))
        if after >= error * _BETTER:
            break
        best, error = moved, after
        codevectors = refine(filled(points, moved[squares.argmin(axis=1)]), weights, moved, rng)
    return best
