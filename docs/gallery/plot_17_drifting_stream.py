"""
Clusters that move
==================

With ``forgetting``, codevectors follow a stream; without, they stay where most of it was.
"""

import matplotlib.pyplot as plt
import numpy as np

from oda_rl import ODAClusterer

rng = np.random.default_rng(0)
centre = np.linspace(0.0, 6.0, 12_000)[:, None] * np.array([1.0, 0.5])
X = centre + rng.normal(scale=0.4, size=(12_000, 2))
follows = ODAClusterer(n_clusters=4, forgetting=2e-3, random_state=0)
stays = ODAClusterer(n_clusters=4, random_state=0)
figure, ax = plt.subplots(figsize=(6.4, 4.0))
ax.plot(X[::20, 0], X[::20, 1], ".", color="0.8", markersize=2)
for begin in range(0, len(X), 500):
    follows.partial_fit(X[begin : begin + 500])
    stays.partial_fit(X[begin : begin + 500])
for name, model, mark in (("forgetting", follows, "o"), ("not", stays, "x")):
    ax.plot(*model.cluster_centers_.T, mark, label=name, markersize=9)
ax.legend(frameon=False)
figure.tight_layout()
