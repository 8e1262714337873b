"""
A rare class
============

Each class has its own codevectors and masses, so a class with 0.6 % of the samples is found.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import f1_score

from oda_rl import ODAClassifier
from oda_rl.plotting.estimators import plot_decision_regions

rng = np.random.default_rng(0)


def draw(n):
    """Draw n points, of which few are in the second class."""
    y = (rng.random(n) < 0.006).astype(int)
    return rng.normal(size=(n, 2)) * np.where(y, 0.25, 1.5)[:, None] + 2.5 * y[:, None], y


X, y = draw(5_000)
fresh, truth = draw(20_000)
model = ODAClassifier(n_clusters=12, random_state=0).fit(X, y)
print("F1 of the rare class:", f1_score(truth, model.predict(fresh)))
plot_decision_regions(model, X, y, ax=plt.figure(figsize=(6.0, 4.6)).gca())
plt.tight_layout()
