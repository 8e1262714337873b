"""The contest of snapshots, and the constants of learning over soft cells; compiled."""

import math

from numba import njit

from common.soft_cells import copy

WARM_UP, RECENT = 500, 1_000  # steps
EPSILON, EPSILON_STEPS, HOLD = 0.2, 5_000.0, 20.0
OBSERVE_EVERY, ANNEAL_EVERY, METRIC_EVERY = 2, 100, 2_000
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
