"""
From 250 steps to a rule
========================

The model agent plays at random for 200 steps, learns how the cart moves, and searches for a rule in
imagined episodes. It delivers a rule of a few cells, here four.
"""

import matplotlib.pyplot as plt

from oda_rl.agents import ModelAgent
from oda_rl.plotting import plot_world

agent = ModelAgent("CartPole-v1", seed=0).learn(250)
print(agent.rules())
print("100 fresh episodes:", agent.evaluate(100, seed=1).mean())

# %%
# How well the model predicts, and whether it is trusted:
print(agent.world.report())

# %%
# A real episode, and the prediction for the same actions by a model that has not seen it:
figure, panels = plt.subplots(2, 2, figsize=(6.8, 4.4))
plot_world(agent.world, ax=panels.ravel())
figure.tight_layout()
