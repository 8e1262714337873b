"""Codevectors at zero temperature: merged to a wanted number, then refined to a better optimum.

Annealing ends with more codevectors than wanted. :func:`ward_merge` merges the cheapest pairs
(Ward, "Hierarchical grouping to optimize an objective function", JASA 58, 1963). :func:`refine`
lowers the weighted mean squared distance of the points from them in two ways:

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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled, inlined

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_BREATH = 20  # one codevector in so many is added and taken away at a time
_PASSES = 5  # over all points at most, until the last exchange
_LIMIT = 1000  # passes: never met, but rounding is not to be trusted with a loop
_SAMPLE = 4_000_000  # bounds (points times codevectors) that are kept; 16 MB
_FINISH = 20, 1e-4  # of Lloyd's iteration over all points, after refining on a sample

_LOWER = 1.0 - 2e-7  # a bound in single precision stays a lower bound
_GAIN = 1.0 - 1e-12  # an exchange has to be an improvement in spite of rounding
_REST = 1e-9  # what is left of a cell's mass after its last point has been taken out


@inlined
def _squared_distance(points: FloatArray, i: int, codevectors: FloatArray, k: int) -> float:
    """|x_i − μ_k|², in four sums, which the processor adds to side by side."""
    d = points.shape[1]
    whole = d - d % 4
    a, b, c, e = 0.0, 0.0, 0.0, 0.0
    for j in range(0, whole, 4):
        a += (points[i, j] - codevectors[k, j]) ** 2
        b += (points[i, j + 1] - codevectors[k, j + 1]) ** 2
        c += (points[i, j + 2] - codevectors[k, j + 2]) ** 2
        e += (points[i, j + 3] - codevectors[k, j + 3]) ** 2
    for j in range(whole, d):
        a += (points[i, j] - codevectors[k, j]) ** 2
    return (a + b) + (c + e)


@compiled
def _ward_costs(codevectors: FloatArray, masses: FloatArray, groups: IntArray) -> FloatArray:
    """Rise of the squared error if i and j merge, shape (m, m); inf across groups and for i = j."""
    m = masses.shape[0]
    costs = np.full((m, m), np.inf)
    for i in range(m):
        for j in range(i):
            if groups[i] == groups[j]:
                squared = _squared_distance(codevectors, i, codevectors, j)
                costs[i, j] = masses[i] * masses[j] / (masses[i] + masses[j]) * squared
                costs[j, i] = costs[i, j]
    return costs


@compiled
def _cheapest(costs: FloatArray, row: int) -> int:
    """Column of the smallest entry of a row; the first of equals."""
    best = 0
    for column in range(1, costs.shape[1]):
        if costs[row, column] < costs[row, best]:
            best = column
    return best


@compiled
def _merge(costs: FloatArray, masses: FloatArray, n_clusters: int, owners: IntArray) -> None:
    """Merge the cheapest pairs; changes all arrays. ``owners[i]``: the cell that i is part of.

    The cost of merging with a merged pair follows from the costs before it (Lance and Williams, "A
    general theory of classificatory sorting strategies", Computer Journal 9, 1967).
    """
    m = masses.shape[0]
    partner = np.empty(m, np.int64)
    for i in range(m):
        partner[i] = _cheapest(costs, i)
    for _ in range(m - n_clusters):
        i = m - 1
        for k in range(m - 2, -1, -1):
            if costs[k, partner[k]] <= costs[i, partner[i]]:
                i = k
        j = partner[i]  # > i, the first of the rows with this cost
        cost = costs[i, j]
        if cost == np.inf:
            return
        for k in range(m):
            if k != i and k != j and costs[i, k] < np.inf:
                both = (masses[i] + masses[k]) * costs[i, k] + (masses[j] + masses[k]) * costs[j, k]
                total = masses[i] + masses[j] + masses[k]
                costs[i, k] = max(both - masses[k] * cost, 0.0) / total
                costs[k, i] = costs[i, k]
            costs[j, k] = np.inf
            costs[k, j] = np.inf
            if owners[k] == j:
                owners[k] = i
        masses[i] += masses[j]
        partner[i] = _cheapest(costs, i)
        for k in range(m):
            if partner[k] == i or partner[k] == j or costs[k, i] < costs[k, partner[k]]:
                partner[k] = _cheapest(costs, k)


def ward_merge(
    codevectors: FloatArray, masses: FloatArray, groups: IntArray, n_clusters: int
) -> FloatArray:
    """Merge codevectors of the same group, the cheapest pair first, until ``n_clusters`` are left.

    Merging i and j raises the squared error by m_i m_j / (m_i + m_j) |μ_i − μ_j|² (Ward 1963).

    Parameters
    ----------
    codevectors : ndarray, shape (m, d)
        Finite.
    masses : ndarray, shape (m,)
        Of their cells, in (0, inf).
    groups : ndarray of int64, shape (m,)
        Only codevectors of the same group merge.
    n_clusters : int
        At least 1. More remain if there are more groups.

    Returns
    -------
    lineage : ndarray, shape (max(n_clusters, number of groups), m), or (m, m) if m is less
        Row k holds the masses of the cells that make up the new cell k, and 0 elsewhere: the new
        codevectors are ``lineage @ codevectors / lineage.sum(axis=1, keepdims=True)``. New cells
        are in the order of their first old one.

    Examples
    --------
    >>> codevectors = np.array([[0.0], [5.0], [1.0]])
    >>> ward_merge(codevectors, np.array([2.0, 1.0, 3.0]), np.zeros(3, np.int64), 2)
    array([[2., 0., 3.],
           [0., 1., 0.]])
    """
    owners = np.arange(len(masses))
    costs = _ward_costs(codevectors, masses, groups)
    _merge(costs, masses.copy(), n_clusters, owners)
    return np.where(owners == np.unique(owners)[:, None], masses, 0.0)


class _Cells(NamedTuple):
    """Points and the cells they are in; n points of dimension d, m cells. A mass of 0: no cell."""

    points: FloatArray  # (n, d)
    weights: FloatArray  # (n,), positive
    labels: IntArray  # (n,), cell of each point
    errors: FloatArray  # (n,), squared distance from its codevector, unless its cell is restless
    bounds: npt.NDArray[np.float32]  # (n, m), minus drift: at most the distance
    codevectors: FloatArray  # (m, d)
    masses: FloatArray  # (m,)
    drift: FloatArray  # (m,), way that each codevector has gone
    restless: npt.NDArray[np.bool_]  # (m,), changed since all points were last held against it


@compiled
def _assign(cells: _Cells, transposed: FloatArray) -> float:
    """Label all points with the nearest of K codevectors; set errors, and bounds if there is room.

    ``transposed``, shape (d, K): the codevectors once more, so that the inner loops run over cells.
    Returns the weighted sum of the squared distances.
    """
    n = cells.points.shape[0]
    d, n_cells = transposed.shape
    whole = d - d % 2
    keep = cells.bounds.shape[0] > 0
    squared = np.empty(n_cells)
    total: float = 0.0
    for i in range(n):
        for k in range(n_cells):
            squared[k] = 0.0
        for j in range(0, whole, 2):
            x, y = cells.points[i, j], cells.points[i, j + 1]
            for k in range(n_cells):
                squared[k] += (x - transposed[j, k]) ** 2 + (y - transposed[j + 1, k]) ** 2
        for j in range(whole, d):
            x = cells.points[i, j]
            for k in range(n_cells):
                squared[k] += (x - transposed[j, k]) ** 2
        nearest = 0
        for k in range(1, n_cells):
            if squared[k] < squared[nearest]:
                nearest = k
        cells.labels[i] = nearest
        cells.errors[i] = squared[nearest]
        total += cells.weights[i] * squared[nearest]
        if keep:
            for k in range(n_cells):
                cells.bounds[i, k] = np.float32(math.sqrt(squared[k]) * _LOWER)
    return total


@compiled
def _centre(cells: _Cells) -> None:
    """Move the codevectors to the means of their cells and recount the masses.

    A codevector without points stays where it is.
    """
    m, d = cells.codevectors.shape
    sums = np.zeros((m, d))  # of differences: accurate far from the origin, too
    for k in range(m):
        cells.masses[k] = 0.0
    for i in range(cells.points.shape[0]):
        k = cells.labels[i]
        cells.masses[k] += cells.weights[i]
        for j in range(d):
            sums[k, j] += cells.weights[i] * (cells.points[i, j] - cells.codevectors[k, j])
    for k in range(m):
        if cells.masses[k] > 0.0:
            way = 0.0
            for j in range(d):
                step = sums[k, j] / cells.masses[k]
                cells.codevectors[k, j] += step
                way += step * step
            cells.drift[k] += math.sqrt(way)
            cells.restless[k] = True


@compiled
def _shift(cells: _Cells, i: int, k: int, weight: float) -> None:
    """Put point i with ``weight`` into cell k, or take it out where that is negative."""
    mass = cells.masses[k] + weight
    share = weight / mass
    way = 0.0
    for j in range(cells.points.shape[1]):
        step = share * (cells.points[i, j] - cells.codevectors[k, j])
        cells.codevectors[k, j] += step
        way += step * step
    cells.drift[k] += math.sqrt(way)
    cells.masses[k] = mass
    cells.restless[k] = True


@inlined
def _arrival(cells: _Cells, i: int, k: int, most: float) -> float:
    """Rise of the error, over w, if point i joined cell k; inf if it is known to be ``most``."""
    mass = cells.masses[k]
    joint = mass + cells.weights[i]
    bound = max(np.float64(cells.bounds[i, k]) - cells.drift[k], 0.0)
    if bound * bound * mass >= most * joint:
        return np.inf
    squared = _squared_distance(cells.points, i, cells.codevectors, k)
    cells.bounds[i, k] = np.float32((math.sqrt(squared) + cells.drift[k]) * _LOWER)
    rise: float = mass / joint * squared
    return rise


@inlined
def _find(cells: _Cells, i: int, most: float, slack: FloatArray, found: IntArray) -> int:
    """Cells where the arrival of point i may cost less than ``most``: put in ``found``; how many.

    ``slack``, shape (m,), is scratch: the loop that fills it has no branches.
    """
    for k in range(cells.masses.shape[0]):
        bound = max(np.float64(cells.bounds[i, k]) - cells.drift[k], 0.0)
        slack[k] = (bound * bound - most) * cells.masses[k] - most * cells.weights[i]
    count = 0
    for k in range(cells.masses.shape[0]):
        if slack[k] < 0.0 and cells.masses[k] > 0.0:
            found[count] = k
            count += 1
    return count


@compiled
def _exchange(cells: _Cells, passes: int) -> None:
    """Move single points as long as that lowers the error, at most ``passes`` times over all."""
    n = cells.points.shape[0]
    m = cells.masses.shape[0]
    was_restless = np.empty(m, np.bool_)
    candidates = np.empty(2 * m, np.int64)  # [:m]: near a point, [m:]: restless
    slack = np.empty(m)
    for _ in range(passes):
        n_restless = 0
        for k in range(m):
            was_restless[k] = cells.restless[k]
            cells.restless[k] = False
            if was_restless[k]:
                candidates[m + n_restless] = k
                n_restless += 1
        if n_restless == 0:
            return
        for i in range(n):
            home = cells.labels[i]
            weight = cells.weights[i]
            changed = was_restless[home] or cells.restless[home]
            if changed:
                cells.errors[i] = _squared_distance(cells.points, i, cells.codevectors, home)
            rest = cells.masses[home] - weight
            if rest <= _REST * cells.masses[home]:
                continue
            least = cells.masses[home] / rest * cells.errors[i] * _GAIN
            first, last = m, m + n_restless
            if changed:
                first, last = 0, _find(cells, i, least, slack, candidates)
            goal = home
            for t in range(first, last):
                k = candidates[t]
                if k != home:
                    rise = _arrival(cells, i, k, least)
                    if rise < least:
                        least, goal = rise, k
            if goal != home:
                _shift(cells, i, home, -weight)
                _shift(cells, i, goal, weight)
                cells.labels[i] = goal


@compiled
def _update_errors(cells: _Cells) -> float:
    """Bring the squared distances of the points of restless cells up to date; weighted sum."""
    total = 0.0
    for i in range(cells.points.shape[0]):
        k = cells.labels[i]
        if cells.restless[k]:
            cells.errors[i] = _squared_distance(cells.points, i, cells.codevectors, k)
        total += cells.weights[i] * cells.errors[i]
    return total


@compiled
def _inhale(cells: _Cells, uniforms: FloatArray) -> int:
    """Add up to ``len(uniforms)`` cells of one point each, and return how many.

    The points are drawn in proportion to their weighted errors (as by k-means++: Arthur and
    Vassilvitskii, SODA 2007). There must be room for the cells.
    """
    n, d = cells.points.shape
    m = cells.masses.shape[0]
    gaps = np.empty(m)
    for added in range(uniforms.shape[0]):
        left = uniforms[added] * _update_errors(cells)
        seed: int = n
        for i in range(n):
            share = cells.weights[i] * cells.errors[i]
            if share > 0.0:
                seed = i
                left -= share
                if left < 0.0:
                    break
        if seed == n:
            return added
        home = cells.labels[seed]
        if cells.masses[home] - cells.weights[seed] <= _REST * cells.masses[home]:
            return added
        new = m - 1
        while cells.masses[new] > 0.0:
            new -= 1
        for j in range(d):
            cells.codevectors[new, j] = cells.points[seed, j]
        for k in range(m):
            gaps[k] = math.sqrt(_squared_distance(cells.codevectors, k, cells.points, seed))
        for i in range(n):
            bound = max(gaps[cells.labels[i]] - math.sqrt(cells.errors[i]), 0.0)
            cells.bounds[i, new] = np.float32((bound + cells.drift[new]) * _LOWER)
        _shift(cells, seed, home, -cells.weights[seed])
        _shift(cells, seed, new, cells.weights[seed])
        cells.labels[seed] = new
    return len(uniforms)


@compiled
def _refuge(cells: _Cells, i: int, slack: FloatArray, found: IntArray) -> tuple[int, float]:
    """Cell, other than its own, that point i would best join, and the rise of the error over w.

    ``slack`` and ``found``, shape (m,), are scratch.
    """
    home = cells.labels[i]
    best = home
    closest = np.inf
    for k in range(cells.masses.shape[0]):
        bound = np.float64(cells.bounds[i, k]) - cells.drift[k]
        if bound < closest and k != home and cells.masses[k] > 0.0:
            best, closest = k, bound
    least = _arrival(cells, i, best, np.inf)
    for t in range(_find(cells, i, least, slack, found)):
        k = found[t]
        if k != home:
            rise = _arrival(cells, i, k, least)
            if rise < least:
                best, least = k, rise
    return best, least


@compiled
def _exhale(cells: _Cells, count: int) -> None:
    """Take away ``count`` cells that others replace at least cost, if possible not neighbours."""
    n = cells.points.shape[0]
    m = cells.masses.shape[0]
    slack = np.empty(m)
    found = np.empty(m, np.int64)
    costs = np.zeros(m)
    spared = np.zeros(m, np.bool_)
    _update_errors(cells)
    for i in range(n):
        _, rise = _refuge(cells, i, slack, found)
        costs[cells.labels[i]] += cells.weights[i] * (rise - cells.errors[i])
    for _ in range(count):
        worst, spare = m, True
        while worst == m:
            for k in range(m):
                allowed = cells.masses[k] > 0.0 and not (spare and spared[k])
                if allowed and (worst == m or costs[k] < costs[worst]):
                    worst = k
            spare = False
        cells.masses[worst] = 0.0
        cells.restless[worst] = False
        for i in range(n):
            if cells.labels[i] == worst:
                refuge, _ = _refuge(cells, i, slack, found)
                _shift(cells, i, refuge, cells.weights[i])
                cells.labels[i] = refuge
                spared[refuge] = True


def _open(points: FloatArray, weights: FloatArray, codevectors: FloatArray, spare: int) -> _Cells:
    """Cells with room for ``spare`` more codevectors, and with none for bounds."""
    m = len(codevectors) + spare
    n, d = points.shape
    return _Cells(
        points=np.ascontiguousarray(points, dtype=np.float64),
        weights=np.ascontiguousarray(weights, dtype=np.float64),
        labels=np.zeros(n, np.int64),
        errors=np.zeros(n),
        bounds=np.zeros((0, m), np.float32),
        codevectors=np.concatenate([codevectors, np.zeros((spare, d))]),
        masses=np.zeros(m),
        drift=np.zeros(m),
        restless=np.zeros(m, np.bool_),
    )


def _position(cells: _Cells) -> tuple[npt.NDArray[Any], ...]:
    """Arrays that say where the cells are. The others only say what is known about distances."""
    return cells.codevectors, cells.masses, cells.labels, cells.errors, cells.restless


def _restore(cells: _Cells, position: tuple[npt.NDArray[Any], ...]) -> None:
    """Return to a position; for the bounds that is one more move of the codevectors."""
    cells.drift[:] += np.sqrt(((cells.codevectors - position[0]) ** 2).sum(axis=1))
    for array, former in zip(_position(cells), position, strict=True):
        array[:] = former


def _breathe(cells: _Cells, rng: np.random.Generator, breath: int, effort: int) -> float:
    """Exchange, breathe ``effort`` times, and return the weighted sum of squared distances."""
    _exchange(cells, _PASSES)
    error = _update_errors(cells)
    for _ in range(effort):
        position = tuple(array.copy() for array in _position(cells))
        added = _inhale(cells, rng.random(breath))
        _exchange(cells, _PASSES)
        _exhale(cells, added)
        _exchange(cells, _PASSES)
        after = _update_errors(cells)
        if after < error:
            error = after
        else:
            _restore(cells, position)
    _exchange(cells, _LIMIT)
    _centre(cells)  # without the rounding of all the small steps
    return _update_errors(cells)


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
    before = _assign(cells, cells.codevectors[:n_cells].T.copy())
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
    effort: int = 3,
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
    effort : int
        How many times to breathe, at least 0. Each time takes about as long as 5 to 10 of Lloyd's
        iterations and gains less than the one before.

    Returns
    -------
    ndarray, shape (K, d)
        Row k has nothing to do with row k of ``codevectors``. Each is the nearest to some point,
        and they are all the points, some repeated, if there are not more than K.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [10.0], [11.0], [20.0], [21.0]])
    >>> start = np.array([[0.0], [1.0], [15.0]])
    >>> np.sort(refine(points, np.ones(6), start, np.random.default_rng(0)), axis=0)
    array([[ 0.5],
           [10.5],
           [20.5]])
    """
    used = weights > 0.0
    if not used.all():
        points, weights = points[used], weights[used]
    n, n_cells = len(points), len(codevectors)
    if n <= n_cells:
        return np.resize(points, codevectors.shape) if n else codevectors.copy()
    # Bounds in single precision must not overflow. A power of 2 changes no bit but the exponent.
    power = int(np.frexp(np.abs(points).max())[1])
    points, codevectors = np.ldexp(points, -power), np.ldexp(codevectors, -power)
    return np.asarray(np.ldexp(_refine(points, weights, codevectors, rng, effort), power))


def _refine(
    points: FloatArray,
    weights: FloatArray,
    codevectors: FloatArray,
    rng: np.random.Generator,
    effort: int,
) -> FloatArray:
    """Refine on all points, or on a sample and then on all."""
    n, n_cells = len(points), len(codevectors)
    size = max(_SAMPLE // n_cells, 10 * n_cells)
    sample = rng.permutation(n)[:size]  # all, if there is room: sorted points end up worse
    refined = _refine_all(points[sample], weights[sample], codevectors, rng, effort)
    if n <= size:
        return refined
    refined = lloyd(points, weights, refined, *_FINISH)
    if _error(points, weights, refined) < _error(points, weights, codevectors):
        return refined
    return codevectors.copy()


def _error(points: FloatArray, weights: FloatArray, codevectors: FloatArray) -> float:
    """Weighted sum of the squared distances from the nearest codevectors."""
    return _assign(_open(points, weights, codevectors, 0), codevectors.T.copy())


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
        after = _assign(cells, cells.codevectors.T.copy())
        if after >= error * (1.0 - tol):
            break
        error = after
        _centre(cells)
        empty = np.flatnonzero(cells.masses == 0.0)
        farthest = np.argsort(-cells.weights * cells.errors, kind="stable")[: len(empty)]
        cells.codevectors[empty[: len(farthest)]] = cells.points[farthest]
    return cells.codevectors
