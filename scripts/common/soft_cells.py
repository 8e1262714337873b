"""Soft annealed cells: values by true online TD(λ), and the slow timescale; compiled.

:mod:`common.contest` has the loop over steps.

x is an observation in the learned metric, x = L (o - mean); m_k, q_ka, g_k are the codevector,
values and slope of cell k; T is the temperature, T_o = T / 4.

=============  ==================================================================================
memberships    w_k = exp(-|x - m_k|²/T) / Σ, over the six nearest cells
value          Q(x, a) = Σ w_k (q_ka + <g_k, x - m_k>), with one slope for all actions
target         δ = r + γ Q(x', a') - Q(x, a); while a policy is evaluated, max_b Q(x', b)
traces         e ← γλ e + α φ (1 - γλ <e, φ>), φ = (w_k, ρ w_k (x - m_k)) of the action taken
values         θ ← θ + (δ + Q - Q') e - α (Q - Q') φ, Q' being what the last step led to
masses         p_k ← p_k + a (s_k - p_k), s_k = w_k⁴ / Σ: the memberships at T_o
codevectors    m_k ← m_k + b_k (x - m_k), q_k ← q_k + b_k <g_k, x - m_k>, b_k = s_k / n_k
covariances    C_k ← C_k + b_k ((x - m_k)(x - m_k)ᵀ - C_k)
split          where 2 λ_max(C_k) > T_o, the critical temperature, along the eigenvector
merge          if |m_k - m_l|² < 0.1 T_o; and the cheapest pair if there is no room for a birth
birth          at x if |x - m_k|² > 6 T_o for all k, with Q(x, .) as values
annealing      T ← 0.9 T every 100 steps, until nine tenths of the cells are in use
metric         L = M^¼ / deviations, M the average outer product of the gradients of Q
=============  ==================================================================================

Q(x, a) is computed when x is reached, before the values are updated for that step.

References
----------
H. van Seijen, A. R. Mahmood, P. M. Pilarski, M. C. Machado, R. S. Sutton, "True online
temporal-difference learning", JMLR 17 (2016).
K. Rose, "Deterministic annealing for clustering, compression, classification, regression, and
related optimization problems", Proceedings of the IEEE 86 (1998): critical temperatures.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from oda_rl._types import FloatArray, IntArray

MAX_CELLS, NEAREST = 256, 6
GAMMA, LAMBDA = 0.99, 0.9
STEP_SIZE, STEP_SIZE_MIN, STEP_SIZE_STEPS = 0.3, 0.02, 50_000.0
SLOPE_RATE = 0.3  # of slopes, in units of values, at a distance of √T
BLEND = 4.0  # T / T_o
BIRTH, COINCIDENT = 6.0, 0.1  # squared distances in T_o
COOLING, HEATING, FULL = 0.9, 1.005, 0.9
SPLIT_SAMPLES, MAX_COUNT, MASS_STEPS = 30.0, 5_000.0, 100_000.0
IDLE, GRACE = 0.01, 3_000  # share of the mean mass of MAX_CELLS; steps after birth
METRIC_POWER, METRIC_RIDGE = 0.25, 0.02
MIN_NORM, SMALLEST_SHARE = 0.1, 1e-3
MAX_TRACE_AGE = math.log(1e-4) / math.log(GAMMA * LAMBDA)
CELLS, TEMPERATURE = range(2)  # of Policy.state

compiled = njit(cache=True)
reordered = njit(cache=True, fastmath=True)


class Policy(NamedTuple):
    """What decisions need, with d features and A actions."""

    codevectors: FloatArray  # (MAX_CELLS, d)
    values: FloatArray  # (MAX_CELLS, A)
    slopes: FloatArray  # (MAX_CELLS, d)
    transform: FloatArray  # (d, d)
    origin: FloatArray  # (d,)
    state: FloatArray  # (2,)


class Moments(NamedTuple):
    """The slow timescale."""

    covariances: FloatArray  # (MAX_CELLS, d, d)
    masses: FloatArray  # (MAX_CELLS,)
    counts: FloatArray
    births: FloatArray  # steps
    metric: FloatArray  # (d, d), in standard deviations


class Traces(NamedTuple):
    """Traces of cells that were active lately."""

    values: FloatArray  # (MAX_CELLS, A)
    slopes: FloatArray  # (MAX_CELLS, d)
    last: FloatArray  # (MAX_CELLS,), steps; -1 without traces


class Blend(NamedTuple):
    """Where an observation lies."""

    n: IntArray  # (1,)
    cells: IntArray  # (MAX_CELLS,)
    weights: FloatArray
    offsets: FloatArray  # (MAX_CELLS, d)
    point: FloatArray  # (d,)
    distances: FloatArray  # (MAX_CELLS,), scratch


@compiled
def copy(target, source):
    target.codevectors[:], target.values[:] = source.codevectors, source.values
    target.slopes[:], target.transform[:] = source.slopes, source.transform
    target.origin[:], target.state[:] = source.origin, source.state


@compiled
def copy_blend(target, source):
    n = source.n[0]
    target.n[0], target.point[:] = n, source.point
    target.cells[:n], target.weights[:n] = source.cells[:n], source.weights[:n]
    target.offsets[:n] = source.offsets[:n]


@njit(cache=True, fastmath=True, inline="always")
def squared_distance(policy, k, point):
    total = 0.0
    for i in range(point.shape[0]):
        total += (point[i] - policy.codevectors[k, i]) ** 2
    return total


@reordered
def locate(policy, observation, blend):
    """Write cells, memberships and offsets; return the squared distance of the nearest cell."""
    n_cells, temperature = int(policy.state[CELLS]), policy.state[TEMPERATURE]
    point, weights, distances = blend.point, blend.weights, blend.distances
    d = point.shape[0]
    for i in range(d):  # x = L (o - mean)
        point[i] = 0.0
        for j in range(d):
            point[i] += policy.transform[i, j] * (observation[j] - policy.origin[j])
    weights[:NEAREST] = 1e300  # the least distances, in order
    for k in range(n_cells):
        distance = squared_distance(policy, k, point)
        distances[k] = distance
        if distance < weights[NEAREST - 1]:
            i = NEAREST - 1
            while i > 0 and weights[i - 1] > distance:
                weights[i] = weights[i - 1]
                i -= 1
            weights[i] = distance
    nearest = weights[0]
    cut = min(nearest + 7.0 * temperature, weights[NEAREST - 1])
    n, total = 0, 0.0
    for k in range(n_cells):  # w_k = exp(-|x - m_k|²/T) / Σ
        if distances[k] <= cut:
            weights[n], blend.cells[n] = math.exp((nearest - distances[k]) / temperature), k
            total += weights[n]
            n += 1
    for j in range(n):
        weights[j] /= total
        for i in range(d):
            blend.offsets[j, i] = point[i] - policy.codevectors[blend.cells[j], i]
    blend.n[0] = n
    return nearest


@reordered
def blend_values(policy, blend, out):
    """Write Q(x, a) = Σ w_k (q_ka + <g_k, x - m_k>) for all actions."""
    out[:] = 0.0
    for j in range(blend.n[0]):
        k, common = blend.cells[j], 0.0
        for i in range(policy.slopes.shape[1]):
            common += policy.slopes[k, i] * blend.offsets[j, i]
        for a in range(out.shape[0]):
            out[a] += blend.weights[j] * (policy.values[k, a] + common)


@compiled
def evaluate_at(policy, observation, blend, out):
    """Write values of all actions; return the squared distance of the nearest cell."""
    nearest = locate(policy, observation, blend)
    blend_values(policy, blend, out)
    return nearest


@reordered
def update(policy, traces, blend, action, error, change, t):
    """Update values by true online TD(λ); ``change`` is Q - Q', or 0 at the start of an episode."""
    decay, rate = GAMMA * LAMBDA, SLOPE_RATE / policy.state[TEMPERATURE]
    n, d, norm, product = blend.n[0], policy.slopes.shape[1], 0.0, 0.0
    for j in range(n):  # |φ|² and <e, φ>
        k, weight, along, distance = blend.cells[j], blend.weights[j], 0.0, 0.0
        for i in range(d):
            distance += blend.offsets[j, i] ** 2
            along += traces.slopes[k, i] * blend.offsets[j, i]
        norm += weight * weight * (1.0 + rate * distance)
        product += weight * (traces.values[k, action] + along)
        traces.last[k] = t
    alpha = max(STEP_SIZE_MIN, STEP_SIZE / (1.0 + t / STEP_SIZE_STEPS)) / max(norm, MIN_NORM)
    fresh = alpha * (1.0 - decay * product)
    n_cells, n_actions = int(policy.state[CELLS]), policy.values.shape[1]
    for k in range(n_cells):
        if traces.last[k] >= 0:
            keep = decay
            if t - traces.last[k] > MAX_TRACE_AGE:
                keep, traces.last[k] = 0.0, -1
            for a in range(n_actions):
                traces.values[k, a] *= keep
            for i in range(d):
                traces.slopes[k, i] *= keep
    for j in range(n):  # e ← γλ e + α φ (1 - γλ <e, φ>), θ ← θ - α (Q - Q') φ
        k, weight = blend.cells[j], blend.weights[j]
        traces.values[k, action] += fresh * weight
        policy.values[k, action] -= alpha * change * weight
        for i in range(d):
            feature = rate * weight * blend.offsets[j, i]
            traces.slopes[k, i] += fresh * feature
            policy.slopes[k, i] -= alpha * change * feature
    for k in range(n_cells):  # θ ← θ + (δ + Q - Q') e
        if traces.last[k] >= 0:
            for a in range(n_actions):
                policy.values[k, a] += (error + change) * traces.values[k, a]
            for i in range(d):
                policy.slopes[k, i] += (error + change) * traces.slopes[k, i]


@compiled
def clear(traces):
    traces.values[:], traces.slopes[:], traces.last[:] = 0.0, 0.0, -1


@compiled
def observe(policy, moments, blend, n_observed):
    """Update masses, codevectors and covariances by the memberships at T_o."""
    rate, total = max(1.0 / (n_observed + 1.0), 1.0 / MASS_STEPS), 0.0
    for j in range(blend.n[0]):
        total += blend.weights[j] ** BLEND
    moments.masses[: int(policy.state[CELLS])] *= 1.0 - rate
    d = blend.point.shape[0]
    for j in range(blend.n[0]):
        k, share, climb = blend.cells[j], blend.weights[j] ** BLEND / total, 0.0
        if share < SMALLEST_SHARE:
            continue
        moments.masses[k] += rate * share
        moments.counts[k] += share
        size = share / min(moments.counts[k] + 1.0, MAX_COUNT)
        for i in range(d):
            offset = blend.offsets[j, i]
            climb += policy.slopes[k, i] * offset
            policy.codevectors[k, i] += size * offset
            for m in range(d):
                product = offset * blend.offsets[j, m]
                moments.covariances[k, i, m] += size * (product - moments.covariances[k, i, m])
        policy.values[k] += size * climb


@compiled
def move(policy, moments, traces, source, target):
    """Give cell ``target`` all that cell ``source`` has."""
    policy.codevectors[target] = policy.codevectors[source]
    policy.values[target] = policy.values[source]
    policy.slopes[target] = policy.slopes[source]
    moments.covariances[target] = moments.covariances[source]
    moments.masses[target] = moments.masses[source]
    moments.counts[target] = moments.counts[source]
    moments.births[target] = moments.births[source]
    traces.values[target], traces.slopes[target] = traces.values[source], traces.slopes[source]
    traces.last[target] = traces.last[source]


@compiled
def drop(policy, moments, traces, k):
    """Give the last cell the number of one that is dropped."""
    policy.state[CELLS] -= 1
    move(policy, moments, traces, int(policy.state[CELLS]), k)


@compiled
def merge(policy, moments, traces, k, into):
    """Merge a cell into another, by masses; planes are carried to the new codevector."""
    masses = moments.masses
    share = (masses[k] + 1e-9) / (masses[k] + masses[into] + 2e-9)
    between = policy.codevectors[into] - policy.codevectors[k]
    first = policy.values[k] + (1.0 - share) * np.sum(policy.slopes[k] * between)
    second = policy.values[into] - share * np.sum(policy.slopes[into] * between)
    policy.values[into] = second + share * (first - second)
    policy.codevectors[into] -= share * between
    policy.slopes[into] += share * (policy.slopes[k] - policy.slopes[into])
    moments.covariances[into] += share * (moments.covariances[k] - moments.covariances[into])
    masses[into] += masses[k]
    moments.counts[into] += moments.counts[k]
    traces.values[into] += traces.values[k]
    traces.slopes[into] += traces.slopes[k]
    traces.last[into] = max(traces.last[into], traces.last[k])
    drop(policy, moments, traces, k)


@compiled
def cheapest_pair(policy, squared_error):
    """Return the nearest two cells, and their distance, which grows as values disagree."""
    best, first, second = 1e300, 0, 1
    n_actions = policy.values.shape[1]
    for k in range(int(policy.state[CELLS])):
        for other in range(k):
            cost = squared_distance(policy, k, policy.codevectors[other])
            cost /= policy.state[TEMPERATURE]
            if cost >= best:
                continue
            gap = policy.codevectors[k] - policy.codevectors[other]
            along = 0.5 * np.sum((policy.slopes[k] + policy.slopes[other]) * gap)
            disagreement = np.sum((policy.values[k] - policy.values[other] - along) ** 2)
            cost *= 1.0 + disagreement / n_actions / squared_error
            if cost < best:
                best, first, second = cost, k, other
    return first, second, best


@compiled
def give_birth(policy, moments, traces, blend, values, squared_error, t):
    """Make a cell at the point; without room the cheapest pair is merged, or else T is raised.

    Returns whether two cells have been merged.
    """
    merges = False
    if policy.state[CELLS] >= MAX_CELLS:
        first, second, cost = cheapest_pair(policy, squared_error)
        merges = cost < BIRTH / BLEND
        if not merges:
            policy.state[TEMPERATURE] *= HEATING
            return False
        merge(policy, moments, traces, first, second)
    k = int(policy.state[CELLS])
    policy.state[CELLS] += 1
    policy.codevectors[k], policy.slopes[k] = blend.point, 0.0
    moments.covariances[k], moments.masses[k], moments.counts[k] = 0.0, 1e-4, 0.0
    moments.births[k], traces.last[k] = t, -1
    traces.values[k], traces.slopes[k], policy.values[k] = 0.0, 0.0, values
    return merges


@compiled
def split(policy, moments, traces, k, variance, direction, t):
    """Split a cell along the direction in which its points vary most."""
    new, offset = int(policy.state[CELLS]), 0.7 * math.sqrt(variance) * direction
    policy.state[CELLS] += 1
    climb = np.sum(policy.slopes[k] * offset)
    moments.covariances[k] -= 0.49 * variance * np.outer(direction, direction)
    moments.masses[k] *= 0.5
    moments.counts[k], moments.births[k] = 0.0, t
    traces.values[k] *= 0.5
    traces.slopes[k] *= 0.5
    move(policy, moments, traces, k, new)
    policy.codevectors[new] += offset
    policy.values[new] += climb
    policy.codevectors[k] -= offset
    policy.values[k] -= climb


@compiled
def anneal(policy, moments, traces, t):
    """Drop idle cells, merge coincident ones, cool, and split at critical temperatures."""
    critical, k, state = policy.state[TEMPERATURE] / BLEND, 0, policy.state
    while k < state[CELLS]:
        idle = moments.masses[k] < IDLE / MAX_CELLS and t - moments.births[k] > GRACE
        if idle and state[CELLS] > 1:
            drop(policy, moments, traces, k)
            continue
        twin = 0
        while twin < k:
            if squared_distance(policy, k, policy.codevectors[twin]) < COINCIDENT * critical:
                break
            twin += 1
        if twin < k:
            merge(policy, moments, traces, k, twin)
        else:
            k += 1
    if state[CELLS] < FULL * MAX_CELLS:
        state[TEMPERATURE] *= COOLING
    critical = state[TEMPERATURE] / BLEND
    for k in range(int(state[CELLS])):
        wide = 2.0 * np.trace(moments.covariances[k]) > critical
        if wide and moments.counts[k] >= SPLIT_SAMPLES and state[CELLS] < MAX_CELLS:
            variances, directions = np.linalg.eigh(moments.covariances[k])
            if 2.0 * variances[-1] > critical:
                split(policy, moments, traces, k, variances[-1], directions[:, -1], t)


@reordered
def add_gradients(policy, blend, values, total):
    """Add outer products of the gradients of Q at a point: half mean value, half advantages."""
    n_actions, d = policy.values.shape[1], policy.slopes.shape[1]
    gradients = np.zeros((n_actions, d))
    for j in range(blend.n[0]):
        k, offset = blend.cells[j], blend.offsets[j]
        along = np.sum(policy.slopes[k] * offset)
        for a in range(n_actions):  # ∇Q = Σ w_k (g_k - 2/T (Q_k - Q) (x - m_k))
            pull = 2.0 / policy.state[TEMPERATURE] * (policy.values[k, a] - values[a] + along)
            gradients[a] += blend.weights[j] * (policy.slopes[k] - pull * offset)
    mean = gradients.sum(axis=0) / n_actions
    for a in range(n_actions):
        advantage = gradients[a] - mean
        total += 0.5 * (np.outer(advantage, advantage) + np.outer(mean, mean))


@compiled
def learn_metric(policy, moments, recent, blend, values, deviations):
    """Average the metric with the gradients' outer product at recent observations."""
    d = deviations.shape[0]
    total = np.zeros((d, d))
    for row in recent:
        evaluate_at(policy, row, blend, values)
        add_gradients(policy, blend, values, total)
    total = policy.transform.T @ total @ policy.transform * np.outer(deviations, deviations)
    trace = np.trace(total)
    if trace > 1e-12:
        old = moments.metric if np.trace(moments.metric) > 0.0 else total * d / trace
        moments.metric[:] = 0.5 * (old + total * d / trace)


@compiled
def rescale(policy, moments, traces, mean, deviations):
    """Measure in the metric from now on, of total variance d; cells and values stay in place."""
    d = mean.shape[0]
    root = np.eye(d)
    if np.trace(moments.metric) > 0.0:
        eigenvalues, axes = np.linalg.eigh(moments.metric + METRIC_RIDGE * np.eye(d))
        root = (axes * np.maximum(eigenvalues, 1e-12) ** METRIC_POWER) @ axes.T
    transform = root * math.sqrt(d / np.sum(root * root)) / deviations
    change = transform @ np.linalg.inv(policy.transform)
    back, shift = np.linalg.inv(change), transform @ (policy.origin - mean)
    policy.codevectors[:] = policy.codevectors @ change.T + shift
    policy.slopes[:] = policy.slopes @ back
    traces.slopes[:] = traces.slopes @ change.T
    for k in range(int(policy.state[CELLS])):
        moments.covariances[k] = change @ moments.covariances[k] @ change.T
    policy.transform[:], policy.origin[:] = transform, mean
