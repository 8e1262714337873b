"""
A streaming mixture of handwritten digits
=========================================

Components stand on a grid, as in a self-organising map, and each is an image.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from oda_rl import SGDGaussianMixture
from oda_rl.plotting.estimators import plot_component_grid

X = load_digits().data / 16.0
model = SGDGaussianMixture(36, random_state=0).fit(X[:1500])
print("held-out log-likelihood:", model.score(X[1500:]))
plot_component_grid(model, (8, 8), ax=plt.figure(figsize=(5.4, 5.4)).gca())
