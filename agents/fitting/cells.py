"""The cells of a fit: where they lie among states, and the three nearest ones of each state.

Continuous actions have codevectors v_kj in the joint space of states and actions. A step is in the
joint cell of the nearest state codevector m_k and, there, of the nearest of J action codevectors.
So that neighbouring cells can be blended, every cell's v_kj start from the same v_j, and are drawn
to the actions that were taken there,

    v_kj = (m v_j + Σ w a) / (m + Σ w),

over the actions a nearest to v_j, with the weights w of their states in cell k. Actions are in
units of the box, whose bounds are -1 and 1; codevectors, which are means, may lie up to ``WIDENED``
to either side, and are clipped to the box.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl import metric
from oda_rl._compile import compiled, spliced
from oda_rl._types import FloatArray
from oda_rl.agents.base.axes import informative
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK
from oda_rl.agents.base.state import Observations
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import gibbs_weights, squared_distances
from oda_rl.annealing.cells import anneal, anneal_further
from oda_rl.diagram import three_least

Near = npt.NDArray[np.uint16]
Labels = npt.NDArray[np.int16]
Weights = npt.NDArray[np.float32]
Points = npt.NDArray[np.float32]
"""Shape (n, 1 + d): 1, and the d components of a point. A level is a slope along the 1."""

N_NEAREST = 3  # number of cells that are blended
_SAMPLE = 3000  # states that the partition is annealed on
_FEW_DIMENSIONS = 4
_LEVELS, _FINER_SAMPLE = 3, 10_000  # for the baseline's cells in more dimensions
_MIN_ROWS_PER_NUMBER = 4  # of the models that a further level may have
_WIDTH_SAMPLE = 1000
_MIN_CELLS = 4
_MIN_WEIGHT = 1e-4
WIDENED = 1.25
_PRIOR = 10.0  # m, in steps


class TakenActions(NamedTuple):
    """Actions that were taken, and the common codevectors."""

    actions: FloatArray  # of each row of a memory, shape (n, p)
    common: FloatArray  # the v_j, shape (J, p)


class Experience(NamedTuple):
    """The data of a fit."""

    observations: Observations  # rows of a :class:`oda_rl.agents.base.memory.Memory`, shape (n, d)
    steps: FloatArray  # their steps, shape (n, 3 or more)
    n_actions: int  # number of actions, or of action codevectors in each cell
    numbered: bool = False  # whether states are discrete: each is a cell
    taken: TakenActions | None = None  # continuous actions, for a CodevectorPolicy


class Cells(NamedTuple):
    """K cells in the metric of a fit."""

    origin: FloatArray  # subtracted from observations, shape (d,)
    units: metric.Units  # units of distances without a learned metric
    transform: FloatArray  # distances are Euclidean in ``transform @ point``; shape (d, d)
    codevectors: FloatArray  # in the transformed space, shape (K, d)
    width: float  # cells are blended with weights proportional to exp(-squared distance/width)


class Assigned(NamedTuple):
    """Rows of a memory and their three nearest cells."""

    points: Points  # transformed, shape (n, 1 + d)
    cells: Near  # shape (n, 3)
    weights: Weights  # shape (n, 3)
    labels: Labels  # number of the action in each of them, shape (n, 3)
    steps: FloatArray  # shape (n, 3 or more)


def place_cells(
    seen: Experience, learned: FloatArray | None, config: FittedQConfig, rng: np.random.Generator
) -> Cells:
    """Anneal cells among states from which steps were taken, in the learned metric."""
    n, d = seen.observations.shape
    if seen.numbered:
        sample = np.unique(seen.observations, axis=0)
    else:
        sample = _sample_of(seen, _SAMPLE, rng)
    origin, covariance = metric.covariance(sample)
    learning = config.metric == "learned"
    axes = seen.numbered or not learning or informative(seen.observations, seen.steps)
    units = metric.Units.of(origin, covariance, axes, seen.observations.dtype)
    transform = units.transform(learned if learning else None, 0.5)  # power of the metric
    codevectors = np.ascontiguousarray((sample - origin) @ transform.T)
    if not seen.numbered:
        codevectors = anneal(codevectors, n_cells(n, d, config), rng)
    width = width_of((sample[:_WIDTH_SAMPLE] - origin) @ transform.T, codevectors)
    return Cells(origin, units, transform, codevectors, width)


def finer(seen: Experience, at: Cells, rng: np.random.Generator) -> Cells:
    """Split cells further in the same metric: once, or up to three times in many dimensions."""
    n, d = seen.observations.shape
    levels, size = (_LEVELS, _FINER_SAMPLE) if d > _FEW_DIMENSIONS else (1, _SAMPLE)
    embedded = np.ascontiguousarray((_sample_of(seen, size, rng) - at.origin) @ at.transform.T)
    drawn, codevectors = embedded[:_WIDTH_SAMPLE], at.codevectors
    width = width_of(drawn, codevectors)
    for level in range(levels):
        if level > 0 and 2 * len(codevectors) * (1 + d) * _MIN_ROWS_PER_NUMBER > n:
            break
        codevectors = anneal_further(codevectors, embedded, width, rng)
        width = width_of(drawn, codevectors)
    return at._replace(codevectors=codevectors, width=width)


def _sample_of(seen: Experience, size: int, rng: np.random.Generator) -> FloatArray:
    """Draw states from which a step was taken, of at most ``size`` rows."""
    observations, steps = seen.observations, seen.steps
    drawn = rng.integers(len(observations), size=min(len(observations), size))
    taken = drawn[steps[drawn, MARK] == GOES_ON]
    if len(taken) == 0:  # of very short trajectories
        taken = np.flatnonzero(steps[:, MARK] == GOES_ON)
    return np.asarray(observations.take(taken, axis=0), dtype=np.float64)


def n_cells(n_rows: int, n_features: int, config: FittedQConfig) -> int:
    """Return the number of cells: 0.4 √n, at least 4, twice as many in 8 dimensions or means."""
    share = min(max(n_features / _FEW_DIMENSIONS, 1.0), 2.0)
    share *= 2.0 if (config.n_fits or 1) > 1 else 1.0
    wanted = config.cells_per_root * share * math.sqrt(n_rows)
    return min(max(int(wanted), _MIN_CELLS), config.max_cells)


def width_of(points: FloatArray, codevectors: FloatArray) -> float:
    """Mean squared distance from the nearest codevector."""
    scores = points @ (-2.0 * codevectors.T)
    scores += (codevectors**2).sum(axis=1)
    nearest = scores.argmin(axis=1)  # in much less time than the least score itself
    gaps = scores[np.arange(len(scores)), nearest] + (points**2).sum(axis=1)
    return max(float(gaps.mean()), 1e-12)


def assign(seen: Experience, at: Cells) -> tuple[Assigned, FloatArray | None]:
    """Return the rows with their cells, and the action codevectors, if there are any."""
    points, cells, weights = assign_three(seen.observations, at)
    if seen.taken is None:
        actions = seen.steps[:, ACTION, None].astype(np.int16)
        return Assigned(points, cells, weights, np.repeat(actions, 3, axis=1), seen.steps), None
    parts, labels = place(seen.taken, cells, weights, seen.steps, len(at.codevectors))
    return Assigned(points, cells, weights, labels, seen.steps), parts


def assign_three(observations: Observations, at: Cells) -> tuple[Points, Near, Weights]:
    """Find the three nearest cells of observations, (n, d); weights below 1e-4 become 0."""
    n, d = observations.shape
    points = np.ones((n, 1 + d), dtype=np.float32)
    cells, weights = np.empty((n, 3), dtype=np.uint16), np.empty((n, 3), dtype=np.float32)
    columns = np.ascontiguousarray(at.codevectors.T)
    scratch = np.empty(d), np.empty(d), np.empty(columns.shape[1]), np.empty(N_NEAREST)
    write_three(
        observations, at.origin, at.transform, columns, at.width, points, cells, weights, *scratch
    )
    return points, cells, weights


@spliced
def blended(table: FloatArray, cells: Near, weights: Weights, i: int, j: int) -> float:
    """Return the weighted mean of column j of a table over the cells of row i."""
    mean: float = weights[i, 0] * table[cells[i, 0], j]
    for t in range(1, N_NEAREST):
        mean += weights[i, t] * table[cells[i, t], j]
    return mean


@compiled
def write_three(
    observations: Observations, origin: FloatArray, transform: FloatArray, columns: FloatArray,
    width: float, points: Points, cells: Near, weights: Weights, centred: FloatArray,
    point: FloatArray, squares: FloatArray, scores: FloatArray,
) -> None:  # fmt: skip
    """Write what :func:`assign_three` returns; ``columns`` are codevectors, shape (d, K).

    Each row by itself: a product of matrices has other bits where it has other rows. ``centred``
    and ``point``, (d,), ``squares``, (K,), and ``scores``, (3,), are scratch.
    """
    d, n_cells = columns.shape
    for i in range(observations.shape[0]):
        for j in range(d):
            centred[j] = observations[i, j] - origin[j]
        for j in range(d):
            x = 0.0
            for l in range(d):  # noqa: E741
                x += transform[j, l] * centred[l]
            point[j] = points[i, 1 + j] = x
        squared_distances(columns, point, n_cells, squares)
        first, second, third, scores[0], scores[1], scores[2] = three_least(squares)
        cells[i, 0], cells[i, 1], cells[i, 2] = first, second, third
        total = gibbs_weights(scores, scores.shape[0], width)
        for m in range(scores.shape[0]):
            weights[i, m] = scores[m] / total if scores[m] > _MIN_WEIGHT * total else 0.0


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


def place(
    taken: TakenActions, cells: Near, weights: Weights, steps: FloatArray, n_cells: int
) -> tuple[FloatArray, Labels]:
    """Place the action codevectors of all K cells; return them, shape (K, J, p), and labels.

    Labels, (n, 3), number the codevectors nearest to the action in each of the three cells.
    """
    parts = np.repeat(taken.common[None], n_cells, axis=0)
    labels = np.zeros((len(taken.actions), 3), dtype=np.int16)
    label(taken.actions, cells, parts, labels)
    sums = np.concatenate([np.ones((*parts.shape[:2], 1)), parts], axis=2) * _PRIOR
    going_on = steps[:, MARK] == GOES_ON
    rows = np.column_stack([np.ones(len(labels)), taken.actions])[going_on, None]
    np.add.at(sums, (cells[going_on], labels[going_on]), weights[going_on, :, None] * rows)
    parts = np.ascontiguousarray(sums[:, :, 1:] / sums[:, :, :1])
    label(taken.actions, cells, parts, labels)
    return parts, labels
