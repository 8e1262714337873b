"""Upper bounds on returns: value iteration on a fine grid of states, with the true dynamics.

Values are undiscounted, over the steps of an episode, and bilinear between grid nodes; the greedy
action of the first step is played. Up to the grid, no policy of these actions returns more.

R. Bellman, "Dynamic programming", Princeton University Press, 1957.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
from scipy import sparse

from common.hand_rules import Decide
from common.suite_tasks import N_TORQUES, TASKS, make
from oda_rl._types import FloatArray, IntArray
from oda_rl.envs.classic_control import (
    mountain_car_parameters,
    mountain_car_step,
    pendulum_parameters,
    pendulum_step,
)

NODES = 501  # per component
TORQUES = 9  # of a pendulum with continuous torques


@dataclass(frozen=True)
class Known:
    """An environment of two components with known dynamics."""

    parameters: Callable[[Any], FloatArray]
    step: Callable[..., tuple[float, bool]]
    state: Callable[[Any], tuple[float, float]]  # State of an observation
    low: tuple[float, float]
    high: tuple[float, float]
    turns: bool = False  # The first component is an angle

    def corners(self, states: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the nodes around n states and their weights, both of shape (n, 4)."""
        low, high = np.array(self.low), np.array(self.high)
        spaces = np.array([NODES if self.turns else NODES - 1, NODES - 1])
        places = (states - low) / (high - low) * spaces
        if self.turns:
            places[:, 0] %= NODES
        below = np.clip(np.floor(places).astype(np.int64), 0, spaces - 1)
        share = np.clip(places - below, 0.0, 1.0)
        offsets = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
        around = below[:, None] + offsets
        weights = np.where(offsets, share[:, None], 1 - share[:, None]).prod(axis=2)
        return around[..., 0] % NODES * NODES + around[..., 1], weights

    def nodes(self) -> FloatArray:
        first = np.linspace(self.low[0], self.high[0], NODES, endpoint=not self.turns)
        second = np.linspace(self.low[1], self.high[1], NODES)
        return np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2)


KNOWN = {
    "MountainCar-v0": Known(
        mountain_car_parameters, mountain_car_step, lambda seen: (seen[0], seen[1]),
        (-1.2, -0.07), (0.6, 0.07),
    ),
    "Pendulum-v1": Known(
        pendulum_parameters, pendulum_step, lambda seen: (math.atan2(seen[1], seen[0]), seen[2]),
        (-math.pi, -8.0), (math.pi, 8.0), turns=True,
    ),
}  # fmt: skip


def iterate(known: Known, parameters: FloatArray, actions: list[Any], steps: int) -> FloatArray:
    """Return the values of all actions at the nodes, shape (nodes, actions)."""
    nodes = known.nodes()
    rewards, moves = np.zeros((len(nodes), len(actions))), []
    for k, action in enumerate(actions):
        after, goes_on = nodes.copy(), np.ones(len(nodes))
        for i in range(len(nodes)):
            rewards[i, k], ended = known.step(parameters, after[i], action)
            goes_on[i] = not ended
        places, weights = known.corners(after)
        rows = np.repeat(np.arange(len(nodes)), 4)
        entries = (weights * goes_on[:, None]).ravel()
        shape = (len(nodes), len(nodes))
        moves.append(sparse.csr_matrix((entries, (rows, places.ravel())), shape))
    values = np.zeros(len(nodes))
    q_values = rewards
    for _ in range(steps):
        q_values = rewards + np.column_stack([move @ values for move in moves])
        values = q_values.max(axis=1)
    return q_values


@cache
def best_rule(name: str) -> Decide:
    """Return the optimal rule of a task in :data:`KNOWN`, up to the grid."""
    task = TASKS[name]
    known, env = KNOWN[task.env_id], make(task)
    spec: Any = env.spec
    inner: Any = env.unwrapped
    actions: list[Any] = list(range(3))
    if isinstance(inner.action_space, gym.spaces.Box):
        n = TORQUES if task.boxed else N_TORQUES
        actions = list(np.linspace([-2.0], [2.0], n).astype(np.float32))
    q_values = iterate(known, known.parameters(inner), actions, spec.max_episode_steps)

    def decide(observation: Any) -> Any:
        nodes, weights = known.corners(np.array([known.state(observation)], dtype=np.float64))
        best = int((weights[0] @ q_values[nodes[0]]).argmax())
        return actions[best] if task.boxed else best

    return decide
