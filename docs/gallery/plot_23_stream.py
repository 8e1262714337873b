"""
A stream, and how many clusters it has
======================================

Samples come in blocks and are seen once. As the temperature falls, codevectors split; a number of
clusters that lasts over many temperatures is one that the data have.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_blobs

from oda_rl import ODAClusterer
from oda_rl.plotting import plot_bifurcation

centers = [[0.0, 0.0], [1.0, 0.0], [6.0, 0.0], [6.0, 2.0]]
X, _ = make_blobs(6_000, centers=centers, cluster_std=0.1, random_state=0)
model = ODAClusterer(n_clusters=8, random_state=0)
for begin in range(0, len(X), 100):
    model.partial_fit(X[begin : begin + 100])

# %%
# The highest and lowest temperature with each number of clusters:
for k in sorted({level.n_clusters for level in model.history_}):
    at = [level.temperature for level in model.history_ if level.n_clusters == k]
    name = f"{k} cluster{'s' * (k > 1)}"
    print(f"{name}: from {max(at):.3g} to {min(at):.3g}, a factor of {max(at) / min(at):.3g}")

# %%
# First there are two pairs far apart; then the pairs split, and four clusters last longest. Eight
# were asked for, so in the end single clusters split, all at about the same temperature.
plot_bifurcation(model.history_, ax=plt.figure(figsize=(6.4, 4.4)).gca())
plt.tight_layout()

# %%
# The model as it was with four, without fitting again:
four = model.at_level(n_clusters=4)
print(four.cluster_centers_.round(2))
