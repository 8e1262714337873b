"""Values fitted to all transitions: sweeps of Q-iteration with a ridge regression in each cell.

:func:`fit` places cells by online deterministic annealing in the learned metric, then repeats
sweeps of fitted Q-iteration: Watkins' λ-returns of all trajectories, and a weighted ridge
regression in each cell,

    min Σ w (Y − q_a − <g, y − c>)² + m Σ_a (q_a − V_opt)² + precision |g|²,

with one slope g for all actions, as in the analysis of covariance. V_opt, the best discounted
return so far, is the prior value of actions that were not tried in a cell. For discrete states,
action codevectors and logs; else see :mod:`oda_rl.agents.fitting.advantages`.

References
----------
C. J. C. H. Watkins, "Learning from delayed rewards", PhD thesis, Cambridge, 1989.
"""

from typing import NamedTuple

import numpy as np

from oda_rl._compile import boolean, compiled, integer
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.memory import CUT, GOES_ON, MARK, REWARD, TERMINAL, discounted_returns
from oda_rl.agents.fitting.cells import (
    N_NEAREST,
    Assigned,
    Cells,
    Experience,
    assign,
    blended,
    place_cells,
)
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import CellPolicy, CodevectorPolicy
from oda_rl.diagram import ordered

_METRIC_SAMPLE = 20_000  # steps
_FAR_OFF = 10.0  # standard deviations of rewards, beyond which differences are small beside values
FIRST_SWEEPS, SWEEPS = 100, 20  # maximum numbers, at the first fit and at later ones
_TOLERANCE = 1e-3  # of the changes of values, as a share of (1 - gamma) of their range


class Fit(NamedTuple):
    """The result of a fit."""

    policy: CellPolicy
    values: FloatArray  # value of each row, to begin the next fit with; shape (n,)
    metric: FloatArray | None  # for the next fit: shape (d, d), in standard deviations
    scale: FloatArray  # inverse standard deviations, shape (d,)


class Iterated(NamedTuple):
    """The result of sweeps: values of rows and λ-returns of steps, (n,), and the models."""

    values: FloatArray
    targets: FloatArray
    theta: FloatArray  # a value for each action, and slopes, in each cell: shape (K, A + d)
    offsets: FloatArray


class Belief(NamedTuple):
    """Prior knowledge of values."""

    low: float
    high: float  # bounds of all values
    prior: float  # value of an action that was not tried in a cell
    weight: float  # weight of the prior, in transitions
    barred: FloatArray | None = None  # penalty of actions in cells, (K, A), when the best is chosen


class Reach(NamedTuple):
    """Discount factor and λ of returns, and bounds of values."""

    gamma: float
    trace_decay: float
    low: float
    high: float


def hopes_of(steps: FloatArray, config: FittedQConfig) -> Belief:
    """Return optimistic priors: the best return so far, beyond truncations with the mean reward."""
    taken = steps[:, MARK] == GOES_ON
    mean, least = float(steps[taken, REWARD].mean()), float(steps[taken, REWARD].min())
    horizon = 1.0 / (1.0 - config.gamma)
    prior, high, worst = discounted_returns(steps, config.gamma, mean * horizon)
    low = max(min(0.0, least) * horizon, worst - 0.25 * (high - worst))
    return Belief(low, high, min(prior, high), config.optimism)


def reward_origin(steps: FloatArray) -> float:
    """Return the mean reward if it is far from 0 and nothing has terminated, else 0.

    Then it may be subtracted: all values change by that of its endless sum.
    """
    rewards = steps[steps[:, MARK] == GOES_ON, REWARD]
    far_off = abs(rewards.mean()) > _FAR_OFF * rewards.std() and np.ptp(rewards) > 0.0
    return float(rewards.mean()) if far_off and (steps[:, MARK] != TERMINAL).all() else 0.0


@compiled
def add_moments(
    rows: Assigned, codevectors: FloatArray, moments: FloatArray, x: FloatArray
) -> None:
    """Add w z zᵀ to the upper triangles of moments, shape (K, A + d, A + d); ``x``, (d,): scratch.

    z has a one for the label of a step, and y - c.
    """
    points, cells, weights, labels, steps = rows
    d = codevectors.shape[1]
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
                value = points[i, 1 + j] - codevectors[k, j]
                x[j] = value
                weighted = w * value
                moments[k, action, n_actions + j] += weighted
                for l in range(j + 1):  # noqa: E741
                    moments[k, n_actions + l, n_actions + j] += weighted * x[l]


def moments_of(rows: Assigned, at: Cells, n_actions: int) -> FloatArray:
    """Return the moments of all rows, shape (K, A + d, A + d)."""
    n, d = at.codevectors.shape
    moments = np.zeros((n, n_actions + d, n_actions + d))
    add_moments(rows, at.codevectors, moments, np.empty(d))
    return moments


class Regression:
    """The regressions of K cells, whose ``moments`` (changed) stay from sweep to sweep."""

    def __init__(self, moments: FloatArray, at: Cells, belief: Belief) -> None:
        n, d = at.codevectors.shape
        size = moments.shape[1]
        n_actions = size - d
        diagonal = np.einsum("kii->ki", moments)
        slopes = diagonal[:, n_actions:]
        slopes += 10.0 * at.width / d + 0.01 * slopes.mean(axis=1, keepdims=True) + 1e-6
        diagonal[:, :n_actions] += belief.weight
        row, column = np.triu_indices(size, 1)
        moments[:, column, row] = moments[:, row, column]
        self._inverse = np.asarray(np.linalg.inv(moments), dtype=np.float64)
        self._codevectors = at.codevectors
        self._prior = belief.weight * belief.prior
        self.theta = np.zeros((n, size))
        self.offsets = np.zeros(n)

    def solve(self, sums: FloatArray) -> None:
        """Set the models to those of new targets: w Y and w Y y of steps, (K, A + d).

        Term by term, as matrix products have other bits on other machines.
        """
        n_actions = sums.shape[1] - self._codevectors.shape[1]
        totals, right = np.zeros((len(sums), 1)), sums + self._prior
        for action in range(n_actions):
            totals += sums[:, [action]]
        right[:, n_actions:] = sums[:, n_actions:] - totals * self._codevectors
        self.theta.fill(0.0)
        for j in range(sums.shape[1]):
            self.theta += self._inverse[:, :, j] * right[:, [j]]
        self.offsets.fill(0.0)
        for slope, column in zip(self.theta.T[n_actions:], self._codevectors.T, strict=True):
            self.offsets -= slope * column


def policy_of(at: Cells, parts: FloatArray | None, found: Iterated) -> CellPolicy:
    """Return a fit's policy in the observation's units; ``parts``: action codevectors, or None."""
    transform, codevectors = at.transform, at.codevectors
    n_actions = found.theta.shape[1] - len(at.origin)
    values, slopes = found.theta[:, :n_actions], found.theta[:, n_actions:] @ transform
    models = np.ascontiguousarray(np.column_stack([found.offsets, slopes, values]))
    diagram = np.column_stack([(codevectors**2).sum(axis=1), -2.0 * codevectors @ transform])
    diagram = ordered(np.ascontiguousarray(diagram))
    seen_as = (np.linalg.pinv(transform) @ codevectors.T).T + at.origin
    policy = CellPolicy(at.origin, diagram, models, at.width, N_NEAREST, seen_as)
    return policy if parts is None else CodevectorPolicy(**vars(policy), parts=parts)


def averaged_metric(
    seen: Experience, rows: Assigned, at: Cells, found: Iterated, learned: FloatArray | None,
    rng: np.random.Generator,
) -> FloatArray | None:  # fmt: skip
    """Average the metric of the gradients of a fit with the one before, shape (d, d)."""
    n = len(found.values)
    drawn: IntArray | slice = slice(n)
    points = seen.observations[:n]
    if n > _METRIC_SAMPLE:
        drawn = rng.integers(n, size=_METRIC_SAMPLE)
        points = seen.observations.take(drawn, axis=0)
    groups = rows.cells[drawn, 0].astype(np.int64) * seen.n_actions + rows.labels[drawn, 0]
    groups[seen.steps[drawn, MARK] != GOES_ON] = -1
    outer = at.units.outer(points - at.origin, groups, found.targets[drawn])
    return at.units.average(learned, outer)


@compiled
def sweep(
    rows: Assigned, theta: FloatArray, offsets: FloatArray, barred: FloatArray, first: bool,
    reach: Reach, values: FloatArray, targets: FloatArray, sums: FloatArray,
) -> float:  # fmt: skip
    """Update the values of all rows, and add up what the next regression needs.

    Backwards through the trajectories: the value of a row by the models, within bounds; then the
    λ-return of its step, which is written to ``targets``; w Y and w Y y go to ``sums``, (K, A + d).
    An action is greedy if its label in the nearest cell is. The penalties ``barred``, (K, A), or
    (0, A) for none, count when the best action is chosen, not in its value. In the ``first`` sweep
    values stay, and returns are of one step. Returns the sum of the changes of values.
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
            value = min(max(value + of_best, low), high)
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
    """Fit cells and models to trajectories, from ``values`` of rows (changed), or from nothing."""
    at = place_cells(seen, learned, config, rng)
    rows, parts = assign(seen, at)
    rounds = FIRST_SWEEPS if values is None else SWEEPS
    hopes = hopes_of(seen.steps, config)
    if seen.numbered and values is not None and learned is not None:  # none for novelty
        # Where truncations hide what a better policy returns, an untried action returns even more.
        best = float(seen.steps[:, REWARD].max()) + config.gamma * float(values.max())
        hopes = hopes._replace(prior=min(max(hopes.prior, best), hopes.high))
    found = iterate(rows, at, values, hopes, seen.n_actions, rounds, config)
    averaged = averaged_metric(seen, rows, at, found, learned, rng)
    return Fit(policy_of(at, parts, found), found.values, averaged, at.units.scale)


def iterate(
    rows: Assigned, at: Cells, values: FloatArray | None, belief: Belief, n_actions: int,
    rounds: int, config: FittedQConfig,
) -> Iterated:  # fmt: skip
    """Repeat sweeps of fitted Q-iteration, at most ``rounds`` times."""
    n, low, high = len(rows.points), belief.low, belief.high
    if values is None:
        values = np.full(n, belief.prior)
    solver = Regression(moments_of(rows, at, n_actions), at, belief)
    targets = np.zeros(n)
    tolerance = _TOLERANCE * (high - low) * (1.0 - config.gamma) * n
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
