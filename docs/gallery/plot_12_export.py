"""
To C, JSON and the browser
==========================

A policy is a few numbers: this is the whole header that a microcontroller compiles.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from oda_rl.agents import ModelAgent, export_policy

agent = ModelAgent("CartPole-v1", seed=0).learn(500)
with tempfile.TemporaryDirectory() as folder:
    export_policy(agent, Path(folder) / "policy.h")
    export_policy(agent, Path(folder) / "policy.json")
    header = (Path(folder) / "policy.h").read_text()
    data = (Path(folder) / "policy.json").read_text()
print(header)

# %%
print(data[:800])

# %%
# Size of the header for three policies of the cart-pole:
from oda_rl.agents import FittedQAgent, TwoTimescaleAgent

sizes = {"ModelAgent": len(header)}
for kind in (TwoTimescaleAgent, FittedQAgent):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.h"
        export_policy(kind("CartPole-v1", seed=0).learn(20_000), path)
        sizes[kind.__name__] = path.stat().st_size
figure, ax = plt.subplots(figsize=(6.4, 2.6))
ax.barh(list(sizes), list(sizes.values()))
ax.set(xlabel="bytes of the header's text")
figure.tight_layout()
