"""
Edit a rule, and prove what it does
===================================

What is forbidden is not done, neither by the rule nor while it learns on; what happens in a box of
states is decided by linear programs. A difference says what an edit costs: this one, much.
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
