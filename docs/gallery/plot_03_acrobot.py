"""
Acrobot: a rule of a few cells
==============================

Two joints, one motor. A hand-written rule pushes with the second joint's velocity and returns
-90.8. The rule found here can be read, too.
"""

import gymnasium as gym
import matplotlib.pyplot as plt

from oda_rl.agents import ModelAgent

agent = ModelAgent("Acrobot-v1", seed=0).learn(1_000)
print(agent.rules())
print("20 fresh episodes:", agent.evaluate(20, seed=1).mean())


# %%
# Height of the tip in five fresh episodes; the goal is one length above the upper joint:
def height(observation):
    cos1, sin1, cos2, sin2 = observation[:4]
    return -cos1 - (cos1 * cos2 - sin1 * sin2)


env = gym.make("Acrobot-v1")
figure, ax = plt.subplots(figsize=(6.4, 3.6))
for seed in range(5):
    observation, _ = env.reset(seed=seed)
    heights, over = [height(observation)], False
    while not over:
        observation, _, *ends, _ = env.step(agent.predict(observation)[0])
        heights.append(height(observation))
        over = any(ends)
    ax.plot(heights, color="C0", alpha=0.6, linewidth=1.0)
ax.axhline(1.0, color="0.4", linestyle="--")
ax.set(xlabel="step", ylabel="height of the tip (lengths)")
figure.tight_layout()
