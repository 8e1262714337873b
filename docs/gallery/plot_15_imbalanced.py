"""
A rare class
============

A class with 0.6 % of the samples lies within another. All classes are annealed at one temperature:
with few codevectors it stays so high that the rare class does not stand out. The default finds a
number, and a metric, by which it does.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import multivariate_normal
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
for n_clusters in (12, 24, 40, "auto"):
    model = ODAClassifier(n_clusters=n_clusters, random_state=0).fit(X, y)
    print(f"{n_clusters}: F1 {f1_score(truth, model.predict(fresh)):.2f}")

# %%
# For comparison, the decision with the fewest expected errors, which knows both densities:
rare = 0.006 * multivariate_normal([2.5, 2.5], 0.25**2).pdf(fresh)
print(f"F1 {f1_score(truth, rare > 0.994 * multivariate_normal([0, 0], 1.5**2).pdf(fresh)):.2f}")

# %%
# Codevectors and regions of the last model:
plot_decision_regions(model, X, y, ax=plt.figure(figsize=(6.0, 4.6)).gca())
plt.tight_layout()
