"""Cells placed among points that are all there: annealing from one on, and one level further."""

import math
from typing import NamedTuple

import numpy as np

from oda_rl import metric
from oda_rl._compile import compiled, integer, larger, smaller
from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing import cells as annealing
from oda_rl.annealing.cells import SMALLEST_MASS

_COOLING = 0.4
_LEAST_TEMPERATURE = 1e-5
_SAMPLES_PER_CELL, _SAMPLES_PER_LEVEL = 20, 400
_SHIFT = 0.05  # of the standard deviation
_SHIFT_FURTHER = 0.2  # of that in a cell
_LEAST_MASS = 1e-4
_MERGE_BELOW = 1e-3  # of the temperature
_FAR = 45.0  # temperatures, beyond which a point attracts nothing


class Columns(NamedTuple):
    """A codebook of K codevectors under the squared Euclidean distance, by components."""

    masses: FloatArray
    """Shape (K,)."""
    means: FloatArray
    """Shape (d, K)."""
    diagram: FloatArray
    """Shape (1 + d, K)."""
    scores: FloatArray
    """Scratch, shape (K,), as are the next."""
    weights: FloatArray
    near: IntArray

    @classmethod
    def of(cls, cells: FloatArray) -> "Columns":
        """Return those of masses and codevectors, shape (K, 1 + d)."""
        # As quadratic_diagram has it for a metric that is a unit matrix, without the products.
        means, diagram = cells[:, 1:], np.empty(cells.shape)
        diagram[:, 1:] = -2.0 * means
        diagram[:, 0] = -0.5 * (diagram[:, 1:] * means).sum(axis=1)
        masses, n = cells[:, 0].copy(), len(cells)
        columns = means.T.copy(order="C"), diagram.T.copy(order="C")
        return cls(masses, *columns, np.empty(n), np.empty(n), np.empty(n, dtype=np.int64))


@compiled
def settle(columns: Columns, points: FloatArray, order: IntArray, temperature: float) -> None:
    """Let the points, shape (n, d), attract the codevectors in an order, shape (m,).

    The same as :func:`oda_rl.annealing.cells.observe` for one after the other, with arrays along
    the codevectors: loops over those are vector instructions then. And codevectors whose weight is
    below e^-45 of the nearest one's, which rounding would lose, stay where they are.
    Step sizes fall as 1/(t + 2) to 2/m, and stay there: the first half is forgotten.
    """
    masses, means, diagram, scores, weights, near = columns
    m, (d, n_cells) = order.shape[0], means.shape
    for t in range(m):
        step_size = 1.0 / (t + 2.0) if 2 * t + 4 < m else 2.0 / m
        row = order[t]
        for k in range(n_cells):
            scores[k] = diagram[0, k]
        for j in range(d):
            for k in range(n_cells):
                scores[k] += diagram[1 + j, k] * points[row, j]
        smallest = np.inf
        for k in range(n_cells):
            smallest = smaller(smallest, scores[k])
        farthest = smallest + _FAR * temperature
        n_near, total = integer(0), 0.0
        for k in range(n_cells):
            if scores[k] <= farthest:
                mass = larger(masses[k], SMALLEST_MASS)
                weight = mass * math.exp((smallest - scores[k]) / temperature)
                near[n_near], weights[n_near] = k, weight
                total += weight
                n_near += 1
        for k in range(n_cells):  # not once more after the sample, for the least of masses
            masses[k] = larger(masses[k], SMALLEST_MASS) * (1.0 - step_size)
        for i in range(n_near):
            k = near[i]
            share = step_size * (weights[i] / total)
            mass = larger(masses[k] + share, SMALLEST_MASS)
            masses[k] = mass
            weight, offset = share / mass, 0.0
            for j in range(d):
                x, mean, slope = points[row, j], means[j, k], diagram[1 + j, k]
                mean += weight * (x - mean)
                slope += weight * (-2.0 * x - slope)
                means[j, k] = mean
                diagram[1 + j, k] = slope
                offset += slope * mean
            diagram[0, k] = -0.5 * offset
    for k in range(n_cells):
        masses[k] = larger(masses[k], SMALLEST_MASS)


def anneal(points: FloatArray, most_cells: int, rng: np.random.Generator) -> FloatArray:
    """Place at most so many codevectors among points, shape (n, d), from one on.

    The temperature falls until there are as many, or it is negligible beside the variance; of too
    many the lightest are dropped.
    """
    d = points.shape[1]
    mean, covariance = metric.covariance(points)
    variance = float(covariance.trace())
    temperature, coldest = 2.0 * variance, 2.0 * variance * _LEAST_TEMPERATURE
    cells = np.zeros((2 * most_cells, 1 + d))
    cells[0, 0], cells[0, 1:] = 1.0, mean
    n_cells = 1
    while n_cells < most_cells and temperature > coldest:
        shift = _SHIFT * math.sqrt(min(variance, 0.5 * temperature) / d)
        n_cells = _level(cells, n_cells, points, shift, temperature, rng)
        temperature *= _COOLING
    heaviest = np.argsort(-cells[:n_cells, 0], kind="stable")[:most_cells]
    return cells[np.sort(heaviest), 1:]


def anneal_further(
    codevectors: FloatArray, points: FloatArray, width: float, rng: np.random.Generator
) -> FloatArray:
    """Let codevectors, shape (K, d), split once more; those that stay apart, at most (2 K, d).

    ``width`` is the mean squared distance of points, shape (n, d), from the nearest of them.
    """
    n_cells, d = codevectors.shape
    cells = np.zeros((2 * n_cells, 1 + d))
    cells[:n_cells, 0], cells[:n_cells, 1:] = 1.0 / n_cells, codevectors
    spread = math.sqrt(width / d)
    temperature = _COOLING * 2.0 * spread**2
    n_cells = _level(cells, n_cells, points, _SHIFT_FURTHER * spread, temperature, rng)
    return cells[:n_cells, 1:].copy()


def _level(
    cells: FloatArray,
    n_cells: int,
    points: FloatArray,
    shift: float,
    temperature: float,
    rng: np.random.Generator,
) -> int:
    """Split all cells, settle at a temperature, and return how many cells are left.

    ``cells``, masses and codevectors, have room for twice as many.
    """
    n, d = points.shape
    annealing.split(cells, n_cells, rng.normal(scale=shift, size=(n_cells, d)))
    n_cells *= 2
    columns = Columns.of(cells[:n_cells])
    order = rng.integers(n, size=max(_SAMPLES_PER_LEVEL, _SAMPLES_PER_CELL * n_cells))
    settle(columns, points, order, temperature)
    cells[:n_cells, 0], cells[:n_cells, 1:] = columns.masses, columns.means.T
    below = _MERGE_BELOW * temperature
    return len(annealing.thin_out(cells, None, n_cells, _LEAST_MASS, below)[1])
