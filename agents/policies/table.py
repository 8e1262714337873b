"""A table: the nearest cell decides alone, by its values."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oda_rl._compile import integer, spliced
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.policies.alternatives import alternative_of_cells
from oda_rl.agents.policies.contract import Alternative, CellTables, InLoops, Rows, Stored
from oda_rl.diagram import assign, assign_batch
from oda_rl.files.schema import Member, real


@spliced
def greatest(values: FloatArray, cell: int) -> int:
    """Return the action of greatest value in a cell; the first of equals."""
    best = integer(0)
    for action in range(1, values.shape[1]):
        if values[cell, action] > values[cell, best]:
            best = action
    return best


@spliced
def decide_by_table(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Return the action in a state by (diagram, Q-values, origin, room for a point)."""
    diagram, values, origin, point = arrays
    for j in range(point.shape[0]):
        point[j] = observation[j] - origin[j]
    return greatest(values, assign(diagram, diagram.shape[0], point))


@dataclass(frozen=True)
class TablePolicy(Stored):
    """A policy with one row of values for each cell.

    Examples
    --------
    >>> codevectors = np.array([[0.0], [2.0]])
    >>> diagram = np.column_stack([codevectors**2, -2.0 * codevectors])
    >>> policy = TablePolicy(np.zeros(1), diagram, np.eye(2), codevectors)
    >>> policy.act(np.array([[0.9], [1.1]]))
    array([0, 1])
    """

    origin: FloatArray
    """Subtracted from observations, shape (d,)."""
    diagram: FloatArray
    """Affine diagram of the cells (:mod:`oda_rl.diagram`), shape (K, 1 + d)."""
    q_values: FloatArray
    """Value of each action in each cell, shape (K, A)."""
    codevectors: FloatArray
    """In the observation's units, shape (K, d)."""

    SCHEMA: ClassVar[dict[str, Member]] = {
        "origin": real("d"),
        "diagram": real("K, 1+d"),
        "q_values": real("K, A"),
        "codevectors": real("K, d"),
    }
    exact: ClassVar[bool] = True
    choice_name: ClassVar[str] = "action"
    value_name: ClassVar[str] = "value"

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.diagram)

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return int(self.q_values.shape[1])

    def cells(self, points: npt.NDArray[Any]) -> IntArray:
        """Cells, shape (n,), of points, shape (n, d)."""
        cells = np.empty(len(points), dtype=np.int64)
        assign_batch(self.diagram, self.n_cells, points - self.origin, cells)
        return cells

    def values(self, points: npt.NDArray[Any]) -> FloatArray:
        """Values of all actions, shape (n, A)."""
        return np.asarray(self.q_values[self.cells(points)])

    def choices(self, points: npt.NDArray[Any]) -> IntArray:
        """Actions of greatest value, shape (n,)."""
        return np.asarray(self.q_values.argmax(axis=1)[self.cells(points)])

    act = choices

    def at_codevectors(self) -> Rows:
        """Values, choices and actions of the cells."""
        actions = self.q_values.argmax(axis=1)
        return Rows(self.q_values.copy(), actions, actions)

    def alternative(self, point: FloatArray, choice: int, scale: FloatArray) -> Alternative:
        """Find the nearest state where the action is not that at ``point``; exact."""
        actions = self.at_codevectors().choices
        found = alternative_of_cells(self.diagram, actions, point - self.origin, choice, scale)
        return replace(found, point=None if found.point is None else found.point + self.origin)

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        """The arrays that decide."""
        return self.diagram, self.q_values, self.origin

    @property
    def in_loops(self) -> InLoops:
        """How compiled loops decide by it."""
        arrays = self.diagram, self.q_values, self.origin, np.empty(len(self.origin))
        return InLoops("table", decide_by_table, arrays)

    @property
    def tables(self) -> CellTables:
        """Tables for export."""
        return CellTables(self.origin, self.diagram, self.q_values)
