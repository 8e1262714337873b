"""Soft annealed cells: blended values, their update, and the moves of the slow timescale; compiled.

x is an observation in the learned metric, x = L (o - mean); m_k, q_ka, g_k are the codevector,
values and slope of cell k; T is the temperature at which values are blended, T_o = T / 4 that of
online deterministic annealing. (Uniform cells at their critical temperature are about √(6 T_o)
apart, so that ODA's own memberships are nearly hard: too narrow to blend values by.)

Where actions are continuous, x is an observation together with an action, and "all actions" are one
(:mod:`oda_rl.agents.policies.joint`).

=============  ==================================================================================
memberships    w_k = exp(-|x - m_k|²/T) / Σ, over the nearest cells: six, or ten of joint ones
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

from oda_rl._compile import compiled, integer, spliced
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.policies.cells import gibbs_weights, insert_cell
from oda_rl.agents.policies.contract import CUT, MIN_NORM, SMALLEST_TRACE
from oda_rl.agents.policies.joint import N_CELLS, TEMPERATURE, Codebook

BLEND = 4.0  # T / T_o
BIRTH = 6.0  # squared distance to the nearest cell, in T_o
HEATING = 1.005  # where a birth finds no room and no cheap pair
MASS_STEPS = 100_000.0  # samples of the running average of masses
SMALLEST_SHARE = 1e-3
MASS, COUNT, BORN, ANCESTOR = range(4)  # rows of Moments.statistics
LAST, TRACE = range(2)  # columns of traces: step of the episode of its last activity, or -1


class Moments(NamedTuple):
    """What the slow timescale knows of K cells."""

    statistics: FloatArray
    """Rows MASS, COUNT, BORN and ANCESTOR, shape (4, K)."""
    covariances: FloatArray
    """Shape (K, d, d)."""


class Blend(NamedTuple):
    """The nearest cells of a point, at most m of them."""

    near: IntArray
    """Which, and then how many, shape (m + 1,)."""
    weights: FloatArray
    """Their w_k, shape (m,)."""
    offsets: FloatArray
    """Their x - m_k, shape (m, d)."""
    point: FloatArray
    """x, shape (d,)."""
    distances: FloatArray
    """Squared distances of all cells, shape (K,)."""


@compiled
def copy(target: Codebook, source: Codebook) -> None:
    """Copy a policy."""
    n = int(source.head[N_CELLS])
    for i in range(source.head.shape[0]):
        target.head[i] = source.head[i]
    for i in range(source.frame.shape[0]):
        for j in range(source.frame.shape[1]):
            target.frame[i, j] = source.frame[i, j]
    for i in range(source.places.shape[0]):
        for k in range(n):
            target.places[i, k] = source.places[i, k]
    for k in range(n):
        for j in range(source.models.shape[1]):
            target.models[k, j] = source.models[k, j]


@compiled
def evaluate(policy: Codebook, observation: FloatArray, blend: Blend, values: FloatArray) -> float:
    """Write the blend of an observation and Q of all actions; return the least squared distance."""
    places, models, frame, near = policy.places, policy.models, policy.frame, blend.near
    weights, point, distances = blend.weights, blend.point, blend.distances
    temperature, n_cells = policy.head[TEMPERATURE], int(policy.head[N_CELLS])
    d, n_actions, n_near = places.shape[0], values.shape[0], weights.shape[0]
    for i in range(d):  # x = L (o - mean)
        total = 0.0
        for j in range(d):
            total += frame[i, j] * (observation[j] - frame[d, j])
        point[i] = total
    for k in range(n_cells):
        distances[k] = 0.0
    for i in range(d):  # by rows, which is quickest
        total = point[i]
        for k in range(n_cells):
            distances[k] += (total - places[i, k]) ** 2
    n = integer(0)
    for k in range(n_cells):
        if n < n_near or distances[k] < weights[n - 1]:
            n = min(n + 1, n_near)
            insert_cell(near, weights, n - 1, k, distances[k])
    nearest: float = weights[0]
    while weights[n - 1] - nearest > CUT * temperature:
        n -= 1
    near[n_near] = n
    share = 1.0 / gibbs_weights(weights, n, temperature)
    for a in range(n_actions):
        values[a] = 0.0
    for j in range(n):  # Q(x, a) = Σ w_k (q_ka + <g_k, x - m_k>)
        k, weight, along = near[j], weights[j] * share, 0.0
        weights[j] = weight
        for i in range(d):
            offset = point[i] - places[i, k]
            blend.offsets[j, i] = offset
            along += models[k, i] * offset
        for a in range(n_actions):
            values[a] += weight * (models[k, d + a] + along)
    return nearest


@compiled
def update(
    policy: Codebook,
    traces: FloatArray,
    blend: Blend,
    action: int,
    error: float,
    change: float,
    alpha: float,
    slope_rate: float,
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
    slope_rate : float
        Step size of slopes beside that of values, at a distance of √T.
    decay : float
        γλ.
    step : int
        Step of the episode: what has not been active for long has its traces dropped.
    """
    models, near, offsets = policy.models, blend.near, blend.offsets
    n, d, n_parameters = near[near.shape[0] - 1], offsets.shape[1], traces.shape[1] - 1
    rate = slope_rate / policy.head[TEMPERATURE]
    norm = product = 0.0
    for j in range(n):  # |φ|² and <e, φ>
        k, weight, distance = near[j], blend.weights[j], 0.0
        along = traces[k, TRACE + d + action]
        for i in range(d):
            distance += offsets[j, i] ** 2
            along += traces[k, TRACE + i] * offsets[j, i]
        norm += weight * weight * (1.0 + rate * distance)
        product += weight * along
        traces[k, LAST] = step
        models[k, n_parameters + action] += weight  # visits
    alpha /= max(norm, MIN_NORM)
    fresh, gain = alpha * (1.0 - decay * product), error + change
    max_age = math.log(SMALLEST_TRACE) / math.log(decay) if 0.0 < decay < 1.0 else 1e15 * decay
    for k in range(int(policy.head[N_CELLS])):  # e ← γλ e, θ ← θ + (δ + Q - Q') e
        if traces[k, LAST] >= 0.0:
            keep = decay
            if step - traces[k, LAST] > max_age:
                keep, traces[k, LAST] = 0.0, -1.0
            for i in range(n_parameters):
                trace = keep * traces[k, TRACE + i]
                traces[k, TRACE + i] = trace
                models[k, i] += gain * trace
    gain = gain * fresh - alpha * change
    for j in range(n):  # and of this step: e ← e + α φ (1 - γλ <e, φ>), θ ← θ - α (Q - Q') φ
        k, weight = near[j], blend.weights[j]
        traces[k, TRACE + d + action] += fresh * weight
        models[k, d + action] += gain * weight
        for i in range(d):
            feature = rate * weight * offsets[j, i]
            traces[k, TRACE + i] += fresh * feature
            models[k, i] += gain * feature


@spliced
def sharpened(weight: float) -> float:
    """Return w⁴ = w^BLEND, quicker than a power."""
    square = weight * weight
    return square * square


@compiled
def observe(
    policy: Codebook,
    moments: Moments,
    blend: Blend,
    n_observed: int,
    exponent: float,
    min_step: float,
) -> None:
    """Update masses, codevectors and covariances by the memberships at T_o.

    The n-th sample of a cell has step size max(``min_step``, (n + 1)^-``exponent``).
    """
    models, near, offsets, weights = policy.models, blend.near, blend.offsets, blend.weights
    masses, counts = moments.statistics[MASS], moments.statistics[COUNT]
    n, d = near[near.shape[0] - 1], offsets.shape[1]
    n_actions = (models.shape[1] - d) // 2
    rate, total = max(1.0 / (n_observed + 1.0), 1.0 / MASS_STEPS), 0.0
    for j in range(n):
        total += sharpened(weights[j])
    for k in range(int(policy.head[N_CELLS])):
        masses[k] *= 1.0 - rate
    for j in range(n):
        k, share, climb = near[j], sharpened(weights[j]) / total, 0.0
        if share < SMALLEST_SHARE:
            continue
        masses[k] += rate * share
        counts[k] += share
        size = share * max((counts[k] + 1.0) ** -exponent, min_step)
        for i in range(d):
            offset = offsets[j, i]
            climb += models[k, i] * offset
            policy.places[i, k] += size * offset
            for m in range(d):
                covariance = moments.covariances[k, i, m]
                moments.covariances[k, i, m] += size * (offset * offsets[j, m] - covariance)
        for a in range(n_actions):
            models[k, d + a] += size * climb


@compiled
def move(policy: Codebook, moments: Moments, traces: FloatArray, source: int, target: int) -> None:
    """Give cell ``target`` all that cell ``source`` has; traces are of all environments."""
    d = policy.places.shape[0]
    for i in range(d):
        policy.places[i, target] = policy.places[i, source]
        for j in range(d):
            moments.covariances[target, i, j] = moments.covariances[source, i, j]
    for i in range(policy.models.shape[1]):
        policy.models[target, i] = policy.models[source, i]
    for i in range(moments.statistics.shape[0]):
        moments.statistics[i, target] = moments.statistics[i, source]
    for env in range(traces.shape[0]):
        for i in range(traces.shape[2]):
            traces[env, target, i] = traces[env, source, i]


@compiled
def drop(policy: Codebook, moments: Moments, traces: FloatArray, k: int) -> None:
    """Remove a cell; the last one takes its number."""
    policy.head[N_CELLS] -= 1
    move(policy, moments, traces, int(policy.head[N_CELLS]), k)


@compiled
def merge(policy: Codebook, moments: Moments, traces: FloatArray, k: int, into: int) -> None:
    """Merge a cell into another, by masses; planes are carried to the new codevector."""
    places, models, d = policy.places, policy.models, policy.places.shape[0]
    masses, counts = moments.statistics[MASS], moments.statistics[COUNT]
    n_actions = (models.shape[1] - d) // 2
    share = (masses[k] + 1e-9) / (masses[k] + masses[into] + 2e-9)
    first = second = 0.0  # how much the planes rise from each codevector to their mean
    for i in range(d):
        gap = places[i, into] - places[i, k]
        first += (1.0 - share) * models[k, i] * gap
        second -= share * models[into, i] * gap
        places[i, into] -= share * gap
        models[into, i] += share * (models[k, i] - models[into, i])
        for j in range(d):
            change = moments.covariances[k, i, j] - moments.covariances[into, i, j]
            moments.covariances[into, i, j] += share * change
    for a in range(d, d + n_actions):
        value = models[into, a] + second
        models[into, a] = value + share * (models[k, a] + first - value)
        models[into, a + n_actions] += models[k, a + n_actions]  # visits
    masses[into] += masses[k]
    counts[into] += counts[k]
    for env in range(traces.shape[0]):
        traces[env, into, LAST] = max(traces[env, into, LAST], traces[env, k, LAST])
        for i in range(TRACE, traces.shape[2]):
            traces[env, into, i] += traces[env, k, i]
    drop(policy, moments, traces, k)


@compiled
def cheapest_pair(
    policy: Codebook, squared_error: float, distances: FloatArray
) -> tuple[int, int, float]:
    """Return the nearest two cells, and their distance, which grows as values disagree.

    ``distances``, shape (K,), are overwritten.
    """
    best, first, second = math.inf, integer(0), integer(0)
    places, models, d = policy.places, policy.models, policy.places.shape[0]
    n_actions, temperature = (models.shape[1] - d) // 2, policy.head[TEMPERATURE]
    for k in range(int(policy.head[N_CELLS])):
        for other in range(k):
            distances[other] = 0.0
        for i in range(d):
            total = places[i, k]
            for other in range(k):
                distances[other] += (total - places[i, other]) ** 2
        for other in range(k):
            cost = distances[other] / temperature
            if cost >= best:
                continue
            along = disagreement = 0.0
            for i in range(d):
                gap = places[i, k] - places[i, other]
                along += 0.5 * (models[k, i] + models[other, i]) * gap
            for a in range(d, d + n_actions):
                disagreement += (models[k, a] - models[other, a] - along) ** 2
            if disagreement > 0.0:
                cost *= 1.0 + disagreement / n_actions / squared_error
            if cost < best:
                best, first, second = cost, k, other
    return first, second, best


@compiled
def give_birth(
    policy: Codebook,
    moments: Moments,
    traces: FloatArray,
    blend: Blend,
    values: FloatArray,
    squared_error: float,
    step: int,
) -> bool:
    """Make a cell at a point; without room the cheapest pair is merged, or else T is raised.

    Returns whether there is a new cell.
    """
    models, statistics, d = policy.models, moments.statistics, policy.places.shape[0]
    ancestor = statistics[ANCESTOR, blend.near[0]]
    if policy.head[N_CELLS] >= models.shape[0]:
        first, second, cost = cheapest_pair(policy, squared_error, blend.distances)
        if cost >= BIRTH / BLEND:
            policy.head[TEMPERATURE] *= HEATING
            return False
        merge(policy, moments, traces, first, second)
    k = int(policy.head[N_CELLS])
    policy.head[N_CELLS] += 1
    for i in range(models.shape[1]):
        models[k, i] = 0.0
    for a in range(values.shape[0]):
        models[k, d + a] = values[a]
    for i in range(d):
        policy.places[i, k] = blend.point[i]
        for j in range(d):
            moments.covariances[k, i, j] = 0.0
    statistics[MASS, k], statistics[COUNT, k] = 1e-4, 0.0
    statistics[BORN, k], statistics[ANCESTOR, k] = step, ancestor
    for env in range(traces.shape[0]):
        traces[env, k, LAST] = -1.0
        for i in range(TRACE, traces.shape[2]):
            traces[env, k, i] = 0.0
    return True
