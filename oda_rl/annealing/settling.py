"""A codebook that settles on samples at a fixed temperature, all of its codevectors side by side.

The same as :func:`oda_rl.annealing.cells.observe` for one sample after another, to the bit, with
arrays along the codevectors: loops over those are vector instructions then.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import compiled
from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.cells import SMALLEST_MASS
from oda_rl.divergences import quadratic_diagram


class Columns(NamedTuple):
    """A codebook of K codevectors under the squared Euclidean distance, by components."""

    masses: FloatArray
    """Shape (K,)."""
    means: FloatArray
    """Shape (d, K)."""
    offsets: FloatArray
    """Of the diagram, shape (K,)."""
    slopes: FloatArray
    """Shape (d, K)."""
    scratch: FloatArray
    """Shape (K,)."""

    @classmethod
    def of(cls, cells: FloatArray) -> "Columns":
        """Return those of masses and codevectors, shape (K, 1 + d)."""
        diagram = quadratic_diagram(np.eye(cells.shape[1] - 1), cells[:, 1:])
        masses, offsets = cells[:, 0].copy(), diagram[:, 0].copy()
        means, slopes = (rows[:, 1:].T.copy(order="C") for rows in (cells, diagram))
        return cls(masses, means, offsets, slopes, np.empty(len(cells)))


@compiled
def settle(columns: Columns, points: FloatArray, order: IntArray, temperature: float) -> None:
    """Let the points, shape (n, d), attract the codevectors in an order, shape (m,).

    Step sizes fall as 1/(t + 2) to 2/m, and stay there: the first half is forgotten.
    """
    masses, means, offsets, slopes, weights = columns
    m = order.shape[0]
    d, n_cells = means.shape
    for t in range(m):
        step_size = 1.0 / (t + 2.0) if 2 * t + 4 < m else 2.0 / m
        row = order[t]
        for k in range(n_cells):
            weights[k] = offsets[k]
        for j in range(d):
            x = points[row, j]
            for k in range(n_cells):
                weights[k] += slopes[j, k] * x
        smallest = np.inf
        for k in range(n_cells):
            smallest = min(smallest, weights[k])
        for k in range(n_cells):
            weights[k] = (smallest - weights[k]) / temperature
        total = 0.0
        for k in range(n_cells):
            weight = masses[k] * math.exp(weights[k])
            weights[k] = weight
            total += weight
        for k in range(n_cells):
            share = step_size * (weights[k] / total)
            mass = max(masses[k] * (1.0 - step_size) + share, SMALLEST_MASS)
            masses[k] = mass
            weights[k] = share / mass
            offsets[k] = 0.0
        for j in range(d):
            x = points[row, j]
            for k in range(n_cells):
                mean, slope = means[j, k], slopes[j, k]
                mean += weights[k] * (x - mean)
                slope += weights[k] * (-2.0 * x - slope)
                means[j, k] = mean
                slopes[j, k] = slope
                offsets[k] += slope * mean
        for k in range(n_cells):
            offsets[k] *= -0.5
