"""Cells with values of actions: blended, or as a table, in which the nearest decides alone.

The value of an action is the mean of offset + <slope, x> + value over the nearest cells, with Gibbs
weights proportional to exp(-score/width), where scores are squared distances, up to what they have
in common. Actions share offsets and slopes, which say how much a state is worth; the values say
what to do there, and these alone decide.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from oda_rl._compile import compiled, inlined, integer, spliced
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.policies.alternatives import alternative_of_blend, alternative_of_cells
from oda_rl.agents.policies.contract import TIE, Alternative, CellTables, InLoops, Stored
from oda_rl.diagram import assign, assign_batch
from oda_rl.files.schema import real, whole


@spliced
def squared_distances(
    columns: FloatArray, point: FloatArray, n: int, distances: FloatArray
) -> None:
    """Write the squared distances of a point, shape (d,), from the first n columns of (d, K)."""
    odd = columns.shape[0] % 2
    for k in range(n):
        gap = point[0] - columns[0, k]
        distances[k] = gap * gap if odd else 0.0
    for i in range(odd, columns.shape[0], 2):  # two coordinates at a time: in vector instructions
        x, y = point[i], point[i + 1]
        for k in range(n):
            gap, next_gap = x - columns[i, k], y - columns[i + 1, k]
            distances[k] = distances[k] + gap * gap + next_gap * next_gap


@spliced
def insert_cell(near: IntArray, scores: FloatArray, last: int, k: int, score: float) -> None:
    """Put a cell among the nearest, whose scores ascend, in place of number ``last``."""
    i = last
    while i > 0 and score < scores[i - 1]:
        near[i], scores[i] = near[i - 1], scores[i - 1]
        i -= 1
    near[i], scores[i] = k, score


@spliced
def nearest_cells(
    diagram: FloatArray, point: FloatArray, near: IntArray, scores: FloatArray
) -> None:
    """Write the cells of least score and these scores, both (n_nearest,); inf if there are fewer.

    Among cells with equal scores, the first ones count.
    """
    for i in range(near.shape[0]):
        near[i], scores[i] = 0, np.inf
    last = np.inf
    for k in range(diagram.shape[0]):
        score = diagram[k, 0]
        for j in range(diagram.shape[1] - 1):
            score += diagram[k, 1 + j] * point[j]
        if score < last:
            insert_cell(near, scores, near.shape[0] - 1, k, score)
            last = scores[near.shape[0] - 1]


@spliced
def gibbs_weights(scores: FloatArray, n: int, width: float) -> float:
    """Turn n ascending scores into weights exp((least score - score)/width); return their sum."""
    least, total = scores[0], 1.0
    scores[0] = 1.0
    for i in range(1, n):
        weight = math.exp((least - scores[i]) / width)
        scores[i] = weight
        total += weight
    return total


@spliced
def action_values(
    diagram: FloatArray, models: FloatArray, width: float, point: FloatArray, near: IntArray,
    weights: FloatArray, values: FloatArray,
) -> int:  # fmt: skip
    """Write the nearest cells, their weights and the values of all actions; return the nearest.

    ``near`` and ``weights`` have the shape (n_nearest,). The point and the room for values may be
    longer than they need to be.
    """
    nearest_cells(diagram, point, near, weights)
    share = 1.0 / gibbs_weights(weights, weights.shape[0], width)
    for i in range(near.shape[0]):
        weights[i] *= share
    common = 0.0
    for j in range(models.shape[1]):
        blended = weights[0] * models[near[0], j]
        for i in range(1, near.shape[0]):
            blended += weights[i] * models[near[i], j]
        if j >= diagram.shape[1]:
            values[j - diagram.shape[1]] = common + blended
        elif j > 0:
            common += blended * point[j - 1]
        else:
            common = blended
    cell: int = near[0]
    return cell


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
    diagram: FloatArray, models: FloatArray, width: float, point: FloatArray, near: IntArray,
    weights: FloatArray, values: FloatArray, uniform: float,
) -> tuple[int, int]:  # fmt: skip
    """Return the nearest cell and the :func:`best_action`; write :func:`action_values`."""
    cell = action_values(diagram, models, width, point, near, weights, values)
    return cell, best_action(values, models.shape[1] - diagram.shape[1], uniform)


@compiled
def evaluate_batch(
    points: FloatArray, diagram: FloatArray, models: FloatArray, width: float, cells: IntArray,
    values: FloatArray, near: IntArray, weights: FloatArray,
) -> None:  # fmt: skip
    """Write nearest cells, (n,), and the values of all actions, (n, A), of points, shape (n, d)."""
    assert diagram.shape[1] == 1 + points.shape[1]
    for i in range(points.shape[0]):
        cells[i] = decide(diagram, models, width, points[i], near, weights, values[i], 0.0)[0]


@spliced
def decide_by_cells(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Return the action in a state by (diagram, models, width, origin) and scratch."""
    diagram, models, width, origin, point, near, weights, values = arrays
    d = origin.shape[0]
    for j in range(d):
        point[j] = observation[j] - origin[j]
    for j in range(d, point.shape[0]):  # of a mixture
        point[j] = point[j - d] * point[j - d]
    return decide(diagram, models, width, point, near, weights, values, 0.0)[1]


@dataclass(frozen=True)
class CellPolicy(Stored):
    """A policy that blends the values of A actions in the nearest of K cells; see the module."""

    origin: Annotated[FloatArray, real("d")]  # subtracted from observations
    diagram: Annotated[FloatArray, real("K, 1+d")]  # affine, of the cells (:mod:`oda_rl.diagram`)
    models: Annotated[FloatArray, real("K, 1+d+A")]  # offset, slope, and the value of each action
    width: Annotated[float, real("", "(0, inf)")]  # temperature of the weights, as of the scores
    n_nearest: Annotated[int, whole("", "[1, 65535]")]  # cells to blend, if there are as many
    codevectors: Annotated[FloatArray, real("K, d")]  # in the observation's units

    @classmethod
    def blank(cls, n_features: int, n_actions: int, n_nearest: int) -> "CellPolicy":
        """One cell, in which all actions are equal."""
        d, models = n_features, np.zeros((1, 1 + n_features + n_actions))
        return cls(np.zeros(d), np.zeros((1, 1 + d)), models, 1.0, n_nearest, np.zeros((1, d)))

    @property
    def n_cells(self) -> int:
        return len(self.diagram)

    @property
    def n_actions(self) -> int:
        return int(self.models.shape[1] - self.diagram.shape[1])

    def features(self, observations: Array) -> FloatArray:
        """Return what scores are affine in, of observations, shape (n, d)."""
        return np.ascontiguousarray(observations - self.origin, dtype=np.float64)

    @property
    def q_values(self) -> FloatArray:
        points = self.features(self.codevectors)
        d = points.shape[1]
        common = self.models[:, 0] + (self.models[:, 1 : 1 + d] * points).sum(axis=1)
        return np.asarray(common[:, None] + self.models[:, 1 + d :])

    def _evaluate(self, observations: Array) -> tuple[IntArray, FloatArray]:
        """Nearest cells, (n,), and values of all actions, (n, A), of observations, (n, d)."""
        points = self.features(observations)
        n, arrays = len(points), (self.diagram, self.models, self.width)
        cells, values = np.empty(n, dtype=np.int64), np.empty((n, self.n_actions))
        evaluate_batch(points, *arrays, cells, values, *self._scratch())
        return cells, values

    def evaluate(self, observations: Array) -> tuple[IntArray, IntArray, FloatArray]:
        """Nearest cell, greedy action and its value, all of shape (n,), of observations, (n, d)."""
        cells, values = self._evaluate(observations)
        greatest = values.max(axis=1, keepdims=True)
        actions = (values >= greatest - TIE * np.abs(greatest)).argmax(axis=1)
        return cells, actions, values[np.arange(len(values)), actions]

    def cells(self, points: Array) -> IntArray:
        return self._evaluate(points)[0]

    def values(self, points: Array) -> FloatArray:
        return self._evaluate(points)[1]

    def choices(self, points: Array) -> IntArray:
        return self.evaluate(points)[1]

    def act(self, points: Array) -> Array:
        return self.choices(points)

    def alternative(self, point: FloatArray, choice: int, scale: FloatArray) -> Alternative:
        return alternative_of_blend(self, point, choice, scale)

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        return self.diagram, self.models, self.origin

    @property
    def in_loops(self) -> InLoops | None:
        point, values = np.empty(self.diagram.shape[1] - 1), np.empty(self.n_actions)
        arrays = self.diagram, self.models, float(self.width), self.origin
        return InLoops("cells", decide_by_cells, (*arrays, point, *self._scratch(), values))

    @property
    def tables(self) -> CellTables:
        common, values = np.split(self.models, [self.diagram.shape[1]], axis=1)
        return CellTables(self.origin, self.diagram, values, common, self.width, self.n_nearest)

    def _scratch(self) -> tuple[IntArray, FloatArray]:
        return np.empty(self.n_nearest, dtype=np.int64), np.empty(self.n_nearest)


@dataclass(frozen=True)
class MixturePolicy(CellPolicy):
    """Cells of a mixture with precisions of its own for each component: borders are quadrics.

    Scores are affine in the observation's components, less the origin, and in their squares.
    """

    diagram: Annotated[FloatArray, real("K, 1+2*d")]
    models: Annotated[FloatArray, real("K, 1+2*d+A")]

    @property
    def precisions(self) -> FloatArray:
        """Diagonal precisions of the components in the observation's units, shape (K, d)."""
        return np.asarray(2.0 / self.width * self.diagram[:, 1 + len(self.origin) :])

    def features(self, observations: Array) -> FloatArray:
        points = super().features(observations)
        return np.column_stack([points, points**2])


@compiled
def blend(
    diagram: FloatArray, parts: FloatArray, width: float, points: FloatArray, numbers: IntArray,
    near: IntArray, weights: FloatArray, actions: FloatArray,
) -> None:  # fmt: skip
    """Write what codevectors number j, shape (n,), are at points, shape (n, d), less the origin.

    That is the mean of v_kj over the nearest cells, with the weights with which values are blended.
    ``actions`` has the shape (n, p); ``near`` and ``weights``, shape (n_nearest,), are overwritten.
    """
    for i in range(points.shape[0]):
        nearest_cells(diagram, points[i], near, weights)
        total, j = gibbs_weights(weights, weights.shape[0], width), numbers[i]
        for l in range(parts.shape[2]):  # noqa: E741
            action = parts[near[0], j, l]
            for m in range(1, near.shape[0]):
                action += weights[m] * parts[near[m], j, l]
            actions[i, l] = action / total


@dataclass(frozen=True)
class CodevectorPolicy(CellPolicy):
    """A policy that acts by action codevectors: the values of a cell's ``models`` are theirs."""

    parts: Annotated[FloatArray, real("K, A, p")]  # the v_kj, in units of the box of actions

    choice_name: ClassVar[str] = "codevector"

    def play(self, points: FloatArray, numbers: IntArray) -> FloatArray:
        """Actions, (n, p), of codevectors with such numbers, (n,), at points less the origin."""
        actions = np.empty((len(points), self.parts.shape[2]))
        blend(self.diagram, self.parts, self.width, points, numbers, *self._scratch(), actions)
        return actions

    def act(self, points: Array) -> Array:
        return self.play(np.ascontiguousarray(points - self.origin), self.choices(points))

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        return *super().parameters, self.parts

    @property
    def in_loops(self) -> InLoops | None:
        return None  # compiled environments take numbers, or one of a few actions

    @property
    def tables(self) -> CellTables:
        return super().tables._replace(parts=self.parts)


@spliced
def greatest(values: FloatArray, row: int) -> int:
    """Return the action of greatest value in a row of values; the first of equals."""
    best = integer(0)
    for action in range(1, values.shape[1]):
        if values[row, action] > values[row, best]:
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
    """A policy with one row of values for each cell."""

    origin: Annotated[FloatArray, real("d")]  # subtracted from observations
    diagram: Annotated[FloatArray, real("K, 1+d")]  # affine, of the cells (:mod:`oda_rl.diagram`)
    q_values: Annotated[FloatArray, real("K, A")]  # value of each action in each cell
    codevectors: Annotated[FloatArray, real("K, d")]  # in the observation's units

    exact: ClassVar[bool] = True

    @property
    def n_cells(self) -> int:
        return len(self.diagram)

    @property
    def n_actions(self) -> int:
        return int(self.q_values.shape[1])

    def cells(self, points: Array) -> IntArray:
        cells = np.empty(len(points), dtype=np.int64)
        assign_batch(self.diagram, self.n_cells, points - self.origin, cells)
        return cells

    def values(self, points: Array) -> FloatArray:
        return np.asarray(self.q_values[self.cells(points)])

    def choices(self, points: Array) -> IntArray:
        return np.asarray(self.q_values.argmax(axis=1)[self.cells(points)])

    act = choices

    def alternative(self, point: FloatArray, choice: int, scale: FloatArray) -> Alternative:
        actions, x = self.q_values.argmax(axis=1), point - self.origin
        found = alternative_of_cells(self.diagram, actions, x, choice, scale)
        return replace(found, point=None if found.point is None else found.point + self.origin)

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        return self.diagram, self.q_values, self.origin

    @property
    def in_loops(self) -> InLoops:
        arrays = self.diagram, self.q_values, self.origin, np.empty(len(self.origin))
        return InLoops("table", decide_by_table, arrays)

    @property
    def tables(self) -> CellTables:
        return CellTables(self.origin, self.diagram, self.q_values)
