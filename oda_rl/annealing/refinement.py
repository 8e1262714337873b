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
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import compiled, inlined, integer, spliced
from oda_rl._types import Array, ByteArray, Float32Array, FloatArray, IntArray
from oda_rl.annealing.codebook import measure, smallest_of
from oda_rl.diagram import squared_distance

_BREATH = 20  # one codevector in so many is added and taken away at a time
_BREATHS = 10, 60  # points a codevector from which on there is one breath, and there are two
_PASSES = 5  # over all points at most, until the last exchange
_LIMIT = 1000  # passes: never met, but rounding is not to be trusted with a loop
_SAMPLE = 4_000_000  # bounds (points times codevectors) that are kept; 16 MB
_CHUNK = 1024  # points that stay in the processor's cache
FINISH = 20, 1e-4  # of Lloyd's iteration over all points, after refining on a sample

_LOWER = 1.0 - 2e-7  # a bound in single precision stays a lower bound
_GAIN = 1.0 - 1e-12  # an exchange has to be an improvement in spite of rounding
_REST = 1e-9  # what is left of a cell's mass after its last point has been taken out


class _Cells(NamedTuple):
    """Points and the cells they are in; n points of dimension d, m cells. A mass of 0: no cell."""

    points: Array  # (n, d), in the precision that they came in
    weights: FloatArray  # (n,), positive
    labels: IntArray  # (n,), cell of each point
    errors: FloatArray  # (n,), squared distance from its codevector, unless its cell is restless
    bounds: Float32Array  # (n, m), minus drift: at most the distance
    codevectors: FloatArray  # (m, d)
    masses: FloatArray  # (m,)
    drift: FloatArray  # (m,), way that each codevector has gone
    restless: ByteArray  # (m,), 2: changed in the latest pass, 1: in the one before


@compiled
def _label(
    points: FloatArray,
    columns: FloatArray,
    labels: IntArray,
    errors: FloatArray,
    bounds: Float32Array,
    squared: FloatArray,
) -> None:
    """Label all points with the nearest of K codevectors; set errors, and bounds if there is room.

    ``columns``, shape (d, K): the codevectors. ``squared``, shape (K,), is scratch.
    """
    d, n_cells = columns.shape
    for i in range(points.shape[0]):
        least = measure(points, i, d, columns, np.uint64(0), np.uint64(n_cells), squared)
        errors[i] = least
        nearest = 0
        while squared[nearest] > least:
            nearest += 1
        labels[i] = nearest
        if bounds.shape[0] > 0:
            for k in range(n_cells):
                bounds[i, k] = np.float32(math.sqrt(squared[k]) * _LOWER)


def _assign(cells: _Cells, n_cells: int) -> float:
    """Label all points with the nearest of the first ``n_cells``; set errors, and bounds if kept.

    Returns the weighted sum of the squared distances.
    """
    columns = np.ascontiguousarray(cells.codevectors[:n_cells].T)
    scratch = np.empty(n_cells)
    _label(cells.points, columns, cells.labels, cells.errors, cells.bounds, scratch)
    return float(cells.weights @ cells.errors)


def _centre(cells: _Cells) -> None:
    """Move the codevectors to the means of their cells and recount the masses.

    A codevector without points stays where it is.
    """
    steps = np.zeros_like(cells.codevectors)  # differences: accurate far from the origin, too
    d = steps.shape[1]
    for begin in range(0, len(cells.points), _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        labels = cells.labels[rows]
        gaps = cells.weights[rows, None] * (cells.points[rows] - cells.codevectors[labels])
        places = labels[:, None] * d + np.arange(d)
        np.add.at(steps.reshape(-1), places.reshape(-1), gaps.reshape(-1))  # in their order
    cells.masses[:] = np.bincount(cells.labels, cells.weights, len(steps))
    used = cells.masses > 0.0
    steps[used] /= cells.masses[used, None]
    cells.codevectors[:] += steps
    cells.drift[:] += np.sqrt((steps * steps).sum(axis=1))
    cells.restless[used] = 2


@spliced
def _move(cells: _Cells, i: int, goal: int) -> None:
    """Take point i out of its cell, unless that has no mass, and put it into another."""
    weight = -cells.weights[i]
    for k in (cells.labels[i], goal):
        if cells.masses[k] > 0.0:
            cells.masses[k] += weight
            share = weight / cells.masses[k]
            way = 0.0
            for j in range(cells.points.shape[1]):
                step = share * (cells.points[i, j] - cells.codevectors[k, j])
                cells.codevectors[k, j] += step
                way += step * step
            cells.drift[k] += math.sqrt(way)
            cells.restless[k] = 2
        weight = cells.weights[i]
    cells.labels[i] = goal


@inlined
def _arrival(cells: _Cells, i: int, k: int, most: float) -> float:
    """Rise of the error, over w, if point i joined cell k; inf if it is known to be ``most``."""
    mass = cells.masses[k]
    joint = mass + cells.weights[i]
    bound = np.float64(cells.bounds[i, k]) - cells.drift[k]
    bound = bound if bound > 0.0 else 0.0
    if bound * bound * mass >= most * joint:
        return np.inf
    squared = squared_distance(cells.points, i, cells.codevectors, k)
    cells.bounds[i, k] = np.float32((math.sqrt(squared) + cells.drift[k]) * _LOWER)
    rise: float = mass / joint * squared
    return rise


@spliced
def _near(
    cells: _Cells, i: int, least: float, n_never: int, slack: FloatArray, found: IntArray
) -> int:
    """Write to ``found`` the cells that point i may join for a rise below ``least``.

    Returns how many they are, none if it is only its own. ``n_never`` cells have no mass.
    """
    n_near = n_found = integer(0)
    for k in range(cells.masses.shape[0]):
        bound = np.float64(cells.bounds[i, k]) - cells.drift[k]
        bound = bound if bound > 0.0 else 0.0
        slack[k] = (bound * bound - least) * cells.masses[k] - least * cells.weights[i]
        n_near += slack[k] < 0.0
    if n_near > n_never + (cells.masses[cells.labels[i]] > 0.0):
        for k in range(cells.masses.shape[0]):
            found[n_found] = k
            n_found += slack[k] < 0.0
    return n_found


@compiled
def _sweep(
    cells: _Cells,
    members: IntArray,
    passes: int,
    leaving: bool,
    rises: FloatArray,
    slack: FloatArray,
    found: IntArray,
) -> float:
    """Go ``passes`` times over the points ``members``; return their weighted squared distances.

    Each moves to the cell where that lowers the error most, if any does, and the passes end when
    nothing moves. With ``leaving``, instead, ``rises`` gets the rise of the error over w if a point
    joined the best of the other cells, and those whose cell has lost its mass move there.

    ``slack``, shape (m,), and ``found``, shape (2 m,), are scratch: the loops that look for cells
    near a point have no branches. ``found[m:]`` are the restless cells.
    """
    m = cells.masses.shape[0]
    for _ in range(passes):
        n_restless = n_never = integer(0)
        for k in range(m):
            n_never += cells.masses[k] == 0.0
            if not leaving:
                cells.restless[k] >>= 1
            found[m + n_restless] = k
            n_restless += cells.restless[k] > 0
        if n_restless == 0 and not leaving:
            break
        for t in range(members.shape[0]):
            i = members[t]
            home, goal, weight = cells.labels[i], cells.labels[i], cells.weights[i]
            look = leaving or cells.restless[home] > 0
            if leaving:
                for k in range(m):
                    bound = np.float64(cells.bounds[i, k]) - cells.drift[k]
                    slack[k] = bound if cells.masses[k] > 0.0 else np.inf
                slack[home] = np.inf
                closest = smallest_of(slack, np.uint64(0), np.uint64(m))
                goal = integer(0)
                while slack[goal] > closest:
                    goal += 1
                least = _arrival(cells, i, goal, np.inf)
            else:
                if look:
                    cells.errors[i] = squared_distance(cells.points, i, cells.codevectors, home)
                rest = cells.masses[home] - weight
                if rest <= _REST * cells.masses[home]:
                    continue
                least = cells.masses[home] / rest * cells.errors[i] * _GAIN
            first, last = m, m + n_restless
            if look:
                first, last = 0, _near(cells, i, least, n_never, slack, found)
            for u in range(first, last):
                k = found[u]
                if k != home and cells.masses[k] > 0.0:
                    rise = _arrival(cells, i, k, least)
                    if rise < least:
                        least, goal = rise, k
            if leaving:
                rises[i] = least
            if goal != home and not (leaving and cells.masses[home] > 0.0):
                _move(cells, i, goal)
    total = 0.0
    for t in range(members.shape[0]):
        i = members[t]
        k = cells.labels[i]
        if cells.restless[k] > 0:
            cells.errors[i] = squared_distance(cells.points, i, cells.codevectors, k)
        total += cells.weights[i] * cells.errors[i]
    return total


def _exchange(cells: _Cells, passes: int) -> float:
    """Move single points as long as that lowers the error, at most ``passes`` times over all.

    Brings all errors up to date and returns their weighted sum.
    """
    n, m = len(cells.points), len(cells.masses)
    scratch = np.empty(m), np.empty(2 * m, np.int64)
    return _sweep(cells, np.arange(n), passes, False, np.empty(0), *scratch)


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
        home, weight = cells.labels[seed], cells.weights[seed]
        if cells.masses[home] - weight <= _REST * cells.masses[home]:
            return added
        new = int(np.flatnonzero(cells.masses == 0.0)[-1])
        cells.codevectors[new] = cells.points[seed]
        cells.bounds[:, new] = 0.0
        cells.masses[home] -= weight
        steps = -weight / cells.masses[home] * (cells.points[seed] - cells.codevectors[home])
        cells.codevectors[home] += steps
        cells.drift[home] += math.sqrt(np.cumsum(steps * steps)[-1])
        cells.labels[seed], cells.masses[new] = new, weight
        cells.restless[home] = cells.restless[new] = 2
    return len(uniforms)


def _exhale(cells: _Cells, count: int) -> None:
    """Take away ``count`` cells that others replace at least cost, if possible not neighbours.

    All errors must be up to date.
    """
    n, m = len(cells.points), len(cells.masses)
    rises, scratch = np.empty(n), (np.empty(m), np.empty(2 * m, np.int64))
    _sweep(cells, np.arange(n), 1, True, rises, *scratch)
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
        _sweep(cells, members, 1, True, rises, *scratch)
        spared[cells.labels[members]] = np.inf


def _open(points: FloatArray, weights: FloatArray, codevectors: FloatArray, spare: int) -> _Cells:
    """Cells with room for ``spare`` more codevectors, and with none for bounds."""
    m = len(codevectors) + spare
    n, d = points.shape
    return _Cells(
        points=np.ascontiguousarray(points),
        weights=np.ascontiguousarray(weights, dtype=np.float64),
        labels=np.zeros(n, np.int64),
        errors=np.zeros(n),
        bounds=np.zeros((0, m), np.float32),
        codevectors=np.concatenate([codevectors, np.zeros((spare, d))]),
        masses=np.zeros(m),
        drift=np.zeros(m),
        restless=np.zeros(m, np.uint8),
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
    cells = _open(points, weights, codevectors, breath)
    cells = cells._replace(bounds=np.zeros((len(points), n_cells + breath), np.float32))
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
    points : ndarray, shape (n, d)
        Finite and distinct: a point that occurs w times is one point of weight w.
    weights : ndarray, shape (n,)
        In [0, inf). Only their ratios matter.
    codevectors : ndarray, shape (K, d)
        Where to start; K at least 1.
    rng : numpy.random.Generator
        Draws the order of the points or the sample, and the places of new codevectors.
    effort : int, optional
        How many times to breathe, at least 0. Each time takes about as long as 5 to 10 of Lloyd's
        iterations and gains less than the one before. By default that is not at all with fewer than
        10 points a codevector, twice with 60 and more, and once in between.

    Returns
    -------
    ndarray, shape (K, d)
        Row k has nothing to do with row k of ``codevectors``. Each is the nearest to some point,
        and they are all the points, some repeated, if there are not more than K.

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
    n, n_cells = len(points), len(codevectors)
    if n <= n_cells:
        alone = np.resize(points, codevectors.shape) if n else codevectors
        return alone.astype(np.float64)
    # Bounds in single precision must not overflow. A power of 2 changes no bit but the exponent.
    power = int(np.frexp(np.abs(points).max())[1])
    points, codevectors = np.ldexp(points, -power), np.ldexp(codevectors, -power)
    return np.asarray(np.ldexp(_refine(points, weights, codevectors, rng, effort), power))


def _refine(
    points: FloatArray,
    weights: FloatArray,
    codevectors: FloatArray,
    rng: np.random.Generator,
    effort: int | None,
) -> FloatArray:
    """Refine on all points, or on a sample and then on all."""
    n, n_cells = len(points), len(codevectors)
    if effort is None:
        effort = sum(n >= least * n_cells for least in _BREATHS)
    size = max(_SAMPLE // n_cells, 10 * n_cells)
    sample = rng.permutation(n)[:size]  # all, if there is room: sorted points end up worse
    refined = _refine_all(points[sample], weights[sample], codevectors, rng, effort)
    if n <= size:
        return refined
    refined = lloyd(points, weights, refined, *FINISH)
    if _error(points, weights, refined) < _error(points, weights, codevectors):
        return refined
    return codevectors.copy()


def _error(points: FloatArray, weights: FloatArray, codevectors: FloatArray) -> float:
    """Weighted sum of the squared distances from the nearest codevectors."""
    return _assign(_open(points, weights, codevectors, 0), len(codevectors))


def lloyd(
    points: FloatArray, weights: FloatArray, codevectors: FloatArray, max_iter: int, tol: float
) -> FloatArray:
    """Move codevectors to the means of the points nearest to them, again and again.

    A codevector without points goes to the point with the largest weighted squared distance.
    (Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28, 1982.)

    Parameters
    ----------
    points : ndarray, shape (n, d)
        Finite.
    weights : ndarray, shape (n,)
        In [0, inf).
    codevectors : ndarray, shape (K, d)
        Where to start.
    max_iter : int
        At least 0.
    tol : float
        Stop when the error falls by less than this share of it, in [0, 1).

    Returns
    -------
    ndarray, shape (K, d)

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> lloyd(points, np.ones(4), np.array([[0.0], [1.0]]), 10, 0.0)
    array([[ 0.5],
           [10.5]])
    """
    cells = _open(points, weights, codevectors, 0)
    error = math.inf
    for _ in range(max_iter):
        after = _assign(cells, len(codevectors))
        if after >= error * (1.0 - tol):
            break
        error = after
        _centre(cells)
        empty = np.flatnonzero(cells.masses == 0.0)
        farthest = np.argsort(-cells.weights * cells.errors, kind="stable")[: len(empty)]
        cells.codevectors[empty[: len(farthest)]] = cells.points[farthest]
    return cells.codevectors
