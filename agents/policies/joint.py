"""Cells of states and continuous actions together: the greedy action is looked for among them.

A pair of an observation o and an action u, in units of its box (p components from -1 to 1), is seen
as z = L (o - mean, u). Cell k has a codevector m_k, a value q_k and a slope g_k.

=============  ==================================================================================
value          Q(o, u) = Σ w_k (q_k + <g_k, z - m_k>) over the nearest cells, w_k proportional to
               exp(-|z - m_k|²/T)
action part    u_k = argmin_u |z(o, u) - m_k|², clipped: what cell k stands for in this state
near cells     the 40 cells of least |z(o, u_k) - m_k|²; no others are looked at
greedy action  the best of some levels (-1, -1/2, 0, 1/2, 1 of one component) and of the action
               parts of the 8 nearest cells; then, component by component, of u, u ± 1/4, and the
               vertex of the parabola through these
=============  ==================================================================================

All that chooses greedily calls :func:`choose`: training, the policy in Python, and, in their
languages, ``joint.h`` and reports.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from oda_rl._compile import compiled, integer
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.policies.alternatives import alternative_by_search
from oda_rl.agents.policies.cells import gibbs_weights, insert_cell, squared_distances
from oda_rl.agents.policies.contract import Alternative, CellTables, Stored
from oda_rl.diagram import assign_batch, ordered
from oda_rl.files.schema import real, whole

SHORTLIST, PARTS = 40, 8  # cells nearest to a state: looked at; whose action parts are tried
STEP = 0.25
N_CELLS, TEMPERATURE = range(2)  # of Codebook.head


class Codebook(NamedTuple):
    """K cells in d dimensions, those of p components of an action among them."""

    places: FloatArray  # codevectors m_k, in columns, shape (d, K)
    models: FloatArray  # slope g_k, values q_ka, and notes of their owner, one row a cell
    frame: FloatArray  # L, the mean, and the pseudo-inverse of L's action columns, (d + 1 + p, d)
    head: FloatArray  # number of cells, and temperature, shape (2,)
    mixture: FloatArray
    """Row 0 is added to squared distances: logarithms of a mixture, otherwise 0. The next rows,
    (d, K), are precisions by which these are weighted; a mixture of one covariance has none."""


class Search(NamedTuple):
    """Scratch for :func:`choose`."""

    levels: FloatArray  # actions that are always tried, shape (n, p)
    idle: FloatArray  # z(o, 0), shape (d,)
    point: FloatArray  # z(o, u), shape (d,)
    trial: FloatArray  # u, shape (p,)
    parts: FloatArray  # action parts u_k, shape (p, K)
    gaps: FloatArray  # one component of z(o, u_k) - m_k, shape (K,)
    scores: FloatArray  # squared distances of all cells from the state, shape (K,)
    near: IntArray  # the near cells, in order, shape (SHORTLIST,)
    distances: FloatArray  # their squared distances, shape (SHORTLIST,)
    places: FloatArray  # their codevectors, in columns, shape (d, SHORTLIST)
    best: IntArray  # those nearest to the point, as indices of ``near``, shape (n_nearest,)
    weights: FloatArray  # their weights, shape (n_nearest,)


def levels_of(n_components: int) -> FloatArray:
    """Return the actions that are always tried, in units, shape (n, p)."""
    if n_components > 3:  # too many combinations
        ends = np.eye(n_components)
        return np.concatenate([np.zeros((1, n_components)), -ends, ends])
    axis = np.linspace(-1.0, 1.0, 5 if n_components == 1 else 3)
    return np.array(list(itertools.product(axis, repeat=n_components)))


def new_search(d: int, n_cells: int, levels: FloatArray, n_nearest: int) -> Search:
    """Allocate for cells in d dimensions."""
    p = levels.shape[1]
    idle, point, trial = np.zeros(d), np.zeros(d), np.zeros(p)
    parts, gaps, scores = np.zeros((p, n_cells)), np.zeros(n_cells), np.zeros(n_cells)
    near, best = np.zeros(SHORTLIST, dtype=np.int64), np.zeros(n_nearest, dtype=np.int64)
    distances, places = np.zeros(SHORTLIST), np.zeros((d, SHORTLIST))
    return Search(
        levels, idle, point, trial, parts, gaps, scores, near, distances, places, best,
        np.zeros(n_nearest),
    )  # fmt: skip


@compiled
def list_near(book: Codebook, search: Search, seen: FloatArray) -> int:
    """List the cells near a state, and write their action parts; return how many there are."""
    places, frame, idle, parts = book.places, book.frame, search.idle, search.parts
    gaps, scores, near, distances = search.gaps, search.scores, search.near, search.distances
    d, p, n_cells = places.shape[0], parts.shape[0], int(book.head[N_CELLS])
    n_seen = d - p
    for i in range(d):
        total = 0.0
        for j in range(n_seen):
            total += frame[i, j] * (seen[j] - frame[d, j])
        idle[i] = total
    for c in range(p):  # u_k = L_u⁺ (m_k - z(o, 0)), clipped
        for k in range(n_cells):
            parts[c, k] = 0.0
        for i in range(d):
            share, offset = frame[d + 1 + c, i], idle[i]
            for k in range(n_cells):
                parts[c, k] += share * (places[i, k] - offset)
        for k in range(n_cells):
            parts[c, k] = min(max(parts[c, k], -1.0), 1.0)
    for k in range(n_cells):
        scores[k] = 0.0
    for i in range(d):  # |z(o, u_k) - m_k|²
        offset = idle[i]
        for k in range(n_cells):
            gaps[k] = offset - places[i, k]
        for c in range(p):
            share = frame[i, n_seen + c]
            for k in range(n_cells):
                gaps[k] += share * parts[c, k]
        for k in range(n_cells):
            scores[k] += gaps[k] * gaps[k]
    n = integer(0)
    for k in range(n_cells):
        if n < near.shape[0] or scores[k] < distances[n - 1]:
            n = min(n + 1, near.shape[0])
            insert_cell(near, distances, n - 1, k, scores[k])
    for i in range(d):
        for j in range(n):
            search.places[i, j] = places[i, near[j]]
    return n


@compiled
def value_at(book: Codebook, search: Search, n: int, action: FloatArray) -> float:
    """Return Q(o, u) by the first n near cells."""
    models, frame, point, best, weights = (
        book.models, book.frame, search.point, search.best, search.weights,
    )  # fmt: skip
    places, distances, d, p = search.places, search.distances, point.shape[0], action.shape[0]
    for i in range(d):
        total = search.idle[i]
        for c in range(p):
            total += frame[i, d - p + c] * action[c]
        point[i] = total
    squared_distances(places, point, n, distances)
    m = integer(0)
    for j in range(n):
        if m < best.shape[0] or distances[j] < weights[m - 1]:
            m = min(m + 1, best.shape[0])
            insert_cell(best, weights, m - 1, j, distances[j])
    total = gibbs_weights(weights, m, book.head[TEMPERATURE])
    value = 0.0
    for i in range(m):
        j = best[i]
        k = search.near[j]
        plane = models[k, d]
        for l in range(d):  # noqa: E741
            plane += models[k, l] * (point[l] - places[l, j])
        value += weights[i] * plane
    return value / total


@compiled
def choose(book: Codebook, search: Search, seen: FloatArray, action: FloatArray) -> float:
    """Write the greedy action in a state; return its value."""
    n = list_near(book, search, seen)
    p, n_levels, trial = action.shape[0], search.levels.shape[0], search.trial
    greatest = -np.inf
    for j in range(n_levels + min(n, PARTS)):
        for c in range(p):
            if j < n_levels:
                trial[c] = search.levels[j, c]
            else:
                trial[c] = search.parts[c, search.near[j - n_levels]]
        value = value_at(book, search, n, trial)
        if value > greatest:
            greatest = value
            for c in range(p):
                action[c] = trial[c]
    for c in range(p):
        middle, centre = greatest, action[c]
        found, low, high = centre, max(centre - STEP, -1.0), min(centre + STEP, 1.0)
        action[c] = low
        below = value_at(book, search, n, action)
        if below > greatest:
            greatest, found = below, low
        action[c] = high
        above = value_at(book, search, n, action)
        if above > greatest:
            greatest, found = above, high
        bend = 2.0 * middle - below - above
        if found == centre and bend > 0.0 and low == centre - STEP and high == centre + STEP:
            # The vertex of the parabola through (-1, below), (0, middle), (1, above).
            action[c] = centre + 0.5 * STEP * (above - below) / bend
            vertex = value_at(book, search, n, action)
            if vertex > greatest:
                greatest, found = vertex, action[c]
        action[c] = found
    return greatest


@compiled
def choose_batch(
    book: Codebook, search: Search, points: FloatArray, actions: FloatArray, values: FloatArray
) -> None:
    """Write greedy actions, shape (n, p), and their values and the first levels', (n, 1 + m)."""
    for i in range(points.shape[0]):
        greatest = choose(book, search, points[i], actions[i])
        values[i, 0] = greatest
        for j in range(1, values.shape[1]):
            n = min(SHORTLIST, int(book.head[N_CELLS]))
            values[i, j] = value_at(book, search, n, search.levels[j - 1])


@dataclass(frozen=True)
class JointPolicy(Stored):
    """A policy of cells of states and actions; see the module.

    Its choices are the levels of actions: an action counts as the level that is nearest to it, and
    the value of that choice is the action's.
    """

    origin: Annotated[FloatArray, real("d")]  # subtracted from observations
    levels: Annotated[FloatArray, real("A, p", "[-1, 1]")]  # always tried, in units of the box
    transform: Annotated[FloatArray, real("d+p, d+p")]  # L, of (o - origin, u)
    places: Annotated[FloatArray, real("K, d+p")]  # the m_k
    slopes: Annotated[FloatArray, real("K, d+p")]  # the g_k
    worth: Annotated[FloatArray, real("K")]  # the q_k
    width: Annotated[float, real("", "(0, inf)")]  # temperature T of the weights
    n_nearest: Annotated[int, whole("", "[1, 65535]")]  # number of cells that are blended

    choice_name: ClassVar[str] = "level"

    @property
    def n_cells(self) -> int:
        return len(self.places)

    @property
    def n_actions(self) -> int:
        return len(self.levels)

    @property
    def _pairs(self) -> FloatArray:
        """Codevectors as pairs (o - origin, u), shape (K, d + p)."""
        return np.asarray(self.places @ np.linalg.pinv(self.transform).T)

    @property
    def codevectors(self) -> FloatArray:
        """State parts of the codevectors, in the observation's units, shape (K, d)."""
        return np.asarray(self._pairs[:, : len(self.origin)] + self.origin)

    @property
    def parts(self) -> FloatArray:
        """Action parts of the codevectors, in units of the box, shape (K, p)."""
        return np.clip(self._pairs[:, len(self.origin) :], -1.0, 1.0)

    @property
    def q_values(self) -> FloatArray:
        """Value of each level at each codevector by that cell's own plane, shape (K, A)."""
        d = len(self.origin)
        away = self.levels - self._pairs[:, None, d:]
        rises = self.slopes @ self.transform[:, d:]
        return np.asarray(self.worth[:, None] + (away * rises[:, None]).sum(axis=2))

    @property
    def diagram(self) -> FloatArray:
        """Affine diagram of the cells over states, shape (K, 1 + d).

        A cell's distance is that from z(o, u) with the action that is nearest to it.
        """
        d = len(self.origin)
        by_state, by_action = self.transform[:, :d], self.transform[:, d:]
        beside = np.eye(len(self.transform)) - by_action @ np.linalg.pinv(by_action)
        places = self.places @ beside.T
        offsets = (places**2).sum(axis=1)
        return ordered(np.column_stack([offsets, -2.0 * places @ beside @ by_state]))

    @cached_property
    def _compiled(self) -> tuple[Codebook, Search]:
        d, p, k = len(self.origin), self.levels.shape[1], self.n_cells
        mean, inverse = np.zeros((1, d + p)), np.linalg.pinv(self.transform[:, d:])
        mean[0, :d] = self.origin
        models = np.column_stack([self.slopes, self.worth])
        frame, head = np.concatenate([self.transform, mean, inverse]), np.array([k, self.width])
        book = Codebook(np.ascontiguousarray(self.places.T), models, frame, head, np.zeros((1, k)))
        return book, new_search(d + p, k, self.levels, self.n_nearest)

    def _decide(self, points: Array, n_levels: int) -> tuple[FloatArray, FloatArray]:
        """Return greedy actions, (n, p), and their values and those of levels, (n, 1 + levels)."""
        n = len(points)
        actions, values = np.empty((n, self.levels.shape[1])), np.empty((n, 1 + n_levels))
        seen = np.ascontiguousarray(points, dtype=np.float64)
        choose_batch(*self._compiled, seen, actions, values)
        return actions, values

    def nearest_levels(self, actions: FloatArray) -> IntArray:
        """Levels nearest to actions in units of the box, shape (n,), of actions, (n, p)."""
        gaps = ((actions[:, None] - self.levels) ** 2).sum(axis=2)
        return np.asarray(gaps.argmin(axis=1))

    def cells(self, points: Array) -> IntArray:
        """Cells nearest to states, whatever the action, shape (n,), of points, shape (n, d)."""
        cells = np.empty(len(points), dtype=np.int64)
        assign_batch(self.diagram, self.n_cells, points - self.origin, cells)
        return cells

    def choices(self, points: Array) -> IntArray:
        """Levels nearest to the greedy actions, shape (n,)."""
        return self.nearest_levels(self.act(points))

    def act(self, points: Array) -> Array:
        return self._decide(points, 0)[0]

    def values(self, points: Array) -> FloatArray:
        """Values of all levels, shape (n, A); that of the choice is the greedy action's."""
        actions, values = self._decide(points, self.n_actions)
        values[np.arange(len(points)), 1 + self.nearest_levels(actions)] = values[:, 0]
        return values[:, 1:]

    def alternative(self, point: FloatArray, choice: int, scale: FloatArray) -> Alternative:
        """Find a near state whose action is nearer to another level; the lower bound is 0."""
        return alternative_by_search(self, point, choice, scale)

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        return self.places, self.slopes, self.worth, self.transform, self.origin

    @property
    def tables(self) -> CellTables:
        """Cells over states, and their values; :attr:`arrays` has what decides."""
        return CellTables(self.origin, self.diagram, self.q_values)
