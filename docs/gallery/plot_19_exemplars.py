"""
Exemplars with a certificate
============================

The duality gap bounds how much better any other mixture with that bandwidth could be.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons

from oda_rl import INFEX
from oda_rl.plotting.estimators import plot_density

X, _ = make_moons(600, noise=0.1, random_state=0)
model = INFEX(bandwidth=0.25, random_state=0).fit(X)
print(f"{len(model.exemplars_)} exemplars; gap {model.duality_gap_:.1g}")
print("hill climbs for better ones began at:", model.certificate_)
plot_density(model, X, ax=plt.figure(figsize=(6.0, 4.2)).gca())
plt.tight_layout()
