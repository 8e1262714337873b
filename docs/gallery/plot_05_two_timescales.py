"""
Two timescales, beside a grid and a map
=======================================

Values are learned fast, cells move slowly. The same learner over annealed cells, a self-organising
map and a uniform grid, three seeds each. Three seeds are an example, not a result:
:doc:`/cells` compares the three kinds of cells with twenty.
"""

import matplotlib.pyplot as plt
import numpy as np

from oda_rl.agents import TwoTimescaleAgent

settings = {
    "annealed": {},
    "map": {"partition": "som", "map_shape": (4, 4)},
    "grid": {"partition": "grid", "bins": 4},
}
checkpoints = [5_000, 10_000, 20_000, 40_000]
figure, ax = plt.subplots(figsize=(6.4, 4.0))
for name, options in settings.items():
    returns = np.zeros((3, len(checkpoints)))
    for seed in range(3):
        agent = TwoTimescaleAgent("CartPole-v1", seed=seed, **options)
        for i, steps in enumerate(checkpoints):
            agent.learn(steps - agent.num_timesteps)
            returns[seed, i] = agent.evaluate(20, seed=100 + seed).mean()
    ax.plot(checkpoints, returns.mean(axis=0), "o-", label=f"{name}: {agent.n_cells} cells")
ax.set(xlabel="steps", ylabel="mean return of three seeds", ylim=(0, 520))
ax.legend(frameon=False)
figure.tight_layout()
