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

    metadata = {"action_names": ["left", "nothing", "right"]}
    observation_space = gym.spaces.Dict(  # its keys are names in rules, figures and exports
        {name: gym.spaces.Box(-3.0, 3.0, (1,), np.float64) for name in ("place", "speed")}
    )
    action_space = gym.spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.speed = self.np_random.uniform(-2.0, 2.0), 0.0
        return self._observed(), {}

    def step(self, action):
        self.speed = 0.95 * self.speed + 0.05 * (action - 1)
        self.place = float(np.clip(self.place + self.speed, -3.0, 3.0))
        return self._observed(), -abs(self.place), False, False, {}

    def _observed(self):
        return {"place": np.array([self.place]), "speed": np.array([self.speed])}


env = gym.wrappers.TimeLimit(Puck(), 100)
agent = ModelAgent(env, seed=0).learn(1_000)
print(agent.rules())

# %%
# Five episodes of the rule:
figure, ax = plt.subplots(figsize=(6.4, 3.6))
for seed in range(5):
    observation, _ = env.reset(seed=seed)
    places = [observation["place"][0]]
    for _ in range(100):
        observation, *_ = env.step(agent.predict(observation)[0])
        places.append(observation["place"][0])
    ax.plot(places)
ax.set(xlabel="step", ylabel="place")
figure.tight_layout()
