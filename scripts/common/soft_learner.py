"""Sarsa(λ) over soft annealed cells, online, with one setting for all tasks; compiled.

=============  ==================================================================================
warm-up        500 steps for means and deviations: now and then a random action, else the first
exploration    ε-greedy, ε = 0.2 / (1 + t / 5000); in bold episodes held for 1 to 19 steps
bold           nine episodes of ten while their mean return is that of timid ones, less half a
               standard deviation, or more; else one of twenty
trial          a snapshot of the policy plays ten episodes, while its mean return plus a standard
               error reaches the incumbent's score; for at most a fifth of all steps
contest        score: mean less a standard error; the snapshot of the best score is delivered,
               and evaluated further: 10 episodes and one more for every four trials
=============  ==================================================================================

Values are learned in trials, too: by Q-learning's target, as actions are not the learner's.
"""

import math

import numpy as np
from numba import njit

from common.compiled_tasks import CompiledTask, look, reset, reset_evaluation, step
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
    evaluate_at,
    give_birth,
    learn_metric,
    observe,
    rescale,
    update,
)  # fmt: skip
from oda_rl._types import FloatArray

WARM_UP, RECENT = 500, 1_000  # steps
EPSILON, EPSILON_STEPS, HOLD = 0.2, 5_000.0, 20.0
OBSERVE_EVERY, ANNEAL_EVERY, METRIC_EVERY = 2, 100, 2_000
BOLD, TIMID_SHARE, BOLD_COST, BOLD_MEMORY = 0.9, 0.05, 0.5, 0.1
TRIAL_EPISODES, TRIAL_SHARE, TRIAL_PAUSE, RETRIAL = 10.0, 0.2, 0.5, 0.25
(
    TRIAL, REPLAY, UNTIL, TRIALS, SPENT, LAST, EPISODES, AVERAGE, VARIANCE,
    N, MEAN, M2, BEST_N, BEST_MEAN, BEST_M2, BEST_SCORE,
) = range(16)  # fmt: skip

compiled = njit(cache=True)


@compiled
def end_learning_episode(c, total, t, limit, live, best, candidate):
    """Update running mean and variance of returns; start a trial if it is due."""
    c[EPISODES] += 1
    rate, surprise = max(0.1, 1.0 / c[EPISODES]), total - c[AVERAGE]
    c[AVERAGE] += rate * surprise
    c[VARIANCE] += rate * (surprise * surprise * (1.0 - rate) - c[VARIANCE])
    rested = c[SPENT] < TRIAL_SHARE * t and t - c[LAST] > TRIAL_PAUSE * limit
    if c[EPISODES] > 3 and rested:
        c[TRIALS] += 1
        due = TRIAL_EPISODES + RETRIAL * c[TRIALS]
        c[REPLAY] = 0 < c[BEST_N] < due  # the incumbent is evaluated further
        if c[REPLAY]:
            copy(candidate, best)
            c[N], c[MEAN], c[M2] = c[BEST_N], c[BEST_MEAN], c[BEST_M2]
            c[TRIAL], c[UNTIL] = 1, c[BEST_N] + 3
        elif c[BEST_N] == 0 or c[AVERAGE] + math.sqrt(c[VARIANCE]) > c[BEST_MEAN]:
            copy(candidate, live)
            c[N], c[MEAN], c[M2], c[TRIAL] = 0, 0.0, 0.0, 1
    if c[BEST_N] == 0:
        copy(best, live)


@compiled
def end_trial_episode(c, total, t, best, candidate):
    """Update the candidate's record; end its trial when it has won or lost."""
    c[N] += 1
    surprise = total - c[MEAN]
    c[MEAN] += surprise / c[N]
    c[M2] += surprise * (total - c[MEAN])
    error = math.sqrt((c[M2] + c[VARIANCE]) / c[N]) / math.sqrt(c[N])
    score = c[MEAN] - error
    wins = c[N] >= TRIAL_EPISODES and score > c[BEST_SCORE]
    if c[REPLAY]:
        c[TRIAL] = c[N] < c[UNTIL]
    else:
        c[TRIAL] = c[N] < TRIAL_EPISODES and c[MEAN] + error >= c[BEST_SCORE]
        if wins:
            copy(best, candidate)
    if c[REPLAY] or wins:
        c[BEST_N], c[BEST_MEAN], c[BEST_M2], c[BEST_SCORE] = c[N], c[MEAN], c[M2], score
    if not c[TRIAL]:
        c[LAST] = t


@compiled
def draw_boldness(rng, means, variances, counts, bold, total, counted):
    """Note the return of a bold or timid episode; return whether the next one is bold."""
    if counted:
        i = int(bold)
        counts[i] += 1
        rate, surprise = max(BOLD_MEMORY, 1.0 / counts[i]), total - means[i]
        means[i] += rate * surprise
        variances[i] += rate * (surprise * surprise * (1.0 - rate) - variances[i])
    good = means[1] >= means[0] - BOLD_COST * math.sqrt(variances[0])
    return rng.random() < (BOLD if good else TIMID_SHARE)


@compiled
def play(task, policy, blend, values, returns):
    """Write the returns of greedy episodes."""
    state, observation = np.zeros(task.starts.shape[1]), np.zeros(task.n_features)
    for k in range(returns.shape[0]):
        reset_evaluation(task, k, state)
        for _ in range(task.max_episode_steps):
            look(task, state, observation)
            evaluate_at(policy, observation, blend, values)
            reward, terminated = step(task, state, np.argmax(values))
            returns[k] += reward
            if terminated:
                break


@compiled
def _train(task, rng, checkpoints, returns, policies, moments, traces, blends):
    live, best, candidate = policies
    blend, next_blend = blends
    d, n_actions, limit = task.n_features, task.n_actions, task.max_episode_steps
    contest, squared_error, mean_reward = np.zeros(16), 1.0, 0.0
    contest[BEST_MEAN] = contest[BEST_SCORE] = -1e300
    values, next_values = np.zeros(n_actions), np.zeros(n_actions)
    others = np.zeros(n_actions)  # of the candidate, and scratch
    mean, squares, deviations, recent = np.zeros(d), np.zeros(d), np.ones(d), np.zeros((RECENT, d))
    bold_means, bold_variances, bold_counts = np.zeros(2), np.zeros(2), np.zeros(2)
    state, seen, after = np.zeros(task.starts.shape[1]), np.zeros(d), np.zeros(d)
    live.state[CELLS], live.state[TEMPERATURE], moments.masses[0] = 1, 0.5 * d, 1.0
    for i in range(d):
        live.transform[i, i] = 1.0
    clear(traces)
    copy(best, live)
    first_action = rng.integers(0, n_actions)
    action, bold, starts, held, old = first_action, True, True, 0, 0.0
    episode, length, total, checked, n_observed, next_metric = 0, 0, 0.0, 0, 0, WARM_UP + 1000.0
    reset(task, 0, state)
    look(task, state, seen)
    for t in range(checkpoints[-1]):
        warm = t < WARM_UP
        if warm:
            redrawn = rng.random() < 0.1 or length == 0
            action = rng.integers(0, n_actions) if redrawn else first_action
        elif starts:
            evaluate_at(live, seen, blend, values)
            action = np.argmax(values)
            if contest[TRIAL]:
                evaluate_at(candidate, seen, next_blend, others)
                action = np.argmax(others)
        reward, terminated = step(task, state, action)
        look(task, state, after)
        length, total = length + 1, total + reward
        over = terminated or length >= limit
        surprise = after - mean
        mean += surprise / (t + 1)
        squares += surprise * (after - mean)
        recent[t % RECENT] = after
        next_action, trial = action, contest[TRIAL]
        if warm:
            mean_reward += reward / WARM_UP
            if t == WARM_UP - 1:
                for i in range(d):
                    live.transform[i, i] = 1.0 / (math.sqrt(squares[i] / (t + 1)) + 1e-9)
                live.origin[:], over = mean, True
                live.values[0] = max(mean_reward, 0.0) / (1.0 - GAMMA)
        else:
            # Fast: birth, the next action, target and values.
            distance = evaluate_at(live, after, next_blend, next_values)
            if distance > BIRTH * live.state[TEMPERATURE] / BLEND:
                if give_birth(live, moments, traces, next_blend, next_values, squared_error, t):
                    evaluate_at(live, seen, blend, values)
                evaluate_at(live, after, next_blend, next_values)
            greedy = np.argmax(next_values)
            next_action = greedy
            if not trial and held > 0:
                held, next_action = held - 1, action
            elif not trial and rng.random() < EPSILON / (1.0 + t / EPSILON_STEPS):
                next_action = rng.integers(0, n_actions)
                held = int(HOLD ** rng.random()) - 1 if bold else 0
            future = next_values[next_action]
            error = reward - values[action] + (0.0 if terminated else GAMMA * future)
            change = 0.0 if starts else values[action] - old
            update(live, traces, blend, action, error, change, t)
            old = future
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
                    learn_metric(live, moments, rows, next_blend, others, deviations)
                rescale(live, moments, traces, mean, deviations)
                anneal(live, moments, traces, t)
                evaluate_at(live, after, next_blend, next_values)
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
            bold = draw_boldness(
                rng, bold_means, bold_variances, bold_counts, bold, total, not warm and not trial
            )
            episode, length, total = episode + 1, 0, 0.0
            reset(task, episode, state)
            look(task, state, seen)
        else:
            if trial and not warm:
                evaluate_at(candidate, after, blend, others)
                next_action = np.argmax(others)
                evaluate_at(live, after, blend, others)
            elif not warm:
                copy_blend(blend, next_blend)
            values[:], seen[:], action = next_values, after, next_action
        if t + 1 == checkpoints[checked]:
            play(task, best, next_blend, others, returns[checked])
            checked += 1


def train(
    task: CompiledTask, seed: int, checkpoints: tuple[int, ...], n_eval_episodes: int
) -> tuple[FloatArray, int]:
    """Return returns of greedy episodes, shape (checkpoints, episodes), and the number of cells.

    The policy is the one that a user would get at that step.
    """
    k, d, n_actions = MAX_CELLS, task.n_features, task.n_actions

    def zeros(*shapes: tuple[int, ...]) -> list[FloatArray]:
        return [np.zeros(shape) for shape in shapes]

    policies = tuple(
        Policy(*zeros((k, d), (k, n_actions), (k, d), (d, d), (d,), (2,))) for _ in range(3)
    )
    moments = Moments(*zeros((k, d, d), (k,), (k,), (k,), (d, d)))
    traces = Traces(*zeros((k, n_actions), (k, d), (k,)))
    blends = tuple(
        Blend(np.zeros(1, int), np.zeros(k, int), *zeros((k,), (k, d), (d,), (k,)))
        for _ in range(2)
    )
    returns = np.zeros((len(checkpoints), n_eval_episodes))
    steps = np.array(checkpoints)
    _train(task, np.random.default_rng(seed), steps, returns, policies, moments, traces, blends)
    return returns, int(policies[0].state[CELLS])
