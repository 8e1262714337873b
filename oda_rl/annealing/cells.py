"""Cells of online deterministic annealing: how they learn, split and merge.

The state of a codebook is :class:`Codevectors`, whose masses sum to 1, and the number ``n_cells``
of its rows in use.

At a fixed temperature T, :func:`observe` is called with samples until the codebook has settled.
Then :func:`prune_and_merge` drops and merges cells, the caller cools, and :func:`split` doubles
the codebook: a pair stays apart only if T has fallen below the critical temperature of its cell,
2 λ_max of the cell's covariance (Rose 1998), and merges again otherwise.

This is algorithm 1 of :class:`oda_rl.ODAClusterer`'s paper. Two loops do it: :func:`anneal`, for
the agents; :mod:`oda_rl.annealing.annealer`, with classes, blocks and a history.

References
----------
J. H. Ward, "Hierarchical grouping to optimize an objective function", Journal of the American
Statistical Association 58, 1963.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl import metric as metrics
from oda_rl._compile import compiled, integer, spliced
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.annealing.kernels import coincide
from oda_rl.diagram import squared_distance
from oda_rl.divergences import TINY, SquaredEuclidean, quadratic_diagram

SMALLEST_MASS = 1e-12  # keeps a cell that nothing reaches from dividing by zero

# Settings of anneal().
_COOLING = 0.4  # factor from one level to the next
_MIN_TEMPERATURE = 1e-5  # relative to the first
_SAMPLES_PER_CELL, _SAMPLES_PER_LEVEL = 20, 400  # of a level: the larger number
_SHIFT = 0.05  # standard deviations
_SHIFT_FURTHER = 0.2  # standard deviations in a cell
_MIN_MASS = 1e-4  # share of the samples, below which a cell is dropped
_MERGE_BELOW = 1e-3  # temperatures
_FAR = 45.0  # temperatures: exp(-45) is lost to rounding


class Codevectors(NamedTuple):
    """Codevectors that learn, and their diagram, in columns: loops over cells are vectorised."""

    diagram: FloatArray  # columns [|μ|², -2 μ], shape (1 + d, K); see ``oda_rl.diagram``
    cells: FloatArray  # shape (1 + d, K): column k holds the mass p_k and the codevector μ_k
    weights: FloatArray  # scratch, shape (K,)
    near: IntArray  # scratch, shape (K,)


@spliced
def observe(
    codevectors: Codevectors, point: FloatArray, temperature: float, step_size: float
) -> None:
    """Move the codevectors towards one sample, each by its Gibbs share.

    With r_k ∝ p_k exp(−|x − μ_k|²/T) from the old state (Jacobi order) and step size α:
    p_k ← p_k + α (r_k − p_k), then μ_k ← μ_k + (α r_k / p_k)(x − μ_k); exp(-45) counts as 0.
    """
    diagram, cells, weights, near = codevectors
    d, n_cells = point.shape[0], weights.shape[0]
    for k in range(n_cells):
        weights[k] = diagram[0, k]
    for j in range(d):
        x = point[j]
        for k in range(n_cells):
            weights[k] += diagram[1 + j, k] * x
    smallest = np.inf
    for k in range(n_cells):
        smallest = min(smallest, weights[k])
    farthest, total, n_near = smallest + _FAR * temperature, 0.0, integer(0)
    for k in range(n_cells):
        if weights[k] <= farthest:
            weight = cells[0, k] * math.exp((smallest - weights[k]) / temperature)
            near[n_near], weights[n_near] = k, weight
            total += weight
            n_near += 1
    for k in range(n_cells):
        cells[0, k] = max(cells[0, k] * (1.0 - step_size), SMALLEST_MASS)
    for i in range(n_near):
        k, share = near[i], step_size * (weights[i] / total)
        mass = cells[0, k] + share
        cells[0, k] = mass
        step, offset = share / mass, 0.0
        for j in range(d):  # the diagram is linear in μ but for its offset
            mean, slope = cells[1 + j, k], diagram[1 + j, k]
            mean += step * (point[j] - mean)
            slope += step * (-2.0 * point[j] - slope)
            cells[1 + j, k], diagram[1 + j, k] = mean, slope
            offset += slope * mean
        diagram[0, k] = -0.5 * offset


def prune_and_merge(
    cells: FloatArray, n_cells: int, min_mass: float, merge_below: float
) -> IntArray:
    """Drop cells lighter than ``min_mass``, merge pairs of squared distances < ``merge_below``.

    The heaviest cell always remains. The caller updates the diagram. Returns the new cell of each
    old one, shape (n_cells,); -1 if it was dropped.
    """
    masses, means = cells[:n_cells, 0], cells[:n_cells, 1:]
    alive = masses >= min_mass
    alive[masses.argmax()] = True
    table, groups = np.ascontiguousarray(means), np.zeros(n_cells, dtype=np.int64)
    into = coincide(SquaredEuclidean(), means.shape[1], table, groups, alive, merge_below)
    firsts = np.flatnonzero(np.diff(np.maximum.accumulate(into), prepend=-1))
    for k in np.setdiff1d(np.flatnonzero(into >= 0), firsts).tolist():
        first = firsts[into[k]]
        mass = masses[first] + masses[k]
        means[first] += masses[k] / mass * (means[k] - means[first])
        masses[first] = mass
    cells[: len(firsts)] = cells[firsts]
    masses[: len(firsts)] /= masses[: len(firsts)].sum()
    return into


def split(cells: FloatArray, n_cells: int, shifts: FloatArray) -> None:
    """Split every cell k into μ_k ± ``shifts[k]``, each with half the mass; append the latter."""
    cells[:n_cells, 0] *= 0.5
    cells[n_cells : 2 * n_cells] = cells[:n_cells]
    cells[:n_cells, 1:] += shifts
    cells[n_cells : 2 * n_cells, 1:] -= shifts


@compiled
def _merge_cheapest(
    codevectors: FloatArray, masses: FloatArray, groups: IntArray, n_merges: int, owners: IntArray,
    lowest: FloatArray, partners: IntArray, exact: BoolArray,
) -> None:  # fmt: skip
    """Merge the cheapest pair of a group ``n_merges`` times; changes all arrays but ``groups``.

    Cell i becomes part of ``owners[i]``. The last three arrays begin with zeros. The cost, a rise
    of the error, of merging with a merged pair is not less than the smaller one before (Lance and
    Williams, "A general theory of classificatory sorting strategies", Computer Journal 9, 1967). So
    the lowest cost of a cell is a lower bound later, and is found again where it is the smallest.
    """
    m, d = codevectors.shape
    remaining = n_merges
    while remaining > 0:
        i = integer(0)
        for k in range(1, m):
            if lowest[k] < lowest[i]:
                i = k
        if not exact[i]:
            lowest[i], exact[i] = np.inf, True
            for k in range(m):
                if k != i and groups[k] == groups[i] and masses[k] > 0.0:
                    squared = squared_distance(codevectors, i, codevectors, k, d)
                    cost = squared / (1.0 / masses[i] + 1.0 / masses[k])
                    if cost < lowest[i]:
                        partners[i], lowest[i] = k, cost
            continue
        if lowest[i] == np.inf:
            return
        remaining -= 1
        j = partners[i]
        share = masses[j] / (masses[i] + masses[j])
        for q in range(d):
            codevectors[i, q] += share * (codevectors[j, q] - codevectors[i, q])
        masses[i], masses[j] = masses[i] + masses[j], 0.0
        lowest[j] = np.inf
        for k in range(m):
            owners[k] = i if owners[k] == j else owners[k]
            exact[k] &= partners[k] != i and partners[k] != j
        exact[i], exact[j] = False, True


def ward_merge(
    codevectors: FloatArray, masses: FloatArray, groups: IntArray, n_clusters: int
) -> IntArray:
    """Merge codevectors of the same group, the cheapest pair first, until ``n_clusters`` are left.

    More remain if there are more groups. Merging i and j raises the squared error by
    m_i m_j / (m_i + m_j) |μ_i − μ_j|² (Ward 1963). ``codevectors`` have shape (m, d), ``masses``
    and ``groups`` (m,). Returns the new cell of each, shape (m,), in the order of their first ones.
    """
    m, owners = len(masses), np.arange(len(masses))
    _merge_cheapest(
        np.array(codevectors, order="C"), np.maximum(masses, TINY), groups, m - n_clusters, owners,
        np.zeros(m), np.zeros(m, np.int64), np.zeros(m, np.bool_),
    )  # fmt: skip
    return np.asarray(np.unique(owners, return_inverse=True)[1])


def mixed(into: IntArray, weights: FloatArray, table: FloatArray) -> FloatArray:
    """Weighted means of the rows of a table, shape (m, d), that merge into each new one."""
    totals = np.bincount(into, weights)
    means = np.zeros((len(totals), table.shape[1]))
    np.add.at(means, into, (weights / totals[into])[:, None] * table)
    return means


@compiled
def settle(
    codevectors: Codevectors, points: FloatArray, order: IntArray, temperature: float
) -> None:
    """Call :func:`observe` for points, shape (n, d), in an order, shape (m,).

    Step sizes fall as 1/(t + 2) to 2/m, so that the first half is forgotten.
    """
    m = order.shape[0]
    for t in range(m):
        step_size = 1.0 / (t + 2.0) if 2 * t + 4 < m else 2.0 / m
        observe(codevectors, points[order[t]], temperature, step_size)


def anneal(points: FloatArray, max_cells: int, rng: np.random.Generator) -> FloatArray:
    """Anneal up to ``max_cells`` codevectors, shape (K, d), on points, shape (n, d).

    The temperature falls until there are as many, or it is negligible beside the variance. Excess
    codevectors are dropped, the lightest first.
    """
    d = points.shape[1]
    mean, covariance = metrics.covariance(points)
    variance = float(covariance.trace())
    temperature, coldest = 2.0 * variance, 2.0 * variance * _MIN_TEMPERATURE
    cells = np.zeros((2 * max_cells, 1 + d))
    cells[0, 0], cells[0, 1:] = 1.0, mean
    n_cells = 1
    while n_cells < max_cells and temperature > coldest:
        shift = _SHIFT * math.sqrt(min(variance, 0.5 * temperature) / d)
        n_cells = _level(cells, n_cells, points, shift, temperature, rng)
        temperature *= _COOLING
    heaviest = np.argsort(-cells[:n_cells, 0], kind="stable")[:max_cells]
    return cells[np.sort(heaviest), 1:]


def anneal_further(
    codevectors: FloatArray, points: FloatArray, width: float, rng: np.random.Generator
) -> FloatArray:
    """Split codevectors, shape (K, d), once more; pairs that stay apart make up to (2 K, d).

    ``width`` is the mean squared distance of points, shape (n, d), from the nearest codevector.
    """
    n_cells, d = codevectors.shape
    cells = np.zeros((2 * n_cells, 1 + d))
    cells[:n_cells, 0], cells[:n_cells, 1:] = 1.0 / n_cells, codevectors
    spread = math.sqrt(width / d)
    temperature = _COOLING * 2.0 * spread**2
    n_cells = _level(cells, n_cells, points, _SHIFT_FURTHER * spread, temperature, rng)
    return cells[:n_cells, 1:].copy()


def _level(
    cells: FloatArray, n_cells: int, points: FloatArray, shift: float, temperature: float,
    rng: np.random.Generator,
) -> int:  # fmt: skip
    """Split all cells, settle at a temperature, and return the number of cells left.

    ``cells``, masses and codevectors, have room for twice as many.
    """
    n, d = points.shape
    split(cells, n_cells, rng.normal(scale=shift, size=(n_cells, d)))
    n_cells *= 2
    columns = quadratic_diagram(np.eye(d), cells[:n_cells, 1:]).T.copy(), cells[:n_cells].T.copy()
    codevectors = Codevectors(*columns, np.empty(n_cells), np.empty(n_cells, dtype=np.int64))
    order = rng.integers(n, size=max(_SAMPLES_PER_LEVEL, _SAMPLES_PER_CELL * n_cells))
    settle(codevectors, points, order, temperature)
    cells[:n_cells] = codevectors.cells.T
    return int(prune_and_merge(cells, n_cells, _MIN_MASS, _MERGE_BELOW * temperature).max()) + 1
