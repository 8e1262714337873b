"""Rows that are blends of three cells: what models say of them, and what they add to cells' sums.

A row is a 1 and its point, so that level and slopes of a cell are treated alike.
"""

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled, spliced
from oda_rl._types import FloatArray
from oda_rl.agents.base.memory import GOES_ON, MARK
from oda_rl.agents.fitting.action_codevectors import Near, Weights

Points = npt.NDArray[np.float32]
"""Shape (n, 1 + d): 1, and the d components of a point."""


def new_points(n: int, n_features: int) -> Points:
    """Return n rows of points that are 0."""
    points = np.zeros((n, 1 + n_features), dtype=np.float32)
    points[:, 0] = 1.0
    return points


def origins_of(codevectors: FloatArray) -> FloatArray:
    """Return codevectors, shape (K, d), in rows that begin with 0, in double precision."""
    return np.column_stack([np.zeros(len(codevectors)), codevectors])


@compiled
def add_squares(
    points: Points,
    near: Near,
    weights: Weights,
    steps: FloatArray,
    origins: FloatArray,
    moments: FloatArray,
    room: FloatArray,
) -> None:
    """Add w z zᵀ of all steps to the moments of their cells, shape (K, 1 + d, 1 + d).

    z is the row less the origin of the cell, shape (K, 1 + d), which begins with 0. ``room``, shape
    (2, 1 + d), is scratch.
    """
    n_terms = points.shape[1]
    for i in range(points.shape[0]):
        if steps[i, MARK] != GOES_ON:
            continue
        for t in range(3):
            cell, share = near[i, t], weights[i, t]
            for j in range(n_terms):
                room[0, j] = points[i, j] - origins[cell, j]
                room[1, j] = share * room[0, j]
            for j in range(n_terms):
                for l in range(n_terms):  # noqa: E741
                    moments[cell, j, l] += room[1, l] * room[0, j]


@spliced
def add_row(
    points: Points, near: Near, weights: Weights, i: int, left: float, sums: FloatArray
) -> None:
    """Add w r and w r y of row i to the sums of its cells, shape (K, 1 + d)."""
    for t in range(3):
        cell, share = near[i, t], weights[i, t] * left
        for j in range(points.shape[1]):
            sums[cell, j] += share * points[i, j]


@spliced
def value_of(points: Points, near: Near, weights: Weights, i: int, models: FloatArray) -> float:
    """Return what the blended models of row i's cells, shape (K, 1 + d), make of it."""
    one, two, three = near[i, 0], near[i, 1], near[i, 2]
    u, v, w = weights[i, 0], weights[i, 1], weights[i, 2]
    value = 0.0
    for j in range(points.shape[1]):
        model = u * models[one, j] + v * models[two, j] + w * models[three, j]
        value += model * points[i, j]
    return value
