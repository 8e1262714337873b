"""
A mountain car that seeks novelty first
=======================================

As long as all returns are equal, the model agent imagines going where it has not been, and goes
there.
"""

import matplotlib.pyplot as plt
import numpy as np

from oda_rl.agents import ModelAgent

agent = ModelAgent("MountainCar-v0", seed=0).learn(1_500)
print(agent.rules())
print("20 fresh episodes:", agent.evaluate(20, seed=1).mean())

# %%
# The rule's actions in the plane, and the visited states:
position, velocity = np.meshgrid(np.linspace(-1.2, 0.6, 200), np.linspace(-0.07, 0.07, 200))
states = np.column_stack([position.ravel(), velocity.ravel()])
actions = agent.policy.act(states).reshape(position.shape)
seen = agent.world.seen.before
figure, ax = plt.subplots(figsize=(6.4, 4.0))
ax.contourf(position, velocity, actions, levels=[-0.5, 0.5, 1.5, 2.5], cmap="coolwarm", alpha=0.4)
ax.plot(seen[:, 0], seen[:, 1], ".", color="0.2", markersize=1)
ax.set(xlabel="position (m)", ylabel="velocity (m/step)", title="blue: left, red: right")
figure.tight_layout()
