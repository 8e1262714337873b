"""Soft annealed cells: blended values, their update, and the moves of the slow timescale; compiled.

x is an observation in the learned metric, x = L (o - mean); m_k, q_ka, g_k are the codevector,
values and slope of cell k; T is the temperature at which values are blended, T_o = T / 4 that of
online deterministic annealing. (Uniform cells at their critical temperature are about √(6 T_o)
apart, so that ODA's own memberships are nearly hard: too narrow to blend values by.)

Components of a mixture with diagonal precisions P_k have Σ_i P_ki (x_i - m_ki)² for |x - m_k|², and
π_k √|P_k| for π_k.

Where actions are continuous, x is an observation together with an action, and "all actions" are one
(:mod:`oda_rl.agents.policies.joint`).

=============  ==================================================================================
memberships    w_k = π_k exp(-|x - m_k|²/T) / Σ, over the nearest cells: six, or ten of joint ones
value          Q(x, a) = Σ w_k (q_ka + <g_k, x - m_k>), with one slope for all actions
traces         e ← γλ e + α φ (1 - γλ <e, ψ>), ψ = (w_k, w_k (x - m_k)) of the action taken;
               φ is ψ with the slopes' part times ρ, their rate; α is a step size over <ψ, φ>
values         θ ← θ + (δ + Q - Q') e - α (Q - Q') φ, Q' being what the last step led to
masses         p_k ← p_k + a (s_k - p_k), s_k = w_k⁴ / Σ: the memberships at T_o
codevectors    m_k ← m_k + b_k (x - m_k), q_k ← q_k + b_k <g_k, x - m_k>, b_k = s_k b(n_k)
covariances    C_k ← C_k + b_k ((x - m_k)(x - m_k)ᵀ - C_k)
birth          at x if |x - m_k|² > 6 T_o for all k, with Q(x, .) as values, if there is room
=============  ==================================================================================

Splits, merges, cooling and the metric are in :mod:`oda_rl.agents.two_timescale.engine`, in numpy:
they come every 100 to 500 steps. Traces and values are algorithm 2 of van Seijen et al. (2016),
masses and codevectors equations 11 and 12 of Mavridis and Baras: see
:class:`oda_rl.agents.TwoTimescaleAgent`.
"""

import math
from typing import NamedTuple

from oda_rl._compile import compiled, integer, spliced
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.policies.cells import gibbs_weights, insert_cell, squared_distances
from oda_rl.agents.policies.contract import CUT, MIN_NORM, SMALLEST_TRACE
from oda_rl.agents.policies.joint import N_CELLS, TEMPERATURE, Codebook

BLEND = 4.0  # T / T_o
BIRTH = 6.0  # squared distance to the nearest cell, in T_o
MASS_STEPS = 100_000.0  # samples of the running average of masses
SMALLEST_SHARE = 1e-3  # of a sample: a smaller one moves no cell
MASS, COUNT, BORN, ANCESTOR = range(4)  # rows of Moments.statistics
LAST, TRACE = range(2)  # columns of traces: step of the episode of its last activity, or -1


class Moments(NamedTuple):
    """Statistics of K cells for the slow timescale."""

    statistics: FloatArray  # rows MASS, COUNT, BORN and ANCESTOR, shape (4, K)
    covariances: FloatArray  # shape (K, d, d)


class Blend(NamedTuple):
    """The nearest cells of a point, at most m of them."""

    near: IntArray  # which, and then how many, shape (m + 1,)
    weights: FloatArray  # their w_k, shape (m,)
    offsets: FloatArray  # their x - m_k, shape (m, d)
    point: FloatArray  # x, shape (d,)
    distances: FloatArray  # squared distances of all cells, shape (K,)


@spliced
def weighted_distances(policy: Codebook, point: FloatArray, n: int, distances: FloatArray) -> None:
    """Write Σ_i P_ki (x_i - m_ki)² for the first n cells of a mixture."""
    for k in range(n):
        distances[k] = 0.0
    for i in range(point.shape[0]):
        for k in range(n):
            gap = point[i] - policy.places[i, k]
            distances[k] += policy.mixture[1 + i, k] * gap * gap


@compiled
def evaluate(policy: Codebook, observation: FloatArray, blend: Blend, values: FloatArray) -> float:
    """Write the blend of an observation and Q of all actions; return the nearest cell's score."""
    places, models, frame, near = policy.places, policy.models, policy.frame, blend.near
    weights, point, distances = blend.weights, blend.point, blend.distances
    temperature, n_cells = policy.head[TEMPERATURE], integer(policy.head[N_CELLS])
    d, n_actions, n_near = places.shape[0], values.shape[0], weights.shape[0]
    for i in range(d):  # x = L (o - mean)
        total = 0.0
        for j in range(d):
            total += frame[i, j] * (observation[j] - frame[d, j])
        point[i] = total
    if policy.mixture.shape[0] > 1:
        weighted_distances(policy, point, n_cells, distances)
    else:
        squared_distances(places, point, n_cells, distances)
    n = integer(0)
    for k in range(n_cells):
        distance = distances[k] + policy.mixture[0, k]
        if n < n_near or distance < weights[n - 1]:
            n = min(n + 1, n_near)
            insert_cell(near, weights, n - 1, k, distance)
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


@spliced
def update(
    policy: Codebook, traces: FloatArray, blend: Blend, action: int, error: float, change: float,
    alpha: float, slope_rate: float, decay: float, step: int,
) -> None:  # fmt: skip
    """Update values by true online TD(λ).

    ``traces``, shape (K, 1 + d + A), are of slopes and values, in the order of the cells' columns.
    ``change`` is Q - Q', 0 at the start of an episode; ``alpha`` the step size, before it is over
    <ψ, φ>, and ``slope_rate`` that of slopes beside it, at a distance of √T; ``decay`` is γλ. At a
    ``step`` of the episode, traces of what has not been active for long are dropped.
    """
    models, near, offsets = policy.models, blend.near, blend.offsets
    n, d, n_parameters = near[near.shape[0] - 1], offsets.shape[1], traces.shape[1] - 1
    rate = slope_rate / policy.head[TEMPERATURE]
    norm = product = 0.0
    for j in range(n):  # <ψ, φ> and <e, ψ>
        k, weight, distance = near[j], blend.weights[j], 0.0
        along = traces[k, TRACE + d + action]
        for i in range(d):
            distance += offsets[j, i] * offsets[j, i]
            along += traces[k, TRACE + i] * offsets[j, i]
        norm += weight * weight * (1.0 + rate * distance)
        product += weight * along
        traces[k, LAST] = step
        models[k, n_parameters + action] += weight  # visits
    alpha /= max(norm, MIN_NORM)
    fresh, gain = alpha * (1.0 - decay * product), error + change
    max_age = math.log(SMALLEST_TRACE) / math.log(decay) if 0.0 < decay < 1.0 else 1e15 * decay
    for k in range(integer(policy.head[N_CELLS])):  # e ← γλ e, θ ← θ + (δ + Q - Q') e
        if traces[k, LAST] >= 0.0:
            keep = decay
            if step - traces[k, LAST] > max_age:
                keep, traces[k, LAST] = 0.0, -1.0
            for i in range(n_parameters):
                trace = keep * traces[k, TRACE + i]
                traces[k, TRACE + i] = trace
                models[k, i] += gain * trace
    gain = gain * fresh - alpha * change
    for j in range(n):  # and of this step: e ← e + α φ (1 - γλ <e, ψ>), θ ← θ - α (Q - Q') φ
        k, weight = near[j], blend.weights[j]
        traces[k, TRACE + d + action] += fresh * weight
        models[k, d + action] += gain * weight
        for i in range(d):
            feature = rate * weight * offsets[j, i]
            traces[k, TRACE + i] += fresh * feature
            models[k, i] += gain * feature


@spliced
def observe(
    policy: Codebook, moments: Moments, blend: Blend, n_observed: int, exponent: float,
    min_step: float,
) -> None:  # fmt: skip
    """Update masses, codevectors and covariances by the memberships at T_o.

    The n-th sample of a cell has step size max(``min_step``, (n + 1)^-``exponent``).
    """
    models, near, offsets, weights = policy.models, blend.near, blend.offsets, blend.weights
    masses, counts = moments.statistics[MASS], moments.statistics[COUNT]
    n, d = near[near.shape[0] - 1], offsets.shape[1]
    n_actions = (models.shape[1] - d) // 2
    rate, total = max(1.0 / (n_observed + 1.0), 1.0 / MASS_STEPS), 0.0
    for j in range(n):
        total += weights[j] ** 4  # BLEND
    for k in range(integer(policy.head[N_CELLS])):
        masses[k] *= 1.0 - rate
    for j in range(n):
        k, share, climb = near[j], weights[j] ** 4 / total, 0.0
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


@spliced
def give_birth(
    policy: Codebook, moments: Moments, blend: Blend, values: FloatArray, step: int
) -> None:
    """Make a cell at a point, with the values there; all else of an unused cell is 0."""
    statistics, k, d = moments.statistics, integer(policy.head[N_CELLS]), policy.places.shape[0]
    policy.head[N_CELLS] += 1
    for i in range(d):
        policy.places[i, k] = blend.point[i]
    for a in range(values.shape[0]):
        policy.models[k, d + a] = values[a]
    statistics[MASS, k], statistics[BORN, k] = 1e-4, step
    statistics[ANCESTOR, k] = statistics[ANCESTOR, blend.near[0]]
