"""
A tree, coarse to fine
======================

Each node anneals a small codebook, so a prediction follows one path from the root to a leaf.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles

from oda_rl import ODATreeClassifier

X, y = make_circles(2_000, noise=0.08, factor=0.5, random_state=0)
model = ODATreeClassifier(random_state=0).fit(X[:1500], y[:1500])
print("accuracy:", model.score(X[1500:], y[1500:]))
across, up = np.meshgrid(np.linspace(-1.5, 1.5, 200), np.linspace(-1.5, 1.5, 200))
regions = model.predict(np.column_stack([across.ravel(), up.ravel()])).reshape(across.shape)
figure, ax = plt.subplots(figsize=(5.4, 5.0))
ax.contourf(across, up, regions, levels=[-0.5, 0.5, 1.5], cmap="coolwarm", alpha=0.4)
ax.scatter(X[:, 0], X[:, 1], c=y, s=3, cmap="coolwarm")
figure.tight_layout()
