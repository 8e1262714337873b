"""
A hopper: torques of three joints from one affine rule
======================================================

The model agent does not trust what it learns of contacts with the ground, and climbs one affine
rule in real episodes instead. This one has been climbed for 300,000 steps. From most starts it hops
on until the time limit, from some it falls. Its 36 numbers are all there is.
"""

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from oda_rl.agents import ModelAgent, RulePolicy

output = np.array([
    [-3.55, 2.62, -7.17, -1.01, 0.173, -0.00294, -0.105, 0.0416, -0.675, -0.0729, 0.0742, -0.0795],
    [-0.914, 1.33, 1.2, -0.431, -2.15, 0.578, -0.248, -0.396, -0.0585, 0.022, -0.0625, 0.0632],
    [-2.92, 3.6, 0.723, 2.11, -0.791, 0.771, -0.516, 0.162, 0.134, 0.088, 0.156, 0.0467],
])  # fmt: skip  # offset and slopes of each torque
env = gym.make("Hopper-v5")
agent = ModelAgent(env)  # it has learned nothing, but knows the names
rule = RulePolicy(np.zeros((1, 12)), output[None], np.zeros((1, 11)))
rule = rule.named(agent.names, agent.action_names)
print(rule.rules())

# %%
# The range of each torque where the hopper stands upright, proved:
upright = dict.fromkeys(agent.names, (-0.05, 0.05))
print(rule.prove({**upright, "height (m)": (1.2, 1.25)}))


# %%
# A fresh episode, drawn from the observations alone:
def joints(x, height, torso, thigh, leg, foot):
    """Return neck, hip, knee, ankle, toe and heel, shape (6, 2)."""

    def turned(angle, along, up):
        return np.array([along * np.cos(angle) + up * np.sin(angle),
                         up * np.cos(angle) - along * np.sin(angle)])  # fmt: skip

    middle, sole = np.array([x, height]), torso - thigh - leg - foot
    hip = middle + turned(torso, 0.0, -0.2)
    knee = hip + turned(torso - thigh, 0.0, -0.45)
    ankle = knee + turned(torso - thigh - leg, 0.0, -0.5)
    toe, heel = (ankle + turned(sole, along, 0.0) for along in (0.26, -0.13))
    return np.array([middle + turned(torso, 0.0, 0.2), hip, knee, ankle, toe, heel])


figure, ax = plt.subplots(figsize=(9.6, 2.6))
state, _ = env.reset(seed=3)
x, total, over, step = 0.0, 0.0, False, 0
while not over:
    if step % 12 == 0 and x < 6.0:
        color = plt.colormaps["viridis"](x / 6.0)
        ax.plot(*joints(x, *state[:5]).T, color=color, linewidth=1.5)
    state, reward, terminated, truncated, _ = env.step(rule.act(state[None])[0])
    x, total = x + state[5] * env.unwrapped.dt, total + float(reward)
    over, step = terminated or truncated, step + 1
ax.axhline(0.0, color="black", linewidth=0.8)
ax.set(xlabel="x (m)", ylabel="height (m)", aspect="equal")
figure.tight_layout()
print(f"{step} steps, {x:.1f} m, return {total:.0f}")
