"""
Edit a rule, and prove what it does
===================================

A forbidden action is never taken, neither by the rule nor while learning goes on. Linear programs
decide which actions occur in a box of states. ``diff`` says what an edit costs: here, much.
"""

import matplotlib.pyplot as plt

from oda_rl.agents import ModelAgent, diff
from oda_rl.plotting import plot_difference

agent = ModelAgent("CartPole-v1", seed=0).learn(500)
before = agent.policy
edited = agent.edit().forbid("push left", where="pole angle > 0").done()
change = diff(before, edited, agent.world.seen.before, "CartPole-v1", seed=2)
print(change)
plot_difference(change, ax=plt.figure(figsize=(6.4, 4.2)).gca())
plt.tight_layout()

# %%
agent.constrain(edited)
print(agent.prove({"pole angle": (0.001, 0.2)}))
