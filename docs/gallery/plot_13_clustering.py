"""
Clusters that split as the temperature falls
============================================

Codevectors split at critical temperatures until there are eight; then single points change between
clusters until no exchange lowers the distortion.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_blobs

from oda_rl import ODAClusterer
from oda_rl.plotting.estimators import plot_bifurcation, plot_clusters

X, _ = make_blobs(2_000, centers=8, cluster_std=0.7, random_state=3)
model = ODAClusterer(n_clusters=8, random_state=0).fit(X)
plot_clusters(model, X, ax=plt.figure(figsize=(6.0, 4.6)).gca())
plt.tight_layout()

# %%
plot_bifurcation(model.history_, ax=plt.figure(figsize=(6.0, 4.6)).gca())
plt.tight_layout()
