"""Actions that are degrees of one quantity, and rules that choose them by degrees."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Toy

from oda_rl.agents.distilling.coding import degrees_of
from oda_rl.agents.worlds.learning import CodedSteps, learn_world
from oda_rl.envs.dynamics import ActionChoices


def played(env, steps, n_actions):
    """What random actions did."""
    before, after, ended = [], [], []
    codes = np.eye(n_actions)[np.random.default_rng(0).integers(n_actions, size=steps)]
    observation, _ = env.reset(seed=0)
    for code in codes:
        before.append(observation)
        observation, _, terminated, truncated, _ = env.step(int(code.argmax()))
        after.append(observation)
        ended.append(terminated)
        if terminated or truncated:
            observation, _ = env.reset()
    before, after = (np.array(one, dtype=np.float64) for one in (before, after))
    return CodedSteps(before, codes, np.arange(steps) % 2.0, after, np.array(ended))


def degrees(env, steps, n_actions):
    seen = played(env, steps, n_actions)
    learned = learn_world(seen, -np.inf, False, 2, None, np.random.default_rng(0))
    return degrees_of(learned.arrays, learned.at, seen.before, n_actions)


@pytest.mark.parametrize(
    "torques", [(-2.0, -1.0, 0.0, 1.0, 2.0), (2.0, -1.0, -2.0), (1.0, 2.0, -1.0)]
)
def test_torques_are_degrees(torques):
    env = ActionChoices(gym.make("Pendulum-v1"), np.array(torques, dtype=np.float32)[:, None])
    found = degrees(env, 600, len(torques))
    low, high = min(torques), max(torques)
    wanted = 2.0 * (np.array(torques) - low) / (high - low) - 1.0
    np.testing.assert_allclose(np.sign(found[0] * wanted[0]) * found, wanted, atol=0.05)


class Plane(Toy):
    """Moves a point in the plane: right, up, or left and down."""

    def step(self, action):
        self.t += 1
        self.at = 0.9 * self.at + np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])[action]
        return self.at, 0.0, False, self.t == 50, {}

    def reset(self, *, seed=None, options=None):
        self.at, info = super().reset(seed=seed)
        return self.at, info


def test_of_ways_in_the_plane_two_actions_or_the_same_twice_there_are_none():
    assert degrees(Plane(n_actions=3), 600, 3) is None
    assert degrees(gym.make("CartPole-v1"), 300, 2) is None
    twice = ActionChoices(gym.make("Pendulum-v1"), np.float32([[-2.0], [-2.0], [2.0]]))
    assert degrees(twice, 600, 3) is None
