"""What the latest transitions say about the present Q-values, by cell and action."""

from typing import NamedTuple

import numpy as np

from oda_rl._compile import brief, integer
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.engine.columns import assign_in_columns, fill_columns, new_columns
from oda_rl.agents.engine.memory import ACTION, GOES_ON, MARK, watkins_targets
from oda_rl.agents.two_timescale.qlearning import VALUES, greedy_action


class Hindsight(NamedTuple):
    """What is written about cells and rows, and arrays to work in."""

    columns: FloatArray
    """The diagram by columns."""
    values: FloatArray
    """Greatest Q-value of each cell, shape (capacity,)."""
    greedy: IntArray
    """Its action, shape (capacity,)."""
    cells: IntArray
    """Of the rows, shape (n,)."""
    groups: IntArray
    """Shape (n,): that times the number of actions, plus the row's action, or -1 where no step was
    taken."""
    targets: FloatArray
    """Watkins' λ-returns of the rows, shape (n,)."""


def new_room(n_rows: int, capacity: int, n_features: int) -> Hindsight:
    """Return them for so many rows and cells."""
    (cells, groups), greedy = np.zeros((2, n_rows), np.int64), np.zeros(capacity, np.int64)
    columns, values = new_columns(capacity, n_features), np.zeros(capacity)
    return Hindsight(columns, values, greedy, cells, groups, np.zeros(n_rows))


@brief
def returns_by_action(
    diagram: FloatArray,
    n_cells: int,
    table: FloatArray,
    points: FloatArray,
    steps: FloatArray,
    discount: float,
    trace_decay: float,
    found: Hindsight,
) -> None:
    """Write Watkins' λ-returns of rows of trajectories, and which rows belong together.

    Parameters
    ----------
    diagram : ndarray, shape (capacity, 1 + d)
        Of the cells, as many as count.
    n_cells : int
        How many those are.
    table : ndarray
        See :mod:`oda_rl.agents.two_timescale.qlearning`.
    points, steps : ndarray, shape (n, d) and (n, 3)
        The rows; see :mod:`oda_rl.agents.engine.memory`.
    discount, trace_decay : float
        γ and λ.
    found : Hindsight
        Written.
    """
    columns, values, greedy, cells, groups, targets = found
    fill_columns(columns, diagram, n_cells)
    for k in range(n_cells):
        best = greedy_action(table, k)
        values[k], greedy[k] = table[VALUES, k, best], best
    for i in range(points.shape[0]):
        cell = assign_in_columns(columns, n_cells, points[i])
        cells[i] = cell
        group = integer(-1)
        if steps[i, MARK] == GOES_ON:
            group = cell * table.shape[2] + integer(steps[i, ACTION])
        groups[i] = group
    watkins_targets(steps, cells, values, greedy, discount, trace_decay, targets)
