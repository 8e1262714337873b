"""What the latest transitions say about the present Q-values, by cell and action."""

from oda_rl._compile import brief, integer
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.engine.columns import assign_in_columns, fill_columns
from oda_rl.agents.engine.memory import ACTION, GOES_ON, MARK, watkins_targets


@brief
def returns_by_action(
    diagram: FloatArray,
    columns: FloatArray,
    points: FloatArray,
    steps: FloatArray,
    n_actions: int,
    values: FloatArray,
    greedy: IntArray,
    discount: float,
    trace_decay: float,
    cells: IntArray,
    groups: IntArray,
    targets: FloatArray,
) -> None:
    """Write Watkins' λ-returns of rows of trajectories, and which rows belong together.

    Parameters
    ----------
    diagram : ndarray, shape (at least K, 1 + d)
        Of the K cells.
    columns : ndarray, shape (blocks, 1 + d, 8)
        Room for these, as :func:`oda_rl.agents.engine.columns.new_columns` makes it.
    points, steps : ndarray, shape (n, d) and (n, 3)
        The rows; see :mod:`oda_rl.agents.engine.memory`.
    n_actions : int
        How many actions there are.
    values, greedy : ndarray, shape (K,)
        Greatest Q-value of each cell, and its action.
    discount, trace_decay : float
        γ and λ.
    cells, groups, targets : ndarray, shape (n,)
        Written: the cell of each row; that times ``n_actions`` plus its action, or -1 where no step
        was taken; and its return.
    """
    n_cells = values.shape[0]
    fill_columns(columns, diagram, n_cells)
    for i in range(points.shape[0]):
        cell = assign_in_columns(columns, n_cells, points[i])
        cells[i] = cell
        group = integer(-1)
        if steps[i, MARK] == GOES_ON:
            group = cell * n_actions + integer(steps[i, ACTION])
        groups[i] = group
    watkins_targets(steps, cells, values, greedy, discount, trace_decay, targets)
