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
from oda_rl.agents.policies.contract import CUT, MIN_NORM, SLOPE_RATE, SMALLEST_TRACE

NEAREST = 6
BLEND = 4.0  # T / T_o
BIRTH = 6.0  # squared distance to the nearest cell, in T_o
HEATING = 1.005  # where a birth finds no room and no cheap pair
MASS_STEPS = 100_000.0  # samples of the running average of masses
SMALLEST_SHARE = 1e-3
N_CELLS, TEMPERATURE = range(2)  # of Policy.head
MASS, COUNT, BORN, ANCESTOR, COVARIANCE = range(5)  # columns of moments, the last one d x d
LAST, TRACE = range(2)  # columns of traces: step of the episode of its last activity, or -1


class Policy(NamedTuple):
    """All that decides, of K cells in d dimensions with A actions."""

    cells: FloatArray
    """Codevector m_k in the metric, slope g_k, values q_ka, and the weights of the steps that these
    were updated by, one row a cell: shape (K, 2 d + 2 A)."""
    frame: FloatArray
    """Rows of L, and the mean, shape (d + 1, d)."""
    head: FloatArray
    """Number of cells, and temperature, shape (2,)."""


class Blend(NamedTuple):
    """The nearest cells of a point."""

    near: IntArray
    """How many, and which, shape (1 + NEAREST,)."""
    parts: FloatArray
    """Weight w_k and offset x - m_k of each, shape (NEAREST, 1 + d)."""
    point: FloatArray
    """x, shape (d,)."""


@compiled
def copy(target: Policy, source: Policy) -> None:
    """Copy a policy."""
    target.head[N_CELLS], target.head[TEMPERATURE] = source.head[N_CELLS], source.head[TEMPERATURE]
    for i in range(source.frame.shape[0]):
        for j in range(source.frame.shape[1]):
            target.frame[i, j] = source.frame[i, j]
    for k in range(int(source.head[N_CELLS])):
        for j in range(source.cells.shape[1]):
            target.cells[k, j] = source.cells[k, j]


@compiled
def evaluate(policy: Policy, observation: FloatArray, blend: Blend, values: FloatArray) -> float:
    """Write the blend of an observation and Q of all actions; return the least squared distance."""
    cells, frame, near, parts, point = (
        policy.cells,
        policy.frame,
        blend.near,
        blend.parts,
        blend.point,
    )
    temperature, d, n_actions = policy.head[TEMPERATURE], observation.shape[0], values.shape[0]
    for i in range(d):  # x = L (o - mean)
        total = 0.0
        for j in range(d):
            total += frame[i, j] * (observation[j] - frame[d, j])
        point[i] = total
    n = integer(0)
    for k in range(int(policy.head[N_CELLS])):  # the nearest cells, in order of distance
        distance = 0.0
        for i in range(d):
            distance += (point[i] - cells[k, i]) ** 2
        if n < NEAREST or distance < parts[n - 1, 0]:
            n = min(n + 1, NEAREST)
            slot = n - 1
            while slot > 0 and parts[slot - 1, 0] > distance:
                parts[slot, 0], near[1 + slot] = parts[slot - 1, 0], near[slot]
                slot -= 1
            parts[slot, 0], near[1 + slot] = distance, k
    nearest: float = parts[0, 0]
    while parts[n - 1, 0] - nearest > CUT * temperature:
        n -= 1
    near[0] = n
    total = 0.0
    for j in range(n):  # w_k = exp(-|x - m_k|²/T) / Σ
        parts[j, 0] = math.exp((nearest - parts[j, 0]) / temperature)
        total += parts[j, 0]
    for a in range(n_actions):
        values[a] = 0.0
    for j in range(n):  # Q(x, a) = Σ w_k (q_ka + <g_k, x - m_k>)
        k, weight, along = near[1 + j], parts[j, 0] / total, 0.0
        parts[j, 0] = weight
        for i in range(d):
            offset = point[i] - cells[k, i]
            parts[j, 1 + i] = offset
            along += cells[k, d + i] * offset
        for a in range(n_actions):
            values[a] += weight * (cells[k, 2 * d + a] + along)
    return nearest


@compiled
def update(
    policy: Policy,
    traces: FloatArray,
    blend: Blend,
    action: int,
    error: float,
    change: float,
    alpha: float,
    decay: float,
    step: int,
) -> None:
    """Update values by true online TD(λ).

    Parameters
    ----------
    traces : ndarray, shape (K, 1 + d + A)
        Of the environment: of slopes and values, in the order of the cells' columns.
    change : float
        Q - Q', 0 at the start of an episode.
    alpha : float
        Step size, before it is divided by |φ|².
    decay : float
        γλ.
    step : int
        Step of the episode: what has not been active for long has its traces dropped.
    """
    cells, near, parts = policy.cells, blend.near, blend.parts
    rate, n, d = SLOPE_RATE / policy.head[TEMPERATURE], near[0], parts.shape[1] - 1
    value, n_parameters = 2 * d + action, traces.shape[1] - 1
    norm = product = 0.0
    for j in range(n):  # |φ|² and <e, φ>
        k, weight, distance = near[1 + j], parts[j, 0], 0.0
        along = traces[k, TRACE + d + action]
        for i in range(d):
            distance += parts[j, 1 + i] ** 2
            along += traces[k, TRACE + i] * parts[j, 1 + i]
        norm += weight * weight * (1.0 + rate * distance)
        product += weight * along
        traces[k, LAST] = step
        cells[k, d + n_parameters + action] += weight  # visits
    alpha /= max(norm, MIN_NORM)
    fresh = alpha * (1.0 - decay * product)
    max_age = math.log(SMALLEST_TRACE) / math.log(decay) if 0.0 < decay < 1.0 else 1e15 * decay
    for k in range(int(policy.head[N_CELLS])):
        if traces[k, LAST] >= 0.0:
            keep = decay
            if step - traces[k, LAST] > max_age:
                keep, traces[k, LAST] = 0.0, -1.0
            for i in range(TRACE, TRACE + n_parameters):
                traces[k, i] *= keep
    for j in range(n):  # e ← γλ e + α φ (1 - γλ <e, φ>), θ ← θ - α (Q - Q') φ
        k, weight = near[1 + j], parts[j, 0]
        traces[k, TRACE + d + action] += fresh * weight
        cells[k, value] -= alpha * change * weight
        for i in range(d):
            feature = rate * weight * parts[j, 1 + i]
            traces[k, TRACE + i] += fresh * feature
            cells[k, d + i] -= alpha * change * feature
    for k in range(int(policy.head[N_CELLS])):  # θ ← θ + (δ + Q - Q') e
        if traces[k, LAST] >= 0.0:
            for i in range(n_parameters):
                cells[k, d + i] += (error + change) * traces[k, TRACE + i]


@compiled
def observe(
    policy: Policy,
    moments: FloatArray,
    blend: Blend,
    n_observed: int,
    exponent: float,
    min_step: float,
) -> None:
    """Update masses, codevectors and covariances by the memberships at T_o.

    The n-th sample of a cell has step size max(``min_step``, (n + 1)^-``exponent``).
    """
    cells, near, parts = policy.cells, blend.near, blend.parts
    d = parts.shape[1] - 1
    n_actions = (cells.shape[1] - 2 * d) // 2
    rate, total = max(1.0 / (n_observed + 1.0), 1.0 / MASS_STEPS), 0.0
    for j in range(near[0]):
        total += parts[j, 0] ** BLEND
    for k in range(int(policy.head[N_CELLS])):
        moments[k, MASS] *= 1.0 - rate
    for j in range(near[0]):
        k, share, climb = near[1 + j], parts[j, 0] ** BLEND / total, 0.0
        if share < SMALLEST_SHARE:
            continue
        moments[k, MASS] += rate * share
        moments[k, COUNT] += share
        size = share * max((moments[k, COUNT] + 1.0) ** -exponent, min_step)
        for i in range(d):
            offset = parts[j, 1 + i]
            climb += cells[k, d + i] * offset
            cells[k, i] += size * offset
            for m in range(d):
                column = COVARIANCE + i * d + m
                moments[k, column] += size * (offset * parts[j, 1 + m] - moments[k, column])
        for a in range(n_actions):
            cells[k, 2 * d + a] += size * climb


@compiled
def move(policy: Policy, moments: FloatArray, traces: FloatArray, source: int, target: int) -> None:
    """Give cell ``target`` all that cell ``source`` has; traces are of all environments."""
    for i in range(policy.cells.shape[1]):
        policy.cells[target, i] = policy.cells[source, i]
    for i in range(moments.shape[1]):
        moments[target, i] = moments[source, i]
    for env in range(traces.shape[0]):
        for i in range(traces.shape[2]):
            traces[env, target, i] = traces[env, source, i]


@compiled
def drop(policy: Policy, moments: FloatArray, traces: FloatArray, k: int) -> None:
    """Remove a cell; the last one takes its number."""
    policy.head[N_CELLS] -= 1
    move(policy, moments, traces, int(policy.head[N_CELLS]), k)


@compiled
def merge(policy: Policy, moments: FloatArray, traces: FloatArray, k: int, into: int) -> None:
    """Merge a cell into another, by masses; planes are carried to the new codevector."""
    cells, d = policy.cells, policy.frame.shape[1]
    n_actions = (cells.shape[1] - 2 * d) // 2
    share = (moments[k, MASS] + 1e-9) / (moments[k, MASS] + moments[into, MASS] + 2e-9)
    first = second = 0.0  # how much the planes rise from each codevector to their mean
    for i in range(d):
        gap = cells[into, i] - cells[k, i]
        first += (1.0 - share) * cells[k, d + i] * gap
        second -= share * cells[into, d + i] * gap
        cells[into, i] -= share * gap
        cells[into, d + i] += share * (cells[k, d + i] - cells[into, d + i])
    for a in range(2 * d, 2 * d + n_actions):
        value = cells[into, a] + second
        cells[into, a] = value + share * (cells[k, a] + first - value)
        cells[into, a + n_actions] += cells[k, a + n_actions]  # visits
    for i in range(COVARIANCE, moments.shape[1]):
        moments[into, i] += share * (moments[k, i] - moments[into, i])
    moments[into, MASS] += moments[k, MASS]
    moments[into, COUNT] += moments[k, COUNT]
    for env in range(traces.shape[0]):
        traces[env, into, LAST] = max(traces[env, into, LAST], traces[env, k, LAST])
        for i in range(TRACE, traces.shape[2]):
            traces[env, into, i] += traces[env, k, i]
    drop(policy, moments, traces, k)


@compiled
def cheapest_pair(policy: Policy, squared_error: float) -> tuple[int, int, float]:
    """Return the nearest two cells, and their distance, which grows as values disagree."""
    best, first, second = np.inf, integer(0), integer(0)
    cells, d = policy.cells, policy.frame.shape[1]
    n_actions = (cells.shape[1] - 2 * d) // 2
    for k in range(int(policy.head[N_CELLS])):
        for other in range(k):
            cost = along = 0.0
            for i in range(d):
                gap = cells[k, i] - cells[other, i]
                cost += gap * gap
                along += 0.5 * (cells[k, d + i] + cells[other, d + i]) * gap
            cost /= policy.head[TEMPERATURE]
            if cost >= best:
                continue
            disagreement = 0.0
            for a in range(2 * d, 2 * d + n_actions):
                disagreement += (cells[k, a] - cells[other, a] - along) ** 2
            if disagreement > 0.0:
                cost *= 1.0 + disagreement / n_actions / squared_error
            if cost < best:
                best, first, second = cost, k, other
    return first, second, best


@compiled
def give_birth(
    policy: Policy,
    moments: FloatArray,
    traces: FloatArray,
    blend: Blend,
    values: FloatArray,
    squared_error: float,
    step: int,
) -> bool:
    """Make a cell at a point; without room the cheapest pair is merged, or else T is raised.

    Returns whether there is a new cell.
    """
    cells, d, ancestor = policy.cells, policy.frame.shape[1], moments[blend.near[1], ANCESTOR]
    if policy.head[N_CELLS] >= cells.shape[0]:
        first, second, cost = cheapest_pair(policy, squared_error)
        if cost >= BIRTH / BLEND:
            policy.head[TEMPERATURE] *= HEATING
            return False
        merge(policy, moments, traces, first, second)
    k = int(policy.head[N_CELLS])
    policy.head[N_CELLS] += 1
    for i in range(cells.shape[1]):
        cells[k, i] = 0.0
    for i in range(d):
        cells[k, i] = blend.point[i]
    for a in range(values.shape[0]):
        cells[k, 2 * d + a] = values[a]
    for i in range(moments.shape[1]):
        moments[k, i] = 0.0
    moments[k, MASS], moments[k, BORN], moments[k, ANCESTOR] = 1e-4, step, ancestor
    for env in range(traces.shape[0]):
        traces[env, k, LAST] = -1.0
        for i in range(TRACE, traces.shape[2]):
            traces[env, k, i] = 0.0
    return True
