"""Advantages of actions, told apart from what a state is worth whatever is done there.

What an action adds is little beside how much the states of one cell differ in worth, and which
action was taken depends on where in the cell that was. So values are sums in two partitions,

    Q(s, a) = B(s) + A(s, a),

of a baseline B, affine in each of many small cells and the same for all actions, and of advantages
A, constant in the cells that decide. In each sweep both are fitted to what the other leaves of
Watkins' λ-returns: the baseline takes out what the state explains, and an advantage is the mean of
what is left, shrunken towards none,

    A_ka = Σ w (Y − B) / (Σ w + 5),  over steps of action a with weights w in cell k.

The policy's cells have advantages, and the level and slope that a baseline would have there. So
its table has as many numbers as :func:`oda_rl.agents.fitted.fitting.fit` leaves.

References
----------
P. M. Robinson, "Root-N-consistent semiparametric regression", Econometrica 56 (1988): effects are
regressed on what is left when all else is partialled out. L. C. Baird, "Reinforcement learning in
continuous time: advantage updating", ICNN 1994. A. Buja, T. Hastie, R. Tibshirani, "Linear
smoothers and additive models", The Annals of Statistics 17 (1989): backfitting.
"""

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled, integer
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.engine.memory import (
    ACTION,
    GOES_ON,
    MARK,
    TERMINAL,
    watkins_targets,
)
from oda_rl.agents.fitted.fitting import (
    WIDTH_SAMPLE,
    Assigned,
    Belief,
    Cells,
    Experience,
    Fit,
    Iterated,
    Regression,
    assign,
    delivered,
    hopes_of,
    place_cells,
    sample_of,
    width_of,
)
from oda_rl.agents.fitted.settings import FittedQConfig
from oda_rl.annealing.placing import anneal_further

_SHRINKAGE = 5.0  # transitions without an advantage that are believed of each action in each cell


@compiled
def improve(
    cells: npt.NDArray[np.uint16],
    weights: npt.NDArray[np.float32],
    steps: FloatArray,
    advantages: FloatArray,
    baseline: FloatArray,
    low: float,
    high: float,
    values: FloatArray,
    greedy: IntArray,
    taken: FloatArray,
) -> float:
    """Bring values and greedy actions of rows up to date, and advantages of what was done there.

    ``advantages`` has shape (K, A); those of a row are blended over its three cells. Values, (n,),
    are the baseline, (n,), plus the greatest of them, within [low, high], and 0 after the end;
    ``greedy`` says of which action, ``taken`` what that of the step is.

    Returns
    -------
    float
        Sum of the changes of values.
    """
    n_actions = advantages.shape[1]
    change = 0.0
    for i in range(values.shape[0]):
        if steps[i, MARK] == TERMINAL:
            values[i] = 0.0
            continue
        one, two, three = cells[i, 0], cells[i, 1], cells[i, 2]
        u, v, w = weights[i, 0], weights[i, 1], weights[i, 2]
        largest, best, action = -np.inf, integer(0), integer(steps[i, ACTION])
        for a in range(n_actions):
            blended = u * advantages[one, a] + v * advantages[two, a] + w * advantages[three, a]
            if a == action:
                taken[i] = blended
            if blended > largest:
                largest, best = blended, a
        value = baseline[i] + largest
        if value < low:
            value = low
        elif value > high:
            value = high
        change += abs(value - values[i])
        values[i] = value
        greedy[i] = best
    return change


@compiled
def add_baseline(
    points: npt.NDArray[np.float32],
    cells: npt.NDArray[np.uint16],
    weights: npt.NDArray[np.float32],
    steps: FloatArray,
    targets: FloatArray,
    taken: FloatArray,
    sums: FloatArray,
) -> None:
    """Add w r and w r y to sums, shape (K, 1 + d), for what advantages leave of targets, (n,)."""
    d = points.shape[1]
    for i in range(points.shape[0]):
        if steps[i, MARK] != GOES_ON:
            continue
        one, two, three = cells[i, 0], cells[i, 1], cells[i, 2]
        left = targets[i] - taken[i]
        u, v, w = weights[i, 0] * left, weights[i, 1] * left, weights[i, 2] * left
        sums[one, 0] += u
        sums[two, 0] += v
        sums[three, 0] += w
        for j in range(d):
            x = points[i, j]
            sums[one, 1 + j] += u * x
            sums[two, 1 + j] += v * x
            sums[three, 1 + j] += w * x


@compiled
def find_baseline(
    points: npt.NDArray[np.float32],
    cells: npt.NDArray[np.uint16],
    weights: npt.NDArray[np.float32],
    theta: FloatArray,
    offsets: FloatArray,
    baseline: FloatArray,
) -> None:
    """Write the baseline of rows, (n,), by its models: ``theta``, (K, 1 + d), and offsets, (K,)."""
    d = points.shape[1]
    for i in range(points.shape[0]):
        one, two, three = cells[i, 0], cells[i, 1], cells[i, 2]
        u, v, w = weights[i, 0], weights[i, 1], weights[i, 2]
        value = u * (offsets[one] + theta[one, 0])
        value += v * (offsets[two] + theta[two, 0])
        value += w * (offsets[three] + theta[three, 0])
        for j in range(d):
            slope = u * theta[one, 1 + j] + v * theta[two, 1 + j] + w * theta[three, 1 + j]
            value += slope * points[i, j]
        baseline[i] = value


@compiled
def add_advantages(
    cells: npt.NDArray[np.uint16],
    weights: npt.NDArray[np.float32],
    steps: FloatArray,
    targets: FloatArray,
    baseline: FloatArray,
    sums: FloatArray,
) -> None:
    """Add w r to sums, shape (K, A), for what the baseline leaves of targets, both (n,)."""
    for i in range(targets.shape[0]):
        if steps[i, MARK] != GOES_ON:
            continue
        left, action = targets[i] - baseline[i], integer(steps[i, ACTION])
        for t in range(cells.shape[1]):
            sums[cells[i, t], action] += weights[i, t] * left


def fit_advantages(
    seen: Experience,
    values: FloatArray | None,
    learned: FloatArray | None,
    config: FittedQConfig,
    rng: np.random.Generator,
) -> Fit:
    """Fit a baseline and advantages to trajectories of discrete actions.

    Parameters and what is returned are those of :func:`oda_rl.agents.fitted.fitting.fit`.
    """
    at = place_cells(seen, learned, config, rng)
    fine = _finer(seen, at, rng)
    rows, finer = assign(seen, at)[0], assign(seen, fine)[0]
    rounds = config.first_sweeps if values is None else config.sweeps
    hopes = hopes_of(seen.steps, config)
    found = iterate_advantages(rows, at, finer, fine, values, hopes, seen.n_actions, rounds, config)
    return delivered(seen, rows, at, None, found, learned, rng)


def _finer(seen: Experience, at: Cells, rng: np.random.Generator) -> Cells:
    """Return cells of one level further down, up to twice as many, in the same metric."""
    embedded = np.ascontiguousarray((sample_of(seen, rng) - at.origin) @ at.transform.T)
    drawn = embedded[:WIDTH_SAMPLE]
    codevectors = anneal_further(at.codevectors, embedded, width_of(drawn, at.codevectors), rng)
    return at._replace(codevectors=codevectors, width=width_of(drawn, codevectors))


def iterate_advantages(
    rows: Assigned,
    at: Cells,
    finer: Assigned,
    fine: Cells,
    values: FloatArray | None,
    hopes: Belief,
    n_actions: int,
    rounds: int,
    config: FittedQConfig,
) -> Iterated:
    """Repeat sweeps of fitted Q-iteration, at most so many ``rounds``."""
    steps, cells, weights = rows.steps, rows.cells, rows.weights
    n, k = len(steps), len(at.codevectors)
    values = np.full(n, hopes.prior) if values is None else values
    low, high = hopes.low, hopes.high
    tolerance = config.tolerance * (high - low) * (1.0 - config.discount) * n
    counts = np.full((k, n_actions), _SHRINKAGE)
    add_advantages(cells, weights, steps, np.ones(n), np.zeros(n), counts)
    solver = _without_actions(finer, fine, hopes)
    advantages, baseline, taken, targets = np.zeros((k, n_actions)), *np.zeros((3, n))
    greedy = np.zeros(n, dtype=np.int64)
    for i in range(rounds):
        change = np.inf
        if i > 0:
            models = advantages, baseline, low, high
            change = improve(cells, weights, steps, *models, values, greedy, taken)
        decay = config.trace_decay if i > 0 else 0.0
        watkins_targets(steps, values, greedy, config.discount, decay, targets)
        sums = np.zeros_like(solver.theta)
        add_baseline(finer.points, finer.cells, finer.weights, steps, targets, taken, sums)
        solver.solve(sums)
        place = finer.points, finer.cells, finer.weights
        find_baseline(*place, solver.theta, solver.offsets, baseline)
        sums = np.zeros_like(advantages)
        add_advantages(cells, weights, steps, targets, baseline, sums)
        advantages = sums / counts
        if change <= tolerance:
            break
    level = _without_actions(rows, at, hopes)
    sums = np.zeros_like(level.theta)
    add_baseline(rows.points, cells, weights, steps, targets, taken, sums)
    level.solve(sums)
    theta = np.column_stack([level.theta[:, :1] + advantages, level.theta[:, 1:]])
    return Iterated(values, targets, theta, level.offsets)


def _without_actions(rows: Assigned, at: Cells, hopes: Belief) -> Regression:
    """Return the regression of what is the same for all actions."""
    n = len(rows.points)
    same = np.broadcast_to(np.zeros((n, 1), dtype=np.int16), (n, 3))
    return Regression(rows._replace(labels=same), at, 1, hopes)
