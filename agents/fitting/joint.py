"""Partition and Q-function fitted jointly to all transitions.

:func:`fit` places cells by online deterministic annealing in the learned metric, then repeats
sweeps of fitted Q-iteration: Watkins' λ-returns of all trajectories, and a weighted ridge
regression in each cell,

    min Σ w (Y − q_a − <g, y − c>)² + m Σ_a (q_a − V_opt)² + precision |g|²,

with one slope g for all actions, as in the analysis of covariance. V_opt, the best discounted
return so far, is the prior value of actions that were not tried in a cell. For numbered states,
action codevectors and logs; else see :mod:`oda_rl.agents.fitting.advantages`.

References
----------
D. Ernst, P. Geurts, L. Wehenkel, "Tree-based batch mode reinforcement learning", JMLR 6 (2005).
C. J. C. H. Watkins, "Learning from delayed rewards", PhD thesis, Cambridge, 1989.
"""

import numpy as np

from oda_rl._compile import boolean, compiled, integer
from oda_rl._types import FloatArray
from oda_rl.agents.base.memory import CUT, MARK, REWARD, TERMINAL
from oda_rl.agents.fitting.cells import (
    Assigned,
    Cells,
    Experience,
    assign,
    blended,
    place_cells,
)
from oda_rl.agents.fitting.regression import (
    Belief,
    Fit,
    Iterated,
    Reach,
    Regression,
    averaged_metric,
    hopes_of,
    moments_of,
    policy_of,
)
from oda_rl.agents.fitting.settings import FittedQConfig

_TOLERANCE = 1e-3


@compiled
def sweep(
    rows: Assigned,
    theta: FloatArray,
    offsets: FloatArray,
    barred: FloatArray,
    first: bool,
    reach: Reach,
    values: FloatArray,
    targets: FloatArray,
    sums: FloatArray,
) -> float:
    """Update the values of all rows, and add up what the next regression needs.

    Backwards through the trajectories: the value of a row by the models ``theta``, shape (K,
    A + d), and ``offsets``, shape (K,), within bounds; then the λ-return of its step, which is
    written to ``targets``; w Y and w Y y go to ``sums``, shape (K, A + d). An action is greedy if
    its label in the nearest cell is. The penalties ``barred``, (K, A), or (0, A) for none, count
    when the best action is chosen, not in its value. In the ``first`` sweep values stay, and
    returns are of one step.

    Returns
    -------
    float
        Sum of the changes of values.
    """
    points, cells, weights, labels, steps = rows
    gamma, trace_decay, low, high = reach
    n, n_actions = points.shape[0], barred.shape[1]
    d = theta.shape[1] - n_actions
    change = 0.0
    next_value, next_return, follows = 0.0, 0.0, boolean(False)
    for i in range(n - 1, -1, -1):
        mark = steps[i, MARK]
        if mark == TERMINAL:
            values[i] = 0.0
            next_value, next_return, follows = 0.0, 0.0, False
            continue
        value, best = values[i], integer(-1)
        if not first:
            value = 0.0
            for t in range(3):
                value += weights[i, t] * offsets[cells[i, t]]
            largest, of_best = -np.inf, 0.0
            for j in range(n_actions + d):
                model = blended(theta, cells, weights, i, j)
                if j >= n_actions:
                    value += model * points[i, 1 + j - n_actions]
                    continue
                compared = model
                if barred.shape[0] > 0:
                    compared -= blended(barred, cells, weights, i, j)
                if compared > largest:
                    largest, of_best, best = compared, model, j
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
        target = steps[i, REWARD] + gamma * future
        targets[i] = target
        for t in range(3):
            k, w = cells[i, t], weights[i, t] * target
            sums[k, labels[i, t]] += w
            for j in range(d):
                sums[k, n_actions + j] += w * points[i, 1 + j]
        next_value, next_return, follows = value, target, best == labels[i, 0]
    return change


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
    averaged = averaged_metric(seen, rows, at, found, learned, rng)
    return Fit(policy_of(at, parts, found), found.values, averaged, at.units.scale)


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
    solver = Regression(moments_of(rows, at, n_actions), at, belief)
    targets = np.zeros(n)
    share = _TOLERANCE if config.tolerance is None else config.tolerance
    tolerance = share * (high - low) * (1.0 - config.gamma) * n
    reach = Reach(config.gamma, config.trace_decay, low, high)
    barred = np.zeros((0, n_actions)) if belief.barred is None else belief.barred
    for i in range(rounds):
        sums = np.zeros_like(solver.theta)
        models = solver.theta, solver.offsets, barred
        change = sweep(rows, *models, i == 0, reach, values, targets, sums)
        solver.solve(sums)
        if i > 0 and change <= tolerance:
            break
    if belief.barred is not None:
        solver.theta[:, :n_actions] -= belief.barred
    return Iterated(values, targets, solver.theta, solver.offsets)
