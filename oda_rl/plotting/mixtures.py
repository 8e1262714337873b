"""Figures of Gaussian mixtures. They draw on a matplotlib Axes and return it."""

import math

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse

from oda_rl._types import FloatArray
from oda_rl.mixtures.base import StreamingMixture
from oda_rl.mixtures.sgd import SGDGaussianMixture
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.plotting.plane import in_plane, mosaic

_RESOLUTION = 200
_LEVELS = 12
_DEPTH = 8.0  # of the drawn log-densities, below the highest
_POINTS = 3000  # drawn at most


def plot_component_grid(
    mixture: SGDGaussianMixture, shape: tuple[int, int] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the means of all components where they stand on the grid.

    Parameters
    ----------
    mixture : SGDGaussianMixture
        Fitted.
    shape : tuple of int, optional
        Rows and columns of an image; by default a square, or one row where features are no square.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If ``shape`` does not fit the number of features.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data / 16.0
    >>> mixture = SGDGaussianMixture(9, batch_size=10, random_state=0)
    >>> ax = plot_component_grid(mixture.partial_fit(X))
    """
    means = np.asarray(mixture.means_, dtype=np.float64)
    side = math.isqrt(means.shape[1])
    square = (side, side) if side * side == means.shape[1] else (1, means.shape[1])
    height, width = shape or square
    if height * width != means.shape[1]:
        raise ValueError(
            f"shape is {shape}: its product must be the number of features, {means.shape[1]}"
        )
    rows, columns = mixture.grid_shape_
    picture = mosaic(means.reshape(-1, height, width), columns)
    if ax is None:
        ax = new_axes(4.8, 4.8 * rows / columns + 0.4)[0]
        ax.figure.subplots_adjust(left=0.02, bottom=0.02, right=0.98, top=0.92)  # no labels
    ax.imshow(picture, cmap="gray_r", vmin=means.min(), vmax=means.max(), interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.set_title(f"Means of {len(means)} components on their grid", loc="left")
    return ax


def plot_density(
    mixture: StreamingMixture,
    X: npt.ArrayLike,
    ax: Axes | None = None,
) -> Axes:
    """Draw the density of a mixture of two features: contours, samples, ellipses.

    Ellipses are one standard deviation of each component, the darker the greater its weight.

    Parameters
    ----------
    mixture : SGDGaussianMixture, StochasticEMGaussianMixture or DistributedGaussianMixture
        Fitted.
    X : array-like, shape (n_samples, 2)
        Samples, which also say what part of the plane is drawn.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there are not two features.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> ax = plot_density(SGDGaussianMixture(4, random_state=0).fit(X), X)
    """
    points = in_plane(X)
    ax = ax or new_axes(5.4, 4.8)[0]
    margin = 0.1 * np.ptp(points, axis=0)
    low, high = points.min(axis=0) - margin, points.max(axis=0) + margin
    x, y = (np.linspace(low[i], high[i], _RESOLUTION) for i in range(2))
    where = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    logs = mixture.score_samples(where).reshape(len(y), len(x))
    levels = np.linspace(logs.max() - _DEPTH, logs.max(), _LEVELS)
    ax.contourf(x, y, logs, levels=levels, cmap="Blues", extend="min")
    shown = points[:: max(1, len(points) // _POINTS)]
    ax.plot(*shown.T, ".", color="0.25", markersize=1.5, alpha=0.5)
    weights = mixture.weights_
    for k, mean in enumerate(mixture.means_):
        values, vectors = np.linalg.eigh(_covariance(mixture, k))
        ax.add_patch(
            Ellipse(
                (float(mean[0]), float(mean[1])),
                *(2.0 * np.sqrt(values)),
                angle=math.degrees(math.atan2(vectors[1, 0], vectors[0, 0])),
                fill=False,
                edgecolor=COLORS[1],
                alpha=0.3 + 0.7 * float(weights[k] / weights.max()),
            )
        )
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    ax.set_title(f"Log-density of {len(weights)} components", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _covariance(mixture: StreamingMixture, k: int) -> FloatArray:
    covariance = np.asarray(mixture.covariances_[k])
    return covariance if covariance.ndim == 2 else np.diag(np.broadcast_to(covariance, 2))
