"""
A pendulum: affine torques in cells
===================================

With continuous actions, each cell of a rule has an affine torque, clipped to the box.
"""

import matplotlib.pyplot as plt
import numpy as np

from oda_rl.agents import ModelAgent

agent = ModelAgent("Pendulum-v1", seed=0).learn(1_500)
print(agent.rules())
print("20 fresh episodes:", agent.evaluate(20, seed=1).mean())

# %%
# The torque at each angle and speed:
angle, speed = np.meshgrid(np.linspace(-np.pi, np.pi, 200), np.linspace(-8, 8, 200))
states = np.column_stack([np.cos(angle.ravel()), np.sin(angle.ravel()), speed.ravel()])
torque, _ = agent.predict(states)
figure, ax = plt.subplots(figsize=(6.4, 4.0))
shown = ax.pcolormesh(angle, speed, torque.reshape(angle.shape), cmap="coolwarm")
figure.colorbar(shown, label="torque (N m)")
ax.set(xlabel="angle from upright (rad)", ylabel="angular velocity (rad/s)")
figure.tight_layout()
