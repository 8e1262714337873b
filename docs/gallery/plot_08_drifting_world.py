"""
A world that changes
====================

Half way through, left becomes right. The model agent notices that its model no longer predicts,
forgets it, and learns a new one.
"""

import gymnasium as gym
import matplotlib.pyplot as plt

from oda_rl.agents import ModelAgent


class Swapped(gym.ActionWrapper):
    """Swaps the two actions after so many steps."""

    def __init__(self, env, after):
        super().__init__(env)
        self.after, self.steps = after, 0

    def step(self, action):
        self.steps += 1
        return super().step(action)

    def action(self, action):
        return 1 - action if self.steps > self.after else action


env = Swapped(gym.make("CartPole-v1"), after=3_000)
agent = ModelAgent(env, seed=0)
returns = []
for _ in range(12):
    agent.learn(500)
    returns.append(float(agent.episodes.curve[-1, 0]))
figure, ax = plt.subplots(figsize=(6.4, 3.6))
ax.plot([500 * (i + 1) for i in range(12)], returns, "o-")
ax.axvline(3_000, color="0.5", linestyle="--")
ax.set(xlabel="steps", ylabel="return of the latest episode", ylim=(0, 520))
figure.tight_layout()
