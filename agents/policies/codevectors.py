"""A fitted policy of continuous actions: each cell has codevectors of them.

A choice is a number j, and stands for the mean of codevectors number j over the three nearest
cells. They are in units of the box of actions, and played at its bounds where they lie beyond; see
:mod:`oda_rl.agents.fitting.action_codevectors`.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled
from oda_rl._schema import Member, real
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.policies.cells import CellPolicy, three_nearest
from oda_rl.agents.policies.contract import CellTables, InLoops


@compiled
def blend(
    diagram: FloatArray,
    parts: FloatArray,
    width: float,
    points: FloatArray,
    numbers: IntArray,
    actions: FloatArray,
) -> None:
    """Write what codevectors number j, shape (n,), are at points, shape (n, d), less the origin.

    That is the mean of v_kj over the (at most) three nearest cells, with the weights with which
    values are blended. ``actions`` has the shape (n, p); points may have more columns.
    """
    for i in range(points.shape[0]):
        first, second, third, a, b, c = three_nearest(diagram, points[i])
        near, far = math.exp((a - b) / width), math.exp((a - c) / width)
        total, j = 1.0 + near + far, numbers[i]
        for l in range(parts.shape[2]):  # noqa: E741
            action = parts[first, j, l] + near * parts[second, j, l] + far * parts[third, j, l]
            actions[i, l] = action / total


@dataclass(frozen=True)
class CodevectorPolicy(CellPolicy):
    """A policy that acts by action codevectors: the values of a cell's ``models`` are theirs."""

    parts: FloatArray
    """The v_kj, in units of the box of actions, shape (K, J, p)."""

    SCHEMA: ClassVar[dict[str, Member]] = {**CellPolicy.SCHEMA, "parts": real("K, A, p")}
    choice_name: ClassVar[str] = "codevector"

    def play(self, observations: npt.NDArray[Any], numbers: IntArray) -> FloatArray:
        """Actions, shape (n, p), that the codevectors with these numbers, (n,), stand for."""
        points = np.ascontiguousarray(observations - self.origin, dtype=np.float64)
        actions = np.empty((len(points), self.parts.shape[2]))
        blend(self.diagram, self.parts, self.width, points, numbers, actions)
        return actions

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Actions that the codevectors of greatest value stand for, in units, shape (n, p)."""
        return self.play(points, self.choices(points))

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        """The arrays that decisions are made by."""
        return *super().parameters, self.parts

    @property
    def in_loops(self) -> InLoops | None:
        """None: compiled environments take numbers, or one of a few actions."""
        return None

    @property
    def tables(self) -> CellTables:
        """The same as tables, for export."""
        return super().tables._replace(parts=self.parts)
