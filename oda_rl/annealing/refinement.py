"""Codevectors at zero temperature, refined to a better optimum.

:func:`refine` lowers the weighted mean squared distance of the points from them in two ways:

- Exchange: a point x of weight w moves from cell a, of mass n_a, to cell b where that lowers the
  total, that is where n_b / (n_b + w) |x − μ_b|² < n_a / (n_a − w) |x − μ_a|²; both means follow at
  once (Hartigan, "Clustering Algorithms", 1975; Telgarsky and Vattani, "Hartigan's method: k-means
  clustering without Voronoi", AISTATS 2010). Its optima are optima of Lloyd's iteration, too, and
  not the other way round.
- Breathing: a few codevectors are added where the error is, all exchange, as many of those least
  needed are taken away, all exchange again; what is not better is undone (Fritzke, "The breathing
  k-means algorithm", arXiv:2006.15666, 2020).

A lower bound on the distance of every point from every codevector, lowered by as much as the
codevector has moved since, spares most distances (Elkan, "Using the triangle inequality to
accelerate k-means", ICML 2003). Cells that have not changed are not looked at again.

Where values are missing (NaN), it is Lloyd's iteration by the distances in what is observed, and
from where it ends the above with samples in which what is missing is that of their codevector, as
long as that helps: what is lower by these is lower in what is observed (Chi, Chi and Baraniuk,
"k-POD: a method for k-means clustering of missing data", The American Statistician 70, 2016).
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import compiled, inlined, integer, spliced
from oda_rl._types import Array, ByteArray, FloatArray, IntArray
from oda_rl.diagram import squared_distance
from oda_rl.divergences import SquaredEuclidean
from oda_rl.quantization import kernels
from oda_rl.samples import filled, holes, observed_shares

_BREATH = 20  # one codevector in so many is added and taken away at a time
_BREATHS = 10, 60, 150, 150, 150  # points a codevector from which on there is one breath more
_PASSES = 5  # over all points at most, until the last exchange
_LIMIT = 1000  # passes: never met, but rounding is not to be trusted with a loop
_SAMPLE = 4_000_000  # bounds (points times codevectors) that are kept; 32 MB
FINISH = 20, 1e-4  # of Lloyd's iteration over all points, after refining on a sample
_ROUNDS, _BETTER = 10, 1.0 - 1e-9  # of refinement where values are missing

_GAIN = 1.0 - 1e-12  # an exchange has to be an improvement in spite of rounding
_REST = 1e-9  # what is left of a cell's mass after its last point has been taken out


class _Cells(NamedTuple):
    """Points and the cells they are in; n points of dimension d, m cells. A mass of 0: no cell."""

    points: Array  # (n, d), in the precision that they came in
    weights: FloatArray  # (n,), positive
    labels: IntArray  # (n,), cell of each point
    errors: FloatArray  # (n,), squared distance from its codevector, unless its cell is restless
    bounds: FloatArray  # (n, m), minus drift: at most the distance; (0, m) if not kept
    codevectors: FloatArray  # (m, d)
    masses: FloatArray  # (m,)
    drift: FloatArray  # (m,), way that each codevector has gone
    restless: ByteArray  # (m,), 2: changed in the latest pass, 1: in the one before
    looked_at: IntArray  # (m,), scratch: the restless cells


@inlined
def _square(cells: _Cells, i: int, k: int) -> float:
    return squared_distance(cells.points, i, cells.codevectors, k, cells.points.shape[1])


@compiled
def _assign(cells: _Cells, n_cells: int) -> float:
    """Label all points with the nearest of the first ``n_cells``; set errors, and bounds if kept.

    Returns the weighted sum of the squared distances.
    """
    total = 0.0
    for i in range(cells.points.shape[0]):
        nearest, least = integer(0), np.inf
        for k in range(n_cells):
            squared = _square(cells, i, k)
            if cells.bounds.shape[0] > 0:
                cells.bounds[i, k] = squared
            if squared < least:
                nearest, least = k, squared
        cells.labels[i], cells.errors[i] = nearest, least
        total += cells.weights[i] * least
        for k in range(min(n_cells, cells.bounds.shape[0] * n_cells)):
            cells.bounds[i, k] = math.sqrt(cells.bounds[i, k])
    return total


@compiled
def _add_gaps(cells: _Cells, gaps: FloatArray) -> None:
    """Add up masses, and weighted gaps from the codevectors: accurate far from the origin, too."""
    for i in range(cells.points.shape[0]):
        k, weight = cells.labels[i], cells.weights[i]
        cells.masses[k] += weight
        for j in range(gaps.shape[1]):
            gaps[k, j] += weight * (cells.points[i, j] - cells.codevectors[k, j])


def _centre(cells: _Cells) -> None:
    """Move the codevectors to the means of their cells and recount the masses.

    A codevector without points stays where it is.
    """
    steps = np.zeros_like(cells.codevectors)
    cells.masses[:] = 0.0
    _add_gaps(cells, steps)
    used = cells.masses > 0.0
    steps[used] /= cells.masses[used, None]
    cells.codevectors[:] += steps
    cells.drift[:] += np.sqrt((steps * steps).sum(axis=1))
    cells.restless[used] = 2


@spliced
def _move(cells: _Cells, i: int, goal: int) -> None:
    """Take point i out of its cell, unless that has no mass, and put it into another."""
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
        cells.restless[k] = 2
    cells.labels[i] = goal


@inlined
def _arrival(cells: _Cells, i: int, k: int, least: float) -> float:
    """Rise of the error, over w, if point i joined cell k; inf if it is at least ``least``."""
    mass = cells.masses[k]
    joint = mass + cells.weights[i]
    bound = max(cells.bounds[i, k] - cells.drift[k], 0.0)
    if bound * bound * mass >= least * joint:
        return np.inf
    squared = _square(cells, i, k)
    cells.bounds[i, k] = math.sqrt(squared) + cells.drift[k]
    rise: float = mass / joint * squared
    return rise


@inlined
def _n_near(cells: _Cells, i: int, least: float) -> int:
    """How many cells bounds do not rule out for a rise below ``least``: a loop without branches."""
    n_near = integer(0)
    for k in range(cells.masses.shape[0]):
        bound = max(cells.bounds[i, k] - cells.drift[k], 0.0)
        joint = cells.masses[k] + cells.weights[i]
        n_near += bound * bound * cells.masses[k] < least * joint
    return n_near


@compiled
def _exchange(cells: _Cells, passes: int) -> float:
    """Move single points as long as that lowers the error, at most ``passes`` times over all.

    Brings all errors up to date and returns their weighted sum.
    """
    m = cells.masses.shape[0]
    for _ in range(passes):
        n_restless = n_empty = integer(0)
        for k in range(m):
            n_empty += cells.masses[k] == 0.0
            cells.restless[k] >>= 1
            if cells.restless[k] > 0:
                cells.looked_at[n_restless] = k
                n_restless += 1
        if n_restless == 0:
            break
        for i in range(cells.points.shape[0]):
            home, weight = cells.labels[i], cells.weights[i]
            changed = cells.restless[home] > 0
            if changed:
                cells.errors[i] = _square(cells, i, home)
            rest = cells.masses[home] - weight
            if rest <= _REST * cells.masses[home]:
                continue
            goal, least = home, cells.masses[home] / rest * cells.errors[i] * _GAIN
            if changed and _n_near(cells, i, least) <= 1 + n_empty:  # its own
                continue
            for t in range(m if changed else n_restless):
                k = t if changed else cells.looked_at[t]
                if k != home and cells.masses[k] > 0.0:
                    rise = _arrival(cells, i, k, least)
                    if rise < least:
                        least, goal = rise, k
            if goal != home:
                _move(cells, i, goal)
    total = 0.0
    for i in range(cells.points.shape[0]):
        if cells.restless[cells.labels[i]] > 0:
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
        home, goal, least = cells.labels[i], integer(0), np.inf
        for k in range(cells.masses.shape[0]):
            if k != home and cells.masses[k] > 0.0:
                rise = _arrival(cells, i, k, least)
                if rise < least:
                    least, goal = rise, k
        rises[i] = least
        if cells.masses[home] == 0.0:
            _move(cells, i, goal)


def _inhale(cells: _Cells, uniforms: FloatArray) -> int:
    """Add up to ``len(uniforms)`` cells of one point each, and return how many.

    The points are drawn in proportion to their weighted errors (as by k-means++: Arthur and
    Vassilvitskii, SODA 2007). There must be room for the cells.
    """
    for added, uniform in enumerate(uniforms):
        _exchange(cells, 0)
        sums = np.cumsum(cells.weights * cells.errors)
        seed = int(sums.searchsorted(uniform * sums[-1], side="right"))
        if seed == len(sums):  # no errors
            return added
        mass = cells.masses[cells.labels[seed]]
        if mass - cells.weights[seed] <= _REST * mass:
            return added
        _move(cells, seed, int(np.flatnonzero(cells.masses == 0.0)[-1]))
    return len(uniforms)


def _exhale(cells: _Cells, count: int) -> None:
    """Take away ``count`` cells that others replace at least cost, if possible not neighbours.

    All errors must be up to date.
    """
    n, m = len(cells.points), len(cells.masses)
    rises = np.empty(n)
    _leave(cells, np.arange(n), rises)
    costs = np.bincount(cells.labels, cells.weights * (rises - cells.errors), m)
    costs[cells.masses == 0.0] = np.inf
    spared = np.zeros(m)
    for _ in range(count):
        worst = int((costs + spared).argmin())
        if spared[worst] > 0.0:
            worst = int(costs.argmin())
        costs[worst] = np.inf
        cells.masses[worst] = 0.0
        cells.restless[worst] = 0
        members = np.flatnonzero(cells.labels == worst)
        _leave(cells, members, rises)
        spared[cells.labels[members]] = np.inf


def _open(
    points: FloatArray, weights: FloatArray, codevectors: FloatArray, spare: int, bounded: bool
) -> _Cells:
    """Cells with room for ``spare`` more codevectors, and for bounds where they are kept."""
    m = len(codevectors) + spare
    n, d = points.shape
    return _Cells(
        points=np.ascontiguousarray(points),
        weights=np.ascontiguousarray(weights, dtype=np.float64),
        labels=np.zeros(n, np.int64),
        errors=np.zeros(n),
        bounds=np.zeros((n if bounded else 0, m)),
        codevectors=np.concatenate([codevectors, np.zeros((spare, d))]),
        masses=np.zeros(m),
        drift=np.zeros(m),
        restless=np.zeros(m, np.uint8),
        looked_at=np.zeros(m, np.int64),
    )


def _position(cells: _Cells) -> tuple[Array, ...]:
    """Arrays that say where the cells are. The others only say what is known about distances."""
    return cells.codevectors, cells.masses, cells.labels, cells.errors, cells.restless


def _restore(cells: _Cells, position: tuple[Array, ...]) -> None:
    """Return to a position; for the bounds that is one more move of the codevectors."""
    cells.drift[:] += np.sqrt(((cells.codevectors - position[0]) ** 2).sum(axis=1))
    for array, former in zip(_position(cells), position, strict=True):
        array[:] = former


def _breathe(cells: _Cells, rng: np.random.Generator, breath: int, effort: int) -> float:
    """Exchange, breathe ``effort`` times, and return the weighted sum of squared distances."""
    error = _exchange(cells, _PASSES)
    for _ in range(effort):
        position = tuple(array.copy() for array in _position(cells))
        added = _inhale(cells, rng.random(breath))
        _exchange(cells, _PASSES)
        _exhale(cells, added)
        after = _exchange(cells, _PASSES)
        if after < error:
            error = after
        else:
            _restore(cells, position)
    _exchange(cells, _LIMIT)
    _centre(cells)  # without the rounding of all the small steps
    return _exchange(cells, 0)


def _refine_all(
    points: FloatArray,
    weights: FloatArray,
    codevectors: FloatArray,
    rng: np.random.Generator,
    effort: int,
) -> FloatArray:
    """:func:`refine` where there are more points than codevectors, and room for all bounds."""
    n_cells = len(codevectors)
    breath = math.ceil(n_cells / _BREATH)
    cells = _open(points, weights, codevectors, breath, True)
    before = _assign(cells, n_cells)
    _centre(cells)
    _inhale(cells, rng.random(n_cells - np.count_nonzero(cells.masses)))
    after = _breathe(cells, rng, breath, effort if n_cells > 1 else 0)
    if after >= before:
        return codevectors.copy()
    return np.resize(cells.codevectors[cells.masses > 0.0], codevectors.shape)


def refine(
    points: FloatArray,
    weights: FloatArray,
    codevectors: FloatArray,
    rng: np.random.Generator,
    *,
    effort: int | None = None,
) -> FloatArray:
    """Lower the weighted mean squared distance of points from the nearest of K codevectors.

    The codevectors returned are never worse than those given, and no move of a single point to
    another cell improves them. With more than ``4e6 / K`` points (and more than 10 K), a random
    sample of the points is refined, and Lloyd's iteration over all points follows.

    Parameters
    ----------
    points, weights : ndarray, shapes (n, d), (n,)
        Distinct: a point that occurs w times is one point of weight w ≥ 0. NaN: a value is missing.
    codevectors : ndarray, shape (K, d)
        Where to start; K at least 1.
    rng : numpy.random.Generator
        Draws the order of the points or the sample, and the places of new codevectors.
    effort : int, optional
        How many times to breathe. Each time takes about as long as 5 to 10 of Lloyd's iterations
        and gains less than the one before. By default not at all with fewer than 10 points a
        codevector, once from 10 on, twice from 60 and five times from 150 on.

    Returns
    -------
    ndarray, shape (K, d)
        Each is the nearest to some point, and they are all the points, some repeated, if there are
        not more than K.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [10.0], [11.0], [20.0], [21.0]])
    >>> start = np.array([[0.0], [1.0], [15.0]])
    >>> rng = np.random.default_rng(0)
    >>> np.sort(refine(points, np.ones(6), start, rng, effort=3), axis=0)
    array([[ 0.5],
           [10.5],
           [20.5]])
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
    if effort is None:
        effort = sum(n >= least * n_cells for least in _BREATHS)
    size = max(_SAMPLE // n_cells, 10 * n_cells)
    sample = rng.permutation(n)[:size]  # all, if there is room: sorted points end up worse
    refined = _refine_all(points[sample], weights[sample], codevectors, rng, effort)
    if n <= size:
        return refined
    cells = _open(points, weights, codevectors, 0, False)
    before, after = _assign(cells, n_cells), math.inf
    cells.codevectors[:] = refined
    for _ in range(FINISH[0]):  # of Lloyd's iteration
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
