"""Contextual bandits: episodes of one step."""

import gymnasium as gym
import numpy as np
import pytest
from environments import QUICK

from oda_rl.agents import CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent


class Bandit(gym.Env):
    """One of n contexts, of which the larger half ask for another action."""

    def __init__(self, n, boxed=False):
        self.n = n
        self.observation_space = gym.spaces.Box(0.0, float(n), (1,), np.float64)
        self.action_space = gym.spaces.Discrete(3)
        if boxed:
            self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.context = int(self.np_random.integers(self.n))
        return np.array([float(self.context)]), {}

    def step(self, action):
        large = self.context >= self.n / 2
        if isinstance(self.action_space, gym.spaces.Box):
            reward = 1.0 - abs(float(action[0]) - (0.5 if large else -0.5))
        else:
            reward = float(action == (2 if large else 1))
        return np.array([float(self.context)]), reward, True, False, {}


@pytest.mark.parametrize(
    ("kind", "boxed", "steps", "least", "settings", "n"),
    [
        (ModelAgent, False, 600, 0.8, QUICK, 1000),
        (FittedQAgent, False, 2000, 0.8, {}, 1),
        (FittedQAgent, False, 2000, 0.8, {}, 1000),
        (TwoTimescaleAgent, False, 3000, 0.6, {}, 1),
        (TwoTimescaleAgent, False, 3000, 0.6, {"gamma": 1.0}, 1000),
        (CodevectorAgent, True, 2000, 0.8, {}, 1000),
        (ModelAgent, True, 600, 0.7, QUICK, 1),  # its rewards are bilinear in context and action
    ],
)
def test_agents_learn_what_a_context_asks_for(kind, boxed, steps, least, settings, n):
    agent = kind(Bandit(n, boxed), seed=0, **settings).learn(steps)
    assert agent.evaluate(200, env=Bandit(n, boxed), seed=1).mean() >= least


@pytest.mark.parametrize("n", [1, 5, 1000])
def test_a_log_of_one_step_episodes_is_fitted(n):
    rng = np.random.default_rng(0)
    contexts, actions = rng.integers(n, size=600), rng.integers(3, size=600)
    rewards = (actions == np.where(contexts >= n / 2, 2, 1)).astype(float)
    before = contexts[:, None].astype(float)
    spaces = Bandit(n).observation_space, Bandit(n).action_space
    agent = FittedQAgent(spaces, seed=0).fit((before, actions, rewards, before, np.ones(600, bool)))
    chosen = agent.predict(before)[0]
    assert (chosen == np.where(contexts >= n / 2, 2, 1)).mean() > 0.8
