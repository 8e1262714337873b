"""
To C, JSON and the browser
==========================

A policy is a few numbers: this is the whole header that a microcontroller compiles.
"""

import subprocess
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from oda_rl.agents import ModelAgent, export_policy

agent = ModelAgent("CartPole-v1", seed=0).learn(500)
with tempfile.TemporaryDirectory() as folder:
    export_policy(agent, Path(folder) / "policy.h")
    export_policy(agent, Path(folder) / "policy.json")
    header = (Path(folder) / "policy.h").read_text()
    data = (Path(folder) / "policy.json").read_text()
print(header)

# %%
# Compiled, it decides as Python does, in a thousand states that the policy visits:
MAIN = """
#include <stdio.h>
#include "policy.h"
int main(void) {
    float obs[4];
    while (scanf("%f %f %f %f", obs, obs + 1, obs + 2, obs + 3) == 4)
        printf("%d\\n", oda_policy(obs));
    return 0;
}
"""
states = agent.visited_states(1_000, seed=1)
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "policy.h").write_text(header)
    Path(folder, "main.c").write_text(MAIN)
    subprocess.run(["cc", "-std=c99", "-O2", "main.c", "-lm", "-o", "main"], cwd=folder, check=True)
    text = "\n".join(" ".join(map(str, state)) for state in states)
    printed = subprocess.run([f"{folder}/main"], input=text, text=True, capture_output=True).stdout
same = np.array(printed.split(), dtype=int) == agent.predict(states.astype(np.float32))[0]
print(f"{same.sum()} of {len(same)} decisions are the same")

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
