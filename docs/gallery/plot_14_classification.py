"""
A classifier at every size
==========================

``at_level`` returns the model as it was with fewer codevectors, without refitting.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons

from oda_rl import ODAClassifier
from oda_rl.plotting.estimators import plot_decision_regions

X, y = make_moons(1_500, noise=0.15, random_state=0)
model = ODAClassifier(n_clusters=24, random_state=0).fit(X[:1000], y[:1000])
for level in (4, 8, 24):
    small = model.at_level(n_clusters=level)
    print(level, "codevectors:", small.score(X[1000:], y[1000:]))
plot_decision_regions(model, X, y, ax=plt.figure(figsize=(6.0, 4.6)).gca())
plt.tight_layout()
