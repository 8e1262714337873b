"""Cells placed among points that are all there: annealing from one on, and one level further."""

import math

import numpy as np

from oda_rl import metric
from oda_rl._types import FloatArray
from oda_rl.annealing import cells as annealing
from oda_rl.annealing.settling import Columns, settle

_COOLING = 0.4
_LEAST_TEMPERATURE = 1e-5
_SAMPLES_PER_CELL, _SAMPLES_PER_LEVEL = 20, 400
_SHIFT = 0.05  # of the standard deviation
_SHIFT_FURTHER = 0.2  # of that in a cell
_LEAST_MASS = 1e-4
_MERGE_BELOW = 1e-3  # of the temperature


def anneal(points: FloatArray, most_cells: int, rng: np.random.Generator) -> FloatArray:
    """Place at most so many codevectors among points, shape (n, d), from one on.

    The temperature falls until there are as many, or it is negligible beside the variance; of too
    many the lightest are dropped.
    """
    n, d = points.shape
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
    return len(annealing.prune_and_merge(cells, np.eye(d), n_cells, _LEAST_MASS, below))
