"""Small worlds that are hard to explore."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class DeepSea(gym.Env[Any, int]):
    """A grid of ``size`` by ``size``, from its top left a step down each time (Osband et al. 2020).

    To go right costs .01 / size; only who always does so finds the reward of 1. Which action is
    right is drawn for each cell, once.

    Parameters
    ----------
    size : int
        Rows, and columns.
    numbers : int
        Of an observation: 1, the cell's number; or 2, row and column.
    swap : int or None
        Seed of the actions' meanings; None: 1 is right everywhere.
    """

    def __init__(self, size: int = 20, numbers: int = 1, swap: int | None = 0) -> None:
        self.size, self.numbers = size, numbers
        self.action_space = spaces.Discrete(2)
        self.observation_space: Any = spaces.Discrete(size * size)
        if numbers == 2:
            self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float64)
        self._right = np.ones((size, size), dtype=int)
        if swap is not None:
            self._right = np.random.default_rng(swap).integers(2, size=(size, size))

    def _seen(self) -> Any:
        row = min(self._row, self.size - 1)
        if self.numbers == 2:
            return np.array([row, self._column]) / self.size
        return row * self.size + self._column

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._row, self._column = 0, 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = 0.0
        last = self.size - 1
        if action == self._right[self._row, self._column]:
            reward = -0.01 / self.size
            if self._row == last and self._column == last:
                reward += 1.0
            self._column = min(self._column + 1, last)
        else:
            self._column = max(self._column - 1, 0)
        self._row += 1
        return self._seen(), reward, self._row == self.size, False, {}


class TwoRooms(gym.Env[Any, int]):
    """Two rooms of 5 by 5 with a door between; reward 1 in the far corner of the other one.

    Parameters
    ----------
    numbers : int
        Of an observation: 1, the cell's number; or 2, x and y.
    """

    def __init__(self, numbers: int = 1) -> None:
        self.numbers = numbers
        self.action_space = spaces.Discrete(4)
        self.observation_space: Any = spaces.Discrete(55)
        if numbers == 2:
            self.observation_space = spaces.Box(
                np.zeros(2), np.array([10.0, 4.0]), (2,), np.float64
            )

    def _seen(self) -> Any:
        x, y = self._at
        return np.array([x, y], dtype=float) if self.numbers == 2 else 5 * x + y

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = (0, 0)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        dx, dy = ((1, 0), (-1, 0), (0, 1), (0, -1))[action]
        x, y = self._at[0] + dx, self._at[1] + dy
        if 0 <= x <= 10 and 0 <= y <= 4 and (x != 5 or y == 2):
            self._at = (x, y)
        self._steps += 1
        found = self._at == (10, 4)
        return self._seen(), float(found), found, self._steps >= 200, {}
