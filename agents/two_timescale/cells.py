"""Soft annealed cells: blended values, their update, and the moves of the slow timescale; compiled.

x is an observation in the learned metric, x = L (o - mean); m_k, q_ka, g_k are the codevector,
values and slope of cell k; T is the temperature at which values are blended, T_o = T / 4 that of
online deterministic annealing. (Uniform cells at their critical temperature are about √(6 T_o)
apart, so that ODA's own memberships are nearly hard: too narrow to blend values by.)

=============  ==================================================================================
memberships    w_k = exp(-|x - m_k|²/T) / Σ, over the six nearest cells
value          Q(x, a) = Σ w_k (q_ka + <g_k, x - m_k>), with one slope for all actions
traces         e ← γλ e + α φ (1 - γλ <e, φ>), φ = (w_k, ρ w_k (x - m_k)) of the action taken
values         θ ← θ + (δ + Q - Q') e - α (Q - Q') φ, Q' being what the last step led to
masses         p_k ← p_k + a (s_k - p_k), s_k = w_k⁴ / Σ: the memberships at T_o
codevectors    m_k ← m_k + b_k (x - m_k), q_k ← q_k + b_k <g_k, x - m_k>, b_k = s_k b(n_k)
covariances    C_k ← C_k + b_k ((x - m_k)(x - m_k)ᵀ - C_k)
merge          the pair of least |m_k - m_l|²/T (1 + |q_k - q_l|²/E δ²) makes room for a birth
birth          at x if |x - m_k|² > 6 T_o for all k, with Q(x, .) as values
=============  ==================================================================================

Splits, cooling and the metric are in :mod:`oda_rl.agents.two_timescale.engine`, in numpy: they come
every 100 steps.

References
----------
H. van Seijen, A. R. Mahmood, P. M. Pilarski, M. C. Machado, R. S. Sutton, "True online
temporal-difference learning", JMLR 17 (2016): algorithm 2 (traces and values).
C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with stochastic
approximation", equations 11 and 12 (masses and codevectors).
K. Rose, "Deterministic annealing for clustering, compression, classification, regression, and
related optimization problems", Proceedings of the IEEE 86 (1998): critical temperatures.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import compiled, integer
from oda_rl._types import FloatArray, IntArray

NEAREST = 6
BLEND = 4.0  # T / T_o
BIRTH = 6.0  # squared distance to the nearest cell, in T_o
SLOPE_RATE = 0.3  # step size of slopes beside that of values, at a distance of √T
MIN_NORM = 0.1  # lower bound of |φ|² in the step size
HEATING = 1.005  # where a birth finds no room and no cheap pair
CUT = 7.0  # cells with w_k below exp(-7) of the greatest are left out
MASS_STEPS = 100_000.0  # samples of the running average of masses
SMALLEST_SHARE, SMALLEST_TRACE = 1e-3, 1e-4
N_CELLS, TEMPERATURE = range(2)  # of Policy.head
MASS, COUNT, BORN, ANCESTOR = range(4)  # rows of Moments.statistics


class Policy(NamedTuple):
    """All that decides, of K cells in d dimensions with A actions."""

    codevectors: FloatArray
    """Shape (K, d), in the metric."""
    values: FloatArray
    """Shape (K, A)."""
    slopes: FloatArray
    """Shape (K, d)."""
    visits: FloatArray
    """Sums of weights of the steps that values were updated by, shape (K, A)."""
    transform: FloatArray
    """L, shape (d, d)."""
    mean: FloatArray
    """Shape (d,)."""
    head: FloatArray
    """Number of cells, and temperature, shape (2,)."""


class Moments(NamedTuple):
    """The slow timescale of the cells that learn."""

    covariances: FloatArray
    """Shape (K, d, d)."""
    statistics: FloatArray
    """Masses, sample counts, steps of birth, and ancestors in the history, shape (4, K)."""


class Traces(NamedTuple):
    """Eligibility traces of n environments."""

    values: FloatArray
    """Shape (n, K, A)."""
    slopes: FloatArray
    """Shape (n, K, d)."""
    last: FloatArray
    """Step at which a cell was last active, shape (n, K); -1 without traces."""


class Blend(NamedTuple):
    """The nearest cells of a point."""

    count: IntArray
    """Shape (1,)."""
    cells: IntArray
    """Shape (NEAREST,)."""
    weights: FloatArray
    """Shape (NEAREST,)."""
    offsets: FloatArray
    """x - m_k, shape (NEAREST, d)."""
    point: FloatArray
    """x, shape (d,)."""


@compiled
def copy(target: Policy, source: Policy) -> None:
    """Copy a policy."""
    target.head[N_CELLS], target.head[TEMPERATURE] = source.head[N_CELLS], source.head[TEMPERATURE]
    d, n_actions = source.slopes.shape[1], source.values.shape[1]
    for i in range(d):
        target.mean[i] = source.mean[i]
        for j in range(d):
            target.transform[i, j] = source.transform[i, j]
    for k in range(int(source.head[N_CELLS])):
        for i in range(d):
            target.codevectors[k, i] = source.codevectors[k, i]
            target.slopes[k, i] = source.slopes[k, i]
        for a in range(n_actions):
            target.values[k, a] = source.values[k, a]
            target.visits[k, a] = source.visits[k, a]


@compiled
def evaluate(policy: Policy, observation: FloatArray, blend: Blend, values: FloatArray) -> float:
    """Write the blend of an observation and Q of all actions; return the least squared distance."""
    n_cells, temperature = int(policy.head[N_CELLS]), policy.head[TEMPERATURE]
    d, n_actions = observation.shape[0], values.shape[0]
    cells, weights, point = blend.cells, blend.weights, blend.point
    for i in range(d):  # x = L (o - mean)
        total = 0.0
        for j in range(d):
            total += policy.transform[i, j] * (observation[j] - policy.mean[j])
        point[i] = total
    n = integer(0)
    for k in range(n_cells):  # the nearest cells, in order of distance
        distance = 0.0
        for i in range(d):
            distance += (point[i] - policy.codevectors[k, i]) ** 2
        if n < NEAREST or distance < weights[n - 1]:
            n = min(n + 1, NEAREST)
            slot = n - 1
            while slot > 0 and weights[slot - 1] > distance:
                weights[slot], cells[slot] = weights[slot - 1], cells[slot - 1]
                slot -= 1
            weights[slot], cells[slot] = distance, k
    nearest = weights[0]
    while weights[n - 1] - nearest > CUT * temperature:
        n -= 1
    total = 0.0
    for j in range(n):  # w_k = exp(-|x - m_k|²/T) / Σ
        weights[j] = math.exp((nearest - weights[j]) / temperature)
        total += weights[j]
    values[:] = 0.0
    for j in range(n):  # Q(x, a) = Σ w_k (q_ka + <g_k, x - m_k>)
        k, weight, along = cells[j], weights[j] / total, 0.0
        weights[j] = weight
        for i in range(d):
            blend.offsets[j, i] = point[i] - policy.codevectors[k, i]
            along += policy.slopes[k, i] * blend.offsets[j, i]
        for a in range(n_actions):
            values[a] += weight * (policy.values[k, a] + along)
    blend.count[0] = n
    return nearest


@compiled
def update(
    policy: Policy,
    traces: Traces,
    env: int,
    blend: Blend,
    action: int,
    error: float,
    change: float,
    alpha: float,
    decay: float,
    step: int,
) -> None:
    """Update values by true online TD(λ).

    ``change`` is Q - Q', 0 at the start of an episode; ``alpha`` the step size, before it is
    divided by |φ|²; ``decay`` γλ; ``step`` the number of the step.
    """
    rate = SLOPE_RATE / policy.head[TEMPERATURE]
    trace_values, trace_slopes, last = traces.values[env], traces.slopes[env], traces.last[env]
    n, d, norm, product = blend.count[0], policy.slopes.shape[1], 0.0, 0.0
    for j in range(n):  # |φ|² and <e, φ>
        k, weight, along, distance = blend.cells[j], blend.weights[j], 0.0, 0.0
        for i in range(d):
            distance += blend.offsets[j, i] ** 2
            along += trace_slopes[k, i] * blend.offsets[j, i]
        norm += weight * weight * (1.0 + rate * distance)
        product += weight * (trace_values[k, action] + along)
        last[k] = step
        policy.visits[k, action] += weight
    alpha /= max(norm, MIN_NORM)
    fresh = alpha * (1.0 - decay * product)
    max_age = math.log(SMALLEST_TRACE) / math.log(decay) if 0.0 < decay < 1.0 else 1e15 * decay
    n_cells, n_actions = int(policy.head[N_CELLS]), policy.values.shape[1]
    for k in range(n_cells):
        if last[k] >= 0.0:
            keep = decay
            if step - last[k] > max_age:
                keep, last[k] = 0.0, -1.0
            for a in range(n_actions):
                trace_values[k, a] *= keep
            for i in range(d):
                trace_slopes[k, i] *= keep
    for j in range(n):  # e ← γλ e + α φ (1 - γλ <e, φ>), θ ← θ - α (Q - Q') φ
        k, weight = blend.cells[j], blend.weights[j]
        trace_values[k, action] += fresh * weight
        policy.values[k, action] -= alpha * change * weight
        for i in range(d):
            feature = rate * weight * blend.offsets[j, i]
            trace_slopes[k, i] += fresh * feature
            policy.slopes[k, i] -= alpha * change * feature
    for k in range(n_cells):  # θ ← θ + (δ + Q - Q') e
        if last[k] >= 0.0:
            for a in range(n_actions):
                policy.values[k, a] += (error + change) * trace_values[k, a]
            for i in range(d):
                policy.slopes[k, i] += (error + change) * trace_slopes[k, i]


@compiled
def clear(traces: Traces, env: int) -> None:
    """Clear the traces of an environment."""
    traces.values[env] = 0.0
    traces.slopes[env] = 0.0
    traces.last[env] = -1.0


@compiled
def observe(
    policy: Policy,
    moments: Moments,
    blend: Blend,
    n_observed: int,
    exponent: float,
    min_step: float,
) -> None:
    """Update masses, codevectors and covariances by the memberships at T_o.

    The n-th sample of a cell has step size max(``min_step``, (n + 1)^-``exponent``).
    """
    statistics, d = moments.statistics, blend.point.shape[0]
    rate, total = max(1.0 / (n_observed + 1.0), 1.0 / MASS_STEPS), 0.0
    for j in range(blend.count[0]):
        total += blend.weights[j] ** BLEND
    for k in range(int(policy.head[N_CELLS])):
        statistics[MASS, k] *= 1.0 - rate
    for j in range(blend.count[0]):
        k, share, climb = blend.cells[j], blend.weights[j] ** BLEND / total, 0.0
        if share < SMALLEST_SHARE:
            continue
        statistics[MASS, k] += rate * share
        statistics[COUNT, k] += share
        size = share * max((statistics[COUNT, k] + 1.0) ** -exponent, min_step)
        for i in range(d):
            offset = blend.offsets[j, i]
            climb += policy.slopes[k, i] * offset
            policy.codevectors[k, i] += size * offset
            for m in range(d):
                product = offset * blend.offsets[j, m]
                moments.covariances[k, i, m] += size * (product - moments.covariances[k, i, m])
        for a in range(policy.values.shape[1]):
            policy.values[k, a] += size * climb


@compiled
def move(policy: Policy, moments: Moments, traces: Traces, source: int, target: int) -> None:
    """Give cell ``target`` all that cell ``source`` has."""
    d, n_actions = policy.slopes.shape[1], policy.values.shape[1]
    for i in range(d):
        policy.codevectors[target, i] = policy.codevectors[source, i]
        policy.slopes[target, i] = policy.slopes[source, i]
        for j in range(d):
            moments.covariances[target, i, j] = moments.covariances[source, i, j]
    for a in range(n_actions):
        policy.values[target, a] = policy.values[source, a]
        policy.visits[target, a] = policy.visits[source, a]
    for row in range(moments.statistics.shape[0]):
        moments.statistics[row, target] = moments.statistics[row, source]
    for env in range(traces.last.shape[0]):
        traces.last[env, target] = traces.last[env, source]
        for i in range(d):
            traces.slopes[env, target, i] = traces.slopes[env, source, i]
        for a in range(n_actions):
            traces.values[env, target, a] = traces.values[env, source, a]


@compiled
def drop(policy: Policy, moments: Moments, traces: Traces, k: int) -> None:
    """Remove a cell; the last one takes its number."""
    policy.head[N_CELLS] -= 1
    move(policy, moments, traces, int(policy.head[N_CELLS]), k)


@compiled
def merge(policy: Policy, moments: Moments, traces: Traces, k: int, into: int) -> None:
    """Merge a cell into another, by masses; planes are carried to the new codevector."""
    masses = moments.statistics[MASS]
    share = (masses[k] + 1e-9) / (masses[k] + masses[into] + 2e-9)
    first = second = 0.0  # how much the planes rise from each codevector to their mean
    for i in range(policy.slopes.shape[1]):
        gap = policy.codevectors[into, i] - policy.codevectors[k, i]
        first += (1.0 - share) * policy.slopes[k, i] * gap
        second -= share * policy.slopes[into, i] * gap
        policy.codevectors[into, i] -= share * gap
        policy.slopes[into, i] += share * (policy.slopes[k, i] - policy.slopes[into, i])
        for j in range(policy.slopes.shape[1]):
            difference = moments.covariances[k, i, j] - moments.covariances[into, i, j]
            moments.covariances[into, i, j] += share * difference
        for env in range(traces.last.shape[0]):
            traces.slopes[env, into, i] += traces.slopes[env, k, i]
    for a in range(policy.values.shape[1]):
        value = policy.values[into, a] + second
        policy.values[into, a] = value + share * (policy.values[k, a] + first - value)
        policy.visits[into, a] += policy.visits[k, a]
        for env in range(traces.last.shape[0]):
            traces.values[env, into, a] += traces.values[env, k, a]
    for env in range(traces.last.shape[0]):
        traces.last[env, into] = max(traces.last[env, into], traces.last[env, k])
    masses[into] += masses[k]
    moments.statistics[COUNT, into] += moments.statistics[COUNT, k]
    drop(policy, moments, traces, k)


@compiled
def cheapest_pair(policy: Policy, squared_error: float) -> tuple[int, int, float]:
    """Return the nearest two cells, and their distance, which grows as values disagree."""
    best, first, second = np.inf, integer(0), integer(0)
    d, n_actions = policy.slopes.shape[1], policy.values.shape[1]
    for k in range(int(policy.head[N_CELLS])):
        for other in range(k):
            cost = along = 0.0
            for i in range(d):
                gap = policy.codevectors[k, i] - policy.codevectors[other, i]
                cost += gap * gap
                along += 0.5 * (policy.slopes[k, i] + policy.slopes[other, i]) * gap
            cost /= policy.head[TEMPERATURE]
            if cost >= best:
                continue
            disagreement = 0.0
            for a in range(n_actions):
                disagreement += (policy.values[k, a] - policy.values[other, a] - along) ** 2
            if disagreement > 0.0:
                cost *= 1.0 + disagreement / n_actions / squared_error
            if cost < best:
                best, first, second = cost, k, other
    return first, second, best


@compiled
def give_birth(
    policy: Policy,
    moments: Moments,
    traces: Traces,
    blend: Blend,
    values: FloatArray,
    squared_error: float,
    step: int,
) -> bool:
    """Make a cell at a point; without room the cheapest pair is merged, or else T is raised.

    Returns whether there is a new cell.
    """
    ancestor = moments.statistics[ANCESTOR, blend.cells[0]]
    if policy.head[N_CELLS] >= policy.values.shape[0]:
        first, second, cost = cheapest_pair(policy, squared_error)
        if cost >= BIRTH / BLEND:
            policy.head[TEMPERATURE] *= HEATING
            return False
        merge(policy, moments, traces, first, second)
    k = int(policy.head[N_CELLS])
    policy.head[N_CELLS] += 1
    for i in range(blend.point.shape[0]):
        policy.codevectors[k, i] = blend.point[i]
    for a in range(values.shape[0]):
        policy.values[k, a] = values[a]
    policy.slopes[k] = 0.0
    policy.visits[k] = 0.0
    moments.covariances[k] = 0.0
    moments.statistics[MASS, k], moments.statistics[COUNT, k] = 1e-4, 0.0
    moments.statistics[BORN, k], moments.statistics[ANCESTOR, k] = step, ancestor
    for env in range(traces.last.shape[0]):
        traces.values[env, k] = 0.0
        traces.slopes[env, k] = 0.0
        traces.last[env, k] = -1.0
    return True
