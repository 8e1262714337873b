"""
Your own environment
====================

A point on a line, to be moved to the middle. Any Gymnasium environment with the usual spaces trains
as it is.
"""

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from oda_rl.agents import ModelAgent


class Puck(gym.Env):
    """Push a puck to the middle of a line."""

    metadata = {  # names for rules, explanations, figures and exports
        "component_names": ["place", "speed"],
        "action_names": ["left", "nothing", "right"],
    }
    observation_space = gym.spaces.Box(-3.0, 3.0, (2,), np.float64)
    action_space = gym.spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-2.0, 2.0), 0.0])
        return self.state.copy(), {}

    def step(self, action):
        self.state[1] = 0.95 * self.state[1] + 0.05 * (action - 1)
        self.state[0] = np.clip(self.state[0] + self.state[1], -3.0, 3.0)
        return self.state.copy(), -abs(float(self.state[0])), False, False, {}


env = gym.wrappers.TimeLimit(Puck(), 100)
agent = ModelAgent(env, seed=0).learn(1_000)
print(agent.rules())

# %%
# Five episodes of the rule:
figure, ax = plt.subplots(figsize=(6.4, 3.6))
for seed in range(5):
    observation, _ = env.reset(seed=seed)
    places = [observation[0]]
    for _ in range(100):
        observation, *_ = env.step(agent.predict(observation)[0])
        places.append(observation[0])
    ax.plot(places)
ax.set(xlabel="step", ylabel="place")
figure.tight_layout()
