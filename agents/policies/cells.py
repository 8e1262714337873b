"""A fitted policy: cells, a value for each action in them, and slopes that the actions share.

Three arrays, for K cells in d dimensions with A actions:

``origin``, shape (d,)
    Subtracted from observations.
``diagram``, shape (K, 1 + d)
    The affine diagram of the cells (:mod:`oda_rl.diagram`): scores differ as squared distances do.
``models``, shape (K, 1 + d + A)
    An offset and a slope, and the value of each action.

The value of an action is the mean of offset + <slope, x> + value over the (at most) three nearest
cells, weighed by exp(−(score − least score)/width). The slopes are the same for all actions: they
say how much a state is worth, and the values what to do there.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled, inlined, integer, spliced
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.policies.alternatives import alternative_of_blend
from oda_rl.agents.policies.contract import TIE, Alternative, CellTables, InLoops, Rows, Stored
from oda_rl.files.schema import Member, real

Three = tuple[int, int, int, float, float, float]
"""Three cells and their scores, the nearest first."""


@spliced
def with_another(three: Three, k: int, score: float) -> Three:
    """Return three cells and scores with another cell, which has less than the third one."""
    first, second, _, a, b, _ = three
    if score < a:
        return k, first, second, score, a, b
    if score < b:
        return first, k, second, a, score, b
    return first, second, k, a, b, score


@spliced
def three_nearest(diagram: FloatArray, point: FloatArray) -> Three:
    """Return the three cells of least score, and their scores; inf where there are fewer."""
    three = integer(0), integer(0), integer(0), np.inf, np.inf, np.inf
    for k in range(diagram.shape[0]):
        score = diagram[k, 0]
        for j in range(diagram.shape[1] - 1):
            score += diagram[k, 1 + j] * point[j]
        if score < three[5]:
            three = with_another(three, k, score)
    return three


@spliced
def action_values(
    diagram: FloatArray,
    models: FloatArray,
    width: float,
    point: FloatArray,
    values: FloatArray,
) -> int:
    """Write the values of all actions, and return the nearest cell.

    The point and the room for values may be longer than they need to be.
    """
    near = three_nearest(diagram, point)
    return blended_values(near, models, width, diagram.shape[1] - 1, point, values)


@spliced
def blended_values(
    three: Three,
    models: FloatArray,
    width: float,
    d: int,
    point: FloatArray,
    values: FloatArray,
) -> int:
    """Write the values of all actions by the three nearest cells; return the first of them."""
    first, second, third, a, b, c = three
    near = math.exp((a - b) / width)
    far = math.exp((a - c) / width)
    u = 1.0 / (1.0 + near + far)
    v, w = near * u, far * u
    common = 0.0
    for j in range(models.shape[1]):
        blended = u * models[first, j] + v * models[second, j] + w * models[third, j]
        if j > d:
            values[j - 1 - d] = common + blended
        elif j > 0:
            common += blended * point[j - 1]
        else:
            common = blended
    return first


@spliced
def best_action(values: FloatArray, n_actions: int, uniform: float) -> int:
    """Return the action of greatest value; among equals the one that a number in [0, 1) chooses."""
    best = integer(0)
    for action in range(1, n_actions):
        if values[action] > values[best]:
            best = action
    least = values[best] - TIE * abs(values[best])
    equals = integer(0)
    for action in range(n_actions):
        if values[action] >= least:
            equals += 1
    chosen = integer(uniform * equals)
    for action in range(n_actions):
        if values[action] >= least:
            if chosen == 0:
                return action
            chosen -= 1
    return best


@inlined
def decide(
    diagram: FloatArray,
    models: FloatArray,
    width: float,
    point: FloatArray,
    values: FloatArray,
    uniform: float,
) -> tuple[int, int]:
    """Return the nearest cell and the :func:`best_action`; write :func:`action_values`."""
    cell = action_values(diagram, models, width, point, values)
    return cell, best_action(values, models.shape[1] - diagram.shape[1], uniform)


@compiled
def evaluate_batch(
    points: FloatArray,
    diagram: FloatArray,
    models: FloatArray,
    width: float,
    cells: IntArray,
    actions: IntArray,
    values: FloatArray,
    scratch: FloatArray,
) -> None:
    """Write nearest cell, greedy action and its value, all (n,), of points, shape (n, d).

    ``scratch`` has room for the values of all actions.
    """
    assert diagram.shape[1] == 1 + points.shape[1]
    for i in range(points.shape[0]):
        cell, action = decide(diagram, models, width, points[i], scratch, 0.0)
        cells[i], actions[i], values[i] = cell, action, scratch[action]


@spliced
def decide_by_cells(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Return the action in a state by (diagram, models, width, origin, room for point, values)."""
    diagram, models, width, origin, point, values = arrays
    for j in range(point.shape[0]):
        point[j] = observation[j] - origin[j]
    return decide(diagram, models, width, point, values, 0.0)[1]


@dataclass(frozen=True)
class CellPolicy(Stored):
    """A policy as arrays; see the module."""

    origin: FloatArray
    diagram: FloatArray
    models: FloatArray
    width: float
    codevectors: FloatArray
    """In the observation's units, shape (K, d)."""

    SCHEMA: ClassVar[dict[str, Member]] = {
        "origin": real("d"),
        "diagram": real("K, 1+d"),
        "models": real("K, 1+d+A"),
        "width": real("", "(0, inf)"),
        "codevectors": real("K, d"),
    }
    exact: ClassVar[bool] = False
    choice_name: ClassVar[str] = "action"
    value_name: ClassVar[str] = "value"

    @classmethod
    def blank(cls, n_features: int, n_actions: int) -> "CellPolicy":
        """One cell, in which all actions are equal."""
        return cls(
            np.zeros(n_features),
            np.zeros((1, 1 + n_features)),
            np.zeros((1, 1 + n_features + n_actions)),
            1.0,
            np.zeros((1, n_features)),
        )

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.diagram)

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return int(self.models.shape[1] - self.diagram.shape[1])

    @property
    def q_values(self) -> FloatArray:
        """Value of each action at each codevector by that cell's own model, shape (K, A)."""
        d = len(self.origin)
        points = self.codevectors - self.origin
        common = self.models[:, 0] + (self.models[:, 1 : 1 + d] * points).sum(axis=1)
        return np.asarray(common[:, None] + self.models[:, 1 + d :])

    def evaluate(self, observations: npt.NDArray[Any]) -> tuple[IntArray, IntArray, FloatArray]:
        """Nearest cell, greedy action and its value, all of shape (n,), of observations, (n, d)."""
        points = np.ascontiguousarray(observations - self.origin, dtype=np.float64)
        cells, actions = np.empty((2, len(points)), dtype=np.int64)
        values, scratch = np.empty(len(points)), np.empty(self.n_actions)
        own = self.diagram, self.models, self.width
        evaluate_batch(points, *own, cells, actions, values, scratch)
        return cells, actions, values

    def cells(self, points: npt.NDArray[Any]) -> IntArray:
        """Nearest cells, shape (n,), of points, shape (n, d)."""
        return self.evaluate(points)[0]

    def choices(self, points: npt.NDArray[Any]) -> IntArray:
        """Actions of greatest value, shape (n,)."""
        return self.evaluate(points)[1]

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Actions of greatest value, shape (n,)."""
        return self.choices(points)

    def values(self, points: npt.NDArray[Any]) -> FloatArray:
        """Values of all actions, shape (n, A)."""
        values = np.empty((len(points), self.n_actions))
        for point, row in zip(points, values, strict=True):
            action_values(self.diagram, self.models, self.width, point - self.origin, row)
        return values

    def at_codevectors(self) -> Rows:
        """Values, choices and actions at the codevectors."""
        points = self.codevectors
        return Rows(self.values(points), self.choices(points), self.act(points))

    def alternative(self, point: FloatArray, choice: int, scale: FloatArray) -> Alternative:
        """Find a near state where the action is not that at ``point``, and a lower bound."""
        return alternative_of_blend(self, point, choice, scale)

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        """The arrays that decisions are made by."""
        return self.diagram, self.models, self.origin

    @property
    def in_loops(self) -> InLoops | None:
        """How compiled loops decide by it."""
        room = np.empty(len(self.origin)), np.empty(self.n_actions)
        arrays = self.diagram, self.models, float(self.width), self.origin, *room
        return InLoops("cells", decide_by_cells, arrays)

    @property
    def tables(self) -> CellTables:
        """The same as tables, for export."""
        common, values = np.split(self.models, [self.diagram.shape[1]], axis=1)
        return CellTables(self.origin, self.diagram, values, common, self.width)


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
