"""
Missing values
==============

A third of the values is missing. If means replace them, samples pile up on two lines, and the
mixture is bent towards these lines. If they are left missing, each sample counts by its observed
values (ticks at the sides of the right panel), and the mixture is nearly that of complete data.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.impute import SimpleImputer

from oda_rl import StochasticEMGaussianMixture
from oda_rl.plotting.estimators import plot_density

rng = np.random.default_rng(1)
turns = np.array([[[1.2, 0.9], [0.0, 0.3]], [[0.4, 0.0], [0.0, 1.1]], [[1.0, -0.8], [0.0, 0.3]]])
kinds = rng.integers(3, size=1500)
whole = np.array([[-4.0, 2.0], [0.0, -3.0], [4.0, 2.0]])[kinds]
whole = whole + np.einsum("ni,nij->nj", rng.normal(size=(1500, 2)), turns[kinds])
missing = rng.random(whole.shape) < 0.33
missing[missing.all(axis=1), 0] = False  # each sample needs an observed value
X = np.where(missing, np.nan, whole)
filled = SimpleImputer().fit_transform(X)

figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.4), sharex=True, sharey=True)
complete = ~missing.any(axis=1)
for ax, data, shown in zip(axes, (filled, X), (filled, X[complete]), strict=True):
    model = StochasticEMGaussianMixture(3, covariance_type="full", random_state=0).fit(data)
    plot_density(model, shown, ax=ax)
    ax.set_title(f"log-likelihood of complete samples {model.score(whole):.2f}", loc="left")
axes[0].set_xlabel("means in place of missing values")
axes[1].set_xlabel("values left missing; ticks: samples with one observed value")
ticks = {"color": "0.25", "alpha": 0.3, "markersize": 7, "linestyle": ""}
across, up = (X[missing[:, 1 - j], j] for j in range(2))
axes[1].plot(
    across, np.full(len(across), 0.02), "|", transform=axes[1].get_xaxis_transform(), **ticks
)
axes[1].plot(np.full(len(up), 0.015), up, "_", transform=axes[1].get_yaxis_transform(), **ticks)
axes[1].set(xlim=(-8.0, 8.0), ylim=(-7.0, 5.7))
figure.tight_layout()
model = StochasticEMGaussianMixture(3, covariance_type="full", random_state=0).fit(whole)
print(f"log-likelihood of the mixture of complete samples {model.score(whole):.2f}")
