"""
Why this action, and what would change it
=========================================

An explanation names a near state with another action, and a distance within which the action is the
same.
"""

import matplotlib.pyplot as plt

from oda_rl.agents import TwoTimescaleAgent

agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(30_000)
why = agent.explain([0.0, 0.0, 0.02, 0.0])
print(why)

# %%
# Distance to another action, along the angle:
angles = [0.002 * i for i in range(-40, 41)]
distances = [agent.explain([0.0, 0.0, angle, 0.0]).distance for angle in angles]
figure, ax = plt.subplots(figsize=(6.4, 3.6))
ax.plot(angles, distances)
ax.set(xlabel="pole angle (rad)", ylabel="standard deviations to another action")
figure.tight_layout()
