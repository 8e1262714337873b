"""Action parts v_kj of codevectors (m_k, v_kj) in the joint space of states and actions.

A step is in the joint cell of the nearest state codevector m_k and, there, of the nearest of J
action codevectors v_kj. So that neighbouring cells can be blended, every cell's v_kj start from the
same v_j, and are drawn to the actions that were taken there,

    v_kj = (m v_j + Σ w a) / (m + Σ w),

over the actions a nearest to v_j, with the weights w of their states in cell k.

Actions are in units of the box, whose bounds are -1 and 1; codevectors, which are means, may lie up
to ``WIDENED`` to either side, and are clipped to the box.

References
----------
C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with stochastic
approximation": state-action codevectors.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled
from oda_rl._types import FloatArray
from oda_rl.agents.base.memory import GOES_ON, MARK

Near = npt.NDArray[np.uint16]
Labels = npt.NDArray[np.int16]
Weights = npt.NDArray[np.float32]

WIDENED = 1.25
_PRIOR = 10.0  # m, in steps


class TakenActions(NamedTuple):
    """Actions that were taken, and the common codevectors."""

    actions: FloatArray
    """Of each row of a memory, shape (n, p)."""
    common: FloatArray
    """The v_j, shape (J, p)."""


@compiled
def label(actions: FloatArray, cells: Near, parts: FloatArray, labels: Labels) -> None:
    """Write numbers of the v_kj, (K, J, p), nearest to actions, (n, p), in three cells, (n, 3)."""
    for i in range(actions.shape[0]):
        for t in range(cells.shape[1]):
            k, least = cells[i, t], np.inf
            for j in range(parts.shape[1]):
                gap = 0.0
                for l in range(parts.shape[2]):  # noqa: E741
                    gap += (actions[i, l] - parts[k, j, l]) ** 2
                if gap < least:
                    least = gap
                    labels[i, t] = j


@compiled
def _add_up(
    actions: FloatArray,
    cells: Near,
    weights: Weights,
    labels: Labels,
    steps: FloatArray,
    sums: FloatArray,
) -> None:
    """Add w and w a of all steps to ``sums``, shape (K, J, 1 + p)."""
    for i in range(actions.shape[0]):
        if steps[i, MARK] != GOES_ON:
            continue
        for t in range(cells.shape[1]):
            k, j, w = cells[i, t], labels[i, t], weights[i, t]
            sums[k, j, 0] += w
            for l in range(actions.shape[1]):  # noqa: E741
                sums[k, j, 1 + l] += w * actions[i, l]


def place(
    taken: TakenActions, cells: Near, weights: Weights, steps: FloatArray, n_cells: int
) -> tuple[FloatArray, Labels]:
    """Place the action codevectors of all cells.

    Parameters
    ----------
    taken : TakenActions
        n actions of p components, and J codevectors.
    cells, weights : ndarray, shape (n, 3)
        Nearest cells of the states that they were taken in.
    steps : ndarray, shape (n, 3 or more)
        Rows of a memory.
    n_cells : int
        Number of cells K.

    Returns
    -------
    parts : ndarray, shape (K, J, p)
        The v_kj.
    labels : ndarray of int16, shape (n, 3)
        Number of the nearest one in each of the three cells.

    Examples
    --------
    >>> taken = TakenActions(np.array([[0.5], [0.5], [-0.2]]), np.array([[-1.0], [0.0], [1.0]]))
    >>> cells, weights = np.zeros((3, 3), np.uint16), np.full((3, 3), 10 / 3, np.float32)
    >>> parts, labels = place(taken, cells, weights, np.ones((3, 3)), 1)
    >>> parts[0, :, 0].round(2), labels[:, 0]  # of two that are as near, it is the first
    (array([-1. ,  0.2,  1. ]), array([1, 1, 1], dtype=int16))
    """
    parts = np.repeat(taken.common[None], n_cells, axis=0)
    labels = np.zeros((len(taken.actions), 3), dtype=np.int16)
    label(taken.actions, cells, parts, labels)
    sums = np.concatenate([np.ones((*parts.shape[:2], 1)), parts], axis=2) * _PRIOR
    _add_up(taken.actions, cells, weights, labels, steps, sums)
    parts = np.ascontiguousarray(sums[:, :, 1:] / sums[:, :, :1])
    label(taken.actions, cells, parts, labels)
    return parts, labels
