"""
A self-organising map
=====================

Codevectors on a grid move together with their neighbours, so the grid unfolds over the data.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons

from oda_rl import SOM

X, _ = make_moons(2_000, noise=0.08, random_state=0)
model = SOM((12, 6), random_state=0).fit(X)
net = model.codevectors_.reshape(12, 6, 2)
figure, ax = plt.subplots(figsize=(6.4, 4.0))
ax.plot(X[:, 0], X[:, 1], ".", color="0.8", markersize=2)
ax.plot(net[:, :, 0], net[:, :, 1], color="C0", linewidth=1)
ax.plot(net[:, :, 0].T, net[:, :, 1].T, color="C0", linewidth=1)
figure.tight_layout()
