"""Sarsa(λ) over soft annealed cells of state and continuous action together, online; compiled.

The cells are those of :mod:`common.soft_cells`: moments, births, splits and merges are the same,
and so is the contest of :mod:`common.contest`. Actions u are scaled to [-1, 1]^m.

=============  ==================================================================================
codevectors    of z = L ((s, u) - mean) instead of x: the metric has the weight of u against s
value          Q(s, u) = Σ w_k (q_k + <g_k, z - m_k>) over the ten nearest cells
action parts   u_k = argmin_u |z(s, u) - m_k|², clipped; cell k is |z(s, u_k) - m_k| away from s
greedy action  the best of 5 levels (3 a component) and of the parts of the 8 cells nearest to s;
               then, by components, of u, u ± 1/4, and the vertex of the parabola through these
target         δ = r + γ Q(s', u') - Q(s, u); in trials u' is the greedy action
metric         L = M^¼ / deviations, M the average outer product of the gradients of Q by (s, u),
               at recent states and uniform actions
warm-up        500 steps of random actions, each held for ten steps on average
exploration    uniform actions from [-1.5, 1.5]^m, clipped: the greatest ones are often the best;
               always held for 1 to 19 steps, as a car in a valley costs least if nothing is done
=============  ==================================================================================

The greedy action is looked for in the 40 cells nearest to s; its value is that over all cells.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from common import soft_cells
from common.compiled_tasks import CompiledTask, look, reset, reset_evaluation, step_continuous
from common.contest import (
    ANNEAL_EVERY,
    BEST_MEAN,
    BEST_SCORE,
    EPSILON,
    EPSILON_STEPS,
    HOLD,
    METRIC_EVERY,
    OBSERVE_EVERY,
    RECENT,
    SPENT,
    TRIAL,
    WARM_UP,
    end_learning_episode,
    end_trial_episode,
)  # fmt: skip
from common.soft_cells import (
    BIRTH,
    BLEND,
    CELLS,
    GAMMA,
    MAX_CELLS,
    TEMPERATURE,
    Blend,
    Moments,
    Policy,
    Traces,
    anneal,
    clear,
    copy,
    copy_blend,
    give_birth,
    observe,
    rescale,
)  # fmt: skip
from oda_rl._compile import bound_copy
from oda_rl._types import FloatArray, IntArray

NEAREST, SLOPE_RATE = 10, 1.0  # there are more neighbours in more dimensions
SHORTLIST, PARTS = 40, 8  # cells nearest to the state: searched; whose action parts are tried
STEP, WIDE = 0.25, 1.5

compiled = njit(cache=True)
reordered = njit(cache=True, fastmath=True)
locate = reordered(bound_copy(soft_cells.locate.py_func, "_joint", NEAREST=NEAREST))
evaluate_at = compiled(bound_copy(soft_cells.evaluate_at.py_func, "_joint", locate=locate))
update = reordered(bound_copy(soft_cells.update.py_func, "_joint", SLOPE_RATE=SLOPE_RATE))
learn_metric = compiled(
    bound_copy(soft_cells.learn_metric.py_func, "_joint", evaluate_at=evaluate_at)
)


class Search(NamedTuple):
    """Where greedy actions of a policy are looked for, with d components of (s, u)."""

    levels: FloatArray  # (n, m), actions that are always tried
    inverse: FloatArray  # (m, d), pseudo-inverse of L's columns for u
    idle: FloatArray  # (d,), z where u is 0
    point: FloatArray  # (d,)
    parts: FloatArray  # (MAX_CELLS, m), u_k
    cells: IntArray  # (SHORTLIST,), the nearest first
    distances: FloatArray  # (SHORTLIST,)
    least: FloatArray  # (NEAREST,)


@compiled
def invert(policy, search):
    """Update the search after a change of the metric."""
    by_action = np.ascontiguousarray(policy.transform[:, -search.inverse.shape[0] :])
    search.inverse[:] = np.linalg.pinv(by_action)


@reordered
def find_near(policy, search, pair):
    """List the cells nearest to a state, and write action parts of all; return how many."""
    d, m = policy.slopes.shape[1], search.inverse.shape[0]
    idle, parts, distances = search.idle, search.parts, search.distances
    transform, n_cells = policy.transform, int(policy.state[CELLS])
    for i in range(d):
        idle[i] = 0.0
        for j in range(d):
            seen = pair[j] if j < d - m else 0.0
            idle[i] += transform[i, j] * (seen - policy.origin[j])
    n = min(SHORTLIST, n_cells)
    distances[:] = 1e300
    for k in range(n_cells):
        for c in range(m):  # u_k = L_u⁺ (m_k - z(s, 0)), clipped
            part = 0.0
            for i in range(d):
                part += search.inverse[c, i] * (policy.codevectors[k, i] - idle[i])
            parts[k, c] = min(max(part, -1.0), 1.0)
        distance = 0.0
        for i in range(d):  # |z(s, u_k) - m_k|²
            offset = idle[i] - policy.codevectors[k, i]
            for c in range(m):
                offset += transform[i, d - m + c] * parts[k, c]
            distance += offset * offset
        if distance < distances[n - 1]:
            i = n - 1
            while i > 0 and distances[i - 1] > distance:
                distances[i], search.cells[i] = distances[i - 1], search.cells[i - 1]
                i -= 1
            distances[i], search.cells[i] = distance, k
    return n


@reordered
def near_value(policy, search, n, action):
    """Return Q(s, u) = Σ w_k (q_k + <g_k, z - m_k>) over the nearest of the listed cells."""
    d, m, temperature = search.point.shape[0], action.shape[0], policy.state[TEMPERATURE]
    point, least, distances = search.point, search.least, search.distances
    for i in range(d):
        point[i] = search.idle[i]
        for c in range(m):
            point[i] += policy.transform[i, d - m + c] * action[c]
    least[:] = 1e300
    for j in range(n):
        distance = soft_cells.squared_distance(policy, search.cells[j], point)
        distances[j] = distance
        if distance < least[NEAREST - 1]:
            i = NEAREST - 1
            while i > 0 and least[i - 1] > distance:
                least[i] = least[i - 1]
                i -= 1
            least[i] = distance
    cut, total, value = min(least[0] + 7.0 * temperature, least[NEAREST - 1]), 0.0, 0.0
    for j in range(n):
        if distances[j] <= cut:
            k, weight = search.cells[j], math.exp((least[0] - distances[j]) / temperature)
            plane = policy.values[k, 0]
            for i in range(d):
                plane += policy.slopes[k, i] * (point[i] - policy.codevectors[k, i])
            total += weight
            value += weight * plane
    return value / total


@compiled
def choose(policy, search, pair):
    """Write the greedy action behind the state."""
    n, m = find_near(policy, search, pair), search.inverse.shape[0]
    action, best = pair[-m:], -1e300
    for j in range(search.levels.shape[0] + min(n, PARTS)):
        own = j - search.levels.shape[0]
        candidate = search.levels[j] if own < 0 else search.parts[search.cells[own]]
        value = near_value(policy, search, n, candidate)
        if value > best:
            best, action[:] = value, candidate
    for c in range(m):
        middle, centre, found = best, action[c], action[c]
        low, high = max(centre - STEP, -1.0), min(centre + STEP, 1.0)
        action[c] = low
        below = near_value(policy, search, n, action)
        if below > best:
            best, found = below, low
        action[c] = high
        above = near_value(policy, search, n, action)
        if above > best:
            best, found = above, high
        if high - low == 2.0 * STEP and found == centre and below + above < 2.0 * middle:
            # The vertex of the parabola through (-1, below), (0, middle), (1, above).
            action[c] = centre + 0.5 * STEP * (above - below) / (2.0 * middle - below - above)
            vertex = near_value(policy, search, n, action)
            if vertex > best:
                best, found = vertex, action[c]
        action[c] = found


@compiled
def draw(rng, action):
    for c in range(action.shape[0]):
        action[c] = min(max(rng.uniform(-WIDE, WIDE), -1.0), 1.0)


@compiled
def play(task, policy, search, returns):
    """Write the returns of greedy episodes."""
    n_seen, d = task.n_features, policy.slopes.shape[1]
    state, pair = np.zeros(task.starts.shape[1]), np.zeros(d)
    invert(policy, search)
    for k in range(returns.shape[0]):
        reset_evaluation(task, k, state)
        for _ in range(task.max_episode_steps):
            look(task, state, pair[:n_seen])
            choose(policy, search, pair)
            reward, terminated = step_continuous(task, state, pair[n_seen:])
            returns[k] += reward
            if terminated:
                break


@compiled
def _train(task, rng, checkpoints, returns, policies, moments, traces, blends, searches):
    live, best, candidate = policies
    blend, next_blend = blends
    search, trial_search = searches
    n_seen, d, limit = task.n_features, live.slopes.shape[1], task.max_episode_steps
    contest, squared_error, mean_reward = np.zeros(16), 1.0, 0.0
    contest[BEST_MEAN] = contest[BEST_SCORE] = -1e300
    value, next_value, scratch = np.zeros(1), np.zeros(1), np.zeros(1)
    mean, squares, deviations, recent = np.zeros(d), np.zeros(d), np.ones(d), np.zeros((RECENT, d))
    state, pair, after = np.zeros(task.starts.shape[1]), np.zeros(d), np.zeros(d)  # (s, u)
    live.state[CELLS], live.state[TEMPERATURE], moments.masses[0] = 1, 0.5 * d, 1.0
    for i in range(d):
        live.transform[i, i] = 1.0
    clear(traces)
    copy(best, live)
    starts, held, old = True, 0, 0.0
    episode, length, total, checked, n_observed, next_metric = 0, 0, 0.0, 0, 0, WARM_UP + 1000.0
    reset(task, 0, state)
    look(task, state, pair[:n_seen])
    for t in range(checkpoints[-1]):
        warm = t < WARM_UP
        if warm:
            if rng.random() < 0.1 or length == 0:
                draw(rng, pair[n_seen:])
            after[n_seen:] = pair[n_seen:]
        elif starts:
            if contest[TRIAL]:
                invert(candidate, trial_search)
                choose(candidate, trial_search, pair)
            else:
                choose(live, search, pair)
            evaluate_at(live, pair, blend, value)
        reward, terminated = step_continuous(task, state, pair[n_seen:])
        look(task, state, after[:n_seen])
        length, total = length + 1, total + reward
        over = terminated or length >= limit
        for i in range(n_seen):
            surprise = after[i] - mean[i]
            mean[i] += surprise / (t + 1)
            squares[i] += surprise * (after[i] - mean[i])
        squares[n_seen:] = (t + 1) / 3.0  # as of uniform actions
        recent[t % RECENT] = after
        for i in range(n_seen, d):
            recent[t % RECENT, i] = rng.uniform(-1.0, 1.0)
        trial = contest[TRIAL]
        if warm:
            mean_reward += reward / WARM_UP
            if t == WARM_UP - 1:
                for i in range(d):
                    live.transform[i, i] = 1.0 / (math.sqrt(squares[i] / (t + 1)) + 1e-9)
                live.origin[:], over = mean, True
                live.values[0] = max(mean_reward, 0.0) / (1.0 - GAMMA)
                invert(live, search)
        else:
            # Fast: the next action, birth, target and values.
            if not trial and held > 0:
                held, after[n_seen:] = held - 1, pair[n_seen:]
            elif not trial and rng.random() < EPSILON / (1.0 + t / EPSILON_STEPS):
                draw(rng, after[n_seen:])
                held = int(HOLD ** rng.random()) - 1
            else:
                choose(live, search, after)
            distance = evaluate_at(live, after, next_blend, next_value)
            if distance > BIRTH * live.state[TEMPERATURE] / BLEND:
                if give_birth(live, moments, traces, next_blend, next_value, squared_error, t):
                    evaluate_at(live, pair, blend, value)
                evaluate_at(live, after, next_blend, next_value)
            error = reward - value[0] + (0.0 if terminated else GAMMA * next_value[0])
            change = 0.0 if starts else value[0] - old
            update(live, traces, blend, 0, error, change, t)
            old = next_value[0]
            squared_error += max(1e-4, 1.0 / (t + 1)) * (error * error - squared_error)
            # Slow: moments, metric, and the number of cells.
            if t % OBSERVE_EVERY == 0:
                n_observed += 1
                observe(live, moments, blend, n_observed)
            if t % ANNEAL_EVERY == 0:
                deviations[:] = np.sqrt(squares / (t + 1)) + 1e-9
                if t >= next_metric:
                    next_metric = t + max(METRIC_EVERY, 0.1 * t)
                    rows = recent[: min(t + 1, RECENT)]
                    learn_metric(live, moments, rows, next_blend, scratch, deviations)
                rescale(live, moments, traces, mean, deviations)
                anneal(live, moments, traces, t)
                invert(live, search)
                evaluate_at(live, after, next_blend, next_value)
            contest[SPENT] += trial
        starts = over
        if over:
            clear(traces)
            held = 0
            if warm:
                pass
            elif trial:
                end_trial_episode(contest, total, t, best, candidate)
            else:
                end_learning_episode(contest, total, t, limit, live, best, candidate)
            episode, length, total = episode + 1, 0, 0.0
            reset(task, episode, state)
            look(task, state, pair[:n_seen])
        else:
            pair[:] = after
            if trial and not warm:
                choose(candidate, trial_search, pair)
                evaluate_at(live, pair, blend, value)
            elif not warm:
                copy_blend(blend, next_blend)
                value[0] = next_value[0]
        if t + 1 == checkpoints[checked]:
            play(task, best, trial_search, returns[checked])
            invert(candidate, trial_search)
            checked += 1


def zeros(*shapes: tuple[int, ...]) -> list[FloatArray]:
    return [np.zeros(shape) for shape in shapes]


def new_search(d: int, m: int) -> Search:
    """Allocate for m components of actions among d."""
    levels = np.linspace(-1.0, 1.0, 5 if m == 1 else 3)
    grid = np.stack(np.meshgrid(*[levels] * m), axis=-1).reshape(-1, m)
    arrays = zeros((m, d), (d,), (d,), (MAX_CELLS, m))
    return Search(grid, *arrays, np.zeros(SHORTLIST, int), *zeros((SHORTLIST,), (NEAREST,)))


def train(
    task: CompiledTask, seed: int, checkpoints: tuple[int, ...], n_eval_episodes: int
) -> tuple[FloatArray, int]:
    """Return returns of greedy episodes, shape (checkpoints, episodes), and the number of cells.

    The policy is the one that a user would get at that step.
    """
    m = task.choices.shape[1]
    k, d = MAX_CELLS, task.n_features + m
    policies = tuple(Policy(*zeros((k, d), (k, 1), (k, d), (d, d), (d,), (2,))) for _ in range(3))
    moments = Moments(*zeros((k, d, d), (k,), (k,), (k,), (d, d)))
    traces = Traces(*zeros((k, 1), (k, d), (k,)))
    blends = tuple(
        Blend(np.zeros(1, int), np.zeros(k, int), *zeros((k,), (k, d), (d,), (k,)))
        for _ in range(2)
    )
    searches = new_search(d, m), new_search(d, m)
    returns = np.zeros((len(checkpoints), n_eval_episodes))
    rng, steps = np.random.default_rng(seed), np.array(checkpoints)
    _train(task, rng, steps, returns, policies, moments, traces, blends, searches)
    return returns, int(policies[0].state[CELLS])
