"""Partition and Q-function fitted to all transitions: the batch part of :class:`FittedQAgent`.

:func:`fit` places cells by online deterministic annealing in the learned metric, then repeats
sweeps of fitted Q-iteration: Watkins' λ-returns of all trajectories, and a weighted ridge
regression in each cell,

    min Σ w (Y − q_a − <g, y − c>)² + m Σ_a (q_a − V_opt)² + precision |g|²,

with one slope g for all actions, as in the analysis of covariance. V_opt is the best discounted
return seen: an action that was not tried in a cell is worth that much. So it is where states are
numbered, or actions have codevectors; else see :mod:`oda_rl.agents.fitted.advantages`.

References
----------
D. Ernst, P. Geurts, L. Wehenkel, "Tree-based batch mode reinforcement learning", JMLR 6 (2005).
C. J. C. H. Watkins, "Learning from delayed rewards", PhD thesis, Cambridge, 1989.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl import metric
from oda_rl._compile import boolean, compiled, integer
from oda_rl._types import FloatArray
from oda_rl.agents.engine.axes import informative
from oda_rl.agents.engine.memory import (
    ACTION,
    CUT,
    GOES_ON,
    MARK,
    REWARD,
    TERMINAL,
    discounted_returns,
)
from oda_rl.agents.engine.state import Observations
from oda_rl.agents.fitted.action_codevectors import TakenActions, place
from oda_rl.agents.fitted.settings import FittedQConfig
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.agents.policies.codevectors import CodevectorPolicy
from oda_rl.annealing.placing import anneal
from oda_rl.diagram import three_least

Labels = npt.NDArray[np.int16]
Targets = npt.NDArray[Any]  # of single precision, or double

_SAMPLE = 3000  # states that the partition is annealed on
WIDTH_SAMPLE, _METRIC_SAMPLE = 1000, 20_000  # states and steps for widths, and the metric
_LEAST_CELLS, _LEAST_WEIGHT = 4, 1e-4
_METRIC_POWER = 0.5
_CHUNK = 16_384
_SINGLE = 1e-34, 1e30  # returns between, of the largest; others are kept in double precision


@compiled
def assign_three(
    points: FloatArray,
    columns: FloatArray,
    width: float,
    scratch: FloatArray,
    cells: npt.NDArray[np.uint16],
    weights: npt.NDArray[np.float32],
) -> None:
    """Write the three nearest cells of points, shape (n, d), and their weights, both (n, 3).

    ``columns``, shape (d, K ≥ 3): the codevectors; ``scratch``, shape (K,). Weights below 1e-4 are
    0, and the others not divided by their sum then.
    """
    d, n_cells = columns.shape
    for i in range(points.shape[0]):
        for k in range(n_cells):
            scratch[k] = 0.0
        for j in range(d):
            x = points[i, j]
            for k in range(n_cells):
                gap = x - columns[j, k]
                scratch[k] += gap * gap
        first, second, third, a, b, c = three_least(scratch)
        near, far = math.exp((a - b) / width), math.exp((a - c) / width)
        total = 1.0 + near + far
        cells[i, 0], cells[i, 1], cells[i, 2] = first, second, third
        weights[i, 0] = 1.0 / total
        weights[i, 1] = near / total if near > _LEAST_WEIGHT * total else 0.0
        weights[i, 2] = far / total if far > _LEAST_WEIGHT * total else 0.0


@compiled
def add_moments(
    points: npt.NDArray[np.float32],
    cells: npt.NDArray[np.uint16],
    weights: npt.NDArray[np.float32],
    labels: Labels,
    steps: FloatArray,
    codevectors: FloatArray,
    moments: FloatArray,
    x: FloatArray,
) -> None:
    """Add w z zᵀ to the upper triangles of moments, shape (K, A + d, A + d).

    z has a one for the action of a step, and y - c; ``labels``, shape (n, 3), say which action that
    is in each of the three cells. ``x``, shape (d,), is scratch.
    """
    d = points.shape[1]
    n_actions = moments.shape[1] - d
    for i in range(points.shape[0]):
        if steps[i, MARK] != GOES_ON:
            continue
        for t in range(cells.shape[1]):
            w = weights[i, t]
            if w == 0.0:
                continue
            k, action = cells[i, t], labels[i, t]
            moments[k, action, action] += w
            for j in range(d):
                value = points[i, j] - codevectors[k, j]
                x[j] = value
                weighted = w * value
                moments[k, action, n_actions + j] += weighted
                for l in range(j + 1):  # noqa: E741
                    moments[k, n_actions + l, n_actions + j] += weighted * x[l]


@compiled
def sweep(
    points: npt.NDArray[np.float32],
    cells: npt.NDArray[np.uint16],
    weights: npt.NDArray[np.float32],
    labels: Labels,
    steps: FloatArray,
    theta: FloatArray,
    offsets: FloatArray,
    barred: FloatArray,
    first: bool,
    discount: float,
    trace_decay: float,
    low: float,
    high: float,
    values: FloatArray,
    targets: Targets,
    sums: FloatArray,
) -> float:
    """Bring the values of all rows up to date, and add up what the next regression needs.

    ``labels`` are those of :func:`add_moments`; an action is greedy if that of the nearest cell is.
    Backwards through the trajectories: the value of a row by the models ``theta``, shape (K,
    A + d), and ``offsets``, shape (K,), within [low, high]; then the λ-return of its step, which is
    written to ``targets``; w Y and w Y y go to ``sums``, shape (K, A + d). What is ``barred``, (K,
    A), or (0, A) for nothing, counts when the best action is chosen, and not in its value. In the
    ``first`` sweep values stay as they are, and returns are of one step.

    Returns
    -------
    float
        Sum of the changes of values.
    """
    n, d = points.shape
    n_actions = theta.shape[1] - d
    change = 0.0
    next_value, next_return, follows = 0.0, 0.0, boolean(False)
    for i in range(n - 1, -1, -1):
        mark = steps[i, MARK]
        if mark == TERMINAL:
            values[i] = 0.0
            next_value, next_return, follows = 0.0, 0.0, False
            continue
        one, two, three = cells[i, 0], cells[i, 1], cells[i, 2]
        u, v, w = weights[i, 0], weights[i, 1], weights[i, 2]
        value, best = values[i], integer(-1)
        if not first:
            value = u * offsets[one] + v * offsets[two] + w * offsets[three]
            largest, of_best = -np.inf, 0.0
            for j in range(n_actions + d):
                blended = u * theta[one, j] + v * theta[two, j] + w * theta[three, j]
                if j >= n_actions:
                    value += blended * points[i, j - n_actions]
                    continue
                liked = blended
                if barred.shape[0] > 0:
                    liked -= u * barred[one, j] + v * barred[two, j] + w * barred[three, j]
                if liked > largest:
                    largest, of_best, best = liked, blended, j
            value += of_best
            if value < low:
                value = low
            elif value > high:
                value = high
            change += abs(value - values[i])
            values[i] = value
        if mark == CUT:
            next_value, next_return, follows = value, value, False
            continue
        future = next_value
        if follows:
            future = (1.0 - trace_decay) * next_value + trace_decay * next_return
        target = steps[i, REWARD] + discount * future
        targets[i] = target
        u, v, w = u * target, v * target, w * target
        sums[one, labels[i, 0]] += u
        sums[two, labels[i, 1]] += v
        sums[three, labels[i, 2]] += w
        for j in range(d):
            x = points[i, j]
            sums[one, n_actions + j] += u * x
            sums[two, n_actions + j] += v * x
            sums[three, n_actions + j] += w * x
        next_value, next_return, follows = value, target, best == labels[i, 0]
    return change


class Belief(NamedTuple):
    """What is believed of values before anything is known of them."""

    low: float
    high: float
    """No state is worth less, or more."""
    prior: float
    """What an action is worth that was not tried in a cell."""
    weight: float
    """Of that belief, in transitions."""
    barred: FloatArray | None = None
    """Subtracted from the value of each action in each cell when the best is chosen, (K, A)."""


class Experience(NamedTuple):
    """What a fit is made to."""

    observations: Observations
    """Rows of a :class:`oda_rl.agents.engine.memory.Memory`, shape (n, d)."""
    steps: FloatArray
    """Their steps, shape (n, 3 or more)."""
    n_actions: int
    """Number of actions, or of codevectors of actions in each cell."""
    numbered: bool = False
    """Whether every value of the observation, a number, is a cell of its own."""
    taken: TakenActions | None = None
    """Continuous actions, of which codevectors are placed in each cell; the policy is a
    :class:`oda_rl.agents.policies.codevectors.CodevectorPolicy` then."""


class Fit(NamedTuple):
    """What a fit leaves behind."""

    policy: CellPolicy
    values: FloatArray
    """Value of each row, to begin the next fit with; shape (n,)."""
    metric: FloatArray | None
    """For the next fit: shape (d, d), in standard deviations of the observation."""
    scale: FloatArray
    """Inverse standard deviations, shape (d,)."""


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

    points: npt.NDArray[np.float32]
    """Transformed, shape (n, d)."""
    cells: npt.NDArray[np.uint16]
    """Shape (n, 3)."""
    weights: npt.NDArray[np.float32]
    """Shape (n, 3)."""
    labels: Labels
    """Which action the step's is in each of them, shape (n, 3)."""
    steps: FloatArray
    """Shape (n, 3 or more)."""


class Iterated(NamedTuple):
    """What sweeps leave behind: values of rows and λ-returns of steps, (n,), and the models."""

    values: FloatArray
    targets: Targets
    theta: FloatArray
    """A value for each action, and slopes, in each cell: shape (K, A + d)."""
    offsets: FloatArray


def fit(
    seen: Experience,
    values: FloatArray | None,
    learned: FloatArray | None,
    config: FittedQConfig,
    rng: np.random.Generator,
) -> Fit:
    """Fit cells and their models to trajectories.

    Parameters
    ----------
    seen : Experience
        The trajectories.
    values : ndarray, shape (n,), or None
        Values to begin with; changed. None for the first fit.
    learned : ndarray, shape (d, d), or None
        The metric of earlier fits.
    config : FittedQConfig
        Settings.
    rng : numpy.random.Generator
        Draws the states that the partition is annealed on.
    """
    at = place_cells(seen, learned, config, rng)
    rows, parts = assign(seen, at)
    rounds = config.first_sweeps if values is None else config.sweeps
    hopes = hopes_of(seen.steps, config)
    found = iterate(rows, at, values, hopes, seen.n_actions, rounds, config)
    return delivered(seen, rows, at, parts, found, learned, rng)


def delivered(
    seen: Experience,
    rows: Assigned,
    at: Cells,
    parts: FloatArray | None,
    found: Iterated,
    learned: FloatArray | None,
    rng: np.random.Generator,
) -> Fit:
    """Return a fit's policy, and the metric that its gradients make of the one before."""
    policy = _policy(at, found.theta, found.offsets, seen.n_actions)
    if parts is not None:
        policy = CodevectorPolicy(**vars(policy), parts=parts)
    n = len(found.values)
    drawn = rng.integers(n, size=_METRIC_SAMPLE) if n > _METRIC_SAMPLE else np.arange(n)
    groups = rows.cells[drawn, 0].astype(np.int64) * seen.n_actions + rows.labels[drawn, 0]
    groups[seen.steps[drawn, MARK] != GOES_ON] = -1
    outer = at.units.outer(
        seen.observations[drawn] - at.origin,
        groups,
        found.targets[drawn].astype(np.float64),
        len(at.codevectors) * seen.n_actions,
    )
    return Fit(policy, found.values, at.units.average(learned, outer), at.units.scale)


def place_cells(
    seen: Experience, learned: FloatArray | None, config: FittedQConfig, rng: np.random.Generator
) -> Cells:
    """Anneal cells among states from which steps were taken, in the learned metric."""
    n, d = seen.observations.shape
    sample = np.unique(seen.observations, axis=0) if seen.numbered else sample_of(seen, rng)
    origin, covariance = metric.covariance(sample)
    learning = config.metric == "learned"
    axes = seen.numbered or not learning or informative(seen.observations, seen.steps)
    units = metric.Units.of(origin, covariance, axes)
    transform = units.transform(learned if learning else None, _METRIC_POWER)
    codevectors = np.ascontiguousarray((sample - origin) @ transform.T)
    if not seen.numbered:
        codevectors = anneal(codevectors, n_cells(n, d, config), rng)
    width = width_of((sample[:WIDTH_SAMPLE] - origin) @ transform.T, codevectors)
    return Cells(origin, units, transform, codevectors, width)


def assign(seen: Experience, at: Cells) -> tuple[Assigned, FloatArray | None]:
    """Return the rows by their cells, and where codevectors of actions lie, if there are any."""
    n, d = seen.observations.shape
    points = np.empty((n, d), dtype=np.float32)
    cells, weights = np.empty((n, 3), dtype=np.uint16), np.empty((n, 3), dtype=np.float32)
    columns = columns_of(at.codevectors)
    scratch = np.empty(columns.shape[1])
    for begin in range(0, n, _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        embedded = (seen.observations[rows] - at.origin) @ at.transform.T
        points[rows] = embedded
        assign_three(embedded, columns, at.width, scratch, cells[rows], weights[rows])
    if seen.taken is None:
        numbers = seen.steps[:, ACTION, None].astype(np.int16)
        labels = np.broadcast_to(numbers, (n, 3))  # saves memory
        return Assigned(points, cells, weights, labels, seen.steps), None
    parts, labels = place(seen.taken, cells, weights, seen.steps, len(at.codevectors))
    return Assigned(points, cells, weights, labels, seen.steps), parts


def hopes_of(steps: FloatArray, config: FittedQConfig) -> Belief:
    """Return what is believed while more can be seen: the best return so far."""
    most, least = discounted_returns(steps, config.discount)
    lowest = min(0.0, float(steps[:, REWARD].min())) / (1.0 - config.discount)
    low = max(lowest, least - 0.25 * (most - least))
    return Belief(low, most, most, config.optimism)


def iterate(
    rows: Assigned,
    at: Cells,
    values: FloatArray | None,
    belief: Belief,
    n_actions: int,
    rounds: int,
    config: FittedQConfig,
) -> Iterated:
    """Repeat sweeps of fitted Q-iteration, at most so many ``rounds``."""
    n, low, high = len(rows.points), belief.low, belief.high
    if values is None:
        values = np.full(n, belief.prior)
    solver = Regression(rows, at, n_actions, belief)
    single = _SINGLE[0] < max(high, -low) < _SINGLE[1]
    targets = np.zeros(n, dtype=np.float32 if single else np.float64)
    tolerance = config.tolerance * (high - low) * (1.0 - config.discount) * n
    decay = config.discount, config.trace_decay
    barred = np.zeros((0, n_actions)) if belief.barred is None else belief.barred
    for i in range(rounds):
        sums = np.zeros_like(solver.theta)
        models = solver.theta, solver.offsets, barred
        change = sweep(*rows, *models, i == 0, *decay, low, high, values, targets, sums)
        solver.solve(sums)
        if i > 0 and change <= tolerance:
            break
    if belief.barred is not None:
        solver.theta[:, :n_actions] -= belief.barred
    return Iterated(values, targets, solver.theta, solver.offsets)


def _policy(at: Cells, theta: FloatArray, offsets: FloatArray, n_actions: int) -> CellPolicy:
    """Return cells and models in the observation's units."""
    transform, codevectors = at.transform, at.codevectors
    diagram = np.column_stack([(codevectors**2).sum(axis=1), -2.0 * codevectors @ transform])
    shared = offsets, theta[:, n_actions:] @ transform
    return CellPolicy(
        at.origin,
        np.ascontiguousarray(diagram),
        np.ascontiguousarray(np.column_stack([*shared, theta[:, :n_actions]])),
        at.width,
        (np.linalg.pinv(transform) @ codevectors.T).T + at.origin,
    )


def sample_of(seen: Experience, rng: np.random.Generator) -> FloatArray:
    """Draw states from which a step was taken."""
    observations, steps = seen.observations, seen.steps
    drawn = rng.integers(len(observations), size=min(len(observations), _SAMPLE))
    taken = drawn[steps[drawn, MARK] == GOES_ON]
    if len(taken) == 0:  # of very short trajectories
        taken = np.flatnonzero(steps[:, MARK] == GOES_ON)
    return np.asarray(observations[taken], dtype=np.float64)


def n_cells(n_rows: int, n_features: int, config: FittedQConfig) -> int:
    """How many cells there may be: .4 √n in four dimensions, .8 √n in eight, but at least 4."""
    found = config.cells_per_root * min(max(n_features / 4, 1.0), 2.0) * math.sqrt(n_rows)
    return min(max(int(found), _LEAST_CELLS), config.max_cells)


def columns_of(codevectors: FloatArray) -> FloatArray:
    """Codevectors as columns, at least three of them; the added ones are infinitely far."""
    columns = np.full((codevectors.shape[1], max(len(codevectors), 3)), np.inf)
    columns[:, : len(codevectors)] = codevectors.T
    return columns


def width_of(points: FloatArray, codevectors: FloatArray) -> float:
    """Mean squared distance from the nearest codevector."""
    gaps = (
        (points**2).sum(axis=1)[:, None]
        + (codevectors**2).sum(axis=1)
        - 2.0 * points @ codevectors.T
    )
    return max(float(gaps.min(axis=1).mean()), 1e-12)


class Regression:
    """The regressions of all cells, whose matrices stay the same from sweep to sweep."""

    def __init__(self, rows: Assigned, at: Cells, n_actions: int, belief: Belief) -> None:
        n, d = at.codevectors.shape
        size = n_actions + d
        moments = np.zeros((n, size, size))
        add_moments(*rows, at.codevectors, moments, np.empty(d))
        diagonal = np.einsum("kii->ki", moments)
        slopes = diagonal[:, n_actions:]
        slopes += 10.0 * at.width / d + 0.01 * slopes.mean(axis=1, keepdims=True) + 1e-6
        diagonal[:, :n_actions] += belief.weight
        whole = np.triu(moments) + np.triu(moments, 1).transpose(0, 2, 1)
        self._inverse = np.linalg.inv(whole)
        self._codevectors = at.codevectors
        self._n_actions = n_actions
        self._prior = belief.weight * belief.prior
        self.theta = np.zeros((n, size))
        self.offsets = np.zeros(n)

    def solve(self, sums: FloatArray) -> None:
        """Set the models to those of new targets; ``sums`` as :func:`sweep` adds them up."""
        a = self._n_actions
        sums[:, a:] -= sums[:, :a].sum(axis=1, keepdims=True) * self._codevectors
        sums[:, :a] += self._prior
        self.theta[:] = (self._inverse @ sums[:, :, None])[:, :, 0]
        self.offsets[:] = -(self.theta[:, a:] * self._codevectors).sum(axis=1)
