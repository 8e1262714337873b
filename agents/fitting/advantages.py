"""Advantages of actions, fitted apart from a baseline of the states.

Advantages are small beside the differences between the states of one cell, and which action was
taken depends on where in the cell that was. So values are sums in two partitions,

    Q(s, a) = B(s) + A(s, a),

of a baseline B, affine in each of many small cells (:func:`oda_rl.agents.fitting.cells.finer`)
and the same for all actions, and of advantages A, constant in the cells that decide. In each sweep
both are fitted to the residuals of the other from Watkins' λ-returns: the baseline by regression,
and an advantage as a mean, shrunken towards 0,

    A_ka = Σ w (Y − B) / (Σ w + 5),  over steps of action a with weights w in cell k.

The policy's cells have advantages, and the level and slope that a baseline would have there.

References
----------
P. M. Robinson, "Root-N-consistent semiparametric regression", Econometrica 56 (1988): effects are
regressed on what is left when all else is partialled out. L. C. Baird, "Reinforcement learning in
continuous time: advantage updating", ICNN 1994. A. Buja, T. Hastie, R. Tibshirani, "Linear
smoothers and additive models", The Annals of Statistics 17 (1989): backfitting.
"""

import numpy as np

from oda_rl._compile import compiled, larger, smaller, spliced
from oda_rl._types import FloatArray
from oda_rl.agents.base.memory import GOES_ON, MARK, REWARD, TERMINAL
from oda_rl.agents.fitting.action_codevectors import Near, Weights
from oda_rl.agents.fitting.cells import Assigned, Experience, Points, blended
from oda_rl.agents.fitting.placed import Placed, Rows
from oda_rl.agents.fitting.regression import (
    Belief,
    Fit,
    Iterated,
    Reach,
    Regression,
    averaged_metric,
    hopes_of,
    policy_of,
)
from oda_rl.agents.fitting.settings import FittedQConfig

_TOLERANCE = 0.02  # the next fit goes on from here
_SHRINKAGE = 5.0  # transitions without an advantage that are believed of each action in each cell


@spliced
def _add_row(
    points: Points, near: Near, weights: Weights, i: int, left: float, sums: FloatArray
) -> None:
    """Add w r and w r y of row i to the sums of its cells, shape (K, 1 + d)."""
    for t in range(3):
        cell, share = near[i, t], weights[i, t] * left
        for j in range(points.shape[1]):
            sums[cell, j] += share * points[i, j]


@compiled
def go_back(
    rows: Assigned,
    near: Near,
    near_weights: Weights,
    advantages: FloatArray,
    baseline: FloatArray,
    first: bool,
    reach: Reach,
    values: FloatArray,
    targets: FloatArray,
    sums: FloatArray,
) -> float:
    """Update values and λ-returns, backwards, and add up what the baseline is fitted to.

    ``advantages``, shape (K, A), are blended over three cells. Values, (n,), are the baseline,
    (n,), plus the greatest of them, within bounds, and 0 after a termination; in the ``first``
    sweep they stay, and returns are of one step. The action of a row is its first label; one that
    is as good as the best is greedy. Residuals r of targets, (n,), without advantages go to
    ``sums``, shape (F, 1 + d): w r and w r y.

    Returns
    -------
    float
        Sum of the changes of values.
    """
    points, cells, weights, labels, steps = rows
    trace_decay = 0.0 if first else reach.trace_decay
    change, future = 0.0, 0.0
    for i in range(points.shape[0] - 1, -1, -1):
        mark = steps[i, MARK]
        if mark == TERMINAL:
            values[i], future = 0.0, 0.0
            continue
        action = larger(labels[i, 0], 0)  # -1 where no step was taken
        taken = blended(advantages, cells, weights, i, action)
        largest = taken
        for a in range(advantages.shape[1]):
            largest = larger(largest, blended(advantages, cells, weights, i, a))
        value = values[i]
        if not first:
            before, value = value, smaller(larger(baseline[i] + largest, reach.low), reach.high)
            change += abs(value - before)
            values[i] = value
        if mark != GOES_ON:
            future = value
            continue
        target = steps[i, REWARD] + reach.gamma * future
        targets[i] = target
        beyond = (1.0 - trace_decay) * value + trace_decay * target
        future = beyond if taken == largest else value
        _add_row(points, near, near_weights, i, target - taken, sums)
    return change


@compiled
def go_on(
    rows: Assigned,
    near: Near,
    near_weights: Weights,
    models: FloatArray,
    targets: FloatArray,
    baseline: FloatArray,
    sums: FloatArray,
) -> None:
    """Write the baseline of rows, (n,), and add up its residuals for the advantages.

    ``models`` are levels and slopes, shape (F, 1 + d); w r goes to ``sums``, shape (K, A).
    """
    points, cells, weights, labels, steps = rows
    for i in range(points.shape[0]):
        value = 0.0
        for j in range(points.shape[1]):
            value += blended(models, near, near_weights, i, j) * points[i, j]
        baseline[i] = value
        if steps[i, MARK] == GOES_ON:
            left, action = targets[i] - value, labels[i, 0]
            for t in range(3):
                sums[cells[i, t], action] += weights[i, t] * left


@compiled
def add_levels(
    rows: Assigned, advantages: FloatArray, targets: FloatArray, sums: FloatArray
) -> None:
    """Add up residuals of targets from advantages in the policy's cells: w r, w r y, (K, 1 + d)."""
    points, cells, weights, labels, steps = rows
    for i in range(points.shape[0]):
        if steps[i, MARK] == GOES_ON:
            left = targets[i]
            for t in range(3):
                left -= weights[i, t] * advantages[cells[i, t], labels[i, 0]]
            _add_row(points, cells, weights, i, left, sums)


def fit_advantages(
    seen: Experience,
    placed: Placed,
    settled: int,
    values: FloatArray | None,
    learned: FloatArray | None,
    config: FittedQConfig,
    rng: np.random.Generator,
) -> Fit:
    """Fit a baseline and advantages to trajectories, in cells that have been ``placed``.

    ``settled`` is that of :meth:`Placed.assign`; the other parameters are those of
    :func:`oda_rl.agents.fitting.joint.fit`. The metric stays as long as the cells.
    """
    rows = placed.assign(seen, settled)
    rounds = config.first_sweeps if values is None else config.sweeps
    hopes = hopes_of(seen.steps, config)
    found = iterate(rows, placed, values, hopes, rounds, config)
    at = placed.at
    if placed.anew:
        learned = averaged_metric(seen, rows.coarse, at, found, learned, rng)
        placed.anew = False
    return Fit(policy_of(at, None, found), found.values, learned, at.units.scale)


def iterate(
    rows: Rows,
    placed: Placed,
    values: FloatArray | None,
    hopes: Belief,
    rounds: int,
    config: FittedQConfig,
) -> Iterated:
    """Repeat sweeps of fitted Q-iteration, at most so many ``rounds``."""
    own, near, near_weights, moments = rows
    n = len(own.points)
    values = np.full(n, hopes.prior) if values is None else values
    reach = Reach(config.gamma, config.trace_decay, hopes.low, hopes.high)
    share = _TOLERANCE if config.tolerance is None else config.tolerance
    tolerance = share * (hopes.prior - hopes.low) * (1.0 - config.gamma) * n
    counts = moments.counts + _SHRINKAGE
    solver = Regression(moments.fine, placed.fine, hopes)
    advantages, baseline, targets = np.zeros_like(counts), *np.zeros((2, n))
    sums, added = np.zeros_like(solver.theta), np.zeros_like(counts)
    for i in range(rounds):
        parts = advantages, baseline
        sums.fill(0.0)
        change = go_back(own, near, near_weights, *parts, i == 0, reach, values, targets, sums)
        solver.solve(sums)
        models = solver.theta.copy()
        models[:, 0] += solver.offsets
        added.fill(0.0)
        go_on(own, near, near_weights, models, targets, baseline, added)
        advantages = added / counts
        if i > 0 and change <= tolerance:
            break
    level = Regression(moments.coarse, placed.at, hopes)
    sums = np.zeros_like(level.theta)
    add_levels(own, advantages, targets, sums)
    level.solve(sums)
    theta = np.column_stack([level.theta[:, :1] + advantages, level.theta[:, 1:]])
    return Iterated(values, targets, theta, level.offsets)
