"""
Clusters that move
==================

Four clusters drift upwards. With ``forgetting``, codevectors follow them; without, they fall
further and further behind.
"""

import matplotlib.pyplot as plt
import numpy as np

from oda_rl import ODAClusterer

rng = np.random.default_rng(0)
centres = np.column_stack([3.0 * rng.integers(4, size=12_000), np.linspace(0.0, 4.0, 12_000)])
X = centres + rng.normal(scale=0.4, size=(12_000, 2))
follows = ODAClusterer(n_clusters=4, forgetting=1e-2, random_state=0)
stays = ODAClusterer(n_clusters=4, random_state=0)
for begin in range(0, len(X), 500):
    follows.partial_fit(X[begin : begin + 500])
    stays.partial_fit(X[begin : begin + 500])
figure, ax = plt.subplots(figsize=(6.4, 4.0))
ax.scatter(*X[::10].T, c=np.arange(0, len(X), 10), s=3, cmap="Greys", vmin=-6_000)
for name, model, mark in (("with forgetting", follows, "o"), ("without", stays, "X")):
    ax.plot(*model.cluster_centers_.T, mark, label=name, markersize=9)
ax.set(xlabel="samples: the later the darker")
ax.legend(loc="lower center", ncols=2, bbox_to_anchor=(0.5, 1.0), frameon=False)
figure.tight_layout()
