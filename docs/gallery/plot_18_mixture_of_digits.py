"""
A streaming mixture of handwritten digits
=========================================

Components lie on a grid, as in a self-organising map; each is an image.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from oda_rl import SGDGaussianMixture

X = load_digits().data / 16.0
model = SGDGaussianMixture(36, random_state=0).fit(X[:1500])
print("held-out log-likelihood:", model.score(X[1500:]))
figure, panels = plt.subplots(*model.grid_shape_, figsize=(5.4, 5.4))
for panel, mean in zip(panels.ravel(), model.means_, strict=True):
    panel.imshow(mean.reshape(8, 8), cmap="gray_r")
    panel.axis("off")
