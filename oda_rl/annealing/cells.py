"""The online deterministic annealing engine: functions over arrays, no classes.

The state of a codebook are :class:`oda_rl.diagram.Codevectors`, whose masses sum to 1, and how many
of their rows count, ``n_cells``.

At a fixed temperature T, :func:`observe` is called with samples until the codebook has settled.
Then :func:`prune_and_merge` removes what the temperature does not support, the caller cools, and
:func:`split` doubles the codebook: a pair stays apart only if T has fallen below the critical
temperature of its cell, 2 λ_max of the cell's covariance (Rose 1998), and merges again otherwise.

Three loops are made of these functions: those of an agent's partition, which the environment's
steps drive; of a fit, which settles on samples of its own (:mod:`oda_rl.annealing.placing`); and
of :mod:`oda_rl.annealing.annealer`, with classes, blocks and a history. What a level takes, and
what is scaled by what, differs, so the loops are three.

References
----------
C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and clustering",
IEEE Transactions on Neural Networks and Learning Systems, 2023, algorithm 1.
K. Rose, "Deterministic annealing for clustering, compression, classification, regression, and
related optimization problems", Proceedings of the IEEE 86 (1998), 2210-2239.
"""

import math

import numpy as np

from oda_rl._compile import compiled, integer, spliced
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.diagram import Codevectors, move, scores
from oda_rl.divergences import quadratic_gradient

SMALLEST_MASS = 1e-12  # keeps a cell that nothing reaches from dividing by zero


@spliced
def observe(
    codevectors: Codevectors, n_cells: int, point: FloatArray, temperature: float, step_size: float
) -> None:
    """Let one sample attract the codevectors, each by its Gibbs share.

    With r_k ∝ p_k exp(−d(x, μ_k)/T) from the old state (Jacobi order) and step size α:
    p_k ← p_k + α (r_k − p_k), then μ_k ← μ_k + (α r_k / p_k)(x − μ_k).
    """
    cells, weights = codevectors.cells, codevectors.weights
    quadratic_gradient(codevectors.metric, point, codevectors.gradient)
    smallest = scores(codevectors.diagram, n_cells, point, weights)
    total = 0.0
    for k in range(n_cells):
        weight = cells[k, 0] * math.exp((smallest - weights[k]) / temperature)
        weights[k] = weight
        total += weight
    for k in range(n_cells):
        share = step_size * (weights[k] / total)
        mass = cells[k, 0] * (1.0 - step_size) + share
        if mass < SMALLEST_MASS:
            mass = SMALLEST_MASS
        cells[k, 0] = mass
        move(codevectors, k, point, share / mass)


def prune_and_merge(
    cells: FloatArray,
    metric: FloatArray | None,
    n_cells: int,
    min_mass: float,
    merge_below: float,
) -> FloatArray:
    """Drop cells lighter than ``min_mass``, merge pairs closer than ``merge_below``.

    Squared distances are those of the ``metric``, shape (d, d), or Euclidean without one. The
    heaviest cell always remains. The diagram has to be filled anew by the caller.

    Returns
    -------
    lineage : ndarray, shape (new cells, n_cells)
        Row k says by which masses the new cell k consists of the old ones.
    """
    before = cells[:n_cells, 0].copy()
    owners, kept = thin_out(cells, metric, n_cells, min_mass, merge_below)
    return np.where(owners == kept[:, None], before, 0.0)


def thin_out(
    cells: FloatArray,
    metric: FloatArray | None,
    n_cells: int,
    min_mass: float,
    merge_below: float,
) -> tuple[IntArray, IntArray]:
    """Do what :func:`prune_and_merge` does, without its lineage.

    Returns of which cell each is part now, shape (n_cells,), and which ones are left.
    """
    owners, living = np.empty(n_cells, dtype=np.int64), np.empty(n_cells, dtype=np.bool_)
    close = np.empty((n_cells, n_cells), dtype=np.bool_)
    _prune_and_merge(cells, metric, min_mass, merge_below, close, living, owners)
    return owners, _gather(cells, living)


def merge(cells: FloatArray, n_cells: int, alive: BoolArray, close: BoolArray) -> FloatArray:
    """Drop the cells that are not ``alive``, shape (n_cells,), and merge pairs that are ``close``.

    Of ``close``, shape (n_cells, n_cells), what is above the diagonal counts. Masses are made to
    sum to 1. Returns the lineage, as :func:`prune_and_merge` does.
    """
    before, owners, living = cells[:n_cells, 0].copy(), np.arange(n_cells), alive.copy()
    _merge(cells, close, living, owners)
    kept = _gather(cells, living)
    return np.where(owners == kept[:, None], before, 0.0)


def _gather(cells: FloatArray, living: BoolArray) -> IntArray:
    """Let cells that live take the first rows, with masses that sum to 1; return which they are."""
    kept = living.nonzero()[0]
    merged = cells[kept]
    merged[:, 0] /= merged[:, 0].sum()
    cells[: len(kept)] = merged
    return kept


@compiled
def _prune_and_merge(
    cells: FloatArray,
    metric: FloatArray | None,
    min_mass: float,
    below: float,
    close: BoolArray,
    living: BoolArray,
    owners: IntArray,
) -> None:
    """Say which cells live, shape (n,), and which ones the others have become part of."""
    n, width, heaviest = living.shape[0], cells.shape[1], integer(0)
    for first in range(n):
        owners[first], living[first] = first, cells[first, 0] >= min_mass
        if cells[first, 0] > cells[heaviest, 0]:
            heaviest = first
        for second in range(first + 1, n):
            distance = 0.0
            if metric is None:
                for i in range(1, width):
                    gap = cells[first, i] - cells[second, i]
                    distance += gap * gap
                    if distance >= below:
                        break
            else:
                for i in range(1, width):
                    slope = 0.0
                    for j in range(1, width):
                        slope += (cells[first, j] - cells[second, j]) * metric[j - 1, i - 1]
                    distance += slope * (cells[first, i] - cells[second, i])
            close[first, second] = distance < below
    living[heaviest] = True
    _merge(cells, close, living, owners)


@spliced
def _merge(cells: FloatArray, close: BoolArray, living: BoolArray, owners: IntArray) -> None:
    n = close.shape[0]
    for first in range(n):
        for second in range(first + 1, n):
            if close[first, second] and living[first] and living[second]:
                mass = cells[first, 0] + cells[second, 0]
                share = cells[second, 0] / mass
                for i in range(1, cells.shape[1]):
                    cells[first, i] += share * (cells[second, i] - cells[first, i])
                cells[first, 0], owners[second], living[second] = mass, first, False


def split(cells: FloatArray, n_cells: int, shifts: FloatArray) -> None:
    """Split every cell k into μ_k ± ``shifts[k]``, each with half the mass.

    The second halves take the rows from ``n_cells`` on.
    """
    cells[:n_cells, 0] *= 0.5
    cells[n_cells : 2 * n_cells] = cells[:n_cells]
    cells[:n_cells, 1:] += shifts
    cells[n_cells : 2 * n_cells, 1:] -= shifts
