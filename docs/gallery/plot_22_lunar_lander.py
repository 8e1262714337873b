"""
A lunar lander: the flight program as a rule of four cells
==========================================================

The teacher is the hand-written flight program that comes with Gymnasium. Cells are fitted to its
actions, each mistake weighted by its cost; then CMA-ES improves the rule in real episodes. Every
step of both is counted.
"""

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from gymnasium.envs.box2d.lunar_lander import heuristic

from oda_rl.agents import distill

env = gym.make("LunarLander-v3")
distilled = distill(lambda state: heuristic(env, state), env, n_cells=4, steps=150_000, seed=0)
print(distilled)

# %%
# Fresh descents, and the rule's actions on the way; the pad lies between the flags:
names = ["nothing", "left engine", "main engine", "right engine"]
colors = ["0.8", "tab:orange", "tab:red", "tab:blue"]
figure, ax = plt.subplots(figsize=(7.2, 4.4))
returns = []
for seed in range(20):
    state, _ = env.reset(seed=10_000 + seed)
    states, actions, rewards, over = [], [], [], False
    while not over:
        action = int(distilled.policy.act(state[None])[0])
        states.append(state)
        actions.append(action)
        state, reward, terminated, truncated, _ = env.step(action)
        rewards.append(float(reward))
        over = terminated or truncated
    returns.append(sum(rewards))
    if seed < 6:
        path = np.array(states)
        ax.plot(path[:, 0], path[:, 1], color="0.8", linewidth=1, zorder=0)
        fired = [i for i in range(len(actions)) if actions[i]]
        ax.scatter(*path[fired, :2].T, c=[colors[actions[i]] for i in fired], s=5)
for name, color in zip(names[1:], colors[1:], strict=True):
    ax.plot([], [], "o", color=color, markersize=4, label=name)
ax.plot([-0.2, -0.2, np.nan, 0.2, 0.2], [0.0, 0.12, np.nan, 0.0, 0.12], color="black")
ax.axhline(0.0, color="black", linewidth=0.8)
ax.set(xlabel="x", ylabel="height", title="six of twenty fresh descents")
ax.legend(frameon=False)
figure.tight_layout()
print(f"20 fresh episodes: {np.mean(returns):.0f}, minimum {min(returns):.0f}")
