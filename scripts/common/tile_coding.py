"""Baseline: Sarsa(λ) with replacing traces over 16 tilings of the state, compiled.

A tiling is a grid over the state; the t-th is shifted by t (2 i + 1) / 16 tiles, modulo one, in
dimension i. Q(s, a) is the sum of one weight for each tiling. The bounds of the grids are known
beforehand for each task, and angles are periodic: the learners over cells are told neither.

References
----------
R. S. Sutton, A. G. Barto, "Reinforcement learning", 2018, sections 9.5.4 and 12.7.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from common.compiled_tasks import (
    ACROBOT,
    CARTPOLE,
    MOUNTAIN_CAR,
    PENDULUM,
    CompiledTask,
    reset,
    reset_evaluation,
    step,
)  # fmt: skip
from oda_rl._types import FloatArray

TILINGS = 16
STEP_SIZE, GAMMA, LAMBDA = 0.3, 0.99, 0.9
EPSILON, EPSILON_STEPS = 0.1, 5000.0
_SMALLEST_TRACE = 1e-3


class Grid(NamedTuple):
    low: FloatArray
    high: FloatArray
    n_angles: int  # the first components, which are periodic
    n_bins: int


HIGH = {
    CARTPOLE: [2.4, 3.0, 0.21, 3.0],
    MOUNTAIN_CAR: [0.6, 0.07],
    ACROBOT: [math.pi, math.pi, 4.0 * math.pi, 9.0 * math.pi],
    PENDULUM: [math.pi, 8.0],
}
LOW = {kind: [-x for x in high] for kind, high in HIGH.items()} | {MOUNTAIN_CAR: [-1.2, -0.07]}
ANGLES_BINS = {CARTPOLE: (0, 6), MOUNTAIN_CAR: (0, 8), ACROBOT: (2, 6), PENDULUM: (1, 12)}


@njit(cache=True)
def find_tiles(grid, state, tiles):
    """Write the numbers of the tiles of a state, one of each tiling."""
    for tiling in range(TILINGS):
        number = tiling
        for i in range(grid.low.shape[0]):
            periodic = i < grid.n_angles
            x = (state[i] - grid.low[i]) / (grid.high[i] - grid.low[i])
            x = x % 1.0 if periodic else min(max(x, 0.0), 1.0)
            tile = int(x * grid.n_bins + (tiling * (2 * i + 1) % TILINGS) / TILINGS)
            tile = tile % grid.n_bins if periodic else tile
            number = number * (grid.n_bins + 1) + tile
        tiles[tiling] = number


@njit(cache=True)
def greedy(rng, weights, tiles, values):
    """Write the values of all actions; return the greedy one, ties at random."""
    best = 0
    for a in range(values.shape[0]):
        values[a] = 0.0
        for tile in tiles:
            values[a] += weights[tile, a]
        if values[a] > values[best] or (values[a] == values[best] and rng.random() < 0.5):
            best = a
    return best


@njit(cache=True)
def _train(task, grid, rng, checkpoints, n_episodes):
    n_actions, n_tiles = task.n_actions, TILINGS * (grid.n_bins + 1) ** grid.low.shape[0]
    weights, traces = np.zeros((n_tiles, n_actions)), np.zeros((n_tiles, n_actions))
    active, n_active = np.zeros((n_tiles, 2), np.int64), 0
    values, state = np.zeros(n_actions), np.zeros(task.starts.shape[1])
    tiles, next_tiles = np.zeros(TILINGS, np.int64), np.zeros(TILINGS, np.int64)
    returns, checked, episode, length = np.zeros((len(checkpoints), n_episodes)), 0, 0, 0
    reset(task, 0, state)
    find_tiles(grid, state, tiles)
    action = greedy(rng, weights, tiles, values)
    for t in range(checkpoints[-1]):
        error, terminated = step(task, state, action)
        length += 1
        for tile in tiles:
            error -= weights[tile, action]
            if traces[tile, action] == 0.0:
                active[n_active, 0], active[n_active, 1] = tile, action
                n_active += 1
            traces[tile, action] = 1.0
        find_tiles(grid, state, next_tiles)
        next_action = greedy(rng, weights, next_tiles, values)
        if rng.random() < EPSILON / (1.0 + t / EPSILON_STEPS):
            next_action = rng.integers(0, n_actions)
        if not terminated:
            error += GAMMA * values[next_action]
        over = terminated or length >= task.max_episode_steps
        kept = 0
        for j in range(n_active):
            tile, a = active[j, 0], active[j, 1]
            weights[tile, a] += STEP_SIZE / TILINGS * error * traces[tile, a]
            traces[tile, a] *= GAMMA * LAMBDA
            if over or traces[tile, a] < _SMALLEST_TRACE:
                traces[tile, a] = 0.0
            else:
                active[kept] = active[j]
                kept += 1
        n_active = kept
        if t + 1 == checkpoints[checked]:
            at = np.zeros_like(state)
            for k in range(n_episodes):
                reset_evaluation(task, k, at)
                for _ in range(task.max_episode_steps):
                    find_tiles(grid, at, tiles)
                    reward, ended = step(task, at, greedy(rng, weights, tiles, values))
                    returns[checked, k] += reward
                    if ended:
                        break
            checked += 1
        tiles[:], action = next_tiles, next_action
        if over:
            episode, length = episode + 1, 0
            reset(task, episode, state)
            find_tiles(grid, state, tiles)
            action = greedy(rng, weights, tiles, values)
    return returns, np.sum(weights != 0.0)


def train(
    task: CompiledTask, seed: int, checkpoints: tuple[int, ...], n_eval_episodes: int
) -> tuple[FloatArray, int]:
    """Return returns of greedy episodes, shape (checkpoints, episodes), and weights in use."""
    bounds = np.array(LOW[task.kind]), np.array(HIGH[task.kind])
    grid, rng = Grid(*bounds, *ANGLES_BINS[task.kind]), np.random.default_rng(seed)
    returns, used = _train(task, grid, rng, np.array(checkpoints), n_eval_episodes)
    return returns, int(used)
