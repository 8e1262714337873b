"""Small environments with sparse rewards.

References
----------
I. Osband et al., "Behaviour suite for reinforcement learning", ICLR 2020: deep sea.
M. Chevalier-Boisvert et al., "Minigrid & Miniworld", NeurIPS 2023: the door and its key.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

_TILE = 32  # pixels
_COLOURS = {
    " ": (235, 235, 235), "#": (90, 90, 90), "G": (60, 170, 80), "K": (230, 190, 40),
    "D": (140, 80, 30), "/": (200, 160, 110),
}  # fmt: skip
_AGENT = (200, 50, 50)


class _OnGrid(gym.Env[Any, Any]):
    """Base of environments on a grid, which is drawn as text or as an image of (h, w, 3) bytes.

    ``#`` is a wall, ``G`` the goal, ``K`` the key, ``D`` the closed door and ``/`` the open one;
    anything else is the agent.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}: it must be ansi, rgb_array or None")
        self.render_mode = render_mode

    def _places(self) -> tuple[list[str], dict[tuple[int, int], str]]:
        """Return the rows of the grid, and what stands at (column, row); the agent is the last."""
        raise NotImplementedError

    def render(self) -> Any:
        """Draw the present state."""
        rows, things = self._places()
        grid = [list(row) for row in rows]
        for (column, row), thing in things.items():
            grid[row][column] = thing
        if self.render_mode == "ansi":
            return "\n".join("".join(row) for row in grid)
        if self.render_mode is None:
            return None
        colours = [[_COLOURS.get(place, _AGENT) for place in row] for row in grid]
        return np.array(colours, dtype=np.uint8).repeat(_TILE, axis=0).repeat(_TILE, axis=1)


class DeepSea(_OnGrid):
    """A grid of ``size`` by ``size``, from the top left a row down each step.

    A step to the right costs 0.01 / size; only the rightmost path ends with the reward of 1. Which
    action goes right is drawn once for each cell.

    Parameters
    ----------
    size : int
        Number of rows, and of columns.
    swap : int or None
        Seed of the actions' directions; None: 1 is right everywhere.
    render_mode : {"ansi", "rgb_array"}, optional
        Form of ``render``'s result.

    Examples
    --------
    >>> sea = DeepSea(2, swap=None, render_mode="ansi")
    >>> sea.reset()[0], sea.step(1)[:3]
    (0, (3, -0.005, False))
    >>> print(sea.render())
    <BLANKLINE>
     A
    >>> sea.step(1)[:3]
    (3, 0.995, True)
    """

    def __init__(
        self, size: int = 20, swap: int | None = 0, render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self.size = size
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Discrete(size * size)
        self._right = np.ones((size, size), dtype=int)
        if swap is not None:
            self._right = np.random.default_rng(swap).integers(2, size=(size, size))

    def _observation(self) -> int:
        return min(self._row, self.size - 1) * self.size + self._column

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        """Begin at the top left."""
        super().reset(seed=seed)
        self._row, self._column = 0, 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Go a row down, to the left or to the right."""
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
        return self._observation(), reward, self._row == self.size, False, {}

    def _places(self) -> tuple[list[str], dict[tuple[int, int], str]]:
        last = self.size - 1
        at = self._column, min(self._row, last)
        return [" " * self.size] * self.size, {(last, last): "G", at: "A"}


class TwoRooms(_OnGrid):
    """Two rooms of 5 by 5 with a door between; reward 1 in the far corner of the other one.

    Parameters
    ----------
    numbers : int
        Observation: 1, the cell's index; or 2, x and y.
    render_mode : {"ansi", "rgb_array"}, optional
        Form of ``render``'s result.

    Examples
    --------
    >>> rooms = TwoRooms(2)
    >>> rooms.reset()[0], rooms.step(0)[0]
    (array([0., 0.]), array([1., 0.]))
    """

    def __init__(self, numbers: int = 1, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.numbers = numbers
        self.action_space = spaces.Discrete(4)
        self.observation_space: Any = spaces.Discrete(55)
        if numbers == 2:
            high = np.array([10.0, 4.0])
            self.observation_space = spaces.Box(np.zeros(2), high, (2,), np.float64)

    def _observation(self) -> Any:
        x, y = self._at
        return np.array([x, y], dtype=float) if self.numbers == 2 else 5 * x + y

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin in a corner."""
        super().reset(seed=seed)
        self._at = (0, 0)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Go right, left, up or down, unless there is a wall."""
        dx, dy = ((1, 0), (-1, 0), (0, 1), (0, -1))[action]
        x, y = self._at[0] + dx, self._at[1] + dy
        if 0 <= x <= 10 and 0 <= y <= 4 and (x != 5 or y == 2):
            self._at = (x, y)
        self._steps += 1
        goal = self._at == (10, 4)
        return self._observation(), float(goal), goal, self._steps >= 200, {}

    def _places(self) -> tuple[list[str], dict[tuple[int, int], str]]:
        rows = ["     #     "] * 2 + [" " * 11] + ["     #     "] * 2
        return rows, {(10, 0): "G", (self._at[0], 4 - self._at[1]): "A"}  # y goes up


class DoorKey(_OnGrid):
    """MiniGrid's DoorKey-5x5: fetch the key, open the door, and go to the far corner behind it.

    Two rooms of one column and three rows each, with a locked door between. The places of the key,
    the door and the agent are drawn for each episode. Actions: turn left, turn right, forward, pick
    up, drop, toggle the door, nothing. The reward at the goal is 1 - 0.9·(steps / 250).

    An observation is nine numbers: the agent's column, row and direction (0 to 3: right, down,
    left, up), the key's column and row (0, 0 while it is carried), whether it is carried, the
    door's column and row, and whether it is open. A closed door is locked again.

    ``render_mode`` is "ansi", "rgb_array" or None.

    Examples
    --------
    >>> world = DoorKey()
    >>> observation, _ = world.reset(seed=0)
    >>> observation.shape, world.action_space
    ((9,), Discrete(7))
    """

    observation_space = spaces.Box(0.0, 4.0, (9,), np.float64)
    action_space = spaces.Discrete(7)
    max_steps = 250
    _key: tuple[int, int] | None  # None: it is carried

    def _observation(self) -> Any:
        return np.array([
            *self._at, self._direction, *(self._key or (0, 0)), self._key is None,
            *self._door, self._open,
        ], dtype=np.float64)  # fmt: skip

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Place the agent and the key in the left room, and the door."""
        super().reset(seed=seed)
        self._door = (2, int(self.np_random.integers(1, 3)))
        row, key_row = (1 + self.np_random.permutation(3)[:2]).tolist()
        self._at, self._key = (1, row), (1, key_row)
        self._direction = int(self.np_random.integers(4))
        self._open, self._steps = False, 0
        return self._observation(), {}

    def _free(self, place: tuple[int, int]) -> bool:
        if place == self._door:
            return self._open
        return place[0] in (1, 3) and 1 <= place[1] <= 3 and place != self._key

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        dx, dy = ((1, 0), (0, 1), (-1, 0), (0, -1))[self._direction]
        front = (self._at[0] + dx, self._at[1] + dy)
        self._steps += 1
        if action in (0, 1):
            self._direction = (self._direction + 2 * action - 1) % 4
        elif action == 2 and self._free(front):
            self._at = front
        elif action == 3 and front == self._key:
            self._key = None
        elif action == 4 and self._key is None and front != self._door and self._free(front):
            self._key = front
        elif action == 5 and front == self._door:
            self._open = not self._open and self._key is None
        goal = self._at == (3, 3)
        reward = 1.0 - 0.9 * self._steps / self.max_steps if goal else 0.0
        return self._observation(), reward, goal, self._steps >= self.max_steps, {}

    def _places(self) -> tuple[list[str], dict[tuple[int, int], str]]:
        things = {(3, 3): "G", self._door: "/" if self._open else "D"}
        if self._key is not None:
            things[self._key] = "K"
        things[self._at] = ">v<^"[self._direction]
        return ["#####", *["# # #"] * 3, "#####"], things
