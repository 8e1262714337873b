"""Where cells lie among the states of trajectories, and which three of them each state is near."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from oda_rl import metric
from oda_rl._compile import unlocked
from oda_rl._threads import in_parts
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.axes import informative
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK
from oda_rl.agents.base.state import Observations
from oda_rl.agents.fitting.action_codevectors import Labels, Near, TakenActions, Weights, place
from oda_rl.agents.fitting.blending import Points, new_points
from oda_rl.agents.fitting.nearest import Search, assign_three
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.annealing.cells import anneal, anneal_further

_SAMPLE = 3000  # states that the partition is annealed on
_FEW_DIMENSIONS = 4
_LEVELS, _FINER_SAMPLE = 3, 10_000  # for the baseline's cells in more dimensions
_ROWS_PER_NUMBER = 4  # of the models that a further level may have, at least
_WIDTH_SAMPLE = 1000
_LEAST_CELLS = 4
_METRIC_POWER = 0.5
_CHUNK = 16_384
_ROWS_OF_A_THREAD = 4000  # of fewer it takes longer to begin


class Experience(NamedTuple):
    """What a fit is made to."""

    observations: Observations
    """Rows of a :class:`oda_rl.agents.base.memory.Memory`, shape (n, d)."""
    steps: FloatArray
    """Their steps, shape (n, 3 or more)."""
    n_actions: int
    """Number of actions, or of codevectors of actions in each cell."""
    numbered: bool = False
    """Whether every value of the observation, a number, is a cell of its own."""
    taken: TakenActions | None = None
    """Continuous actions, of which codevectors are placed in each cell; the policy is a
    :class:`oda_rl.agents.policies.cells.CodevectorPolicy` then."""


class Cells(NamedTuple):
    """Where the cells of a fit lie."""

    origin: FloatArray
    """Subtracted from observations, shape (d,)."""
    units: metric.Units
    """What distances are measured in where nothing has been learned."""
    transform: FloatArray
    """Distances are Euclidean in ``transform @ point``; shape (d, d)."""
    codevectors: FloatArray
    """There, shape (K, d)."""
    width: float
    """Within which cells are blended."""


class Assigned(NamedTuple):
    """Rows by their three nearest cells, as compiled code takes them."""

    points: Points
    """Transformed, shape (n, 1 + d)."""
    cells: Near
    """Shape (n, 3)."""
    weights: Weights
    """Shape (n, 3)."""
    labels: Labels
    """Which action the step's is in each of them, shape (n, 3)."""
    steps: FloatArray
    """Shape (n, 3 or more)."""


def place_cells(
    seen: Experience, learned: FloatArray | None, config: FittedQConfig, rng: np.random.Generator
) -> Cells:
    """Anneal cells among states from which steps were taken, in the learned metric."""
    n, d = seen.observations.shape
    if seen.numbered:
        sample = np.unique(seen.observations, axis=0)
    else:
        sample = sample_of(seen, _SAMPLE, rng)
    origin, covariance = metric.covariance(sample)
    learning = config.metric == "learned"
    axes = seen.numbered or not learning or informative(seen.observations, seen.steps)
    units = metric.Units.of(origin, covariance, axes)
    transform = units.transform(learned if learning else None, _METRIC_POWER)
    codevectors = np.ascontiguousarray((sample - origin) @ transform.T)
    if not seen.numbered:
        codevectors = anneal(codevectors, n_cells(n, d, config), rng)
    width = width_of((sample[:_WIDTH_SAMPLE] - origin) @ transform.T, codevectors)
    return Cells(origin, units, transform, codevectors, width)


def finer(seen: Experience, at: Cells, rng: np.random.Generator) -> Cells:
    """Return cells further down in the same metric: up to twice as many for each level.

    That is one level; in more than four dimensions, where as many cells are farther apart, up to
    three, as long as there are four rows for each number of their models.
    """
    n, d = seen.observations.shape
    many = d > _FEW_DIMENSIONS
    levels, size = (_LEVELS, _FINER_SAMPLE) if many else (1, _SAMPLE)
    embedded = np.ascontiguousarray((sample_of(seen, size, rng) - at.origin) @ at.transform.T)
    drawn, codevectors = embedded[:_WIDTH_SAMPLE], at.codevectors
    width = width_of(drawn, codevectors)
    for level in range(levels):
        if level > 0 and 2 * len(codevectors) * (1 + d) * _ROWS_PER_NUMBER > n:
            break
        codevectors = anneal_further(codevectors, embedded, width, rng)
        width = width_of(drawn, codevectors)
    return at._replace(codevectors=codevectors, width=width)


def assign(seen: Experience, at: Cells) -> tuple[Assigned, FloatArray | None]:
    """Return the rows by their cells, and where codevectors of actions lie, if there are any."""
    n, d = seen.observations.shape
    points = new_points(n, d)
    cells, weights = np.empty((n, 3), dtype=np.uint16), np.empty((n, 3), dtype=np.float32)
    search = Search.among(at.codevectors, at.width)
    write_cells(seen, np.arange(n), at, points, [(search, cells, weights)])
    if seen.taken is None:
        return Assigned(points, cells, weights, labels_of(seen.steps), seen.steps), None
    parts, labels = place(seen.taken, cells, weights, seen.steps, len(at.codevectors))
    return Assigned(points, cells, weights, labels, seen.steps), parts


def write_cells(
    seen: Experience,
    rows: IntArray,
    at: Cells,
    points: Points,
    partitions: Sequence[tuple[Search, Near, Weights]],
) -> None:
    """Write the points of some rows, and their nearest cells and weights in partitions.

    ``points`` and the partitions' own, (n, 3), have all rows; the partitions are in the metric of
    ``at``. Many rows are divided among threads.
    """
    d = len(at.origin)

    def write(part: IntArray) -> None:
        room, centred = np.empty((min(len(part), _CHUNK), d)), np.empty(d)
        for begin in range(0, len(part), _CHUNK):
            some = part[begin : begin + _CHUNK]
            embedded = room[: len(some)]
            embed(seen.observations, some, at.origin, at.transform, embedded, points, centred)
            for search, cells, weights in partitions:
                assign_three(embedded, search, some, cells, weights)

    in_parts(write, rows, _ROWS_OF_A_THREAD)


def labels_of(steps: FloatArray) -> Labels:
    """Return the actions of steps as labels, which are the same in all three cells, (n, 3)."""
    labels, actions = np.empty((len(steps), 3), dtype=np.int16), steps[:, ACTION].astype(np.int16)
    for t in range(3):  # np.repeat takes twice as long
        labels[:, t] = actions
    return labels


def sample_of(seen: Experience, size: int, rng: np.random.Generator) -> FloatArray:
    """Draw states from which a step was taken, of at most so many rows."""
    observations, steps = seen.observations, seen.steps
    drawn = rng.integers(len(observations), size=min(len(observations), size))
    taken = drawn[steps[drawn, MARK] == GOES_ON]
    if len(taken) == 0:  # of very short trajectories
        taken = np.flatnonzero(steps[:, MARK] == GOES_ON)
    return np.asarray(observations.take(taken, axis=0), dtype=np.float64)


def n_cells(n_rows: int, n_features: int, config: FittedQConfig) -> int:
    """How many cells there may be: .4 √n in four dimensions, .8 √n in eight, but at least 4."""
    share = min(max(n_features / _FEW_DIMENSIONS, 1.0), 2.0)
    found = config.cells_per_root * share * math.sqrt(n_rows)
    return min(max(int(found), _LEAST_CELLS), config.max_cells)


def width_of(points: FloatArray, codevectors: FloatArray) -> float:
    """Mean squared distance from the nearest codevector."""
    scores = points @ (-2.0 * codevectors.T)
    scores += (codevectors**2).sum(axis=1)
    nearest = scores.argmin(axis=1)  # in much less time than the least score itself
    gaps = scores[np.arange(len(scores)), nearest] + (points**2).sum(axis=1)
    return max(float(gaps.mean()), 1e-12)


@unlocked
def embed(
    observations: Observations,
    rows: IntArray,
    origin: FloatArray,
    transform: FloatArray,
    embedded: FloatArray,
    points: Points,
    centred: FloatArray,
) -> None:
    """Write ``transform @ (observation - origin)`` of some rows, (m, d), and to those of points.

    Each by itself: a product of matrices has other bits where it has other rows. ``centred`` is
    scratch, shape (d,).
    """
    d = transform.shape[0]
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(d):
            centred[j] = observations[row, j] - origin[j]
        for j in range(d):
            total = 0.0
            for l in range(d):  # noqa: E741
                total += transform[j, l] * centred[l]
            embedded[i, j] = total
            points[row, 1 + j] = total
