"""Figures of estimators: densities, components, exemplars, and scikit-learn's displays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from oda_rl._types import Array, FloatArray
from oda_rl.exemplars.column_generation import Round
from oda_rl.mixtures.base import StreamingMixture
from oda_rl.mixtures.sgd import SGDGaussianMixture
from oda_rl.plotting.annealing import (
    MeasuredLevel,
    TemperatureLevel,
    plot_annealing,
    plot_trade_off,
)
from oda_rl.plotting.axes import (
    COLORS,
    GRID,
    draw_codevectors,
    draw_points,
    grid,
    in_plane,
    mosaic,
    new_axes,
    window_of,
)

if TYPE_CHECKING:
    from oda_rl.exemplars.base import ExemplarMixture

_GREY = "#777777"
_LEVELS = 12
_DEPTH = 8.0  # below the greatest log-density: what is less likely is not told apart


@dataclass
class _Display:
    """What all displays have."""

    ax_: Axes = field(init=False, repr=False)
    """Where it was drawn last."""

    @property
    def figure_(self) -> Figure:
        """The figure that it was drawn on last."""
        figure = self.ax_.figure
        assert isinstance(figure, Figure)
        return figure


@dataclass
class BifurcationDisplay(_Display):
    """How a codebook branched as the temperature fell, and below it the number of codevectors.

    Parameters
    ----------
    history : sequence of Level
        As in ``history_`` of an annealed estimator.

    Examples
    --------
    >>> from oda_rl import ODAClusterer
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> display = BifurcationDisplay.from_estimator(ODAClusterer(4, random_state=0).fit(X))
    >>> display.ax_.get_title()
    'Annealing'
    """

    history: Sequence[TemperatureLevel]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw what a fitted estimator has in ``history_``.

        Parameters
        ----------
        estimator : ODAClusterer, ODAClassifier or ODARegressor
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Raises
        ------
        ValueError
            If it has no history: it was not fitted, or is no annealed estimator.
        """
        return cls(_history(estimator)).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw, on a new figure by default."""
        self.ax_ = plot_annealing(self.history, ax=ax)
        return self


@dataclass
class TradeOffDisplay(_Display):
    """What more codevectors, or more samples, bought during annealing: accuracy, or distortion.

    Parameters
    ----------
    history : sequence of Level
        As in ``history_`` of an annealed estimator.
    by : {"clusters", "samples"}, default="clusters"
        What is on the horizontal axis.

    Examples
    --------
    >>> from oda_rl import ODAClusterer
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> display = TradeOffDisplay.from_estimator(ODAClusterer(4, random_state=0).fit(X))
    >>> display.ax_.get_xlabel()
    'codevectors K'
    """

    history: Sequence[MeasuredLevel]
    by: Literal["clusters", "samples"] = "clusters"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        by: Literal["clusters", "samples"] = "clusters",
        ax: Axes | None = None,
    ) -> Self:
        """Draw what a fitted estimator has in ``history_``.

        Parameters
        ----------
        estimator : ODAClusterer, ODAClassifier or ODARegressor
        by : {"clusters", "samples"}, default="clusters"
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Raises
        ------
        ValueError
            If it has no history, or ``by`` is anything else.
        """
        return cls(_history(estimator), by).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw, on a new figure by default."""
        self.ax_ = plot_trade_off(self.history, ax=ax, by=self.by)
        return self


@dataclass
class DensityDisplay(_Display):
    """Log-density of a model of the plane, and points.

    Parameters
    ----------
    across, up : ndarray, shape (n, n)
        Places.
    log_density : ndarray, shape (n, n)
        There.
    points : ndarray, shape (m, 2)
        Drawn on top, at most 3000 of them.

    Examples
    --------
    >>> from oda_rl import SGDGaussianMixture
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> model = SGDGaussianMixture(4, random_state=0).fit(X)
    >>> display = DensityDisplay.from_estimator(model, X)
    >>> bool(display.log_density.max() < 0.0)
    True
    """

    across: FloatArray
    up: FloatArray
    log_density: FloatArray
    points: FloatArray

    @classmethod
    def from_estimator(cls, estimator: Any, X: npt.ArrayLike, *, ax: Axes | None = None) -> Self:
        """Draw ``score_samples`` of a fitted estimator, wherever X is.

        Parameters
        ----------
        estimator : estimator with ``score_samples``
            A mixture, exemplars, an annealed estimator, or one of scikit-learn's densities.
        X : array-like, shape (n, 2)
            Points, which also say what part of the plane is drawn.
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Raises
        ------
        ValueError
            If there are not two features.
        TypeError
            If the estimator has no density.
        """
        if not hasattr(estimator, "score_samples"):
            raise TypeError(
                f"estimator is {estimator!r}: it must have score_samples, as mixtures, exemplars "
                "and annealed estimators have"
            )
        points = in_plane(X)
        places = grid(window_of(points, points))
        logs: Array = np.asarray(estimator.score_samples(places), dtype=np.float64)
        shape = GRID, GRID
        across, up = (places[:, i].reshape(shape) for i in range(2))
        return cls(across, up, logs.reshape(shape), points).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw, on a new figure by default."""
        ax = ax or new_axes(5.6, 4.8)[0]
        highest = float(self.log_density.max())
        levels = np.linspace(highest - _DEPTH, highest, _LEVELS)
        ax.contourf(
            self.across, self.up, self.log_density, levels=levels, cmap="Blues", extend="min"
        )
        draw_points(ax, self.points, np.full(len(self.points), _GREY))
        ax.set(xlim=(self.across.min(), self.across.max()), ylim=(self.up.min(), self.up.max()))
        ax.set_title("Log-density", loc="left")
        self.ax_ = ax
        return self


def _history(estimator: Any) -> Any:
    if not getattr(estimator, "history_", None):
        raise ValueError(
            f"estimator is {estimator!r}, which has no history: it must be an annealed estimator "
            "(ODAClusterer, ODAClassifier, ODARegressor) that was fitted"
        )
    return estimator.history_


_MOST_IMAGES = 40
_IMAGES_A_ROW = 10


def plot_exemplar_density(
    model: "ExemplarMixture", X: npt.ArrayLike, ax: Axes | None = None
) -> Axes:
    """Draw the density of a model of the plane, its exemplars, and points.

    Parameters
    ----------
    model : INFEX, ConvexClustering or KernelVectorQuantization
        Fitted to two features. The area of an exemplar's disc grows with its weight.
    X : array-like, shape (n, 2)
        Points; at most 3000 of them are drawn.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If X has not two features.

    Examples
    --------
    >>> from oda_rl import INFEX
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> ax = plot_exemplar_density(INFEX(random_state=0).fit(X), X)
    """
    ax = ax or new_axes(5.6, 5.0)[0]
    points = in_plane(X)
    window = window_of(points, model.exemplars_)
    places = grid(window)
    side = math.isqrt(len(places))
    heights = np.exp(model.score_samples(places)).reshape(side, side)
    across, up = places[:, 0].reshape(side, side), places[:, 1].reshape(side, side)
    ax.contourf(across, up, heights, levels=_LEVELS, cmap="Blues")
    draw_points(ax, points, np.full(len(points), _GREY))
    draw_codevectors(ax, model.exemplars_, model.weights_, np.full(len(model.weights_), COLORS[1]))
    ax.set(xlim=window[0], ylim=window[1])
    ax.set_title(f"{len(model.weights_)} exemplars", loc="left")
    return ax


def plot_images(model: "ExemplarMixture", shape: tuple[int, int], ax: Axes | None = None) -> Axes:
    """Draw exemplars as images, the heaviest first, ten a row and at most 40.

    Parameters
    ----------
    model : INFEX, ConvexClustering or KernelVectorQuantization
        Fitted to images.
    shape : tuple of int
        Rows and columns of an image; their product is the number of features.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If ``shape`` does not fit the exemplars.
    """
    n_rows, n_columns = shape
    if n_rows * n_columns != model.exemplars_.shape[1]:
        raise ValueError(
            f"shape is {shape}, which has {n_rows * n_columns} pixels: the exemplars have "
            f"{model.exemplars_.shape[1]}"
        )
    heaviest = np.argsort(-model.weights_, kind="stable")[:_MOST_IMAGES]
    width = min(len(heaviest), _IMAGES_A_ROW)
    height = -(-len(heaviest) // width)
    ax = ax or new_axes(0.8 * width + 1.0, 0.8 * height + 1.0)[0]
    ax.imshow(mosaic(model.exemplars_[heaviest].reshape(-1, *shape), width), cmap="gray_r")
    ax.set_axis_off()
    share = float(model.weights_[heaviest].sum())
    ax.set_title(
        f"{len(heaviest)} of {len(model.weights_)} exemplars, weight {share:.2f}", loc="left"
    )
    return ax


def plot_rounds(history: Sequence[Round], ax: Axes | None = None) -> Axes:
    """Draw objective and duality gap by round.

    Parameters
    ----------
    history : sequence of Round
        As in ``history_`` of an estimator; not empty.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure. The gap has an axis at the right.

    Returns
    -------
    matplotlib Axes
        Those of the objective.
    """
    ax = ax or new_axes(6.4, 4.2, columns=1)[0]
    rounds = np.arange(1, len(history) + 1)
    ax.plot(rounds, [entry.objective for entry in history], "o-", color=COLORS[0], markersize=3)
    ax.set_xlabel("round")
    ax.set_ylabel("objective", color=COLORS[0])
    right = ax.twinx()
    gaps = np.array([entry.gap for entry in history])
    positive = gaps > 0.0
    right.plot(rounds[positive], gaps[positive], "s--", color=COLORS[5], markersize=3)
    if positive.any():
        right.set_yscale("log")
    right.set_ylabel("duality gap", color=COLORS[5])
    ax.figure.subplots_adjust(right=0.86)
    return ax


_RESOLUTION = 200
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


def plot_mixture_density(
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
    >>> ax = plot_mixture_density(SGDGaussianMixture(4, random_state=0).fit(X), X)
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
