"""
From a log alone
================

The agent learns from 2,000 logged steps of a noisy rule, without a step in the environment. It
distrusts actions that the log does not show.
"""

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from oda_rl.agents import FittedQAgent, Transitions

env = gym.make("CartPole-v1")
rng = np.random.default_rng(0)
rows, returns, total = [], [], 0.0
observation, _ = env.reset(seed=0)
for _ in range(2_000):
    action = int(6 * observation[2] + observation[3] > 0) if rng.random() < 0.6 else rng.integers(2)
    after, reward, terminated, truncated, _ = env.step(int(action))
    rows.append((observation, action, reward, after, terminated, truncated))
    observation, total = after, total + reward
    if terminated or truncated:
        returns.append(total)
        observation, total = env.reset()[0], 0.0
log = Transitions(*(np.array(column) for column in zip(*rows, strict=True)))
agent = FittedQAgent((env.observation_space, env.action_space), seed=0).fit(log)
print(agent.estimate_return())
learned = agent.evaluate(50, env=env, seed=1)

figure, ax = plt.subplots(figsize=(6.4, 2.4))
for row, totals in enumerate((learned, returns)):
    ax.plot(totals, row + rng.uniform(-0.15, 0.15, len(totals)), "o", alpha=0.5, markersize=5)
ax.set(xlabel="return of an episode", ylim=(-0.5, 1.5), xlim=(0, 515))
ax.set_yticks([0, 1], ["learned\nfrom it", "in the\nlog"])
figure.tight_layout()
