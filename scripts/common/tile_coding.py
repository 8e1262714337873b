"""Baseline: Sarsa(λ) with replacing traces over 16 tilings of the state.

A tiling is a grid over the state; the t-th is shifted by t (2 i + 1) / 16 tiles, modulo one, in
dimension i. Q(s, a) is the sum of one weight for each tiling. The bounds of the grids are known
beforehand for each task, and angles are periodic: the learners over cells are told neither.

References
----------
R. S. Sutton, A. G. Barto, "Reinforcement learning", 2018, sections 9.5.4 and 12.7.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from oda_rl._types import FloatArray, IntArray

TILINGS = 16
STEP_SIZE, GAMMA, LAMBDA = 0.3, 0.99, 0.9
EPSILON, EPSILON_STEPS = 0.1, 5000.0
_SMALLEST_TRACE = 1e-3


class Grid(NamedTuple):
    low: Sequence[float]
    high: Sequence[float]
    n_angles: int  # The first components, which are periodic
    n_bins: int

    def tiles(self, state: Sequence[float]) -> IntArray:
        """Return the numbers of the tiles of a state, one of each tiling."""
        low, high, d = np.array(self.low), np.array(self.high), len(self.low)
        share = (np.array(state, dtype=np.float64) - low) / (high - low)
        share = np.where(np.arange(d) < self.n_angles, share % 1.0, np.clip(share, 0.0, 1.0))
        shifts = np.arange(TILINGS)[:, None] * (2 * np.arange(d) + 1) % TILINGS / TILINGS
        places = (share * self.n_bins + shifts).astype(np.int64)
        places[:, : self.n_angles] %= self.n_bins
        shape = TILINGS, *(self.n_bins + 1,) * d
        return np.ravel_multi_index((np.arange(TILINGS), *places.T), shape)

    @property
    def size(self) -> int:
        return TILINGS * (self.n_bins + 1) ** len(self.low)


_CART = Grid([-2.4, -3.0, -0.21, -3.0], [2.4, 3.0, 0.21, 3.0], 0, 6)
_JOINTS = [math.pi, math.pi, 4.0 * math.pi, 9.0 * math.pi]
GRIDS = {
    "CartPoleEnv": _CART,
    "BartoCartPoleEnv": _CART,
    "MountainCarEnv": Grid([-1.2, -0.07], [0.6, 0.07], 0, 8),
    "AcrobotEnv": Grid([-x for x in _JOINTS], _JOINTS, 2, 6),
    "PendulumEnv": Grid([-math.pi, -8.0], [math.pi, 8.0], 1, 12),
}


def greedy(values: FloatArray, rng: np.random.Generator) -> int:
    """Return the action of greatest value, ties at random."""
    return int(rng.choice(np.flatnonzero(values == values.max())))


def evaluate(
    env: gym.Env[Any, Any], grid: Grid, weights: FloatArray, rng: np.random.Generator
) -> float:
    """Return the return of a greedy episode from a state that has been reset."""
    inner: Any = env.unwrapped
    total, over = 0.0, False
    while not over:
        action = greedy(weights[grid.tiles(inner.state)].sum(axis=0), rng)
        _, reward, terminated, truncated, _ = env.step(action)
        total, over = total + float(reward), terminated or truncated
    return total


def train(
    make: Callable[[], gym.Env[Any, Any]],
    seed: int,
    checkpoints: Sequence[int],
    n_eval_episodes: int,
) -> tuple[FloatArray, int]:
    """Return returns of greedy episodes, shape (checkpoints, episodes), and weights in use."""
    env, place, rng = make(), make(), np.random.default_rng(seed)
    inner: Any = env.unwrapped
    grid, n_actions = GRIDS[type(inner).__name__], int(env.action_space.n)  # type: ignore[attr-defined]
    weights = np.zeros((grid.size, n_actions))
    active, traces = np.zeros(0, dtype=np.int64), np.zeros(0)
    returns: list[list[float]] = []
    env.reset(seed=seed)
    tiles = grid.tiles(inner.state)
    action = greedy(weights[tiles].sum(axis=0), rng)
    for t in range(checkpoints[-1]):
        _, reward, terminated, truncated, _ = env.step(action)
        error = float(reward) - weights[tiles, action].sum()
        chosen = tiles * n_actions + action
        others = ~np.isin(active, chosen)
        active = np.concatenate([chosen, active[others]])
        traces = np.concatenate([np.ones(TILINGS), traces[others]])
        tiles = grid.tiles(inner.state)
        values = weights[tiles].sum(axis=0)
        action = greedy(values, rng)
        if rng.random() < EPSILON / (1.0 + t / EPSILON_STEPS):
            action = int(rng.integers(n_actions))
        if not terminated:
            error += GAMMA * values[action]
        weights.flat[active] += STEP_SIZE / TILINGS * error * traces
        traces *= GAMMA * LAMBDA
        kept = traces >= _SMALLEST_TRACE
        active, traces = active[kept], traces[kept]
        if terminated or truncated:
            env.reset()
            active, traces, tiles = active[:0], traces[:0], grid.tiles(inner.state)
            action = greedy(weights[tiles].sum(axis=0), rng)
        if t + 1 in checkpoints:
            place.reset(seed=seed + 10**9)
            returns.append([])
            for _ in range(n_eval_episodes):
                returns[-1].append(evaluate(place, grid, weights, rng))
                place.reset()
    return np.array(returns), int(np.count_nonzero(weights))
