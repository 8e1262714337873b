"""
How cells split
===============

Annealing splits cells as the temperature falls. The figure is the bifurcation of a training.
"""

import matplotlib.pyplot as plt

from oda_rl.agents import TwoTimescaleAgent
from oda_rl.plotting import plot_bifurcation, plot_partition

agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(30_000)
plot_bifurcation(agent.history, ax=plt.figure(figsize=(6.4, 4.2)).gca())
plt.tight_layout()

# %%
# Where the cells lie in the plane of pole angle and angular velocity:
visited = agent.visited_states(2_000, seed=0)
plot_partition(agent, (2, 3), visited=visited, ax=plt.figure(figsize=(6.4, 4.2)).gca())
plt.tight_layout()
